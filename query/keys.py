"""History's side of frequencies: exact counts of keys in a window of ticks.

Counts of given keys and of key ranges are read from the few blocks that may hold them. Heavy hitters come
from what the marks list (see warehouse/heavy.py). Of a window that is the union of cells (whole runs, or
single ticks of runs) with n rows, every key has

    listed rows  <=  rows of the key  <=  listed rows + the sum of (floor - 1) over cells that do not list it

so a key that may have `least` rows is listed somewhere as long as the sum of (floor - 1) over all cells is
below `least`: then the listed keys whose upper bound reaches it are looked up where it differs from the lower
one, and no key is missed. Where it is not, the marks are not complete down to the question, and all rows are
scanned. Either way the answer is exact.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from query import keyscan
from query.keyblocks import KeyHistory, KeyShare, count_between, count_names
from warehouse.errors import InputError
from warehouse.heavy import Heavy
from warehouse.keys import Key, Name, Names, name_at, no_names, take, unify
from warehouse.ticks import Window

Counted = list[tuple[Any, int]]  # keys in their own type, with their rows: most first, then by key


def counts(history: KeyHistory, keys: Sequence[Any]) -> list[int]:
    """The rows in the window of each key, in one round of reads; 0 for a key that no row has.

    InputError for what can be no key of this type, such as text for a number.
    """
    names = [history.view.key.name_of(key) for key in keys]
    asked = list(dict.fromkeys(name for name in names if name is not None))
    found = dict(zip(asked, count_names(history, asked).tolist(), strict=True))
    return [0 if name is None else found[name] for name in names]


def range_count(history: KeyHistory, low: Any = None, high: Any = None) -> int:
    """The rows in the window with low <= key < high, in the order of the stored keys; None: no such bound.

    Text orders by its bytes; NaN comes after all numbers.
    """
    bounds = [None if end is None else history.view.key.bound_of(end) for end in (low, high)]
    return count_between(history, *bounds)


def least_rows(phi: Any, n: int) -> int:
    """The rows that are phi of n rows or more, at least 1; InputError unless phi is a number in (0, 1]."""
    number = isinstance(phi, (int, float, Fraction, Decimal)) and not isinstance(phi, bool)
    if not number or not math.isfinite(phi) or not 0 < phi <= 1:
        raise InputError(f"phi must lie in (0, 1], got {phi!r}. 0.01: keys with a hundredth of the rows.")
    return max(1, math.ceil(Fraction(str(phi)) * n))


def check_k(k: Any) -> None:
    """InputError unless k is a number of keys."""
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise InputError(f"k must be a whole number of at least 1, got {k!r}.")


def heavy_hitters(history: KeyHistory, phi: Any) -> Counted:
    """Every key with at least phi of the window's rows that have a key, with its rows; phi in (0, 1]."""
    least = least_rows(phi, history.rows)
    listed = listed_names(history)
    if listed.unseen >= least:  # the marks are not complete down to phi
        return _values(history, keyscan.reaching(history, least))
    return _values(history, [one for one in _exact(history, listed, least) if one[1] >= least])


def top(history: KeyHistory, k: int) -> Counted:
    """The k keys with most rows in the window, of equally many the least; fewer where there are no more."""
    check_k(k)
    listed = listed_names(history)
    if len(listed.names) >= k:
        least = int(np.partition(listed.rows, -k)[-k])
        if listed.unseen < least:
            return _values(history, _exact(history, listed, least)[:k])
    return _values(history, keyscan.most(history, k))


def second_moment(history: KeyHistory) -> int:
    """The sum over all keys of the square of their rows in the window: the size of the self-join."""
    return keyscan.second_moment([(history, 1.0)])[2]


def inner_product(a: KeyHistory, b: KeyHistory) -> int:
    """The size of the join of two histories on their keys, which are of one type."""
    check_joinable(a.view.key, b.view.key)
    return keyscan.inner_product([(a, 1.0)], [(b, 1.0)])[2]


def check_joinable(a: Key, b: Key) -> None:
    """InputError unless the two are of one type."""
    if a.type != b.type:
        raise InputError(f"keys of types {a.type} and {b.type} do not join. Cast one of them.")


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
    names, codes = unify([one.keys for one in cells])
    code = np.concatenate(codes)
    listed, known = np.zeros(len(names), np.int64), np.zeros(len(names), np.int64)
    np.add.at(listed, code, np.concatenate([one.counts for one in cells]))
    np.add.at(known, code, np.concatenate([one.floors[one.cells] - 1 for one in cells]))
    return Listed(names, listed, unseen - known, unseen)


def _cells(share: KeyShare, window: Window) -> Heavy:
    """The listing of a run's rows in the window that leaves least open: by tick, or of the run as one."""
    keys, pairs = share.marks.heavy()
    inside = window.holds(share.marks.totals.ticks)
    place = np.cumsum(inside) - 1
    chosen = inside[pairs.cells]
    by_tick = Heavy(
        take(pairs.keys, np.flatnonzero(chosen)),
        place[pairs.cells[chosen]],
        pairs.counts[chosen],
        pairs.floors[inside],
    )
    if share.whole and int(keys.floors.sum()) - 1 < int((by_tick.floors - 1).sum()):
        return keys
    return by_tick


def _exact(history: KeyHistory, listed: Listed, least: int) -> list[tuple[Name, int]]:
    """The listed names that may have `least` rows, with all their rows: most first, then by name."""
    may = np.flatnonzero(listed.rows + listed.more >= least)
    known = {name_at(listed.names, i): int(listed.rows[i]) for i in may.tolist()}
    asked = [name_at(listed.names, i) for i in may.tolist() if listed.more[i]]
    known |= dict(zip(asked, count_names(history, asked).tolist(), strict=True))
    return sorted(known.items(), key=lambda one: (-one[1], one[0]))


def _values(history: KeyHistory, found: Sequence[tuple[Name, int]]) -> Counted:
    key = history.view.key
    return [(key.value_of(name), int(count)) for name, count in found]
