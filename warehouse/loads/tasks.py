"""What the tasks of a load and of a stream do: read events, sort, merge, write, summarise.

Each task holds one bounded slice. Nothing here knows Delta; the driver turns what comes back
into commits. Where tasks run is the executor's matter (`warehouse/execution/executors.py`).
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyarrow import fs

from tidemark.warehouse.columns.tick_counts import TickCounts, sum_tick_counts
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.events.reader import BatchRange, EventRowGroups, read_decoded_rows, read_event_rows
from tidemark.warehouse.ledger.batch_summaries import TickSummarizer, TickSummary
from tidemark.warehouse.runs.cuts import MergeSlice, SortedInput
from tidemark.warehouse.runs.projection import MarkedFile, Projection, RunSpec
from tidemark.warehouse.runs.run_files import merge_slice, write_rows
from tidemark.warehouse.settings.options import Options


@dataclass(frozen=True, slots=True, eq=False)
class Sorted:
    """What a task sorted for one projection: one file that is the run (`whole`), or chunks.

    `totals` are the rows by tick, `digest` is that of the rows as they came from `events`.
    """

    files: tuple[MarkedFile, ...]
    totals: TickCounts
    digest: int
    whole: bool


@dataclass(frozen=True, slots=True, eq=False)
class Merged:
    """A file of a merged run, and the digest of the rows that were read of each input for it."""

    file: MarkedFile
    read: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Output:
    """Where the rows of a projection go: as a chunk, or as the run where it is all in one task."""

    projection: Projection[Any]
    chunk: str
    run: str | None


@dataclass(frozen=True, slots=True)
class SortTask:
    """Sort the batches' rows of some shares of events for some projections.

    What does not fit into memory at once, or is not all of a run, becomes chunks that a merge will read.
    """

    store: Store
    batches: tuple[BatchRange, ...]
    shares: tuple[EventRowGroups, ...]
    outputs: tuple[Output, ...]
    eps: float

    def __call__(self) -> list[Sorted]:
        """What became of each output, in order."""
        filesystem = self.store.filesystem()
        held_bytes = self.store.tuning.held_bytes
        sorters = [_Sorter(filesystem, output, self.eps, held_bytes) for output in self.outputs]
        columns = [name for one in self.outputs for name in one.projection.columns]
        texts = [name for one in self.outputs for name in one.projection.texts]
        for events in read_event_rows(filesystem, self.shares, columns, self.batches, texts, checksums=True):
            for sorter in sorters:
                sorter.add(events)
        return [sorter.finish() for sorter in sorters]


class _Sorter:
    """Sorts the rows of one projection, in memory as far as they fit."""

    def __init__(self, filesystem: fs.FileSystem, output: Output, eps: float, held_bytes: int) -> None:
        self.filesystem, self.output, self.eps, self.held_bytes = filesystem, output, eps, held_bytes
        self.held: list[Any] = []
        self.totals: list[TickCounts] = []
        self.files: list[MarkedFile] = []
        self.digest = 0

    def add(self, events: pa.Table) -> None:
        rows, totals = self.output.projection.decode(events)
        self.held.append(rows)
        self.digest += self.output.projection.digest(rows)
        self.totals.append(totals)
        if sum(one.nbytes for one in self.held) > self.held_bytes:
            self.held = [self._sorted()]
            if self.held[0].nbytes > self.held_bytes // 2:
                self._write(self.output.chunk, self.held.pop(), None)

    def finish(self) -> Sorted:
        totals, rows = sum_tick_counts(self.totals), self._sorted()
        self.held = []  # the file is written without a second copy of its rows
        run = None if self.files else self.output.run
        if run is None:
            self._write(self.output.chunk, rows, None)
        else:
            self._write(run, rows, RunSpec(len(rows), totals, self.eps))
        return Sorted(tuple(self.files), totals, self.digest, whole=run is not None)

    def _sorted(self) -> Any:
        return self.output.projection.sort(self.held)

    def _write(self, path: str, rows: Any, shape: RunSpec | None) -> None:
        pieces = iter([rows])
        self.files.append(write_rows(self.filesystem, _own(path), self.output.projection, pieces, shape))


@dataclass(frozen=True, slots=True)
class MergeTask:
    """Merge neighbouring slices of sorted inputs into one file of a run of that shape."""

    store: Store
    projection: Projection[Any]
    inputs: tuple[SortedInput, ...]
    slices: tuple[MergeSlice, ...]
    path: str
    shape: RunSpec

    def __call__(self) -> Merged:
        """The file written."""
        filesystem, read = self.store.filesystem(), [0] * len(self.inputs)
        pieces = (merge_slice(filesystem, self.projection, self.inputs, piece, read) for piece in self.slices)
        file = write_rows(filesystem, _own(self.path), self.projection, pieces, self.shape)
        return Merged(file, tuple(read))


@dataclass(frozen=True, slots=True)
class SummariseTask:
    """Summarise the batches' rows of some shares of events by tick."""

    store: Store
    options: Options
    batches: tuple[BatchRange, ...]
    shares: tuple[EventRowGroups, ...]
    eps: float

    def __call__(self) -> list[TickSummary]:
        """Summaries of the rows by tick."""
        found, filesystem = TickSummarizer(self.options, self.eps), self.store.filesystem()
        key = self.options.key_column
        for piece in read_decoded_rows(filesystem, self.shares, found.columns, self.batches, key):
            found.add(piece)
        return found.finish()


def _own(path: str) -> str:
    """The path with a word of this very execution: Spark may run a task twice at the same time."""
    return f"{path.removesuffix('.parquet')}-{uuid.uuid4().hex[:8]}.parquet"
