"""Durations, times and windows: whole microseconds, whole ticks, also before 1970."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.warehouse.columns.moments import first_us
from tidemark.warehouse.columns.ticks import (
    ALL_TIME,
    NO_TICK,
    TickGrid,
    Window,
    from_epoch_us,
    parse_duration,
    parse_grace,
    window_between,
    window_last,
)
from tidemark.warehouse.errors import InputError

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SECOND = 10**6
UNITS = {
    ("us", "microsecond", "microseconds"): 1,
    ("ms", "millisecond", "milliseconds", "MS"): 1_000,
    ("s", "sec", "secs", "second", "seconds", "Second"): SECOND,
    ("m", "min", "mins", "minute", "minutes"): 60 * SECOND,
    ("h", "hour", "hours"): 3600 * SECOND,
    ("d", "day", "days", "Days"): 86_400 * SECOND,
    ("w", "week", "weeks"): 7 * 86_400 * SECOND,
}


@pytest.mark.parametrize(
    ("unit", "width"), [(unit, width) for units, width in UNITS.items() for unit in units]
)
def test_every_unit_means_what_it_says(unit: str, width: int) -> None:
    for text in (f"1{unit}", f"1 {unit}", f"  1  {unit} ", f"001 {unit}"):
        assert parse_duration(text) == parse_grace(text) == width
    assert parse_duration(f"15 {unit}") == 15 * width


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1",
        "day",
        "1.5 days",
        "-1 day",
        "1 day 2 hours",
        "1 fortnight",
        "1 month",
        "1y",
        None,
        5,
        1.0,
        b"1 day",
    ],
)
def test_anything_else_is_no_duration(text: Any) -> None:
    with pytest.raises(InputError, match="duration"):
        parse_duration(text)


@pytest.mark.parametrize("nothing", ["0 s", "0 days", "0us", timedelta(0)])
def test_no_time_at_all_is_a_grace_and_no_duration(nothing: Any) -> None:
    assert parse_grace(nothing) == 0
    with pytest.raises(InputError, match="positive"):
        parse_duration(nothing)


@pytest.mark.parametrize(
    "grace", ["0soon", "0.5 days", "soon", "-0 s", timedelta(-1), "20000 weeks", None, 5, False, np.zeros(2)]
)
def test_a_grace_that_is_none_is_refused(grace: Any) -> None:
    with pytest.raises(InputError):
        parse_grace(grace)


def test_a_plain_zero_is_a_grace() -> None:
    assert parse_grace("0") == parse_grace(0) == 0


@pytest.mark.parametrize("width", [timedelta(-1), "20000 weeks", timedelta.max])
def test_a_duration_is_positive_and_at_most_285_years(width: Any) -> None:
    with pytest.raises(InputError, match="positive and at most 285 years"):
        parse_duration(width)
    assert parse_duration(timedelta(microseconds=2**53)) == 2**53


@given(st.datetimes())
def test_times_go_to_microseconds_and_back_exactly(moment: datetime) -> None:
    """Naive means UTC, whatever zone the machine is in; a zone is honoured."""
    us = first_us(moment)
    assert from_epoch_us(us) == moment.replace(tzinfo=UTC)
    assert us == (moment.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)
    assert first_us(moment.isoformat()) == us
    assert first_us(moment.date()) == us // 86_400_000_000 * 86_400_000_000
    if timedelta(1) < moment - datetime.min < datetime.max - datetime.min - timedelta(1):  # noqa: DTZ901
        zone = timezone(timedelta(hours=-7))
        assert first_us(moment.replace(tzinfo=UTC).astimezone(zone)) == us


@pytest.mark.parametrize("bad", ["yesterday", "", "2001-13-01", 5, None, 1.5])
def test_anything_else_is_no_time(bad: Any) -> None:
    with pytest.raises(InputError, match="not a time"):
        first_us(bad)


@given(
    st.datetimes(datetime(1950, 1, 1), datetime(2050, 1, 1)),  # noqa: DTZ001
    st.timedeltas(timedelta(microseconds=1), timedelta(days=4000)),
    st.sampled_from([1, 7, SECOND, 3600 * SECOND, 86_400 * SECOND, 7 * 86_400 * SECOND]),
    st.data(),
)
def test_a_window_takes_each_tick_that_it_touches_and_no_other(
    start: datetime, length: timedelta, tick_us: int, data: st.DataObject
) -> None:
    end = start + length
    grid = TickGrid(tick_us)
    window = window_between(start, end, grid)
    inside = first_us(start) + data.draw(st.integers(0, first_us(end) - first_us(start) - 1))
    assert window.holds(grid.tick_of(np.array([inside])))[0]
    assert grid.start_of(window.start) <= first_us(start) < grid.start_of(window.start + 1)
    assert grid.start_of(window.stop - 1) < first_us(end) <= grid.start_of(window.stop)
    assert grid.cuts(inside) == (grid.start_of(grid.tick_of(inside)) != inside)


def test_a_window_before_1970_is_cut_downwards() -> None:
    day = TickGrid(86_400 * SECOND)
    assert window_between("1969-12-31 23:59:59.999999", "1970-01-01", day) == Window(-1, 0)
    assert window_between("1969-12-31", "1970-01-01 00:00:00.000001", day) == Window(-1, 1)
    assert window_between(date(1969, 12, 30), date(1969, 12, 31), day) == Window(-2, -1)


def test_an_open_side_takes_all_but_rows_without_a_time() -> None:
    for window in (
        window_between(None, "2000-01-01", TickGrid(SECOND)),
        window_between("1900-01-01", None, TickGrid(SECOND)),
        window_between(None, None, TickGrid(SECOND)),
    ):
        assert not window.holds(np.array([NO_TICK]))[0]
    assert window_between(None, 3, None).holds(np.array([-(2**62), 2, 3])).tolist() == [True, True, False]
    assert ALL_TIME.holds(np.array([NO_TICK, 0, 2**63 - 1])).all()


@pytest.mark.parametrize(
    ("start", "end"), [("2000-01-02", "2000-01-01"), ("2000-01-01", "2000-01-01"), ("x", None), (5, None)]
)
def test_a_window_that_is_empty_by_itself_is_refused(start: Any, end: Any) -> None:
    with pytest.raises(InputError):
        window_between(start, end, TickGrid(SECOND))


@pytest.mark.parametrize(
    ("start", "end"), [(3, 3), (4, 3), (True, 5), ("1", None), (1.0, None), (None, date(2000, 1, 1))]
)
def test_edges_without_a_time_column_are_step_numbers(start: Any, end: Any) -> None:
    with pytest.raises(InputError):
        window_between(start, end, None)
    assert window_between(np.int64(2), 5, None) == Window(2, 5)


@given(st.integers(-(10**6), 10**6), st.integers(1, 10**9), st.integers(1, 10**9))
def test_the_last_span_is_rounded_up_to_whole_ticks_and_ends_with_the_newest(
    newest: int, span: int, tick: int
) -> None:
    window = window_last(timedelta(microseconds=span), newest, TickGrid(tick))
    assert window.stop == newest + 1
    assert (window.stop - window.start - 1) * tick < span <= (window.stop - window.start) * tick
    assert window_last(span, newest, None) == Window(newest + 1 - span, newest + 1)


@pytest.mark.parametrize("span", [0, -1, "1 day", 1.0, True, None])
def test_the_last_steps_are_a_whole_number(span: Any) -> None:
    with pytest.raises(InputError, match="number of steps"):
        window_last(span, 5, None)


@given(st.integers(-5, 5), st.integers(1, 5), st.integers(-5, 5), st.integers(0, 5))
def test_covers_and_misses_say_what_holds_says(start: int, more: int, first: int, wide: int) -> None:
    window, last = Window(start, start + more), first + wide
    inside = window.holds(np.arange(first, last + 1))
    assert window.covers(first, last) == inside.all()
    assert window.misses(first, last) == (not inside.any())
