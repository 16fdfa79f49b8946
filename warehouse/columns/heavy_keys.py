"""Heavy keys: lists of frequent keys per cell, from which the heavy hitters of any union of cells are found.

Model. A cell is a set of rows: the rows of a run in one tick, or all rows of a run. Each cell has a floor.
Its list holds exactly the keys that reach the floor, each with its exact count:

    key k is listed in cell c   <=>   count of k in c >= floor of c

So a key that is not listed has at most floor - 1 rows in a cell, and in a union of cells at most the sum of
these. While that sum is less than phi * n (n: the rows of the union), every key with at least phi * n rows of
the union is listed in some cell, so there is no false negative. This holds for every phi >= 1 / THETA while
the lists fit the budget. Otherwise floors are raised, and the reader of the lists sees it by the floors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidemark.warehouse.columns.keys import Key, Names, join_names, name_sizes, no_names, take_names

THETA = 1000  # a key with 1/THETA of a cell's rows is listed; so a cell lists at most THETA keys
ENTRIES = 2**15  # of one HeavyKeys at most
BYTES = 2**20  # of one HeavyKeys at most: it is part of the marks of a run
_ENTRY_BYTES = 16  # the count and the cell of an entry


@dataclass(frozen=True, slots=True, eq=False)
class HeavyKeys:
    """The lists of several cells: an entry for each cell and each of its keys that reach its floor.

    keys    (k,) the key of each entry
    cells   (k,) its cell, an index into `floors`
    counts  (k,) the exact number of its rows in the cell
    floors  (cells,)

    With the keys (a, b, a), cells (0, 0, 1), counts (7, 5, 9) and floors (5, 6), cell 0 has 7 rows of a and 5
    of b; cell 1 has 9 rows of a; any other key has at most 4 rows in cell 0 and 5 in cell 1.
    """

    keys: Names
    cells: NDArray[np.int64]
    counts: NDArray[np.int64]
    floors: NDArray[np.int64]


def no_heavy_keys(key: Key, rows: NDArray[np.int64]) -> HeavyKeys:
    """Empty lists for cells of `rows` (cells,) rows; a floor is 1/THETA of the rows, rounded up."""
    none = np.empty(0, dtype=np.int64)
    return HeavyKeys(no_names(key), none, none, np.maximum(1, -(-rows // THETA)))


def fit_to_budget(heavy: HeavyKeys, rows: NDArray[np.int64]) -> HeavyKeys:
    """The entries that reach the floors, with the floors raised until the entries fit the budget.

    `rows` (cells,) are the numbers of rows of the cells.
    """
    kept = np.flatnonzero(heavy.counts >= heavy.floors[heavy.cells])
    heavy = HeavyKeys(take_names(heavy.keys, kept), heavy.cells[kept], heavy.counts[kept], heavy.floors)
    share = heavy.counts / rows[heavy.cells]
    order = np.argsort(-share, kind="stable")
    total_bytes = np.cumsum(name_sizes(heavy.keys)[order] + _ENTRY_BYTES)
    fits = min(ENTRIES, int(np.searchsorted(total_bytes, BYTES, side="right")))
    if fits >= len(order):
        return heavy
    # The first entry that does not fit has `count` of its cell's `cell_rows`; each floor is raised above that
    # share of its own cell.
    count, cell_rows = int(heavy.counts[order[fits]]), int(rows[heavy.cells[order[fits]]])
    raised = np.array([count * int(n) // cell_rows + 1 for n in rows], dtype=np.int64)
    return fit_to_budget(
        HeavyKeys(heavy.keys, heavy.cells, heavy.counts, np.maximum(heavy.floors, raised)), rows
    )


def join_heavy_keys(parts: Sequence[HeavyKeys], rows: NDArray[np.int64]) -> HeavyKeys:
    """The lists of all parts, at least one; no two parts have the same key in the same cell."""
    floors = np.max([part.floors for part in parts], axis=0)
    cells, counts = (np.concatenate([getattr(part, name) for part in parts]) for name in ("cells", "counts"))
    return fit_to_budget(HeavyKeys(join_names([part.keys for part in parts]), cells, counts, floors), rows)
