"""Tests of the tests: each mistake of the thesis, and each that is easy to make here, must be caught."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.sketches.distinct_streams import (
    COUNTERS,
    TINY,
    Factory,
    PlainWave,
    Stream,
    answer,
    counter_of,
    hashes_of,
    streams,
)
from tidemark.sketches import SketchError, digest
from tidemark.sketches.distinct import (
    DistinctCounter,
    RandomizedWave,
    arrivals,
    bjkst,
    boosting,
    listed_counting,
)
from tidemark.sketches.distinct import linear_counting as linear
from tidemark.sketches.distinct import newest_times as newest
from tidemark.sketches.distinct import randomized_wave as wave
from tidemark.sketches.distinct import stochastic_average as average
from tidemark.sketches.distinct.arrivals import NEVER, Ints
from tidemark.sketches.distinct.mixing import Hashes, cell_of, level_of
from tidemark.sketches.distinct.newest_times import NewestTimes
from tidemark.sketches.distinct.recent_list import RecentList
from tidemark.sketches.hashing.few_smaller import few_smaller_before

LIVE, COUNT_SINCE, ADD = NewestTimes.live, RecentList.count_since, RecentList.add
LOWEST, HIGHEST = average.lowest_unset, average.highest_set
FEW, LAST, ENTRIES = few_smaller_before, arrivals.last_arrivals, bjkst.BJKST._entries
Patch = tuple[object, str, Callable[..., object]]


def exercise() -> None:
    """Sketches of every kind over streams of every kind: invariants, windows alone, and 4 standard errors."""
    rng = np.random.default_rng(8)
    for stream in streams(rng, 300).values():
        for factory in TINY.values():
            counter = factory(0)
            for batch in stream.batches([90, 1, 13]):
                counter.update(digest(batch.keys), batch.times)
                counter.check_invariants()
                assert counter.distinct(int(batch.times[-1]) + 3) == 0  # of a window that has not begun
            check_windows(counter, factory, stream)
    drawn = streams(rng, 3000)
    for seed in range(20):
        check_disjoint_lists(seed)
    at_0 = Stream(np.arange(600), np.zeros(600, np.int64))
    for name, factory in COUNTERS.items():
        for stream in (drawn["at and before 0"], drawn["drawn"], at_0):
            for seed in (0, 4):
                counter = counter_of(factory, stream, seed)
                for since in np.quantile(stream.times, [0, 0.3, 0.6], method="nearest").tolist():
                    distinct = stream.since(since).distinct
                    error = counter.relative_error(distinct)
                    assert abs(counter.distinct(since) - distinct) <= 4 * error * distinct, name


def check_disjoint_lists(seed: int) -> None:
    """The answers are those of plain lists, which ask all their horizons."""
    counter, plain = TINY["RW disjoint"](seed), PlainWave(2, nested=False)
    keys, times = np.arange(200, dtype=np.uint64), np.arange(200)
    counter.update(keys, times)
    for key, time in zip(hashes_of(200, seed).tolist(), times.tolist(), strict=True):
        plain.add(key, time)
    assert [counter.distinct(since) for since in times.tolist()] == [
        plain.distinct(since) for since in times.tolist()
    ]


def check_windows(counter: DistinctCounter, factory: Factory, stream: Stream) -> None:
    """A window's answer is that of a sketch which has seen nothing else, asked for all that it has seen."""
    for since in np.unique(stream.times)[::29].tolist():
        alone = counter_of(factory, stream.since(since))
        assert answer(counter, since) == answer(alone, int(stream.times[0]) - 1)


def unmixed(digests: Hashes, _: int) -> Hashes:
    return digests


def printed_estimate(unset: int, cells: int) -> float:
    return unset * np.log(cells / unset) if unset else 0.0


def printed_rule(hashes: Hashes, _: int) -> Any:
    """Keeps a hash if none before it is smaller."""
    return hashes == np.minimum.accumulate(hashes)


def first_arrivals(keys: Any, times: Ints) -> tuple[Any, Ints]:
    first = np.sort(np.unique(keys, return_index=True)[1])
    return keys[first], times[first]


def printed_levels(self: RandomizedWave, since: int) -> float:
    """Joins the levels 0 to l of disjoint lists."""
    level = len(self._lists)
    while level and self._lists[level - 1].horizon < since:
        level -= 1
    first = level if self.lists == "nested" else 0
    return 2.0**level * sum(recent.count_since(since) for recent in self._lists[first : level + 1])


