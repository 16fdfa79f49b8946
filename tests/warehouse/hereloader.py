"""A loader without Spark: the tasks run in this process, one after another. All commits are the true ones."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.types import DoubleType, LongType, StringType, StructField, StructType, TimestampType

import warehouse
from warehouse import ingest, ledger, tables, tasks
from warehouse.create import read_options
from warehouse.events import Batches
from warehouse.load import LoadReport, _finish_steps, _plan, _Watch, bulk_batch, next_step
from warehouse.rowfiles import NewRows, WriteRows
from warehouse.sieve import TAKE_ALL
from warehouse.storage import EVENTS, Store
from warehouse.summaries import by_tick

SCHEMA = StructType(
    [
        StructField("t", TimestampType()),
        StructField("k", StringType()),
        StructField("x", DoubleType()),
        StructField("n", LongType()),
    ]
)
DAY_US = 86_400_000_000


def tasks_here(patch: pytest.MonkeyPatch) -> None:
    """Spark's tasks run where they are asked for."""

    def run(_: Any, work: Iterable[Callable[[], Any]]) -> list[Any]:
        return [one() for one in work]

    patch.setattr(tasks, "run", run)


def rows_of(seed: int, rows: int = 60, days: int = 3) -> pa.Table:
    """Rows of some days, with duplicates, NaN and NULL."""
    random = np.random.default_rng([20261124, seed])
    x = np.round(random.normal(0, 10, rows), 1)
    x[random.random(rows) < 0.05] = np.nan
    return pa.table(
        {
            "t": pa.array(random.integers(0, days * DAY_US, rows), pa.timestamp("us", tz="UTC")),
            "k": pa.array([f"k{one}" for one in random.integers(0, 6, rows)]),
            "x": pa.array(x, mask=random.random(rows) < 0.05),
            "n": pa.array(random.integers(-5, 5, rows)),
        }
    )


@dataclass
class Loader:
    """Loads, streams, merges and maintains one warehouse; `seed` makes its next rows."""

    uri: str
    streamed: int = 0
    bulk: int = 0
    seed: int = 0

    @classmethod
    def create(cls, uri: str | os.PathLike[str], **options: Any) -> Loader:
        """A new warehouse with two measures, a key and a time."""
        chosen = {"key": "k", "time": "t", "eps": 0.1, "kappa": 2, **options}
        warehouse.create(None, uri, ["x", "n"], schema=SCHEMA, **chosen)
        return cls(os.fspath(uri))

    @property
    def store(self) -> Store:
        return Store.of(self.uri)

    def stream(self, rows: pa.Table | None = None) -> None:
        """One batch of the stream 'web'."""
        one = Batches("web", self.streamed, self.streamed)
        options = read_options(self.store)
        eps = ledger.level_eps(options.eps, 0)
        summaries = by_tick(chain.from_iterable(self._append(one, rows, eps)), eps)
        ledger.append_batch(self.store, options.eps, one.source, one.first, summaries)
        self.streamed += 1

    def load(self, rows: pa.Table | None = None, progress: Callable[[str], None] | None = None) -> None:
        """One bulk load."""
        batch = bulk_batch(f"night-{self.bulk}")
        rows = rows if rows is not None else self._rows()
        list(self._append(batch, rows, None))
        step = _plan(self.store, lambda planned: [] if batch in planned else [(batch, rows.num_rows)])
        options = read_options(self.store)
        _finish_steps(None, self.store, options, step, _Watch(LoadReport(), progress))  # type: ignore[arg-type]
        self.bulk += 1

    def load_live(self, progress: Callable[[str], None] | None = None) -> None:
        """What the stream brought goes into history."""
        warehouse.load(None, self.uri, progress=progress)  # type: ignore[arg-type]

    def maintain(self, grace: str = "0 s") -> None:
        """Small files are joined, and what nobody may still see goes at once."""
        warehouse.maintain(object(), self.uri, grace=grace)  # type: ignore[arg-type]

    def round(self) -> None:
        """One of each; every few rounds merge."""
        self.stream()
        self.stream()
        self.load()
        self.load_live()
        self.maintain()

    def _rows(self) -> pa.Table:
        self.seed += 1
        return rows_of(self.seed)

    def _append(self, one: Batches, rows: pa.Table | None, eps: float | None) -> Iterator[Any]:
        """Appends the rows to `events`; yields their summaries."""
        rows = rows if rows is not None else self._rows()
        options = read_options(self.store)
        schema = pa.schema(tables.open_table(self.store, EVENTS).schema())
        work = WriteRows(self.store, schema, one, options, next_step(self.store), TAKE_ALL, eps)
        written = [row for found in work(iter(rows.to_batches())) for row in found.to_pylist()]
        files = [
            NewRows(*(row[name] for name in ("path", "size", "rows", "stats", "nulls"))).action()
            for row in written
        ]
        ingest._commit(self.store, one, files, ingest.Appended("appended"))
        for row in written:
            if row["summaries"] is not None:
                yield pickle.loads(row["summaries"])
