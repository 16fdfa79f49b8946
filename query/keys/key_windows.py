"""The window of a question about keys: whole ticks, and ticks at its ends that it covers only in part.

History counts by tick, the live side by event time. In a partial tick the live side counts the window's part.
History knows only the rows of the whole tick, so between 0 and all of these are in the window. The answer's
interval shows this uncertainty.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidemark.query.reading.asked_window import AskedWindow
from tidemark.query.reading.windows import (
    choose_window,
    data_ticks,
    newest_tick,
    shown_window,
    split_window,
    ticks_up_to,
    unrounded_text,
    widened_text,
)
from tidemark.warehouse.columns.moments import first_us
from tidemark.warehouse.columns.scalars import plain
from tidemark.warehouse.columns.ticks import (
    ALL_TIME,
    NO_TICK,
    TickGrid,
    Window,
    end_from_epoch_us,
    from_epoch_us,
    parse_duration,
)
from tidemark.warehouse.errors import InputError
from tidemark.warehouse.ledger.live_summaries import LiveKeys
from tidemark.warehouse.snapshots.views import KeysView

_BELOW_ONE = math.nextafter(1, 0)


@dataclass(frozen=True, slots=True)
class PartialTick:
    """A tick that the window covers only in part.

    since, until: the covered times in microseconds, `until` exclusive.
    share: the covered fraction of the tick's time, from 0 to 1 (exclusive).
    """

    tick: int
    since: int
    until: int
    share: float

    def holds(self, times: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which times, in microseconds, lie in the covered part."""
        return (times >= self.since) & (times < self.until)


@dataclass(frozen=True, slots=True)
class KeyWindow:
    """The window of a question about keys.

    whole: the ticks that lie in the window as a whole; None if there are none.
    partial_ticks: the ticks at its ends that it covers only in part; at most two.
    shown, widened: the window as answers show it, see `Scope`.
    """

    whole: Window | None
    partial_ticks: tuple[PartialTick, ...]
    shown: tuple[Any, Any] | None
    widened: str | None = None

    @property
    def since(self) -> int | None:
        """The first microsecond of the window if that is inside a tick, else None."""
        return next(
            (partial.since for partial in self.partial_ticks if partial.tick == self.overlapping.start), None
        )

    @property
    def until(self) -> int | None:
        """The end of the window in microseconds, exclusive, if that is inside a tick, else None."""
        return next(
            (partial.until for partial in self.partial_ticks if partial.tick == self.overlapping.stop - 1),
            None,
        )

    @property
    def overlapping(self) -> Window:
        """All ticks that overlap the window."""
        ticks = [partial.tick for partial in self.partial_ticks]
        if self.whole is None:
            return Window(min(ticks), max(ticks) + 1)
        return Window(min([self.whole.start, *ticks]), max([self.whole.stop, *(tick + 1 for tick in ticks)]))


def key_window(view: KeysView, asked: AskedWindow, grid: TickGrid | None) -> KeyWindow:
    """The window that the arguments select; all rows if none is given.

    A `last` that is a multiple of the tick counts whole ticks back from the newest tick, as for quantiles.
    Any other `last`, such as 15 minutes with ticks of a day, counts back from the newest event.

    Raises InputError for a malformed or empty window.
    """
    asked = asked.resolved(grid)
    edges = _edges(view, asked.last, asked.between, grid)
    if edges is None or grid is None:
        window = choose_window(view, asked, grid)
        return KeyWindow(window, (), shown_window(window, grid), unrounded_text(view, asked, grid))
    start, stop = edges
    if start is not None and stop is not None and stop <= start:
        raise InputError(
            f"the window is empty by itself: {from_epoch_us(start)} to {from_epoch_us(stop)} (exclusive). "
            "Give an end after the start."
        )
    shown = (
        None if start is None else from_epoch_us(start),
        None if stop is None else end_from_epoch_us(stop),
    )
    first = NO_TICK + 1 if start is None else grid.next_start(start)
    end = ALL_TIME.stop if stop is None else grid.tick_of(stop)
    ticks = {grid.tick_of(edge) for edge in edges if edge is not None and grid.cuts(edge)}
    partial_ticks = tuple(_partial_tick(tick, start, stop, grid) for tick in sorted(ticks))
    note = unrounded_text(view, asked, grid)
    return KeyWindow(Window(first, end) if first < end else None, partial_ticks, shown, note)


