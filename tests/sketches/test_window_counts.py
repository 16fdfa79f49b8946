import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sketches.arrivals import PlainHistogram, PlainWave, assert_counts, history_of, single
from tidemark.sketches import Counting, InvalidInput, WindowCounts, merge_counts
from tidemark.sketches.counters.buckets import Buckets
from tidemark.sketches.counters.counting import CounterKind
from tidemark.sketches.counters.deterministic_wave import slots_per_level

KINDS: list[CounterKind] = ["EH", "DW"]
EPS = [0.9, 0.5, 0.3, 0.1, 0.02]
# Times repeat often: several arrivals of one time in several buckets are where windows go wrong.
BATCHES = st.lists(st.lists(st.integers(0, 6), min_size=1, max_size=60), min_size=1, max_size=5)
COUNTS = st.lists(st.tuples(st.integers(0, 4), st.integers(1, 70)), min_size=1, max_size=25)


def fill(counts: WindowCounts, batches: list[list[int]]) -> np.ndarray:
    """Adds steps of time; returns the times."""
    now, whole = 0, []
    for steps in batches:
        times = now + np.cumsum(steps)
        now = int(times[-1])
        counts.update(times)
        whole.append(times)
    return np.concatenate(whole)


@given(BATCHES, st.sampled_from(KINDS), st.sampled_from(EPS), st.sampled_from([None, 1, 7, 50, 10**6]))
def test_every_window_has_its_count_within_bounds(
    batches: list[list[int]], kind: CounterKind, eps: float, window: int | None
) -> None:
    counts = single(kind, eps, window)
    assert_counts(counts, fill(counts, batches))


@given(COUNTS, st.sampled_from(KINDS), st.sampled_from(EPS))
def test_a_count_is_as_many_single_arrivals(
    runs: list[tuple[int, int]], kind: CounterKind, eps: float
) -> None:
    times = np.cumsum([step for step, _ in runs])
    often = np.array([count for _, count in runs])
    at_once, one_by_one = single(kind, eps), single(kind, eps)
    at_once.update(times, often)
    one_by_one.update(np.repeat(times, often))
    for name in ("cells", "starts", "ends", "sizes"):
        assert getattr(at_once.kept, name).tolist() == getattr(one_by_one.kept, name).tolist()
    assert_counts(at_once, history_of(times, often).times)


@given(BATCHES, st.sampled_from(EPS))
def test_batches_leave_the_buckets_of_the_books(batches: list[list[int]], eps: float) -> None:
    histogram, wave = single("EH", eps), single("DW", eps)
    plain_histogram, plain_wave = PlainHistogram(eps), PlainWave(slots_per_level(eps))
    for time in fill(histogram, batches).tolist():
        plain_histogram.add(time)
        plain_wave.add(time)
    fill(wave, batches)
    for counts, plain in ((histogram, plain_histogram), (wave, plain_wave)):
        kept = counts.kept
        assert isinstance(kept, Buckets)
        assert list(zip(kept.ends.tolist(), kept.sizes.tolist(), strict=True)) == plain.buckets()


@pytest.mark.parametrize("kind", KINDS)
def test_a_counter_keeps_few_buckets_of_many_arrivals(kind: CounterKind) -> None:
    counts = single(kind, 0.1)
    counts.update(np.arange(1_000_000))
    assert len(counts.kept) <= 10 + 7 * math.log2(1_000_000)
    assert_counts(counts, np.arange(1_000_000), since=range(0, 1_000_001, 997))


@pytest.mark.parametrize("kind", KINDS)
def test_a_count_beyond_2_to_40_is_added_at_once(kind: CounterKind) -> None:
    counts = single(kind, 0.05)
    counts.update([1, 2, 3], [5, 2**40, 7])
    assert counts.since()[0].lo == counts.since(1)[0].hi == 2**40 + 12
    found = counts.since(3)[0]
    assert found.lo <= 7 <= found.hi
    assert counts.since(2)[0].lo <= 2**40 + 7 <= counts.since(2)[0].hi


