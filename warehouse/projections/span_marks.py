"""Span marks, S(H): the sparse index of a run whose rows have a tick beside their sort key.

Model. A run is a sorted sequence of stored rows. A mark is one row of the run: its exact position (the number
of rows before it) and its sort key. The first row of every file, every `grain`-th row after it, and the last
row of the file are marks. The rank of a sort key x is bounded by its neighbouring marks:

    with j = number of marks <= x:   position[j-1] + 1 <= rank_le(x) <= position[j]

Counts by tick between marks are in spans.py.

A run's marks are one file of the marks table (runs/marks.py), with these row groups:

    header   one row, position -1: the run's rows, NaN and NULL by tick (ticks[], counts[], nans[], nulls[])
    marks    one row for each mark: file, position, and the columns of its sort key
    spans    one row: the counts by span and tick, as `Spans.to_bytes` packs them

Source: Singh's thesis (2015), section 4.4.1 (Algorithm 9). We deviate in two points: the distance of marks
follows from eps, and ranks are stored by tick.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidemark.warehouse.columns.keys import Key, ascends, join_names, names_of, same_names, stored_keys
from tidemark.warehouse.columns.tick_counts import TickCounts
from tidemark.warehouse.columns.ticks import Window
from tidemark.warehouse.columns.value_encoding import as_numpy
from tidemark.warehouse.errors import DamagedWarehouse
from tidemark.warehouse.integrity.sealed_files import SealedFile
from tidemark.warehouse.projections.spans import (
    SINGLE_SPAN_ROWS,
    Spans,
    SpanTickCounts,
    choose_span_rows,
    count_cells,
    sum_cells,
)
from tidemark.warehouse.runs.levels import Run
from tidemark.warehouse.runs.marks import (
    CONTENT_FIELD,
    HEADER_GROUP,
    MARKS_GROUP,
    SPANS_GROUP,
    MarksFile,
    RunFile,
    files_from_marks,
    flatten,
    path_in_table,
)
from tidemark.warehouse.runs.projection import MarkedFile, Rows, RunSpec, SortColumns, SortKey
from tidemark.warehouse.sizes import Tuning

MAX_MARKS = 2**16  # the number of marks of a run, unless eps requires more
HEADER_POSITION = -1
TICK_LISTS = ["ticks", "counts", "nans", "nulls"]


def choose_grain(rows: int, eps: float, block_rows: int) -> int:
    """The number of rows between two marks of a run.

    It is a quarter of a block, so that queries read few blocks, or rows / MAX_MARKS if that is larger. But it
    is never more than eps/2 of the run's rows, which the guarantee requires.
    """
    required = max(1, int(eps / 2 * rows))
    preferred = max(1, block_rows // 4, -(-rows // MAX_MARKS))
    return min(required, preferred)


@dataclass(frozen=True, slots=True)
class MarkColumn:
    """A sort column as the marks store it: its name and type, and of a column of a group its key."""

    name: str
    type: pa.DataType
    key: Key | None = None

    def to_arrow(self, values: Any) -> pa.Array:
        """The column as the marks store it."""
        return pa.array(values, self.type) if self.key is None else stored_keys(self.key, values, marked=True)

    def from_arrow(self, stored: pa.ChunkedArray) -> Any:
        """The stored column, as numbers or names."""
        return as_numpy(stored) if self.key is None else names_of(self.key, stored.combine_chunks())


class TickedRows(Rows, Protocol):
    """Sorted rows that have a tick each."""

    @property
    def ticks(self) -> NDArray[np.int64]:
        """The tick of each row."""

    def sort_columns(self, rows: NDArray[Any]) -> SortColumns:
        """The sort columns of the rows with these indices."""


class TickedProjection(Protocol):
    """A projection of such rows."""

    @property
    def tuning(self) -> Tuning:
        """The sizes of blocks."""

    def merge(self, parts: Sequence[Any], /) -> TickedRows:
        """Merges sorted parts."""

    def statistics(self, ends: tuple[SortKey, SortKey] | None, ticks: NDArray[np.int64], /) -> dict[str, Any]:
        """The statistics of a file for Delta.

        ends: the sort keys of its first and last row; None if it has no rows. ticks: those of its cells.
        """


class FileSpans(NamedTuple):
    """`MarkedFile.extra`: the counts by span and tick, and what else the marks of the projection have."""

    spans: Spans
    more: Any


@dataclass(frozen=True, slots=True)
class SpanMarks:
    """The marks of one run.

    Mark i is row `positions[i]` of the run; `sort_keys` are the columns of the marks' sort keys. All columns
    have one length, and the marks ascend. `totals` are the rows by tick. `source` is their file.
    """

    run: Run
    files: tuple[RunFile, ...]
    rows: int
    positions: NDArray[np.int64]
    sort_keys: SortColumns
    totals: TickCounts
    source: MarksFile

    @classmethod
    def read(cls, columns: Sequence[MarkColumn], run: Run, file: SealedFile, source: MarksFile) -> Self:
        """Reads the marks of a run from their opened file."""
        header = file.read(HEADER_GROUP, columns=TICK_LISTS)
        if header.num_rows != 1:
            raise DamagedWarehouse(
                f"the marks of run {run.name} have {header.num_rows} headers; expected one."
            )
        marks = file.read(MARKS_GROUP, columns=["file", "position", *(column.name for column in columns)])
        totals = TickCounts(*(flatten(header.column(name)) for name in TICK_LISTS))
        rows = int(totals.counts.sum())
        positions = as_numpy(marks.column("position"))
        sort_keys = tuple(column.from_arrow(marks.column(column.name)) for column in columns)
        files = files_from_marks(marks.column("file"), positions, rows)
        result = cls(run, files, rows, positions, sort_keys, totals, source)
        result.check_invariants()
        return result

    def spans(self) -> Spans:
        """The counts by span and tick, read on every call."""
        with self.source.open() as file:
            content = file.read(SPANS_GROUP, columns=[CONTENT_FIELD.name]).column(0)[0]
            return Spans.from_bytes(content.as_py())

    def covered_by(self, window: Window) -> bool:
        """Whether every stored row of the run lies in the window."""
        return self.totals.within(window)[0] == self.rows

    def check_invariants(self) -> None:
        """The marks ascend and include both ends of the run, and the totals add up; else DamagedWarehouse."""
        ok = (
            int(self.totals.counts.sum()) == self.rows == sum(file.rows for file in self.files)
            and bool(np.all(np.diff(self.positions) > 0))
            and ascends(self.sort_keys)
            and (self.rows == 0 or (self.positions[0] == 0 and self.positions[-1] == self.rows - 1))
        )
        if not ok:
            raise DamagedWarehouse(f"the marks of run {self.run.name} do not match its {self.rows} rows.")


class More(Protocol):
    """Collects what marks have beside the counts by span and tick, of all rows of a file or run."""

    def add(self, rows: Any) -> None:
        """Adds the next rows, at least one."""

    def finish(self) -> Any:
        """What `FileSpans.more` has of the rows."""

    def check(self, marks: Any) -> None:
        """DamagedWarehouse unless the marks of the run have that."""


def schema(columns: Sequence[MarkColumn]) -> pa.Schema:
    """The Arrow schema of the marks table, which is partitioned by `run`."""
    places = [("run", pa.string()), ("file", pa.string()), ("position", pa.int64())]
    sort_keys = [(column.name, column.type) for column in columns]
    return pa.schema([*places, *sort_keys, *((name, pa.list_(pa.int64())) for name in TICK_LISTS)])


def to_arrow(
    columns: Sequence[MarkColumn], files: Sequence[MarkedFile], totals: TickCounts
) -> dict[str, pa.Table]:
    """The row groups of a run's marks file; `files` are in order.

    The positions in `files` count from the start of each file, the stored ones from the start of the run.
    """
    header = {
        "file": pa.array([path_in_table(files[0].path)]),
        "position": pa.array([HEADER_POSITION]),
        **{name: pa.array([getattr(totals, name).tolist()], pa.list_(pa.int64())) for name in TICK_LISTS},
    }
    firsts = np.cumsum([0, *(file.rows for file in files)])[:-1].tolist()
    marks = [_mark_rows(columns, file, first) for file, first in zip(files, firsts, strict=True)]
    spans = Spans.concat([(first, file.extra.spans) for file, first in zip(files, firsts, strict=True)])
    return {
        HEADER_GROUP: pa.table(header),
        MARKS_GROUP: pa.concat_tables(marks),
        SPANS_GROUP: pa.table({CONTENT_FIELD.name: pa.array([spans.to_bytes()], CONTENT_FIELD.type)}),
    }


def _mark_rows(columns: Sequence[MarkColumn], file: MarkedFile, first: int) -> pa.Table:
    sort_keys = {
        column.name: column.to_arrow(values) for column, values in zip(columns, file.sort_keys, strict=True)
    }
    paths = pa.array([path_in_table(file.path)] * len(file.positions), pa.string())
    return pa.table({"file": paths, "position": pa.array(file.positions + first), **sort_keys})


class SpanMarkCollector:
    """Collects the marks of sorted rows: a mark every `grain` rows, a span every `span_rows` rows."""

    def __init__(
        self, projection: TickedProjection, grain: int, span_rows: int, more: More | None = None
    ) -> None:
        self.projection, self.grain, self.span_rows, self.rows = projection, grain, span_rows, 0
        self.more = more
        self.positions: list[NDArray[np.int64]] = [np.empty(0, dtype=np.int64)]
        self.sort_columns = [projection.merge([]).sort_columns(self.positions[0])]
        self.ends: tuple[SortKey, SortKey] | None = None  # of the first and the last row
        self.last = self.sort_columns[0]
        self.cells: list[SpanTickCounts] = []

    def add(self, rows: TickedRows, blocks: NDArray[np.int64]) -> None:  # noqa: ARG002
        """Adds the next rows, at least one."""
        ticks, count = rows.ticks, len(rows)
        marked = np.arange(-self.rows % self.grain, count, self.grain)
        self.positions.append(marked + self.rows)
        self.sort_columns.append(rows.sort_columns(marked))
        self.ends = (self.ends[0] if self.ends else rows.sort_key(0), rows.sort_key(count - 1))
        self.last = rows.sort_columns(np.array([count - 1]))
        self.cells.append(count_cells((np.arange(count) + self.rows) // self.span_rows, ticks))
        self.rows += count
        if self.more is not None:
            self.more.add(rows)

    def finish(self, path: str, size: int) -> MarkedFile:
        """The file with its marks: the first row, every `grain`-th row after it, and the last row."""
        positions = np.concatenate(self.positions)
        if self.rows and positions[-1] != self.rows - 1:
            positions = np.append(positions, self.rows - 1)
            self.sort_columns.append(self.last)
        spans, ticks, counts = sum_cells(self.cells)
        starts, span_indices = np.unique(spans, return_inverse=True)
        found = Spans.of(starts * self.span_rows, span_indices, ticks, counts)
        return MarkedFile(
            path=path,
            rows=self.rows,
            size=size,
            count=self.rows,
            positions=positions,
            sort_keys=tuple(join_names(column) for column in zip(*self.sort_columns, strict=True)),
            stats=self.projection.statistics(self.ends, ticks),
            extra=FileSpans(found, None if self.more is None else self.more.finish()),
        )


def span_mark_collector(
    projection: TickedProjection, run_spec: RunSpec | None, more: More | None = None
) -> SpanMarkCollector:
    """Collects the marks of a run's file at the grain that eps requires; of a chunk, one at each block."""
    tuning = projection.tuning
    if run_spec is None:
        return SpanMarkCollector(projection, tuning.block_rows, SINGLE_SPAN_ROWS, more)
    grain = choose_grain(run_spec.rows, run_spec.eps, tuning.block_rows)
    ticks = len(run_spec.totals.ticks)
    span_rows = choose_span_rows(run_spec.rows, grain, ticks, tuning.span_cells)
    return SpanMarkCollector(projection, grain, span_rows, more)


