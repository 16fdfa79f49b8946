"""What questions take over several warehouses, beside one warehouse with the same rows in the same runs."""

from __future__ import annotations

import random
import shutil
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench.data import Oracle
from bench.latency import MS, timed
from bench.report import Section, number, say, table
from bench.sites.rows import Loads, Sizes, fill_one, fill_sites
from bench.turns import turns_of
from tidemark import query

EPS = 0.001
TARGET = 1.3  # a question takes at most so many times what it takes in one warehouse
TARGET_LARGE = 1.5  # an accurate one, over ten times as many rows
KEY, PLACE = 2, 3
FEW = 5  # the slower kinds of questions are asked so much less often


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of question: `ask` takes an open warehouse and a phi. is_often: whether it is asked as often."""

    name: str
    ask: Callable[[Any, float], Any]
    is_often: bool = True


KINDS = (
    Kind("quick", lambda wh, phi: wh.quantile(phi, mode="quick")),
    Kind("accurate", lambda wh, phi: wh.quantile(phi)),
    Kind("exact", lambda wh, phi: wh.quantile(phi, mode="exact")),
    Kind("accurate, last 7 days", lambda wh, phi: wh.quantile(phi, last="7d")),
    Kind("accurate, of a group", lambda wh, phi: wh.quantile(phi, where={"place": PLACE})),
    Kind("sum and mean", lambda wh, _: wh.summary()),
    Kind("rows of a key", lambda wh, phi: wh.frequency(int(phi * 1000) + KEY)),
    Kind("distinct keys", lambda wh, _: wh.distinct()),
    Kind("top 10 keys", lambda wh, _: wh.top(10), is_often=False),
    Kind("accurate, by group", lambda wh, phi: wh.quantile(phi, by="place"), is_often=False),
)


LARGE = KINDS[:4]


def measure(
    section: Section, folder: Path, sizes: Sizes, kinds: Sequence[Kind] = KINDS, target: float = TARGET
) -> dict[str, str]:
    """Adds the figures, for each number of runs of a site; the addresses of the first sites, which stay."""
    kept: dict[str, str] = {}
    for runs in sizes.runs:
        loads = Loads.of(sizes.rows, sizes.sites, runs)
        own = folder / f"runs-{runs}"
        say(f"sites: {loads.rows:,} rows, {sizes.sites} sites of {runs} runs")
        uris, one = fill_sites(own, loads), fill_one(own, loads)
        readers = [query.open(uris), query.open(one)]
        _assert_answers(readers, loads)
        say(f"  answers over {sizes.sites} sites of {runs} runs are right")
        _compare(section, readers, sizes, runs, kinds, target)
        if kept:
            shutil.rmtree(own)
        else:
            kept = uris
            shutil.rmtree(one)
    return kept


def _assert_answers(readers: list[Any], loads: Loads) -> None:
    """Both keep what they promise; exact answers are equal."""
    oracle, of_place = Oracle.of(loads.all), loads.of_place(PLACE)
    live = sum(part.rows for part in loads.live)
    phis = [0.0, 0.001, *(random.Random(1).choices(range(1, 1000), k=20)), 1.0]
    phis = [phi if phi <= 1 else phi / 1000 for phi in phis]
    for wh in readers:
        for mode, promise in (("quick", EPS * loads.rows), ("accurate", EPS * live), ("exact", 0)):
            for answer in wh.quantile(phis, mode=mode):
                assert (answer.N, answer.m) == (loads.rows, live), answer
                assert oracle.error(answer.phi, answer.value) <= answer.error_bound <= promise, answer
                assert answer.low <= oracle.quantile(answer.phi) <= answer.high, answer
        assert wh.quantile(0.5, where={"place": PLACE}).value == of_place.quantile(0.5)
        assert wh.frequency(KEY, mode="exact").count == loads.counts_of(KEY)
    for ask in (
        lambda wh: [one.value for one in wh.quantile([0.1, 0.9], last="7d", mode="exact")],
        lambda wh: [(one.value, one.count) for one in wh.top(10, mode="exact")],
        lambda wh: wh.summary().sum,
        lambda wh: wh.distinct(mode="exact").count,
        lambda wh: sorted((str(one.group), one.value) for one in wh.quantile(0.5, by="place")),
    ):
        several, one = map(ask, readers)
        assert several == one, (several, one)


def _compare(
    section: Section, readers: list[Any], sizes: Sizes, runs: int, kinds: Sequence[Kind], target: float
) -> None:
    """Asks each kind of question in turn, each time with another phi; adds ratios and a table."""
    chance, lines = random.Random(7), []
    for kind in kinds:
        taken: list[list[float]] = [[], []]
        for turn in turns_of(sizes.questions if kind.is_often else max(1, sizes.questions // FEW)):
            phi = round(chance.random(), 9)
            for reader, own in zip(readers, taken, strict=True):
                seconds, _ = timed(partial(kind.ask, reader, phi))
                if turn >= 0:
                    own.append(seconds)
        several, one = (statistics.median(own) * MS for own in taken)
        section.add(f"{runs} runs a site: {kind.name}, sites / one warehouse", several / one, "x", target)
        lines.append([kind.name, number(several), number(one), number(several / one)])
    section.text(
        f"{sizes.sites} sites of {runs} runs each, beside one warehouse of {sizes.sites * runs} runs with "
        f"the same {sizes.rows:,} rows, and 1 % as many live ones; a key, and one of 50 places as the group. "
        f"On a disk, warm, each question with another phi, medians of {sizes.questions}:\n\n"
        + table(["question", "sites (ms)", "one warehouse (ms)", "ratio"], lines)
    )
