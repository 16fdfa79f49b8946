"""Rows by tick: stored rows, NaN and NULL of each tick of a run, a batch or a task's share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidemark.warehouse.columns.measures import DecodedColumn
from tidemark.warehouse.columns.ticks import Window


@dataclass(frozen=True, slots=True)
class TickCounts:
    """Rows of a run by tick: `ticks` ascending; stored values, NaN and NULL counts beside them."""

    ticks: NDArray[np.int64]
    counts: NDArray[np.int64]
    nans: NDArray[np.int64]
    nulls: NDArray[np.int64]

    @property
    def rows(self) -> int:
        """All rows, NaN and NULL among them."""
        return int(self.counts.sum() + self.nans.sum() + self.nulls.sum())

    def within(self, window: Window) -> tuple[int, int, int]:
        """(stored, NaN, NULL) rows in the window."""
        inside = window.holds(self.ticks)
        return int(self.counts[inside].sum()), int(self.nans[inside].sum()), int(self.nulls[inside].sum())


def count_by_tick(ticks: NDArray[np.int64], column: DecodedColumn) -> TickCounts:
    """Rows of a decoded column by tick."""
    names, code = unique_codes(ticks)
    nan, null = column.nan & ~column.null, column.null
    rows, nans, nulls = (
        np.bincount(code if chosen is None else code[chosen], minlength=len(names)).astype(np.int64)
        for chosen in (None, nan, null)
    )
    seen = rows > 0
    return TickCounts(names[seen], (rows - nans - nulls)[seen], nans[seen], nulls[seen])


def unique_codes(ticks: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Ascending names that hold all the ticks, and the index of each tick's name.

    Where the ticks lie close together every number between is a name, which needs no sort.
    """
    if not len(ticks):
        return ticks, ticks
    low, high = int(ticks.min()), int(ticks.max())
    if high - low <= len(ticks):
        return low + np.arange(high - low + 1), ticks - low  # high + 1 may be no int64
    names, code = np.unique(ticks, return_inverse=True)
    return names, code


def sum_tick_counts(totals: Sequence[TickCounts]) -> TickCounts:
    """Rows by tick of all together."""
    empty = np.empty(0, np.int64)
    names, code = np.unique(np.concatenate([empty, *(one.ticks for one in totals)]), return_inverse=True)

    def summed(part: str) -> NDArray[np.int64]:
        column = np.zeros(len(names), dtype=np.int64)
        np.add.at(column, code, np.concatenate([empty, *(getattr(one, part) for one in totals)]))
        return column

    return TickCounts(names, summed("counts"), summed("nans"), summed("nulls"))
