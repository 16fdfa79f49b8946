"""The projection of a measure: rows (value, tick), ascending by value.

Row groups have a fixed number of rows and exact statistics. Integers are DELTA_BINARY_PACKED, which stores
sorted duplicates in almost no space. Rows with equal values have no defined order, and a cut of a merge may
divide them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidemark.warehouse.columns.tick_counts import TickCounts, count_by_tick, unique_codes
from tidemark.warehouse.columns.value_encoding import Measure, as_numpy, encode_values, single_array
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

SINGLE_SPAN_ROWS = 2**62  # longer than any file, so that the whole file is one span

# Row counts by span and tick: arrays (k,) of spans, ticks and counts.
SpanTickCounts = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]


@dataclass(frozen=True, slots=True, eq=False)
class ValueRows:
    """Rows (value, tick): row i is (`values[i]`, `ticks[i]`)."""

    values: NDArray[Any]
    ticks: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.values)

    @property
    def nbytes(self) -> int:
        """The memory of the rows."""
        return self.values.nbytes + self.ticks.nbytes

    def part(self, start: int, stop: int) -> ValueRows:
        """Rows start..stop (exclusive)."""
        return ValueRows(self.values[start:stop], self.ticks[start:stop])

    def sort_key(self, i: int) -> SortKey:
        """The sort key of row i: its value."""
        return (self.values[i].item(),)


@dataclass(frozen=True, slots=True)
class SortedValues(Projection[ValueRows]):
    """The sorted values of a measure, without NaN and NULL."""

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
        """The columns that value_marks.py defines."""
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
        """The rows with a value, in any order; and all rows by tick."""
        ticks, column = (
            as_numpy(events.column("_tick")),
            encode_values(self.measure, single_array(events.column(self.measure.name))),
        )
        left_out = column.nan | column.null
        kept = (column.stored[~left_out], ticks[~left_out]) if left_out.any() else (column.stored, ticks)
        return ValueRows(*kept), count_by_tick(ticks, column)

    def sort(self, parts: Sequence[ValueRows]) -> ValueRows:
        """Sorts rows by value; rows with equal values have no defined order."""
        values, ticks = self._concatenate(parts)
        if len(ticks) == 0 or (ticks[0] == ticks[-1] and bool(np.all(ticks == ticks[0]))):
            return ValueRows(np.sort(values), ticks)
        order = np.argsort(values)
        return ValueRows(values[order], ticks[order])

    def merge(self, parts: Sequence[ValueRows]) -> ValueRows:
        """Merges sorted parts: a stable sort detects them as sorted ranges."""
        if len(parts) == 1:
            return parts[0]
        values, ticks = self._concatenate(parts)
        order = np.argsort(values, kind="stable")
        return ValueRows(values[order], ticks[order])

    def _concatenate(self, parts: Sequence[ValueRows]) -> tuple[NDArray[Any], NDArray[np.int64]]:
        return (
            np.concatenate([np.empty(0, self.measure.dtype), *(part.values for part in parts)]),
            np.concatenate([np.empty(0, np.int64), *(part.ticks for part in parts)]),
        )

    def blocks(
        self,
        pieces: Iterator[ValueRows],
        run_spec: RunSpec | None,  # noqa: ARG002
    ) -> Iterator[tuple[ValueRows, list[int]]]:
        """Blocks of equal length, which may contain rows of several pieces; the last one may be shorter."""
        pending, block = ValueRows(*self._concatenate([])), self.tuning.block_rows
        for piece in pieces:
            rows = ValueRows(*self._concatenate([pending, piece])) if len(pending) else piece
            complete = len(rows) - len(rows) % block
            if complete:
                yield rows.part(0, complete), fixed_block_edges(complete, block)
            pending = rows.part(complete, len(rows))
        if len(pending):
            yield pending, fixed_block_edges(len(pending), block)

    def to_stored(self, rows: ValueRows) -> pa.Table:
        """The columns value and tick."""
        value_type = self.measure.arrow_type
        return pa.table([pa.array(rows.values, value_type), pa.array(rows.ticks)], names=["value", "tick"])

    def from_stored(self, stored: ColumnsByName) -> list[ValueRows]:
        """The rows, without copying."""
        return [ValueRows(stored["value"], stored["tick"])]

    @property
    def encoding(self) -> Mapping[str, Any]:
        """PLAIN for doubles, DELTA_BINARY_PACKED for integers, dictionaries for ticks."""
        common = {"use_dictionary": ["tick"]}
        return (
            common
            if self.measure.is_double
            else {**common, "column_encoding": {"value": "DELTA_BINARY_PACKED"}}
        )

    def collector(self, run_spec: RunSpec | None) -> ValueMarkCollector:
        """Collects marks at the grain that eps requires; those of a chunk at its blocks."""
        if run_spec is None:
            return ValueMarkCollector(self.measure, self.tuning.block_rows, SINGLE_SPAN_ROWS)
        grain = value_marks.choose_grain(run_spec.rows, run_spec.eps, self.tuning.block_rows)
        ticks = len(run_spec.totals.ticks)
        span_rows = value_marks.choose_span_rows(run_spec.rows, grain, ticks, self.tuning.span_cells)
        return ValueMarkCollector(self.measure, grain, span_rows)

    def marks_tables(self, files: Sequence[MarkedFile], totals: TickCounts) -> Mapping[str, pa.Table]:
        """The header, the marks and the spans."""
        return value_marks.to_arrow(self.measure, files, totals)

    def read_marks(self, run: Run, file: SealedFile, reopen_marks: ReopenMarks) -> ValueMarks:
        """Reads the marks; their `spans` reads the spans on demand."""
        return value_marks.read(run, file, reopen_marks)

    def ascends(self, rows: ValueRows) -> bool:
        """Whether the values ascend and none is NaN."""
        values = rows.values
        return bool(np.all(values[:-1] <= values[1:])) and not np.isnan(values).any()

    def checker(self, marks: ValueMarks) -> ValueChecker:
        """Returns a checker of the marks and the counts by span and tick."""
        return ValueChecker(marks)

    def digest(self, rows: ValueRows) -> int:
        """The sum of the hashes of (value, tick), modulo 2**64."""
        return hash_sum(rows.values.view(np.uint64), rows.ticks)


class ValueMarkCollector:
    """Collects the marks of sorted values: a mark every `grain` rows, a span every `span_rows` rows."""

    def __init__(self, measure: Measure, grain: int, span_rows: int) -> None:
        self.grain, self.span_rows, self.rows = grain, span_rows, 0
        self.positions: list[NDArray[np.int64]] = [np.empty(0, dtype=np.int64)]
        self.values: list[NDArray[Any]] = [np.empty(0, dtype=measure.dtype)]
        self.ends: list[Any] = []  # the first and the last value
        self.cells: list[SpanTickCounts] = []

    def add(self, rows: ValueRows, blocks: NDArray[np.int64]) -> None:  # noqa: ARG002
        """Adds the next rows, at least one."""
        values, ticks = rows.values, rows.ticks
        marked = np.arange(-self.rows % self.grain, len(values), self.grain)
        self.positions.append(marked + self.rows)
        self.values.append(values[marked])
        self.ends = [self.ends[0] if self.ends else values[0], values[-1]]
        self.cells.append(count_cells((np.arange(len(ticks)) + self.rows) // self.span_rows, ticks))
        self.rows += len(values)

    def finish(self, path: str, size: int) -> MarkedFile:
        """The file with its marks: the first row, every `grain`-th row after it, and the last row."""
        positions, values = np.concatenate(self.positions), np.concatenate(self.values)
        if self.rows and positions[-1] != self.rows - 1:
            positions, values = np.append(positions, self.rows - 1), np.append(values, self.ends[1])
        spans, ticks, counts = _sum_cells(self.cells)
        starts, span_indices = np.unique(spans, return_inverse=True)
        return MarkedFile(
            path=path,
            rows=self.rows,
            size=size,
            count=self.rows,
            positions=positions,
            sort_keys=(values,),
            stats=_statistics(self.ends, ticks),
            extra=Spans.of(starts * self.span_rows, span_indices, ticks, counts),
        )


def _statistics(ends: Sequence[Any], ticks: NDArray[np.int64]) -> dict[str, Any]:
    """Delta's exact statistics. Infinities are not valid JSON: then both value bounds are left out."""
    nulls = {"nullCount": {"value": 0, "tick": 0}}
    if not ends:
        return nulls
    min_values: dict[str, Any] = {"tick": int(ticks.min())}
    max_values: dict[str, Any] = {"tick": int(ticks.max())}
    low, high = ends[0].item(), ends[1].item()
    if math.isfinite(low) and math.isfinite(high):
        min_values["value"], max_values["value"] = low, high
    return {"minValues": min_values, "maxValues": max_values, **nulls}


