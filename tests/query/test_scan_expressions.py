"""Expressions of filters: what is allowed runs as it was written, and nothing else is accepted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import duckdb
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidemark.query.reading.sql_text import quoted
from tidemark.query.scans import allow_list, expressions
from tidemark.query.scans.expressions import Expression, checked_expression, duckdb_name
from tidemark.warehouse import InputError
from tidemark.warehouse.columns.column_types import column_type

COLUMNS = {
    "_source": "string",
    "_batch": "long",
    "_tick": "long",
    "dest": "string",
    "Distance": "integer",
    "time": "timestamp",
    "day": "date",
    "price": "decimal(10,2)",
    "late": "boolean",
    "delay": "double",
    "raw": "binary",
    "nested": "struct<a:int>",
    "current_date": "date",
    'odd"name': "integer",
}
VALUES = """
    ('SFO', 501, TIMESTAMPTZ '2001-02-03 04:05:06Z', DATE '2001-02-03', 1.25, true, 1.5, 'aa'::BLOB,
     DATE '2001-01-01', 1),
    ('ATL', 500, TIMESTAMPTZ '2001-12-31 23:59:59Z', DATE '2001-12-31', -1.25, false, 'NaN', 'b'::BLOB,
     DATE '2002-01-01', 2),
    ('it''s', -7, TIMESTAMPTZ '1969-12-31 00:00:00Z', DATE '1969-12-31', 0, NULL, -0.0, NULL, NULL, 3),
    (NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)
