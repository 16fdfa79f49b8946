"""A window says what it counts, up to the last microsecond of the year 9999, a common sentinel."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from tests.query.answers import several
from tidemark import query, stream, warehouse
from tidemark.query import Warehouse
from tidemark.query.plots import window_plot
from tidemark.query.reading import windows
from tidemark.warehouse.columns.ticks import from_epoch_us
from tidemark.warehouse.errors import EmptyWindow

FIRST, LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
DAY = timedelta(days=1)
TIMES = [FIRST, FIRST + DAY, LAST - 40 * DAY, LAST - DAY, LAST - timedelta(hours=1), LAST, LAST]


@pytest.fixture(scope="module", params=["1 day", "7 days", "1 hour"])
def wh(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    uri = str(tmp_path_factory.mktemp("end") / "w")
    times = pa.array(TIMES, pa.timestamp("us", "UTC"))
    rows = pa.table({"x": [float(i) for i in range(len(TIMES))], "k": [1] * len(TIMES), "t": times})
    chosen: dict[str, Any] = {"key": "k", "groups": ["k"], "time": "t", "tick": request.param}
    warehouse.create(None, uri, ["x"], schema=rows.schema, **chosen)
    warehouse.load(None, uri, rows, "a", ahead=None)
    stream.append(None, uri, rows, source="s", batch=0, ahead=None)
    return query.open(uri)


def rows_in(window: tuple[Any, Any] | None) -> int:
    """The rows of the window as the answer shows it."""
    start, end = window or (None, None)
    inside = [(start is None or start <= t) and (end is None or t < end) for t in TIMES * 2]
    return sum(inside)


ASKED: list[dict[str, Any]] = [
    {},
    {"last": "1 day"},
    {"last": "14 days"},
    {"last": "42 days"},
    {"between": (LAST - 2 * DAY, None)},
    {"between": (LAST - 2 * DAY, LAST)},
    {"between": (None, LAST)},
    {"between": (FIRST, "9999-12-31 23:59:59.9999995")},
]


def answers(wh: Warehouse, asked: dict[str, Any]) -> Iterator[Any]:
    yield wh.quantile(0.5, **asked, mode="exact")
    yield wh.quantile(0.5, **asked, where={"k": 1})
    yield wh.quantile(0.5, **asked, where="k = 1")
    yield from several(wh.frequency([1], **asked, mode="exact"))
    if wh.tick is not None and wh.tick >= DAY:
        yield from wh.quantile(0.5, last="42 days", every=wh.tick, mode="exact")
        yield from wh.frequency(1, last="42 days", every=wh.tick, mode="exact")


def check_windows(wh: Warehouse, asked: dict[str, Any]) -> None:
    for answer in answers(wh, asked):
        low, high = (answer.lo, answer.hi) if hasattr(answer, "lo") else (answer.N, answer.N)
        assert low <= rows_in(answer.window) <= high, (asked, answer)
        assert "9999-12-31 23:59:59.999999" not in repr(answer) or asked.get("between", (0,))[-1] == LAST


@pytest.mark.parametrize("asked", ASKED, ids=range(len(ASKED)))
def test_a_window_shows_the_rows_that_it_counts(wh: Warehouse, asked: dict[str, Any]) -> None:
    check_windows(wh, asked)


def test_slots_and_spans_show_the_rows_that_they_count(wh: Warehouse) -> None:
    assert wh.span() == (wh.span(between=(FIRST, FIRST + DAY / 24))[0], None)
    found = wh.persistence(1, last="42 days")
    assert sum(map(rows_in, found.present)) == rows_in(found.window)
    with pytest.raises(EmptyWindow, match="to the end of the year 9999"):
        wh.quantile(0.5, between=("2000-01-01", "2001-01-01"))


def check_overlapping_parts(wh: Warehouse) -> None:
    """No two parts are shown alike at the ends of the calendar, and each has the rows that it shows."""
    for between in ((LAST - 2 * DAY, None), (LAST - 2 * DAY, LAST), (None, FIRST + 2 * DAY)):
        asked: dict[str, Any] = {"between": between, "every": "7 days", "width": "28 days"}
        for parts in (several(wh.rank(3, **asked, mode="exact")), several(wh.frequency(1, **asked))):
            shown = [one.window for one in parts]
            assert len(shown) == len(set(shown)), shown
            assert [one.N for one in parts] == list(map(rows_in, shown))


def test_overlapping_parts_are_shown_apart(wh: Warehouse) -> None:
    check_overlapping_parts(wh)


def test_parts_that_leave_the_calendar_are_caught(wh: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "LAST_US", 2**62)
    with pytest.raises(AssertionError):
        check_overlapping_parts(wh)


def test_figures_reach_to_the_end(wh: Warehouse) -> None:
    if wh.tick is None or wh.tick < DAY:
        return
    for draw in (wh.plot.quantiles, wh.plot.distinct):
        draw(every=wh.tick, last="42 days")
    wh.plot.persistence(last="42 days", slot=wh.tick)


def test_an_end_that_is_clamped_is_caught(wh: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "end_from_epoch_us", from_epoch_us)
    with pytest.raises(AssertionError):
        check_windows(wh, {"last": "14 days"})
    assert window_plot.drawn_end(None) == LAST
