"""Combined bounds: certified ranks of all rows, of the live rows and of history over one array of values.

Model. `total`, `live` and (by subtraction) `history` are staircases over the same unique values, see
sketches/bounds/rank_bounds.py. For a requested rank r let

    a = number of indices i with hi[i + 1] < r,   b = least index i with lo[i + 1] >= r

The exact answer lies in the closed interval [values[a], values[b]], the bracket of r. Every x below values[a]
has rank_le(x) <= hi[a] < r, so it is too small. values[b] is large enough.

Where to read. Live rows are expensive to read, so the uncertainty of the live side must not widen the
brackets in which history is read. Therefore a third staircase, `centered`, is history plus the midpoint of
the live bounds: a function L(x) with |L - true live rank| <= ceil(d / 2), where d <= 2 * eps_R * m is the
width of the live bounds and eps_R = eps / 4 the rank error of the ledger. Let x0 be the smallest x with
rank_history(x) + L(x) >= r. Its certified error is at most ceil(d / 2) <= eps * m:

    r - lo_le(x0)      <= L - lo_live     because rank_history(x0) + L(x0) >= r
    hi_lt(x0) + 1 - r  <= hi_live - L     because rank_history + L < r just before x0

x0 lies in the bracket of `centered`. However wide the live bounds are, the bracket from value a to value b
has fewer history rows than twice the sum of the runs' grains: hi[b] - lo[a + 1] < 2 * (sum over the runs of
the width of their bounds), with lo and hi of `centered`.

Worked example. History is exact, with rows 10, 20, 30, 40. Three live rows are known only by their minimum
and maximum, 10 and 40. The columns are x < 10, then x from 10, 20, 30 and 40 on:

    history    0  1  2  3  4
    live lo    0  1  1  1  3      hi  0  2  2  2  3      midpoint  0  1  1  1  3
    total lo   0  2  3  4  7      hi  0  3  4  5  7
    centered   0  2  3  4  7

For r = 4 the bracket of `total` is [20, 30]: 20 has a total rank of 3 or 4, 30 has one of 4 or 5. The bracket
of `centered` is the single value 30, so nothing has to be read. Answer 30 has a certified error of
max(0, 4 - 4, 4 + 1 - 4) = 1 row.

choose_candidate.py chooses the answer among the values. `splice` replaces the bounds of a staircase inside
open intervals by the exact ranks that were read there.
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
class CombinedBounds:
    """Staircases over the same unique values.

    total: of all rows.
    live: of the live rows.
    centered: of all rows, with each live rank fixed at the midpoint of its bounds.
    """

    total: RankBounds
    live: RankBounds
    centered: RankBounds

    @property
    def values(self) -> Values:
        """The values, ascending and unique."""
        return self.total.values

    @property
    def history(self) -> RankBounds:
        """The staircase of history alone."""
        return replace(self.total, lo=self.total.lo - self.live.lo, hi=self.total.hi - self.live.hi)

    def around(self, ranks: Ranks) -> CombinedBounds:
        """The part of the values that contains the brackets of all these ranks; it is valid only there."""
        first, last = self.total.bracket(ranks)
        return self._section(int(first.min()), int(last.max()))

    def between(self, low: Any, high: Any) -> CombinedBounds:
        """The part from value `low` to value `high`, both inclusive; valid for x between those two."""
        values = self.total.values
        return self._section(int(values.searchsorted(low)), int(values.searchsorted(high)))

    def _section(self, first: int, last: int) -> CombinedBounds:
        return CombinedBounds(
            *(_steps(bounds, first, last) for bounds in (self.total, self.live, self.centered))
        )


def combine_sides(history: RankBounds, live: RankBounds) -> CombinedBounds:
    """The combined bounds of history and the live side, which hold disjoint rows.

    O(K log K) for K values in all.
    """
    if live.hi[-1] == 0:
        total = combine([history])
        zeros = np.zeros(len(total.lo), dtype=np.int64)
        return CombinedBounds(total, replace(total, lo=zeros, hi=zeros), total)
    total = combine([history, live])
    steps = np.searchsorted(live.values, total.values, side="right")
    steps = np.concatenate([np.zeros(1, dtype=np.intp), steps])
    lo, hi = live.lo[steps], live.hi[steps]
    midpoint = (lo + hi) // 2
    return CombinedBounds(
        total,
        replace(total, lo=lo, hi=hi),
        replace(total, lo=total.lo - lo + midpoint, hi=total.hi - hi + midpoint),
    )


def splice(bounds: RankBounds, readings: Sequence[Reading]) -> RankBounds:
    """The staircase with exact ranks inside the intervals of the readings, which are disjoint and ascend."""
    values, lo, hi = [], [], []
    done, reached = 0, 0  # values of `bounds` copied so far, and the last exact rank
    for reading in readings:
        interval = reading.interval
        lower, upper = np.array([[interval.lower], [interval.upper]], dtype=bounds.values.dtype)
        i = max(done, int(np.searchsorted(bounds.values, lower[0], side="left")))
        inside = reading.inside
        exact = reading.below + np.arange(len(inside) + 1, dtype=np.int64)
        values += [bounds.values[done:i], lower, inside, upper]
        # Ranks are monotone: between two readings they are at least the last rank of the first reading and at
        # most the first rank of the second.
        lo += [np.clip(bounds.lo[done : i + 1], reached, reading.below), exact]
        hi += [np.clip(bounds.hi[done : i + 1], reached, reading.below), exact]
        done = max(i, int(np.searchsorted(bounds.values, upper[0], side="right")))
        reached = int(exact[-1])
    return RankBounds(
        np.concatenate([*values, bounds.values[done:]]),
        np.concatenate([*lo, np.maximum(bounds.lo[done:], reached)]),
        np.concatenate([*hi, np.maximum(bounds.hi[done:], reached)]),
    )


def midpoint_rank(
    bounds: RankBounds, readings: Sequence[Reading], values: Values, side: Side
) -> NDArray[np.float64]:
    """rank_lt ("left") or rank_le ("right") of each value; shape as `values`.

    Inside the intervals of the readings the rank is exact, elsewhere it is the midpoint of its bounds.
    """
    lo, hi = bounds.rank_lt(values) if side == "left" else bounds.rank_le(values)
    ranks = (lo + hi) / 2
    for reading in readings:
        inside = (values > reading.interval.lower) & (values < reading.interval.upper)
        ranks[inside] = reading.rank(values[inside], side)
    return ranks


def narrow_readings(
    readings: Sequence[Reading], live: RankBounds, ranks: Ranks, brackets: Sequence[tuple[Any, Any]]
) -> list[Reading]:
    """The readings, reduced to the rows that can affect the answer to at least one rank.

    live: the staircase of the live rows.
    brackets: one closed interval (low, high) of `centered` per rank.

    Proof. Let (lower, upper) be an interval with c rows inside, r a rank whose bracket lies in [lower,
    upper], x0 the answer of `centered` to r, and L the live rank at x0, so L_lo(lower) <= L <= L_hi(upper).
    If lower < x0 < upper, x0 has a rank of at least r and no smaller value has, so

        count(inside <= x0)  >=  r - below - L_hi    so x0 is not before the row r - below - L_hi - 1
        count(inside <  x0)  <   r - below - L_lo    so x0 is not after the row  r - below - L_lo - 1

    with L_hi = L_hi(upper) and L_lo = L_lo(lower). The error of x0 depends only on two ranks of history:
    at x0 and just before x0. Both stay exact between these two rows. If x0 = lower, the first row is
    negative, and rows are kept from the start. If x0 = upper, the last row is c or more, and rows are kept to
    the end. In both cases x0 is an end of the interval, where the reading gives the exact rank.

    If several ranks have their bracket in the interval, the rows from the least first row to the greatest
    last row are kept. The next values below and above the kept rows are the ends of the narrower interval.
    Outside of it the bounds from before the reading apply; no answer needs them.

    Worked example. The interval (10, 20) holds the history rows 11, 12 ... 19, and below = 100 rows are <=
    10. The live rank is at least L_lo(10) = 40 and at most L_hi(20) = 42. For r = 145:

        first index = 145 - 100 - 42 - 1 = 2, the row 13;   last index = 145 - 100 - 40 - 1 = 4, the row 15

    Only 13, 14 or 15 can be x0, which needs a history rank of 103 to 105. The result is the interval (12, 16)
    with below = 102 and the rows 13, 14, 15. A second rank r = 147 on the same interval would extend it to
    the row with index 6, which is 17.

    Cost: O(c) for a reading of c rows, and O(log c) for each of its sorted pieces.
    """
    lows, highs = (np.array(ends, dtype=live.values.dtype) for ends in zip(*brackets, strict=True))
    narrowed = []
    for reading in readings:
        interval = reading.interval
        lower, upper = np.array([interval.lower, interval.upper], dtype=live.values.dtype)
        rows = np.concatenate(reading.pieces)
        if not len(rows):
            narrowed.append(reading)
            continue
        ranks_inside = ranks[(lower <= lows) & (lows < highs) & (highs <= upper)] - reading.below
        first = ranks_inside.min() - live.rank_lt(upper)[1] - 1
        last = ranks_inside.max() - live.rank_le(lower)[0] - 1
        ends = np.clip([first, last], 0, len(rows) - 1)
        low, high = np.partition(rows, ends)[ends]
        cuts = [
            (piece, int(piece.searchsorted(low)), int(piece.searchsorted(high, "right")))
            for piece in reading.pieces
        ]
        before = max([interval.lower, *(piece[i - 1] for piece, i, _ in cuts if i)])
        after = min([interval.upper, *(piece[j] for piece, _, j in cuts if j < len(piece))])
        skipped = sum(i for _, i, _ in cuts)
        kept = [piece[i:j] for piece, i, j in cuts if i < j]
        narrowed.append(Reading(Interval(before, after), reading.below + skipped, kept))
    return narrowed


def combine_or_empty(staircases: Sequence[RankBounds], dtype: np.dtype[Any]) -> RankBounds:
    """The staircase of the union of disjoint parts; an empty one for no parts."""
    return combine([*staircases, RankBounds.empty(dtype)])


def part_of(bounds: RankBounds, low: Any, high: Any) -> RankBounds:
    """The part with the values from `low` to `high`, both inclusive; valid for x between these two."""
    first, after = int(bounds.values.searchsorted(low)), int(bounds.values.searchsorted(high, "right"))
    return _steps(bounds, first, after - 1)


def _steps(bounds: RankBounds, first: int, last: int) -> RankBounds:
    return replace(
        bounds,
        values=bounds.values[first : last + 1],
        lo=bounds.lo[first : last + 2],
        hi=bounds.hi[first : last + 2],
    )
