"""Numbers that left are taken out of staircases and of what was read, each once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tidemark.query.quantiles.kept_numbers import bounds_without, numbers_without
from tidemark.sketches import RankBounds, combine
from tidemark.sketches.errors import BrokenInvariant
from tidemark.warehouse.errors import DamagedWarehouse

NUMBERS = st.lists(st.integers(-9, 9), max_size=60)
INFINITE = st.lists(st.sampled_from([-np.inf, -1.5, 0.0, 0.0, 2.0, np.inf]), max_size=60)


def halves(numbers: list[Any], draw: st.DataObject) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """All of them, those that left, and those that stay; each sorted."""
    leaves = np.array(draw.draw(st.lists(st.booleans(), min_size=len(numbers), max_size=len(numbers))), bool)
    whole = np.array(numbers, np.float64 if any(isinstance(one, float) for one in numbers) else np.int64)
    return np.sort(whole), np.sort(whole[leaves]), np.sort(whole[~leaves])


def staircase(numbers: NDArray[Any], grains: list[int]) -> RankBounds:
    """That of several runs, whose ranks are known to some rows."""
    parts = [
        RankBounds.from_sorted(numbers[i :: len(grains)], numbers.dtype, grain=grain)
        for i, grain in enumerate(grains)
    ]
    return combine(parts)


def check(bounds: RankBounds, stay: NDArray[Any], asked: NDArray[Any]) -> None:
    """Every rank lies within its bounds, at the values and between them."""
    bounds.check_invariants()
    assert bounds.hi[-1] == len(stay)
    for side, (lo, hi) in {"right": bounds.rank_le(asked), "left": bounds.rank_lt(asked)}.items():
        ranks = stay.searchsorted(asked, side)  # type: ignore[call-overload]
        assert ((lo <= ranks) & (ranks <= hi)).all()


@given(st.one_of(NUMBERS, INFINITE), st.lists(st.sampled_from([1, 2, 7]), min_size=1, max_size=3), st.data())
def test_a_staircase_without_some_numbers_bounds_the_ranks_of_the_others(
    numbers: list[Any], grains: list[int], draw: st.DataObject
) -> None:
    whole, gone, stay = halves(numbers, draw)
    before = staircase(whole, grains)
    after = bounds_without(before, gone)
    check(after, stay, np.unique(np.append(whole, [-10, 0, 3, 10]).astype(whole.dtype)))
    assert (after.hi - after.lo).max() <= (before.hi - before.lo).max()
    assert numbers_without(whole, gone).tolist() == stay.tolist()


def test_numbers_that_are_not_there_are_damage() -> None:
    three = np.array([1, 2, 3])
    for gone in ([4], [2, 2], [0], [1, 2, 3, 3]):
        with pytest.raises(DamagedWarehouse):
            numbers_without(three, np.array(gone))
    with pytest.raises(DamagedWarehouse):
        bounds_without(RankBounds.from_sorted(three), np.array([2, 2]))


def adds_the_wrong_ends(bounds: RankBounds, gone: NDArray[Any]) -> RankBounds:
    """A mistake: bounds of what left are subtracted end from other end, as if they were not exact."""
    less = RankBounds.from_sorted(gone, gone.dtype)
    joined = combine([bounds, RankBounds(less.values, 0 * less.lo, 0 * less.lo)])
    steps = less.values.searchsorted(joined.values, "right")
    known = np.concatenate([[0], less.lo[steps]])
    return RankBounds(joined.values, joined.lo - known[::-1], joined.hi - known)


def is_raw(bounds: RankBounds, gone: NDArray[Any]) -> RankBounds:
    """A mistake: the difference is not made to ascend."""
    values = np.unique(gone)
    joined = combine([bounds, RankBounds(values, *np.zeros((2, len(values) + 1), np.int64))])
    known = np.concatenate([[0], gone.searchsorted(joined.values, "right")])
    return RankBounds(joined.values, joined.lo - known, joined.hi - known)


@pytest.mark.parametrize("mistake", [adds_the_wrong_ends, is_raw])
def test_a_wrong_difference_is_noticed(mistake: Any) -> None:
    whole = np.arange(40)
    gone, stay = whole[::3], np.setdiff1d(whole, whole[::3])
    check(bounds_without(staircase(whole, [7]), gone), stay, whole)
    with pytest.raises((AssertionError, BrokenInvariant)):
        check(mistake(staircase(whole, [7]), gone), stay, whole)
