"""An open warehouse as analysts have it: the questions of `Reader`, figures, and SQL."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Self

from tidemark.query.plots.plots import Plots
from tidemark.query.reader import Reader
from tidemark.warehouse.snapshots.snapshot import Snapshot
from tidemark.warehouse.snapshots.snapshot_reader import SnapshotReader

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection, DuckDBPyRelation


class Warehouse(Reader):
    """An open warehouse; `query.open` makes it. May be shared between threads.

    What all questions take:

    measure: the column asked of; the first one where it is left out.
    last: only the newest rows by event time, such as "7d", back from the newest tick of the data; a number
        of steps where the warehouse has no time column.
    between: (start, end), the end exclusive, None for an open side. Windows are whole ticks: the answer's
        `window` says which.
    mode: "quick" from memory, error <= eps * N; "accurate", error <= eps * m, reads a few blocks; "exact"
        also reads the live rows.

    InputError for a question that cannot be, EmptyWindow where there are no rows to answer from.
    """

    def __init__(self, snapshot: SnapshotReader | Snapshot) -> None:
        super().__init__(snapshot)
        self._duck = threading.local()

    @property
    def plot(self) -> Plots:
        """Figures: `plot.cdf()`, `plot.quantiles()` and `plot.histogram()`; they need matplotlib."""
        return Plots(self)

    def sql(self, statement: str, *, params: Any = None) -> DuckDBPyRelation:
        """A query over events, live, history, steps, runs and summary, and over the questions as functions.

        >>> wh.sql("SELECT * FROM quantile(0.99, '7 days')").df()            # doctest: +SKIP

        DuckDB reads the files; its relation runs, over the data of that moment, when its rows are asked for
        (df, pl, arrow, fetchall, show ...). `params` are values for ? and $name. InputError for what is no
        single query; other errors are DuckDB's own.
        """
        from tidemark.query.sql.duckdb_sql import checked_query, connected

        checked_query(statement)
        # A connection a thread, for it takes one call at a time. Not by a cursor: what a relation keeps is
        # the connection that it came from, and that has to be the one that has the functions.
        if not hasattr(self._duck, "connection"):
            self._duck.connection = connected(self)
        connection: DuckDBPyConnection = self._duck.connection
        return connection.sql(statement, params=params)

    def twin(self) -> Self:
        """Another object for this warehouse, which shares what is in memory but not the way to DuckDB."""
        other = super().twin()
        other._duck = threading.local()  # noqa: SLF001  one of this class
        return other
