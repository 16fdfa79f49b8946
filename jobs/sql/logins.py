"""What a connection to the SQL server may cost before its client has logged in.

Spark's server gives each connection a thread and waits for the login without an end; the first message may
announce 100 MB, which are allocated. So that clients without an account cannot lock others out:

* a connection that has not logged in after `hive.server2.thrift.login.timeout` (20 s) is closed, whatever it
  has sent by then;
* at most a fifth of the server's threads (`hive.server2.thrift.max.worker.threads`, 500) wait for logins. One
  more connection closes another: the oldest of the address that has the most, so that an ordinary client,
  which logs in at once, stays;
* a message of a login has at most LOGIN_BYTES; a later one, `hive.server2.thrift.max.message.size`.

A message that is too long is refused at its header, before memory is allocated for it.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from tidemark.jobs.sql.janino import compile_java

LOGIN_BYTES = 1 << 16  # the largest tickets of Kerberos; a name and a password need 2 KB
MESSAGE_BYTES = 1 << 24  # the default after the login: a statement and its settings
THREADS_PER_LOGIN = 5  # one of so many threads may wait for a login

JAVA = r"""
package tidemark;

import java.io.IOException;
import java.net.InetAddress;
import java.net.Socket;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashSet;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Future;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import org.apache.spark.sql.hive.thriftserver.ReflectionUtils;
import org.apache.thrift.server.TServer;
import org.apache.thrift.transport.TServerTransport;
import org.apache.thrift.transport.TSocket;
import org.apache.thrift.transport.TTransport;
import org.apache.thrift.transport.TTransportException;
import org.apache.thrift.transport.TTransportFactory;

public final class SqlLogins {
  private final Set waiting = new LinkedHashSet(); // connections without a login, oldest first
  private final ScheduledThreadPoolExecutor clock = new ScheduledThreadPoolExecutor(1);
  private final long seconds;
  private final int most;
  private final int messageBytes;

  SqlLogins(long seconds, int most, int messageBytes) {
    this.seconds = seconds;
    this.most = Math.max(1, most);
    this.messageBytes = messageBytes;
    clock.setRemoveOnCancelPolicy(true);
  }

  /** Limits the connections of a server that does not listen yet. */
  public static void limit(TServer server, long seconds, int threads, int messageBytes) {
    SqlLogins logins = new SqlLogins(seconds, threads / THREADS_PER_LOGIN, messageBytes);
    Object door = ReflectionUtils.getSuperField(server, "serverTransport_");
    ReflectionUtils.setSuperField(server, "serverTransport_", new Door(logins, (TServerTransport) door));
    Object login = ReflectionUtils.getSuperField(server, "inputTransportFactory_");
    ReflectionUtils.setSuperField(server, "inputTransportFactory_", new Login((TTransportFactory) login));
  }

  synchronized void add(Connection connection) {
    if (waiting.size() >= most) {
      oldestOfTheMost().run();
    }
    waiting.add(connection);
    connection.end = clock.schedule((Runnable) connection, seconds, TimeUnit.SECONDS);
  }

  synchronized void remove(Connection connection) {
    waiting.remove(connection);
    if (connection.end != null) {
      connection.end.cancel(false);
    }
  }

  /** The oldest connection of the address that has the most. */
  private Connection oldestOfTheMost() {
    Map counts = new HashMap();
    int highest = 0;
    for (Iterator all = waiting.iterator(); all.hasNext();) {
      InetAddress address = ((Connection) all.next()).address;
      int count = counts.containsKey(address) ? ((Integer) counts.get(address)).intValue() + 1 : 1;
      counts.put(address, Integer.valueOf(count));
      highest = Math.max(highest, count);
    }
    for (Iterator all = waiting.iterator(); all.hasNext();) {
      Connection connection = (Connection) all.next();
      if (((Integer) counts.get(connection.address)).intValue() == highest) {
        return connection;
      }
    }
    throw new IllegalStateException("no connection waits");
  }

  /** Accepts connections for the server. */
  static final class Door extends TServerTransport {
    private final SqlLogins logins;
    private final TServerTransport given;

    Door(SqlLogins logins, TServerTransport given) {
      this.logins = logins;
      this.given = given;
    }

    public TTransport accept() throws TTransportException {
      Connection connection = new Connection(logins, ((TSocket) given.accept()).getSocket());
      logins.add(connection);
      return connection;
    }

    public void listen() throws TTransportException {
      given.listen();
    }

    public void interrupt() {
      given.interrupt();
    }

    public void close() {
      logins.clock.shutdownNow();
      given.close();
    }
  }

  /** Logs a client in, in the thread of its connection. */
  static final class Login extends TTransportFactory {
    private final TTransportFactory given;

    Login(TTransportFactory given) {
      this.given = given;
    }

    public TTransport getTransport(TTransport connection) throws TTransportException {
      TTransport transport = given.getTransport(connection);
      ((Connection) connection).enter(transport != connection);
      return transport;
    }
  }

  /** Each message is read in two pieces: a header, whose last four bytes are a length, and so many bytes. */
  static final class Connection extends TSocket implements Runnable {
    private final SqlLogins logins;
    final InetAddress address;
    Future end;
    private volatile boolean entered;
    private boolean hasHeaders = true;
    private boolean atHeader = true;

    Connection(SqlLogins logins, Socket socket) throws TTransportException {
      super(socket);
      this.logins = logins;
      address = socket.getInetAddress();
    }

    void enter(boolean hasHeaders) {
      entered = true;
      this.hasHeaders = hasHeaders; // without SASL there are no messages, and no logins
      logins.remove(this);
    }

    /** Closes the connection, whose thread reads from it. */
    public void run() {
      logins.remove(this);
      try {
        getSocket().close();
      } catch (IOException alreadyClosed) {
        return;
      }
    }

    public void close() {
      logins.remove(this);
      super.close();
    }

    public int readAll(byte[] bytes, int start, int length) throws TTransportException {
      int count;
      try {
        count = super.readAll(bytes, start, length);
      } catch (TTransportException error) {
        throw entered ? error : refused("closed before a login");
      }
      if (hasHeaders && atHeader) {
        check(bytes, start + length - 4);
      }
      atHeader = !atHeader;
      return count;
    }

    private void check(byte[] bytes, int at) throws TTransportException {
      long length = 0;
      for (int i = at; i < at + 4; i++) {
        length = length << 8 | bytes[i] & 0xff;
      }
      if (length > (entered ? logins.messageBytes : LOGIN_BYTES)) {
        throw refused("a message of " + length + " bytes");
      }
    }

    /** Of this type, so that the server does not log it: clients could fill its disk. */
    private static TTransportException refused(String what) {
      return new TTransportException(TTransportException.END_OF_FILE, what);
    }
  }
}
""".replace("THREADS_PER_LOGIN", str(THREADS_PER_LOGIN)).replace("LOGIN_BYTES", str(LOGIN_BYTES))


def loader(spark: SparkSession, parent: Any) -> Any:
    """The class loader, below `parent`, that has the class `SqlLogins`."""
    return compile_java(spark, JAVA, parent).getClassLoader()
