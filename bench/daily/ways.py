"""Whether the way that is taken is the best one, also where the rates of costs are wrong by ten.

Each question with several ways is first asked by each of them; its best way is the fastest one. Then it is
asked as costs choose, with nothing learned: by the right rates, and by rates of one way that are ten times
too large or too small. The first questions are not measured: from their times the reader learns. This is done
with 2 and 16 threads of DuckDB, and with a warehouse in an object store.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from bench.daily.question import SLACK_MS, Question
from bench.daily.rows import Sizes, fill
from bench.latency import MS, timed
from bench.report import Section, say
from tests.stores.server import running
from tidemark import query
from tidemark.query.answers.plan import INDEX, RUNS, SCAN
from tidemark.query.reading import connections
from tidemark.query.reading.costs import Costs, Rates

TIMES = 1.5  # the way that is taken takes at most so much more than the best one, beside SLACK_MS
WRONG = 10.0
FIRST = 4  # for each question that is measured, so many are asked before it
THREADS = (2, 16)  # of DuckDB
LATENCY = 0.025  # seconds that the object store adds to each request
_OF_WAYS = {
    INDEX: ("bounds", "target", "slice", "cell", "lookup", "lists", "far_block"),
    RUNS: ("passed_row", "chosen_row", "divided_row", "sorted_row", "chosen_cell", "summed_row", "read_row"),
    SCAN: (
        "statement",
        "key_row",
        "event_key_row",
        "counted_row",
        "paired_row",
        "event_row",
        "grouped",
        "grouped_row",
        "found_cell",
        "far_row",
    ),
}


def measure_ways(section: Section, title: str, wh: Any, asked: Sequence[Question], turns: int) -> None:
    """Adds the figures about the questions that have several ways, by threads of DuckDB.

    With a single turn, which measures little, each number of threads has a part of the questions.
    """
    for place, threads in enumerate(THREADS):
        own = asked if turns > 1 else asked[place :: len(THREADS)]
        with _duckdb_threads(threads):
            _measure(section, f"{title}, {threads} threads", wh, own, turns)


def measure_far_ways(
    section: Section, folder: Path, sizes: Sizes, asked: Sequence[Question], turns: int
) -> None:
    """Adds the same figures of a warehouse in an object store."""
    with running() as server:
        uri = server.address("daily")
        fill(folder, sizes, uri, server.options)
        wh = query.open(uri, server.options)
        server.set(latency=LATENCY)
        title = f"{sizes.rows / 1e6:g} M rows in a store of {LATENCY * MS:g} ms"
        _measure(section, title, wh, asked, turns)


def _measure(section: Section, title: str, wh: Any, asked: Sequence[Question], turns: int) -> None:
    costs: Costs = wh._session.costs  # noqa: SLF001  what a user cannot set
    right, variants = costs.rates, dict(_variants())
    worst: dict[str, list[float]] = {name: [] for name in variants}
    say(f"  {title}")
    for question in asked:
        costs.forget()
        ways = _ways(question.ask(wh))
        if len(ways) < 2:
            continue
        taken = [_median(_forced(costs, way), question, wh, turns, 1) for way in ways]
        for name, rates in variants.items():
            costs.rates = rates
            costs.forget()
            found = _median(nullcontext(), question, wh, turns, FIRST * turns)
            worst[name].append(_beyond(found, min(taken)))
        costs.rates = right
        costs.forget()
        shown = ", ".join(f"{way} {ms:.1f} ms" for way, ms in zip(ways, taken, strict=True))
        beyond = max((found[-1], name) for name, found in worst.items())
        say(f"  {question.name}: {shown}; {beyond[0]:.2f} x by {beyond[1]}")
    most = {name: max(beyond, default=0.0) for name, beyond in worst.items()}
    exact = most.pop("right")
    several = f"{len(worst['right'])} questions with several ways"
    section.add(f"{title}: the way that is taken / the best, slowest of {several}", exact, "x", TIMES)
    section.add(
        f"{title}: the same with rates of a way that are wrong by ten", max(most.values()), "x", TIMES
    )


def _variants() -> Iterator[tuple[str, Rates]]:
    rates = Rates()
    every = {one.name for one in fields(Rates)}
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


@contextmanager
def _duckdb_threads(threads: int) -> Iterator[None]:
    """Inside, scans have so many threads."""
    right = connections.open_connection
    connections._idle.clear()  # noqa: SLF001  those that wait have other threads
    connections.open_connection = partial(right, threads=str(threads))
    try:
        yield
    finally:
        connections.open_connection = right
        connections._idle.clear()  # noqa: SLF001


def _median(
    inside: AbstractContextManager[None], question: Question, wh: Any, turns: int, before: int
) -> float:
    """The median in ms of some turns, after so many questions before them."""
    with inside:
        for _ in range(before):
            question.ask(wh)
        return statistics.median(timed(lambda: question.ask(wh))[0] for _ in range(turns)) * MS


def _beyond(taken: float, best: float) -> float:
    return (taken - SLACK_MS) / best
