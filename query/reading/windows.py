"""The window of a question: from its arguments to ticks, and back to times or steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tidemark.query.answers.rendering import group_text, text_of, window_text
from tidemark.query.reading.asked_window import AskedWindow
from tidemark.warehouse.columns.moments import first_us
from tidemark.warehouse.columns.scalars import plain
from tidemark.warehouse.columns.tick_counts import joined_windows, window_codes
from tidemark.warehouse.columns.ticks import (
    ALL_TIME,
    FIRST_US,
    LAST_US,
    MONDAY_US,
    NO_TICK,
    WEEK_US,
    TickGrid,
    Window,
    end_from_epoch_us,
    from_epoch_us,
    now_us,
    parse_duration,
    window_between,
    window_last,
)
from tidemark.warehouse.errors import EmptyWindow, InputError, shortened, whole_number
from tidemark.warehouse.projections.key_marks import KeyMarks
from tidemark.warehouse.projections.span_marks import SpanMarks
from tidemark.warehouse.snapshots.views import AnyView, GroupView, View

M = TypeVar("M", bound=SpanMarks | KeyMarks)

MOST_WINDOWS = 100_000  # windows of one question with `every`
MOST_EMPTY = 1_000  # windows in a row without rows; a longer gap, as a wrong clock makes it, is left out


@dataclass(frozen=True, slots=True)
class ShownWindow:
    """A window of whole ticks, and how answers show it: see `Scope`."""

    ticks: Window
    shown: tuple[Any, Any] | None
    widened: str | None


def choose_window(view: AnyView, asked: AskedWindow, grid: TickGrid | None) -> Window:
    """The window of ticks that the arguments select; all rows if none is given.

    grid: how time is cut into ticks; None without a time column.

    Raises InputError for arguments that exclude each other, and for malformed ones.
    """
    asked = asked.resolved(grid)
    last, between = asked.last, asked.between
    if last is not None:
        return window_last(last, newest_tick(view, grid) or 0, grid)
    if between is None:
        return ALL_TIME
    if not isinstance(between, (tuple, list)) or len(between) != 2:
        raise InputError(f"between must be a pair (start, end), the end exclusive, got {shortened(between)}.")
    return window_between(between[0], between[1], grid)


def split_window(
    window: Window, ticks: NDArray[np.int64], every: Any, grid: TickGrid | None, width: Any = None
) -> list[Window]:
    """The parts of a window that `every` makes, from the first tick of the data to the last, ascending.

    ticks: the ticks of the data, ascending, see `data_ticks`.
    every: a duration that is a multiple of the tick; without a time column, a number of steps. Parts start
        at multiples of it, counted from 1970 in UTC (whole weeks from a Monday); the first and the last part
        end where the window does.
    width: how long each part lasts, at least `every`; longer parts overlap. None for `every`.

    No two parts are shown alike: parts are cut where the calendar ends, too, before equal ones become one.
    Stretches of more than MOST_EMPTY parts without a tick of the data are left out. Returns no part if the
    window is before or after all ticks of the data. Raises InputError for another duration, and for more
    than MOST_WINDOWS parts.
    """
    hop, origin = width_in_ticks("every", every, grid)
    size = hop if width is None else width_in_ticks("width", width, grid)[0]
    if size < hop:
        raise InputError(
            f"width={shortened(width)} is shorter than every={shortened(every)}, so rows between would be in "
            "no window. Give a width of at least that."
        )
    if not len(ticks) or window.misses(int(ticks[0]), int(ticks[-1])):
        return []
    taken = ticks[window.slice_of(ticks)]
    start, stop = max(window.start, int(ticks[0])), min(window.stop, int(ticks[-1]) + 1)
    # The first and the last parts of the window may have no tick.
    ends = np.unique(np.concatenate([taken, [start, stop - 1]]).astype(np.int64) - origin)
    first, last = (ends - size) // hop + 1, ends // hop  # the parts that have a tick
    is_far = first[1:] - last[:-1] > MOST_EMPTY + 1
    firsts, lasts = first[np.append(True, is_far)], last[np.append(is_far, True)]
    makes = int((lasts - firsts + 1).sum())
    if makes > MOST_WINDOWS:
        raise InputError(
            f"every={shortened(every)} makes {makes:,} windows, more than {MOST_WINDOWS:,}. Give a longer "
            "duration, or a shorter time with last or between."
        )
    numbers = np.concatenate([np.arange(a, b + 1) for a, b in zip(firsts, lasts, strict=True)])
    starts = (origin + numbers * hop).tolist()
    least, most = window.start, window.stop
    if grid is not None:  # parts outside of the calendar are not shown
        least, most = max(least, grid.tick_of(FIRST_US)), min(most, grid.tick_of(LAST_US) + 1)
    found = [Window(max(least, low), min(most, low + size)) for low in starts]
    return list(dict.fromkeys(found))  # a window shorter than `width` is cut to the same part again and again


def width_in_ticks(name: str, value: Any, grid: TickGrid | None) -> tuple[int, int]:
    """The width of the parts that the parameter `name` asks for, in ticks, and a tick at which a part starts.

    Parts start at multiples of the width, counted from 1970 in UTC, whole weeks from a Monday. InputError
    for anything but a multiple of the tick or, without a time column, a number of steps.
    """
    value = plain(value)
    if grid is None:
        hint = "It counts steps: this warehouse has no time column."
        return whole_number(name, value, 1, hint=hint), 0
    width = parse_duration(value)
    if width % grid.width_us:
        raise InputError(
            f"{name}={shortened(value)} is not a multiple of the tick, "
            f"{timedelta(microseconds=grid.width_us)} (h:mm:ss). Its parts are whole ticks: give a multiple, "
            "or create the warehouse with a narrower tick."
        )
    start = MONDAY_US if width % WEEK_US == 0 else grid.origin_us
    if grid.cuts(start):
        raise InputError(
            f"{name}={shortened(value)} is whole weeks, which begin on Mondays, but the ticks of this "
            f"warehouse, of {timedelta(microseconds=grid.width_us)} (h:mm:ss), count from a Thursday, "
            "1970-01-01. Ask for single windows with between, or load the rows into a new warehouse with a "
            "tick that divides a week."
        )
    return width // grid.width_us, grid.tick_of(start)


def shown_window(window: Window, grid: TickGrid | None) -> tuple[Any, Any] | None:
    """(start, end) as times or step numbers, the end exclusive, None for an open side; None for all rows.

    A window with the last microsecond of the year 9999 has no time as its end: that side is open, too.
    """
    if window == ALL_TIME:
        return None
    start = None if window.start <= NO_TICK + 1 else time_or_step(window.start, grid)
    return start, None if window.stop == ALL_TIME.stop else end_or_step(window.stop, grid)


def counted_back_text(view: AnyView, last: Any, grid: TickGrid | None) -> str | None:
    """A text: from where `last` counts back, if there are ticks later than now; None otherwise."""
    if last is None or grid is None:
        return None
    ticks = tick_range(view)
    newest = _newest_tick(view, ticks, grid)
    if newest is None or ticks is None or newest == ticks[1]:
        return None
    return (
        f"counted back from {text_of(end_or_step(newest + 1, grid))}: rows up to "
        f"{text_of(end_or_step(ticks[1] + 1, grid))} lie in the future of the clock"
    )


def widened_text(view: AnyView, asked: AskedWindow, grid: TickGrid | None) -> str | None:
    """A text for answers: how the window of whole ticks differs from the one asked; None if it does not."""
    return _joined(_rounded_text(asked, grid), unrounded_text(view, asked, grid))


def unrounded_text(view: AnyView, asked: AskedWindow, grid: TickGrid | None) -> str | None:
    """As `widened_text`, for windows that are not of whole ticks."""
    counted_back = counted_back_text(view, asked.resolved(grid).last, grid)
    return _joined(counted_back, _expired_text(view, asked, grid), _silent_text(view))


def _joined(*texts: str | None) -> str | None:
    return ", and ".join(text for text in texts if text) or None


def _expired_text(view: AnyView, asked: AskedWindow, grid: TickGrid | None) -> str | None:
    """Which rows of the window have expired, if it begins before the horizon; None otherwise."""
    if grid is None or grid.horizon is None or choose_window(view, asked, grid).start >= grid.horizon:
        return None
    before = text_of(time_or_step(grid.horizon, grid))
    if view.parts:
        return f"without rows before {before} that have expired in one of the warehouses"
    return f"without the rows before {before}, which have expired"


def _silent_text(view: AnyView) -> str | None:
    """The warehouses that do not answer, and since when nothing is known of them; None if all answer."""
    told = [
        f"{name!r} does not answer: bounded by what it had at {text_of(from_epoch_us(one.read_us))}, "
        f"{timedelta(seconds=max(0, now_us() - one.read_us) // 10**6)} before"
        for name, one in view.silent.items()
    ]
    return "; ".join(told) or None


def _rounded_text(asked: AskedWindow, grid: TickGrid | None) -> str | None:
    if grid is None:
        return None
    resolved = asked.resolved(grid)
    if resolved.last is not None:
        cut = parse_duration(resolved.last) % grid.width_us != 0
    else:
        cut = any(grid.cuts(first_us(plain(edge))) for edge in resolved.between or () if edge is not None)
    return (
        f"widened from {asked.text} to whole ticks of {timedelta(microseconds=grid.width_us)}"
        if cut
        else None
    )


def empty_window(
    view: View | GroupView,
    window: Window,
    nulls: int,
    grid: TickGrid | None,
    group: Mapping[str, Any] | None = None,
) -> EmptyWindow:
    """The error for a window without rows that have a rank. It names the ticks that have rows."""
    name = view.measure.name
    if group is not None:
        where, shown = group_text(group), window_text(shown_window(window, grid))
        reason = f"its {nulls:,} rows are all NULL, which has no rank" if nulls else "no rows"
        return EmptyWindow(f"empty window: {reason} of {name!r} where {where}, {shown}.")
    if nulls:
        return EmptyWindow(f"empty window: its {nulls:,} rows of {name!r} are all NULL, which has no rank.")
    ticks = tick_range(view)
    if ticks is None:
        return EmptyWindow(f"no rows of {name!r} yet. Load or stream some first.")
    first, after = time_or_step(ticks[0], grid), end_or_step(ticks[1] + 1, grid)
    end = "the end of the year 9999" if after is None else f"{text_of(after)}, the end exclusive"
    return EmptyWindow(
        f"empty window: no rows of {name!r} {window_text(shown_window(window, grid))}. "
        f"The data's ticks span {text_of(first)} to {end}."
    )


def time_or_step(tick: int, grid: TickGrid | None) -> Any:
    """The start of a tick as a time; the number of the step without a time column."""
    return tick if grid is None else from_epoch_us(grid.start_of(tick))


def end_or_step(tick: int, grid: TickGrid | None) -> Any:
    """The end (exclusive) of a window whose last tick is this one; None after all times."""
    return tick if grid is None else end_from_epoch_us(grid.start_of(tick))


def tick_range(view: AnyView, upto: int = ALL_TIME.stop) -> tuple[int, int] | None:
    """The first and last tick that has rows with a time, both inclusive; None without such rows.

    Ticks after `upto` do not count.
    """
    parts = view.with_silent
    runs = [ticks_up_to(totals.ticks, upto) for one in parts for totals in one.history_totals]
    timed = [ticks[ticks != NO_TICK] for ticks in runs]
    ends = [tick for ticks in timed if len(ticks) for tick in ticks[[0, -1]].tolist()]
    ends += [tick for one in parts for tick in one.live_ticks if NO_TICK != tick <= upto]
    return (min(ends), max(ends)) if ends else None


def newest_tick(view: AnyView, grid: TickGrid | None) -> int | None:
    """The newest tick that has rows and begins before now; without one, and for steps, the newest of all.

    None without rows that have a time. One wrong clock may have left rows of the year 2099.
    """
    return _newest_tick(view, tick_range(view), grid)


def _newest_tick(view: AnyView, ticks: tuple[int, int] | None, grid: TickGrid | None) -> int | None:
    if ticks is None or grid is None:
        return ticks and ticks[1]
    now = grid.tick_of(now_us())
    past = tick_range(view, now) if now < ticks[1] else ticks
    return (past or ticks)[1]


def data_ticks(view: AnyView) -> NDArray[np.int64]:
    """The ticks that have rows with a time, ascending. O(n log n) for the ticks of all runs and live rows."""
    parts = view.with_silent
    live = np.array([tick for one in parts for tick in one.live_ticks], dtype=np.int64)
    ticks = np.unique(
        np.concatenate([live, *(totals.ticks for one in parts for totals in one.history_totals)])
    )
    timed: NDArray[np.int64] = ticks[ticks != NO_TICK]
    return timed


def runs_within(runs: Sequence[M], windows: Sequence[Window]) -> list[M]:
    """The runs with stored rows in the windows, which ascend, by their marks; kept rows are among them."""
    windows = joined_windows(windows)
    if windows == [ALL_TIME]:
        return [marks for marks in runs if marks.rows]
    return [marks for marks in runs if marks.rows and marks.totals.has_rows(windows)]


def rows_of(view: AnyView, windows: Sequence[Window]) -> int:
    """The visible rows in the windows, which ascend, each once, with NaN and NULL; by the marks.

    A view by group or key does not have the rows of its runs without a group or key.
    """
    windows = joined_windows(windows)
    rows = sum(int(totals.by_window(windows).sum()) for totals in view.history_totals)
    ticks = np.array([tick for _, tick in view.live_counts], dtype=np.int64)
    live = np.array([*view.live_counts.values()], dtype=np.int64)
    return rows + int(live[window_codes(ticks, windows) >= 0].sum())


def rows_in_the_future(view: View, grid: TickGrid | None) -> int:
    """The rows in ticks that begin after the clock; 0 without a time column."""
    if grid is None:
        return 0
    now = grid.tick_of(now_us())
    by_tick = [(tick, rows) for totals in view.history_totals for tick, rows in totals.by_tick.items()]
    by_tick += [(row.tick, row.rows) for row in view.live]
    return sum(rows for tick, rows in by_tick if tick > now)


def ticks_up_to(ascending: NDArray[np.int64], upto: int) -> NDArray[np.int64]:
    """The ticks that are at most `upto`. O(log n)."""
    taken: NDArray[np.int64] = ascending[: ascending.searchsorted(upto, "right")]
    return taken
