"""Answers by window (`every`), against sorted lists and Counters of the rows of each window."""

from __future__ import annotations

import math
import tempfile
from collections import Counter
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.query.groupworld import BATCHES, HOUR, MEMORY, START, GroupWorld, Truth, check_quantile
from tests.soak import draws
from tidemark import query, warehouse
from tidemark.query import EmptyWindow, InputError
from tidemark.query.asking import key_questions
from tidemark.query.keys import key_relation
from tidemark.query.reading import windows
from tidemark.warehouse.columns import tick_counts
from tidemark.warehouse.columns.ticks import TickGrid, window_between

SOME = settings(max_examples=draws(3), suppress_health_check=[HealthCheck.too_slow])
PHIS = [0, 0.5, 1]
WINDOWS = st.none() | st.tuples(st.integers(0, 24), st.integers(1, 20)).map(
    lambda ticks: (START + ticks[0] * HOUR, START + (ticks[0] + ticks[1]) * HOUR)
)
Window = tuple[datetime, datetime]


def expected_windows(world: GroupWorld, window: Window | None, every: timedelta) -> list[Window]:
    """The parts of a window that the data reaches, by the definition, for whole hours since 1970."""
    times = [row[0] for row in world.rows if row[0] is not None]
    inside = [time for time in times if window is None or window[0] <= time < window[1]]
    if not times:
        return []
    low = max(floor(min(times), HOUR), window[0]) if window else floor(min(times), HOUR)
    high = min(floor(max(times), HOUR) + HOUR, window[1]) if window else floor(max(times), HOUR) + HOUR
    if low >= high:
        assert not inside
        return []
    parts, start = [], floor(low, every)
    while start < high:
        end = start + every
        parts.append((max(start, window[0]), min(end, window[1])) if window else (start, end))
        start = end
    return parts


def floor(time: datetime, every: timedelta) -> datetime:
    origin = datetime(1970, 1, 5 if every % timedelta(days=7) == timedelta(0) else 1, tzinfo=UTC)
    return origin + (time - origin) // every * every


@pytest.mark.slow
@SOME
@given(
    BATCHES,
    WINDOWS,
    st.sampled_from([1, 2, 3, 24]),
    st.sampled_from(["quick", "accurate", "exact"]),
    st.sampled_from(
        [
            {},
            {"where": {"origin": "a"}},
            {"where": {"origin": ["a", "b"]}},
            {"where": {"number": 1}},
            {"by": "origin"},
            {"by": "number", "where": {"origin": "a"}},
            {"by": ["number"]},
        ]
    ),
    st.sampled_from(["value", "price"]),
    MEMORY,
)
def test_each_window_is_answered_as_its_rows_are(
    batches: Any,
    window: Window | None,
    hours: int,
    mode: Any,
    asked: dict[str, Any],
    measure: str,
    memory: int,
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world, every = GroupWorld.of(Path(folder), batches), hours * HOUR
        wh, parts = world.open(memory=memory), expected_windows(world, window, every)
        check_keys(wh, world, window, every)
        where = asked.get("where", {})
        rows = world.truth(measure, where, window)
        options = {"between": window, "mode": mode, "every": every, **asked}
        if not parts or ("by" not in asked and not inside(world, measure, where, parts)):
            with pytest.raises(EmptyWindow):
                wh.quantile(PHIS, measure, **options)
            return
        answers = wh.quantile(PHIS, measure, **options)
        groups = list(dict.fromkeys(str(answer.group) for answer in answers))
        assert [answer.window for answer in answers] == [part for _ in groups for part in parts for _ in PHIS]
        for answer in answers:
            truth = world.truth(measure, {**where, **(answer.group or {})}, answer.window)
            scanned = asked.get("where") == {"number": 1} or asked.get("by") == ["number"]
            check_quantile(answer, truth, "exact" if scanned else mode)
            assert (answer.rows_scanned is not None) == scanned
        total = sum(answer.N for answer in answers[:: len(PHIS)])
        assert "by" in asked or window is None or total == rows.n
        ranks = wh.rank([0, 1], measure, **options)
        assert all(answer.rank_lo <= answer.rank <= answer.rank_hi for answer in ranks)
        for answer in ranks if mode != "quick" and asked else ():
            truth = world.truth(measure, {**where, **(answer.group or {})}, answer.window)
            assert answer.rank == truth.rank(answer.value)


def inside(world: GroupWorld, measure: str, where: dict[str, Any], parts: list[Window]) -> int:
    truths: list[Truth] = [world.truth(measure, where, part) for part in parts]
    return sum(truth.n for truth in truths)


def check_keys(wh: query.Warehouse, world: GroupWorld, window: Window | None, every: timedelta) -> None:
    """The counts of keys by window are those of a Counter."""
    parts = expected_windows(world, window, every)
    counts = {
        part: Counter(row[1] for row in world.rows if row[0] and part[0] <= row[0] < part[1])
        for part in parts
    }
    options: dict[str, Any] = {"between": window, "mode": "exact", "every": every, "key": "origin"}
    answers = wh.frequency(["a", "b"], **options)
    assert [(answer.window, answer.value, answer.count) for answer in answers] == [
        (part, name, counts[part][name]) for part in parts for name in ("a", "b")
    ]
    named = [sum(rows for name, rows in counts[part].items() if name is not None) for part in parts]
    assert [answer.count for answer in wh.key_range(None, None, **options)] == named
    squares = [sum(rows**2 for name, rows in counts[part].items() if name is not None) for part in parts]
    assert [answer.count for answer in wh.self_join(**options)] == squares
    best = wh.top(2, **options)
    for part in parts:
        most = [answer for answer in best if answer.window == part]
        truth = sorted((rows for name, rows in counts[part].items() if name is not None), reverse=True)
        assert [answer.count for answer in most] == truth[:2]


CUT: list[dict[str, Any]] = [
    {"between": (START + HOUR / 2, START + 5 * HOUR / 2)},
    {"between": (None, START + 5 * HOUR / 2)},
    {"between": (START + 3 * HOUR / 2, None)},
    {"between": (START - 9 * HOUR / 2, START + HOUR / 4)},
    {"last": "90m"},
]


@pytest.mark.parametrize("is_broken", [False, True])
def test_windows_that_cut_a_tick_are_widened_for_measures_and_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_broken: bool
) -> None:
    """The broken variant takes one of the whole ticks inside the window."""
    wh = GroupWorld.of(tmp_path, [(True, rows_of([START + hour * HOUR for hour in range(5)]))]).open()
    if is_broken:
        grid = TickGrid(3_600_000_000)
        inner = window_between(START + HOUR, START + 2 * HOUR, grid)
        monkeypatch.setattr("tidemark.query.keys.key_windows.choose_window", lambda *_: inner)
    for window in CUT:
        expected = [(answer.window, answer.N) for answer in wh.rank(0.0, every="1h", **window)]
        found = [
            [(answer.window, answer.N) for answer in ask(every="1h", **window)]
            for ask in (partial(wh.frequency, "a"), wh.distinct, partial(wh.top, 1))
        ]
        assert (found == [expected] * 3) != is_broken


