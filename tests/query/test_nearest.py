"""Answers by likely rank: nearer where live rows are like history's, never worse than allowed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tidemark.query.quantiles.choose_candidate import Candidates, least_error_candidates, likeliest_candidates
from tidemark.query.quantiles.combined_bounds import CombinedBounds, combine_sides, midpoint_rank
from tidemark.query.quantiles.likely_ranks import SketchGaps
from tidemark.sketches import GK, RankBounds, combine

EPS = 0.02


def world_of(history: list[float], batches: list[list[float]]) -> tuple[CombinedBounds, NDArray[np.float64]]:
    """The combined bounds, and the likely live ranks."""
    sketches = []
    for batch in batches:
        sketch = GK(EPS / 2, np.float64)
        sketch.update(np.array(batch))
        sketches.append(sketch.rank_bounds())
    past = RankBounds.from_sorted(np.sort(np.array(history, np.float64)), np.float64)
    bounds = combine_sides(past, combine(sketches))
    steps, ends = (bounds.history.lo + bounds.history.hi) / 2, (bounds.values[0], bounds.values[-1])
    gaps = SketchGaps.of(sketches, bounds.values.dtype).between(*ends)
    start, end = (
        midpoint_rank(past, [], gaps.first, "right"),
        midpoint_rank(past, [], gaps.last, "left"),
    )
    likely = gaps.likely_ranks(steps, start, end)
    return bounds, likely


def errors(candidates: Candidates, ranks: np.ndarray, rows: list[float]) -> np.ndarray:
    """The true rank errors of answers."""
    ordered = np.sort(np.array(rows))
    le, lt = (np.searchsorted(ordered, candidates.values, side) for side in ("right", "left"))
    result: np.ndarray = np.maximum(0, np.maximum(ranks - le, lt + 1 - ranks))
    return result


@pytest.mark.parametrize("batches", [1, 4, 20])
def test_recent_rows_like_those_before_are_told_to_a_fraction_of_the_bound(batches: int) -> None:
    random = np.random.default_rng(7)
    history, live = random.normal(size=40_000), random.normal(size=(batches, 8_000 // batches))
    bounds, likely = world_of(history.tolist(), live.tolist())
    rows = [*history.tolist(), *live.ravel().tolist()]
    ranks = np.arange(1, len(rows), 97)
    near, certified = (
        likeliest_candidates(bounds, likely, ranks, int(EPS * live.size)),
        least_error_candidates(bounds.total, ranks),
    )
    assert np.all(errors(near, ranks, rows) <= near.errors)
    assert near.errors.max() <= EPS * live.size
    assert errors(near, ranks, rows).mean() < 0.5 * errors(certified, ranks, rows).mean()
    assert errors(near, ranks, rows).mean() < 0.1 * EPS * live.size


numbers = st.lists(st.integers(-30, 30).map(float) | st.floats(-5, 5), min_size=1, max_size=60)


@given(numbers, st.lists(numbers, min_size=1, max_size=4), st.integers(0, 10))
def test_whatever_the_rows_an_answer_is_as_good_as_it_says(
    history: list[float], batches: list[list[float]], allowed: int
) -> None:
    bounds, likely = world_of(history, batches)
    rows = [*history, *(value for batch in batches for value in batch)]
    ranks = np.arange(1, len(rows) + 1)
    candidates, certified = (
        likeliest_candidates(bounds, likely, ranks, allowed),
        least_error_candidates(bounds.total, ranks),
    )
    assert np.all(errors(candidates, ranks, rows) <= candidates.errors)
    assert np.all(candidates.errors <= np.maximum(allowed, certified.errors))
    assert np.all(
        (candidates.rank_lo <= candidates.rank_hi)
        & (candidates.low <= candidates.values)
        & (candidates.values <= candidates.high)
    )
