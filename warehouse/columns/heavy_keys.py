"""Heavy keys: which keys fill much of a cell, so that heavy hitters of any union of cells are found.

Model. A cell is a set of rows: a run's rows of one tick, or all of a run. Of every cell the
listing has a floor, and lists the keys that reach it, each with its exact count:

    key k is listed in cell c   <=>   count of k in c >= floor of c

So an unlisted key has at most floor - 1 rows of a cell, and of a union of cells at most the sum
of these. Where that sum is below phi * n (n: the union's rows), every key with phi of the union
is listed somewhere: there is no false negative. That is so for every phi >= `THETA` wherever the
budget was enough; where it was not, floors were raised, and who asks can tell by them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidemark.warehouse.columns.keys import Key, Names, join_names, name_sizes, no_names, take_names

# A dashboard's smallest share, and a thousand keys a cell at most: of smaller ones nobody asks by share.
THETA = 1000  # one in so many
ENTRIES = 2**15  # of one listing; with BYTES about a megabyte of a run's marks
BYTES = 2**20
_ENTRY_BYTES = 16  # an entry's count and cell


@dataclass(frozen=True, slots=True, eq=False)
class HeavyKeys:
    """Keys (k,) that reach their cell's floor: `cells` (k,) are indices of `floors`, `counts` exact."""

    keys: Names
    cells: NDArray[np.int64]
    counts: NDArray[np.int64]
    floors: NDArray[np.int64]


def no_heavy_keys(key: Key, rows: NDArray[np.int64]) -> HeavyKeys:
    """A listing with nothing in it yet of cells of so many rows: a floor is 1/THETA of them, rounded up."""
    none = np.empty(0, dtype=np.int64)
    return HeavyKeys(no_names(key), none, none, np.maximum(1, -(-rows // THETA)))


def fit_to_budget(heavy: HeavyKeys, rows: NDArray[np.int64]) -> HeavyKeys:
    """What reaches the floors, these raised until it fits the budget; `rows` (cells,) are the cells'."""
    reach = heavy.counts >= heavy.floors[heavy.cells]
    heavy = HeavyKeys(
        take_names(heavy.keys, np.flatnonzero(reach)), heavy.cells[reach], heavy.counts[reach], heavy.floors
    )
    share = heavy.counts / rows[heavy.cells]
    order = np.argsort(-share, kind="stable")
    held = np.cumsum(name_sizes(heavy.keys)[order] + _ENTRY_BYTES)
    fits = min(ENTRIES, int(np.searchsorted(held, BYTES, side="right")))
    if fits >= len(order):
        return heavy
    # The first that does not fit has a share of count / of; a floor lies above that share of its cell.
    count, of = int(heavy.counts[order[fits]]), int(rows[heavy.cells[order[fits]]])
    raised = np.array([count * int(n) // of + 1 for n in rows], dtype=np.int64)
    return fit_to_budget(
        HeavyKeys(heavy.keys, heavy.cells, heavy.counts, np.maximum(heavy.floors, raised)), rows
    )


def join_heavy_keys(parts: Sequence[HeavyKeys], rows: NDArray[np.int64]) -> HeavyKeys:
    """The listing of several that have no key of a cell in common; one part at least."""
    floors = np.max([part.floors for part in parts], axis=0)
    cells, counts = (np.concatenate([getattr(part, name) for part in parts]) for name in ("cells", "counts"))
    return fit_to_budget(HeavyKeys(join_names([part.keys for part in parts]), cells, counts, floors), rows)