def count_cells(
    spans: NDArray[np.int64], ticks: NDArray[np.int64], weights: NDArray[np.int64] | None = None
) -> SpanTickCounts:
    """Counts rows, or sums their weights, by (span, tick); the result ascends in this order.

    `spans` ascend. Uses a dense table if it has few cells compared to the rows, O(n + cells); else sorts,
    O(n log n). Spans [0, 0, 1] and ticks [7, 7, 9] give ([0, 1], [7, 9], [2, 1]).
    """
    names, code = unique_codes(ticks)
    first = int(spans[0])
    cell = (spans - first) * len(names) + code
    if (int(spans[-1]) - first + 1) * len(names) <= 8 * len(ticks) + 4096:
        table = np.bincount(cell, weights)  # sums of weights are integers below 2**53, so they are exact
        occupied = np.flatnonzero(table)
        counts = table[occupied].astype(np.int64)
    else:
        occupied, inverse = np.unique(cell, return_inverse=True)
        counts = np.bincount(inverse, weights).astype(np.int64)
    return occupied // len(names) + first, names[occupied % len(names)], counts


def _sum_cells(cells: Sequence[SpanTickCounts]) -> SpanTickCounts:
    """The cells of all parts; cells of a span that several parts share are summed."""
    if not cells:
        empty = np.empty(0, dtype=np.int64)
        return empty, empty, empty
    spans, ticks, counts = (np.concatenate(part) for part in zip(*cells, strict=True))
    return count_cells(spans, ticks, counts)


