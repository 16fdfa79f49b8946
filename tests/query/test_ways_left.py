"""A way that costs too much is left, and runs are read once questions have paid for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.query.groupworld import HOUR, GroupWorld
from tests.query.ways import QUESTIONS, Ask, Patch, told
from tests.soak import draws
from tidemark.query.asking import declared_groups
from tidemark.query.quantiles import many_windows
from tidemark.query.reading import block_reader, spending
from tidemark.query.reading.costs import Attempt, Costs, Rates, Reading
from tidemark.warehouse.memory_cache import LRUCache


@pytest.fixture(scope="module")
def world(late_and_live: GroupWorld) -> GroupWorld:
    return late_and_live


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


class Steps(NamedTuple):
    """Ways that take so many seconds."""

    clock: Work
    seconds: Mapping[str, float]

    def by(self, way: str) -> str:
        for _ in range(STEPS):
            self.clock.step(self.seconds[way] / STEPS)
        return way


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

    with clock.questions(), spending.spending() as spent:
        assert chooser.answer("rows", Steps(clock, true), estimates) == spent.plan.way
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
        answers = wh.quantile([0.25, 0.5], mode="exact")
    plan = answers[0].plan
    assert plan is not None
    assert (plan.left, plan.way) == (["index"], "scan")
    assert plan.blocks > 0
    assert [one.value for one in answers] == [
        one.value for one in world.open().quantile([0.25, 0.5], mode="exact")
    ]


def test_what_a_way_took_corrects_its_rates() -> None:
    """The first scan, and a first answer after PATIENCE, set factors; that of other ways stays."""
    clock = Work()
    costs = Costs()

    def ask(way: Any, estimate: float, took: float) -> None:
        with clock.questions(), spending.spending():
            assert costs.answer("rows", Steps(clock, {way: took}), {way: estimate * 1e6}) == way

    ask("scan", 1.0, 3.0)
    assert costs.corrected("rows", "scan", 1.0) == pytest.approx(3.0)
    ask("index", 0.05, 0.15)
    assert 1.0 < costs.corrected("rows", "index", 1.0) < 2.0
    ask("runs", 1.0, 3.0)
    assert costs.corrected("rows", "runs", 1.0) == pytest.approx(3.0)
    assert costs.corrected("rows", "scan", 1.0) == pytest.approx(3.0)
    ask("scan", 1.0, 0.001)
    assert costs.corrected("rows", "scan", 1.0) > 2.5  # so short that it says nothing
    assert costs.corrected("keys", "scan", 1.0) == 1.0


def test_a_way_has_taken_long_once_two_answers_did() -> None:
    """The first answer reads what later ones have in memory, and a short one may have been known."""
    clock, costs, lasted = Work(), Costs(), []
    for took in (0.5, 0.25, 0.001, 0.3, 0.4):
        with clock.questions(), spending.spending():
            costs.answer("groups", Steps(clock, {"index": took}), {"index": 1e6})
        lasted.append(costs.lasted("groups", "index") / 1e6)
    assert lasted == pytest.approx([0.0, 0.25, 0.001, 0.001, 0.3])
    assert costs.lasted("rows", "index") == 0.0


class Refuses(NamedTuple):
    """Ways of which one cannot answer after all."""

    refused: str

    def by(self, way: str) -> str | None:
        return None if way == self.refused else way


def check_refused() -> None:
    """The index answers, also where it was no way to choose."""
    costs, ways = Costs(), Refuses("scan")
    asked: list[dict[Any, float]] = [{"scan": 1e3, "index": 1e6}, {"scan": 1e3}]
    for estimates in asked:
        with spending.spending() as spent:
            assert costs.answer("rows", ways, estimates) == "index"
        assert spent.plan.left == []
        assert "scan" not in spent.plan.ways
        assert costs.corrected("rows", "scan", 1.0) == 1.0
    assert ("rows", "scan") not in costs._measured


def _learns_of_each(usual: Any) -> Any:
    def answer(attempt: Attempt, ways: Any) -> Any:
        attempt.costs.learn(attempt.topic, attempt.way, attempt.cost, 1.0)
        return usual(attempt, ways)

    return answer


def test_of_a_way_that_cannot_answer_nothing_is_learned(monkeypatch: Patch) -> None:
    """The broken variant learns of it all the same."""
    check_refused()
    monkeypatch.setattr(Attempt, "answer", _learns_of_each(Attempt.answer))
    with pytest.raises(AssertionError):
        check_refused()


# Runs that are read when questions have paid for it.


def cost_of_all(questions: int, scan: float, known: float, read: float) -> float:
    """What so many questions cost, which a scan or the runs answer, and how often a scan did."""
    costs, payments, done, is_read = Costs(), LRUCache[float](1), 0.0, False
    for _ in range(questions):
        reading = Reading({"run": 0.0 if is_read else read}, payments)
        first, *_ = costs.attempts("rows", {"runs": known + reading.cost, "scan": scan}, reading)
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
    monkeypatch.setattr(Reading, "paid", paid)
    least = min(questions * 1.0, 5.0 + questions * 0.1)
    assert cost_of_all(questions, 1.0, 0.1, 5.0) > 2 * least


@pytest.mark.parametrize("question", [QUESTIONS[2], lambda wh: wh.rank([-2, 0, 1], every=3 * HOUR)])
def test_whole_runs_are_read_when_scans_have_paid_for_it(
    world: GroupWorld, question: Ask, monkeypatch: Patch
) -> None:
    """A scan costs 10 ms here, and to read the 160 rows of history 25 ms: two scans pay 20 of these."""
    monkeypatch.setattr(many_windows, "FEWEST_CELLS", 0)
    monkeypatch.setattr(declared_groups, "FEWEST_CELLS", 0)
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
