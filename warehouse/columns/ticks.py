"""Ticks and windows: event time in units of a fixed width, the grain of every window.

    tick = floor((epoch_us - origin) / width)

The origin is 1970, or the first Monday after it where ticks are whole weeks. In a warehouse without a time
column, the tick of a row is the number of the step that was to be planned next when its batch arrived. A row
whose time is NULL has the tick `NO_TICK`: only the window `ALL_TIME` holds it.

Times lie in the years 1 to 9999 in UTC, from `FIRST_US` to `LAST_US`: Python's datetimes, SQL and ISO 8601
have no others. Rows with other times are refused on input. If another tool wrote such times, they read as the
nearest end of the range.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tidemark.warehouse.columns.moments import EPOCH, MICROSECOND, first_us
from tidemark.warehouse.columns.scalars import plain
from tidemark.warehouse.errors import InputError, shortened

T = TypeVar("T", int, NDArray[np.int64])

NO_TICK = -(2**63)
DAY_US = 86_400_000_000
MONDAY = 4  # the day of the first Monday since 1970
WEEK_US, MONDAY_US = 7 * DAY_US, MONDAY * DAY_US
_LAST = 2**63 - 1
FIRST_US = -62_135_596_800_000_000  # 0001-01-01T00:00:00Z, the first time that is accepted
LAST_US = 253_402_300_799_999_999  # 9999-12-31T23:59:59.999999Z, the last one
LONGEST_US = 2**53  # the longest duration in microseconds: 285 years
_DIGITS = 40  # of a number in the text of a duration

_UNITS = {
    "us": 1,
    "microsecond": 1,
    "ms": 1_000,
    "millisecond": 1_000,
    "s": 1_000_000,
    "sec": 1_000_000,
    "second": 1_000_000,
    "m": 60_000_000,
    "min": 60_000_000,
    "minute": 60_000_000,
    "h": 3_600_000_000,
    "hour": 3_600_000_000,
    "d": DAY_US,
    "day": DAY_US,
    "w": 7 * DAY_US,
    "week": 7 * DAY_US,
}


def now_us() -> int:
    """The clock of this machine: microseconds since 1970 in UTC."""
    return time.time_ns() // 1000


def parse_duration(text: str | timedelta) -> int:
    """Microseconds of ``"1 day"``, ``"7d"``, ``"15 minutes"`` or a timedelta.

    InputError unless it is positive and at most LONGEST_US.
    """
    width = width_us(text)
    if not 0 < width <= LONGEST_US:
        raise InputError(f"a duration must be positive and at most 285 years, got {shortened(text)}.")
    return width


def parse_grace(text: str | int | timedelta) -> int:
    """Microseconds of a grace period: a duration as above, or zero (``"0"``, ``"0 s"``, ``"0 days"``)."""
    text = plain(text)
    is_zero = type(text) in (str, int, float) and text in ("0", 0)  # False is no duration
    width = 0 if is_zero else width_us(text)
    if not 0 <= width <= LONGEST_US:
        raise InputError(f"a grace period must be from 0 to 285 years, got {shortened(text)}.")
    return width


def width_us(text: Any) -> int:
    """Microseconds of a duration of any length; InputError for text that does not parse."""
    text = plain(text)
    if isinstance(text, timedelta):
        return text // MICROSECOND
    match = (
        re.fullmatch(rf"\s*(\d{{1,{_DIGITS}}})\s*([a-z]+)\s*", text.lower())
        if isinstance(text, str)
        else None
    )
    if match is not None and text.strip()[-len(match[2]) :] == "M":
        raise InputError(
            f"not a duration: {shortened(text)}. M is minutes to some and months to others: write "
            f"'{match[1]}m' for minutes, or '{30 * int(match[1])}d' for months of 30 days."
        )
    # First the word as it is: 'ms' is not the plural of 'm'.
    unit = _UNITS.get(match[2], _UNITS.get(match[2].removesuffix("s"))) if match else None
    if match is None or unit is None:
        raise InputError(
            f"not a duration: {shortened(text)}. Expected a whole number and a unit from microseconds to "
            "weeks, such as '1 day', '7d' or '15 minutes'."
        )
    return int(match[1]) * unit


def from_epoch_us(us: int) -> datetime:
    """The UTC datetime of microseconds since 1970; outside the years 1 to 9999 the nearest one inside."""
    return EPOCH + min(max(us, FIRST_US), LAST_US) * MICROSECOND


def end_from_epoch_us(us: int) -> datetime | None:
    """The time before which a window ends; None for one that holds the last time there is, `LAST_US`."""
    return None if us > LAST_US else from_epoch_us(us)


@dataclass(frozen=True, slots=True)
class TickGrid:
    """How event time is cut into ticks of a width in microseconds.

    horizon   the tick before which rows have expired; None if none ever did
    """

    width_us: int
    horizon: int | None = None

    @property
    def origin_us(self) -> int:
        """A time at which a tick starts: 1970, or a Monday where ticks are whole weeks."""
        return MONDAY_US if self.width_us % WEEK_US == 0 else 0

    @property
    def ticks_a_day(self) -> int | None:
        """How many ticks a day has; None where ticks do not divide a day."""
        return None if DAY_US % self.width_us else DAY_US // self.width_us

    def tick_of(self, us: T) -> T:
        """The tick that holds a time, or an array of times, in microseconds since 1970."""
        tick: T = (us - self.origin_us) // self.width_us
        return tick

    def start_of(self, tick: int) -> int:
        """When a tick starts, in microseconds since 1970."""
        return tick * self.width_us + self.origin_us

    def next_start(self, us: int) -> int:
        """The first tick that starts at a time or later."""
        return -((self.origin_us - us) // self.width_us)

    def cuts(self, us: int) -> bool:
        """Whether a time lies inside a tick, and not where one starts."""
        return (us - self.origin_us) % self.width_us != 0


@dataclass(frozen=True, slots=True)
class Window:
    """A range of ticks: `start` inclusive, `stop` exclusive."""

    start: int
    stop: int

    def holds(self, ticks: NDArray[np.int64]) -> NDArray[np.bool_]:
        """A mask of the ticks that lie in the window; `ALL_TIME` also holds NO_TICK and the last int64."""
        if self == ALL_TIME:
            return np.ones(len(ticks), dtype=bool)
        return (ticks >= self.start) & (ticks < self.stop)

    def slice_of(self, ticks: NDArray[np.int64]) -> slice:
        """Where ascending ticks lie in the window. O(log ticks)."""
        if self == ALL_TIME:
            return slice(0, len(ticks))
        first, stop = ticks.searchsorted([self.start, self.stop])
        return slice(int(first), int(stop))

    def covers(self, first: int, last: int) -> bool:
        """Whether every tick from `first` to `last`, inclusive, lies in the window."""
        return self == ALL_TIME or (self.start <= first and last < self.stop)

    def misses(self, first: int, last: int) -> bool:
        """Whether no tick from `first` to `last`, inclusive, lies in the window."""
        return last < self.start or (first >= self.stop and self != ALL_TIME)


ALL_TIME = Window(NO_TICK, _LAST)


def window_between(start: Any, end: Any, grid: TickGrid | None) -> Window:
    """The ticks that [start, end) touches; None leaves that side open. InputError if there is none.

    `start` and `end` are times, or step numbers if the warehouse has no time column (`grid` is None).
    A tick that contains `start` or `end` belongs to the window as a whole: with ticks of an hour the window
    from 9:30 to 11:15 is that from 9:00 to 12:00.
    """
    start, end = plain(start), plain(end)
    if grid is None:
        for edge in (start, end):
            if edge is not None and (isinstance(edge, bool) or not isinstance(edge, int)):
                raise InputError(
                    "this warehouse has no time column: a window's edge is a step number, got "
                    f"{shortened(edge)}."
                )
        first = NO_TICK + 1 if start is None else max(start, NO_TICK + 1)
        stop = _LAST if end is None else min(end, _LAST)  # no step lies beyond
    else:
        first = NO_TICK + 1 if start is None else grid.tick_of(first_us(start))
        stop = _LAST if end is None else grid.next_start(first_us(end))
    if stop <= first:
        raise InputError(
            f"the window is empty by itself: between {shortened(start)} and {shortened(end)} (the end is "
            "exclusive)."
        )
    return Window(first, stop)


def window_last(span: Any, newest: int, grid: TickGrid | None) -> Window:
    """The last ticks of the data that cover `span`, up to the tick `newest`, inclusive.

    `span` is a duration, which is rounded up to whole ticks; or a number of steps if the warehouse has no
    time column (`grid` is None).
    """
    span = plain(span)
    if grid is None:
        if isinstance(span, bool) or not isinstance(span, int) or span < 1:
            raise InputError(
                f"this warehouse has no time column: last= is a number of steps, got {shortened(span)}."
            )
        ticks = span
    else:
        ticks = -(-parse_duration(span) // grid.width_us)
    return Window(newest + 1 - ticks, newest + 1)
