"""The loop that updates sub-cells, compiled by numba; sub_cells.py of the counters has the model."""

import numpy as np
from numpy.typing import NDArray

from tidemark.sketches.compiled.jit import compiled

Ints = NDArray[np.int64]


@compiled
def add_to_sub_cells(
    old: tuple[Ints, Ints, Ints, Ints],
    times: Ints,
    counts: Ints,
    starts: Ints,
    limits: tuple[int, float, float],
) -> tuple[Ints, Ints, Ints, Ints]:
    """(counts, begins, ends, sizes): the sub-cells of each cell of a row after these arrivals.

    old: the begins, ends, sizes and starts of the sub-cells before; those of cell c are at starts[c] to
        starts[c + 1] - 1.
    times, counts, starts: arrivals as `group_by_cell` returns them.
    limits: W, the arrivals from which a sub-cell may be merged, and the factor of the rates.

    O(1) an arrival and an old sub-cell.
    """
    old_begins, old_ends, old_sizes, old_starts = old
    window, least, mu = limits
    cells = len(starts) - 1
    most = len(old_begins) + len(times)
    begins, ends, sizes = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.int64)
    kept = np.zeros(cells, np.int64)
    first = 0  # where the sub-cells of this cell go
    for c in range(cells):
        tail = first
        for i in range(old_starts[c], old_starts[c + 1]):
            begins[tail], ends[tail], sizes[tail] = old_begins[i], old_ends[i], old_sizes[i]
            tail += 1
        head = first
        for i in range(starts[c], starts[c + 1]):
            time, count = times[i], counts[i] if len(counts) else 1
            horizon = time - window
            while head < tail and ends[head] <= horizon:
                head += 1
            last, before = tail - 1, tail - 2
            if tail > head and begins[last] > horizon:
                if sizes[last] < least:
                    sizes[last] += count
                    ends[last] = time
                    continue
                if before >= head and begins[before] > horizon:
                    # Rates are compared as products; an interval within one time counts as one time.
                    rate_before = sizes[before] * float(ends[last] - begins[last] + 1)
                    rate_last = sizes[last] * float(max(1, begins[last] - begins[before]))
                    if rate_before <= mu * rate_last and rate_last <= mu * rate_before:
                        sizes[before] += sizes[last]
                        ends[before] = ends[last]
                        tail = last
            begins[tail], ends[tail], sizes[tail] = time, time, count
            tail += 1
        kept[c] = tail - head
        for i in range(kept[c]):
            begins[first + i], ends[first + i], sizes[first + i] = (
                begins[head + i],
                ends[head + i],
                sizes[head + i],
            )
        first += kept[c]
    return kept, begins[:first], ends[:first], sizes[:first]
