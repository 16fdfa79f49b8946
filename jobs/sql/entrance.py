"""Where clients of the SQL server come in: Spark's Thrift server, with the rules of jobs/sql/guard.py.

What a client gives with its connection becomes settings of its session, of Hive's, and even of the process
(set:system:), before any statement. So that is held against the rules first.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from tidemark.jobs.sql.janino import compiled

JAVA = r"""
package tidemark;

import java.lang.reflect.Method;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
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
  /** Where clients come in. What they give with a connection becomes settings, Java's too (set:system:). */
  static final class Entrance extends ThriftBinaryCLIService {
    private final SqlGuard.Rules rules;

    Entrance(CLIService behind, SqlGuard.Rules rules) {
      super(behind);
      this.rules = rules;
    }

    public TOpenSessionResp OpenSession(TOpenSessionReq asked) throws org.apache.thrift.TException {
      try {
        check(asked.getConfiguration());
      } catch (RuntimeException refused) {
        TOpenSessionResp answer = new TOpenSessionResp();
        answer.setStatus(HiveSQLException.toTStatus(new HiveSQLException(refused.getMessage(), refused)));
        return answer;
      }
      return super.OpenSession(asked);
    }

    private void check(Map given) {
      if (given == null) {
        return;
      }
      for (Iterator all = given.entrySet().iterator(); all.hasNext();) {
        Map.Entry one = (Map.Entry) all.next();
        String name = (String) one.getKey();
        if (!name.equals("use:database")) { // a statement USE follows, which the parser sees
          rules.checkSetting(name.replaceFirst("^set:hive(conf|var):", ""), (String) one.getValue());
        }
      }
    }
  }

  /**
   * Starts the server as Spark does, with the rules in every session from now on, that of the server itself
   * included, and with our entrance in place before anybody can come in.
   */
  public HiveThriftServer2 start(SparkSession spark, SqlGuard.Rules rules) throws Exception {
    spark.extensions().injectParser(rules);
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


def start(spark: SparkSession, rules: Any) -> Any:
    """Spark's server, listening; every session from now on has the rules."""
    loader = rules.getClass().getClassLoader()
    entrance = compiled(spark, JAVA, loader).getClassLoader().loadClass("tidemark.SqlEntrance").newInstance()
    return entrance.start(spark._jsparkSession, rules)  # noqa: SLF001
