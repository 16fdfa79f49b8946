"""The selected rows of a scan in memory: DuckDB lists the numbers of each group, ranks are found here.

Cost: some nanoseconds a row. A few ranks are found by selection, others by a sort (reading/number_parts.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidemark.query.answers.answer_columns import Picked
from tidemark.query.reading.number_parts import NumberParts
from tidemark.query.reading.sorted_parts import Ints, RankedValues
from tidemark.query.reading.sql_text import quoted
from tidemark.query.scans.row_source import LIVE, VALUE, RowSource
from tidemark.query.scans.scanned_rows import Asker, ScannedGroups
from tidemark.warehouse.columns.exact_sums import Sums
from tidemark.warehouse.columns.value_encoding import as_numpy, as_numpy_bools, single_array

_VALUE, _LIVE = quoted(VALUE), quoted(LIVE)


class HeldRows:
    """See `ScannedRows`.

    groups: the groups, in the order of the results. order: (groups,) order[g] is the index of the part of
        group g.
    numbers: those of part i are ``numbers[edges[i] : edges[i + 1]]``, in any order.
    """

    def __init__(self, groups: ScannedGroups, order: Ints, numbers: NDArray[Any], edges: Ints) -> None:
        self.groups, self._parts = groups, NumberParts(numbers, edges)
        self._order, self._places = order, np.empty_like(order)
        self._places[order] = np.arange(len(order))

    @classmethod
    def of_all(cls, table: pa.Table) -> HeldRows:
        """All rows as one group.

        table: the columns of `RowSource.relation`: whether a row is live, and its value.
        """
        live, values = map(single_array, table.columns)
        is_null = as_numpy_bools(values.is_null())
        m = int(np.count_nonzero(as_numpy(live).astype(bool) & ~is_null))
        numbers, edges, counts = _numbers(values, np.array([0, len(values)]), np.array([m]))
        here = np.zeros(1, np.int64)
        return cls(ScannedGroups((), (), (), here, counts), here, numbers, edges)

    @classmethod
    def by_group(cls, source: RowSource, relation: str, asker: Asker) -> HeldRows:
        """The rows by the columns of the group of the source.

        relation: SQL of the rows, to be run once.
        """
        columns = source.group_columns
        stored = [f"encode({name}) AS {name}" if name in source.texts else name for name in columns]
        m = f"count(CASE WHEN {_LIVE} = 1 THEN {_VALUE} END)" if source.has_live else "0::BIGINT"
        listed = f"SELECT {', '.join(columns)}, {m} AS m, list({_VALUE}) AS numbers FROM {relation}"
        table = asker.columns(
            f"SELECT {', '.join(stored)}, m, numbers FROM ({listed} GROUP BY {', '.join(columns)})"
        )
        lists = single_array(table.column("numbers"))
        edges = as_numpy(lists.offsets).astype(np.int64)
        values = lists.values.slice(edges[0], edges[-1] - edges[0])
        numbers, edges, counts = _numbers(values, edges - edges[0], as_numpy(table.column("m")))
        names = [single_array(table.column(i)) for i in range(len(columns))]
        groups, order = ScannedGroups.of(source, names, counts)
        return cls(groups, order, numbers, edges)

    def values_at(self, ranks: Sequence[Ints]) -> list[RankedValues]:
        """See `ScannedRows.values_at`."""
        found = self._parts.values_at([ranks[group] for group in self._places.tolist()])
        return [found[part] for part in self._order.tolist()]

    def same_values_at(self, ranks: Ints) -> RankedValues:
        """See `ScannedRows.same_values_at`."""
        values, ranks_le = self._parts.same_values_at(ranks[self._places])
        return RankedValues(values[self._order], ranks_le[self._order])

    def ranks_at(self, points: Sequence[NDArray[Any]]) -> list[Ints]:
        """See `ScannedRows.ranks_at`."""
        found = self._parts.ranks_at([points[group] for group in self._places.tolist()])
        return [found[part] for part in self._order.tolist()]

    def sums(self) -> Sequence[Sums]:
        """See `ScannedRows.sums`."""
        return Picked(self._parts.sums(), self._order)

    def ends(self) -> NDArray[Any]:
        """See `ScannedRows.ends`."""
        return self._parts.ends()[self._order]


def _numbers(values: pa.Array, edges: Ints, m: Ints) -> tuple[NDArray[Any], Ints, Ints]:
    """The numbers of each part without NaN and NULL, their edges, and the counts of `ScannedGroups`.

    m: for each part the number of live rows whose value is not NULL.
    """
    is_null = as_numpy_bools(values.is_null()) if values.null_count else np.zeros(0, bool)
    stored, edges, nulls = _without(is_null, as_numpy(values.drop_null()), edges)
    filled = np.diff(edges)
    is_nan = np.isnan(stored) if stored.dtype.kind == "f" else np.zeros(0, bool)
    numbers, edges, nans = _without(is_nan, stored[~is_nan] if is_nan.any() else stored, edges)
    return numbers, edges, np.stack([filled - m, m, nans, nulls], axis=1)


def _without(is_out: NDArray[np.bool_], kept: NDArray[Any], edges: Ints) -> tuple[NDArray[Any], Ints, Ints]:
    """(kept, the edges of its parts, how many values were taken out of each part).

    is_out: whether each value was taken out; empty if none was. kept: the values without these.
    edges: those of the parts before that.
    """
    if not is_out.any():
        return kept, edges, np.zeros(len(edges) - 1, np.int64)
    before = np.concatenate([[0], np.cumsum(is_out)])[edges]
    return kept, edges - before, np.diff(before)
