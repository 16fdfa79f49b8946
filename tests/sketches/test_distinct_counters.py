"""What holds for every sketch of distinct keys, whatever its kind."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sketches.distinct_streams import (
    COUNTERS,
    TINY,
    Stream,
    answer,
    counter_of,
    hashes_of,
    streams,
)
from tidemark.sketches import InvalidInput, digest
from tidemark.sketches.distinct import (
    BJKST,
    LinearCounting,
    ListedCounting,
    MedianOf,
    RandomizedWave,
    SplitSum,
    StochasticAverage,
)
from tidemark.sketches.distinct.mixing import level_of, mix
from tidemark.sketches.hashing.row_hashes import GOLDEN

SEEDS = 60
# Few keys and small steps of time: keys return, and several arrivals share a time.
ARRIVALS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 2)), max_size=40)
SIZES = st.lists(st.integers(1, 9), min_size=1, max_size=4)


def stream_of(arrivals: list[tuple[int, int]]) -> Stream:
    keys, steps = np.array(arrivals, np.int64).reshape(-1, 2).T
    return Stream(keys, np.cumsum(steps) - 3)


@pytest.mark.parametrize("name", TINY)
@given(arrivals=ARRIVALS, sizes=SIZES, seed=st.integers(0, 3))
def test_a_window_is_answered_as_if_nothing_else_had_arrived(
    name: str, arrivals: list[tuple[int, int]], sizes: list[int], seed: int
) -> None:
    """In any batches, for windows in any order, with invariants that hold after every step."""
    stream, counter = stream_of(arrivals), TINY[name](seed)
    for batch in stream.batches(sizes):
        counter.update(digest(batch.keys), batch.times)
        counter.check_invariants()
    ends = sorted({-4, *stream.times.tolist(), 100})
    for since in [*ends, *ends[::-1], *ends[::2]]:
        alone = counter_of(TINY[name], stream.since(since), seed)
        assert answer(counter, since) == answer(alone, since), f"since {since}"
        counter.check_invariants()


@pytest.mark.parametrize("name", TINY)
def test_long_streams_too(name: str) -> None:
    for stream in streams(np.random.default_rng(3), 400).values():
        counter = TINY[name](0)
        for batch in stream.batches([1, 100, 7]):
            counter.update(digest(batch.keys), batch.times)
            counter.check_invariants()
        for since in np.unique(stream.times)[::37].tolist():
            assert answer(counter, since) == answer(counter_of(TINY[name], stream.since(since)), since)


@pytest.mark.parametrize("name", COUNTERS)
@pytest.mark.parametrize("stream", streams(np.random.default_rng(0)))
def test_estimates_are_within_4_standard_errors(name: str, stream: str) -> None:
    drawn = streams(np.random.default_rng(1))[stream]
    counter = COUNTERS[name](4)
    for batch in drawn.batches([700, 1, 64]):
        counter.update(digest(batch.keys), batch.times)
    counter.check_invariants()
    for since in np.unique(drawn.times)[:: max(1, len(np.unique(drawn.times)) // 40)].tolist():
        distinct = drawn.since(since).distinct
        if name in ("PCSA", "LogLog") and distinct < 640:
            continue  # below ten keys a group nothing is promised
        off = abs(counter.distinct(since) - distinct)
        assert off <= 4 * counter.relative_error(distinct) * distinct, f"since {since}: {distinct}"


@pytest.mark.parametrize("name", COUNTERS)
@pytest.mark.parametrize("integers", [True, False])
def test_errors_over_many_seeds_are_as_the_formula_has_them(name: str, integers: bool) -> None:
    """The mean is unbiased, the root of the mean square is the formula, and 95 % are within 2.4 of it."""
    distinct, errors = 2500, []
    keys = digest(np.arange(4000)) if integers else digest([f"key {i}" for i in range(4000)])
    for seed in range(SEEDS):
        counter = COUNTERS[name](seed)
        counter.update(keys, np.arange(4000))
        errors.append(counter.distinct(1500) / distinct - 1)
    formula = counter.relative_error(distinct)
    assert abs(np.mean(errors)) <= 3.5 * formula / SEEDS**0.5
    assert 0.7 * formula <= np.sqrt(np.mean(np.square(errors))) <= 1.3 * formula
    assert 0.4 * formula <= np.median(np.abs(errors)) <= 1 * formula
    assert np.quantile(np.abs(errors), 0.95) <= 2.4 * formula
    assert np.max(np.abs(errors)) <= 5 * formula


@pytest.mark.parametrize("name", COUNTERS)
def test_nothing_one_key_and_one_key_many_times(name: str) -> None:
    counter = COUNTERS[name](0)
    counter.check_invariants()
    assert counter.distinct(0) == counter.distinct(-(2**62)) == counter.relative_error(0) == 0.0
    counter.update(np.empty(0, np.uint64), [])
    assert counter.distinct(0) == 0.0
    for time in (5, 5, 9):
        counter.update(digest(["a"] * 1000), np.full(1000, time))
        counter.check_invariants()
        assert counter.distinct(time + 1) == 0.0
        if name not in ("PCSA", "LogLog"):
            assert counter.distinct(time) == counter.distinct(-(2**62)) == pytest.approx(1, abs=3e-3)
    assert counter.distinct(10) == 0.0
    assert counter.distinct(9) == counter.distinct(0)


@pytest.mark.parametrize("name", COUNTERS)
def test_arrivals_at_time_0_and_at_the_ends_of_time_count(name: str) -> None:
    first, last = -(2**63) + 1, 2**63 - 1
    counter = COUNTERS[name](0)
    keys = np.arange(3000, dtype=np.uint64)
    counter.update(keys, np.repeat([first, 0, last], 1000))
    for since, begin in ((first, 0), (0, 1000)):
        alone = Stream(np.arange(begin, 3000), np.zeros(3000 - begin, np.int64))
        assert answer(counter, since) == answer(counter_of(COUNTERS[name], alone), 0)
    assert answer(counter, 1) == answer(counter, last)


@pytest.mark.parametrize("name", COUNTERS)
def test_errors_are_told_before_anything_is_inserted(name: str) -> None:
    counter = COUNTERS[name](0)
    assert 0 < counter.relative_error(5000) < 0.3
    for distinct in (-1, float("nan")):
        with pytest.raises(InvalidInput, match="number of keys"):
            counter.relative_error(distinct)


KEYS = np.arange(3, dtype=np.uint64)


@pytest.mark.parametrize("name", COUNTERS)
@pytest.mark.parametrize(
    ("digests", "times", "match"),
    [
        (KEYS.astype(np.int64), [7, 8, 9], "use digest"),
        ([1, 2, 3], [7, 8, 9], "use digest"),
        (KEYS.reshape(1, 3), [[7, 8, 9]], "one-dimensional"),
        (KEYS, [7, 8], "one for each"),
        (KEYS, 7, "one for each"),
        (KEYS, [7.0, 8.0, 9.0], "dtype float64"),
        (KEYS, [7, 9, 8], "8 at index 2 after 9"),
        (KEYS, [4, 8, 9], "4 at index 0 after 5"),
    ],
)
def test_a_refused_update_changes_nothing(name: str, digests: Any, times: Any, match: str) -> None:
    counter = COUNTERS[name](0)
    counter.update(digest(range(50)), np.full(50, 5))
    before = counter.distinct(0), counter.nbytes
    with pytest.raises(InvalidInput, match=match):
        counter.update(digests, times)
    assert (counter.distinct(0), counter.nbytes) == before
    counter.update(KEYS, [5, 5, 5])
    counter.check_invariants()
    assert counter.distinct(0) == before[0]


@pytest.mark.parametrize("name", COUNTERS)
def test_a_time_that_no_arrival_has_is_refused(name: str) -> None:
    counter = COUNTERS[name](0)
    with pytest.raises(InvalidInput, match="above -2"):
        counter.update(KEYS, [-(2**63), 8, 9])
    for since in (-(2**63), 2**63, 1.5, None, True):
        with pytest.raises(InvalidInput, match="since"):
            counter.distinct(since)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "refused",
    [
        lambda: StochasticAverage(kind="HyperLogLog", groups=4),  # type: ignore[arg-type]
        lambda: StochasticAverage(kind="PCSA", groups=0),
        lambda: StochasticAverage(kind="LogLog", groups=2**40),
        lambda: LinearCounting(cells=0),
        lambda: LinearCounting(cells=1.5),  # type: ignore[arg-type]
        lambda: LinearCounting(cells=True),
        lambda: ListedCounting(cells=2**29),
        lambda: BJKST(theta=2),
        lambda: RandomizedWave(capacity=0),
        lambda: RandomizedWave(capacity=4, lists="some"),  # type: ignore[arg-type]
        lambda: BJKST(theta=4, seed=-1),
        lambda: BJKST(theta=4, seed=2**64),
        lambda: MedianOf([]),
        lambda: SplitSum([BJKST(theta=4)] * 2),
    ],
)
def test_a_configuration_out_of_range_is_refused(refused: Callable[[], object]) -> None:
    with pytest.raises(InvalidInput, match="expected"):
        refused()


def test_the_size_is_that_of_the_cells_or_of_the_entries() -> None:
    stream = streams(np.random.default_rng(5))["drawn"]
    sizes = {name: counter_of(factory, stream).nbytes for name, factory in COUNTERS.items()}
    assert sizes["PCSA"] == 64 * 32 * 8
    assert sizes["LogLog"] == 128 * 32 * 8
    assert (sizes["LC"], sizes["LC2"]) == (8000, 16_000)
    assert 16 * 64 <= sizes["BJKST"] <= 16 * (1.25 * 64 * (1 + np.log(3000 / 64)) + 16) * 1.2
    # List 0 to 4 of a stream of about 1,900 keys are full, and the lists above have as many keys as one.
    assert 5.5 * 16 * 96 <= sizes["RW"] <= 7.5 * 16 * 96
    assert 4.5 * 16 * 64 <= sizes["RW disjoint"] <= 6.5 * 16 * 64
    fresh = {name: factory(0).nbytes for name, factory in COUNTERS.items()}
    assert [name for name in fresh if fresh[name]] == ["PCSA", "LogLog", "LC", "LC2", "split LC2"]


def test_mixing_the_integers_is_the_splitmix64_generator() -> None:
    assert mix(np.arange(3, dtype=np.uint64), GOLDEN).tolist() == [
        0xE220A8397B1DCDAF,
        0x6E789E6AA1B965F4,
        0x06C45D188009454F,
    ]


def test_half_of_the_hashes_have_each_level_or_more() -> None:
    assert level_of(np.array([1, 2, 12, 2**63, 0], np.uint64)).tolist() == [0, 1, 2, 63, 64]
    hashes = hashes_of(100_000, 7)
    assert len(np.unique(hashes)) == 100_000
    shares = [(level_of(hashes) >= level).mean() * 2**level for level in range(8)]
    assert shares == pytest.approx(np.ones(8), abs=0.15)
