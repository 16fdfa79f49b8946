"""SQL after rows have left: views and functions of DuckDB and of Spark, of open, new and pinned readers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pytest

from tests.query.groupworld import HOUR, START, TINY, GroupWorld
from tidemark import query, warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GONE = 3


@pytest.fixture
def world(tmp_path: Path) -> GroupWorld:
    world = GroupWorld.create(tmp_path, groups=[], keys=["origin"])
    for batch in range(3):
        rows = [(START + (batch + i) * HOUR, "ab"[i % 2], i % 5, float(i), None) for i in range(30)]
        world.add(rows, load=batch < 2)
    return world


@pytest.fixture
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        yield connection


def delete(world: GroupWorld) -> int:
    """Deletes some rows; how many are left."""
    warehouse.delete(None, world.path, f"number = {GONE}", tuning=TINY)
    return sum(row[2] != GONE for row in world.rows)


def told(connection: duckdb.DuckDBPyConnection, name: str) -> tuple[int, ...]:
    """Rows of the view, of a condition on it, and of a quantile."""
    events = f"{name}_events"
    questions = (
        f"SELECT count(*) FROM {events}",
        f"SELECT count(*) FROM {events} WHERE number = {GONE}",
        f"SELECT n + m FROM {name}_quantile(0.5, measure := 'value')",
    )
    return tuple(connection.execute(question).fetchall()[0][0] for question in questions)


@pytest.mark.slow
def test_views_of_duckdb_follow_and_those_of_a_pinned_reader_stay(
    world: GroupWorld, connection: duckdb.DuckDBPyConnection
) -> None:
    query.register_duckdb(connection, world.path, "fresh")
    query.register_duckdb(connection, world.open().pinned(), "pinned")
    whole = len(world.rows)
    before = (whole, sum(row[2] == GONE for row in world.rows), whole)
    assert told(connection, "fresh") == told(connection, "pinned") == before
    left = delete(world)
    assert told(connection, "fresh") == (left, 0, left)
    assert told(connection, "pinned") == before
    query.register_duckdb(connection, world.path, "new")
    assert told(connection, "new") == (left, 0, left)
    warehouse.unload(None, world.path, "batch 0", tuning=TINY)
    rest = left - 24
    assert told(connection, "fresh") == (rest, 0, rest)
    assert told(connection, "pinned") == before


def test_views_of_spark_follow(spark: SparkSession, world: GroupWorld) -> None:
    """A view over a DataFrame of files is the broken variant: its files have the rows for a grace."""
    query.register_views(spark, world.path, "removing")

    def seen() -> tuple[int, ...]:
        events = spark.sql("SELECT * FROM removing_events")
        (answer,) = spark.sql("SELECT n, m FROM removing_quantile(0.5, measure => 'value')").collect()
        return events.count(), events.where(f"number = {GONE}").count(), answer.n + answer.m

    try:
        spark.read.parquet(str(world.path / "events")).createOrReplaceTempView("by_files")
        whole = len(world.rows)
        assert seen()[0] == whole
        left = delete(world)
        assert seen() == (left, 0, left)
        assert spark.sql(f"SELECT * FROM by_files WHERE number = {GONE}").count() > 0
    finally:
        for view in ("removing_events", "removing_history", "removing_live", "by_files"):
            spark.catalog.dropTempView(view)
