"""The table of column types is the one place that knows a type: an entry makes a type complete."""

from __future__ import annotations

import ast
import math
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import types as spark_types

from tidemark.query.quantiles import histograms
from tidemark.query.sql.sql_types import common_type, converter, duckdb_type
from tidemark.warehouse.columns import column_types, keys, schema
from tidemark.warehouse.columns.column_types import (
    COLUMN_TYPES,
    ColumnType,
    Limits,
    Storage,
    arrow_column_type,
    column_type,
    decimal_type,
    find_column_type,
    sql_column_type,
    sql_name,
)
from tidemark.warehouse.columns.given_values import exact_value, standing
from tidemark.warehouse.columns.keys import Key, encode_keys, name_at, names_of, same_names, stored_keys
from tidemark.warehouse.columns.value_encoding import Measure, encode_values
from tidemark.warehouse.errors import InputError
from tidemark.warehouse.ingest.row_filter import ALL_OR_NOTHING, filter_rows
from tidemark.warehouse.settings.options import Options

ROOT = Path(__file__).resolve().parents[2]
INTERVAL = "interval day to second"  # delta-rs knows the name, tidemark does not
DAY = timedelta(days=1)
MICROSECOND = timedelta(microseconds=1)
EDGES = [-3 * DAY, -MICROSECOND, timedelta(0), MICROSECOND, timedelta(hours=5, microseconds=7), 900 * DAY]


class Interval(ColumnType):
    is_number = False

    def decode(self, stored: Any) -> timedelta:
        return timedelta(microseconds=int(stored))

    def exact_of(self, value: Any) -> Fraction | None:
        return Fraction(value // MICROSECOND) if isinstance(value, timedelta) else None


@pytest.fixture
def interval(monkeypatch: pytest.MonkeyPatch) -> ColumnType:
    """A type that exists only as an entry of the table."""
    kind = Interval(
        name=INTERVAL,
        sql=INTERVAL,
        arrow=r"duration\[us\]",
        storage=Storage.BIGINT,
        limits=Limits(-1000 * 86_400_000_000, 1000 * 86_400_000_000, "a thousand days"),
        duckdb="INTERVAL",
    )
    monkeypatch.setitem(COLUMN_TYPES, INTERVAL, kind)
    return kind


def test_without_an_entry_the_type_is_refused_everywhere() -> None:
    assert find_column_type(INTERVAL) is sql_column_type(INTERVAL) is None
    assert arrow_column_type(pa.duration("us")) is None
    for call in (
        lambda: Measure("m", INTERVAL),
        lambda: Key("k", INTERVAL),
        lambda: column_type(INTERVAL),
        lambda: schema.delta_fields(pa.schema([("m", pa.duration("us"))])),
    ):
        with pytest.raises(InputError):
            call()


@pytest.mark.usefixtures("interval")
def test_a_measure_of_a_new_type_is_encoded_and_decoded_in_its_order() -> None:
    measure = Measure("m", INTERVAL)
    assert (measure.is_double, measure.dtype, measure.arrow_type) == (False, np.dtype(np.int64), pa.int64())
    column = encode_values(measure, pa.array([*EDGES, None], pa.duration("us")))
    assert column.null.tolist() == [False] * len(EDGES) + [True]
    assert not column.nan.any()
    stored = column.stored[:-1]
    assert (np.diff(stored) > 0).all()
    assert [measure.decode(number) for number in stored] == EDGES


@pytest.mark.usefixtures("interval")
def test_points_of_a_new_type_have_a_floor() -> None:
    measure = Measure("m", INTERVAL)
    for value in EDGES:
        assert measure.floor(value) == value // MICROSECOND
    for other in ("noon", 2, 2.5, Fraction(-1, 2)):
        with pytest.raises(InputError, match="cannot compare"):
            measure.floor(other)
    bin_edges = histograms._edges(measure, 0, 10, 4)
    assert bin_edges == [timedelta(microseconds=us) for us in (0, 2, 5, 7, 10)]


@pytest.mark.usefixtures("interval")
def test_keys_of_a_new_type_have_names() -> None:
    key = Key("k", INTERVAL)
    assert (key.is_text, key.stored_type, key.marked_type) == (False, pa.int64(), pa.int64())
    for value in EDGES:
        name = key.name_of(value)
        assert name is not None
        assert key.value_of(name) == value
        assert key.bound_of(value) == name
    column = encode_keys(key, pa.array(EDGES, pa.duration("us")))
    assert [key.value_of(name_at(column.names, i)) for i in range(len(EDGES))] == EDGES
    assert same_names(names_of(key, stored_keys(key, column.names)), column.names)


def test_a_new_type_is_found_by_its_names_in_other_systems(interval: ColumnType) -> None:
    assert column_type(INTERVAL) is sql_column_type(INTERVAL) is interval
    assert arrow_column_type(pa.duration("us")) is interval
    assert arrow_column_type(pa.duration("ns")) is None
    assert (sql_name(INTERVAL), duckdb_type(INTERVAL)) == (INTERVAL, "INTERVAL")
    assert common_type([INTERVAL, INTERVAL]) == INTERVAL
    assert common_type([INTERVAL, "long"]) == common_type(["timestamp", INTERVAL]) == "string"
    assert converter(INTERVAL)(DAY) == DAY
    assert converter("string")(DAY) == "1 day, 0:00:00"


@pytest.mark.usefixtures("interval")
def test_the_schema_takes_a_new_type_plain_and_nested() -> None:
    plain, nested = pa.duration("us"), pa.list_(pa.duration("us"))
    fields = schema.delta_fields(pa.schema([("m", plain), ("n", nested)]))
    types = schema.column_types(fields)
    assert types == {"m": INTERVAL, "n": f"array<{INTERVAL}>"}
    assert schema.ddl(types.items()) == f"`m` {INTERVAL}, `n` array<{INTERVAL}>"


def options_of(key: str | None = None, time: str | None = None) -> Options:
    tick_us = None if time is None else 1
    keys, columns = ((key,),) if key else (), (("m", INTERVAL), ("k", INTERVAL))
    return Options(("m",), time, tick_us, 0.1, 2, 0, columns, own_keys=keys)


@pytest.mark.usefixtures("interval")
def test_options_take_a_new_type_as_a_measure_and_as_the_key_but_not_as_the_event_time() -> None:
    options = options_of(key="k")
    options.check_columns(dict(options.columns))
    assert (options.measures, options.keys) == ((Measure("m", INTERVAL),), (Key("k", INTERVAL),))
    with pytest.raises(InputError, match="Expected timestamp or date"):
        options_of(time="k").check_columns(dict(options.columns))


@pytest.mark.usefixtures("interval")
def test_rows_outside_the_limits_of_a_new_type_are_refused() -> None:
    rows = pa.record_batch({"m": pa.array([DAY, 2000 * DAY], pa.duration("us"))})
    kept, count, records = filter_rows(ALL_OR_NOTHING, options_of(), ["m"], rows)
    assert (kept.num_rows, count) == (1, 1)
    assert records[0]["reason"] == "m lies outside a thousand days"
    kept, count, records = filter_rows(ALL_OR_NOTHING, options_of(), ["m"], rows[:1])
    assert (kept.num_rows, count, records) == (1, 0, [])


def test_the_names_of_every_type_lead_to_it() -> None:
    arrow = {
        "boolean": pa.bool_(), "byte": pa.int8(), "short": pa.int16(), "integer": pa.int32(),
        "long": pa.int64(), "float": pa.float32(), "double": pa.float64(), "string": pa.large_string(),
        "binary": pa.binary(3), "date": pa.date32(), "timestamp": pa.timestamp("ns", tz="+01:00"),
    }  # fmt: skip
    assert arrow.keys() == COLUMN_TYPES.keys()
    for name, kind in COLUMN_TYPES.items():
        assert column_type(name) is sql_column_type(kind.sql) is arrow_column_type(arrow[name]) is kind
        assert set(kind.wider) <= COLUMN_TYPES.keys()
    assert arrow_column_type(pa.decimal128(9, 2)) is column_type("decimal(9,2)") is decimal_type(9, 2)
    assert arrow_column_type(pa.uint64()) is decimal_type(20, 0)
    assert arrow_column_type(pa.timestamp("us")) is None


VALUES: dict[str, list[Any]] = {
    "boolean": [False, True], "string": ["", "a", "\udc80"], "binary": [b"", b"\xff"],
    "date": [date(1, 1, 1), date(9999, 12, 31)],
    "timestamp": [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)],
}  # fmt: skip


