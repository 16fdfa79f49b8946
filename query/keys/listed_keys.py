"""The keys that the marks list in a window of history: their counts, and how many rows may be missing.

The window is a union of cells: whole runs, or single ticks of runs (warehouse/columns/heavy_keys.py). A cell
lists every key that has at least `floor` rows in it. So every key satisfies

    listed rows  <=  rows of the key  <=  listed rows + the sum of (floor - 1) over cells that do not list it

A key with `least` rows is listed in at least one cell if the sum of (floor - 1) over all cells is below
`least`. Otherwise the lists may miss such a key, and query/keys/frequencies.py scans all keys.

Worked example. Two cells have the floors 10 and 4. The first lists A with 50 rows, the second lists A with 6
and B with 5. A has exactly 56 rows. B has 5 to 5 + 9 = 14 rows. A key that no cell lists has at most 9 + 3 =
12 rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tidemark.query.keys.key_blocks import KeyShare
from tidemark.warehouse.columns.heavy_keys import HeavyKeys
from tidemark.warehouse.columns.keys import Key, Names, no_names, take_names, unify_names
from tidemark.warehouse.columns.ticks import Window


@dataclass(frozen=True, slots=True, eq=False)
class ListedKeys:
    """The keys that the marks list in a window.

    names: shape (k,), each once.
    rows: shape (k,), their listed rows.
    slack: shape (k,): rows <= rows of the key in the window <= rows + slack.
    unlisted_max: the most rows that a name can have that is not listed.
    """

    names: Names
    rows: NDArray[np.int64]
    slack: NDArray[np.int64]
    unlisted_max: int

    def without(self, gone: NDArray[np.int64]) -> ListedKeys:
        """The keys without removed rows: `gone` rows of each, shape (k,). `unlisted_max` still holds."""
        rows = np.maximum(self.rows - gone, 0)
        return replace(self, rows=rows, slack=self.rows + self.slack - gone - rows)


Lists = tuple[HeavyKeys, HeavyKeys]  # the lists of a run: as one cell, and by tick


def listed_names(key: Key, window: Window, shares: Sequence[KeyShare], lists: Sequence[Lists]) -> ListedKeys:
    """The keys that the marks of runs list in a window; reads no blocks.

    lists: the lists of each run, see `KeyMarks.heavy`.
    """
    listings = [_run_listing(share, window, of_run) for share, of_run in zip(shares, lists, strict=True)]
    unlisted_max = sum(int((listing.floors - 1).sum()) for listing in listings)
    if not listings:
        return ListedKeys(no_names(key), np.empty(0, np.int64), np.empty(0, np.int64), 0)
    names, codes = unify_names([listing.keys for listing in listings])
    code = np.concatenate(codes)
    rows, excluded = np.zeros(len(names), np.int64), np.zeros(len(names), np.int64)
    np.add.at(rows, code, np.concatenate([listing.counts for listing in listings]))
    # In a cell that lists the name no rows are missing.
    np.add.at(excluded, code, np.concatenate([listing.floors[listing.cells] - 1 for listing in listings]))
    return ListedKeys(names, rows, unlisted_max - excluded, unlisted_max)


def _run_listing(share: KeyShare, window: Window, lists: Lists) -> HeavyKeys:
    """The listing of a run in the window, by tick or as one cell: the one with the tighter bounds."""
    keys, pairs = lists
    inside = window.holds(share.marks.totals.ticks)
    new_cell = np.cumsum(inside) - 1
    chosen = inside[pairs.cells]
    by_tick = HeavyKeys(
        take_names(pairs.keys, np.flatnonzero(chosen)),
        new_cell[pairs.cells[chosen]],
        pairs.counts[chosen],
        pairs.floors[inside],
    )
    if share.whole and int(keys.floors.sum()) - 1 < int((by_tick.floors - 1).sum()):
        return keys
    return by_tick