"""
USABLE = [name for name in COLUMNS if not name.startswith("_") and name != "nested"]

ALLOWED = [
    "dest LIKE 'S%' AND distance > 500",
    "dest NOT LIKE 'S$%' ESCAPE '$' OR dest ILIKE 's__'",
    "dest SIMILAR TO '[A-S]+' AND NOT dest ~ 'L$' AND dest GLOB 'S*'",
    "DEST IN ('SFO', 'it''s') AND \"Distance\" NOT IN (1, 2)",
    "distance BETWEEN 1 AND 500 OR distance IS NULL",
    "late IS NOT TRUE AND late IS DISTINCT FROM NULL",
    "CASE WHEN late THEN 'x' ELSE dest END = 'x'",
    "coalesce(delay, 0) <= 1.5e0 AND -delay < - -2",
    "CAST(distance AS DOUBLE) / 2 > 250 AND price::DECIMAL(12, 3) = 1.250 AND TRY_CAST(dest AS INT) IS NULL",
    "extract(year FROM time) = 2001 AND date_part('month', day) IN (2, 12) AND hour(time) < 12",
    "time >= TIMESTAMPTZ '2001-01-01' - INTERVAL 1 DAY AND date_trunc('month', time) < DATE '2001-03-01'",
    "hour(time AT TIME ZONE 'America/New_York') = 23",
    "time_bucket(INTERVAL '6 hours', time) < TIMESTAMPTZ '2001-02-01' + INTERVAL '1 day 2 hours'",
    "upper(left(dest, 1)) || substring(dest FROM 2 FOR 1) = 'SF' AND length(trim(BOTH 'x' FROM dest)) = 3",
    "starts_with(dest, 'A') OR dest ^@ 'S' OR contains(dest, '''') OR position('F' IN dest) = 2",
    "raw = 'aa'::BLOB AND abs(round(delay, 1)) = 1.5 AND distance % 2 = 1 AND distance // 2 = 250",
    'current_date > day OR "odd""name" = 2',
    "isnan(delay) -- a comment",
    "/* one */ late",
    "true",
    "(" * 400 + "late" + ")" * 400,
]
REFUSED = {
    "dest = (SELECT 'a')": "a subquery",
    "dest IN (SELECT dest FROM t)": "a subquery",
    "EXISTS (FROM range(3))": "a subquery",
    "distance > ALL (SELECT 1)": "a subquery",
    "distance = ANY ([1, 2])": "a subquery",
    "lower((SELECT content FROM read_text('/etc/passwd'))) = ''": "a subquery",
    "CASE WHEN true THEN (SELECT 1) END = 1": "a subquery",
    "late; DROP TABLE t": "cannot be parsed",
    "late; SELECT 1": "not one expression",
    "late; --": "cannot be parsed",
    "late) OR (late": "cannot be parsed",
    "late) --": "cannot be parsed",
    "late) UNION SELECT (1": "cannot be parsed",
    "late /*": "cannot be parsed",
    "late GROUP BY 1": "one expression",
    "late ORDER BY 1": "one expression",
    "late LIMIT 1": "one expression",
    "late UNION SELECT 2": "one expression",
    "late WINDOW w AS (PARTITION BY late)": "one expression",
    "late QUALIFY true": "one expression",
    "late AS other": "cannot be parsed",
    "late USING SAMPLE 1": "one expression",
    "late, late": "",
    "": "is empty",
    " \n": "is empty",
    "-- nothing": "cannot be parsed",
    "\x00": "NUL",
    "late\x00": "NUL",
    "dest = '\ud800'": "no character",
    "missing = 1": "there is no column 'missing'. Expected one of: dest, Distance, time",
    "_tick = 1": "there is no column '_tick'",
    "_SOURCE = 'a'": "there is no column '_SOURCE'",
    "rowid = 1": "there is no column 'rowid'",
    "filename = 'a'": "there is no column 'filename'",
    "current_user = 'a'": "there is no column 'current_user'",
    "current_timestamp > day": "there is no column 'current_timestamp'",
    "t = 1": "there is no column 't'",
    "nested IS NULL": "of type struct<a:int>",
    "t.late": "a name with a dot",
    "nested.a = 1": "a name with a dot",
    "memory.main.t.late": "a name with a dot",
    "?": "a parameter",
    "$1 = 2": "a parameter",
    "$name = 2": "a parameter",
    "*": "a star",
    "COLUMNS('d.*') = 1": "a star",
    "#1": "a reference",
    "DEFAULT": "DEFAULT",
    "dest COLLATE nocase = 'sfo'": "COLLATE",
    "sum(distance) > 1": "the function sum",
    "count(*) > 1": "the function count_star",
    "sum(distance) OVER () > 1": "a window function",
    "row_number() OVER () > 1": "a window function",
    "abs(DISTINCT distance) = 1": "distinct",
    "abs(distance ORDER BY distance) = 1": "ORDER BY",
    "abs(distance) FILTER (WHERE late) = 1": "filter",
    "abs(x := distance) = 1": "a named argument",
    "now() > time": "the function now",
    "today() > day": "the function today",
    "age(time) > INTERVAL 1 DAY": "the function age",
    "random() < 0.5": "the function random",
    "lower(upper(uuid()::VARCHAR)) = ''": "the function uuid",
    "distance + setseed(0.5) = 1": "the function setseed",
    "getvariable('x') = 1": "the function getvariable",
    "getenv('HOME') = ''": "the function getenv",
    "current_setting('memory_limit') = ''": "the function current_setting",
    "version() = ''": "the function version",
    "nextval('s') = 1": "the function nextval",
    "sleep_ms(1000) IS NULL": "the function sleep_ms",
    "error('x') IS NULL": "the function error",
    "read_text('/etc/passwd') = ''": "the function read_text",
    "repeat('a', 1000000000) = ''": "the function repeat",
    "replace(dest, 'a', 'aa') = ''": "the function replace",
    "nullif(distance, 1) = 1": "the function nullif",
    "main.lower(dest) = ''": "the function main.lower",
    "system.main.lower(dest) = ''": "the function system.main.lower",
    "dest.lower() = ''": "the function dest.lower",
    "distance OPERATOR(main.+) 1 = 2": "the function main.+",
    "list_filter([1], lambda x: x > 1) IS NULL": "the function list_filter",
    "(x -> x + 1) IS NULL": "a lambda",
    "[1, 2] IS NULL": "the function list_value",
    "{'a': 1} IS NULL": "the function struct_pack",
    "dest[1] = 'S'": "ARRAY_EXTRACT",
    "unnest([1]) = 1": "the function unnest",
    "TRY(distance) = 1": "OPERATOR_TRY",
    "GROUPING(late) = 1": "GROUPING_FUNCTION",
    "dest::JSON IS NULL": "a cast to JSON",
    "dest::main.x IS NULL": "a cast to main.x",
    "dest::INTEGER[] IS NULL": "a cast to list",
    "dest::STRUCT(a INT) IS NULL": "a cast to STRUCT",
    "dest::ENUM('a') IS NULL": "a cast to ENUM",
    "dest::VARCHAR(3) = 'SFO'": "a size of the type",
    "distance::DECIMAL('5', 1) = 1": "a size of a type",
    "distance::DECIMAL(5 + 5, 1) = 1": "cannot be parsed",
    "CASE distance WHEN 1 THEN true END": "CASE with an operand",
    "CASE /* a */ distance WHEN 1 THEN true END": "CASE with an operand",
    "dest + 1 = 2": "cannot be evaluated",
    "lower(distance, 2) = ''": "cannot be evaluated",
    "a" * 10_001: "10,001 characters, expected at most 10,000",
    "x" * 2**20: "expected at most 10,000",
    "(" * 5000: "more than 1,000 parentheses",
    "[" * 5000: "more than 1,000 parentheses",
    "NOT " * 2000 + "late": "",
    "-" * 300 + " distance = 1": "",
    "- " * 150 + "distance = 1": "nested more than 100 levels",
    "+".join(["distance"] * 150) + " > 1": "nested more than 100 levels",
    "CASE WHEN late THEN " * 350 + "1" + " END" * 350 + " = 1": "nested more than 100 levels",
    "dest" + " COLLATE nocase" * 600 + " = ''": "",
    "time" + " AT TIME ZONE 'UTC'" * 480 + " IS NULL": "nested more than 100 levels",
    "CASE " * 18 + "distance" + " WHEN 1 THEN 1 WHEN 2 THEN 2 END" * 18: "CASE with an operand",
}

TOKENS = [
    *("dest", "DISTANCE", "time", "late", "delay", "missing", "_tick", '"odd""name"', "t.late", "rowid", "*"),
    *("1", "1.5", "'a'", "'it''s'", "NULL", "true", "E'\\''", "$$a$$", "X'00'", "?", "$1", "#1"),
    *("=", "<>", "<", "+", "-", "||", "~~", "::", ".", ",", ";", "(", ")", "[", "]", "{", "}", "->", ":="),
    *("AND", "OR", "NOT", "IN", "IS", "LIKE", "BETWEEN", "CASE", "WHEN", "THEN", "ELSE", "END", "AS", "FROM"),
    *("SELECT", "WHERE", "GROUP BY", "UNION", "OVER", "FILTER", "LIMIT", "COLLATE", "ESCAPE", "EXISTS"),
    *("lower(", "abs(", "coalesce(", "CAST(", "now()", "random()", "sum(", "read_text(", "getvariable("),
    *("INTEGER", "VARCHAR", "JSON", "INTERVAL", "DAY", "--", "/*", "*/", "\n", "lambda x:"),
]


@st.composite
def conditions(draw: st.DrawFn, depth: int = 3) -> str:
    """Conditions that are mostly allowed, with parts inside that are not."""
    inner = conditions(depth=depth - 1) if depth else st.sampled_from(ALLOWED[:4])
    text = st.sampled_from(
        ["dest", "'SFO'", "lower(dest)", "left(dest, 2)", "uuid()::VARCHAR", "(SELECT 'a')"]
    )
    number = st.sampled_from(
        ["distance", "delay", "2", "-1.5", "abs(distance)", "random()", "sum(distance)", "hour(time)"]
    )
    shape = draw(st.integers(0, 6))
    if shape == 0:
        return f"({draw(inner)}) {draw(st.sampled_from(['AND', 'OR']))} {draw(inner).replace('--', '')}"
    if shape == 1:
        return f"NOT ({draw(inner)}\n)"
    if shape == 2:
        return f"{draw(text)} {draw(st.sampled_from(['LIKE', '=', '<', 'ILIKE', '^@']))} {draw(text)}"
    if shape == 3:
        return (
            f"{draw(number)} {draw(st.sampled_from(['=', '<', '>=', '<>']))} {draw(number)} * {draw(number)}"
        )
    if shape == 4:
        return f"{draw(number)} IN ({draw(number)}, {draw(number)})"
    if shape == 5:
        return f"CASE WHEN {draw(inner)}\n THEN {draw(number)} ELSE {draw(number)} END > {draw(number)}"
    return f"coalesce({draw(number)}, {draw(number)}) BETWEEN {draw(number)} AND {draw(number)}"


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        fields = ", ".join(f"{quoted(name)} {duckdb_name(column_type(COLUMNS[name]))}" for name in USABLE)
        connection.execute(f"CREATE TABLE t ({fields})")
        connection.execute(f"INSERT INTO t VALUES {VALUES}")
        yield connection


def nodes(tree: Any) -> Iterator[dict[str, Any]]:
    """All dicts of a parse tree."""
    if isinstance(tree, dict):
        yield tree
    for child in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ():
        yield from nodes(child)


def check_safe(expression: Expression) -> None:
    """The SQL has only allowed functions and nodes, and only known columns: a walk over its whole tree."""
    (encoded,) = duckdb.execute("SELECT json_serialize_sql(?)", [f"SELECT {expression.sql}"]).fetchall()[0]
    tree = json.loads(encoded)
    assert not tree["error"], tree
    (statement,) = tree["statements"]
    (selected,) = statement["node"]["select_list"]
    found = list(nodes(selected))
    columns = [node["column_names"] for node in found if "column_names" in node]
    assert {name for (name,) in columns} == set(expression.columns) <= set(USABLE)
    for node in found:
        assert node.get("function_name", "+") in allow_list.FUNCTIONS
        assert node.get("class") not in {"SUBQUERY", "WINDOW", "STAR", "PARAMETER", "LAMBDA", "COLLATE"}
        assert not any(
            node.get(field) for field in ("schema", "catalog", "filter", "distinct", "subquery", "name")
        )


def rows(connection: duckdb.DuckDBPyConnection, condition: str) -> Any:
    try:
        return connection.execute(f"SELECT * FROM t WHERE ({condition}\n) ORDER BY ALL").fetchall().__repr__()
    except duckdb.ConversionException:
        return "conversion"


@pytest.mark.parametrize("text", ALLOWED)
def test_what_is_allowed_runs_as_it_is_written(connection: duckdb.DuckDBPyConnection, text: str) -> None:
    expression = checked_expression(text, COLUMNS)
    check_safe(expression)
    assert expression.text == text
    assert rows(connection, expression.sql) == rows(connection, text)
    again = checked_expression(expression.sql, COLUMNS)
    assert (again.sql, again.columns) == (expression.sql, expression.columns)


@pytest.mark.parametrize(("text", "problem"), REFUSED.items(), ids=lambda value: value[:40].strip("\x00"))
def test_all_else_is_refused_with_the_reason(text: str, problem: str) -> None:
    with pytest.raises(InputError) as caught:
        checked_expression(text, COLUMNS)
    assert problem in str(caught.value)
    assert len(str(caught.value)) < 4000


@pytest.mark.parametrize("text", [None, 5, b"late", ["late"]])
def test_what_is_no_text_is_refused(text: Any) -> None:
    with pytest.raises(InputError, match="an expression must be text"):
        checked_expression(text, COLUMNS)


def test_columns_have_their_stored_names_in_the_order_of_the_text() -> None:
    expression = checked_expression(
        'DISTANCE > 1 AND Dest = \'x\' AND "distance" < 9 AND "ODD""NAME" = 1', COLUMNS
    )
    assert expression.columns == ("Distance", "dest", 'odd"name')
    assert '"Distance"' in expression.sql
    with pytest.raises(InputError, match="there is no column '\u0131'"):
        checked_expression("\u0131 = 1", {"I": "integer"})


def test_a_column_with_the_name_of_a_function_is_the_column(connection: duckdb.DuckDBPyConnection) -> None:
    expression = checked_expression("current_date = DATE '2001-01-01'", COLUMNS)
    assert connection.execute(f"SELECT dest FROM t WHERE {expression.sql}").fetchall() == [("SFO",)]


def test_every_listed_function_is_scalar_and_consistent(connection: duckdb.DuckDBPyConnection) -> None:
    """DuckDB itself says which functions depend on their arguments alone."""
    found = connection.execute(
        "SELECT function_name FROM duckdb_functions() GROUP BY ALL "
        "HAVING bool_and(function_type = 'scalar' AND stability = 'CONSISTENT' AND NOT has_side_effects)"
    ).fetchall()
    assert {name for (name,) in found} >= allow_list.FUNCTIONS


def check_any(text: str) -> None:
    try:
        expression = checked_expression(text, COLUMNS)
    except InputError:
        return
    check_safe(expression)


@given(st.text(max_size=60) | st.lists(st.sampled_from(TOKENS), max_size=25).map(" ".join))
@example("late) OR (late")
@example("E'\\'' CASE")
def test_any_text_is_refused_or_safe(text: str) -> None:
    check_any(text)


@given(text=conditions())
def test_any_condition_is_refused_or_means_the_same(connection: duckdb.DuckDBPyConnection, text: str) -> None:
    check_any(text)
    try:
        expression = checked_expression(text, COLUMNS)
    except InputError:
        return
    assert rows(connection, expression.sql) == rows(connection, text)


def test_a_check_of_the_top_alone_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken variant: the functions inside of other nodes are not checked."""
    copied = expressions._Copier.copied

    def top_alone(copier: expressions._Copier, node: Any, depth: int) -> Any:
        return node if depth else copied(copier, node, depth)

    monkeypatch.setattr(expressions._Copier, "copied", top_alone)
    with pytest.raises(AssertionError):
        check_safe(checked_expression("abs(random()) < 1", COLUMNS))
    with pytest.raises(InputError, match="the function random"):
        checked_expression("random()", COLUMNS)


def test_text_that_is_pasted_into_the_statement_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken variant: the text is parsed inside parentheses alone, so it can close and open them."""
    parse = expressions._parse
    monkeypatch.setattr(
        expressions,
        "_parse",
        lambda connection, text, part: parse(connection, text, part if part.startswith("(") else f"({part})"),
    )
    assert checked_expression("late) OR (late", COLUMNS).sql == "(late OR late)"
