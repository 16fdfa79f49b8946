"""Rates that are wrong by ten are corrected, because ways that are never the cheapest are tried, too.

A clock shows the work that is done. The ways have true costs, and estimates that are wrong by factors.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from itertools import permutations, product
from typing import Any

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
TRUE = st.floats(0.001, 2)
ERRORS = st.floats(0.1, 10)
WAYS = ("index", "runs", "scan")
LEARN = Costs.learn


def spent(true: Mapping[str, float], errors: Mapping[str, float], read: float = 0.0) -> list[float]:
    """The seconds of each of some questions. read: what it takes once to read the runs, estimated as they."""
    clock, chooser, times = Work(), Costs(), list[float]()
    estimates: Any = {way: cost * errors[way] * 1e6 for way, cost in true.items()}
    unread, payments = read, LRUCache[float](1)

    def answer() -> None:
        nonlocal unread
        once = unread * errors.get("runs", 1.0) * 1e6
        reading = Reading({"run": once}, payments) if "runs" in true else None
        given = {way: cost + (once if way == "runs" else 0.0) for way, cost in estimates.items()}
        for attempt in chooser.attempts("rows", given, reading):
            with attempt:
                step = true[attempt.way] / STEPS
                while attempt.way == "runs" and unread > 0:
                    clock.step(read / STEPS)
                    unread -= read / STEPS
                for _ in range(STEPS):
                    clock.step(step)
                return
        raise AssertionError

    with clock.questions():
        for _ in range(QUESTIONS):
            began = clock.done
            with spending.spending():
                answer()
            times.append(clock.done - began)
    return times


def check(true: Mapping[str, float], errors: Mapping[str, float], read: float = 0.0) -> None:
    """After the first questions the best way is taken, and what is tried meanwhile costs little."""
    times, allowed = spent(true, errors, read), 1.5 * min(true.values()) + SLACK
    assert statistics.median(times[FIRST:]) <= allowed
    assert sum(times[FIRST:]) <= 2 * allowed * len(times[FIRST:])


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


FAR_OFF = {"index": 0.01, "scan": 0.08}, {"index": 10.0, "scan": 1.0}


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
