"""Whether the way that is taken is the best one, also where the rates of costs are wrong by ten.

Each question with several ways is first asked by each of them; its best way is the fastest one. Then it is
asked as costs choose, with nothing learned: by the right rates, and by rates of one way that are ten times
too large or too small. What is learned from the first answers is part of the later ones.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import fields, replace
from typing import Any

from bench.daily.question import SLACK_MS, Question
from bench.latency import MS, timed
from bench.report import Section, say
from tidemark.query.answers.plan import INDEX, RUNS, SCAN
from tidemark.query.reading.costs import Costs, Rates

TIMES = 1.5  # the way that is taken takes at most so much more than the best one, beside SLACK_MS
WRONG = 10.0
_OF_WAYS = {
    INDEX: ("bounds", "target", "slice", "cell", "lookup", "lists"),
    RUNS: ("passed_row", "chosen_row", "divided_row", "sorted_row", "chosen_cell", "read_row"),
    SCAN: (
        "statement",
        "key_row",
        "event_key_row",
        "event_row",
        "grouped",
        "grouped_row",
        "found_cell",
    ),
}
_OF_STORES = {"far_block", "far_row"}  # no question of this bench is about an object store


def measure_ways(section: Section, title: str, wh: Any, asked: Sequence[Question], turns: int) -> None:
    """Adds the figures about the questions that have several ways."""
    costs: Costs = wh._session.costs  # noqa: SLF001  what a user cannot set
    right, variants = costs.rates, dict(_variants())
    worst: dict[str, list[float]] = {name: [] for name in variants}
    for question in asked:
        costs.factors.clear()
        ways = _ways(question.ask(wh))
        if len(ways) < 2:
            continue
        taken = [_median(_forced(costs, way), question, wh, turns) for way in ways]
        for name, rates in variants.items():
            costs.rates = rates
            costs.factors.clear()
            worst[name].append(_beyond(_median(nullcontext(), question, wh, turns), min(taken)))
        costs.rates = right
        costs.factors.clear()
        shown = ", ".join(f"{way} {ms:.1f} ms" for way, ms in zip(ways, taken, strict=True))
        say(f"  {question.name}: {shown}")
    found = {name: max(beyond, default=0.0) for name, beyond in worst.items()}
    exact = found.pop("right")
    several = f"{len(worst['right'])} questions with several ways"
    section.add(f"{title}: the way that is taken / the best, slowest of {several}", exact, "x", TIMES)
    section.add(
        f"{title}: the same with rates of a way that are wrong by ten", max(found.values()), "x", TIMES
    )


def _variants() -> Iterator[tuple[str, Rates]]:
    rates = Rates()
    every = {one.name for one in fields(Rates)} - _OF_STORES
    assert every == {name for names in _OF_WAYS.values() for name in names}, "a rate is of no way"
    yield "right", rates
    for way, names in _OF_WAYS.items():
        for factor in (WRONG, 1 / WRONG):
            yield (
                f"{way} x {factor:g}",
                replace(rates, **{name: getattr(rates, name) * factor for name in names}),
            )


def _ways(answers: Any) -> list[str]:
    """The ways whose costs were estimated."""
    one = answers if hasattr(answers, "plan") else next(iter(answers), None)
    return [] if one is None or one.plan is None else list(one.plan.estimates)


@contextmanager
def _forced(costs: Costs, forced: str) -> Iterator[None]:
    """Inside, every question that has the way takes it."""
    right = costs.corrected
    costs.corrected = lambda topic, way, cost: -1.0 if way == forced else 1e15  # type: ignore[method-assign]  # noqa: ARG005
    try:
        yield
    finally:
        costs.corrected = right  # type: ignore[method-assign]


def _median(inside: AbstractContextManager[None], question: Question, wh: Any, turns: int) -> float:
    """The median in ms of some turns after a first one."""
    with inside:
        question.ask(wh)
        return statistics.median(timed(lambda: question.ask(wh))[0] for _ in range(turns)) * MS


def _beyond(taken: float, best: float) -> float:
    return (taken - SLACK_MS) / best
