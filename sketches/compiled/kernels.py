"""The loops that numba compiles: hashing, and arrivals into exponential histograms and deterministic waves.

Their arrays and what they mean are told where they are kept: row_hashes.py, exponential_histogram.py,
deterministic_wave.py. Tests hold each loop equal to a plain reference.
"""

import numpy as np
from numpy.typing import NDArray

from tidemark.sketches.compiled.jit import compiled

Ints = NDArray[np.int64]


@compiled
def hash_rows(digests: NDArray[np.uint64], factors: NDArray[np.uint64], width: int, result: Ints) -> None:
    """Fills `result`, shape (rows, n), with the cells of the digests."""
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
    """The arrivals of the cells `first` to first + width - 1, cell by cell, in unchanged order inside each.

    Returns the times, the counts (empty stays empty: each is one) and width + 1 offsets.
    """
    starts = np.zeros(width + 1, np.int64)
    for i in range(len(cells)):
        starts[cells[i] - first + 1] += 1
    for c in range(width):
        starts[c + 1] += starts[c]
    free = starts[:-1].copy()
    sorted_times = np.empty(len(times), np.int64)
    sorted_counts = np.empty(len(counts), np.int64)
    for i in range(len(cells)):
        c = cells[i] - first
        at = free[c]
        free[c] = at + 1
        sorted_times[at] = times[i]
        if len(counts):
            sorted_counts[at] = counts[i]
    return sorted_times, sorted_counts, starts


@compiled
def times_of_ranks(times: Ints, counts: Ints, starts: Ints, ranks: Ints, first: Ints) -> Ints:
    """The times of the arrivals of these ranks, from 1, each in its cell.

    Arrivals are as `group_by_cell` sorted them; the ranks of cell c, ascending, are those from first[c] to
    first[c + 1].
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
    ring: Ints, head: int, held: int, most: int, times: Ints, counts: Ints, start: int, end: int, new: int
) -> tuple[int, int, int, int, int]:
    """Puts `new` buckets, the runs of equal times from start to end, behind those that one level holds.

    What overflows stands in the runs afterwards, for which there is room before start. Returns head, held,
    start, end and new: of the ring now, and of what goes to the next level.
    """
    slots = len(ring)
    total = held + new
    paired = 0 if total <= most else (total - most + 1) // 2 * 2

    # The old buckets stand before the new ones. A pair keeps the later of its two times: the odd positions.
    old = min(held, paired)
    first = start - old // 2
    for i in range(old // 2):
        at = head + 2 * i + 1
        times[first + i], counts[first + i] = ring[at if at < slots else at - slots], 1

    # Of a run at the positions p to q - 1, floor(q / 2) - floor(p / 2) are odd. What is not paired stays.
    position, out = held, start
    head = head + old if head + old < slots else head + old - slots
    held -= old
    for i in range(start, end):
        time, after = times[i], position + counts[i]
        pairs = min(after, paired) // 2 - min(position, paired) // 2
        if pairs > 0:
            times[out], counts[out] = time, pairs
            out += 1
        for _ in range(after - max(position, paired)):
            at = head + held
            ring[at if at < slots else at - slots] = time
            held += 1
        position = after
    return head, held, first, out, paired // 2


@compiled
def add_to_histograms(
    ends: Ints, rings: Ints, first: int, most: tuple[int, int], times: Ints, counts: Ints, starts: Ints
) -> None:
    """Adds the arrivals of each cell, as `group_by_cell` sorted them, to the cells from `first` on.

    `most` is how many buckets level 0 and the other levels may hold; rings has shape (levels, cells, 2).
    """
    levels, cells = rings.shape[0], rings.shape[1]
    slots, later_slots = most[0] + 1, most[1] + 1
    room = levels * slots
    longest = 0
    for c in range(len(starts) - 1):
        longest = max(longest, starts[c + 1] - starts[c])
    run_times = np.empty(room + longest, np.int64)
    run_counts = np.empty(room + longest, np.int64)
    for c in range(len(starts) - 1):
        new, start, end = 0, room, room
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
            head, held, start, end, new = push_buckets(
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
            rings[level, cell, 0], rings[level, cell, 1] = head, held
            level += 1


@compiled
def add_to_waves(
    ends: Ints, totals: Ints, first: int, slots: int, times: Ints, counts: Ints, starts: Ints
) -> None:
    """Adds the arrivals of each cell, as `group_by_cell` sorted them, to the waves from `first` on.

    ends has shape (levels, cells, slots). Of a run of equal times only the last `slots` ranks of each level
    are written: later ones would take the places of the others.
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
