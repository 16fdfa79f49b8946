"""Deterministic waves: the times of arrivals of chosen ranks, one write an arrival.

Model. The arrivals of a cell are numbered 1, 2, 3 ...: their ranks. A rank 2**l * odd belongs to level l,
and each level keeps the times of its last c = ceil((1 / eps + 1) / 2) ranks. Rank 0, before all, is known.

Two neighbouring ranks that are kept are the ends of two buckets, so a wave is asked as buckets are: the
bucket that ends at rank r holds r minus the rank kept before it.

Proof of invariant 2 of buckets.py. Let x = later + 1, with the bucket's last arrival the oldest one
counted; n is the last rank. Level l keeps all its ranks above n - c * 2**(l + 1), as they lie 2**(l + 1)
apart, and so do the levels above it. Take the least l with c * 2**(l + 1) >= x + 2**l: every multiple of
2**l from n - x + 1 down by 2**l is kept, so the bucket holds at most 2**l. If l is 0 it holds one. If not,
the level below was too small, c * 2**l < x + 2**(l - 1), hence 2**l < x / (c - 1/2) and

    size / 2 <= 2**l / 2 < x / (2 c - 1) <= eps * x = eps * (1 + later).

Source: Gibbons and Tirthapura, SPAA 2002, as in Papapetrou et al., section 4.2. We deviate: levels are
added as ranks grow, so no bound of the number of arrivals is asked for beforehand.
"""

import math

import numpy as np

from sketches.buckets import Buckets, Ints

NEVER = -(2**63)  # the time of a place that holds none; no arrival has it


def places(eps: float) -> int:
    """How many ranks each level keeps."""
    return math.ceil((1 / eps + 1) / 2)


class Waves:
    """The waves of `cells` cells, in arrays that updates write.

    ends: shape (levels, cells, places); the k-th rank of a level, 2**level * (2 k + 1), has the place
    k mod places. totals: the last rank of each cell. before: the rank that the oldest bucket begins behind.
    """

    __slots__ = ("_before", "_ends", "_places", "_totals")

    def __init__(self, kept: Buckets, eps: float, cells: int) -> None:
        """Takes up `kept`, which waves of this eps have left."""
        self._places = places(eps)
        self._ends = np.full((0, cells, self._places), NEVER)
        self._totals, self._before = np.zeros(cells, np.int64), np.zeros(cells, np.int64)
        if not len(kept):
            return
        self._before[kept.cells] = kept.before
        cell = np.repeat(kept.cells, np.diff(kept.starts))
        ranks = np.repeat(kept.before + kept.totals(cells)[kept.cells], np.diff(kept.starts)) - kept.later()
        self._totals[kept.cells] = ranks[kept.starts[1:] - 1]
        self._reach(int(self._totals.max()))
        level = np.log2(ranks & -ranks).astype(np.int64)
        self._ends[level, cell, (ranks >> level >> 1) % self._places] = kept.ends

    def add(self, cells: Ints, times: Ints, counts: Ints) -> None:
        """Adds arrivals in order of time: each to one cell of every row of `cells`; no counts: each one."""
        from sketches.kernels import add_to_waves, by_cell

        self._reach(int(self._totals.max()) + (int(counts.sum()) if len(counts) else len(times)))
        width = len(self._totals) // len(cells)
        for row, own in enumerate(cells):
            arrivals = by_cell(own, row * width, width, times, counts)
            add_to_waves(self._ends, self._totals, row * width, self._places, *arrivals)

    def kept(self) -> Buckets:
        """The buckets of every cell."""
        ranks, cells, ends = [], [], []
        for level, held in enumerate(self._ends):
            count = (self._totals >> level) + 1 >> 1
            last = count[:, None] - 1 - np.arange(self._places)
            time = np.take_along_axis(held, last % self._places, axis=1)
            cell, at = np.nonzero((last >= 0) & (time != NEVER))
            ranks.append((2 * last[cell, at] + 1) << level)
            cells.append(cell)
            ends.append(time[cell, at])
        if not ranks:
            return Waves._ordered(self._before, *(np.empty(0, np.int64),) * 3)
        return Waves._ordered(
            self._before, np.concatenate(cells), np.concatenate(ranks), np.concatenate(ends)
        )

    @staticmethod
    def _ordered(before: Ints, cells: Ints, ranks: Ints, ends: Ints) -> Buckets:
        order = np.lexsort((ranks, cells))
        cells, ranks, ends = cells[order], ranks[order], ends[order]
        held, at = np.unique(cells, return_index=True)
        sizes = np.diff(ranks, prepend=0)
        sizes[at] = ranks[at] - before[held]
        return Buckets(held, np.append(at, len(ends)), ends, sizes, before[held])

    def _reach(self, last_rank: int) -> None:
        """Makes room for every level up to this rank."""
        more = last_rank.bit_length() - len(self._ends)
        if more > 0:
            free = np.full((more, *self._ends.shape[1:]), NEVER)
            self._ends = np.concatenate([self._ends, free])
