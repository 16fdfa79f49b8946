"""Removals and corrections in a session of Spark, by its frames."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from tests.query.groupworld import TINY, GroupWorld
from tests.warehouse.test_delete_keys import KEYS
from tests.warehouse.test_remove import check, keep, made, world
from tidemark import query, warehouse

__all__ = ["made", "world"]  # fixtures


def test_a_session_deletes_and_corrects_by_its_frames(spark: SparkSession, world: GroupWorld) -> None:
    keys = spark.createDataFrame(KEYS, "origin string, number long")
    assert warehouse.delete(spark, world.path, keys=keys, tuning=TINY).outcome == "removed"
    keep(world, lambda row: (row[1], row[2]) not in KEYS[:2])
    check(world, verified=False)
    old = world.rows[:3]
    new = [(*row[:3], 1234.5, row[4]) for row in old]
    columns = "time timestamp, origin string, number long, value double, price decimal(9,2)"
    frames = [spark.createDataFrame(one, columns) for one in (new, old)]
    how: dict[str, Any] = {"batch": "fix", "before": frames[1], "tuning": TINY}
    report = warehouse.correct(spark, world.path, frames[0], **how)
    assert (report.outcome, report.rows, report.rows_in) == ("corrected", 3, 3)
    assert warehouse.correct(spark, world.path, frames[0], **how).outcome == "known"
    world.rows[:3] = new
    world._truths.clear()
    check(world)


def test_a_stream_of_a_change_feed_corrects_in_each_of_its_batches(
    spark: SparkSession, tmp_path: Path
) -> None:
    uri, source, checkpoint = (tmp_path / name for name in ("warehouse", "source", "checkpoint"))
    warehouse.create(
        None, uri, ["value"], key="name", schema=pa.schema([("name", "string"), ("value", "double")])
    )
    table = f"delta.`{source}`"
    spark.sql(
        f"CREATE TABLE {table} (name STRING, value DOUBLE) USING delta "
        "TBLPROPERTIES (delta.enableChangeDataFeed = true)"
    )
    spark.sql(f"INSERT INTO {table} VALUES ('a', 1), ('b', 2), ('b', 2), ('c', 3)")

    def apply(changes: DataFrame, number: int) -> None:
        for _ in range(2):  # as after a failure: a micro-batch may come again
            warehouse.correct(spark, uri, changes=changes, batch=f"feed-{number}")

    def run() -> list[tuple[str, float]]:
        feed = spark.readStream.format("delta").option("readChangeFeed", "true")
        stream = feed.option("startingVersion", "0").option("maxFilesPerTrigger", "1").load(str(source))
        writer = stream.writeStream.foreachBatch(apply).option("checkpointLocation", str(checkpoint))
        assert writer.trigger(availableNow=True).start().awaitTermination(120)
        found = DeltaTable(uri / "events").to_pyarrow_table(columns=["name", "value"]).to_pylist()
        return sorted((row["name"], row["value"]) for row in found)

    assert run() == [("a", 1.0), ("b", 2.0), ("b", 2.0), ("c", 3.0)]
    spark.sql(f"UPDATE {table} SET value = value + 10 WHERE name = 'b'")
    spark.sql(f"DELETE FROM {table} WHERE name = 'a'")
    spark.sql(f"INSERT INTO {table} VALUES ('d', 4)")
    assert run() == [("b", 12.0), ("b", 12.0), ("c", 3.0), ("d", 4.0)]
    wh = query.open(uri)
    assert (wh.quantile(1, mode="exact").value, wh.frequency("b", mode="exact").count) == (12.0, 2)
    assert warehouse.verify(uri).ok
