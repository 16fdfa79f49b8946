"""Exponential histograms: buckets of 1, 2, 4 ... arrivals, in arrays that an update writes in place.

Model. A bucket of level l holds 2**l arrivals. Level 0 keeps at most ceil(1 / eps) of them, every other level
at most ceil(1 / (2 eps)) + 1. When one more comes, the two oldest of the level become one of the next,
which ends when the later of them did.

Proof of invariant 2 of buckets.py. A pair leaves a level only when it is over-full, so a level below the
highest keeps at least q0 = ceil(1 / eps) - 1 (level 0) or q = ceil(1 / (2 eps)) buckets. Behind a bucket of
2**l arrivals, l >= 1, are at least q0 + q * (2 + ... + 2**(l - 1)) = q0 + q * (2**l - 2), so

    eps * (1 + later) >= eps * (1 + q0) + eps * q * (2**l - 2) >= 1 + (2**l - 2) / 2 = 2**l / 2.

Expiry removes the oldest buckets only, and `later` does not hold those.

A batch is added level by level: of everything that a level is given, in order, all but the last few leave
in pairs. What a level holds and passes on depends on that sequence alone, so a batch, a run of equal times
and single arrivals leave the same buckets. Cost: O(1) an arrival, and O(levels) for a count of any size.

Source: Papapetrou et al., section 3; Datar et al. The batch is ours.
"""

import math
from itertools import chain, repeat

import numpy as np

from tidemark.sketches.counters.buckets import Buckets, Ints
from tidemark.sketches.counters.whole_streams import expand_ranges
from tidemark.sketches.errors import BrokenInvariant
from tidemark.sketches.memory_limit import zeroed


def most_buckets(eps: float) -> tuple[int, int]:
    """How many buckets level 0 and the other levels may hold."""
    return math.ceil(1 / eps), math.ceil(1 / (2 * eps)) + 1


