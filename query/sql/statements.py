"""Queries in SQL over one warehouse, or over several by names: a database of DuckDB for each thread."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from itertools import permutations
from typing import Any

from tidemark.query.answers.plan import SqlPlan
from tidemark.query.reader import Reader
from tidemark.query.sql.duckdb_sql import connected
from tidemark.query.sql.parse_trees import check_query, check_text
from tidemark.query.sql.private_sql import columns_together, with_tokens
from tidemark.query.sql.relations import Database, Relation
from tidemark.query.sql.spark_sql import checked_name
from tidemark.warehouse.columns.scalars import is_sequence
from tidemark.warehouse.errors import InputError, shortened
from tidemark.warehouse.os_errors import report_os_errors


class Statements:
    """Runs queries over warehouses.

    warehouses: each by its name, which is the prefix of its views and functions; one alone by "".
    locked: whether statements can read no files but those of the warehouses.
    """

    def __init__(self, warehouses: Mapping[str, Reader], *, locked: bool = False) -> None:
        self._warehouses, self._locked, self._own = dict(warehouses), locked, threading.local()

    def sql(self, statement: str, params: Any) -> Relation:
        """See `Warehouse.sql`."""
        database = self._database(statement)
        with report_os_errors("sql"):
            return database.sql(*self._with_tokens(statement, _own(params)))

    def explain(self, statement: str, params: Any) -> SqlPlan:
        """See `Warehouse.explain`."""
        database = self._database(statement)
        with report_os_errors("explain"):
            sites = {name: wh.pinned().contents_by_site() for name, wh in self._warehouses.items()}
            return database.explain(sites, *self._with_tokens(statement, _own(params)))

    def _database(self, statement: str) -> Database:
        """The database of this thread, for a statement that is a text."""
        check_text(statement)
        # One connection per thread, because a connection takes one call at a time. A cursor would not do: a
        # relation keeps its connection alive, and that must be the one with the functions. These have types
        # that depend on the options.
        options = [wh.options for wh in self._warehouses.values()]
        with report_os_errors("sql"):
            if getattr(self._own, "options", None) != options:
                database = connected(self._warehouses, locked=self._locked)
                self._own.database, self._own.options = database, options
            found: Database = self._own.database
            return found

    def _with_tokens(self, statement: str, params: Any) -> tuple[str, Any]:
        """The statement and its values, with tokens for the values that private columns are compared with."""
        private = [f"{name}_" if name else "" for name, wh in self._warehouses.items() if wh.options.private]
        if not private:
            return statement, params
        check_query(statement, shows_text=False)
        columns = columns_together([dict(wh.options.columns) for wh in self._warehouses.values()])
        return with_tokens(statement, params, columns, private)


def _own(params: Any) -> Any:
    """The values for ? or $name, copied to be read twice; DuckDB refuses what cannot be such a value."""
    if isinstance(params, Mapping):
        return dict(params)
    return list(params) if is_sequence(params) else params


class Connection:
    """Several warehouses that one statement can name: `query.connect` makes it.

    warehouses: each by its name.
    """

    def __init__(self, warehouses: Mapping[str, Reader]) -> None:
        """InputError for a name that is no identifier, or whose views would have names of another's views."""
        if not warehouses:
            raise InputError("no warehouse was given. Give a mapping of names to addresses.")
        names = {checked_name(name).lower(): name for name in warehouses}
        if len(names) < len(warehouses):
            raise InputError(f"names that differ in case alone are one name in SQL: {sorted(warehouses)}.")
        for (name, given), (other, first) in permutations(names.items(), 2):
            if name.startswith(f"{other}_"):
                raise InputError(
                    f"the name {shortened(given)} starts with {first + '_'!r}, as the views of {first!r} do. "
                    "Choose another name."
                )
        self.warehouses = dict(warehouses)
        self._statements = Statements(self.warehouses)

    def __repr__(self) -> str:
        return f"Connection({self.warehouses})"

    def sql(self, statement: str, *, params: Any = None) -> Relation:
        """A SQL query over all of the warehouses; see `Warehouse.sql`.

        The view NAME has the visible rows of a warehouse. Its other views and functions are NAME_live,
        NAME_history, NAME_steps, NAME_runs, NAME_summary, NAME_quantile(...) and so on. A statement sees each
        warehouse at one moment, the newest.
        """
        return self._statements.sql(statement, params)

    def explain(self, statement: str, *, params: Any = None) -> SqlPlan:
        """How a query would find its rows now; see `Warehouse.explain`. `site` of a part is the warehouse."""
        return self._statements.explain(statement, params)
