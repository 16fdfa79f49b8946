"""Exact counts, ranks and values of a measure by any group, for any filter, by a scan of `events`.

Algorithm. The rows that row_source.py yields are filtered by the expression and kept in a temporary table of
DuckDB: the group's names, the stored value, and whether the row is live. This one scan answers all questions:
counts by a hash aggregate, values of ranks by a sort in each group, ranks of points by one binary decision
per row and halving of the points. DuckDB spills what does not fit into its memory to a temporary folder.

Cost: one read of the columns that are used, in all files with rows of the window; 9 bytes and the group's
names for each selected row, in memory or on disk. O(n log n) for values of ranks, O(n log p) for the ranks of
p points.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidemark.query.reading.connections import Progress, give_back, run_query, take_connection
from tidemark.query.reading.duckdb_errors import Raised, report_duckdb_errors
from tidemark.query.reading.row_counts import RowCounts
from tidemark.query.scans.expressions import Expression, quoted, unfit
from tidemark.query.scans.row_source import LIVE, NULL, VALUE, RowSource, group_name, key_of
from tidemark.warehouse.columns.ticks import Window
from tidemark.warehouse.columns.value_encoding import Measure
from tidemark.warehouse.errors import InputError, TidemarkError
from tidemark.warehouse.snapshots.system_tables import Contents

_OPERATION = "a scan of the events"
_ROWS = quoted("rows of events")  # the name of the rows that are read
_VALUE, _LIVE = quoted(VALUE), quoted(LIVE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannedGroup(RowCounts):
    """A group and its rows in a window.

    values   of the group's columns, in their own types
    window   the index of the window
    """

    values: tuple[Any, ...]
    window: int


class EventScan:
    """One scan of the visible rows of `events`; the first question reads them, the others do not read again.

    Groups are numbered from 0 in the order of `groups`; arguments and results by group have this order.
    Close it, or use it in `with`: it holds memory and a temporary folder. Not safe to share between threads.

    All questions raise DamagedWarehouse if a file is missing or damaged, InputError if the expression fails
    on a row (a cast of text that is no number), SystemRefused if memory and disk do not suffice. Ctrl-C ends
    a question with KeyboardInterrupt.
    """

    def __init__(
        self,
        contents: Contents,
        measure: Measure,
        windows: Sequence[Window],
        *,
        equal: Mapping[str, Sequence[Any]] | None = None,
        expression: Expression | None = None,
        by: Sequence[str] = (),
        progress: Progress | None = None,
    ) -> None:
        """Checks the arguments and reads nothing.

        contents     the visible batches, of one moment
        windows      only rows with these ticks: one window, or windows that ascend and do not overlap
        equal        only rows whose value in each of these columns is among the allowed ones; values are
                     equal as keys are
        expression   only rows for which it is true
        by           the columns of the group, each once; a row with NULL in one of them belongs to no group
        progress     gets the share of each question that is done, from 0 to 1, about four times a second

        Raises InputError for a column that does not exist or whose type has no keys.
        """
        if len(set(by)) < len(by):
            raise InputError(f"a column of the group is named twice: {list(by)}. Name each column once.")
        self._by = tuple(key_of(contents, name) for name in by)
        selected = {key_of(contents, name): list(values) for name, values in (equal or {}).items()}
        columns = () if expression is None else expression.columns
        self._source = RowSource(contents, windows, measure, self._by, selected, columns)
        self._measure, self._expression, self._progress = measure, expression, progress
        self._has_windows = len(windows) > 1
        self._scanned, self._raised = False, Raised()
        with report_duckdb_errors(_OPERATION, self._raised):
            taken = take_connection()
        self._connection = taken.connection
        self._finalizer = weakref.finalize(self, give_back, taken)

    def close(self) -> None:
        """Frees the memory and the temporary files. May be called again."""
        self.__dict__.pop("_connection", None)  # the next scan may have it
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def rows_scanned(self) -> int:
        """The visible rows of the window: those that the filter was applied to."""
        self._scan()
        return self._source.rows

    def groups(self) -> list[ScannedGroup]:
        """The groups that have rows, ascending, those of a group by window.

        Without `by` and with one window it is one group of all rows, which may have none.
        """
        self._scan()
        names = "".join(f", {name}" for name in self._group_columns)
        rows = self._run(f"SELECT n, m, nans, nulls{names} FROM groups ORDER BY code")
        return [self._group(*row) for row in rows]

    def _group(self, n: int, m: int, nans: int, nulls: int, *names: Any) -> ScannedGroup:
        values = tuple(key.value_of(name) for key, name in zip(self._by, names, strict=False))
        window = names[-1] if self._has_windows else 0
        return ScannedGroup(n=n, m=m, nans=nans, nulls=nulls, values=values, window=window)

    def values_at(self, ranks: Sequence[Sequence[int]]) -> list[NDArray[Any]]:
        """The stored values of ranks in each group: rank r is that of the r-th row by value, NaN last.

        ranks   for each group, ranks from 1 to n + m, in any order; none for a group that is not asked

        Returns one array per group, in the order of its ranks; InputError for a rank outside of its group.
        """
        groups = self.groups()
        if len(ranks) != len(groups):
            raise InputError(f"expected the ranks of {len(groups)} groups, got those of {len(ranks)}.")
        for group, wanted in zip(groups, ranks, strict=True):
            if any(not 1 <= rank <= group.n + group.m for rank in wanted):
                raise InputError(
                    f"the group {group.values} has ranks from 1 to {group.n + group.m}, got {wanted}."
                )
        asked = [(code, int(rank)) for code, wanted in enumerate(ranks) for rank in set(wanted)]
        rows = self._run(
            "WITH asked AS MATERIALIZED "
            "(SELECT unnest($codes::BIGINT[]) AS code, unnest($ranks::BIGINT[]) AS r), "
            f"ranked AS (SELECT code, {_VALUE}, row_number() OVER (PARTITION BY code ORDER BY {_VALUE}) AS r "
            f"FROM {self._coded_rows} WHERE {_VALUE} IS NOT NULL AND code IN (SELECT code FROM asked)) "
            f"SELECT code, r, {_VALUE} FROM ranked JOIN asked USING (code, r)",
            {"codes": [code for code, _ in asked], "ranks": [rank for _, rank in asked]},
        )
        found = {(code, rank): value for code, rank, value in rows}
        dtype = self._measure.dtype
        return [
            np.array([found[code, int(rank)] for rank in wanted], dtype) for code, wanted in enumerate(ranks)
        ]

    def ranks_at(self, points: Sequence[Any] | NDArray[Any]) -> NDArray[np.int64]:
        """The rows of each group (groups, points) whose stored value is <= the point; NaN is <= nothing.

        points   stored values, the same for all groups, in any order. InputError for NaN
        """
        given = np.asarray(points, self._measure.dtype)
        if np.isnan(given).any():
            raise InputError("NaN has no rank. Ask for a number, or for the NaN count.")
        count, ordered = len(self.groups()), np.unique(given)
        counts = np.zeros((count, len(ordered) + 1), np.int64)
        if len(ordered):
            rows = self._run(
                f"SELECT code, {self._first_not_less(ordered, 0)} AS place, count(*) FROM {self._coded_rows} "
                f"WHERE {_VALUE} IS NOT NULL GROUP BY ALL"
            )
            for code, place, found in rows:
                counts[code, place] = found
        return np.cumsum(counts, axis=1)[:, np.searchsorted(ordered, given)]

    def _first_not_less(self, points: NDArray[Any], place: int) -> str:
        """SQL for the place of the first of the ascending points that is >= the value; nested in halves."""
        if not len(points):
            return str(place)
        middle = len(points) // 2
        kind = "DOUBLE" if self._measure.is_double else "BIGINT"
        left = self._first_not_less(points[:middle], place)
        right = self._first_not_less(points[middle + 1 :], place + middle + 1)
        # To DuckDB NaN is greater than all numbers, so it is <= no point.
        point = f"CAST('{points[middle].item()!r}' AS {kind})"
        return f"CASE WHEN {_VALUE} <= {point} THEN {left} ELSE {right} END"

    @property
    def _group_columns(self) -> list[str]:
        return [quoted(group_name(number)) for number in range(1, len(self._by) + self._has_windows + 1)]

    @property
    def _coded_rows(self) -> str:
        """SQL of the selected rows, each with the code of its group."""
        columns = self._group_columns
        return f"scanned JOIN groups USING ({', '.join(columns)})" if columns else "scanned, groups"

    def _scan(self) -> None:
        """Reads the rows and counts them by group, unless that is done."""
        if self._scanned:
            return
        self._source.rows, self._source.share = 0, 0.0
        batches = self._raised.kept(self._source.batches())
        reader = pa.RecordBatchReader.from_batches(self._source.schema, batches)
        self._connection.register("rows of events", reader)
        columns = ", ".join([_LIVE, *self._group_columns])
        where = "" if self._expression is None else f"WHERE {self._expression.sql}"
        try:
            self._run(
                f"CREATE OR REPLACE TEMP TABLE scanned AS SELECT {columns}, "
                f"CASE WHEN {quoted(NULL)} = 0 THEN {_VALUE} END AS {_VALUE} FROM {_ROWS} {where}",
                reading=True,
            )
        finally:
            self._connection.unregister("rows of events")
        self._run(f"CREATE OR REPLACE TEMP TABLE groups AS {self._count_query()}")
        self._scanned = True

    def _count_query(self) -> str:
        names = self._group_columns
        nan = f"isnan({_VALUE})" if self._measure.is_double else "false"
        counts = (
            f"count({_VALUE}) FILTER ({_LIVE} = 0) AS n, count({_VALUE}) FILTER ({_LIVE} = 1) AS m, "
            f"count(*) FILTER ({nan}) AS nans, count(*) FILTER ({_VALUE} IS NULL) AS nulls"
        )
        if not names:
            return f"SELECT 0::BIGINT AS code, {counts} FROM scanned"
        columns = ", ".join(names)
        code = f"row_number() OVER (ORDER BY {columns}) - 1 AS code"
        return f"SELECT {code}, * FROM (SELECT {columns}, {counts} FROM scanned GROUP BY {columns})"

    def _run(self, statement: str, parameters: Any = (), *, reading: bool = False) -> list[tuple[Any, ...]]:
        share = (lambda: self._source.share) if reading else None

        def unfit_while_reading(error: Exception) -> TidemarkError | None:
            return unfit(self._expression.text, error) if reading and self._expression is not None else None

        with report_duckdb_errors(_OPERATION, self._raised, unfit_while_reading):
            return run_query(self._connection, statement, parameters, self._progress, share)
