"""The likely rank of a value on the live side, between the certain bounds.

A sketch knows the rank of its own values well and nothing between them. Recent rows are mostly spread like
those before them, so in the gap between two values of a sketch its rows are taken to lie as history's rows
do: the rank rises with history's, from what is likeliest at the one value to what is likeliest at the other.
The sum over all sketches is off by chance inside one gap of each, far less than the bounds allow for.

This only chooses among answers; what an answer says of its error are the certified bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidemark.query.quantiles.read_plan import Side
from tidemark.sketches import RankBounds, combine

Places = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Gaps:
    """The gaps between neighbouring values of each sketch, all sketches together; arrays of one length.

    The rank jumps by `jump` at the value `first`, then rises by `rise` until just before the value `last`.
    """

    first: NDArray[Any]
    last: NDArray[Any]
    jump: NDArray[np.float64]
    rise: NDArray[np.float64]

    @classmethod
    def of(cls, sketches: Sequence[RankBounds], dtype: np.dtype[Any]) -> Gaps:
        """The gaps of sketches over disjoint rows, none of them empty."""
        first, last = [np.empty(0, dtype)], [np.empty(0, dtype)]
        jump, rise = [np.empty(0)], [np.empty(0)]
        for sketch in sketches:
            bounds = combine([sketch])
            # At a value: up to hi[j] just below it, from lo[j + 1] on with it; apart only where it is common.
            below, upto = bounds.hi[:-1], bounds.lo[1:]
            middle = (below + upto) / 2
            left, right = np.minimum(below, middle), np.maximum(upto, middle)
            first.append(bounds.values)
            last.append(np.append(bounds.values[1:], bounds.values[-1:]))
            jump.append(right - left)
            rise.append(np.append(left[1:] - right[:-1], 0.0))
        return cls(*(np.concatenate(parts) for parts in (first, last, jump, rise)))

    def ranks(self, steps: Places, history: Callable[[NDArray[Any], Side], Places], u: Any, w: Any) -> Places:
        """The likely live rank at values from u to w, each given by its rank in history.

        `history` tells that rank of any values, exactly where it was read, for gaps that reach out.
        """
        before = self.last < u
        base = float(np.sum(self.jump[before]) + np.sum(self.rise[before]))
        here = np.flatnonzero(~before & (self.first <= w))
        start, end = history(self.first[here], "right"), history(self.last[here], "left")
        width, rise = end - start, self.rise[here]
        slope = np.divide(rise, width, out=np.zeros_like(rise), where=width > 0)
        # The sum of all ramps is a line from one end of a ramp to the next.
        ends = np.concatenate([[start.min(initial=steps[0])], start, np.maximum(start, end)])
        jumps = np.concatenate([[base], self.jump[here] + np.where(width > 0, 0, rise), np.zeros(len(here))])
        order = np.argsort(ends, kind="stable")
        ends, jumped = ends[order], np.cumsum(jumps[order])
        slopes = np.cumsum(np.concatenate([[0.0], slope, -slope])[order])
        risen = np.concatenate([[0.0], np.cumsum(slopes[:-1] * np.diff(ends))])
        at = np.searchsorted(ends, steps, "right") - 1
        likely: Places = jumped[at] + risen[at] + slopes[at] * (steps - ends[at])
        return likely
