"""What the marks list of keys in a window of history: counts, and how much may be missing of them.

Of a window that is the union of cells (whole runs, or single ticks of runs, see
warehouse/columns/heavy_keys.py), every key has

    listed rows  <=  rows of the key  <=  listed rows + the sum of (floor - 1) over cells that do not list it

so a key that may have `least` rows is listed somewhere as long as the sum of (floor - 1) over all cells is
below `least`. Where it is not, the marks are not complete down to the question, see
query/keys/frequencies.py.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidemark.query.keys.key_blocks import KeyHistory, KeyShare
from tidemark.warehouse.columns.heavy_keys import HeavyKeys
from tidemark.warehouse.columns.keys import Names, no_names, take_names, unify_names
from tidemark.warehouse.columns.ticks import Window


@dataclass(frozen=True, slots=True, eq=False)
class Listed:
    """What the marks say of a window.

    Of names (k,), each once: their listed `rows`, and how many `more` they may have. A name that is listed
    nowhere may have `unseen` rows.
    """

    names: Names
    rows: NDArray[np.int64]
    more: NDArray[np.int64]
    unseen: int


def listed_names(history: KeyHistory) -> Listed:
    """What the marks of the runs say of the window."""
    cells = [_cells(share, history.window) for share in history.shares]
    unseen = sum(int((one.floors - 1).sum()) for one in cells)
    if not cells:
        return Listed(no_names(history.view.key), np.empty(0, np.int64), np.empty(0, np.int64), 0)
    names, codes = unify_names([one.keys for one in cells])
    code = np.concatenate(codes)
    listed, known = np.zeros(len(names), np.int64), np.zeros(len(names), np.int64)
    np.add.at(listed, code, np.concatenate([one.counts for one in cells]))
    np.add.at(known, code, np.concatenate([one.floors[one.cells] - 1 for one in cells]))
    return Listed(names, listed, unseen - known, unseen)


def _cells(share: KeyShare, window: Window) -> HeavyKeys:
    """The listing of a run's rows in the window that leaves least open: by tick, or of the run as one."""
    keys, pairs = share.marks.heavy()
    inside = window.holds(share.marks.totals.ticks)
    place = np.cumsum(inside) - 1
    chosen = inside[pairs.cells]
    by_tick = HeavyKeys(
        take_names(pairs.keys, np.flatnonzero(chosen)),
        place[pairs.cells[chosen]],
        pairs.counts[chosen],
        pairs.floors[inside],
    )
    if share.whole and int(keys.floors.sum()) - 1 < int((by_tick.floors - 1).sum()):
        return keys
    return by_tick
