"""Connections and cursors as tools of DB-API expect them (PEP 249), read only.

A statement is one query. It reads no files but those of the warehouses, and sees all of them as of the moment
when it begins. So there are no transactions: commit and rollback do nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeAlias

from tidemark.query.reader import Reader
from tidemark.query.sql.relations import Relation
from tidemark.query.sql.statements import Statements
from tidemark.warehouse.errors import InputError, TidemarkError

apilevel = "2.0"
threadsafety = 1  # threads may share the module, not connections
paramstyle = "qmark"
Error = TidemarkError
Row: TypeAlias = tuple[Any, ...]


class Connection:
    """A connection; its cursors share one database in memory, which the first statement makes.

    warehouses: each by its name.
    """

    def __init__(self, warehouses: Mapping[str, Reader]) -> None:
        self._statements: Statements | None = Statements(warehouses, locked=True)

    def cursor(self) -> Cursor:
        """A new cursor."""
        return Cursor(self)

    def query(self, statement: str, parameters: Sequence[Any]) -> Relation:
        """The relation of a statement."""
        if self._statements is None:
            raise InputError("the connection is closed. Open another one.")
        return self._statements.sql(statement, list(parameters) or None)

    def commit(self) -> None:
        """Nothing: a statement ends by itself."""

    def rollback(self) -> None:
        """Nothing: no statement changes anything."""

    def close(self) -> None:
        """Statements are refused from here on."""
        self._statements = None


class Cursor:
    """Runs a statement at a time, and gives its rows as tuples. All rows are in memory when it has run.

    description: a tuple for each column of the result, its name first; None before a statement. Some tools
        set it anew.
    """

    arraysize = 1
    rowcount = -1

    def __init__(self, connection: Connection) -> None:
        self._connection: Connection | None = connection
        self.description: list[tuple[Any, ...]] | None = None
        self._rows: Iterator[Row] | None = None

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> None:
        """Runs a query. parameters: values for ?. InputError for other statements, and for closed cursors."""
        if self._connection is None:
            raise InputError("the cursor is closed. Open another one.")
        self.description = self._rows = None
        relation = self._connection.query(statement, parameters)
        rows = relation.fetchall()
        self.description = [(name, *[None] * 6) for name in relation.columns]
        self._rows = iter(rows)

    def executemany(self, statement: str, parameters: Sequence[Sequence[Any]]) -> None:
        """InputError: it is for statements that write, and nothing can be written here."""
        raise InputError(f"{len(parameters)} times {statement[:100]!r}: a warehouse can only be read here.")

    def fetchone(self) -> Row | None:
        """The next row; None at the end."""
        return next(self._result(), None)

    def fetchmany(self, size: int | None = None) -> list[Row]:
        """So many of the next rows, by default `arraysize`."""
        return list(islice(self._result(), self.arraysize if size is None else size))

    def fetchall(self) -> list[Row]:
        """All further rows."""
        return list(self._result())

    def close(self) -> None:
        """Frees the rows."""
        self._connection = self.description = self._rows = None

    def _result(self) -> Iterator[Row]:
        if self._rows is None:
            raise InputError("no statement was run. Run one first.")
        return self._rows
