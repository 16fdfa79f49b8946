"""The tasks of a load and of a stream: read events, sort, merge, write, summarise.

A task holds a bounded number of rows at a time. Tasks commit nothing to Delta: they return their results to
the driver, which commits them. The executor decides where tasks run (`warehouse/execution/executors.py`).
"""

from __future__ import annotations

import uuid
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidemark.warehouse.columns.tick_counts import TickCounts, sum_tick_counts
from tidemark.warehouse.companions.declared import CellCollector, Cells, Companions, cells_of_run
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.events.reader import BatchRange, EventRowGroups, read_decoded_rows, read_event_rows
from tidemark.warehouse.ledger.batch_summaries import TickSummarizer, TickSummary
from tidemark.warehouse.runs.cuts import MergeSlice, SortedInput
from tidemark.warehouse.runs.projection import MarkedFile, Projection, RunSpec
from tidemark.warehouse.runs.run_files import InputReader, merge_slices, write_rows
from tidemark.warehouse.settings.options import Options


@dataclass(frozen=True, slots=True, eq=False)
class SortResult:
    """What a task sorted for one projection: the only file of the run if `is_run`, sorted chunks otherwise.

    `totals` are the rows by tick. `digest` is the digest of the rows as they were read from `events`. `cells`
    are those of the projection's companions, bounded as those of a run.
    """

    files: tuple[MarkedFile, ...]
    totals: TickCounts
    digest: int
    is_run: bool
    cells: Cells


@dataclass(frozen=True, slots=True)
class SortOutput:
    """The paths for the rows of a projection: `chunk_path`, or `run_path` if one task sorts the whole run.

    `run_path` is None if the run's rows are divided among several tasks.
    """

    projection: Projection[Any]
    chunk_path: str
    run_path: str | None


@dataclass(frozen=True, slots=True)
class SortTask:
    """Sorts the batches' rows in some row groups of `events`, for several projections.

    Writes the run's file if all its rows are in this task and fit into memory, and otherwise chunks into
    `chunk_store`.
    """

    store: Store
    batches: tuple[BatchRange, ...]
    row_groups: tuple[EventRowGroups, ...]
    outputs: tuple[SortOutput, ...]
    eps: float
    chunk_store: Store

    def run(self) -> list[SortResult]:
        """Returns a result for each output, in order."""
        sorters = [_Sorter(self, output) for output in self.outputs]
        projections = [output.projection for output in self.outputs]
        columns = [name for each in projections for name in (*each.columns, *each.companions.columns)]
        texts = [name for output in self.outputs for name in output.projection.texts]
        for rows in read_event_rows(
            self.store, self.row_groups, columns, self.batches, texts, checksums=True
        ):
            for sorter in sorters:
                sorter.add(rows)
        return [sorter.finish() for sorter in sorters]


class _Sorter:
    """Sorts the rows of one projection. Writes a chunk when the sorted buffer is more than half full."""

    def __init__(self, task: SortTask, output: SortOutput) -> None:
        self.task, self.output, self.projection = task, output, output.projection
        self.most_bytes = task.store.tuning.held_bytes
        self.buffer: list[Any] = []
        self.totals: list[TickCounts] = []
        self.files: list[MarkedFile] = []
        self.digest = 0
        self.projection.companions.register()
        self.cells = CellCollector(self.projection.companions)

    def add(self, events: pa.Table) -> None:
        rows, totals = self.projection.decode(events)
        self.buffer.append(rows)
        self.digest += self.projection.digest(rows)
        self.totals.append(totals)
        if self.projection.companions:
            self.cells.add(events)
        if sum(part.nbytes for part in self.buffer) > self.most_bytes:
            self.buffer = [self.projection.sort(self.buffer)]
            if self.buffer[0].nbytes > self.most_bytes // 2:
                self._write(self.output.chunk_path, self.buffer.pop(), None)

    def finish(self) -> SortResult:
        totals, rows = sum_tick_counts(self.totals), self.projection.sort(self.buffer)
        self.buffer = []  # frees the unsorted copy before the file is written
        run_path = None if self.files else self.output.run_path
        if run_path is None:
            self._write(self.output.chunk_path, rows, None)
        else:
            self._write(run_path, rows, RunSpec(len(rows), totals, self.task.eps))
        cells = cells_of_run(self.projection.companions, [self.cells.finish()])
        return SortResult(tuple(self.files), totals, self.digest, run_path is not None, cells)

    def _write(self, path: str, rows: Any, spec: RunSpec | None) -> None:
        filesystem = (self.task.chunk_store if spec is None else self.task.store).filesystem()
        self.files.append(write_rows(filesystem, _unique_path(path), self.projection, iter([rows]), spec))


@dataclass(frozen=True, slots=True)
class MergeTask:
    """Merges neighbouring slices of sorted inputs, which are in `source`, into one file of a run."""

    store: Store
    source: Store
    projection: Projection[Any]
    inputs: tuple[SortedInput, ...]
    slices: tuple[MergeSlice, ...]
    path: str
    spec: RunSpec

    def run(self) -> tuple[MarkedFile, list[int]]:
        """Writes the file; returns it, and for each input the digest of the rows that were read from it."""
        filesystem, path = self.store.filesystem(), _unique_path(self.path)
        with ExitStack() as opened:
            source, projection = self.source.filesystem(), self.projection
            given = [InputReader(source, projection, self.inputs, j) for j in range(len(self.inputs))]
            readers = [opened.enter_context(reader) for reader in given]
            pieces = merge_slices(projection, readers, self.slices)
            file = write_rows(filesystem, path, projection, pieces, self.spec)
        return file, [reader.digest for reader in readers]


@dataclass(frozen=True, slots=True)
class SummariseTask:
    """Summarises the batches' rows in some row groups of `events`, by tick."""

    store: Store
    options: Options
    batches: tuple[BatchRange, ...]
    row_groups: tuple[EventRowGroups, ...]
    eps: float
    companions: Companions

    def run(self) -> list[TickSummary]:
        """Returns the summaries of the rows, by tick."""
        self.companions.register()
        summarizer = TickSummarizer(self.options, self.eps)
        keys = self.options.keys
        pieces = read_decoded_rows(
            self.store, self.row_groups, summarizer.columns, self.batches, keys, self.companions
        )
        for piece in pieces:
            summarizer.add(piece)
        return summarizer.finish()


def _unique_path(path: str) -> str:
    """The path with a suffix that is unique to this call: Spark may run a task twice at the same time."""
    return f"{path.removesuffix('.parquet')}-{uuid.uuid4().hex[:8]}.parquet"
