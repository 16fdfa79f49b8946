"""An open warehouse for analysts: the questions of `Reader`, figures, and SQL through DuckDB."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

from tidemark.query.plots.plots import Plots
from tidemark.query.reader import DEFAULT_MEMORY, Reader
from tidemark.warehouse.os_errors import report_os_errors
from tidemark.warehouse.snapshots.snapshot import Snapshot
from tidemark.warehouse.snapshots.snapshot_reader import SnapshotReader

if TYPE_CHECKING:
    from tidemark.query.sql.relations import Database, Relation


class Warehouse(Reader):
    """An open warehouse; `query.open` makes it. Safe to share between threads.

    Parameters of all questions:

    measure: the numeric column; by default the first measure of the warehouse.
    last: only the newest rows by event time: a duration such as "7d", counted back from the newest tick of
        the data that is not in the future of the clock. A number of steps if the warehouse has no time
        column.
    as_of: the moment, exclusive, that `last` counts back from instead: last=L, as_of=T is the window from
        T - L to T. Without a time column the number of a step.
    between: (start, end), the end exclusive, None for an open side. Quantile windows are whole ticks; the
        `window` of an answer shows which. Windows of keys may start and end inside a tick, but
        those of `every` are whole ticks.
    mode: for measures "quick" (error <= eps * N, from memory), "accurate" (error <= eps * m, reads a few
        blocks of history) or "exact" (error 0, also reads the live rows). For keys "approximate" (error <=
        key_eps * m with probability 1 - key_delta) or "exact" (also reads the live rows).

    where: only rows with these values: a mapping of columns to a value or a list of values, or a condition
        as text, in DuckDB's SQL, such as "distance > 500 AND dest LIKE 'S%'".
    by: one answer for each value of a column, or of several columns; a row with NULL there belongs to none.
    top, groups, limit: which of the values: those with the most rows, those in a list, or all of them if
        there are at most `limit` (1000 by default).
    every: one answer for each part of the window: "1h", "7d". Parts start at multiples of the duration since
        1970 in UTC, weeks on Mondays. Without a time column it is a number of steps.
    key: a column, or a list of columns; by default the first key of the warehouse.

    If the columns of `where` and `by` together are those of a declared group, questions read a few blocks.
    Any other `where` and `by` is answered by a scan of `events`: exact and slow. `rows_scanned` of the answer
    says how many rows it read, and `declare` which group would answer it without a scan.

    All questions raise InputError for invalid arguments, EmptyWindow if a quantile window has no rows, and
    DamagedWarehouse if a file is missing or damaged. Each question first looks for newer data.
    """

    def __init__(
        self,
        snapshot: SnapshotReader | Snapshot,
        memory: int = DEFAULT_MEMORY,
        progress: Callable[[float], None] | None = None,
        max_staleness: float = 0.0,
    ) -> None:
        super().__init__(snapshot, memory, progress, max_staleness)
        self._duck = threading.local()

    @property
    def plot(self) -> Plots:
        """Figures: `plot.cdf()`, `quantiles`, `histogram`, `top`, `distinct`, `persistence`.

        They need matplotlib.
        """
        return Plots(self)

    def sql(self, statement: str, *, params: Any = None) -> Relation:
        """A SQL query over events, live, history, steps, runs and summary, with the questions as functions.

        >>> wh.sql("SELECT * FROM quantile(0.99, '7 days')").df()            # doctest: +SKIP

        statement: one query, such as SELECT or FROM; InputError otherwise, and for what DuckDB refuses.
        params: values for ? and $name.

        Returns a relation, with the methods of `duckdb.DuckDBPyRelation`. Its errors are those of all
        questions, each with DuckDB's as its cause. It is executed when its rows are fetched (df, pl, arrow,
        fetchall, show ...), on the data of that moment. DuckDB reads the files; the cost is that of its
        scans.
        """
        from tidemark.query.sql.duckdb_sql import checked_query, connected

        checked_query(statement)
        # One connection per thread, because a connection takes one call at a time. A cursor would not do: a
        # relation keeps its connection alive, and that must be the one with the functions. These have types
        # that depend on the options.
        options = self.options
        with report_os_errors("sql"):
            if getattr(self._duck, "options", None) != options:
                self._duck.database, self._duck.options = connected(self), options
            database: Database = self._duck.database
            return database.sql(statement, params)

    def twin(self) -> Self:
        """A shallow copy, which shares the snapshot and caches but has its own DuckDB connections."""
        other = super().twin()
        other._duck = threading.local()  # noqa: SLF001  an object of this class
        return other
