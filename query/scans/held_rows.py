"""The selected rows of a scan in memory by group (from coded_rows.py or divided_rows.py), and their ranks.

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
from tidemark.query.scans.asked_rows import LIVE, VALUE
from tidemark.query.scans.coded_rows import MOST_CODES, CodedRows
from tidemark.query.scans.divided_rows import divided_rows, present, without
from tidemark.query.scans.plain_files import FileReading
from tidemark.query.scans.row_source import RowSource
from tidemark.query.scans.scanned_rows import Asker, ScannedGroups
from tidemark.warehouse.columns.exact_sums import Sums
from tidemark.warehouse.columns.value_encoding import as_numpy


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
        values, edges, nulls = without(is_null, values, np.array([0, len(values)]))
        numbers, edges, counts = _numbers(values, edges, np.array([m]), nulls)
        here = np.zeros(1, np.int64)
        return cls(ScannedGroups((), (), (), here, counts), here, NumberParts(numbers, edges))

    @classmethod
    def by_group(cls, source: RowSource, relation: str, asker: Asker) -> HeldRows:
        """The rows by the columns of the group of the source.

        relation: SQL of the rows, to be run once.
        """
        parts: NumberParts | CodedRows
        if source.most_codes <= MOST_CODES:
            parts = _coded(source, relation, asker)
            stored, counts = parts.stored, parts.counts
        else:
            stored, *divided = divided_rows(source, relation, asker)
            numbers, edges, counts = _numbers(*divided)
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


def _coded(source: RowSource, relation: str, asker: Asker) -> CodedRows:
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
    given = [*source.group_columns, quoted(VALUE), *([quoted(LIVE)] if source.has_live else [])]
    table = asker.table(f"SELECT {', '.join(given)} FROM {relation}")
    return CodedRows.of(table, len(source.group_columns))


def _numbers(values: NDArray[Any], edges: Ints, m: Ints, nulls: Ints) -> tuple[NDArray[Any], Ints, Ints]:
    """The numbers of each part without NaN, their edges, and the counts of `ScannedGroups`.

    The arguments are those of `DividedRows`.
    """
    filled = np.diff(edges)
    is_nan = np.isnan(values) if values.dtype.kind == "f" else np.zeros(0, bool)
    numbers, edges, nans = without(is_nan, values, edges)
    return numbers, edges, np.stack([filled - m, m, nans, nulls], axis=1)
