"""Settings of the Spark session that all tests share, changed for a while."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

from pyspark.sql import SparkSession


@contextmanager
def changed(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """The session has these settings inside, and its own again afterwards."""
    before = {name: spark.conf.get(name) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, earlier in before.items():
            spark.conf.set(name, str(earlier))


def in_zone(spark: SparkSession, zone: str) -> AbstractContextManager[None]:
    """The session is in this time zone inside."""
    return changed(spark, {"spark.sql.session.timeZone": zone})


def cut_files(part_bytes: int, open_cost_bytes: int) -> dict[str, str]:
    """Spark cuts files into parts of so many bytes; a task reads several if opening one costs few bytes."""
    return {
        "spark.sql.files.maxPartitionBytes": str(part_bytes),
        "spark.sql.files.openCostInBytes": str(open_cost_bytes),
    }
