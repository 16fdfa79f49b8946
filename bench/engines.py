"""The other engines: a Spark session as the jobs start it, and the quantiles of Spark and DuckDB."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import duckdb
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tidemark.jobs.spark.session import spark_session
from tidemark.query.reading.sql_text import parquet_rows


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
    """DuckDB over Parquet files, which a view has, one warm connection."""

    def __init__(self, files: Sequence[str], view: str = "s") -> None:
        self._connection = duckdb.connect()
        self._connection.execute("SET TimeZone = 'UTC'; SET parquet_metadata_cache = true")
        self.add(view, files)
        self._files = list(files)

    def add(self, view: str, files: Sequence[str]) -> None:
        """Makes a view of the rows of other files."""
        self._connection.execute(f"CREATE VIEW {view} AS FROM {parquet_rows(files)}")

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        """The rows of a statement, in which the view has all rows."""
        return self._connection.execute(statement).fetchall()

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

    def quantile_where(self, phi: float, column: str, value: Any) -> Any:
        """The exact quantile of the rows whose column has the value."""
        asked = f'SELECT quantile_disc(value, ?) FROM read_parquet(?) WHERE "{column}" = ?'
        found = self._connection.execute(asked, [phi, self._files, value]).fetchone()
        assert found is not None
        return found[0]

    def distinct(self, column: str, time: str, since_us: int) -> int:
        """The number of different values of a column since a time."""
        asked = (
            f'SELECT count(DISTINCT "{column}") FROM read_parquet(?) '
            f'WHERE "{time}" >= make_timestamptz(?::BIGINT)'
        )
        found = self._connection.execute(asked, [self._files, since_us]).fetchone()
        assert found is not None
        return int(found[0])

    def persistent(self, column: str, time: str, since_us: int, least: int) -> int:
        """How many values of a column have rows in at least `least` ticks since a time."""
        asked = (
            f'SELECT count(*) FROM (SELECT "{column}" FROM read_parquet(?) '
            f'WHERE "{time}" >= make_timestamptz(?::BIGINT) '
            'GROUP BY 1 HAVING count(DISTINCT "_tick") >= ?)'
        )
        found = self._connection.execute(asked, [self._files, since_us, least]).fetchone()
        assert found is not None
        return int(found[0])

    def largest_groups(
        self, phi: float, column: str, time: str, since_us: int, k: int
    ) -> list[tuple[Any, Any, int]]:
        """The k groups with the most rows since a time: (group, exact quantile, rows)."""
        asked = (
            f'SELECT "{column}", quantile_disc(value, ?), count(*) AS n FROM read_parquet(?) '
            f'WHERE "{time}" >= make_timestamptz(?::BIGINT) GROUP BY 1 ORDER BY n DESC, 1 LIMIT ?'
        )
        return self._connection.execute(asked, [phi, self._files, since_us, k]).fetchall()


class ClickHouse:
    """ClickHouse in this process, with the rows of Parquet files in a table, and a view of t-digests."""

    def __init__(self, files: Sequence[str]) -> None:
        self._session: Any = import_module("chdb.session").Session()
        names = ", ".join(f"'{file.removeprefix('file://')}'" for file in files)
        for statement in (
            "CREATE DATABASE b",
            (
                "CREATE TABLE b.e (time DateTime64(6), value Float64, `group` LowCardinality(String)) "
                "ENGINE = MergeTree ORDER BY time"
            ),
            (
                "CREATE TABLE b.d (`group` LowCardinality(String), day Date, "
                "digest AggregateFunction(quantileTDigest(0.99), Float64)) "
                "ENGINE = AggregatingMergeTree ORDER BY (`group`, day)"
            ),
            (
                "CREATE MATERIALIZED VIEW b.v TO b.d AS SELECT `group`, toDate(time) AS day, "
                "quantileTDigestState(0.99)(value) AS digest FROM b.e GROUP BY `group`, day"
            ),
            *(
                f"INSERT INTO b.e SELECT time, value, `group` FROM file({name}, Parquet)"
                for name in names.split(", ")
            ),
        ):
            self._session.query(statement)

    def quantile(self, phi: float, group: str) -> float:
        """The exact quantile of a group."""
        return self._number(f"SELECT quantileExactLow({phi})(value) FROM b.e WHERE `group` = '{group}'")

    def digest(self, phi: float, group: str) -> float:
        """The quantile of a group by its t-digests."""
        return self._number(f"SELECT quantileTDigestMerge({phi})(digest) FROM b.d WHERE `group` = '{group}'")

    def close(self) -> None:
        """Ends it and removes its files."""
        self._session.close()

    def _number(self, statement: str) -> float:
        return float(str(self._session.query(statement, "CSV")).strip())
