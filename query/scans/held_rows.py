"""The selected rows of a scan in memory by group, and their ranks.

DuckDB lists the values of each group, which takes some tens of nanoseconds a row. Groups of integers that lie
close together are divided by coded_rows.py in half of that time. A few ranks are then found by selection,
others by a sort (reading/number_parts.py).
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
from tidemark.query.scans.asked_rows import LIVE, VALUE
from tidemark.query.scans.coded_rows import MOST_CODES, CodedRows, present
from tidemark.query.scans.open_scan import OpenScan
from tidemark.query.scans.plain_files import FileReading
from tidemark.query.scans.row_source import RowSource
from tidemark.query.scans.scanned_rows import ScannedGroups
from tidemark.warehouse.columns.exact_sums import Sums
from tidemark.warehouse.columns.value_encoding import as_numpy, single_array

_VALUE, _LIVE = quoted(VALUE), quoted(LIVE)
LISTED_BYTES = 32  # of a row: 8 in a list that DuckDB may double while it grows, 8 in what it hands over


class HeldRows:
    """See `ScannedRows`.

    groups: the groups, in the order of the results. order: (groups,) order[g] is the index of the part of
        group g.
    parts: the numbers of each.
    """

    def __init__(self, groups: ScannedGroups, order: Ints, parts: NumberParts | CodedRows) -> None:
        self.groups, self._parts = groups, parts
        self._order, self._places = order, np.empty_like(order)
        self._places[order] = np.arange(len(order))

    @classmethod
    def of_all(cls, table: pa.Table) -> HeldRows:
        """All rows as one group.

        table: the columns of `RowSource.relation`: whether a row is live, and its value.
        """
        values, is_null = present(table.column(1))
        is_live = as_numpy(table.column(0)).astype(bool)
        m = np.count_nonzero(is_live) - np.count_nonzero(is_live[: len(is_null)] & is_null)
        values, edges, nulls = _without(is_null, values, np.array([0, len(values)]))
        numbers, edges, counts = _numbers(values, edges, np.array([m]), nulls)
        here = np.zeros(1, np.int64)
        return cls(ScannedGroups((), (), (), here, counts), here, NumberParts(numbers, edges))

    @classmethod
    def by_group(cls, source: RowSource, relation: str, asker: OpenScan) -> HeldRows:
        """The rows by the columns of the group of the source.

        relation: SQL of the rows, to be run once.
        """
        parts: NumberParts | CodedRows
        if source.most_codes <= MOST_CODES:
            parts = _coded(source, relation, asker)
            stored, counts = parts.stored, parts.counts
        else:
            stored, numbers, edges, counts = _divided(source, relation, asker)
            parts = NumberParts(numbers, edges)
        groups, order = ScannedGroups.of(source, stored, counts)
        return cls(groups, order, parts)

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


def _coded(source: RowSource, relation: str, asker: OpenScan) -> CodedRows:
    """The rows by group; they are read without DuckDB where that is possible."""
    files, measure = source.plain, source.measure
    if files and measure is not None:
        reading = FileReading(files)
        rows = asker.watched(
            lambda: CodedRows.of_files(
                files, source.spans, measure, source.by, reading, summed=source.summed
            ),
            reading.stop,
            lambda: reading.share,
        )
        if rows is not None:
            return rows
    given = [*source.group_columns, _VALUE, *([_LIVE] if source.has_live else [])]
    table = asker.table(f"SELECT {', '.join(given)} FROM {relation}")
    return CodedRows.of(table, len(source.group_columns))


def _divided(
    source: RowSource, relation: str, asker: OpenScan
) -> tuple[list[pa.Array], NDArray[Any], Ints, Ints]:
    """The stored values of each column of the group, at least one, and `_numbers` of the groups."""
    columns = source.group_columns
    stored = [f"encode({name}) AS {name}" if name in source.texts else name for name in columns]
    m = f"count(CASE WHEN {_LIVE} = 1 THEN {_VALUE} END)" if source.has_live else "0::BIGINT"
    listed = f"SELECT {', '.join(columns)}, {m} AS m, list({_VALUE}) AS numbers FROM {relation}"
    table = asker.columns(
        f"SELECT {', '.join(stored)}, m, numbers FROM ({listed} GROUP BY {', '.join(columns)})"
    )
    lists = single_array(table.column("numbers"))
    edges = as_numpy(lists.offsets).astype(np.int64)
    values, is_null = present(lists.values.slice(edges[0], edges[-1] - edges[0]))
    values, edges, nulls = _without(is_null, values, edges - edges[0])
    names = [single_array(table.column(i)) for i in range(len(columns))]
    return names, *_numbers(values, edges, as_numpy(table.column("m")), nulls)


def _without(is_out: NDArray[np.bool_], values: NDArray[Any], edges: Ints) -> tuple[NDArray[Any], Ints, Ints]:
    """(the values that stay, the edges of their parts, how many values were taken out of each part).

    is_out: whether each value is taken out; empty if none is.
    """
    if not is_out.any():
        return values, edges, np.zeros(len(edges) - 1, np.int64)
    before = np.concatenate([[0], np.cumsum(is_out)])[edges]
    return values[~is_out], edges - before, np.diff(before)


def _numbers(values: NDArray[Any], edges: Ints, m: Ints, nulls: Ints) -> tuple[NDArray[Any], Ints, Ints]:
    """The numbers of each part without NaN, their edges, and the counts of `ScannedGroups`.

    values: those that are not NULL; those of part i are ``values[edges[i] : edges[i + 1]]``.
    m, nulls: for each part how many of these are live, and how many of its rows have NULL.
    """
    filled = np.diff(edges)
    is_nan = np.isnan(values) if values.dtype.kind == "f" else np.zeros(0, bool)
    numbers, edges, nans = _without(is_nan, values, edges)
    return numbers, edges, np.stack([filled - m, m, nans, nulls], axis=1)
