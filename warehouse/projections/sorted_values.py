"""The projection of a measure: rows (value, tick), ascending by value.

Row groups have a fixed number of rows and exact statistics. Integers are DELTA_BINARY_PACKED, which stores
sorted duplicates in almost no space. Rows with equal values have no defined order, and a cut of a merge may
divide them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidemark.warehouse.columns.tick_counts import TickCounts, count_by_tick
from tidemark.warehouse.columns.value_encoding import Measure, as_numpy, encode_values, single_array
from tidemark.warehouse.delta.table_names import runs_table
from tidemark.warehouse.integrity.digests import ColumnsByName, hash_sum
from tidemark.warehouse.integrity.sealed_files import SealedFile
from tidemark.warehouse.projections import span_marks
from tidemark.warehouse.projections.span_marks import (
    MarkColumn,
    SpanMarkChecker,
    SpanMarkCollector,
    span_mark_collector,
)
from tidemark.warehouse.projections.value_marks import RunSums, ValueMarks, sums_table
from tidemark.warehouse.runs.levels import Run
from tidemark.warehouse.runs.marks import SUMS_GROUP, MarksFile
from tidemark.warehouse.runs.projection import (
    MarkedFile,
    Projection,
    RunSpec,
    SortColumns,
    SortKey,
)
from tidemark.warehouse.runs.run_files import fixed_block_edges
from tidemark.warehouse.sizes import DEFAULT, Tuning


@dataclass(frozen=True, slots=True, eq=False)
class ValueRows:
    """Rows (value, tick): row i is (`values[i]`, `ticks[i]`). A common tick of all rows has stride 0."""

    values: NDArray[Any]
    ticks: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.values)

    @property
    def nbytes(self) -> int:
        """The memory of the rows."""
        return self.values.nbytes + (self.ticks.nbytes if self.ticks.strides[0] else self.ticks.itemsize)

    def part(self, start: int, stop: int) -> ValueRows:
        """Rows start..stop (exclusive)."""
        return ValueRows(self.values[start:stop], self.ticks[start:stop])

    def sort_key(self, i: int) -> SortKey:
        """The sort key of row i: its value."""
        return (self.values[i].item(),)

    def sort_columns(self, rows: NDArray[Any]) -> SortColumns:
        """The values of the rows with these indices."""
        return (self.values[rows],)


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
    def type(self) -> str:
        """The measure's type."""
        return self.measure.type

    @property
    def runs_table(self) -> str:
        """``runs/<measure>``."""
        return runs_table(self.measure.stored_name)

    @property
    def runs_schema(self) -> pa.Schema:
        """The value, its tick, and the run."""
        return pa.schema([("value", self.measure.arrow_type), ("tick", pa.int64()), ("run", pa.string())])

    @property
    def marks_schema(self) -> pa.Schema:
        """The columns that span_marks.py defines."""
        return span_marks.schema(self._mark_columns)

    @property
    def _mark_columns(self) -> Sequence[MarkColumn]:
        return (MarkColumn("value", self.measure.arrow_type),)

    order = ("value",)
    texts = ()
    dictionaries = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """The measure's column."""
        return (self.measure.name,)

    def decode(self, events: pa.Table) -> tuple[ValueRows, TickCounts]:
        """The rows with a value, in any order; and all rows by tick."""
        ticks = as_numpy(events.column("_tick"))
        column = encode_values(self.measure, single_array(events.column(self.measure.name)))
        left_out = column.nan | column.null
        kept = (column.stored[~left_out], ticks[~left_out]) if left_out.any() else (column.stored, ticks)
        return ValueRows(*kept), count_by_tick(ticks, column.null, column.nan)

    def sorted_bytes(self, rows: int, ticks: int) -> int:
        """8 for a value and 8 for its tick; a common tick is stored once."""
        return 8 * (rows + (1 if ticks == 1 else rows))

    def sort(self, parts: Sequence[ValueRows]) -> ValueRows:
        """Sorts rows by value; rows with equal values have no defined order."""
        return self._sorted(parts, "quicksort")

    def merge(self, parts: Sequence[ValueRows]) -> ValueRows:
        """Merges sorted parts: a stable sort detects them as sorted ranges."""
        return parts[0] if len(parts) == 1 else self._sorted(parts, "stable")

    def _sorted(self, parts: Sequence[ValueRows], kind: Literal["quicksort", "stable"]) -> ValueRows:
        values, ticks = self._concatenate(parts)
        if len(ticks) == 0 or (ticks[0] == ticks[-1] and bool(np.all(ticks == ticks[0]))):
            return ValueRows(np.sort(values, kind=kind), np.broadcast_to(ticks[:1].copy(), ticks.shape))
        order = np.argsort(values, kind=kind)
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

    def collector(self, run_spec: RunSpec | None) -> SpanMarkCollector:
        """Collects marks at the grain that eps requires, and sums; the marks of a chunk at its blocks."""
        return span_mark_collector(self, run_spec, None if run_spec is None else RunSums.of(run_spec.totals))

    def statistics(self, ends: tuple[SortKey, SortKey] | None, ticks: NDArray[np.int64]) -> dict[str, Any]:
        """Delta's exact statistics. Infinities are not valid JSON: then both value bounds are left out."""
        nulls = {"nullCount": {"value": 0, "tick": 0}}
        if ends is None:
            return nulls
        min_values: dict[str, Any] = {"tick": int(ticks.min())}
        max_values: dict[str, Any] = {"tick": int(ticks.max())}
        (low,), (high,) = cast("tuple[tuple[float], tuple[float]]", ends)
        if math.isfinite(low) and math.isfinite(high):
            min_values["value"], max_values["value"] = low, high
        return {"minValues": min_values, "maxValues": max_values, **nulls}

    def marks_tables(self, files: Sequence[MarkedFile], totals: TickCounts) -> Mapping[str, pa.Table]:
        """The header, the marks, the spans and the sums."""
        return {**span_marks.to_arrow(self._mark_columns, files, totals), **sums_table(files)}

    def read_marks(self, run: Run, file: SealedFile, source: MarksFile) -> ValueMarks:
        """Reads the marks."""
        marks = ValueMarks.read(self._mark_columns, run, file, source)
        return replace(marks, has_sums=SUMS_GROUP in file.names)

    def ascends(self, rows: ValueRows) -> bool:
        """Whether the values ascend and none is NaN."""
        values = rows.values
        return bool(np.all(values[:-1] <= values[1:])) and not np.isnan(values).any()

    def checker(self, marks: ValueMarks) -> SpanMarkChecker:
        """Returns a checker of the marks, the counts by span and tick, and the sums."""
        return SpanMarkChecker(marks, RunSums(marks.totals.ticks) if marks.has_sums else None)

    def digest(self, rows: ValueRows) -> int:
        """The sum of the hashes of (value, tick), modulo 2**64."""
        return hash_sum(rows.values.view(np.uint64), rows.ticks)
