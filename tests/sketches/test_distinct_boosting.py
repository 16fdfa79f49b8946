"""Several sketches as one, and why one of the whole size is better."""

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.sketches.distinct_streams import answer
from tidemark.sketches import BrokenInvariant
from tidemark.sketches.distinct import (
    BJKST,
    DistinctCounter,
    LinearCounting,
    MedianOf,
    RandomizedWave,
    SplitSum,
)

KEYS, TIMES = np.arange(5000, dtype=np.uint64), np.arange(5000)


def errors(counters: Sequence[DistinctCounter], keys: int) -> NDArray[np.float64]:
    for counter in counters:
        counter.update(KEYS[:keys], TIMES[:keys])
    return np.array([counter.distinct(0) / keys - 1 for counter in counters])


def root_mean_square(counters: Sequence[DistinctCounter]) -> float:
    return float(np.sqrt(np.mean(np.square(errors(counters, 1500)))))


def test_the_median_is_that_of_its_parts() -> None:
    parts = [BJKST(theta=20, seed=seed) for seed in range(5)]
    alone = [BJKST(theta=20, seed=seed) for seed in range(5)]
    median = MedianOf(parts)
    for counter in alone:
        counter.update(KEYS, TIMES)
    median.update(KEYS, TIMES)
    for since in (0, 2500, 4990, 6000):
        assert median.distinct(since) == np.median([part.distinct(since) for part in alone])
    assert median.nbytes == sum(part.nbytes for part in alone)
    assert MedianOf(parts[:1]).relative_error(5000) == parts[0].relative_error(5000)


def test_every_key_is_counted_by_one_part_of_a_sum() -> None:
    parts = [BJKST(theta=2000, seed=seed) for seed in (3, 3, 3, 3)]
    split = SplitSum(parts)
    for start in range(0, 5000, 900):
        split.update(KEYS[start : start + 900], TIMES[start : start + 900])
    split.update(KEYS[:700], np.full(700, 5000))
    counts = [part.distinct(0) for part in parts]
    assert sum(counts) == split.distinct(0) == 5000
    assert np.array(counts) == pytest.approx(np.full(4, 1250), abs=4 * np.sqrt(1250))
    assert split.distinct(5000) == 700
    assert split.nbytes == sum(part.nbytes for part in parts)


def test_a_share_does_not_bias_the_hashes_of_its_part() -> None:
    """Parts of the same seed read the same bits of a hash that was mixed once more to choose the part."""
    split = [SplitSum([LinearCounting(cells=500, seed=seed) for _ in range(4)]) for seed in range(40)]
    formula = split[0].relative_error(5000)
    found = errors(split, 5000)
    assert abs(found.mean()) <= 4 * formula / 40**0.5
    assert 0.6 * formula <= found.std() <= 1.4 * formula


def test_one_sketch_of_the_whole_size_is_better_than_a_median_of_parts() -> None:
    one = root_mean_square([RandomizedWave(capacity=128, seed=seed) for seed in range(100)])
    median = root_mean_square(
        [MedianOf([RandomizedWave(capacity=16, seed=8 * seed + i) for i in range(8)]) for seed in range(100)]
    )
    assert one < 0.95 * median


def test_parts_of_linear_counting_run_out_of_cells() -> None:
    one = LinearCounting(cells=1000)
    median = MedianOf([LinearCounting(cells=100, seed=seed) for seed in range(10)])
    for counter in (one, median):
        counter.update(KEYS, TIMES)
    assert answer(one, 0) is not None
    assert answer(median, 0) is None


def test_parts_are_checked() -> None:
    for boosted in (MedianOf, SplitSum):
        part = BJKST(theta=20)
        counter = boosted([part])
        counter.update(KEYS, TIMES)
        counter.check_invariants()
        part._newest[0] = -1
        with pytest.raises(BrokenInvariant):
            counter.check_invariants()
