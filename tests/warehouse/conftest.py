"""What the tests of the warehouse share.

`grown` is a warehouse with all that can be in one, made once; tests that change it take a copy. `store` has
the empty tables that commits go to.
"""

from __future__ import annotations

import math
import random
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.once import once
from tests.warehouse.committing import Broken, instant, new_store
from tidemark import stream, warehouse
from tidemark.warehouse.delta import retries
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.private import secrets
from tidemark.warehouse.sizes import Tuning

SCHEMA = "t timestamp, k string, x double, n bigint"
ARROW = pa.schema(
    [("t", pa.timestamp("us", "UTC")), ("k", pa.string()), ("x", pa.float64()), ("n", pa.int64())]
)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
BATCH_ROWS = 90
HISTORY = [f"night-{number}" for number in range(4)]
LIVE = [0, 1]
# Sorts of 60 rows for each of two measures, slices of 32 and files of one slice.
SMALL = Tuning(sort_rows=120, slice_rows=32, file_rows=(32, 32), key_block_rows=4)


def rows_of_batch(seed: int) -> list[tuple[Any, ...]]:
    """Rows over four days round 1970: numbers with duplicates, infinities, NaN and NULL; one time is NULL."""
    r = random.Random(seed)
    rows: list[tuple[Any, ...]] = []
    for i in range(BATCH_ROWS):
        x: Any = round(r.gauss(0, 10), 1)
        x = {3: None, 4: math.nan, 5: math.inf, 6: -math.inf, 7: -0.0}.get(i, x)
        n = {8: None, 9: 2**63 - 1, 10: -(2**63), 11: 2**53 + 1}.get(i, r.randint(-5, 5))
        t = None if i == 12 else EPOCH + timedelta(hours=r.randint(-48, 47))
        rows.append((t, f"k{r.randint(0, 3)}", x, n))
    return rows


@dataclass(frozen=True)
class Grown:
    """Where it lies, and every row of each batch by its name (bulk) or number (the stream 's')."""

    uri: Path
    batches: dict[Any, list[tuple[Any, ...]]]

    def column(self, at: int, names: list[Any] | None = None) -> list[Any]:
        """A column of all rows, or of those batches."""
        return [
            row[at] for name, rows in self.batches.items() if names is None or name in names for row in rows
        ]


@pytest.fixture(scope="session")
def grown(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Grown:
    """Four steps with kappa = 2, so runs L01-0-2 (of several files) and L00-3, and two live batches.

    Do not change it: `copied` gives a copy. One process makes it, and each has its own copy.
    """
    made = once(tmp_path_factory, "grown", lambda folder: _grow(spark, folder / "warehouse"))
    return Grown(shutil.copytree(made.uri, tmp_path_factory.mktemp("grown-here") / "warehouse"), made.batches)


def _grow(spark: SparkSession, uri: Path) -> Grown:
    batches = {name: rows_of_batch(seed) for seed, name in enumerate([*HISTORY, *LIVE])}
    warehouse.create(spark, uri, ["x", "n"], key="k", time="t", tick="1 day", eps=0.1, kappa=2, schema=SCHEMA)
    for name in HISTORY:
        warehouse.load(spark, uri, frame(spark, batches[name]).repartition(2), name, tuning=SMALL)
    for number in LIVE:
        stream.append(spark, uri, frame(spark, batches[number]), source="s", batch=number, tuning=SMALL)
    return Grown(uri, batches)


@pytest.fixture
def copied(grown: Grown, tmp_path: Path) -> Grown:
    """A copy of `grown` that a test may change."""
    shutil.copytree(grown.uri, tmp_path / "copy")
    return Grown(tmp_path / "copy", grown.batches)


def frame(spark: SparkSession, rows: list[tuple[Any, ...]]) -> DataFrame:
    return spark.createDataFrame(rows, SCHEMA)


def arrow(rows: list[tuple[Any, ...]]) -> pa.Table:
    """The same for a call without Spark."""
    columns = [
        pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), ARROW.types, strict=True)
    ]
    return pa.table(columns, schema=ARROW)


def counts_of_filters(rows: DataFrame, conditions: Sequence[str | Column]) -> list[int]:
    """How many rows each condition keeps where it is a filter, for whose sake files are left out.

    One job has a scan for each.
    """
    kept = [
        rows.where(one).agg(F.count("*").alias("rows")).withColumn("at", F.lit(at))
        for at, one in enumerate(conditions)
    ]
    return [row["rows"] for row in reduce(DataFrame.unionAll, kept).orderBy("at").collect()]


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that commits made; none takes any time."""
    return instant(monkeypatch, retries)


@pytest.fixture
def store(tmp_path: Path, waits: list[float]) -> Store:  # noqa: ARG001
    return new_store(tmp_path / "w")


@pytest.fixture
def no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that knows the secrets of what its module made alone, and forgets those of a test."""
    monkeypatch.setattr(secrets, "_read", {})
    monkeypatch.setattr(secrets, "_known", dict(secrets._known))


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Iterator[Broken]:
    with monkeypatch.context() as patch:
        yield Broken(patch)
