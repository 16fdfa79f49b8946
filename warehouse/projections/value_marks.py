"""Value marks: the sparse index of sorted numbers, which bounds the rank of any value.

`ValueMarks` are the marks of a measure's run. `RunValues` are what ranks need of them, and are also made for
the numbers of one group, which are a range of rows of a run that is sorted by group.

The exact sums by tick lie in the row group `sums` of the marks, as `TickSums.to_bytes` packs them. Runs that
were written before there were sums, and runs of more than MOST_TICKS ticks, have none; questions about them
are scans. A merge makes them anew from the rows that it writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidemark.sketches import RankBounds
from tidemark.warehouse.columns.tick_counts import TickCounts
from tidemark.warehouse.columns.tick_sums import MOST_TICKS, TickSummer, TickSums
from tidemark.warehouse.errors import DamagedWarehouse
from tidemark.warehouse.projections.span_marks import SpanMarks
from tidemark.warehouse.projections.spans import Anchors
from tidemark.warehouse.runs.marks import CONTENT_FIELD, SUMS_GROUP, RunFile
from tidemark.warehouse.runs.projection import MarkedFile


@dataclass(frozen=True, slots=True, eq=False)
class RunValues:
    """Sorted numbers that are consecutive rows of a run.

    Row 0 is the first of them. There are `rows` rows. Mark i is row `positions[i]` with the value
    `values[i]`; the first and the last row have a mark. A file starts at row `first`, which is negative where
    it starts before row 0.
    """

    files: tuple[RunFile, ...]
    rows: int
    positions: NDArray[np.int64]
    values: NDArray[Any]

    def bounds(self, anchors: Anchors | None) -> RankBounds:
        """Rank bounds at every mark. `anchors` count the rows of a window; None means all rows."""
        after = np.concatenate([[0], self.positions + 1])
        before = np.append(self.positions, self.rows)
        if anchors is None:
            return RankBounds(self.values, after, before)
        return RankBounds(self.values, anchors.before(after)[0], anchors.before(before)[1])


@dataclass(frozen=True, slots=True)
class ValueMarks(SpanMarks):
    """The marks of one run. Mark i is row `positions[i]` of the run, with the value `values[i]`.

    has_sums: whether their file has the exact sums by tick.
    """

    has_sums: bool = False

    def sums(self) -> TickSums:
        """The exact sums by tick, of marks that have them; read on every call."""
        with self.source.open() as file:
            content = file.read(SUMS_GROUP, columns=[CONTENT_FIELD.name]).column(0)[0]
            return TickSums.from_bytes(content.as_py())

    @property
    def values(self) -> NDArray[Any]:
        """The values of the marks, (k,), ascending."""
        return cast("NDArray[Any]", self.sort_keys[0])

    @property
    def run_values(self) -> RunValues:
        """All rows of the run."""
        return RunValues(self.files, self.rows, self.positions, self.values)


class RunSums:
    """Sums the numbers of a file or a run by tick."""

    def __init__(self, ticks: NDArray[np.int64]) -> None:
        self._sums = TickSummer(ticks)

    @classmethod
    def of(cls, totals: TickCounts) -> RunSums | None:
        """For a run with these rows; None if it has too many ticks."""
        return cls(totals.ticks) if len(totals.ticks) <= MOST_TICKS else None

    def add(self, rows: Any) -> None:
        """Adds the next rows, which have a number and a tick each, and no NaN."""
        self._sums.add(rows.values, rows.ticks)

    def finish(self) -> TickSums:
        """The sums of all rows added."""
        return self._sums.finish()

    def check(self, marks: ValueMarks) -> None:
        """DamagedWarehouse unless the marks have these sums."""
        if self.finish().by_tick != marks.sums().by_tick:
            raise DamagedWarehouse(f"the sums by tick of run {marks.run.name} do not match its rows")


def sums_table(files: Sequence[MarkedFile]) -> dict[str, pa.Table]:
    """The row group of the sums of a run; none if one of its files has no sums."""
    sums = [file.extra.more for file in files]
    if any(one is None for one in sums):
        return {}
    content = TickSums.joined(sums).to_bytes()
    return {SUMS_GROUP: pa.table({CONTENT_FIELD.name: pa.array([content], CONTENT_FIELD.type)})}
