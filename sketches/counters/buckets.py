"""Buckets: the state of the deterministic counters as an immutable value, for queries, merges and storage.

Model. A cell counts arrivals at times that never decrease. Its arrivals, in order, are divided into buckets.
For each bucket we know the number of its arrivals, `size`, and the time of its last arrival, `end`. The
arrivals of a bucket lie between the end of the bucket before it and its own end, both inclusive: several
arrivals may share a time.

Invariants, checked by `check_buckets`:
  1. In a cell the ends never decrease, and every size is at least 1.
  2. size / 2 <= eps * (1 + later) for every bucket with more than one arrival, where `later` is the sum of
     the sizes after it in its cell. This is invariant 1 of exponential histograms; waves keep it too.

Guarantee. Let x be the number of arrivals at time t or later. The buckets that end before t hold none of
them. In the first bucket that ends at t or later, the last arrival counts and the others may or may not; all
later buckets count in full:

    later + 1 <= x <= later + size        |x - (later + (size + 1) / 2)| <= (size - 1) / 2 <= eps * x

so the middle is the estimate. Where size is 1 the count is exact.

Example. eps = 0.5, ends 10, 20, 30, 40 and sizes 4, 2, 1, 1: 8 arrivals. For t = 15 the bucket that ends at
20 is the first that ends at t or later; later = 2, so 3 <= x <= 4, and the estimate is 3.5.

Source: Papapetrou, Garofalakis and Deligiannakis, VLDB Journal 2015, section 3, after Datar, Gionis, Indyk
and Motwani, SIAM J. Comput. 2002. We deviate: their estimate is later + size / 2, half an arrival lower.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidemark.sketches.bounds.count_bounds import Counts, exact
from tidemark.sketches.errors import BrokenInvariant

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Buckets:
    """The buckets of many cells: grouped by cell, oldest first, in one array.

    cells: shape (k,), the cells that have buckets, ascending.
    starts: shape (k + 1,), the index of the first bucket of each of these cells, and b at the end.
    ends, sizes: shape (b,), the time of the last arrival and the number of arrivals of each bucket.
    expired: shape (k,), the number of arrivals of the cell that expired before its oldest bucket; used by
        deterministic waves only.

    All arrays are int64. Memory: 16 bytes a bucket and 24 bytes a cell that has buckets.

    Example: cell 2 with buckets of 4 and 1 arrivals that end at 10 and 30, cell 5 with one of 2 that ends at
    20, is cells [2, 5], starts [0, 2, 3], ends [10, 30, 20], sizes [4, 1, 2], expired [0, 0].
    """

    cells: Ints
    starts: Ints
    ends: Ints
    sizes: Ints
    expired: Ints

    def __len__(self) -> int:
        return len(self.ends)

    def totals(self, cells: int) -> Ints:
        """The number of arrivals in the buckets of each of `cells` cells. O(cells + b) for b buckets."""
        result = np.zeros(cells, np.int64)
        result[self.cells] = np.diff(self._sizes_before()[self.starts])
        return result

    def since(self, time: int, cells: int) -> Counts:
        """The number of arrivals at `time` or later in each of `cells` cells, with bounds. O(cells + b)."""
        result = exact(np.zeros(cells, np.int64))
        if not len(self):
            return result
        ended = np.concatenate([[0], np.cumsum(self.ends < time)])
        first = self.starts[:-1] + np.diff(ended[self.starts])
        sizes_before = self._sizes_before()
        hi = sizes_before[self.starts[1:]] - sizes_before[first]
        # For a cell without buckets from `time` on, hi is 0 and size 1 makes lo 0 too.
        size = np.where(hi > 0, self.sizes[np.minimum(first, len(self) - 1)], 1)
        result.hi[self.cells], result.estimate[self.cells] = hi, hi - (size - 1) / 2
        lo = result.hi.copy()
        lo[self.cells] -= size - 1
        return Counts(result.estimate, lo, result.hi)

    def drop_expired(self, horizon: int) -> "Buckets":
        """The buckets that end after `horizon`; the arrivals of the others are added to `expired`. O(b)."""
        kept = self.ends > horizon
        if kept.all():
            return self
        remaining = np.diff(np.concatenate([[0], np.cumsum(kept)])[self.starts])
        dropped = np.diff(np.concatenate([[0], np.cumsum(np.where(kept, 0, self.sizes))])[self.starts])
        occupied = remaining > 0
        starts = np.concatenate([[0], np.cumsum(remaining[occupied])])
        expired = (self.expired + dropped)[occupied]
        return Buckets(self.cells[occupied], starts, self.ends[kept], self.sizes[kept], expired)

    def later(self) -> Ints:
        """For each bucket the sum of the sizes after it in its cell. O(b)."""
        sizes_before = self._sizes_before()
        return np.repeat(sizes_before[self.starts[1:]], np.diff(self.starts)) - sizes_before[1:]

    def begin_times(self, origin: int) -> Ints:
        """For each bucket a lower bound of the times of its arrivals: the end of the bucket before it. O(b).

        origin: the lower bound for the oldest bucket of each cell.
        """
        result = np.concatenate([[origin], self.ends[:-1]])
        result[self.starts[:-1]] = origin
        return result[: len(self)]

    def _sizes_before(self) -> Ints:
        """The sum of all sizes before each bucket, over all cells, and the total: shape (b + 1,)."""
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(self.sizes)])


def no_buckets() -> Buckets:
    """The state of counters without arrivals: no buckets in any cell."""
    no_entries = np.empty(0, np.int64)
    return Buckets(no_entries, np.zeros(1, np.int64), no_entries, no_entries, no_entries)


def join_buckets(parts: Sequence[Buckets]) -> Buckets:
    """The buckets of all parts, at least one; the cells of each part come after those of the one before."""
    bucket_counts = np.concatenate([np.diff(part.starts) for part in parts])
    return Buckets(
        np.concatenate([part.cells for part in parts]),
        np.concatenate([[0], np.cumsum(bucket_counts)]),
        np.concatenate([part.ends for part in parts]),
        np.concatenate([part.sizes for part in parts]),
        np.concatenate([part.expired for part in parts]),
    )


def check_buckets(buckets: Buckets, eps: float) -> None:
    """Raises BrokenInvariant if the buckets break an invariant under `eps`. O(b)."""
    inner = np.ones(len(buckets), bool)
    inner[buckets.starts[:-1]] = False
    falls = np.diff(buckets.ends, prepend=0) < 0
    # The invariant is stated in real numbers; the factor allows for rounding errors of this computation.
    allowed = 2 * eps * (1.0 + buckets.later()) * (1 + 1e-12)
    rules = {
        "cells ascend": bool(np.all(np.diff(buckets.cells) > 0)),
        "every cell has a bucket": bool(np.all(np.diff(buckets.starts) > 0)),
        "ends never decrease": not np.any(falls & inner),
        "sizes are at least 1": bool(np.all(buckets.sizes >= 1)),
        "no bucket is too large": bool(np.all((buckets.sizes <= allowed) | (buckets.sizes == 1))),
        "expired is not negative": bool(np.all(buckets.expired >= 0)),
    }
    for rule, holds in rules.items():
        if not holds:
            raise BrokenInvariant(f"buckets of eps = {eps} break this invariant: {rule}")
