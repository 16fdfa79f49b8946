"""Small inputs that went wrong once, or lie beside one that did: each with its right value from plain Python.

`NAMED` says which test asserts the right values of each fault that was found first. Below are inputs of the
same kinds: text, comparisons, times, numbers of batches, points in SQL, windows and replays.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from tests.query.answers import several, single
from tidemark import query, stream, warehouse
from tidemark.query import Warehouse
from tidemark.warehouse import InputError, TidemarkError
from tidemark.warehouse.columns import given_values
from tidemark.warehouse.text.rows import text_rows

HERE = Path(__file__).parent
NAMED = {
    "text means the same by each engine": (
        "jobs/test_spark_text.py",
        "test_spark_reads_text_as_this_process_does",
    ),
    "hostile files mean the same by three ways": (
        "jobs/test_text_three_ways.py",
        "test_random_files_mean_the_same_by_the_three_ways",
    ),
    "a value between two stored ones": (
        "query/test_comparisons.py",
        "test_random_values_are_compared_with_keys_exactly",
    ),
    "the same through every door": (
        "query/test_comparison_doors.py",
        "test_duckdb_compares_exactly",
    ),
    "NaN is not NULL": (
        "query/test_sql_points.py",
        "test_nan_is_not_null",
    ),
    "weeks begin on Mondays": (
        "query/test_weeks.py",
        "test_weeks_begin_on_mondays",
    ),
    "integers are no times": (
        "query/test_integers_as_times.py",
        "test_a_number_is_no_time",
    ),
    "numbers of batches": (
        "warehouse/test_every_limit.py",
        "test_the_greatest_number_of_a_batch_is_one_that_holds",
    ),
    "the line of an error": (
        "warehouse/test_text_differential.py",
        "test_random_files_mean_what_the_plain_reading_says",
    ),
    "the zone of SQL": (
        "query/test_sql_points.py",
        "test_what_has_no_zone_is_utc_whatever_the_zone_of_the_machine",
    ),
    "types of keys in text": (
        "warehouse/test_given_rows.py",
        "test_the_first_batch_of_text_chooses_the_types_and_keys_are_text",
    ),
    "a replay with other rows": (
        "stream/test_other_rows.py",
        "test_a_number_that_comes_again_has_the_same_rows_or_is_refused",
    ),
    "whole numbers that a double rounds": (
        "warehouse/test_given_rows.py",
        "test_integers_that_do_not_fit_exactly_are_refused",
    ),
    "record batches without a key": (
        "warehouse/test_summaries_of_any_cut.py",
        "test_record_batches_without_a_key_or_without_rows_are_taken",
    ),
    "a killed append": (
        "warehouse/test_summaries_of_any_cut.py",
        "test_a_killed_append_goes_on_whatever_its_row_groups_hold",
    ),
    "edges in SQL": (
        "query/test_sql_points.py",
        "test_edges_are_those_that_were_used",
    ),
    "points in SQL": (
        "query/test_sql_points.py",
        "test_a_point_is_the_one_that_was_used_or_refused_as_in_python",
    ),
    "readers before the first batch": (
        "query/test_open_readers.py",
        "test_open_readers_answer_as_new_ones_after_each_change",
    ),
    "rows before their key": (
        "query/test_open_readers.py",
        "test_rows_that_came_before_their_key_are_read",
    ),
    "batches by spans": (
        "jobs/test_batch_every.py",
        "test_the_same_input_under_the_same_name_is_loaded_once",
    ),
    "inputs that are left out": (
        "jobs/test_inputs.py",
        "test_each_input_is_taken_whole_or_refused_here",
    ),
    "names are data": (
        "jobs/test_names.py",
        "test_a_load_prints_the_name_of_its_batch_as_it_is",
    ),
    "bounds without a zone in Spark": (
        "query/test_sql_calls_in_spark.py",
        "test_bounds_without_a_zone_are_utc",
    ),
    "points in Spark": (
        "query/test_sql_calls_in_spark.py",
        "test_points_and_edges_are_those_that_were_used",
    ),
}


@pytest.mark.parametrize("fault", NAMED)
def test_each_fault_has_its_test(fault: str) -> None:
    file, name = NAMED[fault]
    tree = ast.parse((HERE / file).read_text(encoding="utf-8"))
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_there_are_fifty_inputs() -> None:
    counts = [len(TEXTS), len(GIVEN), len(SAME_TIME), len(BATCHES), len(POINTS), len(WINDOWS), len(AGAIN)]
    assert sum(counts) >= 50


REFUSED = object()
TEXTS: list[tuple[str, pa.DataType, str, Any]] = [
    ("csv", pa.string(), '"say ""hi"""', 'say "hi"'),
    ("csv", pa.string(), '"a\r\nb"', "a\r\nb"),
    ("csv", pa.string(), "00501", "00501"),
    ("csv", pa.float64(), "1e308", 1e308),
    ("csv", pa.float64(), "1e309", REFUSED),
    ("csv", pa.float32(), "16777217", REFUSED),
    ("csv", pa.float32(), "16777217.5", 16777218.0),
    ("csv", pa.float64(), "0" * 5000 + "9007199254740993", REFUSED),
    ("csv", pa.float64(), "0" * 5000 + "9007199254740992", 2.0**53),
    ("csv", pa.int64(), "9223372036854775807", 2**63 - 1),
    ("csv", pa.int64(), "9223372036854775808", REFUSED),
    ("csv", pa.int64(), "1.0", REFUSED),
    ("csv", pa.decimal128(10, 2), "-0.10", Decimal("-0.10")),
    ("csv", pa.decimal128(10, 2), "0.105", REFUSED),
    ("csv", pa.date32(), "2024-02-29", date(2024, 2, 29)),
    ("csv", pa.date32(), "2023-02-29", REFUSED),
    ("csv", pa.date32(), "2024-02-29T00:00:00", REFUSED),
    ("csv", pa.timestamp("us", "UTC"), "2024-01-01 00:30+0100", datetime(2023, 12, 31, 23, 30, tzinfo=UTC)),
    ("csv", pa.timestamp("us", "UTC"), "12:30", REFUSED),
    ("csv", pa.timestamp("us", "UTC"), "1704067200", REFUSED),
    ("json", pa.timestamp("us", "UTC"), "1704067200", datetime(2024, 1, 1, tzinfo=UTC)),
    ("json", pa.float64(), "9007199254740993", REFUSED),
    ("json", pa.float64(), '"-inf"', -math.inf),
    ("json", pa.float64(), "NaN", REFUSED),
    ("json", pa.string(), '{"b": [1.50, null]}', '{"b":[1.50,null]}'),
    ("json", pa.string(), '"\\ud83d\\ude00"', "😀"),
    ("json", pa.string(), '"\\ud83d"', REFUSED),
    ("json", pa.bool_(), "1", REFUSED),
]


