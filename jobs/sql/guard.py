"""The rules of the SQL server: statements must be covered by the lists of jobs/sql/allow_list.py.

A statement is checked on the output of the parser, before Spark resolves any name: the analysis already runs
code (it evaluates the arguments of IDENTIFIER and VALUES) and opens files. Every plan, expression, function
and setting in the statement must be on a list. The parser of every session is wrapped in Java code: a
statement does not wait for a call into Python, and a failure in the check refuses the statement.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from tidemark.jobs.sql.janino import compile_java

JAVA = r"""
package tidemark;

import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.FunctionIdentifier;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.analysis.UnresolvedFunction;
import org.apache.spark.sql.catalyst.analysis.UnresolvedGenerator;
import org.apache.spark.sql.catalyst.analysis.UnresolvedNamespace;
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.analysis.UnresolvedTable;
import org.apache.spark.sql.catalyst.analysis.UnresolvedTableOrView;
import org.apache.spark.sql.catalyst.analysis.UnresolvedTableValuedFunction;
import org.apache.spark.sql.catalyst.analysis.UnresolvedView;
import org.apache.spark.sql.catalyst.catalog.SessionCatalog;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.parser.ParameterContext;
import org.apache.spark.sql.catalyst.parser.ParseException;
import org.apache.spark.sql.catalyst.parser.ParserInterface;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.SetCatalogAndNamespace;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.command.ResetCommand;
import org.apache.spark.sql.execution.command.SetCommand;
import org.apache.spark.sql.execution.command.SetNamespaceCommand;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.Product;
import scala.Tuple2;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractFunction2;

public final class SqlGuard {

  /** The lists. Makes a parser for each session that checks statements against them. */
  public static final class Rules extends AbstractFunction2 {
    private final Map lists;
    private final String allowed;

    Rules(Map lists, String allowed) {
      this.lists = lists;
      this.allowed = allowed;
    }

    public Object apply(Object session, Object parser) {
      return new GuardedParser(this, (SparkSession) session, (ParserInterface) parser);
    }

    boolean has(String list, String name) {
      return ((Set) lists.get(list)).contains(name.toLowerCase(Locale.ROOT));
    }

    /** Checks a setting and its value; a reference in it, as in ${env:HOME}, is refused. */
    public void checkSetting(String name, String value) {
      if (!has("settings", name)) {
        throw refused("the setting " + name);
      }
      if (value != null && value.contains("${")) {
        throw refused("a reference in the setting " + name);
      }
    }

    RuntimeException refused(String what) {
      return new Refused("refused: " + what + ". " + allowed);
    }
  }

  /** Spark sends the text of toString to the client. */
  static final class Refused extends RuntimeException {
    Refused(String message) {
      super(message);
    }

    public String toString() {
      return getMessage();
    }
  }

  /** Wraps Spark's and Delta's parser. Texts of views are not checked: clients cannot create views. */
  static final class GuardedParser implements ParserInterface {
    private final Rules rules;
    private final SparkSession session;
    private final ParserInterface parser;

    GuardedParser(Rules rules, SparkSession session, ParserInterface parser) {
      this.rules = rules;
      this.session = session;
      this.parser = parser;
    }

    public LogicalPlan parsePlan(String text) throws ParseException {
      checkText(text);
      return checked(parser.parsePlan(text));
    }

    public LogicalPlan parsePlanWithParameters(String text, ParameterContext context) throws ParseException {
      checkText(text);
      return checked(parser.parsePlanWithParameters(text, context));
    }

    public LogicalPlan parseQuery(String text) throws ParseException {
      return parser.parseQuery(text);
    }

    public Expression parseExpression(String text) throws ParseException {
      return parser.parseExpression(text);
    }

    public TableIdentifier parseTableIdentifier(String text) throws ParseException {
      return parser.parseTableIdentifier(text);
    }

    public FunctionIdentifier parseFunctionIdentifier(String text) throws ParseException {
      return parser.parseFunctionIdentifier(text);
    }

    public Seq parseMultipartIdentifier(String text) throws ParseException {
      return parser.parseMultipartIdentifier(text);
    }

    public StructType parseRoutineParam(String text) throws ParseException {
      return parser.parseRoutineParam(text);
    }

    public StructType parseTableSchema(String text) throws ParseException {
      return parser.parseTableSchema(text);
    }

    public DataType parseDataType(String text) throws ParseException {
      return parser.parseDataType(text);
    }

    /** With variable substitution enabled, Spark's parser first replaces ${env:...} by its value. */
    private void checkText(String text) {
      if (text.contains("${") && session.sessionState().conf().variableSubstituteEnabled()) {
        throw rules.refused("a variable, ${...}");
      }
    }

    private LogicalPlan checked(LogicalPlan plan) {
      check(plan);
      return plan;
    }

    /** Checks everything reachable: plans in expressions, expressions in tuples, the plan of EXPLAIN. */
    private void check(Object part) {
      if (part instanceof TreeNode) {
        checkNode((TreeNode) part);
      }
      if (part instanceof scala.collection.Iterable) {
        checkAll(((scala.collection.Iterable) part).iterator());
      } else if (part instanceof Product) {
        checkAll(((Product) part).productIterator());
      } else if (part instanceof Map && !((Map) part).isEmpty()) {
        throw rules.refused("options of a table");
      }
    }

