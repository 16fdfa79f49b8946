from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.sketches.oracle import assert_staircase, batches, rank_error
from tidemark.sketches import GK, BrokenInvariant, EmptySketch, InvalidInput, RankBounds, combine
from tidemark.sketches.inputs import ValueArray

SMALL_FLOATS = st.lists(st.integers(-6, 6).map(float) | st.sampled_from([np.inf, -np.inf]), max_size=40)
INPUTS = st.lists(SMALL_FLOATS, min_size=1, max_size=6)


def staircases(inputs: list[list[float]], eps: float) -> list[RankBounds]:
    """One per input: exact ones and GK ones in turn, so that repeated values occur too."""
    arrays = [np.sort(np.array(values, np.float64)) for values in inputs]
    return [
        RankBounds.from_sorted(a) if i % 2 else GK.from_sorted(a, eps).rank_bounds()
        for i, a in enumerate(arrays)
    ]


def joined(inputs: list[list[float]]) -> NDArray[np.float64]:
    return np.sort(np.array(list(chain.from_iterable(inputs)), np.float64))


@pytest.mark.parametrize("dtype", [np.float64, np.int64])
def test_the_staircase_of_a_sorted_array_is_exact(dtype: type) -> None:
    for parts in batches(dtype, np.random.default_rng(1)).values():
        data: ValueArray = np.sort(np.concatenate(parts)).astype(dtype)
        bounds = RankBounds.from_sorted(data)
        assert_staircase(bounds, data)
        assert (bounds.lo == bounds.hi).all()
        assert (np.diff(bounds.values.astype(object)) > 0).all()


