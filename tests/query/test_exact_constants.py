"""Constants in conditions are compared exactly, or refused: DuckDB alone would cut text to the type."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from tests.query.given_forms import STORED, TIMES, drawn, exact_of, times_of
from tidemark.query.reading.connections import open_connection
from tidemark.query.scans import expressions
from tidemark.query.scans.expressions import checked_expression
from tidemark.warehouse.columns.column_types import arrow_column_type
from tidemark.warehouse.errors import InputError

OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    "=": operator.eq,
    "<>": operator.ne,
    ">=": operator.ge,
    ">": operator.gt,
}
MIRRORED: dict[Any, Callable[[Any, Any], bool]] = {
    operator.lt: operator.gt,
    operator.le: operator.ge,
    operator.eq: operator.eq,
    operator.ne: operator.ne,
    operator.ge: operator.le,
    operator.gt: operator.lt,
}
EXACT = ["i8", "i32", "i64", "d10", "d18", "day", "ts"]
TYPES = {name: kind.name for name, (arrow, _) in STORED.items() if (kind := arrow_column_type(arrow))}


@pytest.fixture(scope="module")
def rows() -> Iterator[duckdb.DuckDBPyConnection]:
    """The stored values of each column as DuckDB's rows."""
    with open_connection() as connection:
        for name, (kind, stored) in STORED.items():
            connection.register(name, pa.table({name: pa.array(stored, kind)}))
        yield connection


def selected(rows: duckdb.DuckDBPyConnection, name: str, condition: str) -> list[Any]:
    """What the condition is for each row, as scans evaluate it."""
    found = rows.execute(f"SELECT {checked_expression(condition, TYPES).sql} FROM {name}").fetchall()
    return [value for (value,) in found]


def texts(name: str, count: int) -> Iterator[tuple[Fraction, str]]:
    """Given values of a column, with their text."""
    random = Random(f"constants {name}")
    for given in drawn(name, random, count):
        if name in TIMES:
            yield given.exact, next(times_of(given.exact))
        elif set(str(given.exact.denominator)) <= set("0125"):
            number = Decimal(given.exact.numerator) / given.exact.denominator
            if Fraction(number) == given.exact and abs(number) < 10**19:
                yield given.exact, random.choice([f"{number:f}", f" {number:f} ", f"{number:e}"])


def conditions_of(name: str, form: str) -> dict[str, Callable[[Any, Any], bool]]:
    """Conditions on a column and a constant, each with what it means."""
    of_column = {f"{name} {sign} {form}": holds for sign, holds in OPERATORS.items()}
    of_constant = {f"{form} {sign} {name}": MIRRORED[holds] for sign, holds in OPERATORS.items()}
    equal = [f"{name} IN ({form}, {form})", f"{name} BETWEEN {form} AND {form}"]
    equal += [f"coalesce({name}, {name}) IS NOT DISTINCT FROM {form}", f"NOT {name} NOT IN ({form})"]
    return {**of_column, **of_constant, **dict.fromkeys(equal, operator.eq)}


def flagged(
    rows: duckdb.DuckDBPyConnection, name: str, conditions: dict[str, Callable[[Any, Any], bool]]
) -> list[list[bool]]:
    """What each of the conditions is for each row, by one expression."""
    flags = "+".join(f"CASE WHEN {one} THEN {1 << i} ELSE 0 END" for i, one in enumerate(conditions))
    return [[bool(flag >> i & 1) for i in range(len(conditions))] for flag in selected(rows, name, flags)]


def check(rows: duckdb.DuckDBPyConnection, name: str) -> int:
    """Compares each condition with the list; returns how many constants were answered."""
    stored, answered = [exact_of(value) for value in STORED[name][1]], 0
    for exact, text in texts(name, 12 if name in TIMES else 7):
        for form in (f"'{text}'", *([text] if name not in TIMES else [])):
            conditions = conditions_of(name, form)
            try:
                found = flagged(rows, name, conditions)
            except (InputError, duckdb.Error):  # of digits beyond DuckDB's types
                assert exact % 1 or abs(exact) > 10**17, (name, form)
                continue
            answered += 1
            for place, (condition, holds) in enumerate(conditions.items()):
                truth = [holds(value, exact) for value in stored]
                assert [flags[place] for flags in found] == truth, condition
    return answered