class ValueChecker:
    """Compares the rows of a run with its marks and its counts by span and tick."""

    def __init__(self, marks: ValueMarks) -> None:
        self.marks, self.path, self.rows = marks, "", 0
        self.spans = marks.spans()
        self.edges = np.append(self.spans.starts, marks.rows)
        self.cells: list[SpanTickCounts] = []

    def begin(self, file: RunFile) -> None:
        """Starts a file."""
        self.path = file.path

    def add(self, rows: ValueRows) -> None:
        """Compares the marks in the next rows; DamagedWarehouse if they differ."""
        marks = self.marks
        inside = (marks.positions >= self.rows) & (marks.positions < self.rows + len(rows))
        if not np.array_equal(rows.values[marks.positions[inside] - self.rows], marks.values[inside]):
            raise DamagedWarehouse(f"the marks of {self.path} do not match its rows")
        spans = np.searchsorted(self.edges, self.rows + np.arange(len(rows)), side="right") - 1
        self.cells.append(count_cells(spans, rows.ticks))
        self.rows += len(rows)

    def finish(self) -> None:
        """Compares the counts by span and tick after the last row; DamagedWarehouse if they differ."""
        if not self.spans.equals(Spans.of(self.spans.starts, *_sum_cells(self.cells))):
            raise DamagedWarehouse(f"the counts by tick of run {self.marks.run.name} do not match its rows")
