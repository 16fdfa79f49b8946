"""Takes removed rows out of the rows of a run in memory; pure.

Rows with the same group, kind, value and tick are equal. The removed rows are a part of the run's rows, so as
many rows of each equal kind are taken out as were removed. A group whose rows were all removed keeps a
stretch without rows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidemark.query.quantiles.cells import KINDS, Ints, PackedRows
from tidemark.query.quantiles.kept_numbers import absent
from tidemark.warehouse.columns.codes import combine_codes, occurrences
from tidemark.warehouse.columns.keys import unify_names


def rows_without(rows: PackedRows, gone: PackedRows) -> PackedRows:
    """The rows without removed ones. DamagedWarehouse if some of the removed rows are not among them.

    O(n + c log c) for n rows, of which c have a group and a tick of a removed row.
    """
    if not len(gone.values):
        return rows
    here, there = _same_groups(rows, gone)
    is_near = np.repeat(np.isin(here, there), rows.sizes.sum(axis=1))
    is_near &= np.isin(rows.ticks, gone.ticks[np.unique(gone.codes)])[rows.codes]
    near, left = np.flatnonzero(is_near), np.arange(len(gone.values))
    codes = _row_codes([(rows, here, near), (gone, there, left)])
    mine, theirs = codes[: len(near)], codes[len(near) :]
    distinct, counts = np.unique(theirs, return_counts=True)
    at = np.minimum(distinct.searchsorted(mine), len(distinct) - 1)
    is_equal = distinct[at] == mine
    near, at = near[is_equal], at[is_equal]
    out = near[occurrences(at) < counts[at]]
    if len(out) != len(theirs):
        raise absent()
    lost = np.bincount(_cells_of(rows, out), minlength=rows.sizes.size).reshape(rows.sizes.shape)
    return replace(
        rows, sizes=rows.sizes - lost, values=np.delete(rows.values, out), codes=np.delete(rows.codes, out)
    )


def _same_groups(rows: PackedRows, gone: PackedRows) -> tuple[Ints, Ints]:
    """For each stretch a number that is the same for the same group."""
    if not rows.groups:
        return np.zeros(len(rows.sizes), np.int64), np.zeros(len(gone.sizes), np.int64)
    columns = [unify_names(both) for both in zip(rows.groups, gone.groups, strict=True)]
    codes = combine_codes(
        [np.concatenate(of_parts) for _, of_parts in columns], [len(names) for names, _ in columns]
    )
    return codes[: len(rows.sizes)], codes[len(rows.sizes) :]


def _row_codes(parts: list[tuple[PackedRows, Ints, Ints]]) -> Ints:
    """The same integer for equal rows. Of each part: its rows, the group of each stretch, and which rows."""
    cells = [_cells_of(rows, places) for rows, _, places in parts]
    kinds = np.concatenate([of_part % KINDS for of_part in cells])
    values = np.concatenate([rows.values[places] for rows, _, places in parts])
    columns = [
        np.concatenate([groups[own // KINDS] for (_, groups, _), own in zip(parts, cells, strict=True)]),
        np.where(kinds == 0, values, values.dtype.type(0)),  # of NaN and NULL it is undefined
        np.concatenate([rows.ticks[rows.codes[places]] for rows, _, places in parts]),
    ]
    found = [np.unique(column, return_inverse=True) for column in columns]
    codes = [kinds, *(of_row for _, of_row in found)]
    return combine_codes(codes, [KINDS, *(len(distinct) for distinct, _ in found)])


def _cells_of(rows: PackedRows, places: NDArray[Any]) -> Ints:
    """The stretch and the kind of rows, as an index of the flattened `sizes`."""
    return np.cumsum(rows.sizes.ravel()).searchsorted(places, "right")
