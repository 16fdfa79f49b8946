"""The rows of every batch that is sent to a warehouse under attack, and which of them left."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, lru_cache, reduce
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

MEASURES = ("delay", "size")
PAIR = ("kind", "page")  # a key and a group
OPTIONS: dict[str, Any] = {
    "key": "page",
    "time": "time",
    "eps": 0.02,
    "kappa": 2,
}
GROUPED = {**OPTIONS, "keys": ["kind", list(PAIR)], "groups": ["kind", list(PAIR)], "private": ["page"]}
KINDS = ("", "web", "a\x00", None)
_DAY_US = 86_400_000_000
_FILES = 2  # each batch lies in several files, so `events` gets several and a load sorts in chunks


@cache
def batch_rows(number: int) -> pa.Table:
    """The rows of a batch: no two batches have equally many, nor do the subsets of any few."""
    random = np.random.default_rng([20261121, number])
    rows = 1500 + 97 * number + 2 ** (number % 10)
    delay = np.round(random.lognormal(3, 1, rows), 1)
    for value, share in ((np.nan, 0.01), (np.inf, 0.002), (-np.inf, 0.002), (-0.0, 0.02)):
        delay[random.random(rows) < share] = value
    size = random.integers(0, 2**60, rows) if number % 2 else random.integers(0, 40, rows)
    time = number * _DAY_US // 2 + random.integers(0, 3 * _DAY_US, rows)
    return pa.table(
        {
            "delay": pa.array(delay, mask=random.random(rows) < 0.02),
            "size": pa.array(size, mask=random.random(rows) < 0.03),
            "time": pa.array(time, pa.timestamp("us", tz="UTC")),
            "page": pa.array([f"/{number}" for number in random.zipf(1.5, rows).tolist()]),
            "kind": pa.array([KINDS[one] for one in random.integers(0, len(KINDS), rows).tolist()]),
        }
    )


def write_batch(folder: Path, number: int) -> Path:
    """A folder of Parquet files with the batch's rows; whole once it is there, whoever else writes it."""
    path = folder / f"batch-{number}"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        new = Path(tempfile.mkdtemp(dir=folder))
        rows = batch_rows(number)
        cut = -(-rows.num_rows // _FILES)
        for part in range(_FILES):
            pq.write_table(rows.slice(part * cut, cut), new / f"part-{part}.parquet")
        try:
            new.rename(path)
        except OSError:  # another thread was first; the rows are the same
            if not path.exists():
                raise
            shutil.rmtree(new)
    return path


@dataclass(frozen=True)
class Gone:
    """Rows that left: those of a page, or of every page, whose time is before a moment."""

    page: str | None
    before_us: int

    def mask(self, rows: pa.Table) -> pa.ChunkedArray:
        """Which of the rows left."""
        is_old = pc.less(rows.column("time"), pa.scalar(self.before_us, rows.schema.field("time").type))
        return is_old if self.page is None else pc.and_(is_old, pc.equal(rows.column("page"), self.page))


Mark: TypeAlias = int | Gone  # of a state of a warehouse: a batch that is there, or rows that left


@lru_cache(maxsize=512)
def _left(number: int, gone: frozenset[Gone]) -> pa.Table:
    rows = batch_rows(number)
    return rows.filter(pc.invert(reduce(pc.or_, (one.mask(rows) for one in gone))))


def rows_by_batch(state: Iterable[Mark]) -> list[pa.Table]:
    """The rows of each batch of a state that are left, by its number."""
    marks = list(state)
    gone = frozenset(one for one in marks if isinstance(one, Gone))
    numbers = sorted(one for one in marks if isinstance(one, int))
    return [_left(number, gone) if gone else batch_rows(number) for number in numbers]


def rows_of(state: Iterable[Mark]) -> int:
    """How many rows a state has."""
    return sum(rows.num_rows for rows in rows_by_batch(state))


@lru_cache(maxsize=256)
def column(measure: str, state: frozenset[Mark]) -> tuple[np.ndarray, int, int]:
    """The numbers of the rows of a state, sorted, and how many NaN and NULL there are."""
    parts = [rows.column(measure) for rows in rows_by_batch(state)]
    chunks = [chunk for part in parts for chunk in part.chunks]
    return sorted_numbers(pa.chunked_array(chunks, pa.float64() if not parts else parts[0].type))


def sorted_numbers(column: pa.ChunkedArray) -> tuple[np.ndarray, int, int]:
    """The numbers of a column, sorted, and how many NaN and NULL there are."""
    values = np.sort(column.drop_null().to_numpy())
    nans = int(np.isnan(values).sum()) if values.dtype.kind == "f" else 0
    return values[: len(values) - nans], nans, column.null_count
