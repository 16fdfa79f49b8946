"""Rows in memory that a DuckDB connection reads by a name, in half the time of a small file.

DuckDB asks an object for its columns once, when it is registered, and for its rows whenever a statement reads
it. So an object stays registered for each list of columns, and has the rows of the statement that runs. A
statement that lists tables would show it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING

import pyarrow as pa

from tidemark.query.reading.checked_files import is_utf8
from tidemark.query.reading.sql_text import quoted

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_MOST = 64  # objects of a connection
_LISTS = re.compile(r"show|desc|_schema|duckdb_|sqlite_|pg_", re.IGNORECASE)


class _Object:
    """The object that DuckDB asks for columns and rows."""

    __slots__ = ("rows",)

    def __init__(self, rows: pa.Table) -> None:
        self.rows = rows

    def __arrow_c_schema__(self) -> object:
        return self.rows.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.rows.__arrow_c_stream__(requested_schema)


class RowsInMemory:
    """The rows that one connection reads, for one statement after the other."""

    def __init__(self, connection: DuckDBPyConnection) -> None:
        self._connection, self._used = connection, Counter[pa.Schema]()
        self._objects: dict[tuple[pa.Schema, int], tuple[str, _Object]] = {}
        self._numbers = count()

    def sql(self, rows: pa.Table) -> str | None:
        """SQL of rows, for a statement that is run inside `statement`; None if they must be given otherwise.

        These are rows with text that is not UTF-8, which would end DuckDB's database, and those with one more
        list of columns than there may be.

        OFFSET: what the statement asks of the rows is asked by DuckDB, and not handed to Arrow.
        """
        texts = (one for one in rows.columns if one.type in {pa.string(), pa.large_string()})
        if not all(map(is_utf8, texts)):
            return None
        place = rows.schema, self._used[rows.schema]
        known = self._objects.get(place)
        if known is None:
            if len(self._objects) >= _MOST:
                return None
            known = f"tidemark rows in memory {next(self._numbers)}", _Object(rows)
            self._connection.register(*known)
            self._objects[place] = known
        name, one = known
        one.rows = rows
        self._used[rows.schema] += 1
        return f"(SELECT * FROM {quoted(name)} OFFSET 0)"

    def hide_from(self, statement: str) -> None:
        """Before a statement that may list tables, what it does not read is registered no more."""
        if _LISTS.search(statement) is None:
            return
        for place, (name, _) in list(self._objects.items()):
            if place[1] >= self._used[place[0]]:
                self._connection.unregister(name)
                del self._objects[place]

    @contextmanager
    def statement(self) -> Iterator[None]:
        """Rows that are given inside are kept until its end."""
        try:
            yield
        finally:
            self._used.clear()
            for _, one in self._objects.values():
                if one.rows.num_rows:
                    one.rows = one.rows.schema.empty_table()
