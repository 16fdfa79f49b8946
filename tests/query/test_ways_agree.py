"""All ways give the same answer."""

from __future__ import annotations

import math
import tempfile
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.query.groupworld import BATCHES, HOUR, PHIS, START, WINDOWS, GroupWorld
from tests.query.ways import OF_KEYS, QUESTIONS, WAYS, Ask, Patch, check_ways, forced, told
from tests.soak import draws
from tidemark import query
from tidemark.query import EmptyWindow, InputError
from tidemark.query.asking import event_keys
from tidemark.query.asking.event_keys import EventKeys
from tidemark.query.asking.session import Session
from tidemark.query.keys import candidates, key_relation
from tidemark.query.keys.live_keys import LiveSide
from tidemark.query.quantiles.questions import WindowQuestion
from tidemark.query.quantiles.window_bounds import WindowBounds
from tidemark.query.reading.costs import Costs
from tidemark.query.scans import row_source


@pytest.fixture(scope="module")
def world(late_and_live: GroupWorld) -> GroupWorld:
    return late_and_live


SOME = settings(max_examples=draws(3), suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.slow
@SOME
@given(BATCHES, WINDOWS, st.permutations(QUESTIONS))
def test_all_ways_give_the_same_answers(batches: Any, window: Any, questions: list[Ask]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        wh = GroupWorld.of(Path(folder), batches).open()
        for question in questions[:5]:
            check_ways(wh, question, between=window)


@pytest.mark.parametrize("window", [None, (START + 3 * HOUR, START + 9 * HOUR)])
@pytest.mark.parametrize("number", range(len(QUESTIONS)))
def test_all_ways_agree_about_late_and_live_rows(world: GroupWorld, number: int, window: Any) -> None:
    check_ways(world.open(), QUESTIONS[number], between=window)


KEY_QUESTIONS = OF_KEYS[:1] + OF_KEYS[2:]  # about keys of one column


def by_events(world: GroupWorld, question: Ask, cost: float, **asked: Any) -> tuple[Any, bool]:
    """What a scan of all keys tells, where one by `events` costs so much; and whether it read these."""
    read: list[Any] = []
    right = EventKeys.rows

    def noted(keys: EventKeys, asked: Any) -> Any:
        read.append(right(keys, asked))
        return read[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Costs, "event_keys", lambda *_: cost)
        patch.setattr(EventKeys, "rows", noted)
        return told(world.open(), question, "scan", **asked), any(one is not None for one in read)


@pytest.mark.parametrize("window", [None, (START + 3 * HOUR, START + 9 * HOUR), (START + 12 * HOUR, None)])
@pytest.mark.parametrize("number", range(len(KEY_QUESTIONS)))
def test_a_scan_of_keys_is_the_same_by_runs_and_by_events(
    world: GroupWorld, number: int, window: Any
) -> None:
    runs, events = (by_events(world, KEY_QUESTIONS[number], cost, between=window) for cost in (math.inf, -1))
    assert events[0] == runs[0]
    assert (runs[1], events[1]) == (False, True)


def test_events_whose_live_rows_are_taken_for_history_are_caught(
    world: GroupWorld, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(event_keys, "LIVE", "is in history")
    right = row_source.RowSource.relation
    monkeypatch.setattr(
        row_source.RowSource,
        "relation",
        lambda *given: (f'SELECT *, 0 AS "is in history" FROM ({right(*given)[0]})', None),
    )
    runs, events = (by_events(world, KEY_QUESTIONS[0], cost)[0] for cost in (math.inf, -1))
    assert runs != events


def test_events_whose_live_rows_are_not_counted_apart_are_caught(
    world: GroupWorld, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(
        event_keys, "EventRows", lambda sql, _, *rest: key_relation.EventRows(sql, False, *rest)
    )
    runs, events = (by_events(world, KEY_QUESTIONS[0], cost)[0] for cost in (math.inf, -1))
    assert runs != events


@pytest.mark.parametrize("is_broken", [False, True])
def test_no_name_certainly_has_more_rows_than_lists_say_at_most(
    world: GroupWorld, monkeypatch: Patch, is_broken: bool
) -> None:
    """Where lists miss more rows than that, keys are scanned at once. The variant forgets live rows."""
    right, above = candidates._bounds_of_lists, list[int]()

    def noted(question: Any, listed: Any, names: Any) -> Any:
        low, high = right(question, listed, names)
        above.append(int(low.max(initial=0)) - candidates._most_certain(question, listed))
        return low, high

    monkeypatch.setattr(candidates, "_bounds_of_lists", noted)
    if is_broken:
        monkeypatch.setattr(LiveSide, "most_known", property(lambda _: 0))
    for window in (None, (START + 3 * HOUR, START + 9 * HOUR), (START + 3.4 * HOUR, START + 17.6 * HOUR)):
        world.open().top(1, key="origin", between=window)
    assert len(above) == 3
    assert (max(above) > 0) == is_broken


def test_events_are_not_read_where_a_load_is_at_work(world: GroupWorld, monkeypatch: Patch) -> None:
    """The view of the key and `events` divide the rows differently then; the runs are scanned."""
    right = Session.contents_of
    asked: list[Any] = []

    def other_view(session: Any, view: Any) -> Any:
        asked.append(right(session, replace(view, batches=())))
        return asked[-1]

    monkeypatch.setattr(Session, "contents_of", other_view)
    runs, events = (by_events(world, KEY_QUESTIONS[0], cost) for cost in (math.inf, -1))
    assert (asked, events) == ([None], runs)


ACCURATE: list[Ask] = [
    lambda wh, **asked: wh.quantile(PHIS, "value", by="origin", **asked),
    lambda wh, **asked: wh.quantile(PHIS, "price", by=["number", "origin"], every=6 * HOUR, **asked),
    lambda wh, **asked: wh.quantile(PHIS, "value", where={"origin": "a"}, **asked),
    lambda wh, **asked: wh.quantile([0.5], "value", by="origin", order="-value", top=2, **asked),
    lambda wh, **asked: wh.rank([-1, 0, 1], "value", by="origin", top=2, **asked),
    lambda wh, **asked: wh.cdf([0], "price", by="number", where={"origin": ["a", "b"]}, **asked),
    lambda wh, **asked: wh.histogram([-2, 0, 1, 2], "value", by="origin", least_rows=2, **asked),
    lambda wh, **asked: wh.quantile(PHIS, "value", every=3 * HOUR, **asked),
]


def answered(wh: query.Warehouse, question: Ask, way: str, **asked: Any) -> Any:
    """The answers, or the refusal."""
    with forced(way):
        try:
            found = [one.document for one in question(wh, **asked)]
        except (EmptyWindow, InputError) as refusal:
            return str(refusal)
    apart = {"blocks_read", "rows_scanned"}
    return str([[fact for fact in one.items() if fact[0] not in apart] for one in found])


def check_accurate(wh: query.Warehouse, question: Ask, **asked: Any) -> None:
    index, runs, scan = (answered(wh, question, way, **asked) for way in WAYS)
    assert index == runs
    assert index == scan


@pytest.mark.slow
@SOME
@given(BATCHES, WINDOWS, st.sampled_from([1500, 2**28]), st.permutations(ACCURATE))
def test_an_accurate_answer_is_the_same_on_each_way(
    batches: Any, window: Any, memory: int, questions: list[Ask]
) -> None:
    """So it stays while the versions stay, whatever costs are learned; large groups are read by block."""
    with tempfile.TemporaryDirectory() as folder:
        wh = GroupWorld.of(Path(folder), batches).open(memory=memory)
        for question in questions[:2]:
            check_accurate(wh, question, between=window)


TIES = [(START + i * HOUR / 60, "a", 1, float(i % 3 - 1), None) for i in range(400)]


@pytest.mark.parametrize("is_broken", [False, True])
def test_ranks_that_the_index_leaves_open_are_read(
    tmp_path: Path, monkeypatch: Patch, is_broken: bool
) -> None:
    """400 rows of three values, in blocks of 16. The broken variant answers with the bounds that it has."""
    wh = GroupWorld.of(tmp_path, [(True, TIES), (False, TIES[:30])]).open(memory=1500)
    if is_broken:
        right = WindowQuestion.__init__
        monkeypatch.setattr(
            WindowQuestion, "__init__", lambda self, **given: right(self, **{**given, "has_ways": False})
        )
    with pytest.raises(AssertionError) if is_broken else nullcontext():
        check_accurate(wh, ACCURATE[2])


@pytest.mark.parametrize("is_broken", [False, True])
def test_the_rank_of_a_value_that_many_rows_share_is_read_once(
    tmp_path: Path, monkeypatch: Patch, is_broken: bool
) -> None:
    """Alone and among others, in each window, and again after new rows. The broken variant keeps too much."""
    world, ranks = GroupWorld.of(tmp_path, [(True, TIES)]), dict[Any, int]()
    wh = world.open()
    if is_broken:
        right = WindowBounds.__init__
        monkeypatch.setattr(WindowBounds, "__init__", lambda self, **of: right(self, **of, read_ranks=ranks))

    def check(phis: list[float], hours: int, live: int = 0) -> int:
        """Compares the ranks with those of all rows; returns how many blocks were read."""
        end = START + hours * HOUR
        found = list(wh.quantile(phis, "value", between=(START, end), mode="exact"))
        numbers = [float(i % 3 - 1) for i in range(60 * hours)] + [-1.0] * live
        for one in found:
            assert one.rank_lo == one.rank_hi == sum(number <= one.value for number in numbers)
        return found[0].blocks_read

    with pytest.raises(AssertionError) if is_broken else nullcontext(), forced("index"):
        assert check([0.5], 6) > 0
        assert check([0.5], 6) == check([0.5, 0.6], 6) == 0
        assert check([0.1, 0.5], 6) > 0
        assert check([0.5], 3) > 0
        world.add([(START, "a", 1, -1.0, None)] * 10, load=False)
        assert check([0.5], 6, live=10) > 0
        assert check([0.5], 6, live=10) == 0


def way_of_series(wh: query.Warehouse) -> str | None:
    plan = wh.quantile(0.5, "value", every=2 * HOUR).plan
    assert plan is not None
    return plan.way


def test_windows_whose_accurate_answers_err_take_the_same_way_whatever_was_learned(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    """The live rows do not fit into memory. The broken variant takes what seems to cost least."""
    wh = GroupWorld.of(tmp_path, [(True, TIES), (False, TIES)]).open(memory=0)
    ways = {way_of_series(wh)}
    for way in WAYS:
        with forced(way):
            ways.add(way_of_series(wh))
    assert ways == {"index"}
    monkeypatch.setattr("tidemark.query.asking.all_rows.cheapest", lambda ways: ways)
    with forced("scan"):
        assert way_of_series(wh) == "scan"


def test_a_scan_that_takes_rows_outside_of_the_window_is_caught(
    world: GroupWorld, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(row_source.RowSource, "_is_inside", lambda *_: True)
    with pytest.raises(AssertionError):
        check_ways(world.open(), QUESTIONS[2], between=(START + 3 * HOUR, START + 9 * HOUR))
