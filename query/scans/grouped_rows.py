"""Counts, values at ranks and ranks of points by group, of rows that need not fit into memory.

The rows are a table of DuckDB.

* Counts come from a hash aggregate.
* Ranks are numbered by a sort, which DuckDB spills to disk.
* Ranks of points: one binary decision per row and halving of the points where all groups have the same
  points, else a join.

Cost: O(n log n) for values of ranks; O(n log p) for the ranks of p points, O(n p) where the groups have
points of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidemark.query.reading.connections import registered
from tidemark.query.reading.sorted_parts import Ints, RankedValues
from tidemark.query.reading.sql_text import quoted
from tidemark.query.scans.asked_rows import LIVE, VALUE, group_name
from tidemark.query.scans.open_scan import OpenScan
from tidemark.query.scans.row_source import RowSource
from tidemark.query.scans.scanned_rows import ScannedGroups
from tidemark.query.scans.sums_query import sums_of_rows, sums_query
from tidemark.warehouse.columns.arrow_buffers import arrow_table
from tidemark.warehouse.columns.exact_sums import Sums
from tidemark.warehouse.columns.value_encoding import Measure, as_numpy, single_array

_VALUE, _LIVE = quoted(VALUE), quoted(LIVE)
POINTS = 4096  # of one query for ranks


class GroupedRows:
    """The selected rows of a scan by group; see `ScannedRows`.

    source: the source of the rows. measure: their value. asker: runs statements, on a connection whose table
    `scanned` has the rows.
    """

    def __init__(self, source: RowSource, measure: Measure, asker: OpenScan) -> None:
        self._source, self._asker, self._measure = source, asker, measure
        self._run, self._columns = asker.rows, asker.columns
        self.groups = self._counted()

    def values_at(self, ranks: Sequence[Ints]) -> list[RankedValues]:
        """See `ScannedRows.values_at`. DuckDB sorts on disk what does not fit into memory."""
        codes = np.repeat(np.arange(len(ranks)), [len(wanted) for wanted in ranks])
        places: dict[tuple[int, int], tuple[Any, int]] = {}
        if len(codes):
            with self._asked(code=codes, rank=np.concatenate(ranks)):
                rows = self._run(
                    f"WITH ranked AS (SELECT code, {_VALUE}, row_number() OVER ordered AS rank, "
                    f"count(*) OVER ordered AS rank_le FROM {self._coded_rows} "
                    f"WHERE {self._is_number} AND code IN (SELECT code FROM asked) "
                    f"WINDOW ordered AS (PARTITION BY code ORDER BY {_VALUE})) "
                    f"SELECT DISTINCT code, rank, {_VALUE}, rank_le FROM ranked JOIN asked USING (code, rank)"
                )
            places = {(code, rank): (value, rank_le) for code, rank, value, rank_le in rows}
        found = []
        for code, wanted in enumerate(ranks):
            own = [places[code, rank] for rank in wanted.tolist()]
            values = np.array([value for value, _ in own], self._measure.dtype)
            found.append(RankedValues(values, np.array([rank_le for _, rank_le in own], np.int64)))
        return found

    def same_values_at(self, ranks: Ints) -> RankedValues:
        """See `ScannedRows.same_values_at`."""
        has_rank = (ranks >= 1) & (ranks <= self.groups.stored[:, np.newaxis])
        found = self.values_at([wanted[own] for wanted, own in zip(ranks, has_rank, strict=True)])
        values, le = np.zeros(ranks.shape, self._measure.dtype), np.zeros_like(ranks)
        values[has_rank] = np.concatenate([one.values for one in found] or [values[has_rank]])
        le[has_rank] = np.concatenate([one.ranks_le for one in found] or [le[has_rank]])
        return RankedValues(values, le)

    def ranks_at(self, points: Sequence[NDArray[Any]]) -> list[Ints]:
        """See `ScannedRows.ranks_at`."""
        if not any(map(len, points)):
            return [np.zeros(0, np.int64) for _ in points]
        first = points[0]
        if all(own is first or np.array_equal(own, first) for own in points):
            return self._ranks_at_same(first)
        codes = np.repeat(np.arange(len(points)), [len(own) for own in points])
        places = np.concatenate([np.arange(len(own)) for own in points])
        with self._asked(code=codes, place=places, point=np.concatenate(points)):
            rows = self._run(
                f"SELECT code, place, count(*) FROM {self._coded_rows} JOIN asked USING (code) "
                f"WHERE {self._is_number} AND {_VALUE} <= point GROUP BY ALL"
            )
        found = [np.zeros(len(own), np.int64) for own in points]
        for code, place, count in rows:
            found[code][place] = count
        return found

    def sums(self) -> list[Sums]:
        """See `ScannedRows.sums`."""
        with self._asked():
            rows = self._run(sums_query(self._measure, self._coded_rows, _VALUE))
        return sums_of_rows(rows, len(self.groups))

    def ends(self) -> NDArray[Any]:
        """See `ScannedRows.ends`."""
        found = np.zeros((len(self.groups), 2), self._measure.dtype)
        with self._asked():
            rows = self._run(
                f"SELECT code, min({_VALUE}), max({_VALUE}) FROM {self._coded_rows} "
                f"WHERE {self._is_number} GROUP BY code"
            )
        for code, least, greatest in rows:
            found[code] = least, greatest
        return found

    def _ranks_at_same(self, points: NDArray[Any]) -> list[Ints]:
        ordered = np.unique(points)
        counts = np.zeros((len(self.groups), len(ordered) + 1), np.int64)
        for start in range(0, len(ordered), POINTS):
            chunk = ordered[start : start + POINTS]
            with self._asked():
                rows = self._run(
                    f"SELECT code, {self._first_not_less(chunk, 0)} AS place, count(*) "
                    f"FROM {self._coded_rows} WHERE {self._is_number} GROUP BY ALL"
                )
            below = np.zeros((len(counts), len(chunk) + 1), np.int64)
            for code, place, found in rows:
                below[code, place] = found
            counts[:, start : start + len(chunk)] = np.cumsum(below, axis=1)[:, :-1]
        return list(counts[:, np.searchsorted(ordered, points)])

    def _first_not_less(self, points: NDArray[Any], place: int) -> str:
        """SQL for the place of the first of the ascending points that is >= the value; nested in halves."""
        if not len(points):
            return str(place)
        middle = len(points) // 2
        left = self._first_not_less(points[:middle], place)
        right = self._first_not_less(points[middle + 1 :], place + middle + 1)
        point = f"CAST('{points[middle].item()!r}' AS {self._kind})"
        return f"CASE WHEN {_VALUE} <= {point} THEN {left} ELSE {right} END"

    @property
    def _kind(self) -> str:
        return "DOUBLE" if self._measure.is_double else "BIGINT"

    @property
    def _is_number(self) -> str:
        """SQL: whether the value is a number, neither NULL nor NaN."""
        numbers = f" AND NOT isnan({_VALUE})" if self._measure.is_double else ""
        return f"{_VALUE} IS NOT NULL{numbers}"

    @property
    def _coded_rows(self) -> str:
        """SQL of the selected rows, each with the code of its group."""
        columns = self._source.group_columns
        if not columns:
            return "(SELECT *, 0::BIGINT AS code FROM scanned)"
        return f"(FROM scanned JOIN groups USING ({', '.join(columns)}))"

    def _counted(self) -> ScannedGroups:
        columns = self._source.group_columns
        nan = f"isnan({_VALUE})" if self._measure.is_double else "false"
        counts = (
            f"count({_VALUE}) FILTER ({_LIVE} = 0) AS n, count({_VALUE}) FILTER ({_LIVE} = 1) AS m, "
            f"count(*) FILTER ({nan}) AS nans, count(*) FILTER ({_VALUE} IS NULL) AS nulls"
        )
        listed = "".join(f"{column}, " for column in columns)
        grouped = f" GROUP BY {', '.join(columns)}" if columns else ""
        table = self._columns(f"SELECT {listed}{counts} FROM scanned{grouped}")
        stored = [single_array(table.column(i)) for i in range(len(columns))]
        numbers = [as_numpy(table.column(name)) for name in ("n", "m", "nans", "nulls")]
        groups, order = ScannedGroups.of(self._source, stored, np.stack(numbers, axis=1))
        codes = np.empty_like(order)
        codes[order] = np.arange(len(order))
        self._codes = arrow_table(
            {**{group_name(i): column for i, column in enumerate(stored, 1)}, "code": codes}
        )
        return groups

    @contextmanager
    def _asked(self, **columns: NDArray[Any]) -> Iterator[None]:
        """The table `groups` with the code of each group; and `asked` of these columns, if there are any."""
        asked = {"asked": arrow_table(columns)} if columns else {}
        with registered(self._asker.connection, groups=self._codes, **asked):
            yield