@given(BATCHES, st.sampled_from(KINDS), st.integers(0, 400), st.integers(0, 400))
def test_a_window_that_ends_before_now_is_between_its_bounds(
    batches: list[list[int]], kind: CounterKind, a: int, b: int
) -> None:
    counts = single(kind, 0.2)
    times = fill(counts, batches)
    since, until = min(a, b), max(a, b)
    found = counts.between(since, until)[0]
    true = int(((times >= since) & (times < until)).sum())
    assert found.lo <= true <= found.hi
    assert found.lo <= found.estimate <= found.hi
    ends = 2 * counts.error * (times >= since).sum() + 1e-9
    assert abs(found.estimate - true) <= ends


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sites", [2, 16, 256])
def test_a_merge_of_many_sites_keeps_its_error(kind: CounterKind, sites: int) -> None:
    rng = np.random.default_rng(sites)
    eps, parts, whole = 0.1, [], []
    for _ in range(sites):
        times = np.sort(rng.integers(0, 10_000, rng.integers(1, 400)))
        parts.append(single(kind, eps))
        parts[-1].update(times)
        whole.append(times)
    merged = merge_counts(parts)
    assert math.isclose(merged.error, 2 * eps + eps**2)
    assert_counts(merged, np.concatenate(whole), since=range(0, 10_001, 17))
    tighter = merge_counts(parts, eps=0.02)
    assert math.isclose(tighter.error, eps + 0.02 + eps * 0.02)
    assert_counts(tighter, np.concatenate(whole), since=range(0, 10_001, 17))


@pytest.mark.slow
@settings(max_examples=60)
@given(
    st.lists(BATCHES, min_size=2, max_size=6),
    st.sampled_from(KINDS),
    st.sampled_from([0.05, 0.2, 0.5]),
    st.sampled_from([None, 40]),
)
def test_bounds_hold_after_any_tree_of_merges(
    sites: list[list[list[int]]], kind: CounterKind, eps: float, window: int | None
) -> None:
    """The merged counter goes on counting, and is merged again."""
    pool = []
    for batches in sites:
        counts = single(kind, eps, window)
        pool.append((counts, fill(counts, batches)))
    while len(pool) > 1:
        (a, times_a), (b, times_b), *pool = pool
        merged = merge_counts([a, b])
        times = np.sort(np.concatenate([times_a, times_b]))
        assert_counts(merged, times)
        assert merged.now is not None
        more = merged.now + np.arange(3)
        merged.update(more)
        times = np.concatenate([times, more])
        assert_counts(merged, times)
        pool.append((merged, times))


def test_the_error_of_levels_compounds() -> None:
    """Each level's eps is one of what the level below tells; the paper's sum of levels leaves that out."""
    level, eps = [single("EH", 0.1) for _ in range(8)], 0.1
    for i, counts in enumerate(level):
        counts.update(np.arange(i, 500, 8))
    for height in (1, 2, 3):
        level = [merge_counts([a, b]) for a, b in zip(level[::2], level[1::2], strict=True)]
        assert math.isclose(level[0].error, (1 + eps) ** (height + 1) - 1)
        assert level[0].error >= height * eps * (1 + eps) + eps - 1e-12
    assert_counts(level[0], np.sort(np.concatenate([np.arange(i, 500, 8) for i in range(8)])))


@pytest.mark.parametrize("kind", KINDS)
def test_the_clock_of_counts_keeps_the_last_arrivals(kind: CounterKind) -> None:
    """The cell of each arrival is asked among the last 100 of all arrivals."""
    counts = WindowCounts(Counting(kind, 0.1, window=100, clock="count"), cells=3)
    drawn = np.random.default_rng(3).integers(0, 3, 1000)
    for part in np.array_split(drawn, 7):
        counts.update(cells=part[None, :])
    assert (counts.n, counts.now, counts.horizon) == (1000, 999, 899)
    for last in (1, 10, 55, 100):
        found = counts.since(1000 - last)
        true = np.bincount(drawn[-last:], minlength=3)
        assert (found.lo <= true).all()
        assert (true <= found.hi).all()
        assert (np.abs(found.estimate - true) <= 0.1 * true + 1e-9).all()
    with pytest.raises(InvalidInput, match="expired"):
        counts.since(899)
    with pytest.raises(InvalidInput, match="interleave"):
        merge_counts([counts, counts])


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_window_forgets_exactly_what_expired(kind: CounterKind) -> None:
    counts = single(kind, 0.1, window=10)
    counts.update([0, 5, 10])
    assert counts.horizon == 0, "the arrival at now - window has expired, the next has not"
    assert counts.since()[0].lo == counts.since()[0].hi == 2
    assert counts.since(6)[0].lo == 1
    with pytest.raises(InvalidInput, match="longer window"):
        counts.since(0)
    for now in range(11, 2000):
        counts.update([now])
    assert len(counts.kept) <= 11


