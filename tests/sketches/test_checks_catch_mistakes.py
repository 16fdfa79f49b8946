"""Tests of the tests: each mistake that is easy to make here must be caught by the checks of oracle.py."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from tests.sketches.oracle import assert_certified, assert_staircase
from tidemark.sketches import GK, RankBounds, SketchError, combine, merge
from tidemark.sketches.bounds import rank_bounds
from tidemark.sketches.gk import gk, gk_summary
from tidemark.sketches.gk.gk_summary import GKSummary
from tidemark.sketches.inputs import ValueArray

EPS = 0.01
EXACT_PRUNE, EXACT_BEST = gk_summary.prune, RankBounds.best_candidate
Patch = tuple[object, str, Callable[..., object]]


def exercise() -> None:
    """A tied and an untied column, updated, merged and pruned, each checked against its elements."""
    rng = np.random.default_rng(12)
    for values in (rng.integers(0, 30, 6000), rng.integers(-(2**62), 2**62, 6000)):
        parts = np.array_split(values, 6)
        sketches = []
        for part in parts:
            sketch = GK(EPS, np.int64)
            for piece in np.array_split(part, 3):
                sketch.update(piece)
            assert_certified(sketch, part)
            sketches.append(sketch)
        assert_certified(merge(sketches), values)
        assert_certified(merge(sketches, 2 * EPS), values)
    assert_certified(
        GK.from_sorted([2**53, 2**53 + 1, 2**53 + 1], EPS), np.array([2**53, 2**53 + 1, 2**53 + 1])
    )


def merge_by(own: str, other: str) -> Callable[[Sequence[GKSummary]], GKSummary]:
    """The textbook merge by lookups: how elements of earlier and of later inputs are counted at a tie."""

    def broken(summaries: Sequence[GKSummary]) -> GKSummary:
        parts = []
        for i, s in enumerate(summaries):
            rmin, rmax = s.rmin.copy(), s.rmax.copy()
            for k, t in enumerate(summaries):
                if k != i:
                    bounds = t.rank_bounds()
                    lo, hi = getattr(bounds, own if k < i else other)(s.values)
                    rmin, rmax = rmin + lo, rmax + hi
            parts.append((s.values, rmin, rmax))
        values, rmin, rmax = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        order = np.argsort(values, kind="stable")
        return GKSummary(values[order], rmin[order], rmax[order])

    return broken


def merge_without_adjustment(summaries: Sequence[GKSummary]) -> GKSummary:
    """Keeps g and delta of every tuple as they were, as Spark once did."""
    values = np.concatenate([s.values for s in summaries])
    order = np.argsort(values, kind="stable")
    gaps = np.concatenate([np.diff(s.rmin, prepend=0) for s in summaries])[order]
    spreads = np.concatenate([s.rmax - s.rmin for s in summaries])[order]
    return GKSummary(values[order], np.cumsum(gaps), np.cumsum(gaps) + spreads)


def bounds_with(lo: int = 0, hi: int = 0) -> Callable[[GKSummary], RankBounds]:
    exact = GKSummary.rank_bounds

    def broken(summary: GKSummary) -> RankBounds:
        bounds = exact(summary)
        low, high = bounds.lo.copy(), bounds.hi.copy()
        low[1:-1] += lo
        high[1:-1] += hi
        return RankBounds(bounds.values, low, np.maximum(low, high))

    return broken


def prune_then_keep(rows: slice) -> Callable[[GKSummary, float], GKSummary]:
    def broken(summary: GKSummary, eps: float) -> GKSummary:
        pruned = EXACT_PRUNE(summary, eps)
        return GKSummary(pruned.values[rows], pruned.rmin[rows], pruned.rmax[rows])

    return broken


def only_last_of_equals(summary: GKSummary) -> GKSummary:
    last = np.append(summary.values[:-1] != summary.values[1:], True)
    return GKSummary(summary.values[last], summary.rmin[last], summary.rmax[last])


def through_a_double(array: ValueArray, _: object) -> ValueArray:
    return np.asarray(array, np.float64).astype(np.int64)


def half_a_batch(batch: ValueArray, _: object) -> ValueArray:
    return np.sort(batch)[: len(batch) // 2 + 1]


MISTAKES: dict[str, Patch] = {
    "a tie is counted by both sides": (gk, "merge_summaries", merge_by("rank_le", "rank_le")),
    "a tie is counted by neither side": (gk, "merge_summaries", merge_by("rank_lt", "rank_lt")),
    "the other input's uncertainty is left out": (gk, "merge_summaries", merge_without_adjustment),
    "prune to 4 eps n": (gk, "prune", lambda s, eps: EXACT_PRUNE(s, 2 * eps)),
    "hi is one too low": (GKSummary, "rank_bounds", bounds_with(hi=-1)),
    "hi is one too high": (GKSummary, "rank_bounds", bounds_with(hi=1)),
    "lo is one too high": (GKSummary, "rank_bounds", bounds_with(lo=1)),
    "lo is one too low": (GKSummary, "rank_bounds", bounds_with(lo=-1)),
    "the maximum is dropped": (gk, "prune", prune_then_keep(slice(None, -1))),
    "the minimum is dropped": (gk, "prune", prune_then_keep(slice(1, None))),
    "only the last of equals is kept": (gk_summary, "_without_inner_equals", only_last_of_equals),
    "the answer is the next candidate": (
        RankBounds,
        "best_candidate",
        lambda self, r: (np.minimum(EXACT_BEST(self, r)[0] + 2, len(self.values) - 1), 0),
    ),
    "integers pass through a double": (gk, "checked_sorted", through_a_double),
    "part of a batch is lost": (gk, "sorted_column", half_a_batch),
}


def test_the_exercise_passes_without_a_mistake() -> None:
    exercise()


def test_the_textbook_merge_is_the_merge() -> None:
    """With <= for earlier and < for later inputs the lookups give the same ranks as the running sums."""
    rng = np.random.default_rng(13)
    summaries = [GK.from_sorted(np.sort(rng.integers(0, 40, 500)), 0.05).summary for _ in range(5)]
    fast, slow = gk_summary.merge_summaries(summaries), merge_by("rank_le", "rank_lt")(summaries)
    for name in ("values", "rmin", "rmax"):
        assert getattr(fast, name).tolist() == getattr(slow, name).tolist()


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_caught(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*MISTAKES[mistake])
    with pytest.raises((AssertionError, SketchError)):
        exercise()


def test_reading_the_first_of_equal_values_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """`combine` must read the sums at the last of equal values: the first misses the other inputs' share."""

    def first_of_equals(values: ValueArray) -> ValueArray:
        return np.flatnonzero(np.append(True, values[:-1] != values[1:]))

    parts = [np.array([1.0, 2.0, 2.0]), np.array([2.0, 3.0])]
    bounds = [RankBounds.from_sorted(part) for part in parts]
    assert_staircase(combine(bounds), np.concatenate(parts))
    monkeypatch.setattr(rank_bounds, "_last_of_equals", first_of_equals)
    with pytest.raises((AssertionError, SketchError)):
        assert_staircase(combine(bounds), np.concatenate(parts))
