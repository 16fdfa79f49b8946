"""The slots of a window: its ticks, or groups of them, in which keys are present or not.

A slot is a tick, or a multiple of it. Wider slots start at multiples of their width since 1970 in UTC, weeks
on Mondays. The first and the last slot end where the window does, as the parts of `every` do. All slots of
the window count, also those without rows. A side of the window that is open ends at the data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidemark.query.keys.key_windows import KeyWindow
from tidemark.query.reading.windows import end_or_step, time_or_step, width_in_ticks
from tidemark.warehouse.columns.ticks import ALL_TIME, NO_TICK, TickGrid, Window


@dataclass(frozen=True, slots=True)
class Slots:
    """The slots of a window, numbered from 0 to `count` (exclusive).

    width: the width of a slot in ticks. origin: the first tick of slot 0, maybe before the window.
    grid: how time is cut into ticks; None without a time column. window: its start and its end (exclusive).
    """

    width: int
    origin: int
    count: int
    grid: TickGrid | None
    window: tuple[Any, Any]

    def of(self, ticks: NDArray[np.int64]) -> NDArray[np.int64]:
        """The slot of each tick; the ticks lie in the window."""
        numbers: NDArray[np.int64] = (ticks - self.origin) // self.width
        return numbers

    def edges_of(self, number: int) -> tuple[Any, Any]:
        """When a slot starts and ends (exclusive) in the window: times, or steps; see `shown_window`."""
        first = self.origin + number * self.width
        start, end = time_or_step(first, self.grid), end_or_step(first + self.width, self.grid)
        ends = [edge for edge in (end, self.window[1]) if edge is not None]
        return max(start, self.window[0]), min(ends, default=None)


def slots_of(
    window: KeyWindow, ticks: tuple[int, int] | None, slot: Any, grid: TickGrid | None
) -> tuple[KeyWindow, Slots]:
    """The window without open sides and without rows that have no time, and its slots.

    ticks: the first and last tick of the data, both inclusive; None without data.
    slot: a duration that is a multiple of the tick; without a time column, a number of steps. None is a
        tick. InputError for another value.
    """
    width, origin = (1, 0) if slot is None else width_in_ticks("slot", slot, grid)
    first, end = _closed(window.overlapping, ticks)
    partial_ticks = tuple(partial for partial in window.partial_ticks if first <= partial.tick < end)
    whole = window.whole and Window(max(window.whole.start, first), min(window.whole.stop, end))
    if whole is not None and whole.start >= whole.stop:
        whole = None if partial_ticks else Window(first, first)
    number = (first - origin) // width
    count = (end - 1 - origin) // width - number + 1 if first < end else 0
    known = window.shown or (None, None)
    shown = (
        time_or_step(first, grid) if known[0] is None else known[0],
        end_or_step(end, grid) if known[1] is None else known[1],
    )
    closed = KeyWindow(whole, partial_ticks, shown if count else window.shown, window.widened)
    return closed, Slots(width, origin + number * width, count, grid, shown)


def _closed(window: Window, ticks: tuple[int, int] | None) -> tuple[int, int]:
    """The window's first tick and its end (exclusive); where a side is open, the data's.

    They are equal if there is no tick between: without data, or where all data lies on the other side.
    """
    first, end = (0, 0) if ticks is None else (ticks[0], ticks[1] + 1)
    open_start, open_stop = window.start <= NO_TICK + 1, window.stop == ALL_TIME.stop
    if ticks is None and open_start != open_stop:
        first = end = window.stop if open_start else window.start
    start, stop = first if open_start else window.start, end if open_stop else window.stop
    return start, max(start, stop)
