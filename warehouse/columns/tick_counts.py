"""Rows by tick: the numbers of stored, NaN and NULL rows in each tick of a run, a batch or a task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tidemark.warehouse.columns.codes import stable_order, unique_codes
from tidemark.warehouse.columns.ticks import Window


@dataclass(frozen=True, slots=True)
class TickCounts:
    """Numbers of rows by tick.

    ticks   (k,) ascending, without repetition, each with rows
    counts  (k,) rows with a stored value
    nans    (k,) rows with NaN
    nulls   (k,) rows with NULL
    """

    ticks: NDArray[np.int64]
    counts: NDArray[np.int64]
    nans: NDArray[np.int64]
    nulls: NDArray[np.int64]

    @property
    def rows(self) -> int:
        """The number of all rows, with NaN and NULL."""
        return int(self.counts.sum() + self.nans.sum() + self.nulls.sum())

    @property
    def by_tick(self) -> dict[int, int]:
        """The number of all rows of each tick."""
        sums = self.counts + self.nans + self.nulls
        return dict(zip(self.ticks.tolist(), sums.tolist(), strict=True))

    def within(self, window: Window) -> tuple[int, int, int]:
        """The numbers of (stored, NaN, NULL) rows in the window."""
        inside = window.slice_of(self.ticks)
        if inside.start == inside.stop:
            return 0, 0, 0
        return int(self.counts[inside].sum()), int(self.nans[inside].sum()), int(self.nulls[inside].sum())

    def has_rows(self, windows: Sequence[Window]) -> bool:
        """Whether there are rows in one of the windows. O(log ticks) for each window."""
        slices = (window.slice_of(self.ticks) for window in windows)
        return any(inside.start < inside.stop for inside in slices)

    def by_window(self, windows: Sequence[Window]) -> NDArray[np.int64]:
        """The numbers of (stored, NaN, NULL) rows in each window, shape (windows, 3). O(ticks + windows)."""
        if len(windows) == 1:
            return np.array([self.within(windows[0])], dtype=np.int64)
        sums = np.zeros((len(self.ticks) + 1, 3), dtype=np.int64)
        np.cumsum(np.stack([self.counts, self.nans, self.nulls], axis=1), axis=0, out=sums[1:])
        starts = self.ticks.searchsorted([window.start for window in windows])
        stops = self.ticks.searchsorted([window.stop for window in windows])
        return sums[stops] - sums[starts]


def window_codes(ticks: NDArray[np.int64], windows: Sequence[Window]) -> NDArray[np.int64]:
    """For each tick the index of its window, -1 outside of all of them.

    windows: one window, or windows that ascend and do not overlap. O(ticks log windows).
    """
    if len(windows) == 1:
        return windows[0].holds(ticks).astype(np.int64) - 1
    codes = np.searchsorted([window.start for window in windows], ticks, "right") - 1
    stops = np.array([window.stop for window in windows])
    return np.where((codes >= 0) & (ticks < stops[codes]), codes, -1).astype(np.int64)


def disjoint_windows(windows: Sequence[Window]) -> list[list[int]]:
    """The numbers of windows that ascend, in as few lists as possible without two windows that overlap."""
    if all(before.stop <= after.start for before, after in pairwise(windows)):
        return [list(range(len(windows)))]
    lists: list[list[int]] = []
    for number, window in enumerate(windows):
        own = next((one for one in lists if windows[one[-1]].stop <= window.start), None)
        if own is None:
            lists.append(own := [])
        own.append(number)
    return lists


def joined_windows(windows: Sequence[Window]) -> list[Window]:
    """The ticks of windows that ascend as few windows: these neither overlap nor touch each other."""
    edges: list[list[int]] = []
    for window in windows:
        if not edges or edges[-1][1] < window.start:
            edges.append([window.start, window.stop])
        elif edges[-1][1] < window.stop:
            edges[-1][1] = window.stop
    return [Window(start, stop) for start, stop in edges]


def rows_by_window(ticks: NDArray[np.int64], windows: Sequence[Window]) -> list[NDArray[np.intp] | slice]:
    """The indices of the rows in each window, in the order of the rows; `ticks` (rows,) are in any order.

    windows: ascending; they may overlap. O(rows log windows) for windows that do not.
    """
    lists = disjoint_windows(windows)
    if len(lists) == 1:
        return _rows_by_window(ticks, windows)
    found = dict(
        pair
        for numbers in lists
        for pair in zip(numbers, _rows_by_window(ticks, [windows[i] for i in numbers]), strict=True)
    )
    return [found[number] for number in range(len(windows))]


def _rows_by_window(ticks: NDArray[np.int64], windows: Sequence[Window]) -> list[NDArray[np.intp] | slice]:
    codes = window_codes(ticks, windows)
    if len(windows) == 1 and (codes == 0).all():
        return [slice(None)]
    rows = np.flatnonzero(codes >= 0)
    rows = rows[stable_order(codes[rows])]
    return list(np.split(rows, codes[rows].searchsorted(np.arange(1, len(windows)))))


def count_by_tick(
    ticks: NDArray[np.int64], null: NDArray[np.bool_], nan: NDArray[np.bool_] | None = None
) -> TickCounts:
    """The rows by tick; `ticks` (rows,) has the tick of each row, and the masks say which are NULL or NaN."""
    unique, codes = unique_codes(ticks)
    rows, nans, nulls = (
        np.bincount(some, minlength=len(unique)).astype(np.int64)
        for some in (codes, codes[:0] if nan is None else codes[nan & ~null], codes[null])
    )
    used = rows > 0
    return TickCounts(unique[used], (rows - nans - nulls)[used], nans[used], nulls[used])


def tick_counts_without(parts: Sequence[TickCounts], gone: TickCounts) -> TickCounts:
    """The rows of all parts by tick, less those of `gone`, which are among them; only ticks with some."""
    less = TickCounts(gone.ticks, -gone.counts, -gone.nans, -gone.nulls)
    left = sum_tick_counts([*parts, less])
    used = (left.counts != 0) | (left.nans != 0) | (left.nulls != 0)
    return TickCounts(left.ticks[used], left.counts[used], left.nans[used], left.nulls[used])


def sum_tick_counts(parts: Sequence[TickCounts]) -> TickCounts:
    """The rows of all parts together by tick."""
    empty = np.empty(0, np.int64)
    ticks, codes = np.unique(np.concatenate([empty, *(part.ticks for part in parts)]), return_inverse=True)

    def summed(field: str) -> NDArray[np.int64]:
        sums = np.zeros(len(ticks), dtype=np.int64)
        np.add.at(sums, codes, np.concatenate([empty, *(getattr(part, field) for part in parts)]))
        return sums

    return TickCounts(ticks, summed("counts"), summed("nans"), summed("nulls"))
