"""Small partitions of Spark are joined: a load makes a task and a file a core, not one for each of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from tidemark.warehouse.execution import executors
from tidemark.warehouse.execution.executors import executor_for

PARTITIONS, ROWS = 6, 240


class Values:
    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Any]:
        yield [value for batch in batches for value in batch.column(0).to_pylist()]


def rows_of_tasks(spark: SparkSession, frame: DataFrame) -> list[int]:
    """How many rows each task gets; all of them come once."""
    found = executor_for(spark).input(frame).each(["x"], Values())
    assert sorted(value for values in found for value in values) == list(range(ROWS))
    return [len(values) for values in found]


def test_small_partitions_are_joined(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = spark.range(ROWS).selectExpr("id AS x").repartition(PARTITIONS)
    assert len(rows_of_tasks(spark, frame)) == executor_for(spark).cores < PARTITIONS
    # Spark takes rows of an RDD to have all the bytes there are.
    assert len(rows_of_tasks(spark, spark.createDataFrame(frame.rdd, frame.schema))) == PARTITIONS
    monkeypatch.setattr(executors, "JOINED_BYTES", 2**6)
    assert len(rows_of_tasks(spark, frame)) == PARTITIONS
    monkeypatch.undo()
    monkeypatch.setattr(
        executors, "_estimated_bytes", lambda _: None
    )  # the broken variant, and Spark Connect
    assert len(rows_of_tasks(spark, frame)) == PARTITIONS
