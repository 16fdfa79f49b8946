"""Exponential histograms: counters whose buckets hold 1, 2, 4 ... arrivals, in arrays updated in place.

Model. A bucket of level l holds 2**l arrivals. Level 0 keeps at most ceil(1 / eps) buckets, every other level
at most ceil(1 / (2 eps)) + 1. When one more is added, the two oldest buckets of the level are merged into one
of the next level, which ends at the later of their two ends.

Example. eps = 0.5: level 0 keeps at most 2 buckets, other levels too. Arrivals at times 1 to 7 leave buckets
of 2, 2, 2, 1 arrivals at first; the third bucket of level 1 makes its two oldest merge: 4, 2, 1, which end at
4, 6, 7.

Proof of invariant 2 of buckets.py. A pair leaves a level only when the level is over its limit, so a level
below the highest keeps at least q0 = ceil(1 / eps) - 1 (level 0) or q = ceil(1 / (2 eps)) buckets. After a
bucket of 2**l arrivals, l >= 1, there are at least q0 + q * (2 + ... + 2**(l - 1)) = q0 + q * (2**l - 2), so

    eps * (1 + later) >= eps * (1 + q0) + eps * q * (2**l - 2) >= 1 + (2**l - 2) / 2 = 2**l / 2.

Expiry removes only the oldest buckets, and `later` does not include those.

A batch is added level by level: of all buckets that a level receives, in order, all but the last few leave
in pairs. What a level keeps and passes on depends on that sequence alone, so a batch, a run of equal times
and single arrivals leave the same buckets.

Cost: amortised O(1) an arrival, and O(levels / eps) at most for an arrival with a count of any size. Memory:
about 8 / eps bytes a cell for level 0 and half of that for each further level, with log2(eps * arrivals)
levels.

Source: Papapetrou et al., section 3; Datar et al. Adding whole batches is ours.
"""

import math
from itertools import chain, repeat

import numpy as np

from tidemark.sketches.counters.buckets import Buckets, Ints
from tidemark.sketches.errors import BrokenInvariant
from tidemark.sketches.memory_limit import zeroed


def most_buckets(eps: float) -> tuple[int, int]:
    """The largest number of buckets of level 0, and of every other level."""
    return math.ceil(1 / eps), math.ceil(1 / (2 * eps)) + 1


