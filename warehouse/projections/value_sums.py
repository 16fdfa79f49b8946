"""The exact sums by tick of a measure's run: made while a file is written, and checked with its rows.

The sums lie in the row group `sums` of the marks, as `TickSums.to_bytes` packs them. Runs that were written
before there were sums, and runs of more than MOST_TICKS ticks, have none; questions about them are scans. A
merge makes them anew from the rows that it writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidemark.warehouse.columns.tick_sums import MOST_TICKS, TickSummer, TickSums
from tidemark.warehouse.errors import DamagedWarehouse
from tidemark.warehouse.projections.span_marks import SpanMarkChecker, SpanMarkCollector, TickedRows
from tidemark.warehouse.projections.spans import Spans
from tidemark.warehouse.projections.value_marks import ValueMarks
from tidemark.warehouse.runs.marks import CONTENT_FIELD, SUMS_GROUP, RunFile
from tidemark.warehouse.runs.projection import MarkedFile, RunSpec


class SummedRows(TickedRows, Protocol):
    """Rows that have a number and a tick each."""

    @property
    def values(self) -> NDArray[Any]:
        """The number of each row, not NaN."""


class SpansAndSums(NamedTuple):
    """`MarkedFile.extra` of a measure's file: counts by span, and sums (None if the file has none)."""

    spans: Spans
    sums: TickSums | None


class SumCollector:
    """Collects the marks of a run's file, and the sums of its numbers; no sums of a chunk."""

    def __init__(self, marks: SpanMarkCollector, run_spec: RunSpec | None) -> None:
        self._marks = marks
        has_sums = run_spec is not None and len(run_spec.totals.ticks) <= MOST_TICKS
        self._sums = TickSummer(run_spec.totals.ticks) if run_spec is not None and has_sums else None

    def add(self, rows: SummedRows, blocks: NDArray[np.int64]) -> None:
        """Adds the next rows."""
        self._marks.add(rows, blocks)
        if self._sums is not None:
            self._sums.add(rows.values, rows.ticks)

    def finish(self, path: str, size: int) -> MarkedFile:
        """The file with its marks and sums."""
        file = self._marks.finish(path, size)
        sums = None if self._sums is None else self._sums.finish()
        return replace(file, extra=SpansAndSums(file.extra, sums))


def sums_table(files: Sequence[MarkedFile]) -> dict[str, pa.Table]:
    """The row group of the sums of a run; none if one of its files has no sums."""
    sums = [file.extra.sums for file in files]
    if any(one is None for one in sums):
        return {}
    content = TickSums.joined(sums).to_bytes()
    return {SUMS_GROUP: pa.table({CONTENT_FIELD.name: pa.array([content], CONTENT_FIELD.type)})}


class SumChecker:
    """Compares the rows of a run with its marks, its counts by span and tick, and its sums."""

    def __init__(self, marks: ValueMarks) -> None:
        self._marks, self._checker = marks, SpanMarkChecker(marks)
        self._sums = TickSummer(marks.totals.ticks) if marks.has_sums else None

    def begin(self, file: RunFile) -> None:
        """Starts a file."""
        self._checker.begin(file)

    def add(self, rows: SummedRows) -> None:
        """Compares the marks in the next rows; DamagedWarehouse if they differ."""
        self._checker.add(rows)
        if self._sums is not None:
            self._sums.add(rows.values, rows.ticks)

    def finish(self) -> None:
        """Compares the counts and the sums after the last row; DamagedWarehouse if they differ."""
        self._checker.finish()
        if self._sums is not None and self._sums.finish().by_tick != self._marks.sums().by_tick:
            raise DamagedWarehouse(f"the sums by tick of run {self._marks.run.name} do not match its rows")