    private void checkAll(scala.collection.Iterator parts) {
      while (parts.hasNext()) {
        check(parts.next());
      }
    }

    private void checkNode(TreeNode node) {
      Class type = node.getClass();
      String kind = (type.getName().contains("$anon$") ? type.getSuperclass() : type).getName();
      String name = kind.substring(kind.lastIndexOf('.') + 1).replace("$", "");
      boolean ofSpark = kind.matches("org[.]apache[.]spark[.]sql[.](catalyst|execution)[.].*");
      if (!ofSpark || !rules.has(node instanceof LogicalPlan ? "plans" : "expressions", name)) {
        throw rules.refused(name);
      }
      checkName(node);
      checkCommand(node);
    }

    private void checkName(TreeNode node) {
      if (node instanceof UnresolvedFunction) {
        checkFunction("functions", ((UnresolvedFunction) node).nameParts());
      } else if (node instanceof UnresolvedTableValuedFunction) {
        checkFunction("table functions", ((UnresolvedTableValuedFunction) node).name());
      } else if (node instanceof UnresolvedGenerator) {
        checkFunction("table functions", ((UnresolvedGenerator) node).name().nameParts());
      } else if (node instanceof UnresolvedRelation) {
        checkTable(((UnresolvedRelation) node).multipartIdentifier());
      } else if (node instanceof UnresolvedTableOrView) {
        checkTable(((UnresolvedTableOrView) node).multipartIdentifier());
      } else if (node instanceof UnresolvedTable) {
        checkTable(((UnresolvedTable) node).multipartIdentifier());
      } else if (node instanceof UnresolvedView) {
        checkTable(((UnresolvedView) node).multipartIdentifier());
      }
    }

    private void checkCommand(TreeNode node) {
      if (node instanceof SetNamespaceCommand) {
        checkDatabase(((SetNamespaceCommand) node).namespace());
      } else if (node instanceof SetCatalogAndNamespace) {
        LogicalPlan target = ((SetCatalogAndNamespace) node).child();
        if (!(target instanceof UnresolvedNamespace)) {
          throw rules.refused("a schema whose name is computed");
        }
        checkDatabase(((UnresolvedNamespace) target).multipartIdentifier());
      } else if (node instanceof SetCommand) {
        Option pair = ((SetCommand) node).kv();
        if (pair.isEmpty()) {
          throw rules.refused("the list of all settings");
        }
        Tuple2 setting = (Tuple2) pair.get();
        Option value = (Option) setting._2();
        rules.checkSetting((String) setting._1(), value.isEmpty() ? null : (String) value.get());
      } else if (node instanceof ResetCommand) {
        Option setting = ((ResetCommand) node).config();
        if (setting.isEmpty()) {
          throw rules.refused("a RESET of all settings");
        }
        rules.checkSetting((String) setting.get(), null);
      }
    }

    private void checkFunction(String list, Seq name) {
      List parts = CollectionConverters.asJava(name);
      int last = parts.size() - 1;
      String before = String.join(".", parts.subList(0, last)).toLowerCase(Locale.ROOT);
      boolean builtin = before.isEmpty() || before.equals("builtin") || before.equals("system.builtin");
      if (!builtin || !rules.has(list, (String) parts.get(last))) {
        throw rules.refused("the function " + String.join(".", parts));
      }
    }

    /** A name of one part is never a file. A longer name is a file to Spark if there is no such table. */
    private void checkTable(Seq name) {
      List parts = withoutCatalog(name);
      boolean known = name.size() == 1;
      if (parts.size() == 2) {
        Option schema = Option.apply((String) parts.get(0));
        known = catalog().tableExists(new TableIdentifier((String) parts.get(1), schema));
      }
      if (!known) {
        throw rules.refused("the table " + String.join(".", parts) + ", which is not registered");
      }
    }

    private void checkDatabase(Seq name) {
      List parts = withoutCatalog(name);
      if (parts.size() != 1 || !catalog().databaseExists((String) parts.get(0))) {
        throw rules.refused("the schema " + String.join(".", parts) + ", which does not exist");
      }
    }

    private SessionCatalog catalog() {
      return session.sessionState().catalog();
    }

    /** The name without the prefix spark_catalog; the server has no other catalog. */
    private static List withoutCatalog(Seq name) {
      List parts = CollectionConverters.asJava(name);
      boolean prefixed = parts.size() > 1 && ((String) parts.get(0)).equalsIgnoreCase("spark_catalog");
      return prefixed ? parts.subList(1, parts.size()) : parts;
    }
  }

  /** lists: sets of names in lower case, by kind; allowed: what is allowed, the end of an error. */
  public Rules rules(Map lists, String allowed) {
    return new Rules(lists, allowed);
  }
}
"""


def rules(spark: SparkSession, lists: dict[str, set[str]], allowed: str) -> Any:
    """The rules as a Java object. lists: see `allow_list.lists`; allowed: the last sentence of the errors."""
    return loader(spark).loadClass("tidemark.SqlGuard").newInstance().rules(lists, allowed)


def loader(spark: SparkSession) -> Any:
    """The class loader that has the class `SqlGuard`."""
    return compile_java(spark, JAVA).getClassLoader()
