"""The other engines: a Spark session as the jobs start it, and the quantiles of Spark and DuckDB."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tidemark.jobs.spark.session import spark_session


def start_spark(work: Path) -> SparkSession:
    """A session of all cores, whose files stay in the work folder."""
    return spark_session(
        "tidemark-bench",
        **{
            "spark.driver.memory": "4g",
            "spark.local.dir": str(work / "spark"),
            "spark.sql.warehouse.dir": str(work / "spark-warehouse"),
        },
    )


def spark_percentile(spark: SparkSession, runs: str, phi: float) -> Any:
    """Spark's percentile_approx of a runs table, at its default accuracy."""
    frame = spark.read.format("delta").load(runs)
    return frame.agg(F.percentile_approx("value", phi)).collect()[0][0]


class Duck:
    """DuckDB over Parquet files, one warm connection."""

    def __init__(self, files: Sequence[str]) -> None:
        self._connection = duckdb.connect()
        self._connection.execute("SET parquet_metadata_cache = true")
        self._files = list(files)

    def count(self, column: str, value: Any) -> int:
        """The rows whose column has the value."""
        asked = f'SELECT count(*) FROM read_parquet(?) WHERE "{column}" = ?'
        found = self._connection.execute(asked, [self._files, value]).fetchone()
        assert found is not None
        return int(found[0])

    def quantile(self, phi: float) -> Any:
        """The exact quantile, quantile_disc."""
        asked = "SELECT quantile_disc(value, ?) FROM read_parquet(?)"
        found = self._connection.execute(asked, [phi, self._files]).fetchone()
        assert found is not None
        return found[0]
