"""Selects the rows that equal one of the given rows in some columns.

Model. The given rows are held in memory, each distinct row once, in the order of a 64-bit hash of their
columns. A row is looked up by its hash, and then compared with the given rows of that hash, value by value.
So equal hashes alone do not select a row. Columns of nested types are compared by their hashes.

Values are compared as GROUP BY does: NaN equals NaN, -0.0 equals 0.0, text is compared by its bytes. NULL
equals nothing, or NULL, as `nulls_match` says.

A file is not read if its statistics show that it has no such row (value_ranges.py).

Cost: O(1) for most rows that equal none, else O(log k), with k given rows; memory is that of the given rows,
in the driver and in each task.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidemark.warehouse.columns.arrow_buffers import arrow_array, zero_for_null
from tidemark.warehouse.columns.value_encoding import as_numpy, as_numpy_bools
from tidemark.warehouse.ingest.column_casts import cast_rows
from tidemark.warehouse.integrity.digests import row_hashes, value_hashes
from tidemark.warehouse.removals.conditions import RowCondition, Share
from tidemark.warehouse.removals.value_ranges import ColumnRanges, EventTime, may_hold, ranges_of

# Most rows equal no given one. A table of bytes, several for each given row, leaves them out sooner than a
# search does; it is to stay in the processor's cache.
_TABLE_SHARE, _TABLE_DIGITS = 16, 22

Places = NDArray[np.int64]  # places of rows among the given ones; -1 for a row that equals none


@dataclass(frozen=True, slots=True, eq=False)
class RowValues:
    """Given rows by which rows are selected; see the module.

    rows          the distinct given rows, in the order of `hashes`
    hashes        the hash of each, ascending
    nulls_match   whether NULL equals NULL; otherwise a row with NULL equals none
    ranges        the ranges of the columns with statistics, by which files are left out; tasks need none
    """

    rows: pa.RecordBatch
    hashes: NDArray[np.uint64]
    nulls_match: bool
    ranges: tuple[ColumnRanges, ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, rows: pa.RecordBatch, *, nulls_match: bool, time: EventTime | None = None) -> RowValues:
        """By rows in any order, which may repeat; `time` tells files apart by the ticks of their rows."""
        if not nulls_match:
            rows = rows.take(arrow_array(np.flatnonzero(~_has_null(rows))))
        hashes = row_hashes(rows)
        order = np.argsort(hashes, kind="stable")
        rows, hashes = rows.take(arrow_array(order)), hashes[order]
        earlier = np.arange(max(0, len(hashes) - 1))
        repeats = np.zeros(len(hashes), np.bool_)
        repeats[1:] = (hashes[1:] == hashes[:-1]) & _same(rows, earlier + 1, rows, earlier)
        first = np.flatnonzero(~repeats)
        distinct = rows.take(arrow_array(first))
        return cls(distinct, hashes[first], nulls_match, ranges_of(distinct, time))

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(self.rows.schema.names)

    @property
    def constants(self) -> tuple[str, ...]:
        """The texts of the given rows; their other values if they have no text."""
        columns = (column.to_pylist() for column in self.rows.columns)
        values = [value for column in columns for value in column if value is not None]
        texts = [value for value in values if isinstance(value, str)]
        return tuple(dict.fromkeys(texts or map(str, values)))

    def share(self, stats: Mapping[str, Any]) -> Share:
        """See `RowCondition.share`; never "all"."""
        return "some" if may_hold(self.ranges, self.rows.num_rows, stats) else "none"

    def __reduce__(self) -> Any:
        """Without the ranges: a task has its file."""
        return RowValues, (self.rows, self.hashes, self.nulls_match)

    def mask(self, rows: pa.Table) -> NDArray[np.bool_]:
        """See `RowCondition.mask`."""
        return self.places(rows) >= 0

    def places(self, rows: pa.Table) -> Places:
        """For each row the place in `self.rows` of the given row that it equals; -1 for none."""
        own = cast_rows(rows.select(list(self.columns)), self.rows.schema)
        hashes, found = row_hashes(own), np.full(own.num_rows, -1, np.int64)
        left = self._candidates(hashes)
        if not self.nulls_match:
            left = left[~_has_null(own)[left]]
        at, stop = (self.hashes.searchsorted(hashes[left], side) for side in ("left", "right"))
        while (there := at < stop).any():
            left, at, stop = left[there], at[there], stop[there]
            same = _same(own, left, self.rows, at)
            found[left[same]] = at[same]
            left, at, stop = left[~same], at[~same] + 1, stop[~same]
        return found

    def _candidates(self, hashes: NDArray[np.uint64]) -> NDArray[np.intp]:
        """The numbers of the hashes that may be those of given rows, by a table of their low digits."""
        digits = min(_TABLE_DIGITS, (_TABLE_SHARE * len(self.hashes)).bit_length())
        low, table = np.uint64(2**digits - 1), np.zeros(2**digits, np.bool_)
        table[(self.hashes & low).view(np.int64)] = True
        return np.flatnonzero(table[(hashes & low).view(np.int64)])


def all_of(*conditions: RowCondition | None) -> RowCondition | None:
    """Selects the rows that all of these select, the first one asked first; None for no condition."""
    asked = [one for one in conditions if one is not None]
    return reduce(BothConditions, asked) if asked else None


@dataclass(frozen=True, slots=True)
class BothConditions:
    """Selects the rows that both conditions select; the second is asked only about rows of the first."""

    first: RowCondition
    second: RowCondition

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of both."""
        return tuple(dict.fromkeys([*self.first.columns, *self.second.columns]))

    @property
    def constants(self) -> tuple[str, ...]:
        """The constants of both."""
        return tuple(dict.fromkeys([*self.first.constants, *self.second.constants]))

    def share(self, stats: Mapping[str, Any]) -> Share:
        """See `RowCondition.share`."""
        shares = {self.first.share(stats), self.second.share(stats)}
        return "none" if "none" in shares else "all" if shares == {"all"} else "some"

    def mask(self, rows: pa.Table) -> NDArray[np.bool_]:
        """See `RowCondition.mask`."""
        mask = self.first.mask(rows)
        places = np.flatnonzero(mask)
        if len(places):
            mask[places] = self.second.mask(rows.take(arrow_array(places)))
        return mask


