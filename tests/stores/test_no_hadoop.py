"""Everything but a checkpoint works in a store for which Spark has no file system."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import SparkSession

from tests.jobs.http_served import certificate_of_here
from tests.jobs.said import environment
from tests.stores.conftest import Place
from tests.stores.rows import HOW, check, rows
from tidemark import query, stream, warehouse
from tidemark.warehouse.errors import BatchMismatch, InputError, StoreUnavailable
from tidemark.warehouse.execution.hadoop import has_file_system

SEEDS = range(3)
LIVE = 3
COUNTED = "SELECT page, count(*), sum(ms) FROM {} GROUP BY page ORDER BY page"


@pytest.fixture(scope="module")
def filled(spark: SparkSession, server: Any) -> Place:
    """Three nights and one live batch, all by Spark; who changes it makes another."""
    server.set()
    place = Place(server, server.address("no-hadoop/flights"))
    how: dict[str, Any] = {"storage_options": place.options}
    warehouse.create(spark, place.uri, ["ms"], **HOW, **how)
    for seed in SEEDS:
        warehouse.load(spark, place.uri, spark.createDataFrame(rows(seed)), f"night-{seed}", **how)
    stream.append(spark, place.uri, spark.createDataFrame(rows(LIVE)), source="web", batch=0, **how)
    return place


def counted(seeds: Any) -> list[tuple[Any, ...]]:
    """The oracle of COUNTED."""
    table = duckdb.connect()
    for seed in seeds:
        exists = "INSERT INTO t" if seed != next(iter(seeds)) else "CREATE TABLE t AS"
        given = rows(seed)  # noqa: F841  DuckDB finds it
        table.execute(f"{exists} SELECT * FROM given")
    return table.execute(COUNTED.format("t")).fetchall()


def close(found: Any, expected: Any) -> bool:
    return [row[:2] for row in found] == [row[:2] for row in expected] and [
        row[2] for row in found
    ] == pytest.approx([row[2] for row in expected])


def test_this_spark_has_no_file_system_for_the_store(spark: SparkSession, filled: Place) -> None:
    """Else the tests below would prove nothing."""
    assert not has_file_system(spark, filled.uri.replace("s3://", "s3a://"))
    assert has_file_system(spark, "file:///a")
    assert has_file_system(spark, "/a")


def test_a_batch_that_comes_again_is_compared(spark: SparkSession, filled: Place) -> None:
    how: dict[str, Any] = {"storage_options": filled.options}
    again = spark.createDataFrame(rows(1)).repartition(3)
    assert warehouse.load(spark, filled.uri, again, "night-1", **how).outcome == "known"
    other = spark.createDataFrame(rows(7))
    with pytest.raises(BatchMismatch):
        warehouse.load(spark, filled.uri, other, "night-1", **how)
    live = spark.createDataFrame(rows(LIVE))
    assert not stream.append(spark, filled.uri, live, source="web", batch=0, **how)
    check(query.open(filled.uri, filled.options), map(rows, (*SEEDS, LIVE)))


def test_views_of_spark_sql(spark: SparkSession, filled: Place) -> None:
    query.register_views(spark, filled.uri, "stored", storage_options=filled.options)
    for view, seeds in (("events", (*SEEDS, LIVE)), ("history", SEEDS), ("live", [LIVE])):
        assert close(spark.sql(COUNTED.format(f"stored_{view}")).collect(), counted(seeds))
    assert [tuple(r) for r in spark.sql("SELECT n + m FROM stored_quantile(0.5)").collect()] == [(800,)]
    assert spark.sql("SELECT * FROM stored_events WHERE _source = 'web'").count() == 200
    # A later batch is in the next query.
    how: dict[str, Any] = {"storage_options": filled.options}
    stream.append(None, filled.uri, rows(9), source="later", batch=0, **how)
    assert close(spark.sql(COUNTED.format("stored_events")).collect(), counted((*SEEDS, LIVE, 9)))


def test_views_of_spark_sql_of_a_warehouse_behind_a_server(spark: SparkSession, tmp_path: Path) -> None:
    uri, (certificate, key) = str(tmp_path / "w"), certificate_of_here(tmp_path)
    warehouse.create(None, uri, ["ms"], **HOW)
    warehouse.load(None, uri, rows(0), "night-0")
    stream.append(None, uri, rows(1), source="web", batch=0)
    command = [sys.executable, "-m", "tidemark.jobs.cli.main", "serve", "-w", f"w={uri}", "--json"]
    command += ["--max-staleness", "0s", "--certificate", str(certificate), "--private-key", str(key)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as server:
        assert server.stdout is not None
        told = json.loads(server.stdout.readline())
        try:
            _ask_spark(
                spark, uri, f"{told['url']}w", {"token": told["token"], "certificate": str(certificate)}
            )
        finally:
            server.terminate()


def _ask_spark(spark: SparkSession, uri: str, there: str, options: dict[str, str]) -> None:
    assert there.startswith("https://")
    assert query.register_views(spark, there, "served", storage_options=options) == ["served"]
    for view, seeds in (("events", (0, 1)), ("history", [0]), ("live", [1])):
        assert close(spark.sql(COUNTED.format(f"served_{view}")).collect(), counted(seeds))
    found = spark.sql("SELECT n, m FROM served_quantile(0.5)").collect()
    assert list(map(tuple, found)) == [(200, 200)]
    stream.append(None, uri, rows(2), source="web", batch=1)  # it is in the next query
    assert close(spark.sql(COUNTED.format("served_events")).collect(), counted((0, 1, 2)))
    with pytest.raises(StoreUnavailable, match="refuses, with 401") as refused:
        query.register_views(spark, there, storage_options={**options, "token": "another-token"})
    assert "another-token" not in str(refused.value)


def test_a_path_that_leaves_the_table_is_not_read(spark: SparkSession, filled: Place) -> None:
    query.register_views(spark, filled.uri, "stored", storage_options=filled.options)
    share = "SELECT 'events/../ledger/x.parquet', '[[\"web\", 0, 0]]'"
    with pytest.raises(Exception, match="not a plain path"):
        spark.sql(f"SELECT * FROM stored_read(TABLE({share}))").collect()


def test_duckdb(place: Place) -> None:
    how: dict[str, Any] = {"storage_options": place.options}
    warehouse.create(None, place.uri, ["ms"], **HOW, **how)
    wh = query.open(place.uri, place.options)
    warehouse.load(None, place.uri, rows(0), "night-0", **how)
    assert close(wh.sql(COUNTED.format("events")).fetchall(), counted([0]))
    stream.append(None, place.uri, rows(1), source="web", batch=0, **how)
    assert close(wh.sql(COUNTED.format("events")).fetchall(), counted([0, 1]))
    assert close(wh.sql(COUNTED.format("live")).fetchall(), counted([1]))
    assert wh.sql("SELECT n + m FROM quantile(0.5)").fetchall() == [(400,)]
    connection = duckdb.connect()
    query.register_duckdb(connection, place.uri, "w", storage_options=place.options)
    assert close(connection.sql(COUNTED.format("w_history")).fetchall(), counted([0]))
    place.server.set()
    wh.sql(COUNTED.format("events")).fetchall()
    assert not [r for r in place.server.requests() if "/events/" in r.path and ".parquet" in r.path]


def test_a_checkpoint_in_the_store_is_refused_before_anything_runs(
    spark: SparkSession, filled: Place, tmp_path: Path
) -> None:
    """The text has the settings; a checkpoint on a disk works."""
    spark.createDataFrame(rows(20)).write.parquet(str(tmp_path / "in"))
    given = spark.readStream.schema("at timestamp, page string, ms double").parquet(str(tmp_path / "in"))
    how: dict[str, Any] = {"source": "files", "storage_options": filled.options, "trigger": "available now"}
    filled.server.set()
    in_store = filled.uri.replace("s3://", "s3a://") + "/checkpoints/files"
    with pytest.raises(InputError, match=r"hadoop-aws:3\.\d.*fs\.s3a\.access\.key.*--checkpoint"):
        stream.start(given, filled.uri, checkpoint=in_store, **how)
    with pytest.raises(InputError, match="written as s3a://"):
        stream.start(given, filled.uri, checkpoint=in_store.replace("s3a", "s3"), **how)
    assert not filled.server.requests()
    before = query.open(filled.uri, filled.options).info()["live_rows"]
    stream.start(given, filled.uri, checkpoint=tmp_path / "checkpoint", **how).awaitTermination()
    assert query.open(filled.uri, filled.options).info()["live_rows"] == before + 200
