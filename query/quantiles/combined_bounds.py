"""The grid: what is certain about ranks, history's side and the live side over the same values.

Model. `both`, `live` and (by subtraction) `history` are staircases of certified ranks over one array of
unique values, see sketches/bounds/rank_bounds.py. With r the rank that is asked for:

    a = number of values with hi[a + 1] < r,   b = first value with lo[b + 1] >= r

the exact answer lies in the closed interval [values[a], values[b]]: every x below values[a] has
rank_le(x) <= hi[a] < r, so it is too small; values[b] is large enough.

Where to read. The live side cannot be read cheaply, so its uncertainty must not widen what history is
read for. `middle` puts the live rank at the middle of its bounds, a fixed function L(x) with
|L - true live rank| <= ceil(d / 2) where d <= 2 * eps_R * m is the width of the live bounds. Let x0 be the
smallest x with rank_history(x) + L(x) >= r. Its certified error is at most ceil(d / 2) <= eps * m, since

    r - lo_le(x0)      <= L - lo_live            (x0 reaches r)
    hi_lt(x0) + 1 - r  <= hi_live - L            (nothing before x0 does)

and x0 lies in the bracket of `middle`, whose history rows are fewer than two grains of each run however
wide the live bounds are: hi[b] - lo[a + 1] < 2 * (sum of the widths of history's bounds).

What to answer. `best` takes the value of least certified error, `nearest` the first whose likely rank reaches
r (see likely.py) where its certified error is allowed.

`splice` replaces the bounds of a staircase inside open intervals by ranks that were read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidemark.query.quantiles.read_plan import Interval, Reading, Side
from tidemark.sketches import RankBounds, combine

Values = NDArray[Any]
Ranks = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """Staircases over the same unique values.

    both: of all rows; live: of the live rows; middle: of all rows, the live ranks at the middle of their
    bounds.
    """

    both: RankBounds
    live: RankBounds
    middle: RankBounds

    @property
    def values(self) -> Values:
        """The values, ascending and unique."""
        return self.both.values

    @property
    def history(self) -> RankBounds:
        """The staircase of history alone."""
        return replace(self.both, lo=self.both.lo - self.live.lo, hi=self.both.hi - self.live.hi)

    def section(self, first: int, last: int) -> Grid:
        """The part from values[first] to values[last], both inclusive; certain for x between those two."""
        return Grid(*(_section(bounds, first, last) for bounds in (self.both, self.live, self.middle)))


def lay_out(history: RankBounds, live: RankBounds) -> Grid:
    """The grid of two staircases over disjoint rows."""
    if live.hi[-1] == 0:
        both = combine([history])
        nothing = np.zeros(len(both.lo), dtype=np.int64)
        return Grid(both, replace(both, lo=nothing, hi=nothing), both)
    both = combine([history, live])
    steps = np.searchsorted(live.values, both.values, side="right")
    steps = np.concatenate([np.zeros(1, dtype=np.intp), steps])
    lo, hi = live.lo[steps], live.hi[steps]
    middle = (lo + hi) // 2
    return Grid(
        both,
        replace(both, lo=lo, hi=hi),
        replace(both, lo=both.lo - lo + middle, hi=both.hi - hi + middle),
    )


def splice(bounds: RankBounds, readings: Sequence[Reading]) -> RankBounds:
    """The staircase with exact ranks in the intervals that were read; they are disjoint and ascend."""
    values, lo, hi = [], [], []
    at, reached = 0, 0  # values of `bounds` used, and the last exact rank
    for one in readings:
        u, v = np.array([[one.interval.u], [one.interval.v]], dtype=bounds.values.dtype)
        i = max(at, int(np.searchsorted(bounds.values, u[0], side="left")))
        inside = one.inside
        exact = one.below + np.arange(len(inside) + 1, dtype=np.int64)
        values += [bounds.values[at:i], u, inside, v]
        # Ranks do not fall: between two readings they are what the first reached to what the next starts at.
        lo += [np.clip(bounds.lo[at : i + 1], reached, one.below), exact]
        hi += [np.clip(bounds.hi[at : i + 1], reached, one.below), exact]
        at, reached = max(i, int(np.searchsorted(bounds.values, v[0], side="right"))), int(exact[-1])
    return RankBounds(
        np.concatenate([*values, bounds.values[at:]]),
        np.concatenate([*lo, np.maximum(bounds.lo[at:], reached)]),
        np.concatenate([*hi, np.maximum(bounds.hi[at:], reached)]),
    )


def middle_rank(
    bounds: RankBounds, readings: Sequence[Reading], values: Values, side: Side
) -> NDArray[np.float64]:
    """rank_lt ("left") or rank_le ("right") of values: as it was read, elsewhere the middle of its bounds."""
    lo, hi = bounds.rank_lt(values) if side == "left" else bounds.rank_le(values)
    middle = (lo + hi) / 2
    for one in readings:
        inside = (values > one.interval.u) & (values < one.interval.v)
        middle[inside] = one.rank(values[inside], side)
    return middle


def narrowed(
    readings: Sequence[Reading], live: RankBounds, ranks: Ranks, brackets: Sequence[tuple[Any, Any]]
) -> list[Reading]:
    """The readings, without the rows that cannot matter to any of the ranks that they were read for.

    Let (u, v) be an interval with c rows inside, L the live rank there, L_lo(u) <= L <= L_hi(v), and x0 the
    answer of the middle to r, whose bracket lies in [u, v]. Where u < x0 < v, x0 reaches r and nothing
    before it does, so

        rows inside <= x0   >=  r - below - L_hi(v)          x0 is not before the row at r - below - L_hi - 1
        rows inside <  x0   <   r - below - L_lo(u)          x0 is not after the row at  r - below - L_lo - 1

    Only the ranks of history at x0 and just before it enter the error of x0, and they stay exact for all
    values between these two rows. Where x0 = u the first index is below 0, and where x0 = v the last one is
    c or more: then all rows stay up to that end, whose exact rank is what makes the answer certain. So it
    matters for whom an interval was read, not whether the answer is one of its rows. What is thrown away
    falls back to the bounds that it had, which no rank needs. The next value on either side is the
    narrower end.
    """
    lows, highs = (np.array(ends, dtype=live.values.dtype) for ends in zip(*brackets, strict=True))
    found = []
    for one in readings:
        u, v = np.array([one.interval.u, one.interval.v], dtype=live.values.dtype)
        rows = np.concatenate(one.pieces)
        if not len(rows):
            found.append(one)
            continue
        here = ranks[(u <= lows) & (lows < highs) & (highs <= v)] - one.below
        first, last = here.min() - live.rank_lt(v)[1] - 1, here.max() - live.rank_le(u)[0] - 1
        ends = np.clip([first, last], 0, len(rows) - 1)
        low, high = np.partition(rows, ends)[ends]
        cuts = [(p, int(np.searchsorted(p, low)), int(np.searchsorted(p, high, "right"))) for p in one.pieces]
        below = max([one.interval.u, *(p[i - 1] for p, i, _ in cuts if i)])
        above = min([one.interval.v, *(p[j] for p, _, j in cuts if j < len(p))])
        skipped = sum(i for _, i, _ in cuts)
        found.append(
            Reading(Interval(below, above), one.below + skipped, [p[i:j] for p, i, j in cuts if i < j])
        )
    return found


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """Answers to several ranks, all arrays of the same length; low and high are inclusive."""

    values: Values
    errors: Ranks
    rank_lo: Ranks
    rank_hi: Ranks
    low: Values
    high: Values

    def put(self, where: NDArray[Any], other: Found) -> Found:
        """These answers with those at `where` replaced."""
        columns = {}
        for name in self.__slots__:
            columns[name] = getattr(self, name).copy()
            columns[name][where] = getattr(other, name)
        return Found(**columns)


def best(bounds: RankBounds, ranks: Ranks) -> Found:
    """For each rank the value of least certified error, and what certainly holds the exact answer."""
    at, errors = bounds.best_candidate(ranks)
    a, b = bounds.bracket(ranks)
    return Found(
        values=bounds.values[at],
        errors=errors,
        rank_lo=bounds.lo[at + 1],
        rank_hi=bounds.hi[at + 1],
        low=bounds.values[a],
        high=bounds.values[b],
    )


def nearest(grid: Grid, likely: NDArray[np.float64], ranks: Ranks, allowed: int) -> Found:
    """For each rank the first value whose likely rank reaches it, or the best where that errs too much.

    `likely` are the live ranks at the grid's steps; they never leave their bounds.
    """
    found = best(grid.both, ranks)
    lo, hi = grid.both.lo, grid.both.hi
    history = (grid.history.lo + grid.history.hi) / 2
    reached = np.maximum.accumulate(history + np.clip(likely, grid.live.lo, grid.live.hi))[1:]
    at = np.minimum(np.searchsorted(reached, ranks - 0.5), len(reached) - 1)
    errors = np.maximum(0, np.maximum(ranks - lo[at + 1], hi[at] + 1 - ranks))
    good = np.flatnonzero(errors <= allowed)
    at = at[good]
    chosen = Found(grid.values[at], errors[good], lo[at + 1], hi[at + 1], found.low[good], found.high[good])
    return found.put(good, chosen)


def union(parts: Sequence[RankBounds], dtype: np.dtype[Any]) -> RankBounds:
    """The staircase of any number of disjoint parts, none included."""
    return combine([*parts, RankBounds.empty(dtype)])


def _section(bounds: RankBounds, first: int, last: int) -> RankBounds:
    return replace(
        bounds,
        values=bounds.values[first : last + 1],
        lo=bounds.lo[first : last + 2],
        hi=bounds.hi[first : last + 2],
    )
