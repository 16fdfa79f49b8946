"""The distinct keys of a run: exact numbers by run and by tick, and a sample of the keys.

Numbers and sample are the row group ``distinct`` of the run's key marks. Its first row has no tick: `count`
is the number of the run's keys, and `content` the sample (sketches/sampling/key_sample.py). Each further row
has a tick and the number of keys with rows in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidemark.sketches import SketchError
from tidemark.sketches.sampling import KeySample, SampleBuilder, SampleSize, merge_samples
from tidemark.warehouse.columns.keys import Name, name_at
from tidemark.warehouse.columns.value_encoding import as_numpy
from tidemark.warehouse.errors import DamagedWarehouse
from tidemark.warehouse.projections.key_rows import KeyRows
from tidemark.warehouse.runs.marks import CONTENT_FIELD

# 16,384 keys give a standard error of 0.8 %. The entries take at most about a megabyte in memory, and less in
# the marks.
RUN_SAMPLE = SampleSize(keys=2**14, entries=2**16)


@dataclass(frozen=True, slots=True, eq=False)
class DistinctKeys:
    """How many keys some rows have, and which of them are sampled.

    keys: the number of different keys. by_tick: shape (ticks,), the number of keys with rows in each tick.
    """

    keys: int
    by_tick: NDArray[np.int64]
    sample: KeySample

    @property
    def nbytes(self) -> int:
        """The memory of the arrays."""
        return self.by_tick.nbytes + self.sample.nbytes


class DistinctCollector:
    """Counts and samples the keys of sorted rows, which are added in pieces of any length."""

    def __init__(self, ticks: NDArray[np.int64]) -> None:
        self.ticks, self._by_tick = ticks, np.zeros(len(ticks), np.int64)
        self._sample, self._keys = SampleBuilder(RUN_SAMPLE), 0
        self._last: Name | None = None  # the last key, which may have more rows

    def add(self, rows: KeyRows, cells: NDArray[np.int64], words: NDArray[np.uint64]) -> None:
        """Adds the next rows, at least one.

        cells: the index of each row's tick. words: `name_words` of the rows' names.
        """
        self._keys += len(rows.names) - (self._last == name_at(rows.names, 0))
        self._last = name_at(rows.names, len(rows.names) - 1)
        self._by_tick += np.bincount(cells, minlength=len(self.ticks))
        self._sample.add(words, rows.codes, rows.ticks, rows.counts)

    def finish(self) -> DistinctKeys:
        """The keys of all rows added."""
        return DistinctKeys(self._keys, self._by_tick, self._sample.finish())


def join_distinct(parts: Sequence[DistinctKeys], shared: int, ticks: int) -> DistinctKeys:
    """The keys of consecutive parts of a run; `shared` is how often two neighbours share a key."""
    samples = [KeySample.empty(), *(part.sample for part in parts)]
    return DistinctKeys(
        sum(part.keys for part in parts) - shared,
        np.sum([np.zeros(ticks, np.int64), *(part.by_tick for part in parts)], axis=0),
        merge_samples(samples, RUN_SAMPLE),
    )


def to_arrow(distinct: DistinctKeys, ticks: NDArray[np.int64]) -> pa.Table:
    """The row group ``distinct``."""
    contents = [distinct.sample.to_bytes(), *[None] * len(ticks)]
    return pa.table(
        {
            "tick": pa.array([None, *ticks.tolist()], pa.int64()),
            "count": pa.array([distinct.keys, *distinct.by_tick.tolist()], pa.int64()),
            CONTENT_FIELD.name: pa.array(contents, CONTENT_FIELD.type),
        }
    )


def from_arrow(stored: pa.Table, ticks: NDArray[np.int64]) -> DistinctKeys:
    """The keys of a row group ``distinct``; DamagedWarehouse if it is not one for these ticks."""
    counts, content = as_numpy(stored.column("count")), stored.column(CONTENT_FIELD.name)[0].as_py()
    if not np.array_equal(as_numpy(stored.column("tick").slice(1)), ticks):
        raise DamagedWarehouse("the numbers of distinct keys are of other ticks than the run's")
    try:
        sample = KeySample.from_bytes(content)
    except SketchError as error:
        raise DamagedWarehouse(f"the sample of keys is damaged: {error}") from error
    return DistinctKeys(int(counts[0]), counts[1:], sample)
