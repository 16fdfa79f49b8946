"""The projection of a measure: rows (value, tick), ascending by value.

Row groups are of fixed size, with exact statistics; integers are DELTA_BINARY_PACKED, where sorted
duplicates cost next to nothing. Equal values may lie in any order, and in any slice of a merge.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidemark.warehouse.columns.measures import Measure, as_numpy, encode_values, single_array
from tidemark.warehouse.columns.tick_counts import TickCounts, count_by_tick, unique_codes
from tidemark.warehouse.delta.store import marks_table, runs_table
from tidemark.warehouse.errors import DamagedWarehouse
from tidemark.warehouse.integrity.digests import ColumnsByName, hash_sum
from tidemark.warehouse.integrity.sealed_files import SealedFile
from tidemark.warehouse.projections import value_marks
from tidemark.warehouse.projections.value_marks import Spans, ValueMarks
from tidemark.warehouse.runs.levels import Run
from tidemark.warehouse.runs.marks import RunFile
from tidemark.warehouse.runs.projection import MarkedFile, Projection, ReopenMarks, RunSpec, SortKey
from tidemark.warehouse.runs.run_files import fixed_block_edges
from tidemark.warehouse.sizes import DEFAULT, Tuning

WHOLE = 2**62  # a span longer than any file: tick counts of the file in one piece

Cells = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]  # spans, ticks, counts


@dataclass(frozen=True, slots=True, eq=False)
class ValueRows:
    """Row i has `values[i]` and `ticks[i]`."""

    values: NDArray[Any]
    ticks: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.values)

    @property
    def nbytes(self) -> int:
        """The memory that the rows take."""
        return self.values.nbytes + self.ticks.nbytes

    def part(self, start: int, stop: int) -> ValueRows:
        """Rows start..stop (exclusive)."""
        return ValueRows(self.values[start:stop], self.ticks[start:stop])

    def sort_key(self, i: int) -> SortKey:
        """Where row i stands in the order."""
        return (self.values[i].item(),)


@dataclass(frozen=True, slots=True)
class SortedValues(Projection[ValueRows]):
    """The values of a measure, sorted."""

    measure: Measure
    tuning: Tuning = field(default=DEFAULT, compare=False)

    @property
    def name(self) -> str:
        """The measure's name."""
        return self.measure.name

    @property
    def title(self) -> str:
        """The measure's name."""
        return self.measure.name

    @property
    def type(self) -> str:
        """The measure's type."""
        return self.measure.type

    @property
    def runs_table(self) -> str:
        """``runs/<measure>``."""
        return runs_table(self.measure.name)

    @property
    def marks_table(self) -> str:
        """``marks/<measure>``."""
        return marks_table(self.measure.name)

    @property
    def runs_schema(self) -> pa.Schema:
        """The value, its tick, and the run."""
        return pa.schema([("value", self.measure.arrow_type), ("tick", pa.int64()), ("run", pa.string())])

    @property
    def marks_schema(self) -> pa.Schema:
        """As valuemarks.py says."""
        return value_marks.schema(self.measure)

    order = ("value",)
    merges_equal = False
    min_block_cost = 0
    texts = ()
    dictionaries = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """The measure's column."""
        return (self.measure.name,)

    def decode(self, events: pa.Table) -> tuple[ValueRows, TickCounts]:
        """The rows that have a value, in any order."""
        ticks, column = (
            as_numpy(events.column("_tick")),
            encode_values(self.measure, single_array(events.column(self.measure.name))),
        )
        left_out = column.nan | column.null
        kept = (column.stored[~left_out], ticks[~left_out]) if left_out.any() else (column.stored, ticks)
        return ValueRows(*kept), count_by_tick(ticks, column)

    def sort(self, parts: Sequence[ValueRows]) -> ValueRows:
        """Rows by value; the order of ticks among equal values is free."""
        values, ticks = self._together(parts)
        if len(ticks) == 0 or (ticks[0] == ticks[-1] and bool(np.all(ticks == ticks[0]))):
            return ValueRows(np.sort(values), ticks)
        order = np.argsort(values)
        return ValueRows(values[order], ticks[order])

    def merge(self, parts: Sequence[ValueRows]) -> ValueRows:
        """A stable sort of sorted pieces is a merge."""
        if len(parts) == 1:
            return parts[0]
        values, ticks = self._together(parts)
        order = np.argsort(values, kind="stable")
        return ValueRows(values[order], ticks[order])

    def _together(self, parts: Sequence[ValueRows]) -> tuple[NDArray[Any], NDArray[np.int64]]:
        return (
            np.concatenate([np.empty(0, self.measure.dtype), *(part.values for part in parts)]),
            np.concatenate([np.empty(0, np.int64), *(part.ticks for part in parts)]),
        )

    def blocks(
        self,
        pieces: Iterator[ValueRows],
        shape: RunSpec | None,  # noqa: ARG002
    ) -> Iterator[tuple[ValueRows, list[int]]]:
        """Blocks of equal length, whatever the pieces; the last of all may be shorter."""
        held, block = ValueRows(*self._together([])), self.tuning.block_rows
        for piece in pieces:
            rows = ValueRows(*self._together([held, piece])) if len(held) else piece
            whole = len(rows) - len(rows) % block
            if whole:
                yield rows.part(0, whole), fixed_block_edges(whole, block)
            held = rows.part(whole, len(rows))
        if len(held):
            yield held, fixed_block_edges(len(held), block)

    def to_stored(self, rows: ValueRows) -> pa.Table:
        """The columns value and tick."""
        kind = self.measure.arrow_type
        return pa.table([pa.array(rows.values, kind), pa.array(rows.ticks)], names=["value", "tick"])

    def from_stored(self, stored: ColumnsByName) -> list[ValueRows]:
        """The rows, as they lie in memory."""
        return [ValueRows(stored["value"], stored["tick"])]

    @property
    def encoding(self) -> Mapping[str, Any]:
        """Doubles are plain, integers packed."""
        common = {"use_dictionary": ["tick"]}
        return (
            common
            if self.measure.is_double
            else {**common, "column_encoding": {"value": "DELTA_BINARY_PACKED"}}
        )

    def collector(self, shape: RunSpec | None) -> ValueMarkCollector:
        """Marks at the grain of the promise; those of a chunk at its blocks."""
        if shape is None:
            return ValueMarkCollector(self.measure, self.tuning.block_rows, WHOLE)
        grain = value_marks.grain(shape.rows, shape.eps, self.tuning.block_rows)
        span = value_marks.span(shape.rows, grain, len(shape.totals.ticks), self.tuning.span_cells)
        return ValueMarkCollector(self.measure, grain, span)

    def marks_tables(self, files: Sequence[MarkedFile], totals: TickCounts) -> Mapping[str, pa.Table]:
        """The header, and the marks."""
        return value_marks.to_arrow(self.measure, files, totals)

    def read_marks(self, run: Run, file: SealedFile, later: ReopenMarks) -> ValueMarks:
        """The marks; the spans are read when a window first asks for them."""
        return value_marks.read(run, file, later)

    def ascends(self, rows: ValueRows) -> bool:
        """Whether the values ascend, and none is NaN."""
        values = rows.values
        return bool(np.all(values[:-1] <= values[1:])) and not np.isnan(values).any()

    def checker(self, marks: ValueMarks) -> ValueChecker:
        """Compares the marks and the counts by tick with the rows."""
        return ValueChecker(marks)

    def digest(self, rows: ValueRows) -> int:
        """The sum of mixed bits of (value, tick)."""
        return hash_sum(rows.values.view(np.uint64), rows.ticks)


