"""Rates that are wrong by ten are corrected, because ways that are never the cheapest are tried, too.

A clock shows the work that is done. The ways have true costs, and estimates that are wrong by factors.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations, product
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.query.test_ways_left import Work
from tests.soak import draws
from tidemark.query.reading import costs, spending
from tidemark.query.reading.costs import Costs, Reading
from tidemark.warehouse.memory_cache import LRUCache

FIRST, QUESTIONS, STEPS = 12, 48, 50
SLACK = 0.005  # seconds
Patch = pytest.MonkeyPatch
World = tuple[
    Mapping[str, float], Mapping[str, float]
]  # what the ways cost, and by how much estimates are wrong
TRUE = st.floats(0.05, 2)  # so no estimate is below SLACK, as which it would count
ERRORS = st.floats(0.1, 10)
WAYS = ("index", "runs", "scan")
LEARN, TRIAL = Costs.learn, Costs._trial


@dataclass(frozen=True)
class Asked:
    """A question: its seconds, the way that answered, and whether another one was tried before."""

    seconds: float
    way: str
    is_trial: bool


def asked(worlds: Sequence[World], read: float = 0.0, *, compares: bool = False) -> list[Asked]:
    """Some questions.

    read: what it takes once to read the runs, estimated as they. compares: each scan compares files.
    """
    clock, chooser, found = Work(), Costs(), list[Asked]()
    unread, payments = read, LRUCache[float](1)

    class Ways(NamedTuple):
        true: Mapping[str, float]

        def by(self, way: str) -> str:
            nonlocal unread
            if compares and way == "scan":
                spending.compared_files()
            step = self.true[way] / STEPS
            while way == "runs" and unread > 0:
                clock.step(read / STEPS)
                unread -= read / STEPS
            for _ in range(STEPS):
                clock.step(step)
            return way

    def answer(true: Mapping[str, float], errors: Mapping[str, float]) -> Asked:
        began, is_trial = clock.done, False
        once = unread * errors.get("runs", 1.0) * 1e6
        reading = Reading({"run": once}, payments) if "runs" in true else None
        given: Any = {
            way: cost * errors[way] * 1e6 + (once if way == "runs" else 0.0) for way, cost in true.items()
        }
        for attempt in chooser.attempts("rows", given, reading):
            is_trial = is_trial or attempt.is_trial
            if way := attempt.answer(Ways(true)):
                return Asked(clock.done - began, way, is_trial)
        raise AssertionError

    with clock.questions():
        for world in worlds:
            with spending.spending():
                found.append(answer(*world))
    return found


def spent(true: Mapping[str, float], errors: Mapping[str, float], read: float = 0.0) -> list[float]:
    """The seconds of each of some equal questions."""
    return [one.seconds for one in asked([(true, errors)] * QUESTIONS, read)]


def check(true: Mapping[str, float], errors: Mapping[str, float], read: float = 0.0) -> None:
    """After the first questions the best way is taken, and what is tried meanwhile costs little."""
    times, allowed = spent(true, errors, read), 1.5 * min(true.values()) + SLACK
    assert statistics.median(times[FIRST:]) <= allowed
    assert sum(times[FIRST:]) <= 2 * allowed * len(times[FIRST:])


FAR_OFF = {"index": 0.01, "scan": 0.08}, {"index": 10.0, "scan": 1.0}


def worlds() -> st.SearchStrategy[tuple[dict[str, float], dict[str, float]]]:
    """The true costs of two or three ways, and by how much the estimates are wrong."""
    ways = st.sampled_from([("index", "scan"), ("index", "runs"), WAYS])
    return ways.flatmap(
        lambda some: st.tuples(
            st.fixed_dictionaries(dict.fromkeys(some, TRUE)),
            st.fixed_dictionaries(dict.fromkeys(some, ERRORS)),
        )
    )


@settings(max_examples=draws(100), deadline=None)
@given(worlds())
@example(({"index": 0.01, "scan": 0.1}, {"index": 10.0, "scan": 1.0}))
@example(({"index": 0.1, "scan": 0.01}, {"index": 0.1, "scan": 1.0}))
@example(({"index": 0.1, "runs": 0.01, "scan": 0.05}, {"index": 1.0, "runs": 10.0, "scan": 1.0}))
def test_the_best_way_is_found_whatever_the_rates_are(world: Any) -> None:
    check(*world)


SETTLED = {2: 4, 3: 6}  # by the number of ways: so many questions are not bounded


def check_each(true: Mapping[str, float], errors: Mapping[str, float], noise: float, seed: int) -> None:
    """No question takes longer than `costs` says, and few have a trial.

    The questions are of different sizes. Estimates are wrong by constant factors, and by some noise: that of
    the question, and that of those from which the factors are.
    """
    drawn = random.Random(seed)

    def factor(most: float) -> float:
        return math.exp(drawn.uniform(-math.log(most), math.log(most)))

    sizes = [factor(5.0) for _ in range(QUESTIONS)]
    worlds = [
        (
            {way: 5 * cost * size for way, cost in true.items()},
            {way: error * factor(noise) for way, error in errors.items()},
        )
        for size in sizes
    ]
    found, answered, trials = asked(worlds), set[str](), 0
    for place, (one, (costs_of, _)) in enumerate(zip(found, worlds, strict=True)):
        answered.add(one.way)
        if place >= SETTLED[len(true)]:
            known, step = min(costs_of[way] for way in answered), 2 * max(costs_of.values()) / STEPS
            allowed = 1.5 * noise**4 * (known if one.is_trial else min(costs_of.values())) + SLACK
            if one.is_trial:
                allowed = max(allowed, 5 / 3 * noise**4 * known)
                trials += 1
            assert one.seconds <= allowed + step
    assert trials <= (len(true) - 1) * math.log2(QUESTIONS)


@settings(max_examples=draws(150), deadline=None)
@given(worlds(), st.sampled_from([1.0, 1.1]), st.integers(0, 2**32))
@example(FAR_OFF, 1.0, 0)
def test_no_question_takes_much_longer_than_by_the_better_way(world: World, noise: float, seed: int) -> None:
    check_each(*world, noise, seed)


def _cut_off_at(most: Any) -> Any:
    """Trials that may take so much of the known way."""

    def trial(self: Costs, topic: str, order: Any, shown: Any, again: Any) -> Any:
        found = TRIAL(self, topic, order, shown, again)
        return found and (found[0], most * shown[order[0]])

    return trial


def _forget(self: Costs, topic: str, way: Any, *given: Any, **more: Any) -> None:
    LEARN(self, topic, way, *given, **more)
    self.factors.pop((topic, way))


def _forget_stops(self: Costs, *given: Any, **more: Any) -> None:
    if not more["is_stopped"]:
        LEARN(self, *given, **more)


def check_pairs() -> None:
    """The rates of one of two ways are wrong by ten."""
    for (slow, fast), ratio, error in product(permutations(WAYS, 2), (1.2, 2.0, 4.0, 20.0), (0.1, 10.0)):
        for wrong in (slow, fast):
            check_each({slow: 0.1 * ratio, fast: 0.1}, {slow: 1.0, fast: 1.0, wrong: error}, 1.0, 0)


def test_no_question_takes_much_longer_where_rates_are_wrong_by_ten() -> None:
    check_pairs()


@pytest.mark.parametrize(
    ("name", "mistake"),
    [
        ("_trial", _cut_off_at(math.inf)),
        ("_trial", _cut_off_at(1.0)),
        ("_trial", _cut_off_at(0.2)),
        ("_trial", lambda *_: None),
        ("learn", _forget),
        ("learn", _forget_stops),
    ],
    ids=["no end", "as long as the known way", "too early", "none", "forgotten", "stops are forgotten"],
)
def test_trials_of_other_lengths_and_corrections_that_are_forgotten_are_caught(
    monkeypatch: Patch, name: str, mistake: Any
) -> None:
    monkeypatch.setattr(Costs, name, mistake)
    with pytest.raises(AssertionError):
        check_pairs()


def check_fifth() -> None:
    """The fifth question takes the best way, where the rates of one way are wrong by ten."""
    for (slow, fast), ratio, error in product(permutations(WAYS, 2), (0.05, 0.5), (0.1, 10.0)):
        for wrong in (slow, fast):
            times = spent({slow: 0.4, fast: 0.4 * ratio}, {slow: 1.0, fast: 1.0, wrong: error})
            assert times[4] <= 1.5 * 0.4 * ratio + SLACK, (slow, fast, ratio, wrong, error)


def test_rates_that_are_wrong_by_ten_are_right_at_the_fifth_question() -> None:
    check_fifth()


@pytest.mark.parametrize("learn", [lambda *_, **__: None, lambda *given, **_: LEARN(*given)])
def test_rates_that_are_corrected_late_are_caught(monkeypatch: Patch, learn: Any) -> None:
    """The variants correct nothing, or only a share where a trial has answered or a way was stopped."""
    monkeypatch.setattr(Costs, "learn", learn)
    with pytest.raises(AssertionError):
        check_fifth()


def check_compared() -> None:
    """A batch comes between any two questions, so each scan has new files to compare."""
    world = {"index": 0.2, "scan": 0.1}, {"index": 0.1, "scan": 1.0}
    found = asked([world] * QUESTIONS, compares=True)
    assert max(one.seconds for one in found[FIRST:]) <= 1.5 * 0.1 + SLACK


def _forget_what_compared(self: Costs, *given: Any, **more: Any) -> None:
    if not more["has_compared"]:
        LEARN(self, *given, **more)


def test_a_way_that_compared_files_has_answered(monkeypatch: Patch) -> None:
    """The broken variant forgets such an answer, and takes the slower way for ever."""
    check_compared()
    monkeypatch.setattr(Costs, "learn", _forget_what_compared)
    with pytest.raises(AssertionError):
        check_compared()


class Compares(NamedTuple):
    clock: Work

    def by(self, way: str) -> str:
        self.clock.step(3.0)
        spending.compared_files()
        return way


def test_a_way_that_compared_files_corrects_no_factor() -> None:
    clock, chooser = Work(), Costs()
    with clock.questions(), spending.spending() as spent:
        chooser.answer("rows", Compares(clock), {"scan": 1e6})
    assert spent.compared
    assert chooser.corrected("rows", "scan", 1.0) == 1.0


def test_a_reader_that_tries_no_way_is_caught(monkeypatch: Patch) -> None:
    check(*FAR_OFF)
    monkeypatch.setattr(costs, "DOUBT", 1.0)
    with pytest.raises(AssertionError):
        check(*FAR_OFF)


def test_trials_without_an_end_are_caught(monkeypatch: Patch) -> None:
    """The scan takes a hundred times as long as is estimated."""
    world = {"index": 0.05, "scan": 10.0}, {"index": 1.0, "scan": 0.01}
    trial = 10.0 / STEPS + 0.05  # it stops after a step
    assert max(spent(*world)) == pytest.approx(trial)
    monkeypatch.setattr(spending.Spending, "check", lambda _: None)
    assert max(spent(*world)) > 2 * trial


def test_runs_are_read_for_a_trial_once_the_questions_before_could_have_paid_for_it() -> None:
    true, errors = {"index": 0.05, "runs": 0.01}, {"index": 1.0, "runs": 10.0}
    times = spent(true, errors, 1.0)
    assert times[:6] == pytest.approx([0.05] * 6)
    assert max(times) == pytest.approx(1.01)
    assert times[-1] == pytest.approx(0.01)


def test_a_process_with_few_questions_tries_nothing() -> None:
    times = spent({"index": 0.02, "scan": 0.1}, {"index": 10.0, "scan": 1.0})
    assert times[: costs.FIRST_TRIAL - 1] == pytest.approx([0.1] * (costs.FIRST_TRIAL - 1))
    assert times[costs.FIRST_TRIAL - 1] == pytest.approx(0.02)
