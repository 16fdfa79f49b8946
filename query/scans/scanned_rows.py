"""The groups that a scan found, and answers about their rows, by held_rows.py or grouped_rows.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, overload

import numpy as np
import pyarrow as pa

from tidemark.query.reading.row_counts import RowCounts
from tidemark.query.reading.sorted_parts import Ints, Numbers
from tidemark.query.scans.row_source import RowSource
from tidemark.warehouse.columns.codes import combine_codes, stable_order
from tidemark.warehouse.columns.keys import Key, Names, name_at, names_of, unify_names
from tidemark.warehouse.columns.value_encoding import as_numpy


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannedGroup(RowCounts):
    """A group and its rows in a window.

    values   of the group's columns, in their own types
    window   the index of the window
    """

    values: tuple[Any, ...]
    window: int


@dataclass(frozen=True, slots=True, eq=False)
class ScannedGroups(Sequence[ScannedGroup]):
    """The groups that have rows, ascending, those of a group by window; each is an object once it is taken.

    keys     the columns of the group
    names    for each column the names that groups have, ascending
    codes    for each column (groups,) the index of each group's name
    windows  (groups,) the index of each one's window
    counts   (groups, 4): n, m, nans and nulls of `RowCounts`
    """

    keys: tuple[Key, ...]
    names: tuple[Names, ...]
    codes: tuple[Ints, ...]
    windows: Ints
    counts: Ints

    @classmethod
    def of(cls, source: RowSource, columns: Sequence[pa.Array], counts: Ints) -> tuple[ScannedGroups, Ints]:
        """The groups, and for each its place among the given ones, which are in any order.

        columns: those of `source.group_columns`. counts: see the class.
        """
        names = [names_of(key, column) for key, column in zip(source.by, columns, strict=False)]
        windows = np.zeros(len(counts), np.int64)
        if source.buckets is not None:
            windows = source.buckets.windows_of(as_numpy(columns[-1]))
        unified = [unify_names([column]) for column in names]
        codes = [column for _, (column,) in unified]
        sizes = [*(len(known) for known, _ in unified), len(source.windows)]
        order = stable_order(combine_codes([*codes, windows], sizes))
        return (
            cls(
                source.by,
                tuple(known for known, _ in unified),
                tuple(column[order] for column in codes),
                windows[order],
                counts[order],
            ),
            order,
        )

    @property
    def stored(self) -> Ints:
        """(groups,) how many rows are numbers."""
        n, m, nans, _ = self.counts.T
        numbers: Ints = n + m - nans
        return numbers

    def __len__(self) -> int:
        return len(self.windows)

    @overload
    def __getitem__(self, at: int) -> ScannedGroup: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[ScannedGroup]: ...
    def __getitem__(self, at: int | slice) -> ScannedGroup | Sequence[ScannedGroup]:
        """One group, or those of a slice."""
        if isinstance(at, slice):
            return [self[place] for place in range(*at.indices(len(self)))]
        n, m, nans, nulls = self.counts[at].tolist()
        return ScannedGroup(
            n=n, m=m, nans=nans, nulls=nulls, values=self.values_at(at), window=int(self.windows[at])
        )

    def values_at(self, at: int) -> tuple[Any, ...]:
        """The values of the group's columns."""
        return tuple(
            key.value_of(name_at(names, int(codes[at])))
            for key, names, codes in zip(self.keys, self.names, self.codes, strict=True)
        )


class ScannedRows(Numbers, Protocol):
    """The selected rows of a scan. Arguments and results by group have the order of `groups`."""

    groups: ScannedGroups
