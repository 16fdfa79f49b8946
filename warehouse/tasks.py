"""What the tasks of a load and of a stream do: read events, sort, merge, write, summarise.

Each task holds one bounded slice. Nothing here knows Delta; the driver turns what comes back
into commits. Where tasks run is the executor's matter (`warehouse/executors.py`).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from warehouse import marks
from warehouse.cuts import Slice, SortedInput
from warehouse.events import Batches, Share, read_columns, read_keys
from warehouse.keycollect import WrittenKeys
from warehouse.keycuts import KeySlice, SortedKeys
from warehouse.keyfiles import merge_key_slice, write_keys
from warehouse.keyrows import KeyRows, counted, no_rows, summed, tick_totals
from warehouse.keys import Key
from warehouse.marks import TickCounts, add_totals, tick_counts
from warehouse.measures import Column, Measure
from warehouse.options import Options
from warehouse.runfiles import WrittenFile, merge_slice, sort_rows, write_sorted
from warehouse.storage import Store
from warehouse.summaries import Summaries, TickSummary

if TYPE_CHECKING:
    from warehouse.executors import Executor

SORT_ROWS = (
    2**21
)  # rows that a task sorts in memory: 32 MB of values and ticks, a few times that while sorting
HELD_BYTES = 2**28  # of distinct keys and their counts that a task holds at a time
WHOLE = 2**62  # a span longer than any file: tick counts of the file in one piece


@dataclass(frozen=True, slots=True)
class SortTask:
    """Sort the batches' rows of some shares of events, one file a measure.

    `eps` is given where the file is the whole run, and its marks are final; None where it is a
    chunk that a merge will read.
    """

    store: Store
    measures: tuple[Measure, ...]
    batches: tuple[Batches, ...]
    shares: tuple[Share, ...]
    paths: tuple[str, ...]
    eps: float | None

    def __call__(self) -> list[tuple[WrittenFile, TickCounts]]:
        """The file of each measure and its rows by tick."""
        filesystem = self.store.filesystem()
        pieces = list(read_columns(filesystem, self.shares, self.measures, self.batches))
        results = []
        for i, (measure, path) in enumerate(zip(self.measures, self.paths, strict=True)):
            kept = [_kept(piece.ticks, piece.columns[i]) for piece in pieces]
            values = np.concatenate([np.empty(0, measure.dtype), *(v for v, _ in kept)])
            ticks = np.concatenate([np.empty(0, np.int64), *(t for _, t in kept)])
            totals = add_totals([tick_counts(piece.ticks, piece.columns[i]) for piece in pieces])
            grain = marks.ROW_GROUP_ROWS if self.eps is None else marks.grain(len(values), self.eps)
            span = WHOLE if self.eps is None else marks.span(len(values), grain, len(totals.ticks))
            rows = iter([sort_rows(values, ticks)])
            written = write_sorted(filesystem, _own(path), measure.arrow_type, rows, grain=grain, span=span)
            results.append((written, totals))
        return results


@dataclass(frozen=True, slots=True)
class MergeTask:
    """Merge neighbouring slices of sorted inputs into one file."""

    store: Store
    arrow_type: pa.DataType
    inputs: tuple[SortedInput, ...]
    slices: tuple[Slice, ...]
    path: str
    grain: int
    span: int

    def __call__(self) -> WrittenFile:
        """The file written."""
        filesystem = self.store.filesystem()
        pieces = (merge_slice(filesystem, self.inputs, piece) for piece in self.slices)
        path = _own(self.path)
        return write_sorted(filesystem, path, self.arrow_type, pieces, grain=self.grain, span=self.span)


@dataclass(frozen=True, slots=True)
class SortKeysTask:
    """Count the batches' rows of some shares of events by key and tick.

    `path` is given where the shares are all of a run: then it is the run's file. What does not fit into
    memory at once, or is not all of a run, becomes chunks that a merge will read.
    """

    store: Store
    key: Key
    batches: tuple[Batches, ...]
    shares: tuple[Share, ...]
    path: str | None
    chunk: str
    group_rows: int

    def __call__(self) -> tuple[list[WrittenKeys], TickCounts]:
        """The files, and the rows by tick, with a key and without."""
        filesystem = self.store.filesystem()
        held, totals, files = [no_rows(self.key)], [], []
        for ticks, column in read_keys(filesystem, self.shares, self.key, self.batches):
            totals.append(tick_totals(column, ticks))
            held.append(counted(column, ticks))
            if sum(one.nbytes for one in held) > HELD_BYTES:
                held = [summed(held)]
                if held[0].nbytes > HELD_BYTES // 2:
                    files.append(self._write(self.chunk, held[0], None))
                    held = [no_rows(self.key)]
        all_totals = add_totals(totals)
        if self.path is not None and not files:
            return [self._write(self.path, summed(held), all_totals)], all_totals
        return [*files, self._write(self.chunk, summed(held), None)], all_totals

    def _write(self, path: str, rows: KeyRows, totals: TickCounts | None) -> WrittenKeys:
        pieces = iter([rows] if len(rows) else [])
        filesystem = self.store.filesystem()
        return write_keys(filesystem, _own(path), self.key, pieces, group_rows=self.group_rows, totals=totals)


@dataclass(frozen=True, slots=True)
class MergeKeysTask:
    """Merge neighbouring slices of sorted key rows into one file of a run of these totals."""

    store: Store
    key: Key
    inputs: tuple[SortedKeys, ...]
    slices: tuple[KeySlice, ...]
    path: str
    group_rows: int
    totals: TickCounts

    def __call__(self) -> WrittenKeys:
        """The file written."""
        filesystem = self.store.filesystem()
        merged = (merge_key_slice(filesystem, self.key, self.inputs, piece) for piece in self.slices)
        pieces = (rows for rows in merged if len(rows))
        path = _own(self.path)
        return write_keys(filesystem, path, self.key, pieces, group_rows=self.group_rows, totals=self.totals)


@dataclass(frozen=True, slots=True)
class SummariseTask:
    """Summarise the batches' rows of some shares of events by tick."""

    store: Store
    options: Options
    batches: tuple[Batches, ...]
    shares: tuple[Share, ...]
    eps: float

    def __call__(self) -> list[TickSummary]:
        """Summaries of the rows by tick."""
        found, filesystem = Summaries(self.options, self.eps), self.store.filesystem()
        key = self.options.key_column
        for piece in read_columns(filesystem, self.shares, found.columns, self.batches, key):
            found.add(piece)
        return found.finish()


def _own(path: str) -> str:
    """The path with a word of this very execution: Spark may run a task twice at the same time."""
    return f"{path.removesuffix('.parquet')}-{uuid.uuid4().hex[:8]}.parquet"


def _kept(ticks: Any, column: Column) -> tuple[Any, Any]:
    left_out = column.nan | column.null
    return (column.stored[~left_out], ticks[~left_out]) if left_out.any() else (column.stored, ticks)


def run(executor: Executor, tasks: Sequence[Callable[[], Any]]) -> list[Any]:
    """The results of the tasks in order; the executor says where they run."""
    return executor.run(tasks)
