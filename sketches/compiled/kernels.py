"""Loops compiled by numba: row hashes, and updates of exponential histograms and deterministic waves.

The layout of the arrays is documented in the modules that own them: row_hashes.py, exponential_histogram.py,
deterministic_wave.py. Tests compare each loop with a plain Python implementation. The loops do not check
array bounds; their callers do.
"""

import numpy as np
from numpy.typing import NDArray

from tidemark.sketches.compiled.jit import compiled

Ints = NDArray[np.int64]


@compiled
def hash_rows(digests: NDArray[np.uint64], factors: NDArray[np.uint64], width: int, result: Ints) -> None:
    """Fills `result`, shape (rows, n), with the cells of the digests, as RowHashes.cells_of. O(rows * n)."""
    half, low_half, columns = np.uint64(32), np.uint64(0xFFFFFFFF), np.uint64(width)
    for row in range(len(factors)):
        a, b, c = factors[row, 0], factors[row, 1], factors[row, 2]
        first = row * width
        for i in range(len(digests)):
            x = digests[i]
            v = (a * (x & low_half) + b * (x >> half) + c) >> half
            result[row, i] = first + np.int64((v * columns) >> half)


@compiled
def group_by_cell(cells: Ints, first: int, width: int, times: Ints, counts: Ints) -> tuple[Ints, Ints, Ints]:
    """(times, counts, starts): the arrivals grouped by cell, in unchanged order inside each cell.

    cells: shape (n,), from `first` to first + width - 1. times: shape (n,).
    counts: shape (n,), or empty if each count is 1; the result is then empty too.

    starts has width + 1 offsets: the arrivals of cell first + c are at starts[c] to starts[c + 1] - 1.
    O(n + width): a counting sort.

    Example: cells [1, 0, 1], first 0, width 2, times [5, 6, 7] gives times [6, 5, 7] and starts [0, 1, 3].
    """
    starts = np.zeros(width + 1, np.int64)
    for i in range(len(cells)):
        starts[cells[i] - first + 1] += 1
    for c in range(width):
        starts[c + 1] += starts[c]
    next_free = starts[:-1].copy()
    sorted_times = np.empty(len(times), np.int64)
    sorted_counts = np.empty(len(counts), np.int64)
    for i in range(len(cells)):
        c = cells[i] - first
        position = next_free[c]
        next_free[c] = position + 1
        sorted_times[position] = times[i]
        if len(counts):
            sorted_counts[position] = counts[i]
    return sorted_times, sorted_counts, starts


@compiled
def times_of_ranks(times: Ints, counts: Ints, starts: Ints, ranks: Ints, first: Ints) -> Ints:
    """The time of the arrival of each rank, where ranks count the arrivals of a cell from 1.

    times, counts, starts: arrivals as `group_by_cell` returns them, with counts.
    ranks, first: the ranks of cell c are at first[c] to first[c + 1] - 1, ascending.

    O(arrivals + ranks).
    """
    result = np.empty(len(ranks), np.int64)
    for c in range(len(starts) - 1):
        i, reached = starts[c], counts[starts[c]]
        for k in range(first[c], first[c + 1]):
            while reached < ranks[k]:
                i += 1
                reached += counts[i]
            result[k] = times[i]
    return result