@given(SMALL_FLOATS, st.integers(1, 50))
def test_a_grain_keeps_few_values_and_bounds_the_error(values: list[float], grain: int) -> None:
    data = np.sort(np.array(values, np.float64))
    bounds = RankBounds.from_sorted(data, grain=grain)
    assert_staircase(bounds, data)
    assert len(bounds.values) <= -(-len(data) // grain) + 1
    assert (bounds.hi - bounds.lo < grain).all()
    assert bounds.values[[0, -1]].tolist() == data[[0, -1]].tolist() if values else not len(bounds.values)


@pytest.mark.parametrize("dtype", [np.float64, np.int64])
def test_no_elements_have_rank_zero(dtype: type) -> None:
    for bounds in (
        RankBounds.empty(dtype),
        RankBounds.from_sorted([], dtype),
        combine([RankBounds.empty(dtype)]),
    ):
        bounds.check_invariants()
        assert bounds.values.dtype == dtype
        assert [ranks.tolist() for ranks in bounds.rank_le([1, 2])] == [[0, 0], [0, 0]]


@given(INPUTS, st.sampled_from([0.01, 0.1, 0.3]))
def test_combined_bounds_hold_for_the_union(inputs: list[list[float]], eps: float) -> None:
    parts = staircases(inputs, eps)
    union = combine(parts)
    assert_staircase(union, joined(inputs))
    assert (union.values[:-1] < union.values[1:]).all()


@given(INPUTS, st.sampled_from([0.01, 0.1, 0.3]))
def test_combining_adds_the_bounds_of_the_inputs(inputs: list[list[float]], eps: float) -> None:
    """Nothing is lost: at every x each bound is the sum of the inputs' bounds."""
    parts = staircases(inputs, eps)
    union = combine(parts)
    xs = np.arange(-7, 7.5, 0.5)
    for rank in ("rank_le", "rank_lt"):
        summed = [np.sum(sides, axis=0) for sides in zip(*(getattr(p, rank)(xs) for p in parts), strict=True)]
        for got, expected in zip(getattr(union, rank)(xs), summed, strict=True):
            assert got.tolist() == expected.tolist()


@given(INPUTS, st.sampled_from([0.01, 0.1, 0.3]))
def test_the_best_candidate_is_the_best_of_a_full_search(inputs: list[list[float]], eps: float) -> None:
    union = combine(staircases(inputs, eps))
    data = joined(inputs)
    if not len(data):
        return
    r = np.arange(1, len(data) + 1)
    index, certified = union.best_candidate(r)
    every = np.maximum(0, np.maximum(r[:, None] - union.lo[1:], union.hi[:-1] + 1 - r[:, None]))
    assert certified.tolist() == every.min(axis=1).tolist()
    assert certified.tolist() == every[r - 1, index].tolist()
    for rank, value, error in zip(r.tolist(), union.values[index], certified, strict=True):
        assert rank_error(data, value, rank) <= error


@given(INPUTS, st.sampled_from([0.01, 0.1, 0.3]))
def test_the_bracket_holds_the_exact_answer_and_is_tight(inputs: list[list[float]], eps: float) -> None:
    union = combine(staircases(inputs, eps))
    data = joined(inputs)
    if not len(data):
        return
    r = np.arange(1, len(data) + 1)
    a, b = union.bracket(r)
    exact = data[r - 1]
    assert (exact <= union.values[b]).all()
    assert (exact[a > 0] > union.values[a[a > 0] - 1]).all()
    for rank, below, upto in zip(r, a, b, strict=True):
        assert below == (union.hi[1:] < rank).sum()
        assert upto == np.flatnonzero(union.lo[1:] >= rank)[0]


def test_one_rank_gives_one_answer() -> None:
    bounds = RankBounds.from_sorted([1.0, 2.0, 2.0, 5.0])
    index, error = bounds.best_candidate(3)
    assert (int(index), int(error)) == (1, 0)
    assert tuple(map(int, bounds.bracket(3))) == (1, 1)
    assert tuple(map(int, bounds.rank_le(2.0))) == (3, 3)


def test_a_bracket_may_have_no_upper_end() -> None:
    """A staircase that does not know its maximum cannot name a value that is large enough for r = n."""
    bounds = RankBounds(np.array([1.0]), np.array([0, 4]), np.array([0, 9]))
    assert tuple(map(int, bounds.bracket(9))) == (0, 1)


def test_integers_above_2_to_53_stay_apart() -> None:
    bounds = combine(
        [RankBounds.from_sorted([2**53, 2**53 + 1]), RankBounds.from_sorted([2**53 + 1, 2**53 + 2])]
    )
    assert bounds.values.tolist() == [2**53, 2**53 + 1, 2**53 + 2]
    assert bounds.rank_le([2**53 + 1])[0].tolist() == [3]
    with pytest.raises(InvalidInput):
        bounds.rank_le([1.5])


def test_nan_ranks_after_every_number() -> None:
    bounds = RankBounds.from_sorted([1.0, np.inf])
    assert bounds.rank_le([np.nan])[0].tolist() == bounds.rank_lt([np.nan])[0].tolist() == [2]


def test_repeated_values_must_be_combined_before_they_are_searched() -> None:
    repeated = GK.from_sorted([5.0, 5.0, 5.0], 0.1).rank_bounds()
    for search in (repeated.best_candidate, repeated.bracket):
        with pytest.raises(InvalidInput, match=r"combine\(\[it\]\)"):
            search(1)
    assert combine([repeated]).values.tolist() == [5.0]


def test_a_search_among_no_values_is_refused() -> None:
    with pytest.raises(EmptySketch):
        RankBounds.empty(np.float64).best_candidate(1)


def test_what_cannot_be_combined_is_refused() -> None:
    with pytest.raises(InvalidInput, match="at least one"):
        combine([])
    with pytest.raises(InvalidInput, match=r"float64.*int64"):
        combine([RankBounds.empty(np.float64), RankBounds.empty(np.int64)])


@pytest.mark.parametrize(
    ("values", "lo", "hi"),
    [
        ([2.0, 1.0], [0, 1, 2], [0, 1, 2]),
        ([1.0, np.nan], [0, 1, 2], [0, 1, 2]),
        ([1.0, 2.0], [0, 1], [0, 1]),
        ([1.0, 2.0], [0, 2, 1], [0, 2, 2]),
        ([1.0, 2.0], [0, 1, 2], [0, 2, 1]),
        ([1.0, 2.0], [0, 2, 2], [0, 1, 2]),
        ([1.0, 2.0], [-1, 1, 2], [0, 1, 2]),
        ([[1.0, 2.0]], [0, 1, 2], [0, 1, 2]),
        ([True, True], [0, 1, 2], [0, 1, 2]),
    ],
)
def test_a_broken_staircase_is_named(values: list[float], lo: list[int], hi: list[int]) -> None:
    with pytest.raises(BrokenInvariant, match="breaks this invariant"):
        RankBounds(np.array(values), np.array(lo), np.array(hi)).check_invariants()
