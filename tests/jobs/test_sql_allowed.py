"""The lists that statements are held against: what they let through and what not, without a server."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.jobs import attacks
from tidemark.jobs.sql import allow_list, guard

Refused = Callable[[str], str | None]

# What Spark has and clients have not. A new Spark may bring more: look at each before it goes on a list.
WITHHELD = """
    current_path from_avro from_protobuf from_xml java_method reflect schema_of_avro schema_of_xml to_avro
    to_protobuf to_xml try_reflect xpath xpath_boolean xpath_double xpath_float xpath_int xpath_long
    xpath_number xpath_short xpath_string
"""
QUERIES = """
SELECT a, b, sum(c) FROM t GROUP BY CUBE (a, b) HAVING count(*) > 1 ORDER BY 2 NULLS LAST LIMIT 5 OFFSET 1;
SELECT a, sum(c) FROM t GROUP BY GROUPING SETS ((a), ()) UNION ALL SELECT b, 1 FROM u GROUP BY ROLLUP (b);
SELECT lag(x) IGNORE NULLS OVER w, sum(x) OVER (ORDER BY b RANGE BETWEEN 1 PRECEDING AND CURRENT ROW)
    FROM t WINDOW w AS (PARTITION BY a ORDER BY b) QUALIFY row_number() OVER w = 1;
SELECT * FROM a JOIN b USING (x) LEFT JOIN c ON a.x = c.x CROSS JOIN d NATURAL JOIN e ANTI JOIN f ON TRUE;
SELECT /*+ BROADCAST(a), REPARTITION(3) */ * FROM a TABLESAMPLE (10 PERCENT) DISTRIBUTE BY x SORT BY y;
SELECT * FROM t PIVOT (sum(x) FOR y IN (1, 2)) UNION SELECT * FROM u UNPIVOT (v FOR k IN (a, b));
WITH RECURSIVE r(n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM r WHERE n < 5) TABLE r EXCEPT SELECT 2;
SELECT * FROM (SELECT 1 AS x) y(z), LATERAL (SELECT z + 1) LATERAL VIEW OUTER explode(array(1)) e AS v;
SELECT * FROM f_quantile(phi => 0.5D, mode => 'exact') q, range(3), explode(array(1)), builtin.range(1);
SELECT EXISTS (SELECT 1), (1, 2) IN (SELECT 1, 2), a LIKE ANY ('a', 'b'), NOT a LIKE ALL ('x'), a ILIKE 'x';
SELECT a BETWEEN 1 AND 2, a IS DISTINCT FROM b, a IS NOT UNKNOWN, a IS UNKNOWN, CASE WHEN a THEN b END;
SELECT DATE '2020-01-01', INTERVAL '1-2' YEAR TO MONTH, X'00ff', 1.5BD, TIME '10:00:00', CURRENT_TIMESTAMP;
SELECT EXTRACT(YEAR FROM a), TRIM(BOTH 'x' FROM a), OVERLAY(a PLACING 'x' FROM 1), TIMESTAMPADD(DAY, 1, a);
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY x), count(*) FILTER (WHERE a > 1), first(a IGNORE NULLS);
SELECT aggregate(a, 0, (acc, x) -> acc + x), m['a'], a[0], a.b.c, v:x.y, * EXCEPT (a), a COLLATE UTF8_LCASE;
FROM t |> WHERE a > 1 |> EXTEND 1 AS y |> AGGREGATE sum(a) AS s GROUP BY b |> ORDER BY s |> LIMIT 3;
SELECT a -- what is asked
    FROM t /* where */
