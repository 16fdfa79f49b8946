"""Deterministic waves: counters that keep the times of selected arrivals, with one write for each arrival.

Model. The arrivals of a cell are numbered 1, 2, 3 ...: their ranks. A rank 2**l * odd belongs to level l,
and each level keeps the times of its last c = ceil((1 / eps + 1) / 2) ranks. Rank 0 stands for the beginning
of the stream.

Each kept rank is the end of a bucket, so queries treat a wave as buckets: the bucket that ends at rank r
holds r minus the largest kept rank below r.

Example. eps = 0.5 gives c = 2. After 10 arrivals, level 0 keeps ranks 7, 9; level 1 keeps 6, 10; level 2
keeps 4; level 3 keeps 8. The buckets end at ranks 4, 6, 7, 8, 9, 10 and have sizes 4, 2, 1, 1, 1, 1.

Proof of invariant 2 of buckets.py. Let x = later + 1, with the bucket's last arrival the oldest one
counted; n is the last rank. Level l keeps all its ranks above n - c * 2**(l + 1), because its ranks are
2**(l + 1) apart, and so do the levels above it. Take the least l with c * 2**(l + 1) >= x + 2**l: every
multiple of 2**l from n - x + 1 down by 2**l is kept, so the bucket holds at most 2**l. If l is 0 it holds
one. If not, the level below was too small, c * 2**l < x + 2**(l - 1), hence 2**l < x / (c - 1/2) and

    size / 2 <= 2**l / 2 < x / (2 c - 1) <= eps * x = eps * (1 + later).

Cost: O(1) an arrival; an arrival with a count of any size costs O(c) for each level. Memory: 8 * c bytes a
cell and level, with log2(arrivals) levels.

Source: Gibbons and Tirthapura, SPAA 2002, as in Papapetrou et al., section 4.2. We deviate: levels are
added as ranks grow, so the number of arrivals need not be bounded in advance.
"""

import math

import numpy as np

from tidemark.sketches.counters.buckets import Buckets, Ints
from tidemark.sketches.errors import BrokenInvariant
from tidemark.sketches.memory_limit import zeroed

EMPTY_SLOT = -(2**63)  # marks a slot without a time; no arrival has this time


def slots_per_level(eps: float) -> int:
    """The number of ranks that each level keeps: c in the module docstring."""
    return math.ceil((1 / eps + 1) / 2)


def kept_sizes(totals: Ints, eps: float) -> tuple[Ints, Ints]:
    """How many buckets each wave has after totals[cell] arrivals, and the sizes of these buckets.

    Sorted by cell, the oldest bucket first. The sizes of a cell add up to its arrivals.
    """
    cells, ranks = _last_ranks(totals, slots_per_level(eps))
    sizes = np.where(np.diff(cells, prepend=-1) != 0, ranks, np.diff(ranks, prepend=0))
    return np.bincount(cells, minlength=len(totals)), sizes


def check_ranks(kept: Buckets, eps: float) -> None:
    """Raises BrokenInvariant if a level of a wave of `eps` has ranks other than its last ones. O(b)."""
    if not len(kept):
        return
    last = kept.expired + np.add.reduceat(kept.sizes, kept.starts[:-1])
    ranks = np.repeat(last, np.diff(kept.starts)) - kept.later()
    level = _level(ranks)
    later_in_level = ((np.repeat(last, np.diff(kept.starts)) >> level) + 1 >> 1) - 1 - (ranks >> level >> 1)
    if np.any(later_in_level >= slots_per_level(eps)):
        raise BrokenInvariant(
            f"got a level with older ranks than its last {slots_per_level(eps)}; expected only those"
        )


