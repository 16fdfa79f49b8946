"""The likely live rank of a value, between its certified bounds.

A sketch knows the rank of its own values well, but nothing about the rows between two neighbouring values.
Recent rows are usually distributed like older rows. So the rows in such a gap are assumed to be distributed
like history's rows there: the live rank rises in proportion to history's rank, from the likeliest rank at the
lower value to the likeliest rank at the upper one. The sum over all sketches errs by the random deviation
inside one gap per sketch, which is far less than the certified bounds allow for.

The likely rank only selects among candidates (choose_candidate.py). The error that an answer reports is
certified.

Worked example. One sketch of five live rows holds the values 10 and 20: one row is <= 10, one is 20, and
three lie between them. History has the four rows 12, 14, 16 and 18 in this gap. So the likely live rank is 1
at 10, rises by 3 / 4 per row of history, and jumps by 1 at 20:

    history's rank     0 (value 10)    1 (12)    2 (14)    3 (16)    4 (20)
    likely live rank   1               1.75      2.5       3.25      5

The row 18 has history's rank 4 as well. Its likely rank 5 is clipped to its certified upper bound, 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidemark.sketches import RankBounds, combine

FloatRanks = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class SketchGaps:
    """The gaps between neighbouring values of each sketch, for all sketches together; arrays of one length.

    first, last: the values at both ends of a gap; equal for the maximum of a sketch.
    jump: by how much the rank increases at the value `first`.
    rise: by how much it increases between `first` and `last`, both exclusive.
    before: by how much the rank increases at gaps that were left out, before the first gap.
    """

    first: NDArray[Any]
    last: NDArray[Any]
    jump: FloatRanks
    rise: FloatRanks
    before: float = 0.0

    @classmethod
    def of(cls, sketches: Sequence[RankBounds], dtype: np.dtype[Any]) -> SketchGaps:
        """The gaps of sketches over disjoint rows; each sketch has at least one row."""
        first, last = [np.empty(0, dtype)], [np.empty(0, dtype)]
        jump, rise = [np.empty(0)], [np.empty(0)]
        for sketch in sketches:
            bounds = combine([sketch])
            # rank_lt(values[j]) is at most hi[j], rank_le(values[j]) at least lo[j + 1]. If hi[j] is the
            # larger one, both are replaced by their midpoint, so the jump is 0 unless the value is frequent.
            below, upto = bounds.hi[:-1], bounds.lo[1:]
            midpoint = (below + upto) / 2
            left, right = np.minimum(below, midpoint), np.maximum(upto, midpoint)
            first.append(bounds.values)
            last.append(np.append(bounds.values[1:], bounds.values[-1:]))
            jump.append(right - left)
            rise.append(np.append(left[1:] - right[:-1], 0.0))
        return cls(np.concatenate(first), np.concatenate(last), np.concatenate(jump), np.concatenate(rise))

    def between(self, low: Any, high: Any) -> SketchGaps:
        """The gaps that matter to values between `low` and `high`, both inclusive; they may reach outside."""
        ended = self.last < low
        kept = ~ended & (self.first <= high)
        before = float(np.sum(self.jump[ended]) + np.sum(self.rise[ended]))
        return SketchGaps(self.first[kept], self.last[kept], self.jump[kept], self.rise[kept], before)

    def likely_ranks(self, history_ranks: FloatRanks, start: FloatRanks, end: FloatRanks) -> FloatRanks:
        """The likely live ranks of some values, from the gaps that are `between` the least and the greatest.

        history_ranks: shape (k,), the values' ranks in history, ascending. Only the
            ranks are needed, not the values.
        start, end: rank_le in history of `first`, and rank_lt of `last`; exact where history was read.

        Returns an array of shape (k,).

        Each gap is a ramp over the axis of history's ranks. From rank_le(first) to rank_lt(last) it rises
        with slope rise / (rank_lt(last) - rank_le(first)); at its start it jumps by `jump`. A gap without
        rows of history has no width, so its rise is added to its jump. The sum of all ramps is piecewise
        linear, with a corner where a ramp starts or ends. So one sort of the corners, a running sum of jumps
        and slopes and a binary search per value give all ranks: O((g + k) log g) for g gaps.

        Worked example, for the sketch of the module's docstring. The gap 10..20 has jump 1 and rise 3. It is
        a ramp from history rank 0 to 4 with slope 3 / 4. The gap of the maximum, 20..20, has jump 1 and no
        width, at history rank 4. The corners, with the level at each and the slope after it:

            history rank    0     4
            level           1     1 + 3 + 1 = 5
            slope           3/4   0

        history_ranks = [0, 2, 4] then give [1, 1 + 2 * 3/4, 5] = [1, 2.5, 5].
        """
        if not len(self.first):
            return np.full(len(history_ranks), self.before)
        width, rise = end - start, self.rise
        slope = np.divide(rise, width, out=np.zeros_like(rise), where=width > 0)
        # The first corner carries the gaps that were left out.
        corners = np.concatenate([[start.min(initial=history_ranks[0])], start, np.maximum(start, end)])
        jumps = np.concatenate(
            [[self.before], self.jump + np.where(width > 0, 0, rise), np.zeros(len(self.jump))]
        )
        order = np.argsort(corners, kind="stable")
        corners, jumped = corners[order], np.cumsum(jumps[order])
        slopes = np.cumsum(np.concatenate([[0.0], slope, -slope])[order])
        risen = np.concatenate([[0.0], np.cumsum(slopes[:-1] * np.diff(corners))])
        at = np.searchsorted(corners, history_ranks, "right") - 1
        likely: FloatRanks = jumped[at] + risen[at] + slopes[at] * (history_ranks - corners[at])
        return likely