def test_nothing_and_one() -> None:
    for kind in KINDS:
        counts = single(kind, 0.1)
        assert (counts.n, counts.first, counts.now, counts.since()[0].hi) == (0, None, None, 0)
        counts.update(np.empty(0, np.int64))
        assert merge_counts([counts, counts]).n == counts.n == 0
        counts.update([-(2**62)])
        assert (counts.first, counts.since()[0].lo, counts.since(-(2**62) + 1)[0].hi) == (-(2**62), 1, 0)
        counts.update([2**62])
        assert counts.since(0)[0].lo == counts.since(0)[0].hi == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"times": [5, 4]}, "never decrease"),
        ({"times": [1]}, "never decrease"),
        ({"times": [3.5]}, "int64"),
        ({"times": [[4]]}, "one dimension"),
        ({"times": None}, "no times"),
        ({"times": [2**62 + 1]}, "within 2\\*\\*62"),
        ({"times": [4], "counts": [0]}, "below 1"),
        ({"times": [4, 5], "counts": [2**61, 2**61]}, "2\\*\\*62 arrivals"),
        ({"times": [4], "counts": [1, 1]}, "1 times, 2 counts"),
        ({"times": [4], "cells": np.zeros((1, 2), np.int64)}, "cells of shape"),
        ({"times": [4], "cells": np.zeros((2, 1), np.int64)}, "share the cells"),
        ({"times": [4], "cells": np.zeros((0, 1), np.int64)}, "share the cells"),
        ({"times": [4], "cells": np.zeros(1, np.int64)}, "two dimensions"),
        ({"times": [4], "cells": np.ones((1, 1), np.int64)}, "another row"),
        ({"times": [4], "cells": np.full((1, 1), -1)}, "another row"),
    ],
)
def test_a_refused_update_changes_nothing(arguments: dict[str, Any], message: str) -> None:
    counts = single("EH", 0.1)
    counts.update([1, 2, 3])
    with pytest.raises(InvalidInput, match=message):
        counts.update(**arguments)
    assert (counts.n, counts.now) == (3, 3)
    assert_counts(counts, np.array([1, 2, 3]))


@pytest.mark.parametrize(
    ("kind", "eps", "options", "message"),
    [
        ("XX", 0.1, {}, "kind 'XX'"),
        ("EH", 0.1, {"clock": "sun"}, "clock 'sun'"),
        ("EH", 0.0, {}, "eps = 0.0"),
        ("EH", 1.0, {}, "eps = 1.0"),
        ("EH", 0.1, {"window": 0}, "window 0"),
        ("EH", 0.1, {"window": True}, "window True"),
        ("EH", 0.1, {"delta": 0.1}, "delta = 0.1"),
        ("RW", 0.1, {}, "delta = 0.0"),
        ("RW", 0.1, {"delta": 0.1, "site": -1}, "site -1"),
    ],
)
def test_a_way_of_counting_that_is_none_is_refused(
    kind: Any, eps: float, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        Counting(kind, eps, **options)


def test_unlike_counters_are_not_merged() -> None:
    counts = single("EH", 0.1)
    for other in (single("DW", 0.1), single("EH", 0.1, 5), WindowCounts(Counting("EH", 0.1), 2)):
        for pair in ((counts, other), (other, counts)):
            with pytest.raises(InvalidInput, match=r"one kind, window and clock|numbers of cells"):
                merge_counts(pair)


def test_a_window_that_ends_before_it_begins_is_refused() -> None:
    counts = single("EH", 0.1)
    counts.update([1, 2, 3])
    assert counts.between(2, 2)[0].hi == 0
    for a, b in pairwise([3, 2, 1]):
        with pytest.raises(InvalidInput, match="since <= until"):
            counts.between(a, b)


@pytest.mark.parametrize("kind", KINDS)
def test_each_row_takes_every_arrival_in_its_own_cells(kind: CounterKind) -> None:
    counts = WindowCounts(Counting(kind, 0.1), cells=4)
    counts.update([1, 2, 3], cells=np.array([[0, 1, 0], [3, 3, 2]]))
    assert counts.since(2).lo.tolist() == [1, 1, 1, 1]
    assert counts.since().lo.tolist() == [2, 1, 1, 2]
    with pytest.raises(InvalidInput, match="another row"):
        counts.update([4], cells=np.array([[2], [3]]))
    assert counts.n == 3
