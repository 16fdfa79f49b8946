"""Which value answers a rank: the choice among the values of the combined bounds.

    least_error_candidates   the value with the least certified error. Mode quick answers with it, and the
                             other modes do where the likeliest value is not certain enough. rank_search.py
                             calls it; its search is `RankBounds.best_candidate`
    likeliest_candidates     the first value whose likely rank reaches r, if its certified error is within the
                             allowed error. Modes accurate and exact answer with it

With lo and hi the staircases of all rows, values[i] answers rank r with a certified error of

    max(0, r - lo[i + 1], hi[i] + 1 - r)

Worked example. values = [10, 20, 30], lo = [0, 2, 5, 9], hi = [0, 4, 7, 9], r = 6:

    value   certified rank_lt, rank_le   error
    10      at most 0,  at least 2       max(0, 6 - 2, 0 + 1 - 6) = 4
    20      at most 4,  at least 5       max(0, 6 - 5, 4 + 1 - 6) = 1
    30      at most 7,  at least 9       max(0, 6 - 9, 7 + 1 - 6) = 2

`least_error_candidates` takes 20. The exact answer lies between 20 and 30, both inclusive: hi[1] < r rules
out every x below 20, and lo[3] >= r makes 30 large enough.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidemark.query.quantiles.combined_bounds import CombinedBounds, Ranks, Values
from tidemark.sketches import RankBounds


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """One answer per requested rank; all arrays have the same length.

    values: the answers.
    errors: their certified rank errors, in rows.
    rank_lo, rank_hi: bounds of rank_le of each value, both inclusive.
    low, high: the exact answers lie between them, both inclusive.
    """

    values: Values
    errors: Ranks
    rank_lo: Ranks
    rank_hi: Ranks
    low: Values
    high: Values

    @classmethod
    def exact(cls, values: Values, ranks_le: Ranks) -> Candidates:
        """Answers without error, of which `ranks_le` are the ranks."""
        errors = np.zeros(len(values), np.int64)
        return cls(values, errors, ranks_le, ranks_le, values, values)

    def replaced(self, indices: NDArray[Any], replacements: Candidates) -> Candidates:
        """A copy with the answers at `indices` replaced, in that order."""
        columns = {}
        for name in self.__slots__:
            columns[name] = getattr(self, name).copy()
            columns[name][indices] = getattr(replacements, name)
        return Candidates(**columns)


def least_error_candidates(bounds: RankBounds, ranks: Ranks) -> Candidates:
    """For each rank the value with the least certified error, and the interval of the exact answer.

    bounds: the staircase of all rows, with unique values; at least one.
    ranks: 1 to the number of rows.

    O(log k) per rank, for k values.
    """
    indices, errors = bounds.best_candidate(ranks)
    first, last = bounds.bracket(ranks)
    return Candidates(
        values=bounds.values[indices],
        errors=errors,
        rank_lo=bounds.lo[indices + 1],
        rank_hi=bounds.hi[indices + 1],
        low=bounds.values[first],
        high=bounds.values[last],
    )


def likeliest_candidates(
    bounds: CombinedBounds, likely_live: NDArray[np.float64], ranks: Ranks, allowed: int
) -> Candidates:
    """For each rank the first value whose likely rank reaches it, if its certified error is allowed.

    A rank whose likeliest value errs by more than `allowed` rows gets its least-error candidate.

    likely_live: the likely live rank at each step of `bounds`, shape (values + 1,), see likely_ranks.py. It
        is clipped to the certified live bounds.
    allowed: the largest certified error to accept, in rows.

    O(k + log k per rank), for k values.
    """
    candidates = least_error_candidates(bounds.total, ranks)
    lo, hi = bounds.total.lo, bounds.total.hi
    history = (bounds.history.lo + bounds.history.hi) / 2
    likely = np.maximum.accumulate(history + np.clip(likely_live, bounds.live.lo, bounds.live.hi))[1:]
    indices = np.minimum(np.searchsorted(likely, ranks - 0.5), len(likely) - 1)
    errors = np.maximum(0, np.maximum(ranks - lo[indices + 1], hi[indices] + 1 - ranks))
    good = np.flatnonzero(errors <= allowed)
    indices = indices[good]
    likeliest = Candidates(
        values=bounds.values[indices],
        errors=errors[good],
        rank_lo=lo[indices + 1],
        rank_hi=hi[indices + 1],
        low=candidates.low[good],
        high=candidates.high[good],
    )
    return candidates.replaced(good, likeliest)