@pytest.mark.parametrize(
    ("form", "kind", "text", "expected"),
    TEXTS,
    ids=[f"{form} {kind} {text[:40]!r}" for form, kind, text, _ in TEXTS],
)
def test_text_means_its_value_or_is_refused(
    tmp_path: Path, form: str, kind: pa.DataType, text: str, expected: Any
) -> None:
    schema = pa.schema([("m", pa.float64()), ("v", kind)])
    lines = f"m,v\r\n1,{text}\r\n" if form == "csv" else f'{{"m": 1, "v": {text}}}\n'
    path = tmp_path / f"a.{form}"
    path.write_text(lines, newline="")
    if expected is REFUSED:
        with pytest.raises(InputError, match=rf"a\.{form}, line {2 if form == 'csv' else 1}: "):
            list(text_rows([path], form, schema).read())
        return
    (batch,) = text_rows([path], form, schema).read()
    assert batch.column("v").to_pylist() == [expected]


def at(day: int, hour: int = 0, us: int = 0) -> datetime:
    return datetime(2024, 1, day, hour, tzinfo=UTC) + timedelta(microseconds=us)


# 2024-01-01 is a Monday.
TIMES = [at(1), at(1, us=1), at(1, 12), at(2), at(2, 23), at(7, 23, 3_599_999_999), at(8), at(8, 1), at(15)]
ROWS: dict[str, list[Any]] = {
    "x": [1.0, -0.0, 2.5, math.inf, -math.inf, 2.0**53, 1e-300, 2.5, 0.1],
    "i": [0, 1, -1, 2**53, 2**53 + 1, 2**63 - 1, -(2**63), 5, 5],
    "p": [Decimal(number) / 100 for number in (10, 11, 30, -10, 0, 999_999, 1, 1, 10)],
    "d": [moment.date() for moment in TIMES],
    "t": TIMES,
    "k": ["a", "", "A", "é", "b", "ab", "a", "a\0", "00501"],
}
SCHEMA = pa.schema(
    [
        ("x", pa.float64()),
        ("i", pa.int64()),
        ("p", pa.decimal128(6, 2)),
        ("d", pa.date32()),
        ("t", pa.timestamp("us", "UTC")),
        ("k", pa.string()),
    ]
)


