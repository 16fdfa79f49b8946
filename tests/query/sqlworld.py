"""Flights in a warehouse, the same rows in memory as the oracle, and another process that changes it."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tests.query.worlds import Oracle
from tidemark import stream, warehouse

ROOT = Path(__file__).resolve().parents[2]
FLIGHTS = ROOT / "docs" / "data" / "flights-20k.parquet"
DAY = timedelta(days=1)
PROJECTIONS = {
    "delay",
    "distance",
    "key origin",
    "key origin, destination",
    "delay by origin",
    "distance by origin",
}


def month(frame: DataFrame, number: int) -> DataFrame:
    return frame.where(F.month("time") == number)


def month_of(number: int) -> pa.Table:
    """The rows of a month, for a warehouse without Spark."""
    rows = pq.read_table(FLIGHTS)
    return rows.filter(pc.equal(pc.month(rows["time"]), number))


def make(uri: Path) -> Path:
    """January is history, February is live, March is left to come."""
    measures = ["delay", "distance"]
    options: dict[str, Any] = {"key": "origin", "time": "time", "kappa": 3}
    options |= {"keys": [["origin", "destination"]], "groups": ["origin"]}
    warehouse.create(None, uri, measures, eps=0.01, schema=pq.read_schema(FLIGHTS), **options)
    warehouse.load(None, uri, month_of(1), batch="2001-01")
    stream.append(None, uri, month_of(2), source="web", batch=0)
    return uri


@dataclass(frozen=True)
class Rows:
    """The rows of some months, in memory."""

    rows: list[dict[str, Any]]

    @classmethod
    def of(cls, *months: int) -> Rows:
        return cls([row for row in _all_rows() if row["time"].month in months])

    def __len__(self) -> int:
        return len(self.rows)

    def since(self, start: datetime, stop: datetime | None = None) -> Rows:
        return Rows(
            [row for row in self.rows if start <= row["time"] and (stop is None or row["time"] < stop)]
        )

    def last_days(self, days: int) -> Rows:
        newest = max(row["time"] for row in self.rows)
        return self.since(datetime(newest.year, newest.month, newest.day, tzinfo=UTC) - (days - 1) * DAY)

    def where(self, **equal: Any) -> Rows:
        """The rows with these values."""
        return Rows([row for row in self.rows if all(row[name] == value for name, value in equal.items())])

    def oracle(self, measure: str = "delay") -> Oracle:
        return Oracle.of([row[measure] for row in self.rows])

    def keys(self) -> Counter[str]:
        return Counter(row["origin"] for row in self.rows if row["origin"] is not None)


@cache
def _all_rows() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(FLIGHTS).cast(_with_zone()).to_pylist()
    return rows


def _with_zone() -> pa.Schema:
    schema = pq.read_schema(FLIGHTS)
    return schema.set(schema.get_field_index("time"), pa.field("time", pa.timestamp("us", tz="UTC")))


def in_another_process(uri: Path, what: str) -> None:
    """`what` is Python that has `uri`, `warehouse`, `stream` and `month_of`."""
    script = f"""
from tidemark import stream, warehouse
from tests.query.sqlworld import month_of
uri = {str(uri)!r}
{what}
"""
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True, capture_output=True, timeout=300)
