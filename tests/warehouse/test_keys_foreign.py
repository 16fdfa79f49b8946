"""Spark, DuckDB and delta-rs read the keys as ordinary rows, and no filter of theirs loses one."""

from __future__ import annotations

import math
import random
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.warehouse.conftest import counts_of_filters
from tests.warehouse.keyworld import TINY, KeyWorld
from tidemark.warehouse.delta import data_files, tables

KEYS = "keys/k"  # the runs table of the key


# Keys round the places where statistics are cut or cannot be told, by the type of the column.
KEYS_OF: dict[str, list[Any]] = {
    "string": [
        *("", "a", "z" * 31, "z" * 32, "z" * 33, "z" * 32 + "é", "é" * 32, "é" * 40, "漢" * 33, "😀" * 33),
        *("\U0010ffff" * 31, "\U0010ffff" * 40, "a\x00b", "'", "\\", "\t"),
    ],
    "binary": [b"", b"\x00", b"\x80" * 40, b"\xff" * 40, b"a"],
    "double": [-math.inf, -1.5, 0.0, 0.5, 1e308, math.inf],
    "NaN": [-math.inf, 0.0, math.inf, math.nan],
    "long": [-(2**63), -1, 0, 2**53, 2**53 + 1, 2**63 - 1],
}


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, KeyWorld]:
    """One of each type, in several files of a few row groups."""
    found = {}
    for kind, keys in KEYS_OF.items():
        world = found[kind] = KeyWorld(
            tmp_path_factory.mktemp(kind) / "w", "double" if kind == "NaN" else kind, tuning=TINY
        )
        r = random.Random(1)
        for step in range(4):
            world.load([(r.choice(keys), step + r.randrange(3)) for _ in range(50)], files=2)
    return found


def triples(rows: pa.Table) -> list[str]:
    columns = [rows.column(name).to_pylist() for name in ("key", "tick", "count")]
    return sorted(
        repr([bytes(k) if isinstance(k, bytearray) else k, *rest]) for k, *rest in zip(*columns, strict=True)
    )


@pytest.mark.parametrize("kind", KEYS_OF)
def test_three_engines_read_the_same_rows(
    spark: SparkSession, worlds: dict[str, KeyWorld], kind: str
) -> None:
    path = worlds[kind].uri / KEYS
    rust = triples(DeltaTable(path).to_pyarrow_table())
    assert triples(spark.read.format("delta").load(str(path)).toArrow()) == rust
    files = [str(path / file.path) for file in data_files.list_files(DeltaTable(path))]
    with duckdb.connect() as connection:
        assert triples(connection.read_parquet(files).to_arrow_table()) == rust
    assert len(rust) == sum(file.rows for file in data_files.list_files(DeltaTable(path)))
    assert len(files) > 4


@pytest.mark.parametrize("kind", KEYS_OF)
def test_a_filter_on_the_key_keeps_every_row(
    spark: SparkSession, worlds: dict[str, KeyWorld], kind: str
) -> None:
    """Equal to each key and above it; Delta's and Parquet's statistics prune as they like."""
    path = worlds[kind].uri / KEYS
    frame = spark.read.format("delta").load(str(path))
    points = [F.lit(bytearray(key) if isinstance(key, bytes) else key) for key in KEYS_OF[kind]]
    conditions = [one for point in points for one in (F.col("key") == point, F.col("key") > point)]
    true = frame.select("key").coalesce(1).select(*[F.count_if(one) for one in conditions]).collect()[0]
    assert counts_of_filters(frame, conditions) == list(true)
    table = DeltaTable(path)
    everything = table.to_pyarrow_table().column("key")
    for key in KEYS_OF[kind]:
        if kind != "NaN":  # delta-rs loses rows of files whose bounds it is not told, and none bound NaN
            same = table.to_pyarrow_table(filters=[("key", "=", key)]).num_rows
            assert same == pc.sum(pc.equal(everything, key)).as_py() > 0, key


@pytest.mark.parametrize("kind", KEYS_OF)
def test_duckdb_finds_every_key_with_the_statistics_of_parquet(
    worlds: dict[str, KeyWorld], kind: str
) -> None:
    path = worlds[kind].uri / KEYS
    files = [str(path / file.path) for file in data_files.list_files(DeltaTable(path))]
    counts = worlds[kind].truth()
    with duckdb.connect() as connection:
        for key in KEYS_OF[kind]:
            found = connection.execute(
                "SELECT sum(count) FROM read_parquet(?) WHERE key = ?", [files, key]
            ).fetchall()
            name = "NaN" if isinstance(key, float) and math.isnan(key) else key
            assert (found[0][0] or 0) == counts[name], key


def test_no_statistic_of_text_is_long(worlds: dict[str, KeyWorld]) -> None:
    for kind in ("string", "binary"):
        for file in data_files.list_files(tables.open_table(worlds[kind].store, KEYS)):
            for end in ("min.key", "max.key"):
                assert len(file.stats.get(end) or "") <= 4 * 32 + 1
