"""All ways give the same answer, a way that costs too much is left, and plans tell the truth."""

from __future__ import annotations

import json
import math
import pickle
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.query.groupworld import BATCHES, HOUR, PHIS, START, WINDOWS, GroupWorld
from tests.soak import draws
from tidemark import query
from tidemark.query import EmptyWindow, InputError
from tidemark.query.answers.plan import Plan
from tidemark.query.asking import event_keys
from tidemark.query.asking.event_keys import EventKeys
from tidemark.query.asking.session import Session
from tidemark.query.groups import many_groups
from tidemark.query.keys import candidates, distinct_keys, key_relation
from tidemark.query.keys.live_keys import LiveSide
from tidemark.query.quantiles import many_windows
from tidemark.query.quantiles.questions import WindowQuestion
from tidemark.query.reading import block_reader, spending, sql_text
from tidemark.query.reading.costs import Costs, Rates, Reading
from tidemark.query.scans import row_source

SOME = settings(max_examples=draws(3), suppress_health_check=[HealthCheck.too_slow])
Ask = Callable[..., Any]
Patch = pytest.MonkeyPatch
WAYS = ("index", "runs", "scan")

QUESTIONS: list[Ask] = [
    lambda wh, **asked: wh.quantile(PHIS, mode="exact", **asked),
    lambda wh, **asked: wh.rank([-2, 0, 1], every=3 * HOUR, mode="exact", **asked),
    lambda wh, **asked: wh.quantile(PHIS, by="origin", **asked),
    lambda wh, **asked: wh.quantile([0.5], by=["number", "origin"], every=6 * HOUR, top=2, **asked),
    lambda wh, **asked: wh.cdf([0], by="origin", order="-value", least_rows=2, **asked),
    lambda wh, **asked: wh.quantile([0.5], by="number", where={"origin": ["a", "b"]}, **asked),
    lambda wh, **asked: wh.top(3, key="origin", mode="exact", **asked),
    lambda wh, **asked: wh.heavy_hitters(0.2, key=["number", "origin"], mode="exact", **asked),
    lambda wh, **asked: wh.distinct(key="origin", mode="exact", **asked),
    lambda wh, **asked: wh.persistent(0.2, key="origin", slot=3 * HOUR, mode="exact", **asked),
]


@contextmanager
def forced(way: str) -> Iterator[None]:
    """All questions that have this way take it."""

    def corrected(_: Any, __: str, one: str, ___: float) -> float:
        return -1.0 if one == way else 1e15

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Costs, "corrected", corrected)
        if way == "runs":
            patch.setattr(many_groups, "FEWEST_CELLS", 0)
            patch.setattr(many_windows, "FEWEST_CELLS", 0)
        if way == "scan":  # samples may tell an exact number
            patch.setattr(distinct_keys, "estimate_distinct", _in_doubt)
        yield


def _in_doubt(*_: Any) -> Any:
    return query.KeyNumber(0, 0, 1, 0, 1)


def told(wh: query.Warehouse, question: Ask, way: str | None, **asked: Any) -> Any:
    """What the answers say, without how they were found; or the refusal. None: by any way."""
    with forced(way) if way else nullcontext():
        try:
            answers = question(wh, **asked)
        except (EmptyWindow, InputError) as refusal:
            return type(refusal), str(refusal)
    found = list(answers) if hasattr(answers, "__len__") else [answers]
    apart = {"mode", "rows_scanned", "blocks_read", "eps", "as_of", "certain", "rank_lo", "rank_hi"}
    return [{name: fact for name, fact in one.document.items() if name not in apart} for one in found]


def check_ways(wh: query.Warehouse, question: Ask, **asked: Any) -> None:
    index, runs, scan = (told(wh, question, way, **asked) for way in WAYS)
    assert str(runs) == str(index)
    assert str(scan) == str(index)


