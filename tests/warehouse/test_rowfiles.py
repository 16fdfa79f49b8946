"""Files of `events`: no reader's filter may lose a row by what their statistics say."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from tests.warehouse.conftest import counts_of_filters
from tidemark import stream, warehouse
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.ingest import event_files
from tidemark.warehouse.ingest.event_files import RowFile
from tidemark.warehouse.sizes import Tuning

# Each file of two rows or three, hard cases beside plain ones.
ROWS = """
    SELECT * FROM VALUES
    (1.5D, 3.5F, 1Y, DATE'2001-02-03', TIMESTAMP'2001-01-01 00:00:00.123456', 1.23BD, 'e', X'00ff', TRUE),
    (DOUBLE('NaN'), FLOAT('NaN'), NULL, NULL, NULL, NULL, REPEAT('z', 40), NULL, NULL),
    (DOUBLE('Infinity'), FLOAT('-Infinity'), 127Y, DATE'9999-12-31', TIMESTAMP'9999-12-31 23:59:59.999999',
     -0.50BD, CONCAT(REPEAT('z', 40), 'y'), X'', FALSE),
    (-0.0D, NULL, -128Y, DATE'0001-01-01', TIMESTAMP'0001-01-01 00:00:00', 99.99BD, '', X'ff', NULL),
    (NULL, 0.0F, 0Y, DATE'-0044-03-15', TIMESTAMP'1969-12-31 23:59:59.999999', 0.00BD, NULL, NULL, TRUE)
    AS t(x, f, b, day, at, amount, name, bytes, flag)
"""
FILTERS = [
    *("x > 5", "x >= double('NaN')", "x = double('NaN')", "x < 0", "x = 0", "x > 1e308", "x IS NULL"),
    *("f > 3.5", "f < -1e30", "f = float('NaN')", "f IS NOT NULL", "b = 127", "b < 0", "b IS NULL"),
    *("day > DATE'9999-12-30'", "day < DATE'0001-01-01'", "day = DATE'2001-02-03'"),
    *("at > TIMESTAMP'9999-12-31 23:59:59.9999'", "at = TIMESTAMP'1969-12-31 23:59:59.999999'"),
    *("at < TIMESTAMP'0001-01-01 00:00:01'", "at IS NULL", "amount < 0", "amount > 99.98", "amount = 1.23"),
    *("name > 'zz'", "name > REPEAT('z', 41)", "name = CONCAT(REPEAT('z', 40), 'y')", "name = ''"),
    *("bytes = X'ff'", "bytes > X'00'", "flag", "NOT flag", "_tick < -1000000", "_source > 'load:b'"),
]


@pytest.fixture
def filled(spark: SparkSession, tmp_path: Path) -> Path:
    rows = spark.sql(ROWS)
    warehouse.create(spark, tmp_path, ["x", "amount"], time="at", key="name", eps=0.1, schema=rows)
    for name in ("a", "b"):
        warehouse.load(spark, tmp_path, rows.repartition(2), name, ahead=None)
    stream.append(spark, tmp_path, rows.coalesce(1), source="s", batch=0, ahead=None)
    return tmp_path


def lost(events: DataFrame) -> list[str]:
    """The filters that find other rows than a scan of all rows does."""
    truth = events.selectExpr(*[f"count_if({one})" for one in FILTERS]).collect()[0]
    found = counts_of_filters(events, FILTERS)
    return [one for one, count, true in zip(FILTERS, found, truth, strict=True) if count != true]


def events_of(spark: SparkSession, uri: Path) -> DataFrame:
    return spark.read.format("delta").load(str(uri / "events"))


def test_no_filter_loses_a_row_before_or_after_files_are_joined(spark: SparkSession, filled: Path) -> None:
    assert lost(events_of(spark, filled)) == []
    assert warehouse.maintain(spark, filled, grace="0 s").compacted["events"][1] == 1
    assert lost(events_of(spark, filled)) == []
    assert warehouse.verify(filled).ok
    assert warehouse.load(spark, filled, spark.sql(ROWS), "b").outcome == "known"


def test_statistics_that_pass_over_nan_are_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Parquet's own do: a range of the numbers alone."""
    nowhere = pa.chunked_array([pa.nulls(1, pa.bool_())])
    with monkeypatch.context() as patch:
        patch.setattr(pc, "is_nan", lambda _: nowhere)
        store, schema = Store.from_uri(tmp_path), pa.schema([("x", pa.float64())])
        (tmp_path / "events").mkdir()
        with RowFile(store, schema) as file:
            file.write(pa.table({"x": [1.0, math.nan]}, schema))
    assert json.loads(file.written().stats)["maxValues"] == {"x": 1.0}
    with RowFile(store, schema) as file:
        file.write(pa.table({"x": [1.0, math.nan]}, schema))
    assert json.loads(file.written().stats)["maxValues"] == {}