@pytest.fixture(scope="module")
def wh(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    uri: Path = tmp_path_factory.mktemp("cases") / "w"
    keys = ["i", "d", "t", "k"]
    warehouse.create(None, uri, ["x", "i", "p", "d", "t"], keys=keys, time="t", tick="1h", schema=SCHEMA)
    table = pa.table(ROWS, SCHEMA)
    warehouse.load(None, uri, table.slice(0, 4), "a")
    warehouse.load(None, uri, table.slice(4, 3), "b")
    stream.append(None, uri, table.slice(7), source="s", batch=0)
    return query.open(uri)


def moment(value: Any) -> Any:
    """A stored or given value, so that Python compares it exactly."""
    if isinstance(value, date) and not isinstance(value, datetime):
        return datetime(value.year, value.month, value.day, tzinfo=UTC)
    return value.encode() if isinstance(value, str) else value


GIVEN: list[tuple[str, Any]] = [
    ("i", 0.5),
    ("i", -0.5),
    ("i", 2.0**53),
    ("i", 2**53 + 1),
    ("i", 2**64),
    ("i", Decimal("4.999")),
    ("d", at(1, 12)),
    ("d", at(2)),
    ("d", at(7, 23, 3_599_999_999)),
    ("d", date(2024, 1, 8)),
    ("t", at(1, us=1)),
    ("t", at(1, 12)),
    ("t", date(2024, 1, 8)),
    ("t", at(31)),
    ("k", "a"),
    ("k", "a\0"),
    ("k", "B"),
]


def check_comparison(wh: Warehouse, name: str, value: Any) -> None:
    def count(compare: Callable[[Any, Any], bool]) -> int:
        return sum(compare(moment(row), moment(value)) for row in ROWS[name])

    def ranged(first: Any, last: Any) -> int:
        return int(single(wh.key_range(first, last, key=name, mode="exact")).count)

    assert ranged(None, value) == count(operator.lt)
    assert ranged(value, None) == count(operator.ge)
    assert single(wh.frequency(value, key=name, mode="exact")).count == count(operator.eq)
    if name != "k":
        assert single(wh.rank(value, name, mode="exact")).rank == count(operator.le)


@pytest.mark.parametrize(("name", "value"), GIVEN, ids=repr)
def test_a_value_stands_where_python_puts_it(wh: Warehouse, name: str, value: Any) -> None:
    check_comparison(wh, name, value)


def test_a_value_that_is_floored_is_caught(wh: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    exact = given_values.standing
    monkeypatch.setattr(
        "tidemark.warehouse.columns.keys.standing",
        lambda kind, value: exact(kind, value if isinstance(value, (bytes, float)) else math.floor(value)),
    )
    with pytest.raises(AssertionError):
        check_comparison(wh, "d", at(1, 12))


SAME_TIME: list[Any] = [
    np.datetime64("2024-01-01T12", "h"),
    np.datetime64(1_704_110_400, "s"),
    np.datetime64(1_704_110_400_000_000_000, "ns"),
    pd.Timestamp("2024-01-01 13:00+01:00"),
    "2024-01-01T12:00Z",
    pa.scalar(at(1, 12)),
]


@pytest.mark.parametrize("value", SAME_TIME, ids=repr)
def test_each_form_of_noon_is_noon(wh: Warehouse, value: Any) -> None:
    assert single(wh.rank(value, "t", mode="exact")).rank == sum(time <= at(1, 12) for time in TIMES)
    assert single(wh.frequency(value, key="d", mode="exact")).count == 0


BATCHES: list[tuple[Any, bool]] = [
    *((0, True), (np.int64(7), True), (2**63 - 2, True)),
    *((2**63 - 1, False), (2**64, False), (-1, False), (True, False), (1.0, False), ("1", False)),
]


@pytest.mark.parametrize(("number", "taken"), BATCHES, ids=repr)
def test_a_number_of_a_batch_is_taken_or_refused(tmp_path: Path, number: Any, taken: bool) -> None:
    table = pa.table({"x": [1.0, 2.0]})
    warehouse.create(None, tmp_path / "w", ["x"], eps=0.1, schema=table.schema)
    if not taken:
        with pytest.raises(InputError):
            stream.append(None, tmp_path / "w", table, source="s", batch=number)
    else:
        assert stream.append(None, tmp_path / "w", table, source="s", batch=number)
    assert warehouse.verify(tmp_path / "w").ok


POINTS: list[tuple[str, str, Any]] = [
    ("i", "0.5", Decimal("0.5")),
    ("i", "-2.5", Decimal("-2.5")),
    ("i", "1e30", 1e30),
    ("x", "'Infinity'::DOUBLE", math.inf),
    ("x", "0.1", 0.1),
    ("p", "0.105", Decimal("0.105")),
    ("p", "0.11", Decimal("0.11")),
    ("t", "TIMESTAMPTZ '2024-01-01 13:00:00+01:00'", at(1, 12)),
    ("t", "TIMESTAMP '2024-01-02 00:00:00'", at(2)),
    ("d", "TIMESTAMP '2024-01-01 12:00:00'", at(1, 12)),
    ("d", "DATE '2024-01-08'", date(2024, 1, 8)),
]


@pytest.mark.parametrize(("name", "literal", "value"), POINTS, ids=repr)
def test_a_point_in_sql_is_the_point_that_is_ranked(
    wh: Warehouse, name: str, literal: str, value: Any
) -> None:
    sql = f"SELECT \"rank\" FROM \"rank\"({literal}, '{name}', mode := 'exact')"
    ((found,),) = wh.sql(sql).fetchall()
    assert found == sum(moment(row) <= moment(value) for row in ROWS[name])


WINDOWS: list[tuple[dict[str, Any], Callable[[datetime], bool]]] = [
    ({"between": (at(1), at(2))}, lambda time: time < at(2)),
    ({"between": (None, at(1, 1))}, lambda time: time < at(1, 1)),
    ({"between": (at(8, 1), None)}, lambda time: time >= at(8, 1)),
    ({"between": ("2024-01-07 23:00", "2024-01-08")}, lambda time: at(7, 23) <= time < at(8)),
    ({"between": (date(2024, 1, 2), date(2024, 1, 8))}, lambda time: at(2) <= time < at(8)),
]


@pytest.mark.parametrize(("window", "inside"), WINDOWS, ids=[str(window) for window, _ in WINDOWS])
def test_a_window_counts_its_rows(
    wh: Warehouse, window: dict[str, Any], inside: Callable[[Any], bool]
) -> None:
    answer = single(wh.quantile(0.5, "i", mode="exact", **window))
    assert answer.n + answer.m == sum(map(inside, TIMES))


def test_weeks_and_days_are_those_of_the_calendar(wh: Warehouse) -> None:
    for every, days in (("7d", 7), ("1d", 1)):
        answers = several(wh.quantile(0.5, "i", every=every, mode="exact"))
        found = {answer.window[0]: answer.n + answer.m for answer in answers if answer.window}
        first = {time - (time - at(1)) % timedelta(days=days) for time in TIMES}
        expected = {day: sum(day <= time < day + timedelta(days=days) for time in TIMES) for day in first}
        assert {day: count for day, count in found.items() if count} == expected


ONE: dict[str, list[Any]] = {"x": [0.0, 1.5, math.nan], "k": ["a", None, "b"]}
AGAIN: list[tuple[dict[str, list[Any]], bool]] = [
    (ONE, True),
    ({"x": [math.nan, 1.5, -0.0], "k": ["b", None, "a"]}, True),
    ({"x": [0.0, 1.5, math.nan], "k": ["a", "", "b"]}, False),
    ({"x": [0.0, 1.5, None], "k": ["a", None, "b"]}, False),
    ({"x": [0.0, 1.5], "k": ["a", None]}, False),
    ({"x": [0.0, 1.5, math.nan, 0.0], "k": ["a", None, "b", "a"]}, False),
    ({"x": [], "k": []}, False),
]


@pytest.mark.parametrize(("rows", "same"), AGAIN, ids=repr)
def test_a_batch_that_comes_again_is_the_same_or_refused(
    tmp_path: Path, rows: dict[str, list[Any]], same: bool
) -> None:
    schema = pa.schema([("x", pa.float64()), ("k", pa.string())])
    warehouse.create(None, tmp_path / "w", ["x"], key="k", eps=0.1, schema=schema)
    first, again = pa.table(ONE, schema), pa.table(rows, schema)
    assert stream.append(None, tmp_path / "w", first, source="s", batch=0)
    assert warehouse.load(None, tmp_path / "w", first, "night").outcome == "loaded"
    if same:
        assert not stream.append(None, tmp_path / "w", again, source="s", batch=0)
        assert warehouse.load(None, tmp_path / "w", again, "night").outcome == "known"
    else:
        for repeat in (
            lambda: stream.append(None, tmp_path / "w", again, source="s", batch=0),
            lambda: warehouse.load(None, tmp_path / "w", again, "night"),
        ):
            with pytest.raises(TidemarkError):
                repeat()
    assert single(query.open(tmp_path / "w").frequency("a")).count == 2
