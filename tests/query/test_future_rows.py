"""Rows of a wrong clock in the future, if every time is taken: `last` is about now, series end."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.query.answers import several, single
from tidemark import query, stream, warehouse
from tidemark.query.reading import windows
from tidemark.warehouse.columns.ticks import DAY_US, TickGrid, Window

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)
DAY = timedelta(days=1)
DAYS = [NOW - i * DAY for i in (0, 1, 2, 20)]  # each with one row of 1.0
FAR = datetime(2099, 1, 1, 5, tzinfo=UTC)
SCHEMA = pa.schema([("at", pa.timestamp("us", tz="UTC")), ("x", pa.float64()), ("k", pa.string())])
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> list[datetime]:
    """The clock stands still at the first item."""
    now = [NOW]
    monkeypatch.setattr(windows, "now_us", lambda: (now[0] - EPOCH) // timedelta(microseconds=1))
    return now


def table(times: list[Any], x: float) -> pa.Table:
    return pa.table({"at": times, "x": [x] * len(times), "k": ["a"] * len(times)}, schema=SCHEMA)


def made(path: Path, good: list[datetime], bad: list[datetime], *, live: bool) -> query.Warehouse:
    warehouse.create(None, path, ["x"], key="k", groups=["k"], time="at", tick="1 day", schema=SCHEMA)
    for name, rows in (("good", table(good, 1.0)), ("bad", table([*bad, None], 9.0))):
        if live:
            stream.append(None, path, rows, source=name, batch=0, ahead=None)
        else:
            warehouse.load(None, path, rows, name, ahead=None)
    return query.open(path)


@pytest.fixture(params=[False, True], ids=["history", "live"])
def wh(request: pytest.FixtureRequest, tmp_path: Path) -> query.Warehouse:
    return made(tmp_path, DAYS, [FAR, FAR - 3 * DAY], live=request.param)


START, END = datetime(2026, 3, 9, tzinfo=UTC), datetime(2026, 3, 11, tzinfo=UTC)
SAID = "counted back from 2026-03-11 00:00:00: rows up to 2099-01-02 00:00:00 lie in the future of the clock"


def questions(wh: query.Warehouse, **window: Any) -> list[Any]:
    """One answer of each kind of question."""
    return [
        *(wh.quantile(0.5, mode=mode, **window) for mode in ("quick", "accurate", "exact")),
        wh.rank(5.0, **window),
        wh.histogram([0, 10], **window),
        wh.quantile(0.5, where={"k": "a"}, **window),
        *(wh.quantile(0.5, by="k", **window)),
        *(wh.frequency("a", mode=mode, **window) for mode in ("approximate", "exact")),
        *wh.top(3, **window),
        *wh.heavy_hitters(0.5, **window),
        wh.distinct(**window),
        wh.key_range("a", "b", **window),
    ]


def check_last(wh: query.Warehouse) -> None:
    for answer in questions(wh, last="2 days"):
        assert (answer.window, answer.N) == ((START, END), 2)
        assert SAID in str(answer.scope_text)
        assert answer.scope_facts["widened"] == SAID
    assert single(wh.quantile(1, last="2 days")).value == 1.0
    assert single(wh.frequency("a", last="36 hours")).hi == 2
    assert SAID in single(wh.frequency("a", last="36 hours")).scope_text
    assert "widened from last='36 hours'" in (text := single(wh.quantile(1, last="36 hours")).scope_text)
    assert text.index("widened") < text.index(SAID)
    assert wh.span(last="2 days") == (START, END)


def test_last_counts_back_from_the_newest_tick_that_is_not_in_the_future(wh: query.Warehouse) -> None:
    check_last(wh)


def test_windows_that_are_named_have_all_their_rows(wh: query.Warehouse) -> None:
    for window in ({}, {"between": (None, None)}, {"between": (START, None)}):
        answer = single(wh.quantile(1, **window))
        assert answer.value == 9.0
        assert "future" not in answer.scope_text
    assert single(wh.quantile(1, between=("2098-12-01", "2100-01-01"))).N == 2
    assert wh.span() == (datetime(2026, 2, 18, tzinfo=UTC), datetime(2099, 1, 2, tzinfo=UTC))


def test_nothing_is_said_where_nothing_lies_in_the_future(
    wh: query.Warehouse, tmp_path: Path, clock: list[datetime]
) -> None:
    """The clock reaches the rows; or there are no others; or the newest tick is that of the clock."""
    clock[0] = FAR - timedelta(hours=4)
    answer = single(wh.quantile(1, last="4 days"))
    assert (answer.N, answer.window) == (
        2,
        (FAR - 3 * DAY - timedelta(hours=5), datetime(2099, 1, 2, tzinfo=UTC)),
    )
    clock[0] = NOW
    alone = made(tmp_path / "alone", [FAR], [], live=False)
    assert single(alone.quantile(1, last="1 day")).window == (
        FAR - timedelta(hours=5),
        datetime(2099, 1, 2, tzinfo=UTC),
    )
    today = made(tmp_path / "today", DAYS, [NOW + timedelta(hours=11)], live=True)
    assert single(today.quantile(1, last="1 day")).N == 2
    for one in (alone, today):
        assert "future" not in single(one.quantile(1, last="1 day")).scope_text


def test_info_has_the_span_and_the_rows_in_the_future(wh: query.Warehouse, clock: list[datetime]) -> None:
    assert wh.info()["span"]["end"] == datetime(2099, 1, 2, tzinfo=UTC)
    assert wh.info()["rows_in_the_future"] == 2
    clock[0] = FAR
    assert wh.info()["rows_in_the_future"] == 0


def test_a_series_leaves_out_the_century_without_rows(wh: query.Warehouse) -> None:
    """Gaps of up to MOST_EMPTY windows stay; 26,000 days are no answers."""
    for answers in (several(wh.quantile(1, every="1 day")), several(wh.frequency("a", every="1 day"))):
        starts = [answer.window and answer.window[0] for answer in answers]
        near = [datetime(2026, 2, 18, tzinfo=UTC) + i * DAY for i in range(21)]
        far = [datetime(2098, 12, 29, tzinfo=UTC) + i * DAY for i in range(4)]
        assert starts == [*near, *far]
        assert [answer.N for answer in answers] == [1, *[0] * 17, 1, 1, 1, 1, 0, 0, 1]
    assert len(wh.quantile(1, every="1 day", last="3 days")) == 3


GRID = TickGrid(DAY_US)


def naive(window: Window, ticks: list[int], width: int) -> list[tuple[int, int]]:
    """Every part from the window's first tick of the data to its last, without the long empty stretches."""
    inside = [tick for tick in ticks if window.start <= tick < window.stop]
    if window.stop <= ticks[0] or window.start > ticks[-1]:
        return []
    start, stop = max(window.start, ticks[0]), min(window.stop, ticks[-1] + 1)
    origin = 4 if width % 7 == 0 else 0  # weeks begin on Mondays, and the tick 4 was one
    numbers = range((start - origin) // width, (stop - 1 - origin) // width + 1)
    parts = [(origin + n * width, origin + (n + 1) * width) for n in numbers]
    ends = (0, len(parts) - 1)
    full = [n in ends or any(low <= tick < high for tick in inside) for n, (low, high) in enumerate(parts)]
    kept, at = [], 0
    while at < len(parts):
        run = at
        while run < len(parts) and not full[run]:
            run += 1
        if run - at <= windows.MOST_EMPTY:
            kept += parts[at:run]
        kept += parts[run : run + 1]
        at = run + 1
    return [(max(low, window.start), min(high, window.stop)) for low, high in kept]


def test_parts_are_those_of_a_plain_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "MOST_EMPTY", 3)
    chance = np.random.default_rng(0)
    for _ in range(300):
        ticks = sorted(set(chance.integers(-40, 60, chance.integers(1, 12)).tolist()))
        start = int(chance.integers(-60, 60))
        window = Window(start, start + int(chance.integers(1, 90)))
        width = int(chance.choice([1, 2, 3, 7, 14]))
        found = windows.split_window(window, np.array(ticks), timedelta(days=width), GRID)
        assert [(part.start, part.stop) for part in found] == naive(window, ticks, width), (
            window,
            ticks,
            width,
        )


def last_counts_from_the_newest_of_all(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(windows, "newest_tick", lambda view, _: (windows.tick_range(view) or (0, 0))[1])


def the_answer_does_not_say_so(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(windows, "counted_back_text", lambda *_: None)


@pytest.mark.parametrize("mistake", [last_counts_from_the_newest_of_all, the_answer_does_not_say_so])
def test_mistakes_are_caught(
    wh: query.Warehouse, mistake: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake(monkeypatch)
    with pytest.raises(AssertionError):
        check_last(wh)


def test_a_series_that_walks_every_day_is_caught(
    wh: query.Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(windows, "MOST_EMPTY", 10**9)
    assert len(wh.frequency("a", every="365 days")) > 70
