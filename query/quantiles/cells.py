"""The numbers of many cells at once, in arrays; a cell is a group in a window.

`PackedRows` are the rows of a whole run, or of live batches, in memory. `numbers_by_cell` selects those of
the cells that are asked, counts them and puts the numbers of each cell side by side, for all cells together
(reading/number_parts.py). Every answer is exact.

Cost, for r rows in memory of which s are selected: O(r + s) without branches for a few ranks of each cell, a
few tens of nanoseconds for each row; O(s log s) for many ranks where several parts have rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from tidemark.query.reading.number_parts import NumberParts
from tidemark.query.reading.sorted_parts import RankedValues
from tidemark.warehouse.columns.codes import stable_order, unique_codes
from tidemark.warehouse.columns.exact_sums import Sums
from tidemark.warehouse.columns.keys import Names
from tidemark.warehouse.columns.tick_counts import disjoint_windows, window_codes
from tidemark.warehouse.columns.ticks import Window
from tidemark.warehouse.projections.group_rows import NULL, GroupRows
from tidemark.warehouse.projections.sorted_values import ValueRows

Ints = NDArray[np.int64]

MOST_CELLS = 2**21  # of one question, so that a cell has a number of 32 bits, and its counts fit into memory
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
    """Some of the rows that are asked.

    places: (stretches,) the number of the asked group to which the rows of a stretch belong; -1 for none.
    """

    rows: PackedRows
    places: Ints
    is_live: bool


class Cells(Protocol):
    """The rows of cells. Numbers of rows are (cells,)."""

    @property
    def n(self) -> Ints:
        """Rows of history with a rank; NaN, too."""

    @property
    def m(self) -> Ints:
        """Live rows with a rank."""

    @property
    def nans(self) -> Ints:
        """Rows that are NaN."""

    @property
    def nulls(self) -> Ints:
        """Rows that are NULL."""

    def __len__(self) -> int: ...

    def values_at(self, ranks: Ints) -> tuple[NDArray[Any], Ints, NDArray[np.bool_]]:
        """The values of ranks (cells, k), how many numbers of the cell are <= each, and which are numbers.

        Values and ranks are undefined where a rank is not one of a number: it is below 1, or of NaN.
        """

    def ranks_at(self, points: NDArray[Any]) -> Ints:
        """(cells, points): how many numbers of each cell are <= each of the stored values."""

    def each_values_at(self, ranks: Sequence[Ints]) -> Sequence[RankedValues]:
        """For ranks of numbers of each cell the values, and how many of its numbers are <= each."""

    def each_ranks_at(self, points: Sequence[NDArray[Any]]) -> list[Ints]:
        """How many numbers of each cell are <= stored values of that cell."""

    def sums(self) -> list[Sums]:
        """The exact sums of the numbers of each cell."""

    def take(self, cells: Ints) -> Self:
        """Some of the cells, each once or several times, in this order."""


@dataclass(frozen=True, slots=True, eq=False)
class CellNumbers:
    """The rows of cells, see `Cells`.

    history, live: (cells, KINDS), how many rows are numbers, NaN and NULL.
    parts: the numbers of each cell.
    """

    history: Ints
    live: Ints
    parts: NumberParts

    def __len__(self) -> int:
        return len(self.history)

    @property
    def n(self) -> Ints:
        """See `Cells.n`."""
        return self.history[:, 0] + self.history[:, 1]

    @property
    def m(self) -> Ints:
        """See `Cells.m`."""
        return self.live[:, 0] + self.live[:, 1]

    @property
    def nans(self) -> Ints:
        """See `Cells.nans`."""
        return self.history[:, 1] + self.live[:, 1]

    @property
    def nulls(self) -> Ints:
        """See `Cells.nulls`."""
        return self.history[:, NULL] + self.live[:, NULL]

    def values_at(self, ranks: Ints) -> tuple[NDArray[Any], Ints, NDArray[np.bool_]]:
        """See `Cells.values_at`."""
        found = self.parts.same_values_at(ranks)
        return *found, (ranks >= 1) & (ranks <= self.parts.sizes[:, np.newaxis])

    def ranks_at(self, points: NDArray[Any]) -> Ints:
        """See `Cells.ranks_at`."""
        return self.parts.same_ranks_at(points)

    def each_values_at(self, ranks: Sequence[Ints]) -> list[RankedValues]:
        """See `Cells.each_values_at`."""
        return self.parts.values_at(ranks)

    def each_ranks_at(self, points: Sequence[NDArray[Any]]) -> list[Ints]:
        """See `Cells.each_ranks_at`."""
        return self.parts.ranks_at(points)

    def sums(self) -> list[Sums]:
        """See `Cells.sums`."""
        return self.parts.sums()

    def take(self, cells: Ints) -> CellNumbers:
        """See `Cells.take`."""
        return CellNumbers(self.history[cells], self.live[cells], self.parts.take(cells))


def numbers_by_cell(
    parts: Sequence[Part], windows: Sequence[Window], groups: int, dtype: np.dtype[Any]
) -> CellNumbers:
    """The rows of each group in each window; cell ``g * len(windows) + w`` is group g in window w.

    windows: one window, or windows that ascend, and may overlap. groups: how many, see `Part`.
    """
    counts = np.zeros((2, groups * len(windows), KINDS), np.int64)
    selected: list[_Selected] = []
    for part, numbers_of in product(parts, disjoint_windows(windows)):
        cells, rows = _cells(part, windows, numbers_of)
        values, kinds = part.rows.values, _kinds(part.rows)
        if rows is not None:
            cells, values = cells[rows], values[rows]
            kinds = None if kinds is None else kinds[rows]
        of_kind = cells * KINDS if kinds is None else cells * KINDS + kinds
        of_part = np.bincount(of_kind, minlength=counts[0].size).reshape(-1, KINDS)
        counts[int(part.is_live)] += of_part
        if kinds is not None:
            cells, values = cells[kinds == 0], values[kinds == 0]
        if len(cells):
            selected.append(_Selected(cells, values, of_part[:, 0]))
    return CellNumbers(counts[0], counts[1], _by_cell(selected, counts[:, :, 0].sum(axis=0), dtype))


def _cells(
    part: Part, windows: Sequence[Window], chosen: Sequence[int]
) -> tuple[NDArray[np.int32], NDArray[np.intp] | None]:
    """The cell of each row, and the rows that are in one; None for all of them.

    chosen: the numbers of windows that do not overlap; the others are left out.
    """
    rows, places = part.rows, part.places
    of_tick = np.append(chosen, -1)[window_codes(rows.ticks, [windows[i] for i in chosen])]
    first = np.where(places < 0, _NOWHERE, places * len(windows)).astype(np.int32)
    cells = np.repeat(first, rows.sizes.sum(axis=1))
    is_all = bool((places >= 0).all())
    if len(windows) > 1 or (of_tick < 0).any():
        cells += np.where(of_tick < 0, _NOWHERE, of_tick).astype(np.int32)[rows.codes]
        is_all = is_all and bool((of_tick >= 0).all())
    return cells, None if is_all else np.flatnonzero(cells >= 0)


def _kinds(rows: PackedRows) -> NDArray[np.int8] | None:
    """The kind of each row; None if all are numbers."""
    if not rows.sizes[:, 1:].any():
        return None
    kinds = np.tile(np.arange(KINDS, dtype=np.int8), len(rows.sizes))
    return np.repeat(kinds, rows.sizes.ravel())


class _Selected(NamedTuple):
    """Numbers of a part of the rows, and the cell of each; sizes: (cells,) how many each cell has."""

    cells: NDArray[np.int32]
    numbers: NDArray[Any]
    sizes: Ints

    @property
    def ordered(self) -> _Selected:
        """The numbers in the order of their cells."""
        if not np.any(self.cells[1:] < self.cells[:-1]):
            return self
        order = stable_order(self.cells)
        return _Selected(self.cells[order], self.numbers[order], self.sizes)

    @property
    def ascend(self) -> bool:
        """Whether the ordered numbers of each cell ascend.

        The rows of one part ascend by group and value, so they do, unless a cell has rows of several groups.
        """
        same = self.cells[1:] == self.cells[:-1]
        return not np.any(same & (self.numbers[1:] < self.numbers[:-1]))


def _by_cell(parts: Sequence[_Selected], sizes: Ints, dtype: np.dtype[Any]) -> NumberParts:
    """The numbers of all parts by cell, in each cell one part after the other. sizes: those of all parts."""
    edges = np.concatenate([[0], np.cumsum(sizes)])
    if len(parts) == 1:
        (one,) = (part.ordered for part in parts)
        return NumberParts(one.numbers, edges, are_sorted=one.ascend)
    numbers, ends = np.empty(edges[-1], dtype), edges[:-1].copy()  # where the next number of a cell stands
    for part in parts:
        cells, own, of_part = part.ordered
        before = np.cumsum(of_part) - of_part
        numbers[np.arange(len(cells)) + (ends - before)[cells]] = own
        ends += of_part
    return NumberParts(numbers, edges)
