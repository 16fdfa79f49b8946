"""The loops that update randomised waves, compiled by numba; randomized_wave.py has the model."""

import numpy as np
from numpy.typing import NDArray

from tidemark.sketches.compiled.jit import compiled

Ints = NDArray[np.int64]
Levels = NDArray[np.uint8]


@compiled
def mixed(x: np.uint64) -> np.uint64:
    """`splitmix` of row_hashes.py, of one number."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@compiled
def level_of(draw: np.uint64, cell_hash: np.uint64) -> int:
    """The number of trailing zero bits of a hash: at least l with probability 2**-l; 64 of the hash 0."""
    left, level = mixed(draw ^ cell_hash), 0
    if left == np.uint64(0):
        return 64
    while left & np.uint64(1) == np.uint64(0):
        left >>= np.uint64(1)
        level += 1
    return level


@compiled
def add_to_samples(
    old: tuple[Ints, Ints, Levels], times: Ints, draws: Ints, starts: Ints, salt: np.uint64, most: int
) -> tuple[Ints, Ints, Levels]:
    """(cells, times, levels): a wave after these arrivals, without those that `most` later ones replace.

    old: the cells, times and levels of the wave before, sorted by cell, then in order of arrival.
    times, draws, starts: arrivals as `group_by_cell` returns them, with random 64-bit numbers as counts.
    salt: chooses the levels of this wave.

    An arrival is replaced by `most` later ones of its cell that have its level or more, so each cell is read
    from its newest arrival backwards. O(1) expected for each arrival, old or new, plus O(cells).
    """
    old_cells, old_times, old_levels = old
    free = len(old_cells) + len(times)  # arrivals kept are written from the end backwards
    cells, kept_times = np.empty(free, np.int64), np.empty(free, np.int64)
    levels, later = np.empty(free, np.uint8), np.zeros(65, np.int64)
    i = len(old_cells) - 1
    for cell in range(len(starts) - 2, -1, -1):
        later[:] = 0
        cell_hash = mixed(np.uint64(cell) + salt)
        j = starts[cell + 1] - 1
        while j >= starts[cell] or (i >= 0 and old_cells[i] == cell):
            if j >= starts[cell]:
                time, level = times[j], level_of(np.uint64(draws[j]), cell_hash)
                j -= 1
            else:
                time, level = old_times[i], int(old_levels[i])
                i -= 1
            if later[level] < most:
                free -= 1
                cells[free], kept_times[free], levels[free] = cell, time, level
                for lower in range(level + 1):
                    later[lower] += 1
    return cells[free:].copy(), kept_times[free:].copy(), levels[free:].copy()