def kept_sizes(totals: Ints, eps: float) -> tuple[Ints, Ints]:
    """(bucket_counts, sizes) of the histograms after totals[cell] arrivals; see whole_streams.py.

    The oldest buckets of a level leave in pairs, the fewest pairs that bring the level within its limit.
    """
    received, remaining = totals, []
    for most in chain(most_buckets(eps)[:1], repeat(most_buckets(eps)[1])):
        if not received.any():
            break
        pairs = np.where(received > most, (received - most + 1) // 2, 0)
        remaining.append(received - 2 * pairs)
        received = pairs
    # By cell, the highest level first: it has the oldest buckets.
    by_level = np.stack(remaining[::-1], axis=1)
    sizes = np.left_shift(1, np.arange(len(remaining))[::-1])
    return by_level.sum(axis=1), np.repeat(np.tile(sizes, len(totals)), by_level.ravel())


class ExponentialHistograms:
    """The histograms of `cells` cells: a ring buffer of bucket ends for each cell and level.

    ends: the rings of level 0 of all cells, then those of level 1, and so on. A ring has one slot more than
        the level may keep buckets, so rings of level 0 differ in size from the others.
    rings: shape (levels, cells, 2), the slot of the oldest bucket and the number of buckets of each ring.
    """

    def __init__(self, kept: Buckets, eps: float, cells: int) -> None:
        """Starts from `kept`, the state of histograms of the same eps."""
        self._most = most_buckets(eps)
        self._rings = np.zeros((0, cells, 2), np.int64)
        self._ends = np.empty(0, np.int64)
        level = np.log2(kept.sizes).astype(np.int64)  # sizes are powers of two
        self._grow_to(int(level.max(initial=0)) + 1)
        if not len(kept):
            return
        cell = np.repeat(kept.cells, np.diff(kept.starts))
        # Buckets of one cell and level are adjacent, so a bucket's slot is its distance from the first one.
        begins = np.flatnonzero(np.diff(cell, prepend=-1) | np.diff(level, prepend=-1))
        bucket_counts = np.diff(begins, append=len(kept))
        slot = np.arange(len(kept)) - np.repeat(begins, bucket_counts)
        self._rings[level[begins], cell[begins], 1] = bucket_counts
        self._ends[self._ring_start(level, cell) + slot] = kept.ends

    def add(self, cells: Ints, times: Ints, counts: Ints) -> None:
        """Adds arrivals in order of time; see CounterArrays.add. Amortised O(1) an arrival and row."""
        from tidemark.sketches.compiled.kernels import add_to_histograms, group_by_cell

        totals = np.left_shift(self._rings[:, :, 1], np.arange(len(self._rings))[:, None]).sum(axis=0)
        most_arrivals = int(totals.max()) + (int(counts.sum()) if len(counts) else len(times))
        # To reach level t, level t - 1 must overflow: that takes more than (q + 1) * 2**(t - 1) arrivals.
        self._grow_to(((most_arrivals + 2) // self._most[1]).bit_length() + 1)
        width = self._rings.shape[1] // len(cells)
        for row, row_cells in enumerate(cells):
            arrivals = group_by_cell(row_cells, row * width, width, times, counts)
            add_to_histograms(self._ends, self._rings, row * width, self._most, *arrivals)

    def state(self) -> Buckets:
        """The buckets of every cell."""
        # By cell, the highest level, which has the oldest buckets, first.
        heads, bucket_counts = self._rings[:, :, 0].T[:, ::-1], self._rings[:, :, 1].T[:, ::-1]
        cell, column = np.nonzero(bucket_counts)
        count = bucket_counts[cell, column]
        level = len(self._rings) - 1 - column
        slots = np.where(level == 0, self._most[0] + 1, self._most[1] + 1)
        first = np.cumsum(count) - count
        position = np.arange(int(count.sum())) - np.repeat(first, count)
        slot = (np.repeat(heads[cell, column], count) + position) % np.repeat(slots, count)
        ends = self._ends[np.repeat(self._ring_start(level, cell), count) + slot]
        sizes = np.repeat(np.left_shift(1, level), count)
        cells, ring_indices = np.unique(cell, return_index=True)
        starts = np.append(first[ring_indices], len(ends))
        return Buckets(cells, starts, ends, sizes, np.zeros(len(cells), np.int64))

    def _ring_start(self, level: Ints, cell: Ints) -> Ints:
        """The index in `ends` of the first slot of the ring of each level and cell."""
        cells, (slots, later_slots) = self._rings.shape[1], (self._most[0] + 1, self._most[1] + 1)
        later_start = cells * slots + ((level - 1) * cells + cell) * later_slots
        return np.where(level == 0, cell * slots, later_start)

    def _grow_to(self, levels: int) -> None:
        """Allocates the rings of `levels` levels."""
        old_levels, cells, _ = self._rings.shape
        if levels <= old_levels:
            return
        rings = np.zeros((levels, cells, 2), np.int64)
        rings[:old_levels] = self._rings
        slots, later_slots = self._most[0] + 1, self._most[1] + 1
        ends = zeroed((cells * (slots + (levels - 1) * later_slots),))
        start = 0
        for level in range(old_levels):
            size = later_slots if level else slots
            old, new = (
                array[start : start + cells * size].reshape(cells, size) for array in (self._ends, ends)
            )
            occupied = np.flatnonzero(rings[level, :, 1])  # empty rings are not copied: they are never read
            new[occupied] = old[occupied]
            start += cells * size
        self._rings, self._ends = rings, ends


def check_levels(kept: Buckets, eps: float) -> None:
    """Raises BrokenInvariant unless sizes are powers of two that do not grow, each within its limit. O(b)."""
    most = most_buckets(eps)
    is_power = kept.sizes & (kept.sizes - 1) == 0
    inner = np.ones(len(kept), bool)
    inner[kept.starts[:-1]] = False
    rises = (np.diff(kept.sizes, prepend=0) > 0) & inner
    if not is_power.all() or rises.any():
        raise BrokenInvariant("got other bucket sizes; expected 1, 2, 4 ... arrivals, the largest first")
    level_begins = np.flatnonzero((np.diff(kept.sizes, prepend=0) != 0) | ~inner)
    bucket_counts = np.diff(level_begins, append=len(kept))
    if np.any(bucket_counts > np.where(kept.sizes[level_begins] == 1, *most)):
        raise BrokenInvariant(
            f"got a level with too many buckets; expected at most {most[0]} of size 1 and {most[1]} of others"
        )
