"""An open warehouse for analysts: the questions of `Reader`, figures, and SQL through DuckDB."""

from __future__ import annotations

import threading
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from tidemark.query.plots.plots import Plots
from tidemark.query.reader import Reader
from tidemark.warehouse.os_errors import report_os_errors

if TYPE_CHECKING:
    from tidemark.query.sql.relations import Database, Relation


class Warehouse(Reader):  # noqa: D101  described once
    __doc__ = Reader.__doc__

    @cached_property
    def _duck(self) -> threading.local:
        return threading.local()

    @property
    def plot(self) -> Plots:
        """Figures: `plot.cdf()`, `quantiles`, `histogram`, `top`, `distinct`, `persistence`.

        They need matplotlib.
        """
        return Plots(self)

    def sql(self, statement: str, *, params: Any = None) -> Relation:
        """A SQL query over events, live, history, steps, runs and summary, with the questions as functions.

        >>> wh.sql("SELECT * FROM quantile(0.99, '7 days')").df()            # doctest: +SKIP

        Of several warehouses, the views have the rows of all, with the name of each one's warehouse in the
        column `_site`.

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
        vars(other).pop("_duck", None)
        return other
