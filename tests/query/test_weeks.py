"""Weeks begin on Mondays, whatever the tick; where no tick begins then, weeks are refused."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from tidemark import query, stream, warehouse
from tidemark.query import InputError
from tidemark.warehouse.columns.ticks import TickGrid

DAY, WEEK = timedelta(days=1), timedelta(weeks=1)
MONDAY = datetime(1970, 1, 5, tzinfo=UTC)
# Around weekends, year ends, 1970, and the first and last weeks that there are.
TIMES = [
    datetime(2024, 3, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    *(datetime(2024, 3, 28, 12, tzinfo=UTC) + day * DAY for day in range(12)),
    *(datetime(1969, 12, 27, tzinfo=UTC) + day * DAY for day in range(12)),
    datetime(2024, 1, 1, tzinfo=UTC),
    datetime(2023, 12, 31, 23, tzinfo=UTC),
]


def table(times: list[Any]) -> pa.Table:
    columns = {"t": pa.array(times, pa.timestamp("us", "UTC")), "k": ["a"] * len(times)}
    return pa.table({**columns, "x": list(range(len(times)))})


def world(folder: Path, tick: str) -> query.Warehouse:
    """One half in history, one half live, one row without a time."""
    given = table([*TIMES, None])
    warehouse.create(None, folder / "w", "x", key="k", time="t", tick=tick, groups=["k"], schema=given.schema)
    warehouse.load(None, folder / "w", given[:13], "a")
    stream.append(None, folder / "w", given[13:], source="s", batch=0)
    return query.open(folder / "w")


def weeks_of(times: list[datetime], width: timedelta) -> dict[datetime, int]:
    """The rows by the Monday on which their week, or weeks, began: the oracle."""
    return dict(sorted(Counter(MONDAY + (time - MONDAY) // width * width for time in times).items()))


def start_of(answer: Any) -> datetime:
    return cast("datetime", answer.window[0])


def check(wh: query.Warehouse, width: timedelta) -> None:
    truth = weeks_of(TIMES, width)
    between = (datetime(2024, 3, 26, tzinfo=UTC), datetime(2024, 4, 9, tzinfo=UTC))  # whole weeks, widened
    late = {start: rows for start, rows in truth.items() if start.year > 2000}
    for asked in ({}, {"where": {"k": "a"}}, {"where": "k = 'a'"}):
        answers = wh.rank(10**6, every=width, between=("2023-10-02", None), **asked)
        assert {start_of(answer): answer.N for answer in answers if answer.N} == late
    for ask in (wh.distinct, wh.self_join):
        assert start_of(ask(every=width, last="52w")[-1]) == max(truth)
    presence = wh.persistence("a", slot=width, between=(None, None))
    assert [start.weekday() for start, _ in presence.present][1:] == [0] * (len(presence.present) - 1)
    assert presence.slots == len(truth)
    inside = [time for time in TIMES if between[0] <= time < between[1]]
    exact = wh.frequency("a", between=between, mode="exact")
    assert exact.lo <= len(inside) <= exact.hi


@pytest.mark.parametrize("tick", ["1h", "1d", "7d", "1w", "14d"])
def test_weeks_begin_on_mondays(tmp_path: Path, tick: str) -> None:
    wh = world(tmp_path, tick)
    for width in [WEEK, 2 * WEEK, 4 * WEEK][tick == "14d" :]:
        check(wh, width)
    assert wh.span()[0] <= min(TIMES)
    assert warehouse.verify(tmp_path / "w").ok


def test_windows_of_weeks_are_cut_where_weeks_begin(tmp_path: Path) -> None:
    """A window of whole weeks is exact for keys; one that cuts a week has bounds that hold."""
    wh = world(tmp_path, "7d")
    for days in range(14):
        between = (MONDAY + 2829 * WEEK + days * DAY, MONDAY + 2832 * WEEK)
        truth = sum(between[0] <= time < between[1] for time in TIMES)
        answer = wh.frequency("a", between=between, mode="exact")
        assert answer.lo <= truth <= answer.hi
        assert days % 7 or (answer.lo, answer.hi) == (truth, truth)


def test_ticks_that_do_not_divide_a_week_refuse_weeks(tmp_path: Path) -> None:
    wh = world(tmp_path, "5h")
    for ask in (
        lambda: wh.quantile(0.5, every="35d", last="35d"),
        lambda: wh.top(1, every="35d"),
        lambda: wh.persistent(1, slot="35d"),
    ):
        with pytest.raises(InputError, match="whole weeks, which begin on Mondays, but the ticks"):
            ask()
    assert len(TIMES) + 1 == wh.quantile(0.5).N


@pytest.mark.parametrize("broken", ["start_of", "tick_of"])
def test_ticks_that_forget_the_monday_are_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    """The broken variants count ticks from 1970 in one direction alone."""
    plain = {
        "start_of": lambda grid, tick: tick * grid.width_us,
        "tick_of": lambda grid, us: us // grid.width_us,
    }
    monkeypatch.setattr(TickGrid, broken, plain[broken])
    with pytest.raises((AssertionError, InputError)):
        check(world(tmp_path, "7d"), WEEK)
