"""Who lives with a warehouse without Spark: loads, streams and maintains it in this process."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tidemark import stream, warehouse
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.sizes import DEFAULT, Tuning

SCHEMA = pa.schema(
    [("t", pa.timestamp("us", tz="UTC")), ("k", pa.string()), ("x", pa.float64()), ("n", pa.int64())]
)
DAY_US = 86_400_000_000


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
    tuning: Tuning = DEFAULT

    @classmethod
    def create(cls, uri: str | os.PathLike[str], tuning: Tuning = DEFAULT, **options: Any) -> Loader:
        """A new warehouse with two measures, a key and a time."""
        chosen = {"key": "k", "time": "t", "eps": 0.1, "kappa": 2, **options}
        warehouse.create(None, uri, ["x", "n"], schema=SCHEMA, **chosen)
        return cls(os.fspath(uri), tuning=tuning)

    def copied(self, uri: Path) -> Loader:
        """The same in a copy of the warehouse."""
        return replace(self, uri=os.fspath(shutil.copytree(self.uri, uri)))

    @property
    def store(self) -> Store:
        return Store.from_uri(self.uri, tuning=self.tuning)

    def stream(self, rows: pa.Table | None = None) -> None:
        """One batch of the stream 'web'."""
        given, number = self._given(rows), self.streamed
        assert stream.append(None, self.uri, given, source="web", batch=number, tuning=self.tuning)
        self.streamed += 1

    def load(self, rows: pa.Table | None = None, progress: Callable[[str], None] | None = None) -> None:
        """One bulk load."""
        given, name = self._given(rows), f"night-{self.bulk}"
        warehouse.load(None, self.uri, given, name, progress=progress, tuning=self.tuning)
        self.bulk += 1

    def load_live(self, progress: Callable[[str], None] | None = None) -> None:
        """What the stream brought goes into history."""
        warehouse.load(None, self.uri, progress=progress, tuning=self.tuning)

    def maintain(self, grace: str = "0 s") -> None:
        """Small files are joined, and what nobody may still see goes at once."""
        warehouse.maintain(None, self.uri, grace=grace, tuning=self.tuning)

    def round(self) -> None:
        """One of each; every few rounds merge."""
        self.stream()
        self.stream()
        self.load()
        self.load_live()
        self.maintain()

    def _given(self, rows: pa.Table | None) -> pa.Table:
        if rows is None:
            self.seed += 1
            rows = rows_of(self.seed)
        return rows