def own_horizon_alone(self: RandomizedWave, since: int) -> float:
    """Asks the horizon of list l, not those of the lists above it."""
    complete = [*(recent.horizon < since for recent in self._lists), True]
    level = complete.index(True)
    last = level + 1 if self.lists == "nested" else len(self._lists)
    return 2.0**level * sum(recent.count_since(since) for recent in self._lists[level:last])


def add_forgetting_the_horizon(self: RecentList, keys: Any, times: Any) -> None:
    ADD(self, keys, times)
    self.horizon = NEVER


def add_without_moving(self: RecentList, keys: list[int], times: list[int]) -> None:
    """A key seen again keeps its place."""
    places = dict(self.entries())
    ADD(self, keys, times)
    if places and next(iter(places)) in self._current:
        self._current.move_to_end(next(iter(places)), last=False)


def add_cutting_at_capacity(self: RecentList, keys: Any, times: Any) -> None:
    """A batch is cut to c keys, so the time of the next one is lost."""
    ADD(self, keys[-self.capacity :], times[-self.capacity :])


def add_before_a_future_window(self: RecentList, keys: Any, times: Any) -> None:
    """Arrivals are put into the last window, even those before it."""
    self._begin, begin = NEVER, self._begin
    ADD(self, keys, times)
    self._begin = begin


def entries_without_the_last(self: bjkst.BJKST) -> tuple[Hashes, Ints]:
    hashes, times = ENTRIES(self)
    return hashes[:-1], times[:-1]


MISTAKES: dict[str, Patch] = {
    "integers are not mixed": (arrivals, "mix", unmixed),
    "parts of a sum share the hash that chose them": (boosting, "mix", unmixed),
    "PCSA as printed": (average, "lowest_unset", lambda live: LOWEST(live) + 2),
    "LogLog as printed": (average, "highest_set", lambda live: HIGHEST(live) + 1),
    "LC as printed": (linear, "linear_estimate", printed_estimate),
    "LC2 as printed": (listed_counting, "linear_estimate", printed_estimate),
    "BJKST's rule as printed": (bjkst, "few_smaller_before", printed_rule),
    "RW joins the levels as printed": (wave.RandomizedWave, "distinct", printed_levels),
    "RW asks one horizon": (wave.RandomizedWave, "distinct", own_horizon_alone),
    "arrivals at time 0 are lost, as printed": (
        newest.NewestTimes,
        "live",
        lambda self, since: LIVE(self, since) & (self.times != 0),
    ),
    "BJKST keeps one too few": (bjkst, "few_smaller_before", lambda h, theta: FEW(h, theta - 1)),
    "BJKST reads the hashes oldest first": (
        bjkst,
        "few_smaller_before",
        lambda h, theta: FEW(h[::-1], theta)[::-1],
    ),
    "BJKST leaves out the newest": (bjkst.BJKST, "_entries", entries_without_the_last),
    "a batch keeps first arrivals in BJKST": (bjkst, "last_arrivals", first_arrivals),
    "a batch keeps first arrivals in RW": (wave, "last_arrivals", first_arrivals),
    "a batch keeps first arrivals in LC2": (listed_counting, "last_arrivals", first_arrivals),
    "a batch keeps all arrivals in BJKST": (bjkst, "last_arrivals", lambda keys, times: (keys, times)),
    "a list forgets its horizon": (RecentList, "add", add_forgetting_the_horizon),
    "a key seen again keeps its place": (RecentList, "add", add_without_moving),
    "a batch is cut to the capacity": (RecentList, "add", add_cutting_at_capacity),
    "the last window takes arrivals before it": (RecentList, "add", add_before_a_future_window),
    "a window begins one later": (NewestTimes, "live", lambda self, since: LIVE(self, since + 1)),
    "a window of a list begins one later": (
        RecentList,
        "count_since",
        lambda self, since: COUNT_SINCE(self, since + 1),
    ),
    "levels count from 1": (wave, "level_of", lambda hashes: level_of(hashes) + 1),
    "places count from 1": (
        average,
        "cells_of",
        lambda hashes, groups: cell_of(hashes, groups) * 32 + np.minimum(level_of(hashes) + 1, 31),
    ),
}


def test_the_exercise_passes_without_a_mistake() -> None:
    exercise()


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_caught(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*MISTAKES[mistake])
    with pytest.raises((AssertionError, SketchError, IndexError)):
        exercise()