@compiled
def push_buckets(
    ring: Ints,
    head: int,
    bucket_count: int,
    most: int,
    times: Ints,
    counts: Ints,
    start: int,
    end: int,
    new: int,
) -> tuple[int, int, int, int, int]:
    """Appends `new` buckets to the ring of one cell and level, and moves the overflow to the next level.

    ring, head, bucket_count: the slots of the ring, the slot of its oldest bucket and its number of buckets.
    most: the number of buckets that the level may keep, len(ring) - 1.
    times, counts: sequences of equal ends, run-length encoded at start to end - 1: counts[i] buckets end at
        times[i]. The overflow is written to the same arrays and may begin before start.

    Returns head and bucket_count of the ring, then start, end and new of the buckets for the next level.

    Example: most = 2, a ring with buckets that end at 1 and 2, and one new bucket that ends at 3. Three are
    one too many: 1 and 2 become one bucket that ends at 2 for the next level, and 3 stays.
    """
    slots = len(ring)
    total = bucket_count + new
    paired = 0 if total <= most else (total - most + 1) // 2 * 2

    # Number the buckets from 0, old ones first. A pair keeps the later of its two ends: the odd positions.
    old = min(bucket_count, paired)
    first = start - old // 2
    for i in range(old // 2):
        slot = head + 2 * i + 1
        times[first + i], counts[first + i] = ring[slot if slot < slots else slot - slots], 1

    # Of the positions p to q - 1, floor(q / 2) - floor(p / 2) are odd. Buckets that are not paired stay.
    position, out = bucket_count, start
    head = head + old if head + old < slots else head + old - slots
    bucket_count -= old
    for i in range(start, end):
        time, after = times[i], position + counts[i]
        pairs = min(after, paired) // 2 - min(position, paired) // 2
        if pairs > 0:
            times[out], counts[out] = time, pairs
            out += 1
        for _ in range(after - max(position, paired)):
            slot = head + bucket_count
            ring[slot if slot < slots else slot - slots] = time
            bucket_count += 1
        position = after
    return head, bucket_count, first, out, paired // 2


@compiled
def add_to_histograms(
    ends: Ints, rings: Ints, first: int, most: tuple[int, int], times: Ints, counts: Ints, starts: Ints
) -> None:
    """Adds the arrivals of each cell to the exponential histograms of the cells from `first` on.

    ends, rings: see ExponentialHistograms, with enough levels for all arrivals.
    most: the number of buckets that level 0 and every other level may keep.
    times, counts, starts: arrivals as `group_by_cell` returns them.

    Amortised O(1) an arrival; a count of any size costs O(levels * most).
    """
    levels, cells = rings.shape[0], rings.shape[1]
    slots, later_slots = most[0] + 1, most[1] + 1
    # The overflow of every level is written before the arrivals: at most half a ring for each level.
    reserve = levels * slots
    longest = 0
    for c in range(len(starts) - 1):
        longest = max(longest, starts[c + 1] - starts[c])
    run_times = np.empty(reserve + longest, np.int64)
    run_counts = np.empty(reserve + longest, np.int64)
    for c in range(len(starts) - 1):
        new, start, end = 0, reserve, reserve
        for i in range(starts[c], starts[c + 1]):
            count = counts[i] if len(counts) else 1
            run_times[end], run_counts[end] = times[i], count
            new += count
            end += 1
        cell, level = first + c, 0
        while new > 0:
            if level == 0:
                size, base = slots, cell * slots
            else:
                size, base = later_slots, cells * slots + ((level - 1) * cells + cell) * later_slots
            head, bucket_count, start, end, new = push_buckets(
                ends[base : base + size],
                rings[level, cell, 0],
                rings[level, cell, 1],
                size - 1,
                run_times,
                run_counts,
                start,
                end,
                new,
            )
            rings[level, cell, 0], rings[level, cell, 1] = head, bucket_count
            level += 1


@compiled
def add_to_waves(
    ends: Ints, totals: Ints, first: int, slots: int, times: Ints, counts: Ints, starts: Ints
) -> None:
    """Adds the arrivals of each cell to the deterministic waves of the cells from `first` on.

    ends: shape (levels, cells, slots), with enough levels for all arrivals.
    totals: the last rank of each cell.
    times, counts, starts: arrivals as `group_by_cell` returns them.

    O(1) an arrival. Of an arrival with a count, only the last `slots` ranks of each level are written,
    because they would overwrite the ones before them: O(levels * slots).
    """
    levels = ends.shape[0]
    for c in range(len(starts) - 1):
        cell = first + c
        rank = totals[cell]
        for i in range(starts[c], starts[c + 1]):
            count = counts[i] if len(counts) else 1
            if count == 1:
                rank += 1
                level, odd = 0, rank
                while odd & 1 == 0:
                    level, odd = level + 1, odd >> 1
                ends[level, cell, (odd >> 1) % slots] = times[i]
                continue
            for level in range(levels):
                # The ranks (2 k + 1) * 2**level up to r are those of k = 0 to ((r >> level) + 1 >> 1) - 1.
                before = ((rank >> level) + 1) >> 1
                after = (((rank + count) >> level) + 1) >> 1
                for k in range(max(before, after - slots), after):
                    ends[level, cell, k % slots] = times[i]
            rank += count
        totals[cell] = rank