def counted_world(folder: Path) -> GroupWorld:
    """Keys of few rows in each hour, which no list reaches. Some are NULL, and some rows have no time."""
    names, rows = [None, "a", "b", "é"], list[Any]()
    for i in range(400):
        time = None if i % 50 == 0 else START + i % 9 * HOUR
        rows.append((time, names[i * i % 7 % 4], i % 37, 1.0, None))
    return GroupWorld.of(folder, [(True, rows[:150]), (True, rows[150:250]), (False, rows[250:])])


@pytest.mark.parametrize("is_broken", [False, True])
def test_all_windows_share_one_scan_of_the_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_broken: bool
) -> None:
    """Each run is read once for all windows. The broken variant reads it for each window."""
    world, key = counted_world(tmp_path), ["number", "origin"]
    wh, read = world.open(), Counter[Any]()
    relation = key_relation.KeyDatabase.relation

    def counting(database: Any, rows: Any, codes: Any = None) -> Any:
        read.update(share.marks.run for share in rows.history.shares)
        return relation(database, rows, codes)

    monkeypatch.setattr(key_relation.KeyDatabase, "relation", counting)
    if is_broken:
        monkeypatch.setattr(key_questions, "ScannedWindow", lambda *_: None)
    parts = expected_windows(world, None, 2 * HOUR)
    truth = [
        Counter((row[2], row[1]) for row in world.rows if row[0] and row[1] and start <= row[0] < end)
        for start, end in parts
    ]
    seen = [set().union(*truth[:i]) for i in range(len(truth))]
    for mode in ("exact", "approximate"):
        options: dict[str, Any] = {"key": key, "every": "2h", "mode": mode}
        by_part: dict[Any, dict[Any, int]] = {part: {} for part in parts}
        of_part = dict(zip(parts, truth, strict=True))
        for one in wh.top(1000, **options):
            true = of_part[cast("Window", one.window)][one.value]
            by_part[one.window][one.value] = one.count if mode == "exact" else true
            assert one.lo <= true <= one.hi
        assert [by_part[part] for part in parts] == truth
        assert [one.count for one in wh.self_join(**options)] == [
            sum(rows * rows for rows in one.values()) for one in truth
        ]
    options = {"key": key, "every": "2h", "mode": "exact"}
    assert [one.count for one in wh.distinct(**options)] == list(map(len, truth))
    fresh = wh.new_keys(between=(parts[0][0], None), **options)
    assert [one.count for one in fresh] == [len(set(one) - old) for one, old in zip(truth, seen, strict=True)]
    assert (max(read.values()) > 6) == is_broken


