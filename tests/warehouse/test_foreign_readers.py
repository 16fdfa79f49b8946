"""Every table is an ordinary Delta table: Spark, delta-rs and DuckDB read the same rows from it."""

from __future__ import annotations

import operator
import subprocess
import sys
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.warehouse.conftest import HISTORY, Grown, counts_of_filters
from tests.warehouse.disk import table_names
from tidemark.warehouse.delta import data_files, tables
from tidemark.warehouse.delta.store import Store

COMPARE = {"=": operator.eq, "<=": operator.le, ">": operator.gt, "<": operator.lt, ">=": operator.ge}
TABLES = [
    "events",
    "key_marks/k",
    "keys/k",
    "ledger",
    "marks/n",
    "marks/x",
    "rejected",
    "runs/n",
    "runs/x",
    "steps",
]


def comparable(rows: list[dict[str, Any]], names: list[str]) -> list[str]:
    """Rows as text in one order; times by their instant, lists and bytes by their content."""

    def plain(value: Any) -> Any:
        if isinstance(value, (bytearray, bytes)):
            return bytes(value).hex()
        if isinstance(value, dict):
            return {k: plain(v) for k, v in value.items()}
        if isinstance(value, list):
            return [plain(v) for v in value]
        if hasattr(value, "asDict"):
            return plain(value.asDict())
        if hasattr(value, "timestamp"):
            return repr(value.timestamp())
        return value

    return sorted(repr([plain(row[name]) for name in names]) for row in rows)


def test_these_are_all_the_tables_and_all_are_of_protocol_1_2(grown: Grown) -> None:
    assert table_names(grown.uri) == TABLES
    for name in TABLES:
        protocol = DeltaTable(grown.uri / name).protocol()
        assert (protocol.min_reader_version, protocol.min_writer_version) == (1, 2), name


@pytest.mark.parametrize("name", [name for name in TABLES if name != "rejected"])
def test_three_engines_read_the_same_rows(spark: SparkSession, grown: Grown, name: str) -> None:
    table = DeltaTable(grown.uri / name)
    names = [field.name for field in table.schema().fields]
    rust = comparable(table.to_pyarrow_table().to_pylist(), names)
    frame = spark.read.format("delta").load(str(grown.uri / name))
    assert frame.columns == names
    java = comparable(frame.toArrow().to_pylist(), names)
    files = [str(grown.uri / name / file.path) for file in data_files.list_files(table)]
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone='UTC'")
        found = connection.read_parquet(files, hive_partitioning="run" in names).to_arrow_table()
    assert rust == java
    assert rust == comparable(found.to_pylist(), names)
    assert len(rust) == sum(file.rows for file in data_files.list_files(table)) > 0


@pytest.mark.parametrize(("measure", "column"), [("x", 2), ("n", 3)])
def test_runs_hold_the_values_of_their_steps_sorted_within_and_across_files(
    grown: Grown, measure: str, column: int
) -> None:
    store = Store.from_uri(grown.uri)
    found = sorted(
        data_files.list_files(tables.open_table(store, f"runs/{measure}")), key=lambda file: file.path
    )
    by_run: dict[str, list[Any]] = {}
    for file in found:
        with pq.ParquetFile(grown.uri / f"runs/{measure}" / file.path) as parquet:
            assert (
                "DELTA_BINARY_PACKED" in parquet.metadata.row_group(0).column(0).encodings or measure == "x"
            )
            by_run.setdefault(file.partition["run"], []).extend(parquet.read().column("value").to_pylist())
    for run, names in (
        ("L01-0000000000-0000000002", HISTORY[:3]),
        ("L00-0000000003-0000000003", HISTORY[3:]),
    ):
        values = grown.column(column, names)
        assert by_run.pop(run) == sorted(v + 0 for v in values if v is not None and v == v)  # noqa: PLR0124
    assert not by_run


def test_statistics_never_hide_a_row_from_a_filter(spark: SparkSession, grown: Grown) -> None:
    """At infinities, at the extremes of int64, between two files, and at both zeroes."""
    for measure, column, points in (
        ("x", 2, ["double('inf')", "double('-inf')", "0.0D", "-0.0D", "1e308D", "3.1D"]),
        ("n", 3, ["9223372036854775807L", "-9223372036854775807L - 1L", "9007199254740993L", "0L"]),
    ):
        values = np.array([v for v in grown.column(column, HISTORY) if v is not None and v == v])  # noqa: PLR0124
        frame = spark.read.format("delta").load(str(grown.uri / "runs" / measure)).select("value")
        conditions = [f"value {op} {point}" for point in points for op in ("=", "<=", ">", "<", ">=")]
        numbers = dict(zip(points, spark.sql(f"SELECT {', '.join(points)}").collect()[0], strict=True))
        # No pruning: the truth of Spark.
        counts = frame.selectExpr(*[f"count_if({c})" for c in conditions]).collect()[0]
        for condition, count in zip(conditions, counts, strict=True):
            _, op, point = condition.split(" ", 2)
            expected = COMPARE[op](values, numbers[point])
            assert count == int(expected.sum()), condition
        pruned = {c: count for c, count in zip(conditions, counts, strict=True) if c.split()[1] in ("=", ">")}
        assert dict(zip(pruned, counts_of_filters(frame, [*pruned]), strict=True)) == pruned


def test_statistics_in_the_log_are_exact_where_they_are_given(grown: Grown) -> None:
    for measure in ("x", "n"):
        store = Store.from_uri(grown.uri)
        for file in data_files.list_files(tables.open_table(store, f"runs/{measure}")):
            rows = pq.read_table(grown.uri / f"runs/{measure}" / file.path, partitioning=None)
            assert file.rows == rows.num_rows
            assert rows.schema.equals(
                pa.schema([("value", pa.float64() if measure == "x" else pa.int64()), ("tick", pa.int64())])
            )
            values, ticks = rows.column("value").to_numpy(), rows.column("tick").to_numpy()
            assert (file.stats["min.tick"], file.stats["max.tick"]) == (ticks.min(), ticks.max())
            if np.isfinite(values[[0, -1]]).all():
                assert (file.stats["min.value"], file.stats["max.value"]) == (values[0], values[-1])
            else:
                assert file.stats.get("min.value") is None
                assert file.stats.get("max.value") is None


def test_the_folder_of_a_run_is_its_partition(grown: Grown) -> None:
    for file in data_files.list_files(tables.open_table(Store.from_uri(grown.uri), "runs/x")):
        assert file.path.split("/")[0] == f"run={file.partition['run']}"


def test_a_reader_needs_no_java_and_no_pandas(grown: Grown) -> None:
    """Pyarrow imports pandas where it can, for half a second and 40 MB: our own reads never let it."""
    script = """
import sys
from tidemark import query
wh = query.open(sys.argv[1])
for mode in ("quick", "accurate"):
    wh.quantile([0.1, 0.9], "x", mode=mode, between=(None, "1970-01-02"))
    wh.rank(0.5, "x", mode=mode)
    wh.quantile(0.5, "n", mode=mode)
wh.info()
print(sorted({"pandas", "pyspark", "py4j", "duckdb"} & set(sys.modules)))
"""
    run = subprocess.run(
        [sys.executable, "-c", script, str(grown.uri)], capture_output=True, text=True, check=True
    )
    assert run.stdout == "[]\n"
