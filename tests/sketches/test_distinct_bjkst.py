"""BJKST: what the rule keeps, how much that is, and what the thesis's rule and estimates give instead."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sketches.distinct_streams import PlainBJKST, Stream, counter_of, hashes_of, streams
from tidemark.sketches import digest
from tidemark.sketches.distinct import BJKST
from tidemark.sketches.distinct.mixing import Hashes, mix, salt_of
from tidemark.sketches.hashing.few_smaller import few_smaller_before


def kept_after(sketch: BJKST) -> list[tuple[int, int]]:
    """The entries that the rule leaves; a sketch may hold some more."""
    sketch._apply_rule()
    return list(sketch._newest.items())


def filled(theta: int, keys: int, seed: int) -> BJKST:
    sketch = BJKST(theta=theta, seed=seed)
    sketch.update(np.arange(keys, dtype=np.uint64), np.arange(keys))
    return sketch


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 2)), max_size=60),
    st.integers(3, 6),
    st.lists(st.integers(1, 20), min_size=1, max_size=3),
)
def test_batches_leave_what_the_rule_leaves_arrival_by_arrival(
    arrivals: list[tuple[int, int]], theta: int, sizes: list[int]
) -> None:
    keys, steps = np.array(arrivals, np.int64).reshape(-1, 2).T
    stream = Stream(keys, np.cumsum(steps))
    plain, sketch = PlainBJKST(theta), BJKST(theta=theta)
    for batch in stream.batches(sizes):
        sketch.update(digest(batch.keys), batch.times)
        hashes = mix(digest(batch.keys), salt_of(0))
        for key, time in zip(hashes.tolist(), batch.times.tolist(), strict=True):
            plain.add(key, time)
        held = dict(sketch._newest)
        assert all(held[key] == time for key, time in plain.entries)
        assert len(held) <= max(theta, 1.25 * len(plain.entries) + theta / 4 + len(batch.keys))
    assert kept_after(sketch) == plain.entries


@given(st.lists(st.integers(0, 2**64 - 1), unique=True, max_size=80), st.integers(1, 9))
def test_few_smaller_before_counts(hashes: list[int], theta: int) -> None:
    counted = [sum(before < key for before in hashes[:i]) < theta for i, key in enumerate(hashes)]
    assert few_smaller_before(np.array(hashes, np.uint64), theta).tolist() == counted


@pytest.mark.parametrize("order", [1, -1])
def test_few_smaller_before_takes_sorted_hashes(order: int) -> None:
    hashes = np.arange(1000, dtype=np.uint64)[::order]
    assert few_smaller_before(hashes, 10).sum() == (10 if order == 1 else 1000)


@pytest.mark.parametrize("theta", [16, 64])
def test_the_mean_size_is_theta_times_1_and_the_logarithm(theta: int) -> None:
    """The sum of min(1, theta / r) over r = 1 to D, which theta * (1 + ln(D / theta)) bounds."""
    keys, seeds = 20_000, 12
    sizes = [len(kept_after(filled(theta, keys, seed))) for seed in range(seeds)]
    expected = np.minimum(1, theta / np.arange(1, keys + 1)).sum()
    assert expected <= theta * (1 + math.log(keys / theta))
    assert np.mean(sizes) == pytest.approx(expected, rel=4 / math.sqrt(expected * seeds))


def test_a_sketch_holds_at_most_a_quarter_and_theta_4_more() -> None:
    sketch, keys = BJKST(theta=32), np.arange(20_000, dtype=np.uint64)
    for start in range(0, len(keys), 50):
        sketch.update(keys[start : start + 50], np.arange(start, start + 50))
        held = len(sketch)
        hashes, _ = sketch._entries()
        ruled = int(few_smaller_before(hashes[::-1], 32).sum())
        assert ruled <= held <= 1.25 * ruled + 32 / 4 + 50


def printed_rule(hashes: Hashes) -> list[int]:
    """An arrival deletes all entries with larger hashes: by the letter of the thesis."""
    entries: list[int] = []
    for key in hashes.tolist():
        while entries and entries[-1] > key:
            entries.pop()
        entries.append(key)
    return entries


def test_the_printed_rule_keeps_ln_d_entries_and_never_theta() -> None:
    """Of 20,000 keys, successive minima from the newest back: their number is 1 + 1/2 + ... + 1/D."""
    sizes = [len(printed_rule(hashes_of(20_000, seed))) for seed in range(40)]
    harmonic = (1 / np.arange(1, 20_001)).sum()
    assert harmonic == pytest.approx(10.5, abs=0.05)
    assert np.mean(sizes) == pytest.approx(harmonic, abs=4 * math.sqrt(harmonic / 40))
    assert max(sizes) < 25
    ruled = [len(kept_after(filled(64, 20_000, seed))) for seed in range(5)]
    assert min(ruled) > 350


def test_the_printed_estimate_of_few_entries_is_not_their_number() -> None:
    """With 30 keys in the window and theta = 64, tau / v is off by a fifth; the right answer is 30."""
    right, printed = [], []
    for seed in range(100):
        right.append(filled(64, 30, seed).distinct(0))
        printed.append(30 / (float(hashes_of(30, seed).max()) / 2**64))
    assert right == [30.0] * 100
    assert np.mean(printed) > 30.5
    assert all(estimate > 30 for estimate in printed)


def test_theta_divided_by_v_is_too_large_in_the_mean() -> None:
    """By theta / (theta - 1), which is 1.25 for theta = 5; theta - 1 is unbiased."""
    estimates = np.array([filled(5, 500, seed).distinct(0) for seed in range(1500)]) / 500
    tolerance = 4 * 3**-0.5 / 1500**0.5
    assert estimates.mean() == pytest.approx(1, abs=tolerance)
    assert (estimates * 5 / 4).mean() == pytest.approx(1.25, abs=1.25 * tolerance)
    assert (estimates * 5 / 4).mean() > 1 + tolerance


def test_a_window_of_fewer_than_theta_keys_is_exact() -> None:
    for stream in streams(np.random.default_rng(2)).values():
        sketch = counter_of(lambda seed: BJKST(theta=64, seed=seed), stream)
        for since in np.unique(stream.times)[-80:].tolist():
            if (distinct := stream.since(since).distinct) < 64:
                assert sketch.distinct(since) == distinct