@pytest.mark.parametrize("distinct", [event_files.DICTIONARY_ROWS, 100])
def test_whole_numbers_get_a_dictionary_if_they_repeat(distinct: int, tmp_path: Path) -> None:
    """And their statistics in either case; times get none. What gets none is packed."""
    count = event_files.DICTIONARY_ROWS
    numbers = pa.array([i * 7 % distinct for i in range(count)], pa.int64())
    rows = pa.table({"id": numbers, "kind": pa.array(["a"] * count), "at": numbers.cast(pa.timestamp("us"))})
    (tmp_path / "events").mkdir()
    with RowFile(Store.from_uri(tmp_path), rows.schema) as file:
        file.write(rows)
    group = pq.read_metadata(tmp_path / "events" / file.written().path).row_group(0)
    columns = [group.column(place) for place in range(group.num_columns)]
    coded = {one.path_in_schema for one in columns if one.has_dictionary_page}
    assert coded == ({"kind"} if distinct == count else {"id", "kind"})
    packed = {one.path_in_schema for one in columns if "DELTA_BINARY_PACKED" in one.encodings}
    assert packed == {"id", "kind", "at"} - coded
    assert json.loads(file.written().stats)["maxValues"]["id"] == distinct - 1
    assert columns[0].statistics.max == distinct - 1


PLAIN: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "whole": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "real": (pa.float64(), st.floats()),
    "text": (pa.string(), st.text(st.characters(codec="utf-8"), max_size=80)),
    "last": (pa.string(), st.text("z\U0010ffff", min_size=30, max_size=40)),
    "time": (
        pa.timestamp("us", "UTC"),
        st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31), timezones=st.just(UTC)),  # noqa: DTZ001
    ),
    "day": (pa.date32(), st.dates()),
    "amount": (pa.decimal128(15, 3), st.decimals(-(10**11), 10**11, places=3)),
}


@pytest.mark.slow
@given(st.data())
def test_bounds_hold_every_value_and_whole_numbers_exactly(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("bounds")
    (folder / "events").mkdir()
    schema = pa.schema([(name, kind) for name, (kind, _) in PLAIN.items()])
    rows = data.draw(st.integers(1, 5))
    drawn = {
        name: data.draw(st.lists(st.none() | values, min_size=rows, max_size=rows))
        for name, (_, values) in PLAIN.items()
    }
    with RowFile(Store.from_uri(folder), schema) as file:
        file.write(pa.table(drawn, schema))
    stats = json.loads(file.written().stats)
    for name, values in drawn.items():
        known = [value for value in values if value is not None]
        assert stats["nullCount"][name] == rows - len(known)
        low, high = stats["minValues"].get(name), stats["maxValues"].get(name)
        for value in known:
            is_nan = value != value  # noqa: PLR0124  above every number
            assert low is None or is_nan or read(name, low) <= value, (name, low, value)
            assert high is None or (not is_nan and read(name, high) >= value), (name, high, value)
        if name == "whole" and known:
            assert (low, high) == (min(known), max(known))


def read(name: str, bound: Any) -> Any:
    """A bound of the log as a value of the column."""
    if name == "time":
        return datetime.fromisoformat(bound)
    if name == "day":
        return date.fromisoformat(bound)
    return Decimal(str(bound)) if name == "amount" else bound


def test_a_row_group_ends_by_rows_or_by_bytes(tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    store = Store.from_uri(tmp_path, tuning=Tuning(group_rows=10, group_bytes=1000))
    schema = pa.schema([("s", pa.string())])
    texts = ["a"] * 25 + ["b" * 600] * 12
    with RowFile(store, schema) as file:
        for at in range(0, len(texts), 7):
            file.write(pa.table({"s": texts[at : at + 7]}, schema))
    written = pq.ParquetFile(tmp_path / "events" / file.written().path)
    groups = [written.metadata.row_group(g).num_rows for g in range(written.num_row_groups)]
    assert max(groups) == 10
    assert sum(groups) == len(texts)
    assert groups[-2:] == [7, 2]
    assert pc.equal(written.read().column("s"), pa.chunked_array([texts])).to_pylist() == [True] * len(texts)


@pytest.mark.parametrize(
    ("select", "kind"),
    [
        ("INTERVAL '1' DAY AS i", "interval"),
        ("NULL AS i", "void"),
        ("parse_json('1') AS i", "variant"),
        ("array(TIMESTAMP_NTZ'2001-01-01') AS i", "timestamp_ntz"),
    ],
)
def test_a_type_that_not_every_reader_knows_is_refused(
    spark: SparkSession, tmp_path: Path, select: str, kind: str
) -> None:
    with pytest.raises(warehouse.InputError, match=f"'i' is of type {kind}.*Cast it"):
        warehouse.create(spark, tmp_path / "w", ["x"], schema=spark.sql(f"SELECT {select}, 1D AS x"))
    assert not (tmp_path / "w").exists()