def rows_of(times: list[datetime]) -> list[Any]:
    return [(time, "a", 1, float(number), None) for number, time in enumerate(times)]


def test_weeks_start_on_mondays_and_tables_have_a_time_index(tmp_path: Path) -> None:
    world = GroupWorld.of(tmp_path, [(True, rows_of([START + day * 24 * HOUR for day in range(17)]))])
    answers = world.open().quantile(1, every="7d")
    assert [start.weekday() for start in answers.to_pandas().index] == [0, 0, 0]
    assert [answer.value for answer in answers] == [6, 13, 16]
    frame = answers.to_pandas()
    assert frame.index.name == "start"
    assert str(frame.index.dtype).startswith("datetime64")
    assert frame.columns.tolist()[0] == "end"
    assert frame["N"].tolist() == [7, 7, 3]
    by = world.open().quantile([0, 1], every="7d", by="origin", last="8d")
    assert by.to_arrow().column_names[:4] == ["origin", "start", "end", "phi"]
    assert by.to_json().count('"window"') == len(by) == 4
    assert "2 windows" in world.open().frequency("a", every="7d", last="8d").caption
    histogram = world.open().histogram(2, every="7d")
    assert [one.counts for one in histogram] == [[3, 4], [3, 4], [1, 2]]


def test_a_group_column_may_have_the_name_of_an_own_column(tmp_path: Path) -> None:
    world = GroupWorld.of(tmp_path, [(True, rows_of([START, START + HOUR]))])
    names = world.open().quantile(0.5, "price", by="value").to_arrow().column_names
    assert names[:3] == ["group_value", "phi", "value"]


def test_windows_without_rows_are_answered_without_a_value(tmp_path: Path) -> None:
    world = GroupWorld.of(tmp_path, [(True, rows_of([START, START + 3 * HOUR]))])
    for asked in ({}, {"where": {"origin": "a"}}, {"where": "number = 1"}):
        answers = world.open().quantile(0.5, every="1h", **asked)
        assert [(answer.N, answer.value) for answer in answers] == [(1, 0), (0, None), (0, None), (1, 1)]
        shares = world.open().cdf(0, every="1h", **asked)
        assert [math.isnan(answer.cdf) for answer in shares] == [False, True, True, False]


def test_steps_are_windows_without_a_time_column(tmp_path: Path) -> None:
    warehouse.create(
        None, tmp_path / "w", ["x"], schema=pa.schema([("x", pa.float64()), ("k", pa.string())]), groups=["k"]
    )
    for step in range(5):
        warehouse.load(None, tmp_path / "w", pa.table({"x": [float(step)] * 2, "k": ["a", "b"]}), f"{step}")
    wh = query.open(tmp_path / "w")
    answers = wh.quantile(0.5, every=2, by="k")
    assert [answer.window for answer in answers] == [(0, 2), (2, 4), (4, 6)] * 2
    assert [answer.N for answer in answers] == [2, 2, 1] * 2
    assert answers.to_pandas().index.tolist() == [0, 2, 4] * 2
    with pytest.raises(
        InputError, match=r"every must be a whole number of at least 1, got '1h'\. It counts steps"
    ):
        wh.quantile(0.5, every="1h")


@pytest.mark.parametrize(
    ("every", "words"),
    [
        ("90m", "every='90m' is not a multiple of the tick"),
        ("0h", "must be positive"),
        ("often", "often"),
        (timedelta(hours=-1), "must be positive"),
        (7, "7"),
    ],
)
def test_an_every_that_cannot_be_is_refused(tmp_path: Path, every: Any, words: str) -> None:
    world = GroupWorld.of(tmp_path, [(True, rows_of([START]))])
    with pytest.raises(InputError, match=words):
        world.open().quantile(0.5, every=every)
    with pytest.raises(InputError, match=words):
        world.open().frequency("a", every=every)


def test_too_many_windows_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = GroupWorld.of(tmp_path, [(True, rows_of([START, START + 3 * HOUR]))])
    monkeypatch.setattr(windows, "MOST_WINDOWS", 3)
    with pytest.raises(InputError, match="makes 4 windows, more than 3"):
        world.open().quantile(0.5, every="1h")


def test_rows_in_a_neighbouring_window_are_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken variant: the window of a row is off by one tick."""
    world = GroupWorld.of(tmp_path, [(False, rows_of([START + hour * HOUR for hour in range(8)]))])

    def check() -> None:
        for answer in world.open().quantile(0, every="2h", where={"origin": "a"}):
            check_quantile(answer, world.truth("value", {"origin": "a"}, answer.window), "accurate")

    check()
    codes = tick_counts.window_codes
    monkeypatch.setattr(tick_counts, "window_codes", lambda ticks, parts: codes(ticks + 1, parts))
    with pytest.raises(AssertionError):
        check()