class ValueMarkCollector:
    """Collects the marks of values that arrive in order: one every `grain` rows, ticks every `span` rows."""

    def __init__(self, measure: Measure, grain: int, span: int) -> None:
        self.grain, self.span, self.rows = grain, span, 0
        self.positions: list[NDArray[np.int64]] = [np.empty(0, dtype=np.int64)]
        self.values: list[NDArray[Any]] = [np.empty(0, dtype=measure.dtype)]
        self.ends: list[Any] = []
        self.cells: list[Cells] = []

    def add(self, rows: ValueRows, blocks: NDArray[np.int64]) -> None:  # noqa: ARG002
        """Takes the next rows."""
        values, ticks = rows.values, rows.ticks
        at = np.arange(-self.rows % self.grain, len(values), self.grain)
        self.positions.append(at + self.rows)
        self.values.append(values[at])
        self.ends = [self.ends[0] if self.ends else values[0], values[-1]]
        self.cells.append(count_cells((np.arange(len(ticks)) + self.rows) // self.span, ticks))
        self.rows += len(values)

    def finish(self, path: str, size: int) -> MarkedFile:
        """The file with its marks: the first row, each `grain`-th, the last."""
        positions, values = np.concatenate(self.positions), np.concatenate(self.values)
        if self.rows and positions[-1] != self.rows - 1:
            positions, values = np.append(positions, self.rows - 1), np.append(values, self.ends[1])
        spans, ticks, counts = _joined(self.cells)
        starts, at = np.unique(spans, return_inverse=True)
        return MarkedFile(
            path=path,
            rows=self.rows,
            size=size,
            count=self.rows,
            positions=positions,
            sort_keys=(values,),
            stats=_statistics(self.ends, ticks),
            extra=Spans.of(starts * self.span, at, ticks, counts),
        )


def _statistics(ends: Sequence[Any], ticks: NDArray[np.int64]) -> dict[str, Any]:
    """Delta's statistics, exact; infinities have no JSON, so a side that is infinite goes without."""
    nulls = {"nullCount": {"value": 0, "tick": 0}}
    if not ends:
        return nulls
    least: dict[str, Any] = {"tick": int(ticks.min())}
    most: dict[str, Any] = {"tick": int(ticks.max())}
    low, high = ends[0].item(), ends[1].item()
    if math.isfinite(low) and math.isfinite(high):
        least["value"], most["value"] = low, high
    return {"minValues": least, "maxValues": most, **nulls}


def count_cells(
    spans: NDArray[np.int64], ticks: NDArray[np.int64], weights: NDArray[np.int64] | None = None
) -> Cells:
    """Rows (or the sum of their weights) by (span, tick), ascending: spans, ticks, counts.

    `spans` ascend. Counted in a table where that is small beside the rows, by sorting otherwise.
    """
    names, code = unique_codes(ticks)
    first = int(spans[0])
    cell = (spans - first) * len(names) + code
    if (int(spans[-1]) - first + 1) * len(names) <= 8 * len(ticks) + 4096:
        table = np.bincount(cell, weights)  # sums of weights are whole and below 2**53: exact
        found = np.flatnonzero(table)
        counts = table[found].astype(np.int64)
    else:
        found, inverse = np.unique(cell, return_inverse=True)
        counts = np.bincount(inverse, weights).astype(np.int64)
    return found // len(names) + first, names[found % len(names)], counts


def _joined(cells: Sequence[Cells]) -> Cells:
    """The cells of all pieces; a span cut by two pieces is summed."""
    if not cells:
        empty = np.empty(0, dtype=np.int64)
        return empty, empty, empty
    spans, ticks, counts = (np.concatenate(part) for part in zip(*cells, strict=True))
    return count_cells(spans, ticks, counts)


class ValueChecker:
    """Compares the values of a run with its marks, and their counts by span and tick."""

    def __init__(self, marks: ValueMarks) -> None:
        self.marks, self.path, self.at = marks, "", 0
        self.spans = marks.spans()
        self.edges = np.append(self.spans.starts, marks.rows)
        self.cells: list[Cells] = []

    def begin(self, file: RunFile) -> None:
        """The rows of a file come."""
        self.path = file.path

    def add(self, rows: ValueRows) -> None:
        """Takes the rows of a block."""
        marks = self.marks
        here = (marks.positions >= self.at) & (marks.positions < self.at + len(rows))
        if not np.array_equal(rows.values[marks.positions[here] - self.at], marks.values[here]):
            raise DamagedWarehouse(f"the marks of {self.path} do not stand where they say")
        inside = np.searchsorted(self.edges, self.at + np.arange(len(rows)), side="right") - 1
        self.cells.append(count_cells(inside, rows.ticks))
        self.at += len(rows)

    def finish(self) -> None:
        """The counts of all rows are those that the marks have."""
        if not self.spans.equals(Spans.of(self.spans.starts, *_joined(self.cells))):
            raise DamagedWarehouse(f"the counts by tick of run {self.marks.run.name} are wrong")
