"""Randomised waves of keys: both forms against plain lists, what they promise, and the printed query."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sketches.distinct_streams import PlainWave, Stream, counter_of, streams
from tidemark.sketches import digest
from tidemark.sketches.distinct import MedianOf, RandomizedWave, StochasticAverage
from tidemark.sketches.distinct.arrivals import NEVER
from tidemark.sketches.distinct.mixing import mix, salt_of
from tidemark.sketches.distinct.newest_times import NewestTimes
from tidemark.sketches.distinct.randomized_wave import WaveLists
from tidemark.sketches.distinct.recent_list import RecentList

FORMS: list[WaveLists] = ["nested", "disjoint"]


def filled(capacity: int, lists: WaveLists, keys: int, seed: int) -> RandomizedWave:
    wave = RandomizedWave(capacity=capacity, lists=lists, seed=seed)
    wave.update(np.arange(keys, dtype=np.uint64), np.arange(keys))
    return wave


def level_and_entries(wave: RandomizedWave, since: int) -> tuple[int, int]:
    """The level that a query takes, and the number of entries that it counts."""
    horizons = [recent.horizon for recent in wave._lists]
    level = next(i for i in range(len(horizons) + 1) if all(h < since for h in horizons[i:]))
    return level, round(wave.distinct(since) / 2**level)


@pytest.mark.parametrize("lists", FORMS)
@given(
    arrivals=st.lists(st.tuples(st.integers(0, 25), st.integers(0, 2)), max_size=60),
    capacity=st.integers(1, 4),
    sizes=st.lists(st.integers(1, 20), min_size=1, max_size=3),
)
def test_batches_leave_the_lists_of_single_arrivals(
    lists: WaveLists, arrivals: list[tuple[int, int]], capacity: int, sizes: list[int]
) -> None:
    keys, steps = np.array(arrivals, np.int64).reshape(-1, 2).T
    stream = Stream(keys, np.cumsum(steps))
    wave = RandomizedWave(capacity=capacity, lists=lists)
    plain = PlainWave(capacity, nested=lists == "nested")
    for batch in stream.batches(sizes):
        wave.update(digest(batch.keys), batch.times)
        hashes = mix(digest(batch.keys), salt_of(0))
        for key, time in zip(hashes.tolist(), batch.times.tolist(), strict=True):
            plain.add(key, time)
        for i, recent in enumerate(wave._lists):
            assert recent.entries() == plain.lists[i]
            assert recent.horizon == (NEVER if plain.horizons[i] is None else plain.horizons[i])
        assert not any(plain.lists[len(wave._lists) :])
    for since in range(-1, int(stream.times[-1]) + 2 if len(keys) else 1):
        assert wave.distinct(since) == plain.distinct(since)


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 2)), max_size=50),
    st.integers(1, 5),
    st.lists(st.integers(-2, 30), max_size=6),
)
def test_a_recent_list_has_the_last_keys_and_the_time_of_the_next(
    arrivals: list[tuple[int, int]], capacity: int, asked: list[int]
) -> None:
    keys, steps = np.array(arrivals, np.int64).reshape(-1, 2).T
    times = np.cumsum(steps)
    recent, newest = RecentList(capacity), dict[int, int]()
    for i, (key, time) in enumerate(zip(keys.tolist(), times.tolist(), strict=True)):
        recent.add([key], [time])
        newest.pop(key, None)
        newest[key] = time
        last = list(newest.items())
        assert recent.entries() == last[-capacity:]
        assert recent.horizon == (last[-capacity - 1][1] if len(last) > capacity else NEVER)
        # Windows of the past and of the future, in any order, between arrivals.
        for since in asked[i % 3 :: 3]:
            assert recent.count_since(since) == sum(t >= since for _, t in last[-capacity:])
            recent.check_invariants(time)


@pytest.mark.parametrize("lists", FORMS)
def test_windows_of_at_most_c_keys_are_exact(lists: WaveLists) -> None:
    for stream in streams(np.random.default_rng(2)).values():
        wave = counter_of(lambda seed: RandomizedWave(capacity=64, lists=lists, seed=seed), stream)
        for since in np.unique(stream.times)[-80:].tolist():
            if (distinct := stream.since(since).distinct) <= 64:
                assert wave.distinct(since) == distinct


@pytest.mark.parametrize(("lists", "least", "most"), [("nested", 0.5, 1), ("disjoint", 1, 2)])
def test_from_half_to_all_of_c_entries_count_and_twice_that_in_disjoint_lists(
    lists: WaveLists, least: float, most: float
) -> None:
    """With a tenth of tolerance, because the keys of a level are a random number."""
    for seed in range(4):
        wave = filled(400, lists, 30_000, seed)
        for since in range(0, 28_000, 1000):
            _, entries = level_and_entries(wave, since)
            assert 0.85 * least * 400 <= entries <= 1.15 * most * 400
        assert wave.nbytes == 16 * len(wave) + 8 * len(wave._lists)
        assert len(wave) <= 400 * (2 + math.log2(30_000 / 400))


@pytest.mark.parametrize("lists", FORMS)
def test_36_divided_by_eps_squared_entries_are_within_eps(lists: WaveLists) -> None:
    """With probability 2/3 at least; in truth almost always."""
    eps, keys, seeds = 0.3, 5000, 30
    waves = [filled(math.ceil(36 / eps**2), lists, keys, seed) for seed in range(seeds)]
    errors = np.array([abs(wave.distinct(0) / keys - 1) for wave in waves])
    assert (errors <= eps).mean() >= 2 / 3
    assert (errors <= eps).all()
    assert np.median(errors) > 0.001, "a sample this exact is none"


def test_a_median_of_waves_fails_less_often_than_one() -> None:
    eps, keys = 0.25, 1000
    alone = [abs(filled(12, "nested", keys, seed).distinct(0) / keys - 1) for seed in range(100)]
    medians = []
    for seed in range(60):
        median = MedianOf([RandomizedWave(capacity=12, seed=1000 + 9 * seed + i) for i in range(9)])
        median.update(np.arange(keys, dtype=np.uint64), np.zeros(keys, np.int64))
        medians.append(abs(median.distinct(0) / keys - 1))
    assert np.mean(np.array(medians) > eps) < 0.3 * np.mean(np.array(alone) > eps)


def test_the_printed_query_joins_levels_that_are_cut_off() -> None:
    """Levels 0 to l in place of l and more: about (l / 1.5 + 1/2) times D, at random sizes; the right: D."""
    right, printed, levels = [], [], []
    for seed in range(20):
        wave = filled(100, "disjoint", 30_000, seed)
        level, entries = level_and_entries(wave, 0)
        joined = sum(recent.count_since(0) for recent in wave._lists[: level + 1])
        levels.append(level)
        right.append(entries * 2**level / 30_000)
        printed.append(joined * 2**level / 30_000)
    assert set(levels) <= {7, 8}
    assert np.mean(right) == pytest.approx(1, abs=0.1)
    assert np.mean(printed) > 4


def test_a_higher_list_may_have_dropped_what_the_level_has() -> None:
    """By chance: with 4 keys a list, a query that asks the horizon of one list alone is far too small."""
    missed = []
    for seed in range(200):
        wave = filled(4, "disjoint", 60, seed)
        horizons = [*(recent.horizon for recent in wave._lists), NEVER]
        own = horizons.index(NEVER)
        level, _ = level_and_entries(wave, 0)
        assert own <= level
        missed.append(own < level)
    assert 0.02 < np.mean(missed) < 0.5


def test_questions_cost_pcsa_all_cells_and_rw_at_most_a_step_an_update(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So PCSA pays where updates per question are many: not where they are few, as the conclusion has it."""
    steps = {"read": 0, "moved": 0}
    live, cut_at = NewestTimes.live, RecentList._cut_at

    def counted_live(self: NewestTimes, since: int) -> Any:
        steps["read"] += len(self.times)
        return live(self, since)

    def counted_cut_at(self: RecentList, since: int) -> None:
        before = len(self._current)
        cut_at(self, since)
        steps["moved"] += abs(len(self._current) - before)

    monkeypatch.setattr(NewestTimes, "live", counted_live)
    monkeypatch.setattr(RecentList, "_cut_at", counted_cut_at)
    updates = 3000
    keys, read, moved = np.arange(updates, dtype=np.uint64), [], []
    for ratio in (1, 100, 1000):
        steps.update(read=0, moved=0)
        pcsa = StochasticAverage(kind="PCSA", groups=16)
        wave = RandomizedWave(capacity=100, lists="disjoint")
        for i in range(0, updates, ratio):
            for sketch in (pcsa, wave):
                sketch.update(keys[i : i + ratio], np.arange(i, i + ratio))
                sketch.distinct(since=i + ratio - 500)
        read.append(steps["read"] / updates)
        moved.append(steps["moved"] / updates)
    assert read == [16 * 32, 16 * 32 / 100, 16 * 32 / 1000]
    assert max(moved) <= 1
    assert read[0] > 100 * moved[0]
    assert moved[0] > 0