def kept_ranks(totals: Ints, eps: float) -> tuple[Ints, Ints]:
    """Which arrivals of each cell end a bucket once totals[cell] have come: cells, and ranks from 1.

    Level l is given the arrivals of the ranks 2**l, 2 * 2**l, 3 * 2**l ...; of these the oldest leave in
    pairs, no more of them than makes it hold what it may.
    """
    given, firsts, held = totals, [], []
    for most in chain(most_buckets(eps)[:1], repeat(most_buckets(eps)[1])):
        if not given.any():
            break
        left = np.where(given > most, (given - most + 1) // 2 * 2, 0)
        firsts.append(left + 1)
        held.append(given - left)
        given = left // 2
    # By cell, the largest buckets first.
    owner, number = expand_ranges(
        np.stack(firsts[::-1], axis=1).ravel(), np.stack(held[::-1], axis=1).ravel()
    )
    return owner // len(held), number << (len(held) - 1 - owner % len(held))


class ExponentialHistograms:
    """The histograms of `cells` cells, in rings that updates write.

    ends: level 0 of all cells, then level 1 of all cells, and so on; each ring has one slot more than the
    level may hold, level 0 of its own size. rings: shape (levels, cells, 2), the slot of the oldest bucket
    and the number of buckets.
    """

    __slots__ = ("_ends", "_most", "_rings")

    def __init__(self, kept: Buckets, eps: float, cells: int) -> None:
        """Takes up `kept`, which histograms of this eps have left."""
        self._most = most_buckets(eps)
        self._rings = np.zeros((0, cells, 2), np.int64)
        self._ends = np.empty(0, np.int64)
        level = np.log2(kept.sizes).astype(np.int64)  # sizes are powers of two
        self._reach(int(level.max(initial=0)) + 1)
        if not len(kept):
            return
        cell = np.repeat(kept.cells, np.diff(kept.starts))
        # Buckets of one cell and level stand side by side, so their numbers count from where they begin.
        begins = np.flatnonzero(np.diff(cell, prepend=-1) | np.diff(level, prepend=-1))
        held = np.diff(begins, append=len(kept))
        slot = np.arange(len(kept)) - np.repeat(begins, held)
        self._rings[level[begins], cell[begins], 1] = held
        self._ends[self._slot(level, cell) + slot] = kept.ends

    def add(self, cells: Ints, times: Ints, counts: Ints) -> None:
        """Adds arrivals in order of time: each to one cell of every row of `cells`; no counts: each one."""
        from tidemark.sketches.compiled.kernels import add_to_histograms, group_by_cell

        held = np.left_shift(self._rings[:, :, 1], np.arange(len(self._rings))[:, None]).sum(axis=0)
        most = int(held.max()) + (int(counts.sum()) if len(counts) else len(times))
        # To reach level t, level t - 1 must overflow: that takes more than (q + 1) * 2**(t - 1) arrivals.
        self._reach(((most + 2) // self._most[1]).bit_length() + 1)
        width = self._rings.shape[1] // len(cells)
        for row, own in enumerate(cells):
            arrivals = group_by_cell(own, row * width, width, times, counts)
            add_to_histograms(self._ends, self._rings, row * width, self._most, *arrivals)

    def kept(self) -> Buckets:
        """The buckets of every cell."""
        heads, held = self._rings[:, :, 0].T[:, ::-1], self._rings[:, :, 1].T[:, ::-1]
        cell, level = np.nonzero(held)
        count = held[cell, level]
        level_of = len(self._rings) - 1 - level
        slots = np.where(level_of == 0, self._most[0] + 1, self._most[1] + 1)
        first = np.cumsum(count) - count
        within = np.arange(int(count.sum())) - np.repeat(first, count)
        slot = (np.repeat(heads[cell, level], count) + within) % np.repeat(slots, count)
        ends = self._ends[np.repeat(self._slot(level_of, cell), count) + slot]
        sizes = np.repeat(np.left_shift(1, level_of), count)
        cells, at = np.unique(cell, return_index=True)
        starts = np.append(first[at], len(ends))
        return Buckets(cells, starts, ends, sizes, np.zeros(len(cells), np.int64))

    def _slot(self, level: Ints, cell: Ints) -> Ints:
        """Where the ring of a cell and level begins."""
        cells, (slots, later_slots) = self._rings.shape[1], (self._most[0] + 1, self._most[1] + 1)
        later = cells * slots + ((level - 1) * cells + cell) * later_slots
        return np.where(level == 0, cell * slots, later)

    def _reach(self, levels: int) -> None:
        """Makes room for this many levels."""
        held, cells, _ = self._rings.shape
        if levels <= held:
            return
        rings = np.zeros((levels, cells, 2), np.int64)
        rings[:held] = self._rings
        slots, later_slots = self._most[0] + 1, self._most[1] + 1
        ends = zeroed((cells * (slots + (levels - 1) * later_slots),))
        at = 0
        for level in range(held):
            size = later_slots if level else slots
            old, new = (one[at : at + cells * size].reshape(cells, size) for one in (self._ends, ends))
            some = np.flatnonzero(rings[level, :, 1])  # other rings were never touched, or are read no more
            new[some] = old[some]
            at += cells * size
        self._rings, self._ends = rings, ends


def check_levels(kept: Buckets, eps: float) -> None:
    """Raises BrokenInvariant unless histograms of `eps` can hold these: powers of two, none too often."""
    most = most_buckets(eps)
    powers = kept.sizes & (kept.sizes - 1) == 0
    inner = np.ones(len(kept), bool)
    inner[kept.starts[:-1]] = False
    rises = (np.diff(kept.sizes, prepend=0) > 0) & inner
    if not powers.all() or rises.any():
        raise BrokenInvariant("buckets must be of 1, 2, 4 ... arrivals, the largest first, and are not")
    change = np.flatnonzero((np.diff(kept.sizes, prepend=0) != 0) | ~inner)
    often = np.diff(change, append=len(kept))
    if np.any(often > np.where(kept.sizes[change] == 1, *most)):
        raise BrokenInvariant(f"a level must hold at most {most} buckets and does not")