class SpanMarkChecker:
    """Compares the rows of a run with its marks, its counts by span and tick, and what else they have."""

    def __init__(self, marks: SpanMarks, more: More | None = None) -> None:
        self.marks, self.more, self.path, self.rows = marks, more, "", 0
        self.spans = marks.spans()
        self.edges = np.append(self.spans.starts, marks.rows)
        self.cells: list[SpanTickCounts] = []

    def begin(self, file: RunFile) -> None:
        """Starts a file."""
        self.path = file.path

    def add(self, rows: TickedRows) -> None:
        """Compares the marks in the next rows; DamagedWarehouse if they differ."""
        marks = self.marks
        first, stop = np.searchsorted(marks.positions, [self.rows, self.rows + len(rows)])
        there = rows.sort_columns(marks.positions[first:stop] - self.rows)
        if not all(
            same_names(mine, column[first:stop]) for mine, column in zip(there, marks.sort_keys, strict=True)
        ):
            raise DamagedWarehouse(f"the marks of {self.path} do not match its rows")
        spans = np.searchsorted(self.edges, self.rows + np.arange(len(rows)), side="right") - 1
        self.cells.append(count_cells(spans, rows.ticks))
        self.rows += len(rows)
        if self.more is not None:
            self.more.add(rows)

    def finish(self) -> None:
        """Compares the counts and the rest after the last row; DamagedWarehouse if they differ."""
        if not self.spans.equals(Spans.of(self.spans.starts, *sum_cells(self.cells))):
            raise DamagedWarehouse(f"the counts by tick of run {self.marks.run.name} do not match its rows")
        if self.more is not None:
            self.more.check(self.marks)
