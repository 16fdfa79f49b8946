"""What a scan answers about its selected rows, and the answers where all of them fit into memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidemark.query.reading.row_counts import RowCounts
from tidemark.warehouse.columns.exact_sums import Sums
from tidemark.warehouse.columns.tick_sums import TickSummer
from tidemark.warehouse.columns.value_encoding import as_numpy, as_numpy_bools, single_array

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

Ints = NDArray[np.int64]

_FEW = 8  # ranks that are found without a sort


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannedGroup(RowCounts):
    """A group and its rows in a window.

    values   of the group's columns, in their own types
    window   the index of the window
    """

    values: tuple[Any, ...]
    window: int


class RankedValues(NamedTuple):
    """Values of ranks, in their order, and the number of rows <= each of them."""

    values: NDArray[Any]
    ranks_le: Ints


class ScannedRows(Protocol):
    """The selected rows of a scan. Arguments and results by group have the order of `groups`."""

    groups: list[ScannedGroup]

    def values_at(self, ranks: Sequence[Ints]) -> list[RankedValues]:
        """The values of ranks of each group, which has them."""

    def ranks_at(self, points: Sequence[NDArray[Any]]) -> list[Ints]:
        """The rows of each group whose value is <= points of that group."""

    def sums(self) -> list[Sums]:
        """The exact sums of the numbers of each group."""


class Asker(Protocol):
    """Runs statements of DuckDB."""

    connection: DuckDBPyConnection

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        """The rows of a statement."""

    def columns(self, statement: str) -> pa.Table:
        """The rows of a statement, each column in one piece."""


class HeldRows:
    """Rows of one group in memory; see `ScannedRows`. Ranks are found by partition, many by a sort.

    table: the columns of `RowSource.relation`: whether a row is live, and its value.
    """

    def __init__(self, table: pa.Table) -> None:
        live, values = map(single_array, table.columns)
        is_live, filled = as_numpy(live).astype(bool), ~as_numpy_bools(values.is_null())
        stored = as_numpy(values.drop_null())
        numbers = stored[~np.isnan(stored)] if stored.dtype == np.float64 else stored
        m, nans = int(np.count_nonzero(is_live & filled)), len(stored) - len(numbers)
        self._numbers, self._is_sorted = numbers, False
        self.groups = [
            ScannedGroup(
                n=len(stored) - m, m=m, nans=nans, nulls=len(filled) - len(stored), values=(), window=0
            )
        ]

    def values_at(self, ranks: Sequence[Ints]) -> list[RankedValues]:
        """See `ScannedRows.values_at`."""
        wanted = ranks[0] - 1
        if len(wanted) > _FEW:
            self._sort()
        elif len(wanted) and not self._is_sorted:
            self._numbers = np.partition(self._numbers, np.unique(wanted))
        values = self._numbers[wanted]
        return [RankedValues(values, self._ranks_le(values))]

    def ranks_at(self, points: Sequence[NDArray[Any]]) -> list[Ints]:
        """See `ScannedRows.ranks_at`."""
        return [self._ranks_le(points[0])]

    def sums(self) -> list[Sums]:
        """See `ScannedRows.sums`."""
        tick = np.zeros(1, np.int64)
        summer = TickSummer(tick)
        summer.add(self._numbers, np.broadcast_to(tick, self._numbers.shape))
        return [summer.finish().before[-1]]

    def _ranks_le(self, points: NDArray[Any]) -> Ints:
        if len(points) > _FEW:
            self._sort()
        if self._is_sorted:
            return self._numbers.searchsorted(points, "right").astype(np.int64)
        return np.array([np.count_nonzero(self._numbers <= point) for point in points], np.int64)

    def _sort(self) -> None:
        if not self._is_sorted:
            self._numbers, self._is_sorted = np.sort(self._numbers), True