def key_windows(
    view: KeysView, asked: AskedWindow, every: Any, grid: TickGrid | None, width: Any = None
) -> list[KeyWindow]:
    """The window that the arguments select, or its parts. With `every` they are whole ticks, as of measures.

    every, width: see `split_window`.

    Raises InputError for a malformed or empty window, and as `split_window`.
    """
    if every is None:
        return [key_window(view, asked, grid)]
    parts = split_window(choose_window(view, asked, grid), data_ticks(view), every, grid, width)
    widened = widened_text(view, asked, grid)
    return [KeyWindow(part, (), shown_window(part, grid), widened) for part in parts]


def overlapping_rows(
    live: Iterable[LiveKeys], window: KeyWindow
) -> Iterator[tuple[LiveKeys, PartialTick | None]]:
    """The ledger rows of which some rows may lie in the window, each with its tick if that is partial."""
    whole, partial_ticks = window.whole, {partial.tick: partial for partial in window.partial_ticks}
    for row in live:
        partial = partial_ticks.get(row.tick)
        if partial is None:
            if whole is not None and not whole.misses(row.tick, row.tick):
                yield row, None
        elif row.times is not None and row.times[0] < partial.until and row.times[1] >= partial.since:
            yield row, partial


def window_before(window: KeyWindow, grid: TickGrid | None) -> KeyWindow:
    """All times before a window. InputError if the window has no start."""
    start = window.shown[0] if window.shown is not None else None
    if start is None:
        raise InputError("new keys are those of a window: give last, or between with a start.")
    first = window.overlapping.start
    partial: tuple[PartialTick, ...] = ()
    if window.since is not None and grid is not None:
        partial = (_partial_tick(first, None, window.since, grid),)
    whole = Window(NO_TICK + 1, first) if first > NO_TICK + 1 else None
    return KeyWindow(whole, partial, (None, start))


def _edges(
    view: KeysView, last: Any, between: Any, grid: TickGrid | None
) -> tuple[int | None, int | None] | None:
    """Start and end in microseconds, the end exclusive; None if the window consists of whole ticks."""
    if grid is None or (last is None) == (between is None):
        return None
    if last is not None:
        width = parse_duration(last)
        stop = _newest(view, grid)
        return None if width % grid.width_us == 0 or stop is None else (stop - width, stop)
    if not isinstance(between, (tuple, list)) or len(between) != 2:
        return None  # `choose_window` raises the error
    start, stop = (None if edge is None else first_us(plain(edge)) for edge in between)
    return start, stop


def _newest(view: KeysView, grid: TickGrid) -> int | None:
    """The time just after the newest event, in microseconds; None without events.

    Events in ticks in the future of the clock do not count, unless there are no others. The newest event of
    history is known only to its tick, so the end of that tick is taken.
    """
    limit = newest_tick(view, grid)
    if limit is None:
        return None
    parts: list[KeysView] = [view, *(one.view for one in view.silent.values())]
    ends = [live.times[1] + 1 for one in parts for live in one.live if live.times and live.tick <= limit]
    totals = [total for one in parts for total in one.history_totals]
    ticks = [int(tick) for one in totals for tick in ticks_up_to(one.ticks, limit)[-1:]]
    newest = max((tick for tick in ticks if tick != NO_TICK), default=None)
    if newest is not None and (not ends or max(ends) <= grid.start_of(newest)):
        return grid.start_of(newest + 1)
    return max(ends, default=None)


def _partial_tick(tick: int, start: int | None, stop: int | None, grid: TickGrid) -> PartialTick:
    first, end = grid.start_of(tick), grid.start_of(tick + 1)
    since, until = first if start is None else max(first, start), end if stop is None else min(end, stop)
    return PartialTick(tick, since, until, min((until - since) / grid.width_us, _BELOW_ONE))
