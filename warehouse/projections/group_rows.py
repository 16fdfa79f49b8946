"""Group rows: (group, value, tick), ascending by group, then value; equal rows stay apart.

Model. A group is a tuple with one name for each of the group's columns (columns/keys.py). Its rows are the
rows of `events` with these names; a row with NULL in one of the columns belongs to no group. Within a group
numbers come first, ascending; then the rows whose measure is NaN, then those whose measure is NULL. So a
group is a range of rows, its numbers are a range, too, and a rank inside the group is a difference of two
ranks in the run.

A radix sort orders the rows by (group, kind), with the number of the group's place among all groups. Then
each slice is sorted by value, in O(n log n). Where slices are short on average, all rows are sorted by value
first instead. Equal rows have no defined order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidemark.warehouse.columns.codes import combine_codes, stable_order
from tidemark.warehouse.columns.keys import (
    Key,
    KeyColumn,
    Name,
    Names,
    count_tuples_less,
    name_at,
    no_names,
    take_names,
    unify_names,
)
from tidemark.warehouse.columns.value_encoding import DecodedColumn
from tidemark.warehouse.runs.projection import SortColumns, SortKey

NUMBER, NAN, NULL = 0, 1, 2  # the kinds of rows of a group, in their order
_LEAST_SLICE = 2**8  # rows on average: for less the loop over the slices takes longer than one sort


@dataclass(frozen=True, slots=True, eq=False)
class GroupRows:
    """Row i has the group `codes[i]`, the kind `kinds[i]`, the tick `ticks[i]` and, if a NUMBER, `values[i]`.

    groups   one column of names for each column of the group; entry g of all columns is group g. Groups
             ascend, each is there once and has rows
    codes    (rows,) ascending from 0 without a gap
    values   (rows,) stored values of the measure; 0 for rows that are not a NUMBER
    kinds    (rows,) NUMBER, NAN or NULL
    ticks    (rows,)
    """

    groups: tuple[Names, ...]
    codes: NDArray[np.int64]
    values: NDArray[Any]
    kinds: NDArray[np.int64]
    ticks: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def nbytes(self) -> int:
        """The memory of the rows."""
        return sum(
            int(part.nbytes) for part in (*self.groups, self.codes, self.values, self.kinds, self.ticks)
        )

    def part(self, start: int, stop: int) -> GroupRows:
        """Rows start..stop (exclusive)."""
        rows = slice(start, max(start, stop))
        codes = self.codes[rows]
        first, last = (int(codes[0]), int(codes[-1]) + 1) if len(codes) else (0, 0)
        groups = tuple(names[first:last] for names in self.groups)
        return GroupRows(groups, codes - first, self.values[rows], self.kinds[rows], self.ticks[rows])

    def group(self, code: int) -> tuple[Name, ...]:
        """Group `code` as a tuple of names."""
        return tuple(name_at(names, code) for names in self.groups)

    def sort_key(self, i: int) -> SortKey:
        """The sort key of row i: the names of its group, its kind and its value."""
        return (*self.group(int(self.codes[i])), int(self.kinds[i]), self.values[i].item())

    def sort_columns(self, rows: NDArray[Any]) -> SortColumns:
        """The columns of the group, the kinds and the values of the rows with these indices."""
        groups = (take_names(names, self.codes[rows]) for names in self.groups)
        return (*groups, self.kinds[rows], self.values[rows])

    def range_of(self, group: tuple[Name, ...]) -> tuple[int, int]:
        """The rows of a group: start and stop (exclusive), which are equal if it has no rows; O(log n)."""
        code, after = (count_tuples_less(self.groups, group, equal=equal) for equal in (False, True))
        start, stop = np.searchsorted(self.codes, [code, after])
        return int(start), int(stop)

    def rows_before(self, group: tuple[Name, ...], kind: int) -> int:
        """How many rows stand before the rows of a group that have this kind or a later one; O(log n)."""
        start, stop = self.range_of(group)
        return start + int(self.kinds[start:stop].searchsorted(kind))


def unsorted_rows(
    columns: Sequence[KeyColumn], measure: DecodedColumn, ticks: NDArray[np.int64]
) -> GroupRows:
    """Decoded rows for `sort_rows`; rows with NULL in a column of the group are left out.

    Their codes do not ascend by group and value, and there may be groups without rows.
    """
    null = reduce(np.logical_or, [column.null for column in columns])
    kept = np.flatnonzero(~null)
    names, codes = [], []
    for column in columns:
        column_names = column.names if column.codes is not None else take_names(column.names, kept)
        unified, (to_code,) = unify_names([column_names])
        names.append(unified)
        codes.append(to_code if column.codes is None else to_code[column.codes[kept]])
    kinds = np.where(measure.null, NULL, np.where(measure.nan, NAN, NUMBER))[kept]
    values = np.where(kinds == NUMBER, measure.stored[kept], measure.stored.dtype.type(0))
    ticks = ticks[kept]
    if len(names) == 1:
        return GroupRows((names[0],), codes[0], values, kinds, ticks)
    order = stable_order(combine_codes(codes, [len(column) for column in names]))
    return _grouped(names, [column[order] for column in codes], values[order], kinds[order], ticks[order])


def sorted_rows(
    columns: Sequence[tuple[Names, NDArray[np.int64]]],
    values: NDArray[Any],
    kinds: NDArray[np.int64],
    ticks: NDArray[np.int64],
) -> GroupRows:
    """Rows that are sorted already. For each column of the group: names, and the index of each row's name."""
    names, codes = [], []
    for column_names, column_codes in columns:
        unified, (to_code,) = unify_names([column_names])
        names.append(unified)
        codes.append(to_code[column_codes])
    return _grouped(names, codes, values, kinds, ticks)


