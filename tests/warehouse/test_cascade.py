"""The promise for live keys at the deepest: pieces, tasks, all levels of the cascade above one another."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.query.answers import several
from tests.warehouse.keyworld import DAY_US, KeyWorld
from tidemark import query
from tidemark.option_table import OPTIONS
from tidemark.query.answers.key_answers import FrequencyAnswer
from tidemark.sketches import ECM
from tidemark.warehouse import verify
from tidemark.warehouse.cascade import LEVELS, MERGES
from tidemark.warehouse.columns.keys import KeyColumn
from tidemark.warehouse.columns.ticks import from_epoch_us
from tidemark.warehouse.delta import data_files, tables
from tidemark.warehouse.delta.table_names import LEDGER
from tidemark.warehouse.ledger import batch_summaries
from tidemark.warehouse.ledger.batch_summaries import TickSummary
from tidemark.warehouse.ledger.key_summaries import KeyPromise, KeySummary, digests, join, summarise
from tidemark.warehouse.sizes import Tuning

DELTA = 0.01
KEY_EPS = OPTIONS["key_eps"].default
SINCE = 5 * DAY_US + DAY_US // 2  # cuts the tick that all rows have
Event = tuple[Any, int | None]


class Rows:
    """Rows of 40 keys in one tick, and their summaries."""

    def __init__(self, promise: KeyPromise) -> None:
        self.promise, self.random = promise, np.random.default_rng(7)
        self.codes, self.times = np.empty(0, np.int64), np.empty(0, np.int64)

    def more(self, count: int) -> KeySummary:
        codes = self.random.integers(0, 40, count) ** 2 // 40
        times = self.random.integers(0, 10_000, count)
        self.codes, self.times = np.append(self.codes, codes), np.append(self.times, times)
        return summarise(KeyColumn(np.arange(40), codes, np.zeros(count, bool)), times, self.promise, 0)


def stacked(rows: Rows, first: KeySummary, merges: int) -> KeySummary:
    """The summary after merges above one another, each with two that were never merged."""
    for _ in range(merges):
        joined = join([first, rows.more(300), rows.more(300)])
        assert joined is not None
        first = joined
    return first


@pytest.mark.parametrize("eps", [0.499999, 0.1, KEY_EPS, 0.001])
def test_the_deepest_summary_keeps_key_eps_and_says_so(eps: float) -> None:
    rows = Rows(KeyPromise(eps, DELTA))
    sketch = stacked(rows, rows.more(2000), MERGES).sketch
    assert eps * 0.99 < sketch.point_eps <= eps
    for since in (None, 2500, 9000):
        true = np.bincount(rows.codes[rows.times >= (since or 0)], minlength=40)
        found = sketch.points(digests(np.arange(40)), since)
        assert np.all(true <= found.hi)
        assert np.mean(np.abs(found.estimate - true) > eps * true.sum()) <= DELTA


def test_room_for_fewer_merges_would_not_keep_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemark.warehouse.ledger.key_summaries.MERGES", MERGES - 1)
    with pytest.raises(AssertionError):
        test_the_deepest_summary_keeps_key_eps_and_says_so(KEY_EPS)


def stream(world: KeyWorld, batches: int) -> list[Event]:
    """Batches of three tasks, each with more pieces than are held before they are joined."""
    r = random.Random(len(world.streamed))
    found: list[Event] = []
    for _ in range(batches):
        events = [(f"k{int(r.paretovariate(1))}", 5 * DAY_US + r.randrange(DAY_US)) for _ in range(1500)]
        world.stream(events, shares=3)
        found += events
    return found


def states(world: KeyWorld) -> list[float]:
    """What each sketch of the ledger says that it keeps."""
    rows = data_files.read(world.store, LEDGER, tables.open_table(world.store, LEDGER))
    return [ECM.from_bytes(one["k"]["sketch"]).point_eps for one in rows.column("keys").to_pylist()]


def open_frequencies(world: KeyWorld, events: list[Event]) -> list[FrequencyAnswer]:
    """Checked answers over a window that cuts the tick."""
    true = Counter(key for key, at in events if at is not None and at >= SINCE)
    answers = several(query.open(world.uri).frequency(list(true), between=(from_epoch_us(SINCE), None)))
    wrong = 0
    for one in answers:
        assert true[one.value] <= one.hi
        wrong += abs(one.count - true[one.value]) > one.eps * one.m
    assert wrong <= DELTA * len(answers)
    return list(answers)


def deep(folder: Path) -> KeyWorld:
    """A fan of two, so that 16 batches have all levels; pieces are joined by twos."""
    options = {"key_eps": 0.05, "key_delta": DELTA}
    return KeyWorld(folder / "w", options=options, tuning=Tuning(fan=2, summary_parts=2))


def test_a_warehouse_of_all_levels_keeps_key_eps(tmp_path: Path) -> None:
    world = deep(tmp_path)
    events = stream(world, 2**LEVELS)
    said = states(world)
    assert len(said) == 2 ** (LEVELS + 1) - 1
    assert 0.049 < max(said) <= 0.05
    assert {one.eps for one in open_frequencies(world, events)} == {0.05}
    assert verify(world.uri).ok


def chained(found: list[TickSummary], eps: float) -> list[TickSummary]:
    """Joins each summary to what was joined before: a merge more for every task."""
    whole = found[0]
    for one in found[1:]:
        whole = batch_summaries.join([whole, one], eps)
    return [whole]


def test_merges_of_what_was_merged_at_the_same_place_would_not_keep_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.warehouse.keyworld.by_tick", chained)
    with pytest.raises(AssertionError):
        test_a_warehouse_of_all_levels_keeps_key_eps(tmp_path)