@pytest.mark.parametrize("name", VALUES)
def test_values_that_are_not_numbers_come_back_from_what_is_stored(name: str) -> None:
    kind = column_type(name)
    assert not kind.is_number
    values = VALUES[name]
    assert [kind.decode(standing(kind, exact_value(kind, "c", value)).at) for value in values] == values
    assert kind.exact_of(object()) is None


@pytest.mark.slow
def test_no_other_module_has_a_list_of_the_types_that_measures_may_have() -> None:
    """Two names of numeric types in one set, tuple, list or dict make such a list."""
    names = {kind.name for kind in COLUMN_TYPES.values() if kind.is_measure}
    found = []
    for package in ("warehouse", "query", "jobs", "stream"):
        for path in (ROOT / package).rglob("*.py"):
            if path == Path(column_types.__file__).resolve():
                continue
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Set | ast.Tuple | ast.List):
                    items: list[ast.expr | None] = [*node.elts]
                elif isinstance(node, ast.Dict):
                    items = [*node.keys]
                else:
                    continue
                texts = {item.value for item in items if isinstance(item, ast.Constant)}
                if len(texts & names) > 1:
                    found.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert not found


def test_text_with_a_collation_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under it 'a' and 'A' are one value for Spark, and two keys here."""
    plain = spark_types.StructField("x", spark_types.StringType())
    collated = spark_types.StructField("k", spark_types.StringType("UTF8_LCASE"))
    nested = spark_types.StructField("n", spark_types.ArrayType(spark_types.StructType([collated])))
    for field in (collated, nested):
        with pytest.raises(InputError, match=r"'k' has the collation spark\.UTF8_LCASE.* byte by byte"):
            schema.delta_fields(spark_types.StructType([plain, field]))
    monkeypatch.setattr(schema, "_COLLATIONS", "none")  # the broken variant
    assert len(schema.delta_fields(spark_types.StructType([plain, collated]))) == 2


TEXT_GIVEN: list[Any] = [
    "",
    "a",
    "é",
    "a\0b",
    "\udc80",
    "\ud800",
    np.str_("b"),
    pa.scalar("c"),
    b"d",
    1,
    None,
    math.nan,
]


def check_names_of_text(key: Key) -> None:
    """The quick way to the name of a text is the way of all values."""

    def told(value: Any, way: Any) -> Any:
        try:
            return way(value)
        except InputError as error:
            return str(error)

    for value in TEXT_GIVEN:
        assert told(value, key.name_of) == told(value, lambda one: key._name_at(key.standing(one))), value


def test_the_name_of_a_text_is_that_of_any_value(monkeypatch: pytest.MonkeyPatch) -> None:
    check_names_of_text(Key("k", "string"))
    monkeypatch.setattr(keys, "utf8_of", lambda value: str(value).encode("utf-8", "replace"))
    with pytest.raises(AssertionError):
        check_names_of_text(Key("k", "string"))