"""
COMMANDS = """
SHOW TABLES IN default LIKE 'f*'; SHOW VIEWS; SHOW SCHEMAS; SHOW CURRENT NAMESPACE; SHOW CATALOGS;
SHOW USER FUNCTIONS; SHOW COLLATIONS; DESCRIBE TABLE EXTENDED t AS JSON; DESCRIBE t PARTITION (a = 1);
DESC t a; DESCRIBE SCHEMA default; EXPLAIN CODEGEN SELECT 1; SET TIME ZONE INTERVAL 1 HOUR;
SET `spark.sql.ansi.enabled` = false
"""


@pytest.fixture(scope="module")
def parser_with(spark: SparkSession) -> Callable[[dict[str, set[str]]], Any]:
    session: Any = spark._jsparkSession

    def make(lists: dict[str, set[str]]) -> Any:
        rules = guard.rules(spark, lists, allow_list.allowed_text())
        return rules.apply(session, session.sessionState().sqlParser())

    return make


@pytest.fixture(scope="module")
def lists(spark: SparkSession) -> dict[str, set[str]]:
    return allow_list.lists(spark.sparkContext._jvm, ["f_quantile"])


@pytest.fixture
def refused(parser_with: Callable[[dict[str, set[str]]], Any], lists: dict[str, set[str]]) -> Refused:
    """What of a statement is refused; None where it is let through."""
    parser = parser_with(lists)
    return lambda text: reason(parser, text)


def reason(parser: Any, text: str) -> str | None:
    try:
        parser.parsePlan(text)
    except (Py4JJavaError, PySparkException) as error:
        found = re.search(r"refused: (.*?)\. Clients of this server may run", str(error))
        return found[1] if found else f"not refused in so many words: {error}"
    return None


def test_queries_and_commands_that_look_pass(refused: Refused) -> None:
    heard = {one: refused(one) for one in (*QUERIES.split(";"), *COMMANDS.split(";"))}
    assert {one: reason for one, reason in heard.items() if reason} == {}


def test_the_examples_of_all_spark_s_functions_pass_but_those_withheld(
    spark: SparkSession, refused: Refused
) -> None:
    java: Any = spark.sparkContext._jvm
    registry = java.org.apache.spark.sql.catalyst.analysis.FunctionRegistry.builtin()
    every, stopped, found = set(), set(), registry.listFunction().iterator()
    while found.hasNext():
        about = registry.lookupFunction(found.next()).get()
        every.add(about.getName())
        examples = about.getExamples().replace("_FUNC_", about.getName())
        stopped |= {refused(text) for text in re.findall(r"> (SELECT .*?);\n", examples, re.DOTALL)}
    assert len(every) > 400
    assert stopped - {None} == {f"the function {name}" for name in WITHHELD.split()}


def test_the_functions_withheld_are_all_that_spark_has_beside_the_list(
    spark: SparkSession, lists: dict[str, set[str]]
) -> None:
    java: Any = spark.sparkContext._jvm
    registry = java.org.apache.spark.sql.catalyst.analysis.FunctionRegistry.builtin()
    names, found = set(), registry.listFunction().iterator()
    while found.hasNext():
        names.add(found.next().funcName())
    assert names - lists["functions"] == set(WITHHELD.split())


def test_every_attack_is_refused(refused: Refused) -> None:
    statements = (*attacks.STATEMENTS, *attacks.LIFTING)
    heard = {one: refused(one.format(folder="/somewhere")) for one in statements}
    assert {one for one, reason in heard.items() if reason is None or "so many words" in reason} == set()


@pytest.mark.parametrize(
    ("name", "entry", "statement"),
    [
        ("plans", "RefreshTable", "REFRESH TABLE t"),
        ("plans", "ScriptTransformation", "SELECT TRANSFORM(a) USING 'cat' AS b FROM t"),
        ("functions", "reflect", "SELECT reflect('a', 'b')"),
        ("table functions", "read_files", "SELECT * FROM read_files('/')"),
        ("expressions", "NamedParameter", "SELECT :x"),
        ("settings", "spark.sql.extensions", "SET spark.sql.extensions=x"),
    ],
)
def test_the_lists_decide_and_nothing_else(
    parser_with: Callable[[dict[str, set[str]]], Any],
    lists: dict[str, set[str]],
    name: str,
    entry: str,
    statement: str,
) -> None:
    """With one entry too many the attack gets through; with one too few a question does not."""
    assert reason(parser_with(lists), statement)
    assert reason(parser_with({**lists, name: lists[name] | {entry.lower()}}), statement) is None
    assert (
        reason(parser_with({**lists, "plans": lists["plans"] - {"project"}}), "SELECT a FROM t") == "Project"
    )


def test_no_variable_of_the_process_gets_into_a_statement(
    spark: SparkSession, parser_with: Callable[[dict[str, set[str]]], Any], lists: dict[str, set[str]]
) -> None:
    """Where the server's settings have Spark put them in; by default they do not."""
    assert reason(parser_with(lists), "SELECT '${env:HOME}'") == "a variable, ${...}"
    spark.conf.set("spark.sql.variable.substitute", "false")
    assert reason(parser_with(lists), "SELECT '${env:HOME}'") is None
    spark.conf.unset("spark.sql.variable.substitute")
