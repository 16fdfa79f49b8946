"""The entry point of the SQL server: Spark's Thrift server with the limits of jobs/sql/logins.py.

Unless all is allowed, it has the rules of jobs/sql/guard.py, too.
A client sends settings with its connection. Before the first statement they become settings of its session,
of Hive's session, and even of the process (set:system:). So they are checked against the rules first.
"""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from tidemark.jobs.sql import guard, logins
from tidemark.jobs.sql.janino import compile_java

JAVA = r"""
package tidemark;

import java.lang.reflect.Method;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hive.conf.HiveConf;
import org.apache.hive.service.cli.CLIService;
import org.apache.hive.service.cli.HiveSQLException;
import org.apache.hive.service.cli.thrift.ThriftBinaryCLIService;
import org.apache.hive.service.rpc.thrift.TOpenSessionReq;
import org.apache.hive.service.rpc.thrift.TOpenSessionResp;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.hive.HiveUtils$;
import org.apache.spark.sql.hive.thriftserver.HiveThriftServer2;
import org.apache.spark.sql.hive.thriftserver.HiveThriftServer2$;
import org.apache.spark.sql.hive.thriftserver.ReflectionUtils;

public final class SqlEntrance {
  /** Accepts connections. Their settings may even be system properties of Java (set:system:). */
  static final class Entrance extends ThriftBinaryCLIService {
    private final SqlGuard.Rules rules;
    private volatile boolean ended;

    Entrance(CLIService service, SqlGuard.Rules rules) {
      super(service);
      this.rules = rules;
    }

    protected void initializeServer() {
      super.initializeServer();
      HiveConf.ConfVars timeout = HiveConf.ConfVars.HIVE_SERVER2_THRIFT_LOGIN_TIMEOUT;
      long seconds = hiveConf.getTimeVar(timeout, TimeUnit.SECONDS);
      int bytes = hiveConf.getIntVar(HiveConf.ConfVars.HIVE_SERVER2_THRIFT_MAX_MESSAGE_SIZE);
      SqlLogins.limit(server, seconds, maxWorkerThreads, bytes);
    }

    /** Accepts connections until the server stops, or fails, as without memory. */
    public void run() {
      try {
        super.run();
      } finally {
        ended = true;
      }
    }

    public TOpenSessionResp OpenSession(TOpenSessionReq request) throws org.apache.thrift.TException {
      try {
        check(request.getConfiguration());
      } catch (RuntimeException refused) {
        TOpenSessionResp answer = new TOpenSessionResp();
        answer.setStatus(HiveSQLException.toTStatus(new HiveSQLException(refused.getMessage(), refused)));
        return answer;
      }
      return super.OpenSession(request);
    }

    private void check(Map settings) {
      if (settings == null || rules == null) {
        return;
      }
      for (Iterator entries = settings.entrySet().iterator(); entries.hasNext();) {
        Map.Entry entry = (Map.Entry) entries.next();
        String name = (String) entry.getKey();
        if (!name.equals("use:database")) { // becomes a statement USE, which the parser checks
          rules.checkSetting(name.replaceFirst("^set:hive(conf|var):", ""), (String) entry.getValue());
        }
      }
    }
  }

  /** Whether a server of `start` accepts connections, and Spark runs. */
  public boolean serves(HiveThriftServer2 server, SparkSession spark) {
    Entrance entrance = (Entrance) ReflectionUtils.getSuperField(server, "thriftCLIService");
    return !entrance.ended && !spark.sparkContext().isStopped();
  }

  /**
   * Starts the server as Spark does. All sessions from now on follow the rules, if there are some, including
   * the server's own. The entrance replaces Spark's service before the server listens.
   */
  public HiveThriftServer2 start(SparkSession spark, SqlGuard.Rules rules) throws Exception {
    if (rules != null) {
      spark.extensions().injectParser(rules);
    }
    SparkSession session = (SparkSession) spark.newSession();
    SparkContext context = session.sparkContext();
    Configuration settings = session.sessionState().newHadoopConf();
    HiveConf conf = HiveUtils$.MODULE$.newClientForExecution(context.conf(), settings).conf();
    HiveThriftServer2 server = new HiveThriftServer2(session);
    server.init(conf);
    List services = (List) ReflectionUtils.getAncestorField(server, 2, "serviceList");
    Entrance entrance = new Entrance((CLIService) services.get(0), rules);
    entrance.init(conf);
    services.set(1, entrance);
    ReflectionUtils.setSuperField(server, "thriftCLIService", entrance);
    HiveThriftServer2$.MODULE$.systemExitOnError().set(false);
    server.start();
    Method listen = HiveThriftServer2$.class.getDeclaredMethod(
        "createListenerAndUI", new Class[] {HiveThriftServer2.class, SparkContext.class});
    listen.setAccessible(true);
    listen.invoke(HiveThriftServer2$.MODULE$, new Object[] {server, context});
    return server;
  }
}
"""


def start(spark: SparkSession, rules: Any | None) -> Any:
    """Starts Spark's server, which listens on return; all sessions from now on follow the rules.

    rules: see `guard.rules`; None allows all.
    """
    return _entrance(spark).start(spark._jsparkSession, rules)  # noqa: SLF001


def serves(spark: SparkSession, server: Any) -> bool:
    """Whether the server accepts connections; False if Java has ended, or cannot answer."""
    try:
        return bool(_entrance(spark).serves(server, spark._jsparkSession))  # noqa: SLF001
    except (Py4JError, OSError):  # the connection to Java failed
        return False


def _entrance(spark: SparkSession) -> Any:
    parent = logins.loader(spark, guard.loader(spark))
    return compile_java(spark, JAVA, parent).getClassLoader().loadClass("tidemark.SqlEntrance").newInstance()