class DeterministicWaves:
    """The waves of `cells` cells, in arrays that updates write in place.

    ends: shape (levels, cells, slots). The k-th rank of a level, 2**level * (2 k + 1), has slot k mod slots.
        Its time is stored with the highest bit inverted, so that EMPTY_SLOT is stored as 0: the operating
        system allocates zeroed memory only when it is written.
    totals: the last rank of each cell.
    expired: the number of arrivals of each cell that expired before its oldest bucket.
    """

    def __init__(self, kept: Buckets, eps: float, cells: int) -> None:
        """Starts from `kept`, the state of waves of the same eps."""
        self._slots = slots_per_level(eps)
        self._ends = np.empty((0, cells, self._slots), np.int64)
        self._totals, self._expired = np.zeros(cells, np.int64), np.zeros(cells, np.int64)
        if not len(kept):
            return
        self._expired[kept.cells] = kept.expired
        cell = np.repeat(kept.cells, np.diff(kept.starts))
        ranks = np.repeat(kept.expired + kept.totals(cells)[kept.cells], np.diff(kept.starts)) - kept.later()
        self._totals[kept.cells] = ranks[kept.starts[1:] - 1]
        self._grow_to(int(self._totals.max()))
        self._ends[self._slot_of(cell, ranks)] = kept.ends ^ EMPTY_SLOT

    def add(self, cells: Ints, times: Ints, counts: Ints) -> None:
        """Adds arrivals in order of time; see CounterArrays.add. O(1) an arrival and row."""
        from tidemark.sketches.compiled.kernels import add_to_waves, group_by_cell

        self._grow_to(int(self._totals.max()) + (int(counts.sum()) if len(counts) else len(times)))
        width, stored_times = len(self._totals) // len(cells), times ^ EMPTY_SLOT
        for row, row_cells in enumerate(cells):
            arrivals = group_by_cell(row_cells, row * width, width, stored_times, counts)
            add_to_waves(self._ends, self._totals, row * width, self._slots, *arrivals)

    def state(self) -> Buckets:
        """The buckets of every cell."""
        cells, ranks = _last_ranks(self._totals, self._slots)
        ends = self._ends[self._slot_of(cells, ranks)] ^ EMPTY_SLOT
        filled = ends != EMPTY_SLOT
        cells, ranks, ends = cells[filled], ranks[filled], ends[filled]
        occupied, starts = np.unique(cells, return_index=True)
        sizes = np.diff(ranks, prepend=0)
        sizes[starts] = ranks[starts] - self._expired[occupied]
        return Buckets(occupied, np.append(starts, len(ends)), ends, sizes, self._expired[occupied])

    def _slot_of(self, cells: Ints, ranks: Ints) -> tuple[Ints, Ints, Ints]:
        """The indices into `ends` of the times of these ranks."""
        level = _level(ranks)
        return level, cells, (ranks >> level >> 1) % self._slots

    def _grow_to(self, last_rank: int) -> None:
        """Allocates every level that ranks up to `last_rank` need."""
        levels, cells, _ = self._ends.shape
        if last_rank.bit_length() <= levels:
            return
        ends = zeroed((last_rank.bit_length(), cells, self._slots))
        occupied = np.flatnonzero(self._totals)  # empty cells are not copied: their memory stays unallocated
        ends[:levels, occupied] = self._ends[:, occupied]
        self._ends = ends


def _level(ranks: Ints) -> Ints:
    """The level of each rank: the exponent of the largest power of two that divides it."""
    # A power of two is exact as a double, so log2 is exact too.
    level: Ints = np.log2(ranks & -ranks).astype(np.int64)
    return level


def _last_ranks(totals: Ints, slots: int) -> tuple[Ints, Ints]:
    """(cells, ranks): of the ranks 1 to totals[cell], the last `slots` of each level, by cell, then rank."""
    cells = np.flatnonzero(totals)
    levels = np.arange(int(totals.max(initial=0)).bit_length())[:, None]
    ranks_in_level = (totals[cells] >> levels) + 1 >> 1
    kept_in_level = np.minimum(ranks_in_level, slots)
    owners, numbers = _expand_ranges((ranks_in_level - kept_in_level).ravel(), kept_in_level.ravel())
    level, cell_index = np.divmod(owners, max(1, len(cells)))
    ranks = (2 * numbers + 1) << level
    order = np.lexsort((ranks, cell_index))
    return cells[cell_index[order]], ranks[order]


def _expand_ranges(first: Ints, lengths: Ints) -> tuple[Ints, Ints]:
    """(owners, numbers): for each i the numbers first[i] to first[i] + lengths[i] - 1, and i as their owner.

    Example: first [5, 1], lengths [2, 3] gives owners [0, 0, 1, 1, 1] and numbers [5, 6, 1, 2, 3].
    """
    owners = np.repeat(np.arange(len(first)), lengths)
    begins = np.cumsum(lengths) - lengths
    return owners, np.arange(len(owners)) - begins[owners] + first[owners]
