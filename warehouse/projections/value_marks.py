"""Value marks: the sparse index of sorted numbers, which bounds the rank of any value.

`ValueMarks` are the marks of a measure's run. `RunValues` are what ranks need of them, and are also made for
the numbers of one group, which are a range of rows of a run that is sorted by group.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from tidemark.sketches import RankBounds
from tidemark.warehouse.columns.tick_sums import TickSums
from tidemark.warehouse.projections.span_marks import SpanMarks
from tidemark.warehouse.projections.spans import Anchors
from tidemark.warehouse.runs.marks import CONTENT_FIELD, SUMS_GROUP, RunFile


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
