"""Buckets: what the deterministic counters keep, as a value that is asked, merged and stored.

Model. A cell counts arrivals at times that never decrease. Its arrivals, in order, are cut into buckets; of
each we know how many arrivals it holds, `size`, and the time of its last one, `end`. The arrivals of a
bucket lie between the end of the bucket before it and its own end, both inclusive: several arrivals may
share a time.

Invariants, checked by `check`:
  1. In a cell the ends never decrease, and every size is at least 1. 2. size / 2 <= eps * (1 + later) for
  every bucket with more than one arrival, where `later` is the sum of the sizes
     behind it in its cell. This is invariant 1 of exponential histograms; waves keep it too.

Guarantee. Let x be the number of arrivals at time t or later. The buckets that end before t hold none of
them. Of the first that does not, the last arrival counts and the first may not; later ones count in full:

    later + 1 <= x <= later + size        |x - (later + (size + 1) / 2)| <= (size - 1) / 2 <= eps * x

so the middle is the estimate. Where size is 1 the count is exact.

Source: Papapetrou, Garofalakis and Deligiannakis, VLDB Journal 2015, section 3, after Datar, Gionis, Indyk
and Motwani, SIAM J. Comput. 2002. We deviate: their estimate is later + size / 2, half an arrival lower.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidemark.sketches.bounds.count_bounds import Counts, exact
from tidemark.sketches.errors import BrokenInvariant

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Buckets:
    """The buckets of many cells, those of one cell side by side, oldest first.

    cells: shape (k,), the cells that hold any, ascending. starts: shape (k + 1,), where the buckets of each
    begin. ends, sizes: shape (b,). before: shape (k,), how many arrivals of the cell expired before its
    oldest bucket; only waves keep it, elsewhere it is 0. All int64.
    """

    cells: Ints
    starts: Ints
    ends: Ints
    sizes: Ints
    before: Ints

    def __len__(self) -> int:
        return len(self.ends)

    def totals(self, cells: int) -> Ints:
        """The sum of sizes of each of `cells` cells."""
        result = np.zeros(cells, np.int64)
        result[self.cells] = np.diff(self._below()[self.starts])
        return result

    def since(self, time: int, cells: int) -> Counts:
        """The arrivals at `time` or later, for each of `cells` cells."""
        result = exact(np.zeros(cells, np.int64))
        if not len(self):
            return result
        earlier = np.concatenate([[0], np.cumsum(self.ends < time)])
        first = self.starts[:-1] + np.diff(earlier[self.starts])
        below = self._below()
        hi = below[self.starts[1:]] - below[first]
        # Where no bucket is left, hi is 0, and any size will do.
        size = np.where(hi > 0, self.sizes[np.minimum(first, len(self) - 1)], 1)
        result.hi[self.cells], result.estimate[self.cells] = hi, hi - (size - 1) / 2
        lo = result.hi.copy()
        lo[self.cells] -= size - 1
        return Counts(result.estimate, lo, result.hi)

    def after(self, time: int) -> "Buckets":
        """The buckets that end after `time`; what ended earlier is counted in `before`."""
        kept = self.ends > time
        if kept.all():
            return self
        left = np.diff(np.concatenate([[0], np.cumsum(kept)])[self.starts])
        gone = np.diff(np.concatenate([[0], np.cumsum(np.where(kept, 0, self.sizes))])[self.starts])
        some = left > 0
        starts = np.concatenate([[0], np.cumsum(left[some])])
        before = (self.before + gone)[some]
        return Buckets(self.cells[some], starts, self.ends[kept], self.sizes[kept], before)

    def later(self) -> Ints:
        """For each bucket the sum of the sizes behind it in its cell."""
        below = self._below()
        return np.repeat(below[self.starts[1:]], np.diff(self.starts)) - below[1:]

    def begins(self, origin: int) -> Ints:
        """For each bucket the time that none of its arrivals lies before: the end of the one before it.

        `origin` serves for the oldest of each cell.
        """
        result = np.concatenate([[origin], self.ends[:-1]])
        result[self.starts[:-1]] = origin
        return result[: len(self)]

    def _below(self) -> Ints:
        """The sum of all sizes before each bucket, and in all: shape (b + 1,)."""
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(self.sizes)])


def none() -> Buckets:
    """No buckets in any cell."""
    nothing = np.empty(0, np.int64)
    return Buckets(nothing, np.zeros(1, np.int64), nothing, nothing, nothing)


def check(buckets: Buckets, eps: float) -> None:
    """Raises BrokenInvariant if the buckets break an invariant under `eps`."""
    inner = np.ones(len(buckets), bool)
    inner[buckets.starts[:-1]] = False
    falls = np.diff(buckets.ends, prepend=0) < 0
    # The invariant is of real numbers; a few units in the last place are those of the arithmetic here.
    allowed = 2 * eps * (1.0 + buckets.later()) * (1 + 1e-12)
    rules = {
        "cells ascend": bool(np.all(np.diff(buckets.cells) > 0)),
        "every cell has a bucket": bool(np.all(np.diff(buckets.starts) > 0)),
        "ends never decrease": not np.any(falls & inner),
        "sizes are at least 1": bool(np.all(buckets.sizes >= 1)),
        "no bucket is too large": bool(np.all((buckets.sizes <= allowed) | (buckets.sizes == 1))),
        "nothing expired twice": bool(np.all(buckets.before >= 0)),
    }
    for rule, holds in rules.items():
        if not holds:
            raise BrokenInvariant(f"buckets of eps = {eps} must keep this rule and do not: {rule}")
