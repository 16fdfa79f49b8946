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

from tidemark.sketches.counters.buckets import Buckets, Ints
from tidemark.sketches.counters.whole_streams import expand_ranges
from tidemark.sketches.errors import BrokenInvariant
from tidemark.sketches.memory_limit import zeroed

EMPTY_SLOT = -(2**63)  # the time of a place that holds none; no arrival has it


def places(eps: float) -> int:
    """How many ranks each level keeps."""
    return math.ceil((1 / eps + 1) / 2)


def kept_ranks(totals: Ints, eps: float) -> tuple[Ints, Ints]:
    """Which arrivals of each cell are kept once totals[cell] have come: cells, and ranks from 1."""
    return _last_ranks(totals, places(eps))


def check_ranks(kept: Buckets, eps: float) -> None:
    """Raises BrokenInvariant unless waves of `eps` can hold these: of a level none but its last ranks."""
    if not len(kept):
        return
    last = kept.before + np.add.reduceat(kept.sizes, kept.starts[:-1])
    ranks = np.repeat(last, np.diff(kept.starts)) - kept.later()
    level = _level(ranks)
    behind = ((np.repeat(last, np.diff(kept.starts)) >> level) + 1 >> 1) - 1 - (ranks >> level >> 1)
    if np.any(behind >= places(eps)):
        raise BrokenInvariant(f"a level must keep its last {places(eps)} ranks alone, and does not")


class DeterministicWaves:
    """The waves of `cells` cells, in arrays that updates write.

    ends: shape (levels, cells, places); the k-th rank of a level, 2**level * (2 k + 1), has the place
    k mod places, where its time is kept with the highest bit turned: EMPTY_SLOT is then 0, and zeroed memory is
    not touched before it is written. totals: the last rank of each cell. before: the rank that the oldest
    bucket begins behind.
    """

    __slots__ = ("_before", "_ends", "_places", "_totals")

    def __init__(self, kept: Buckets, eps: float, cells: int) -> None:
        """Takes up `kept`, which waves of this eps have left."""
        self._places = places(eps)
        self._ends = np.empty((0, cells, self._places), np.int64)
        self._totals, self._before = np.zeros(cells, np.int64), np.zeros(cells, np.int64)
        if not len(kept):
            return
        self._before[kept.cells] = kept.before
        cell = np.repeat(kept.cells, np.diff(kept.starts))
        ranks = np.repeat(kept.before + kept.totals(cells)[kept.cells], np.diff(kept.starts)) - kept.later()
        self._totals[kept.cells] = ranks[kept.starts[1:] - 1]
        self._reach(int(self._totals.max()))
        self._ends[self._place(cell, ranks)] = kept.ends ^ EMPTY_SLOT

    def add(self, cells: Ints, times: Ints, counts: Ints) -> None:
        """Adds arrivals in order of time: each to one cell of every row of `cells`; no counts: each one."""
        from tidemark.sketches.compiled.kernels import add_to_waves, group_by_cell

        self._reach(int(self._totals.max()) + (int(counts.sum()) if len(counts) else len(times)))
        width, turned = len(self._totals) // len(cells), times ^ EMPTY_SLOT
        for row, own in enumerate(cells):
            arrivals = group_by_cell(own, row * width, width, turned, counts)
            add_to_waves(self._ends, self._totals, row * width, self._places, *arrivals)

    def kept(self) -> Buckets:
        """The buckets of every cell."""
        cells, ranks = _last_ranks(self._totals, self._places)
        ends = self._ends[self._place(cells, ranks)] ^ EMPTY_SLOT
        some = ends != EMPTY_SLOT
        cells, ranks, ends = cells[some], ranks[some], ends[some]
        held, at = np.unique(cells, return_index=True)
        sizes = np.diff(ranks, prepend=0)
        sizes[at] = ranks[at] - self._before[held]
        return Buckets(held, np.append(at, len(ends)), ends, sizes, self._before[held])

    def _place(self, cells: Ints, ranks: Ints) -> tuple[Ints, Ints, Ints]:
        """Where `ends` keeps the times of these ranks."""
        level = _level(ranks)
        return level, cells, (ranks >> level >> 1) % self._places

    def _reach(self, last_rank: int) -> None:
        """Makes room for every level up to this rank."""
        held, cells, _ = self._ends.shape
        if last_rank.bit_length() <= held:
            return
        ends = zeroed((last_rank.bit_length(), cells, self._places))
        some = np.flatnonzero(self._totals)  # the others were never touched and stay so
        ends[:held, some] = self._ends[:, some]
        self._ends = ends


def _level(ranks: Ints) -> Ints:
    """The power of two in each rank; as a double it is exact."""
    level: Ints = np.log2(ranks & -ranks).astype(np.int64)
    return level


def _last_ranks(totals: Ints, most: int) -> tuple[Ints, Ints]:
    """The last `most` ranks of each level, of those up to totals[cell]: cells and ranks, in this order."""
    cells = np.flatnonzero(totals)
    levels = np.arange(int(totals.max(initial=0)).bit_length())[:, None]
    count = (totals[cells] >> levels) + 1 >> 1
    held = np.minimum(count, most)
    owner, number = expand_ranges((count - held).ravel(), held.ravel())
    level, at = np.divmod(owner, max(1, len(cells)))
    ranks = (2 * number + 1) << level
    order = np.lexsort((ranks, at))
    return cells[at[order]], ranks[order]