def _has_null(rows: pa.RecordBatch) -> NDArray[np.bool_]:
    found = np.zeros(rows.num_rows, np.bool_)
    for column in rows.columns:
        if column.null_count:
            found |= as_numpy_bools(column.is_null())
    return found


def _same(
    rows: pa.RecordBatch, places: NDArray[np.int64], others: pa.RecordBatch, at: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Whether row ``places[i]`` of the first equals row ``at[i]`` of the others; NULL equals NULL."""
    mine, theirs = rows.take(arrow_array(places)), others.take(arrow_array(at))
    same = np.ones(len(places), np.bool_)
    for left, right in zip(mine.columns, theirs.columns, strict=True):
        same &= _same_values(left, right)
    return same


def _same_values(left: pa.Array, right: pa.Array) -> NDArray[np.bool_]:
    if pa.types.is_nested(left.type):
        same: NDArray[np.bool_] = value_hashes(left, signed_zeros=False) == value_hashes(
            right, signed_zeros=False
        )
        return same
    no_left, no_right = (as_numpy_bools(one.is_null()) for one in (left, right))
    if pa.types.is_floating(left.type):
        mine, theirs = (as_numpy(zero_for_null(one)) for one in (left, right))
        equal = (mine == theirs) | (np.isnan(mine) & np.isnan(theirs))
    else:
        equal = as_numpy_bools(zero_for_null(pc.equal(left, right)))
    return np.where(no_left | no_right, no_left & no_right, equal)
