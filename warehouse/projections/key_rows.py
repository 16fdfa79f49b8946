"""Key rows: (key, tick, count), ascending by key then tick, each (key, tick) once.

Model. A multiset of rows (key, tick) is a function from pairs to counts. `count_pairs` computes it from rows
and `sum_counts` adds several; both return it in ascending order. So a load and a merge store each pair once,
and a merge conserves the counts:

    count of (key, tick) in sum_counts(parts)  =  sum of its counts in the parts

Pairs are sorted as single integers: with T ticks, pair (i-th name, j-th tick) is i * T + j.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidemark.warehouse.columns.codes import unique_codes
from tidemark.warehouse.columns.keys import (
    Key,
    KeyColumn,
    Name,
    Names,
    count_less,
    name_at,
    no_names,
    take_names,
    unify_names,
)
from tidemark.warehouse.columns.ticks import Window
from tidemark.warehouse.runs.projection import SortKey


@dataclass(frozen=True, slots=True, eq=False)
class KeyRows:
    """Rows (key, tick, count): row i is (`names[codes[i]]`, `ticks[i]`, `counts[i]`).

    `names` are distinct, ascending and all used. So `codes` ascend from 0 without gaps.
    """

    names: Names
    codes: NDArray[np.int64]
    ticks: NDArray[np.int64]
    counts: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def nbytes(self) -> int:
        """The memory of the rows."""
        arrays = (self.names, self.codes, self.ticks, self.counts)
        return sum(int(array.nbytes) for array in arrays)

    def part(self, start: int, stop: int) -> KeyRows:
        """Rows start..stop (exclusive)."""
        if start >= stop:
            return KeyRows(self.names[:0], self.codes[:0], self.ticks[:0], self.counts[:0])
        first, last = int(self.codes[start]), int(self.codes[stop - 1])
        rows = slice(start, stop)
        return KeyRows(
            self.names[first : last + 1], self.codes[rows] - first, self.ticks[rows], self.counts[rows]
        )

    def within(self, window: Window) -> KeyRows:
        """The rows in a window of ticks."""
        return self.where(window.holds(self.ticks))

    def where(self, chosen: NDArray[np.bool_]) -> KeyRows:
        """The rows for which `chosen`, shape (rows,), is true."""
        if chosen.all():
            return self
        codes = self.codes[chosen]
        new = np.diff(codes, prepend=-1) != 0
        names = take_names(self.names, codes[new])
        return KeyRows(names, np.cumsum(new) - 1, self.ticks[chosen], self.counts[chosen])

    def sort_key(self, i: int) -> SortKey:
        """The sort key of row i: its name and its tick."""
        return name_at(self.names, int(self.codes[i])), int(self.ticks[i])

    def rows_before(self, name: Name, tick: int) -> int:
        """The number of rows less than (name, tick); O(log n)."""
        start, stop = self.range_of(name)
        return start + int(np.searchsorted(self.ticks[start:stop], tick))

    def range_of(self, name: Name) -> tuple[int, int]:
        """The rows of a name: start and stop (exclusive), which are equal if it has no rows; O(log n)."""
        code = count_less(self.names, name)
        start = int(np.searchsorted(self.codes, code))
        if code == len(self.names) or name_at(self.names, code) != name:
            return start, start
        return start, int(np.searchsorted(self.codes, code, side="right"))

    def starts(self) -> NDArray[np.int64]:
        """The first row of each name: (names,)."""
        return np.searchsorted(self.codes, np.arange(len(self.names)))


def count_pairs(column: KeyColumn, ticks: NDArray[np.int64]) -> KeyRows:
    """Counts the rows of a decoded column by (key, tick), without NULLs."""
    names, codes = column.names, column.codes
    if column.null.any():
        kept = np.flatnonzero(~column.null)
        ticks = ticks[kept]
        names, codes = (take_names(names, kept), None) if codes is None else (names, codes[kept])
    names, (unified,) = unify_names([names])
    codes = unified if codes is None else unified[codes]
    return count_of_each(names, codes, ticks, None)


def sum_counts(parts: Sequence[KeyRows]) -> KeyRows:
    """Merges at least one part: sums the counts of equal pairs."""
    parts = [part for part in parts if len(part)] or parts[:1]
    if len(parts) == 1:
        return parts[0]
    names, unified = unify_names([part.names for part in parts])
    codes = np.concatenate([to_code[part.codes] for to_code, part in zip(unified, parts, strict=True)])
    ticks = np.concatenate([part.ticks for part in parts])
    return count_of_each(names, codes, ticks, np.concatenate([part.counts for part in parts]))


def no_rows(key: Key) -> KeyRows:
    """Empty rows of the key's type."""
    empty = np.empty(0, dtype=np.int64)
    return KeyRows(no_names(key), empty, empty, empty)


def sorted_rows(names: Names, ticks: NDArray[np.int64], counts: NDArray[np.int64]) -> KeyRows:
    """Rows that are already sorted and distinct; `names` has one name for each row."""
    if isinstance(names, np.ndarray):
        new = np.diff(names, prepend=names[:1] - 1) != 0
        return KeyRows(names[new], np.cumsum(new) - 1, ticks, counts)
    distinct, (codes,) = unify_names([names])
    return KeyRows(distinct, codes, ticks, counts)


def count_of_each(
    names: Names, codes: NDArray[np.int64], ticks: NDArray[np.int64], counts: NDArray[np.int64] | None
) -> KeyRows:
    """Sums counts of rows in any order, whose names are `names[codes]`; `names` ascend, each once.

    Without `counts` each row counts as one.
    """
    if not len(codes):
        empty = np.empty(0, dtype=np.int64)
        return KeyRows(names[:0], empty, empty, empty)
    tick_names, tick_codes = unique_codes(ticks)
    pairs = codes * len(tick_names) + tick_codes
    pairs, sums = _sums_by_pair(pairs, counts, len(names) * len(tick_names))
    codes, tick_codes = np.divmod(pairs, len(tick_names))
    new = np.concatenate([[True], codes[1:] != codes[:-1]])
    return KeyRows(take_names(names, codes[new]), np.cumsum(new) - 1, tick_names[tick_codes], sums)


def _sums_by_pair(
    pairs: NDArray[np.int64], counts: NDArray[np.int64] | None, possible: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The pairs of rows in any order, ascending and each once, and the sum of the counts of each.

    possible: all pairs are less. If they are no more than the rows, they are counted without a sort.
    """
    if counts is None and possible <= len(pairs):
        rows = np.bincount(pairs)
        found = np.flatnonzero(rows)
        return found, rows[found]
    if counts is None:
        pairs.sort()
    else:
        order = np.argsort(pairs)
        pairs, counts = pairs[order], counts[order]
    starts = np.flatnonzero(np.concatenate([[True], pairs[1:] != pairs[:-1]]))
    sums = np.diff(starts, append=len(pairs)) if counts is None else np.add.reduceat(counts, starts)
    return pairs[starts], sums
