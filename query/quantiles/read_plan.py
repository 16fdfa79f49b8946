"""Which rows of which runs must be read: a pure planner over plain values.

Model. For an open interval (lower, upper) we need from each run the window's rows inside the interval and the
exact number of window rows <= lower. The marks bound the positions of these rows: they lie after the
last mark <= lower and before the first mark >= upper. That is the row range start..stop of the run, stop
exclusive.

Where the window covers only some ticks of a run, the number of window rows before a position is known
exactly only if the position is an anchor (the start of a span). If no anchor lies in the row range, the range
grows to the nearer anchor. With `count` window rows before row `anchor`, and the whole range read:

    window rows <= lower  =  count - (window rows in start..anchor) + (window rows in start..stop <= lower)

because every window row before `start` is <= lower.

Worked example. The range is rows 100..150, the nearer anchor is row 96 with count = 40 window rows before it.
The range grows to 96..150. Of the rows read there 5 window rows are <= lower, and none stands before the
anchor, so 40 - 0 + 5 = 45 window rows are <= lower.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidemark.warehouse.columns.ticks import Window
from tidemark.warehouse.columns.value_encoding import as_numpy
from tidemark.warehouse.projections.spans import Anchors
from tidemark.warehouse.projections.value_marks import RunValues

Side = Literal["left", "right"]


@dataclass(frozen=True, slots=True)
class Interval:
    """The open interval (lower, upper) of stored values, lower < upper; both ends are exclusive."""

    lower: Any
    upper: Any


@dataclass(frozen=True, slots=True)
class RowRange:
    """Rows start..stop (stop exclusive) of a run.

    `count` window rows stand before row `anchor`, which lies in start..stop (stop inclusive).
    """

    start: int
    stop: int
    anchor: int
    count: int


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """The result of reading an interval.

    below: the exact number of rows <= interval.lower.
    pieces: all rows inside the interval, as sorted arrays.
    """

    interval: Interval
    below: int
    pieces: Sequence[NDArray[Any]]

    @property
    def inside(self) -> NDArray[Any]:
        """All rows inside, sorted."""
        # A stable sort of sorted pieces is a merge.
        return np.sort(np.concatenate(self.pieces), kind="stable")

    def rank(self, values: NDArray[Any], side: Side) -> NDArray[np.intp]:
        """rank_lt ("left") or rank_le ("right") of values inside the interval; shape as `values`."""
        ranks = np.full(values.shape, self.below, dtype=np.intp)
        for piece in self.pieces:
            ranks += np.searchsorted(piece, values, side)
        return ranks


def merge_intervals(intervals: Iterable[tuple[Any, Any]]) -> list[Interval]:
    """The union of open intervals as disjoint ones, ascending; empty ones (lower == upper) are dropped."""
    merged: list[Interval] = []
    for lower, upper in sorted(intervals):
        if lower == upper:
            continue
        if merged and lower < merged[-1].upper:
            merged[-1] = Interval(merged[-1].lower, max(merged[-1].upper, upper))
        else:
            merged.append(Interval(lower, upper))
    return merged


def plan_row_range(run: RunValues, anchors: Anchors | None, interval: Interval) -> RowRange:
    """The rows of a run to read for an interval; `anchors` is None where the window covers the run."""
    i = int(run.values.searchsorted(interval.lower, side="right")) - 1  # the last mark <= lower
    j = int(run.values.searchsorted(interval.upper, side="left"))
    start = int(run.positions[i]) + 1 if i >= 0 else 0
    stop = int(run.positions[j]) if j < len(run.positions) else run.rows
    if anchors is None:
        return RowRange(start, stop, anchor=start, count=start)
    return _extend_to_anchor(start, stop, anchors)


def _extend_to_anchor(start: int, stop: int, anchors: Anchors) -> RowRange:
    positions, counts = anchors.positions, anchors.counts
    lo, hi = anchors.before(np.array([start, stop]))
    if lo[0] == hi[1]:  # no window rows in the range: nothing to read
        return RowRange(start, start, anchor=start, count=int(lo[0]))
    is_start_exact, is_stop_exact = lo[0] == hi[0], lo[1] == hi[1]
    if is_start_exact:  # skip leading spans without window rows; the next `if` skips trailing ones
        start = max(start, int(positions[np.searchsorted(counts, lo[0], side="right") - 1]))
    if is_stop_exact:
        stop = min(stop, int(positions[np.searchsorted(counts, hi[1], side="left")]))
    if is_start_exact:
        return RowRange(start, stop, anchor=start, count=int(lo[0]))
    if is_stop_exact:
        return RowRange(start, stop, anchor=stop, count=int(hi[1]))
    k = int(np.searchsorted(positions, start, side="left"))
    if positions[k] > stop:
        if start - positions[k - 1] < positions[k] - stop:
            k -= 1
            start = int(positions[k])
        else:
            stop = int(positions[k])
    return RowRange(start, stop, anchor=int(positions[k]), count=int(counts[k]))


def select_rows(
    first: int,
    values: NDArray[Any] | pa.ChunkedArray,
    ticks: NDArray[np.int64] | None,
    rows: RowRange,
    interval: Interval,
    window: Window,
) -> tuple[int, NDArray[Any]]:
    """The window rows of a block that belong to a row range.

    How many more of them are <= the interval's lower end than stand before the anchor; and the sorted values
    inside the interval, a copy.

    first: the position of the block's first row; negative if it stands before row 0.
    values: all rows of the block, as `columns_by_name` returns them.
    ticks: one per value; None where the window covers the run.
    """
    lo, hi = max(rows.start - first, 0), max(rows.stop - first, 0)
    values, before = values[lo:hi], max(rows.anchor - first - lo, 0)
    if not isinstance(values, np.ndarray):  # other groups of the block have NULL
        values = as_numpy(values)
    if ticks is None:
        before = min(before, len(values))
    else:
        in_window = window.holds(ticks[lo:hi])
        before, values = int(np.count_nonzero(in_window[:before])), values[in_window]
    i = int(values.searchsorted(interval.lower, side="right"))
    j = int(values.searchsorted(interval.upper, side="left"))
    return i - before, values[i:j].copy()


def with_finer_marks(
    run: RunValues, needed: Sequence[tuple[Any, Any]], positions: NDArray[np.int64], values: NDArray[Any]
) -> RunValues:
    """The run with additional marks: the rows at `positions`, which have `values`.

    Of the run's own marks, only those are kept that bound the rank of some value in one of the `needed`
    closed intervals. The result is valid everywhere, but its bounds are wider outside these intervals.
    """
    kept = []
    for low, high in needed:
        before = int(np.searchsorted(run.values, low, side="left")) - 1
        after = int(np.searchsorted(run.values, high, side="right"))
        kept.append(np.arange(max(before, 0), min(after + 1, len(run.values))))
    indices = np.unique(np.concatenate(kept))
    all_positions, first = np.unique(np.concatenate([run.positions[indices], positions]), return_index=True)
    all_values = np.concatenate([run.values[indices], values])[first]
    return replace(run, positions=all_positions, values=all_values)
