"""The numbers of many cells at once, in arrays; a cell is a group in a window.

`PackedRows` are the rows of a whole run, or of live batches, in memory. `numbers_by_cell` counts those of the
cells that are asked, and finds the stretches of ascending numbers that a cell has in each part
(reading/merged_parts.py). Every answer is exact.

Cost, for r rows in memory of which s are selected.

    to select the rows    O(stretches) if there is one window that covers the whole part; else O(r), some
                          nanoseconds a row, which threads share
    a few ranks a cell    a fraction of O(s) if stretches are long; else O(s), tens of nanoseconds a row
    many ranks a cell     O(s log s) if several parts have rows
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from tidemark.query.reading.merged_parts import MergedParts, Stretches
from tidemark.query.reading.shares import Share, each_share, equal_shares
from tidemark.query.reading.sorted_parts import Numbers
from tidemark.warehouse.columns.codes import unique_codes
from tidemark.warehouse.columns.keys import Names
from tidemark.warehouse.columns.tick_counts import disjoint_windows, window_codes
from tidemark.warehouse.columns.ticks import Window
from tidemark.warehouse.projections.group_rows import NULL, GroupRows
from tidemark.warehouse.projections.sorted_values import ValueRows

Ints = NDArray[np.int64]

MOST_CELLS = 2**21  # cells of one question: their numbers have 32 bits, and their counts fit into memory
KINDS = NULL + 1  # number, NaN, NULL
_NOWHERE = -(2**30)  # twice this is the least number of 32 bits


@dataclass(frozen=True, slots=True, eq=False)
class PackedRows:
    """Rows in the order of their group, kind and value.

    groups: one column of names for each column of the group, an entry for each stretch of rows of one group.
        Without columns all rows are one stretch. A group may have several stretches.
    sizes: (stretches, KINDS), their rows that are numbers, NaN and NULL, which follow each other.
    values: (rows,) as stored; undefined for NaN and NULL.
    ticks: ascending, each once. codes: (rows,) the index of each row's tick.
    """

    groups: tuple[Names, ...]
    sizes: Ints
    values: NDArray[Any]
    ticks: Ints
    codes: NDArray[Any]

    @property
    def nbytes(self) -> int:
        """The memory of the rows."""
        arrays = (*self.groups, self.sizes, self.values, self.ticks, self.codes)
        return int(sum(array.nbytes for array in arrays))


def pack(rows: GroupRows | ValueRows) -> PackedRows:
    """Sorted rows of a group or of a measure."""
    ticks, codes = unique_codes(rows.ticks)
    return PackedRows(*stretches(rows), rows.values, ticks, codes)


def stretches(rows: GroupRows | ValueRows) -> tuple[tuple[Names, ...], Ints]:
    """The groups and the sizes of `PackedRows`."""
    if isinstance(rows, ValueRows):
        return (), np.array([[len(rows), 0, 0]], np.int64)
    kinds = np.bincount(rows.codes * KINDS + rows.kinds, minlength=KINDS * len(rows.groups[0]))
    return rows.groups, kinds.reshape(-1, KINDS)


class Part(NamedTuple):
    """A part of the asked rows.

    places: (stretches,) the number of the asked group to which the rows of a stretch belong; -1 for none.
    """

    rows: PackedRows
    places: Ints
    is_live: bool

    def between(self, first: int, last: int) -> Part:
        """Only the rows from first to last, exclusive. Stretches outside have no rows."""
        rows = self.rows
        edges = np.append(0, np.cumsum(rows.sizes)).clip(first, last)
        here = slice(first, last)
        taken = replace(
            rows, sizes=np.diff(edges).reshape(-1, KINDS), values=rows.values[here], codes=rows.codes[here]
        )
        return self._replace(rows=taken)

    def within(self, first: int, last: int, *, with_codes: bool = True) -> Part:
        """Only the rows with the ticks from the first to the last, exclusive; these are indices of ticks.

        with_codes: whether the tick of a row will be asked.
        """
        rows, most = self.rows, len(self.rows.ticks)
        if (first, last) == (0, most):
            return self
        inside = rows.codes < last if last < most else rows.codes >= first
        if first > 0 and last < most:
            inside &= rows.codes >= first
        chosen = np.flatnonzero(inside)
        edges = chosen.searchsorted(np.append(0, np.cumsum(rows.sizes)))
        codes = rows.codes[chosen] - rows.codes.dtype.type(first) if with_codes else rows.codes[:0]
        taken = replace(
            rows,
            sizes=np.diff(edges).reshape(-1, KINDS),
            values=rows.values[chosen],
            ticks=rows.ticks[first:last],
            codes=codes,
        )
        return self._replace(rows=taken)


class CellNumbers(Numbers, Protocol):
    """The numbers of cells."""

    def same_ranks_at(self, points: NDArray[Any]) -> Ints:
        """(cells, points): how many numbers of each cell are <= each of the stored values."""

    def take(self, parts: Ints) -> Self:
        """Those of some of the cells, each once or several times, in this order."""


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """The rows of cells.

    counts: (cells, 4), the n, m, nans and nulls of `RowCounts`.
    """

    counts: Ints
    numbers: CellNumbers

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def rows(self) -> Ints:
        """N, the rows of each cell that have a rank."""
        return self.counts[:, 0] + self.counts[:, 1]

    @property
    def stored(self) -> Ints:
        """The rows of each cell that are numbers."""
        return self.rows - self.counts[:, 2]

    def take(self, cells: Ints) -> Cells:
        """Some of the cells, each once or several times, in this order."""
        return Cells(self.counts[cells], self.numbers.take(cells))


def numbers_by_cell(
    parts: Sequence[Part],
    windows: Sequence[Window],
    groups: int,
    dtype: np.dtype[Any],
    others: Ints | int = 0,
) -> Cells:
    """The rows of each group in each window; cell ``g * len(windows) + w`` is group g in window w.

    windows: one window, or windows that ascend, and may overlap. groups: how many, see `Part`.
    others: (2, cells, KINDS), rows of history and live ones that are in no part; none of them is a number.
    """
    counts = np.zeros((2, groups * len(windows), KINDS), np.int64) + others
    stretches: list[Stretches] = []
    for part, numbers_of in product(parts, disjoint_windows(windows)):
        asked = _AskedRows.of(part, numbers_of, windows)
        for cells, sizes, found in each_share(asked.cells, asked.shares):
            np.add.at(counts[int(part.is_live)], cells, sizes)
            if len(found):
                stretches.append(found)
    (n, m), (numbers, nans, nulls) = counts[:, :, :NULL].sum(axis=2), counts.sum(axis=0).T
    return Cells(np.stack([n, m, nans, nulls], axis=1), MergedParts(stretches, numbers, dtype))


class _AskedRows(NamedTuple):
    """The rows of a part in windows that do not overlap.

    of_tick: the window of each tick, or -1.
    ticks: the index of the first tick that is in a window, and the one after the last.
    window: the window of all ticks between these, if it is one; else None.
    windows: how many windows are asked, those of other parts included.
    """

    part: Part
    of_tick: Ints
    ticks: tuple[int, int]
    window: int | None
    windows: int

    @classmethod
    def of(cls, part: Part, numbers_of: Sequence[int], windows: Sequence[Window]) -> Self:
        """The rows of the part in some of the windows, those with the indices `numbers_of`."""
        codes = window_codes(part.rows.ticks, [windows[i] for i in numbers_of])
        of_tick = np.append(numbers_of, -1)[codes]
        inside = np.flatnonzero(codes >= 0)
        ends = (int(inside[0]), int(inside[-1]) + 1) if len(inside) else (0, 0)
        is_one = len(inside) > 0 and bool((of_tick[slice(*ends)] == of_tick[ends[0]]).all())
        return cls(part, of_tick, ends, int(of_tick[ends[0]]) if is_one else None, len(windows))

    @property
    def shares(self) -> list[Share]:
        """Ranges of rows to go through side by side; one range if no row has to be looked at."""
        rows = len(self.part.rows.codes)
        is_whole = self.window is not None and self.ticks == (0, len(self.part.rows.ticks))
        return [(0, rows)] if is_whole or self.ticks == (0, 0) else equal_shares(rows)

    def cells(self, first: int, last: int) -> tuple[Ints, Ints, Stretches]:
        """Cells, their rows by kind, and their numbers, of the rows from first to last, exclusive.

        The same cell may be returned several times.
        """
        part = self.part.between(first, last).within(*self.ticks, with_codes=self.window is None)
        if self.window is not None:
            return _in_window(part, self.window, self.windows)
        return _in_windows(part, self.of_tick[slice(*self.ticks)], self.windows)


def _in_window(part: Part, window: int, windows: int) -> tuple[Ints, Ints, Stretches]:
    """See `_AskedRows.cells`, of a part with rows of one window alone."""
    sizes, cells = part.rows.sizes, np.where(part.places < 0, -1, part.places * windows + window)
    starts = np.cumsum(sizes.sum(axis=1)) - sizes.sum(axis=1)
    chosen = cells >= 0
    return cells[chosen], sizes[chosen], Stretches.of(part.rows.values, starts, starts + sizes[:, 0], cells)


def _in_windows(part: Part, of_tick: Ints, windows: int) -> tuple[Ints, Ints, Stretches]:
    """See `_AskedRows.cells`. of_tick: the window of each tick, or -1."""
    rows = part.rows
    first = np.where(part.places < 0, _NOWHERE, part.places * windows).astype(np.int32)
    of_row = np.repeat(first, rows.sizes.sum(axis=1))
    of_row += np.where(of_tick < 0, _NOWHERE, of_tick).astype(np.int32)[rows.codes]
    values, kinds = rows.values, _kinds(rows)
    if (part.places < 0).any() or (of_tick < 0).any():
        chosen = np.flatnonzero(of_row >= 0)
        of_row, values = of_row[chosen], values[chosen]
        kinds = None if kinds is None else kinds[chosen]
    of_kind = of_row * KINDS if kinds is None else of_row * KINDS + kinds
    sizes = np.bincount(of_kind, minlength=KINDS * (int(of_row.max(initial=-1)) + 1)).reshape(-1, KINDS)
    if kinds is not None:
        of_row, values = of_row[kinds == 0], values[kinds == 0]
    cells = np.flatnonzero(sizes.any(axis=1))
    return cells, sizes[cells], Stretches.of_rows(values, of_row)


def _kinds(rows: PackedRows) -> NDArray[np.int8] | None:
    if not rows.sizes[:, 1:].any():
        return None
    kinds = np.tile(np.arange(KINDS, dtype=np.int8), len(rows.sizes))
    return np.repeat(kinds, rows.sizes.ravel())