@pytest.mark.parametrize("name", EXACT)
def test_every_comparison_with_a_constant_is_exact(rows: duckdb.DuckDBPyConnection, name: str) -> None:
    assert check(rows, name) >= 5


@pytest.mark.parametrize("name", ["i32", "i64", "d10", "day"])
def test_constants_that_duckdb_casts_are_caught(
    rows: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(expressions, "with_exact_constants", lambda tree, *_: tree)
    with pytest.raises(AssertionError):
        check(rows, name)


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("ts < '2024-01-01 00:00:00.0000005'", "lies between two microseconds"),
        (
            "ts < TIMESTAMP '2024-01-01 00:00:00.0000005'",
            "a TIMESTAMP cannot be '2024-01-01 00:00:00.0000005'",
        ),
        ("day = DATE '2024-01-01 12:00'", "a DATE cannot be '2024-01-01 12:00': DuckDB would cut it"),
        ("day < '2024-1-1'", "not a time: '2024-1-1'"),
        ("ts < '1704067200000'", "not a time: '1704067200000'"),
        ("i64 < 1e-400", "'1e-400' has more digits than DuckDB can compare, which are 38"),
        ("i64 < 1e-999999999", "has more digits than DuckDB can compare"),
        (f"i64 < 0.{'0' * 40}1", "has more digits than DuckDB can compare"),
        ("f64 IN (1, 9007199254740993)", "a whole number that a DOUBLE cannot hold"),
        (f"f64 < {'9' * 5000}", "999\\.\\.\\. is a whole number that a DOUBLE cannot hold"),
    ],
)
def test_a_constant_that_would_be_cut_is_refused(condition: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        checked_expression(condition, TYPES)


def check_whole_numbers_beside_floats(rows: duckdb.DuckDBPyConnection, name: str) -> None:
    """Loads refuse to round a whole number, and so do conditions; a FLOAT is compared as a double."""
    stored = [exact_of(value) for value in STORED[name][1]]
    for whole, form in ((2**24 + 1, "{}"), (2**53, "'{}.'"), (-(2**53) - 1, "{}.0"), (10**23, "'{}'")):
        conditions = conditions_of(name, form.format(whole))
        if int(float(whole)) != whole:
            with pytest.raises(InputError, match="is a whole number that a DOUBLE cannot hold"):
                selected(rows, name, " OR ".join(conditions))
            continue
        for place, found in enumerate(zip(*flagged(rows, name, conditions), strict=True)):
            condition, holds = list(conditions.items())[place]
            assert list(found) == [holds(value, whole) for value in stored], condition


@pytest.mark.parametrize("name", ["f32", "f64"])
def test_a_whole_number_beside_floats_is_exact_or_refused(
    rows: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    check_whole_numbers_beside_floats(rows, name)
    monkeypatch.setattr("tidemark.query.scans.exact_constants._FLOATS", set())  # the broken variant
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        check_whole_numbers_beside_floats(rows, name)


MIXED = [
    "text = 1",
    "1 = text",
    "text IN ('a', 1)",
    "text IS NOT DISTINCT FROM 1e0",
    "text = flag",
    "upper(text) = i64",
]


@pytest.mark.parametrize("condition", MIXED)
def test_text_is_not_read_as_another_type(condition: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="it compares text with a value of another type"):
        checked_expression(condition, TYPES)
    monkeypatch.setattr("tidemark.query.scans.exact_constants._TEXTS", {"VARCHAR", "BIGINT", "BOOLEAN"})
    monkeypatch.setattr("tidemark.query.scans.exact_constants._is_text", lambda _constant: True)
    checked_expression(condition, TYPES)  # the broken variant: DuckDB alone reads '01' as 1


@pytest.mark.parametrize(
    ("name", "condition", "count"),
    [
        ("f64", "f64 = '-0.1'", 1),
        ("f64", "f64 = -0.1", 1),
        ("f64", "f64 < 'inf' AND f64 > '-inf'", 5),
        ("f32", "f32 = '0.1'", 1),
        ("f32", "f32 = 0.1", 1),
        ("text", "text >= 'b'", 3),
        ("text", "text = upper(text) AND text IN ('', 'x')", 1),
        ("raw", "raw >= 'b'", 3),
        ("flag", "flag = 'yes'", 1),
    ],
)
def test_other_types_are_as_before(
    rows: duckdb.DuckDBPyConnection, name: str, condition: str, count: int
) -> None:
    assert sum(selected(rows, name, condition)) == count
