"""Exact counts, ranks and values of a measure by any group, for any filter, by a scan of `events`.

One statement of DuckDB reads the selected rows (row_source.py), or threads read whole files of numbers
(plain_files.py). If the rows fit into memory (`most_held`), they are held there (held_rows.py). If not, they
go into a temporary table: the stored keys of the group, the stored value, and whether the row is live. This
one scan answers all questions, inside DuckDB (grouped_rows.py). DuckDB spills what does not fit into its
memory to a temporary folder.

Cost: one read of the columns that are used, in all files with rows of the window; 9 bytes and the group's
keys for each selected row, in memory or on disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from tidemark.query.reading.sorted_parts import Ints, RankedValues
from tidemark.query.scans.coded_rows import MOST_CODES, bytes_a_row
from tidemark.query.scans.grouped_rows import GroupedRows
from tidemark.query.scans.held_rows import LISTED_BYTES, HeldRows
from tidemark.query.scans.open_scan import OpenScan, Selected
from tidemark.query.scans.row_source import RowSource
from tidemark.query.scans.scanned_rows import ScannedGroups, ScannedRows
from tidemark.warehouse.columns.exact_sums import Sums
from tidemark.warehouse.columns.ticks import Window
from tidemark.warehouse.columns.value_encoding import Measure
from tidemark.warehouse.errors import InputError
from tidemark.warehouse.snapshots.system_tables import AnyContents


def most_held(memory: int, source: RowSource) -> int:
    """How many rows of a source are answered from memory, where DuckDB may use so many bytes."""
    columns = len(source.group_columns)
    is_coded = columns and source.most_codes <= MOST_CODES
    return memory // (bytes_a_row(columns) if is_coded else LISTED_BYTES)


class EventScan(OpenScan):
    """A scan of the values of a measure; the first question reads the rows, the others do not read again.

    Groups are numbered from 0 in the order of `groups`; arguments and results by group have this order.
    """

    def __init__(
        self,
        contents: AnyContents,
        measure: Measure,
        windows: Sequence[Window],
        *,
        summed: bool = False,
        **selected: Unpack[Selected],
    ) -> None:
        """See `OpenScan`, which has the parameters about the rows that are selected.

        summed: whether `sums` and `ends` are to be asked, and nothing else.
        """
        super().__init__(contents, windows, measure=measure, **selected)
        self._measure, self._source.as_text = measure, True
        self._source.summed = summed

    def close(self) -> None:
        """See `OpenScan.close`."""
        self.__dict__.pop("_scanned", None)
        super().close()

    def groups(self) -> ScannedGroups:
        """The groups that have rows, ascending, those of a group by window.

        Without `by` and with one window it is one group of all rows, which may have none.
        """
        return self._scanned.groups

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of stored values."""
        return self._measure.dtype

    def values_at(self, ranks: Sequence[Sequence[int] | Ints]) -> list[RankedValues]:
        """The stored values of ranks in each group: rank r is that of the r-th number by value.

        ranks   for each group, ranks from 1 to its numbers, n + m - nans, in any order; none for a group that
                is not asked

        InputError for a rank outside of its group.
        """
        groups, given = self.groups(), [np.asarray(wanted, np.int64) for wanted in ranks]
        if len(given) != len(groups):
            raise InputError(f"expected the ranks of {len(groups)} groups, got those of {len(given)}.")
        for at, (stored, wanted) in enumerate(zip(groups.stored.tolist(), given, strict=True)):
            if len(wanted) and not (wanted.min() >= 1 and wanted.max() <= stored):
                raise InputError(
                    f"the group {groups.values_at(at)} has ranks from 1 to {stored}, got {wanted.tolist()}."
                )
        return self._scanned.values_at(given)

    def same_values_at(self, ranks: Ints) -> RankedValues:
        """The same for as many ranks of each group, shape (groups, k).

        The result for a rank that a group does not have is undefined.
        """
        return self._scanned.same_values_at(ranks)

    def ranks_at(self, points: Sequence[NDArray[Any]]) -> list[Ints]:
        """The rows of each group whose stored value is <= points of that group; NaN is <= nothing.

        points   for each group stored values in any order. InputError for NaN
        """
        given = [np.asarray(own, self._measure.dtype) for own in points]
        if any(np.isnan(own).any() for own in given):
            raise InputError("NaN has no rank. Ask for a number, or for the NaN count.")
        return self._scanned.ranks_at(given)

    def sums(self) -> Sequence[Sums]:
        """The exact sums of the numbers of each group."""
        return self._scanned.sums()

    def ends(self) -> NDArray[Any]:
        """(groups, 2): the least and the greatest number of each group, 0 for a group without numbers."""
        return self._scanned.ends()

    @cached_property
    def _scanned(self) -> ScannedRows:
        """The selected rows, in memory or in a temporary table; they are read once."""
        source = self._source
        with self._reading() as relation:
            rows = source.spread(f"({relation})")
            if source.most_rows <= most_held(self.memory, source):
                return self._held(rows)
            self.keep("scanned", f"FROM {source.stored(rows)}")
        source.texts = frozenset()  # the table has bytes
        ((count,),) = self.rows("SELECT count(*) FROM scanned")
        if count > most_held(self.memory, source):
            return GroupedRows(source, self._measure, self)
        return self._held("scanned")

    def _held(self, rows: str) -> HeldRows:
        if self._source.group_columns:
            return HeldRows.by_group(self._source, rows, self)
        return HeldRows.of_all(self.columns(f"FROM {rows}"))
