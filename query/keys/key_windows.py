"""The window of a question about keys: whole ticks, and at its ends ticks that it cuts in the middle.

History counts by tick, the live side by event time. So of a tick that the window cuts the live side tells
the window's part, and history how many rows there may be at most: the answer's interval says what that costs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tidemark.query.reading.windows import choose_window, shown_window
from tidemark.warehouse.columns.ticks import (
    ALL_TIME,
    NO_TICK,
    Window,
    epoch_us,
    from_epoch_us,
    parse_duration,
)
from tidemark.warehouse.errors import InputError
from tidemark.warehouse.snapshots.snapshot import KeysView


@dataclass(frozen=True, slots=True)
class Cut:
    """A tick of which the window has the times from `since` (inclusive) to before `until`; microseconds.

    `share` is how much of the tick's time that is.
    """

    tick: int
    since: int
    until: int
    share: float


@dataclass(frozen=True, slots=True)
class KeyWindow:
    """`whole` ticks (None where there is none), `cuts` at its ends, and the window as the caller reads it."""

    whole: Window | None
    cuts: tuple[Cut, ...]
    shown: tuple[Any, Any] | None

    @property
    def since(self) -> int | None:
        """The first microsecond, where that is inside a tick."""
        return next((cut.since for cut in self.cuts if cut.tick == self.touched.start), None)

    @property
    def until(self) -> int | None:
        """The microsecond that it ends before, where that is inside a tick."""
        return next((cut.until for cut in self.cuts if cut.tick == self.touched.stop - 1), None)

    @property
    def touched(self) -> Window:
        """All ticks that have some of the window."""
        ticks = [cut.tick for cut in self.cuts]
        if self.whole is None:
            return Window(min(ticks), max(ticks) + 1)
        return Window(min([self.whole.start, *ticks]), max([self.whole.stop, *(tick + 1 for tick in ticks)]))


def key_window(view: KeysView, last: Any, between: Any, tick_us: int | None) -> KeyWindow:
    """The window that `last` or `between` means.

    `last` is whole ticks back from the newest tick, as for quantiles, where it is a multiple of the tick.
    What is not, such as a quarter of an hour with ticks of a day, counts back from the newest event.
    """
    edges = _edges(view, last, between, tick_us)
    if edges is None or tick_us is None:
        window = choose_window(lambda: _ticks(view), last, between, tick_us)
        return KeyWindow(window, (), shown_window(window, tick_us))
    start, stop = edges
    if start is not None and stop is not None and stop <= start:
        raise InputError(
            f"the window is empty by itself: {from_epoch_us(start)} to {from_epoch_us(stop)} (exclusive)."
        )
    shown = tuple(None if edge is None else from_epoch_us(edge) for edge in edges)
    first = NO_TICK + 1 if start is None else -(-start // tick_us)
    end = ALL_TIME.stop if stop is None else stop // tick_us
    ticks = {edge // tick_us for edge in edges if edge is not None and edge % tick_us}
    cuts = tuple(_cut(tick, start, stop, tick_us) for tick in sorted(ticks))
    return KeyWindow(Window(first, end) if first < end else None, cuts, (shown[0], shown[1]))


def _edges(
    view: KeysView, last: Any, between: Any, tick_us: int | None
) -> tuple[int | None, int | None] | None:
    """Start and end in microseconds; None where the ticks say it all."""
    if tick_us is None or (last is None) == (between is None):
        return None
    if last is not None:
        width = parse_duration(last)
        stop = _newest(view, tick_us)
        return None if width % tick_us == 0 or stop is None else (stop - width, stop)
    if not isinstance(between, (tuple, list)) or len(between) != 2:
        return None  # `choose_window` says what is wrong
    start, stop = (None if edge is None else epoch_us(edge) for edge in between)
    return start, stop


def _ticks(view: KeysView) -> tuple[int, int] | None:
    found = [tick for run in view.runs for tick in run.totals.ticks[[0, -1]].tolist() if tick != NO_TICK]
    found += [live.tick for live in view.live if live.tick != NO_TICK]
    return (min(found), max(found)) if found else None


def _newest(view: KeysView, tick_us: int) -> int | None:
    """Just after the newest event; of history only its tick is known, which ends there. None: no events."""
    ends = [live.times[1] + 1 for live in view.live if live.times]
    ticks = [int(run.totals.ticks[-1]) for run in view.runs if len(run.totals.ticks)]
    newest = max((tick for tick in ticks if tick != NO_TICK), default=None)
    if newest is not None and (not ends or max(ends) <= newest * tick_us):
        return (newest + 1) * tick_us
    return max(ends, default=None)


def _cut(tick: int, start: int | None, stop: int | None, tick_us: int) -> Cut:
    since = max(tick * tick_us, tick * tick_us if start is None else start)
    until = min((tick + 1) * tick_us, (tick + 1) * tick_us if stop is None else stop)
    return Cut(tick, since, until, (until - since) / tick_us)
