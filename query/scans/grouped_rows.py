"""Counts, values of ranks and ranks of points by group, of the rows of a table of DuckDB.

* Counts come from a hash aggregate.
* Values of ranks: DuckDB's quantile_disc(f) is the value of rank ceil(f * k) among k values. Ranks of many
  groups for one phi share a fraction: each f in all of their ((r - 1) / k, r / k] gives every group its rank,
  and phi is one. Where the middle of what these share is too close to an end for doubles, or the values do
  not fit into memory, ranks are numbered by a sort, which DuckDB spills to disk.
* Ranks of points: one binary decision per row and halving of the points where all groups have the same
  points, else a join.

Cost: O(n) for values of ranks, O(n log n) by a sort; O(n log p) for the ranks of p points, O(n p) where the
groups have points of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidemark.query.reading.connections import registered
from tidemark.query.reading.sql_text import quoted
from tidemark.query.scans.row_source import LIVE, VALUE, RowSource
from tidemark.query.scans.scanned_rows import Asker, Ints, RankedValues, ScannedGroup
from tidemark.query.scans.sums_query import sums_of_rows, sums_query
from tidemark.warehouse.columns.arrow_buffers import arrow_array, arrow_table
from tidemark.warehouse.columns.exact_sums import Sums
from tidemark.warehouse.columns.keys import name_at, names_of
from tidemark.warehouse.columns.value_encoding import Measure, as_numpy, single_array

_VALUE, _LIVE = quoted(VALUE), quoted(LIVE)
HELD_ROWS = 2**24  # whose values DuckDB may hold in memory at once to find ranks among them
POINTS = 4096  # of one query for ranks
FRACTIONS = 64  # of one statement
_MARGIN = 1e-6  # of a rank: doubles of HELD_ROWS rows are a thousand times more exact


class GroupedRows:
    """The selected rows of a scan by group; see `ScannedRows`.

    source: what the rows are. measure: their value. asker: runs statements, on a connection whose table
    `scanned` has the rows.
    """

    def __init__(self, source: RowSource, measure: Measure, asker: Asker) -> None:
        self._source, self._asker, self._measure = source, asker, measure
        self._run, self._columns, self._codes = (
            asker.rows,
            asker.columns,
            arrow_table({"code": np.zeros(1, np.int64)}),
        )
        self.groups = self._counted()

    def values_at(self, ranks: Sequence[Ints]) -> list[RankedValues]:
        """See `ScannedRows.values_at`."""
        asked = [code for code, wanted in enumerate(ranks) if len(wanted)]
        found = [RankedValues(np.empty(0, self._measure.dtype), np.empty(0, np.int64))] * len(self.groups)
        if not asked:
            return found
        stored = np.array([self.groups[i].stored for i in asked], np.int64)
        fractions = _fractions([ranks[i] for i in asked], stored)
        if fractions is None:
            self._find_by_sort(ranks, found)
        else:
            self._find_by_fractions(fractions, asked, found)
        return found

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

    def _find_by_fractions(
        self, fractions: NDArray[np.float64], asked: Sequence[int], found: list[RankedValues]
    ) -> None:
        """Finds values of the asked groups, all at the same fractions of their numbers."""
        columns = self._source.group_columns
        listed = "".join(f"{column}, " for column in columns)
        grouped = f" GROUP BY {', '.join(columns)}" if columns else ""
        joined = f"JOIN found USING ({', '.join(columns)})" if columns else ", found"
        ordered = f"{grouped} ORDER BY {', '.join(columns)}" if columns else ""
        parts = []
        for start in range(0, len(fractions), FRACTIONS):
            part = fractions[start : start + FRACTIONS]
            at = ", ".join(f"'{fraction!r}'::DOUBLE" for fraction in part.tolist())
            ranks = ", ".join(f"count(*) FILTER ({_VALUE} <= found[{i + 1}])" for i in range(len(part)))
            parts.append(
                self._columns(
                    f"WITH numbers AS (FROM scanned WHERE {self._is_number}), found AS MATERIALIZED "
                    f"(SELECT {listed}quantile_disc({_VALUE}, [{at}]) AS found FROM numbers{grouped}) "
                    f"SELECT {listed}any_value(found) AS found, [{ranks}] AS ranks "
                    f"FROM numbers {joined}{ordered}"
                )
            )
        filled = [code for code, group in enumerate(self.groups) if group.stored]
        values, ranks_le = (
            np.hstack([_matrix(part.column(name), len(filled)) for part in parts])
            for name in ("found", "ranks")
        )
        for row in np.searchsorted(filled, asked).tolist():
            values_of = values[row].astype(self._measure.dtype)
            found[filled[row]] = RankedValues(values_of, ranks_le[row])

    def _find_by_sort(self, ranks: Sequence[Ints], found: list[RankedValues]) -> None:
        """Finds values of ranks of each group; DuckDB sorts on disk what does not fit into memory."""
        codes = np.repeat(np.arange(len(ranks)), [len(wanted) for wanted in ranks])
        with self._asked(code=codes, rank=np.concatenate(ranks)):
            rows = self._run(
                f"WITH ranked AS (SELECT code, {_VALUE}, row_number() OVER ordered AS rank, "
                f"count(*) OVER ordered AS rank_le FROM {self._coded_rows} "
                f"WHERE {self._is_number} AND code IN (SELECT code FROM asked) "
                f"WINDOW ordered AS (PARTITION BY code ORDER BY {_VALUE})) "
                f"SELECT DISTINCT code, rank, {_VALUE}, rank_le FROM ranked JOIN asked USING (code, rank)"
            )
        places = {(code, rank): (value, rank_le) for code, rank, value, rank_le in rows}
        for code, wanted in enumerate(ranks):
            own = [places[code, rank] for rank in wanted.tolist()]
            found[code] = RankedValues(
                np.array([value for value, _ in own], self._measure.dtype),
                np.array([rank_le for _, rank_le in own], np.int64),
            )

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

    def _counted(self) -> list[ScannedGroup]:
        columns, source = self._source.group_columns, self._source
        nan = f"isnan({_VALUE})" if self._measure.is_double else "false"
        counts = (
            f"count({_VALUE}) FILTER ({_LIVE} = 0) AS n, count({_VALUE}) FILTER ({_LIVE} = 1) AS m, "
            f"count(*) FILTER ({nan}) AS nans, count(*) FILTER ({_VALUE} IS NULL) AS nulls"
        )
        if not columns:
            ((n, m, nans, nulls),) = self._run(f"SELECT {counts} FROM scanned")
            return [ScannedGroup(n=n, m=m, nans=nans, nulls=nulls, values=(), window=0)]
        listed = ", ".join(columns)
        table = self._columns(f"SELECT {listed}, {counts} FROM scanned GROUP BY {listed} ORDER BY {listed}")
        codes = arrow_array(np.arange(len(table)))
        self._codes = table.select(range(len(columns))).append_column("code", codes)
        numbers = [as_numpy(table.column(name)).tolist() for name in ("n", "m", "nans", "nulls")]
        stored = [single_array(table.column(i)) for i in range(len(columns))]
        names = [names_of(key, column) for key, column in zip(source.by, stored, strict=False)]
        windows = np.zeros(len(table), np.int64)
        if source.buckets is not None:
            windows = source.buckets.windows_of(as_numpy(stored[-1]))
        return [
            ScannedGroup(
                n=n,
                m=m,
                nans=nans,
                nulls=nulls,
                values=tuple(key.value_of(name_at(of, i)) for key, of in zip(source.by, names, strict=True)),
                window=window,
            )
            for i, (n, m, nans, nulls, window) in enumerate(zip(*numbers, windows.tolist(), strict=True))
        ]

    @contextmanager
    def _asked(self, **columns: NDArray[Any]) -> Iterator[None]:
        """The table `groups` with the code of each group; and `asked` of these columns, if there are any."""
        asked = {"asked": arrow_table(columns)} if columns else {}
        with registered(self._asker.connection, groups=self._codes, **asked):
            yield


def _fractions(ranks: Sequence[Ints], stored: Ints) -> NDArray[np.float64] | None:
    """Fractions at which quantile_disc finds the ranks of every group; None if there are none.

    ranks: those of each group. stored: the numbers of each group, each at least 1.
    """
    if len({len(wanted) for wanted in ranks}) > 1 or stored.sum() > HELD_ROWS:
        return None
    wanted, numbers = np.stack(ranks), stored[:, None]
    fractions: NDArray[np.float64] = ((wanted - 1) / numbers).max(axis=0) / 2 + (wanted / numbers).min(
        axis=0
    ) / 2
    places = fractions * numbers
    is_safe = np.all((places > wanted - 1 + _MARGIN) & (places < wanted - _MARGIN))
    return fractions if is_safe else None


def _matrix(column: pa.ChunkedArray, rows: int) -> NDArray[Any]:
    """Lists of one length as an array (rows, length)."""
    return as_numpy(single_array(column).flatten()).reshape(rows, -1)
