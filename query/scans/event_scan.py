"""Exact counts, ranks and values of a measure by any group, for any filter, by a scan of `events`.

One statement of DuckDB reads the selected rows (row_source.py). Rows of one group that fit into memory answer
from there (scanned_rows.py). All others are kept in a temporary table: the stored keys of the group, the
stored value, and whether the row is live. This one scan answers all questions, inside DuckDB
(grouped_rows.py), which spills to a temporary folder what does not fit into its memory.

Cost: one read of the columns that are used, in all files with rows of the window; 9 bytes and the group's
keys for each selected row, in memory or on disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from tidemark.query.scans.grouped_rows import GroupedRows
from tidemark.query.scans.open_scan import OpenScan, Selected
from tidemark.query.scans.scanned_rows import HeldRows, Ints, RankedValues, ScannedGroup, ScannedRows
from tidemark.warehouse.columns.exact_sums import Sums
from tidemark.warehouse.columns.ticks import Window
from tidemark.warehouse.columns.value_encoding import Measure
from tidemark.warehouse.errors import InputError
from tidemark.warehouse.snapshots.system_tables import Contents

HELD_ROWS = 2**22  # of one group that are answered from memory, 9 bytes each


class EventScan(OpenScan):
    """A scan of the values of a measure; the first question reads the rows, the others do not read again.

    Groups are numbered from 0 in the order of `groups`; arguments and results by group have this order.
    """

    def __init__(
        self, contents: Contents, measure: Measure, windows: Sequence[Window], **selected: Unpack[Selected]
    ) -> None:
        """See `OpenScan`, which has the parameters about the rows that are selected."""
        super().__init__(contents, windows, measure=measure, **selected)
        self._measure = measure
        self._rows: ScannedRows | None = None

    def close(self) -> None:
        """See `OpenScan.close`."""
        self._rows = None
        super().close()

    def groups(self) -> list[ScannedGroup]:
        """The groups that have rows, ascending, those of a group by window.

        Without `by` and with one window it is one group of all rows, which may have none.
        """
        return self._scanned().groups

    def values_at(self, ranks: Sequence[Sequence[int] | Ints]) -> list[RankedValues]:
        """The stored values of ranks in each group: rank r is that of the r-th number by value.

        ranks   for each group, ranks from 1 to its numbers, n + m - nans, in any order; none for a group that
                is not asked

        InputError for a rank outside of its group.
        """
        groups, given = self.groups(), [np.asarray(wanted, np.int64) for wanted in ranks]
        if len(given) != len(groups):
            raise InputError(f"expected the ranks of {len(groups)} groups, got those of {len(given)}.")
        for group, wanted in zip(groups, given, strict=True):
            if len(wanted) and not (wanted.min() >= 1 and wanted.max() <= group.stored):
                raise InputError(
                    f"the group {group.values} has ranks from 1 to {group.stored}, got {wanted.tolist()}."
                )
        return self._scanned().values_at(given)

    def ranks_at(self, points: Sequence[NDArray[Any]]) -> list[Ints]:
        """The rows of each group whose stored value is <= points of that group; NaN is <= nothing.

        points   for each group stored values in any order. InputError for NaN
        """
        given = [np.asarray(own, self._measure.dtype) for own in points]
        if any(np.isnan(own).any() for own in given):
            raise InputError("NaN has no rank. Ask for a number, or for the NaN count.")
        return self._scanned().ranks_at(given)

    def sums(self) -> list[Sums]:
        """The exact sums of the numbers of each group."""
        return self._scanned().sums()

    def _scanned(self) -> ScannedRows:
        """The selected rows; they are read once."""
        if self._rows is None:
            self._rows = self._read(self._kept)
        return self._rows

    def _kept(self, relation: str) -> ScannedRows:
        """The rows of the relation, in memory or in a temporary table."""
        if not self._source.group_columns and self._source.most_rows <= HELD_ROWS:
            return HeldRows(self.columns(relation))
        self.rows(f"CREATE OR REPLACE TEMP TABLE scanned AS FROM {self._source.spread(f'({relation})')}")
        self._is_reading = False
        return GroupedRows(self._source, self._measure, self)