def sort_rows(parts: Sequence[GroupRows]) -> GroupRows:
    """The rows of all parts together, sorted; at least one part, and parts need not be sorted."""
    names, codes = [], []
    for column in zip(*(part.groups for part in parts), strict=True):
        unified, to_codes = unify_names(column)
        names.append(unified)
        codes.append(
            np.concatenate([to_code[part.codes] for to_code, part in zip(to_codes, parts, strict=True)])
        )
    values, kinds, ticks = (
        np.concatenate([getattr(part, field) for part in parts]) for field in ("values", "kinds", "ticks")
    )
    return _sorted(names, codes, values, kinds, ticks)


def no_rows(keys: Sequence[Key], dtype: np.dtype[Any]) -> GroupRows:
    """No rows of a group with these columns and of a measure with stored values of this type."""
    empty = np.empty(0, np.int64)
    return GroupRows(tuple(no_names(key) for key in keys), empty, np.empty(0, dtype), empty, empty)


def _sorted(
    names: Sequence[Names],
    codes: Sequence[NDArray[np.int64]],
    values: NDArray[Any],
    kinds: NDArray[np.int64],
    ticks: NDArray[np.int64],
) -> GroupRows:
    """Sorts rows whose group has the names ``names[c][codes[c][i]]``, each column's names ascending."""
    code = combine_codes(codes, [len(column) for column in names]) * 3 + kinds
    order, has_one_tick = stable_order(code), bool((ticks == ticks[:1]).all())
    starts = _slice_starts(code, order)
    if len(starts) * _LEAST_SLICE > len(values):
        order = np.argsort(values)
        order = order[stable_order(code[order])]
        ordered = values[order]
    else:
        ordered = _sorted_slices(values, order, [*starts.tolist(), len(values)], keep_order=not has_one_tick)
    lengths, first = np.diff(starts, append=len(values)), order[starts]
    slices = _grouped(names, [column[first] for column in codes], values[first], kinds[first], ticks[first])
    codes_of_rows, kinds_of_rows = np.repeat(slices.codes, lengths), np.repeat(slices.kinds, lengths)
    ticks_of_rows = ticks if has_one_tick else ticks[order]
    return GroupRows(slices.groups, codes_of_rows, ordered, kinds_of_rows, ticks_of_rows)


def _slice_starts(code: NDArray[np.int64], order: NDArray[np.intp]) -> NDArray[np.int64]:
    """Where the rows of each code begin once they are in the order, which is that of the codes."""
    if int(code.max(initial=0)) <= len(code):
        rows = np.bincount(code)
        return (np.cumsum(rows) - rows)[rows > 0]
    return np.flatnonzero(np.diff(code[order], prepend=-1))


def _sorted_slices(
    values: NDArray[Any], order: NDArray[np.intp], edges: Sequence[int], *, keep_order: bool
) -> NDArray[Any]:
    """The values in the order, each slice sorted; with `keep_order` the order is changed in the same way."""
    ordered = values[order]
    for start, stop in pairwise(edges):
        own = slice(start, stop)
        if not keep_order:
            ordered[own].sort()
        else:
            inner = np.argsort(ordered[own])
            ordered[own], order[own] = ordered[own][inner], order[own][inner]
    return ordered


def _grouped(
    names: Sequence[Names],
    codes: Sequence[NDArray[np.int64]],
    values: NDArray[Any],
    kinds: NDArray[np.int64],
    ticks: NDArray[np.int64],
) -> GroupRows:
    """Numbers the groups of rows in order; a group starts where the code of one of its columns changes."""
    is_first = reduce(np.logical_or, [np.diff(column, prepend=-1) != 0 for column in codes])
    groups = tuple(
        take_names(column, column_codes[is_first]) for column, column_codes in zip(names, codes, strict=True)
    )
    return GroupRows(groups, np.cumsum(is_first) - 1, values, kinds, ticks)