@pytest.mark.slow
@SOME
@given(BATCHES, WINDOWS, st.permutations(QUESTIONS))
def test_all_ways_give_the_same_answers(batches: Any, window: Any, questions: list[Ask]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        wh = GroupWorld.of(Path(folder), batches).open()
        for question in questions[:5]:
            check_ways(wh, question, between=window)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> GroupWorld:
    """Two runs with late rows, and live rows."""
    rows: list[Any] = [
        (START + i % 40 * HOUR / 2, "abc"[i * 7 % 3], i % 5, float(i * 37 % 101), None) for i in range(200)
    ]
    return GroupWorld.of(
        tmp_path_factory.mktemp("world"), [(True, rows[:120]), (True, rows[60:160]), (False, rows[150:])]
    )


@pytest.mark.parametrize("window", [None, (START + 3 * HOUR, START + 9 * HOUR)])
@pytest.mark.parametrize("number", range(len(QUESTIONS)))
def test_all_ways_agree_about_late_and_live_rows(world: GroupWorld, number: int, window: Any) -> None:
    check_ways(world.open(), QUESTIONS[number], between=window)


KEY_QUESTIONS = QUESTIONS[6:7] + QUESTIONS[8:]  # about keys of one column


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
    monkeypatch.setattr("tidemark.query.asking.measure_questions.cheapest", lambda ways: ways)
    with forced("scan"):
        assert way_of_series(wh) == "scan"


def test_a_scan_that_takes_rows_outside_of_the_window_is_caught(
    world: GroupWorld, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(row_source.RowSource, "_is_inside", lambda *_: True)
    with pytest.raises(AssertionError):
        check_ways(world.open(), QUESTIONS[2], between=(START + 3 * HOUR, START + 9 * HOUR))


# Ways that are left.


class Work:
    """A clock that shows the work that was done, in seconds; `questions` see no other."""

    def __init__(self) -> None:
        self.done = 0.0

    @contextmanager
    def questions(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(spending.Spending, "seconds", lambda _: self.done)
            yield

    def step(self, seconds: float) -> None:
        spending.check()
        self.done += seconds


@contextmanager
def slow_blocks(clock: Work, seconds: float) -> Iterator[None]:
    """Each read of blocks takes so many seconds of the clock."""
    read = block_reader.BlockReader.read

    def slow(*arguments: Any, **more: Any) -> Any:
        clock.done += seconds
        return read(*arguments, **more)

    with clock.questions(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(block_reader.BlockReader, "read", slow)
        yield


STEPS = 50
COSTS = st.floats(0.01, 10)
ERRORS = st.floats(0.1, 10)


def spent(costs: tuple[float, float], errors: tuple[float, float]) -> float:
    """The work of a question with two ways, whose estimates are wrong by these factors."""
    clock = Work()
    chooser = Costs(patience=0.0)

    names: list[Any] = ["index", "scan"]
    true = dict(zip(names, costs, strict=True))
    estimates = {name: cost * error * 1e6 for (name, cost), error in zip(true.items(), errors, strict=True)}

    def answer() -> str:
        for attempt in chooser.attempts("rows", estimates):
            with attempt:
                for _ in range(STEPS):
                    clock.step(true[attempt.way] / STEPS)
                return attempt.way
        raise AssertionError

    with clock.questions(), spending.spending() as spent:
        assert answer() == spent.plan.way
    assert spent.plan.left + spent.plan.ways in (["index"], ["scan"], ["index", "scan"], ["scan", "index"])
    return clock.done


def bound(costs: tuple[float, float], errors: tuple[float, float]) -> float:
    """What the module says that a question costs at most, and one step."""
    (first, _), (second, after) = sorted(
        (cost * error, cost) for cost, error in zip(costs, errors, strict=True)
    )
    return max(2 * first, second) + after + 2 * max(costs) / STEPS


@settings(max_examples=draws(200))
@given(st.tuples(COSTS, COSTS), st.tuples(ERRORS, ERRORS))
def test_a_way_that_costs_too_much_is_left(costs: tuple[float, float], errors: tuple[float, float]) -> None:
    assert spent(costs, errors) <= bound(costs, errors)
    assert spent(costs, errors) <= 21 * min(costs) * 1.1


def test_a_way_that_is_never_left_is_caught(monkeypatch: Patch) -> None:
    costs, errors = (10.0, 0.1), (0.001, 1.0)
    assert spent(costs, errors) <= bound(costs, errors)
    monkeypatch.setattr(spending.Spending, "check", lambda _: None)
    assert spent(costs, errors) > bound(costs, errors)


@pytest.mark.parametrize("wrong", [0.1, 1.0, 10.0])
@pytest.mark.parametrize(
    "names", [("bounds", "target", "slice", "cell", "lookup"), ("statement", "grouped", "grouped_row")]
)
def test_answers_are_right_whatever_the_rates_are(
    world: GroupWorld, names: tuple[str, ...], wrong: float
) -> None:
    """A block takes a millisecond of this clock, and there is no patience."""
    right, wh, clock = world.open(), world.open(), Work()
    rates = wh._session.costs.rates
    wh._session.costs.rates = replace(rates, **{name: getattr(rates, name) * wrong for name in names})
    wh._session.costs.patience = 0.0
    with slow_blocks(clock, 0.001):
        for question in QUESTIONS:
            assert str(told(wh, question, None)) == str(told(right, question, "index"))


def test_an_index_that_reads_too_much_is_left_for_a_scan(world: GroupWorld) -> None:
    """The broken variant says that no way was left."""
    wh, clock = world.open(), Work()
    wh._session.costs.rates = Rates(bounds=0, target=0, statement=1000)
    wh._session.costs.patience = 0.0
    with slow_blocks(clock, 0.01):
        answer = wh.quantile(0.5, mode="exact")
    plan = answer.plan
    assert plan is not None
    assert (plan.left, plan.way) == (["index"], "scan")
    assert plan.blocks > 0
    assert answer.value == world.open().quantile(0.5, mode="exact").value


def test_what_a_way_took_corrects_its_rates() -> None:
    """The first scan sets the factor of scans; what is not taken returns to 1."""
    clock = Work()
    costs = Costs()

    def ask(way: Any, estimate: float, took: float) -> None:
        with clock.questions(), spending.spending():
            (attempt,) = costs.attempts("rows", {way: estimate * 1e6})
            with attempt:
                clock.step(took)

    ask("scan", 1.0, 3.0)
    assert costs.corrected("rows", "scan", 1.0) == pytest.approx(3.0)
    ask("index", 1.0, 3.0)
    assert 1.0 < costs.corrected("rows", "index", 1.0) < 2.0
    assert 2.5 < costs.corrected("rows", "scan", 1.0) < 3.0
    ask("scan", 1.0, 0.001)
    assert costs.corrected("rows", "scan", 1.0) > 2.5  # so short that it says nothing
    assert costs.corrected("keys", "scan", 1.0) == 1.0


# Runs that are read when questions have paid for it.


def cost_of_all(questions: int, scan: float, known: float, read: float) -> float:
    """What so many questions cost, which a scan or the runs answer, and how often a scan did."""
    costs, paid, done, is_read = Costs(), 0.0, 0.0, False

    def pay(more: float) -> None:
        nonlocal paid
        paid += more

    for _ in range(questions):
        reading = Reading(0.0 if is_read else read, paid, pay)
        first = next(costs.attempts("rows", {"runs": known + reading.cost, "scan": scan}, reading))
        done += scan if first.way == "scan" else known + reading.cost
        is_read = is_read or first.way == "runs"
    return done


@settings(max_examples=draws(200))
@given(st.integers(1, 40), COSTS, COSTS, st.floats(0.01, 100))
def test_questions_cost_at_most_twice_what_they_had_to(
    questions: int, scan: float, known: float, read: float
) -> None:
    """Whoever knows how many questions follow reads the runs at first, or never."""
    least = min(questions * scan, read + questions * known)
    assert cost_of_all(questions, scan, known, read) <= 2 * least * (1 + 1e-9)


@pytest.mark.parametrize(("questions", "paid"), [(1, 1e9), (40, -1e9)], ids=["at once", "never"])
def test_runs_that_are_read_at_once_or_never_are_caught(
    questions: int, paid: float, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(Reading, "__init__", lambda self, cost, _, pay: _set(self, cost, paid, pay))
    least = min(questions * 1.0, 5.0 + questions * 0.1)
    assert cost_of_all(questions, 1.0, 0.1, 5.0) > 2 * least


def _set(reading: Reading, *values: Any) -> None:
    for name, value in zip(("cost", "paid", "pay"), values, strict=True):
        object.__setattr__(reading, name, value)


@pytest.mark.parametrize("question", [QUESTIONS[2], lambda wh: wh.rank([-2, 0, 1], every=3 * HOUR)])
def test_whole_runs_are_read_when_scans_have_paid_for_it(
    world: GroupWorld, question: Ask, monkeypatch: Patch
) -> None:
    """A scan costs 10 ms here, and to read the 160 rows of history 25 ms: two scans pay 20 of these."""
    monkeypatch.setattr(many_groups, "FEWEST_CELLS", 0)
    monkeypatch.setattr(many_windows, "FEWEST_CELLS", 0)
    wh = world.open()
    dear = {"bounds": 1e9, "target": 1e9, "slice": 1e9, "cell": 1e9}
    free = dict.fromkeys(["event_row", "grouped", "grouped_row", "found_cell", "passed_row"], 0)
    free |= dict.fromkeys(["chosen_row", "divided_row", "sorted_row", "chosen_cell"], 0)
    wh._session.costs.rates = Rates(statement=10_000, read_row=25_000 / 220, **dear, **free)
    ways = ["scan", "scan", "runs", "runs"]
    assert [question(wh).plan.way for _ in ways] == ways
    memory = wh._session.memory
    for _, key in list(memory._entries):  # others took their room: they are paid for anew
        memory.drop(key)
    assert [question(wh).plan.way for _ in ways] == ways


# Plans.


class Counted:
    """What was really read: row groups of runs by ourselves, and files by DuckDB."""

    def __init__(self, patch: Patch) -> None:
        self.files: set[str] = set()
        self.blocks = self.rows = self.bytes = 0
        right = block_reader.BlockReader.read

        def read(
            blocks: Any, root: str, file: Any, groups: Any, columns: Any, *more: Any, **named: Any
        ) -> Any:
            self.files.add(f"{root}/{file.path}")
            path = file.store.table(f"{root}/{file.path}")
            footer = pq.read_metadata(path)
            for group in groups:
                self._add(footer.row_group(group), set(columns))
            self.blocks += len(groups)
            return right(blocks, root, file, groups, columns, *more, **named)

        patch.setattr(block_reader.BlockReader, "read", read)
        paths = sql_text.parquet_rows

        def of_events(files: Any) -> str:
            for path in files:
                self.files.add(path)
                footer = pq.read_metadata(path)
                for group in range(footer.num_row_groups):
                    self._add(footer.row_group(group), {"value", "origin"})
            return paths(files)

        def of_keys(files: Any) -> str:
            for path in files:
                self.files.add(path)
                footer = pq.read_metadata(path)
                self.blocks += footer.num_row_groups
                self.rows += footer.num_rows
                self.bytes += Path(path).stat().st_size
            return paths(files)

        patch.setattr(row_source, "parquet_rows", of_events)
        patch.setattr(key_relation, "parquet_rows", of_keys)

    def _add(self, group: Any, columns: set[str]) -> None:
        self.rows += group.num_rows
        chunks = [group.column(i) for i in range(group.num_columns)]
        self.bytes += sum(one.total_compressed_size for one in chunks if one.path_in_schema in columns)

    @property
    def all(self) -> tuple[int, ...]:
        return len(self.files), self.blocks, self.rows, self.bytes


def read_of(plan: Plan) -> tuple[int, ...]:
    return plan.files, plan.blocks, plan.rows, plan.bytes


TOLD: list[tuple[str, Ask]] = [
    ("index", lambda wh: wh.quantile(0.5)),
    ("index", lambda wh: wh.quantile(0.5, where={"origin": "a"})),
    ("runs", lambda wh: wh.quantile([0.5], by="origin")),
    ("scan", lambda wh: wh.quantile([0.5], by="origin")),
    ("scan", lambda wh: wh.top(2, key="origin")),
    ("scan", lambda wh: wh.distinct(key="origin", mode="exact")),
    ("index", lambda wh: wh.frequency("a", key="origin")),
]


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> GroupWorld:
    rows: list[Any] = [(START + i % 40 * HOUR, "abc"[i * 7 % 3], i % 5, float(i), None) for i in range(200)]
    return GroupWorld.of(tmp_path_factory.mktemp("world"), [(True, rows[:150]), (True, rows[50:])])


def untrue(world: GroupWorld) -> list[Any]:
    """The plans that do not tell what was read; each question is asked again, with files compared before."""
    wrong = []
    for way, question in TOLD:
        with forced(way):
            if way == "scan":
                question(world.open())
            wh = world.open()
            with pytest.MonkeyPatch.context() as patch:
                counted = Counted(patch)
                plan = question(wh).plan
        assert plan.way == way
        if read_of(plan) != counted.all:
            wrong.append((way, read_of(plan), counted.all))
    return wrong


def test_a_plan_tells_what_was_read(history: GroupWorld, monkeypatch: Patch) -> None:
    assert untrue(history) == []
    monkeypatch.setattr(block_reader, "_count", lambda *_: None)  # the broken variant
    assert untrue(history)


def test_a_plan_is_told_in_words_and_as_json(world: GroupWorld) -> None:
    wh = world.open()
    answers = wh.quantile([0.1, 0.9], by="origin")
    plan = answers.plan
    assert plan is not None
    assert plan is answers[0].plan
    assert plan.estimates.keys() >= {"index", "scan"}
    lines = str(plan).splitlines()
    assert re.fullmatch(r"way: (index|runs|scan)", lines[0])
    assert re.fullmatch(r"read: \d+ files, \d+ blocks, \d+ rows, [\d,]+ bytes, 0 rounds", lines[1])
    assert re.fullmatch(r"estimates: (\w+ [\d.]+ ms(, )?){2,3}", lines[2])
    assert json.loads(answers.to_json(plan=True))["plan"]["way"] == plan.way
    assert "plan" not in json.loads(answers.to_json())
    assert pickle.loads(pickle.dumps(answers)).plan == plan
    again = wh.quantile([0.1, 0.9], by="origin")
    assert list(wh.quantile([0.1, 0.9], by="origin")) == list(again)  # a plan does not count
    assert wh.quantile(0.5, by="origin", groups=[]).plan is not None
    for answer in (wh.overlap(None, None, key="origin"), wh.summary(), wh.distinct(key="origin")):
        assert answer.plan is not None
    assert {field.name for field in fields(Rates)} >= {"bounds", "statement"}
