"""Parse trees of statements, as DuckDB's json_serialize_sql gives them, and statements of trees."""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from tidemark.query.reading.connections import lock
from tidemark.query.reading.duckdb_errors import connect
from tidemark.query.reading.sql_text import literal, quoted
from tidemark.warehouse.errors import InputError, shortened
from tidemark.warehouse.memory_cache import LRUCache
from tidemark.warehouse.os_errors import one_line
from tidemark.warehouse.settings.allowed_columns import is_unicode

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

Node: TypeAlias = dict[str, Any]

_CACHED_CHARACTERS = 2**22  # of trees
_SHAPE_CHARACTERS = 2**20  # of statements that were bound
_CONSTANTS = re.compile(r"\"[^\"]*\"|'[^']*'|\b\d[\w.]*")  # and names in quotes: they may have digits
_OTHER_QUOTES = re.compile(r"--|/\*|\\|\$(?!\d)")  # there a quote may have no partner


def parsed(statement: str) -> Node | None:
    """The tree of one SELECT, for the caller alone; None if DuckDB does not give it."""
    try:
        tree: Node = json.loads(_parser().tree_text(statement))
    except RecursionError:
        return None
    return None if tree.get("error") or len(tree["statements"]) != 1 else tree


def check_text(statement: Any) -> None:
    """InputError unless the argument is text that DuckDB can read."""
    if not isinstance(statement, str):
        raise InputError(f"sql takes one query as text, got {shortened(statement)}.")
    if not is_unicode(statement):
        raise InputError(
            "sql cannot read the statement: half of a surrogate pair is no character. Leave it out."
        )


def check_query(statement: str, *, shows_text: bool = True) -> None:
    """InputError unless the text is one query; other statements have no use in a database of views.

    A text with a tree is a query. shows_text: whether the error may quote the statement, which may have
    values of private columns.
    """
    import duckdb

    statements: list[Any] | None
    try:
        statements = duckdb.extract_statements(statement)
    except duckdb.Error as error:
        if shows_text:
            raise InputError(f"sql cannot read the statement: {one_line(str(error))}. Correct it.") from error
        statements = None
    if statements is None:  # not in the handler, whose error shows the text, too
        raise InputError(
            "sql cannot read the statement: its syntax is wrong. It may have private values, so that no part "
            "of it is shown. Correct it."
        )
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        kinds = ", ".join(one.type.name for one in statements) or "nothing"
        raise InputError(f"sql takes one query, such as SELECT or FROM, got {kinds}.")


def written(tree: Node) -> str:
    """The statement of a tree."""
    return _parser().ask(f"SELECT json_deserialize_sql({literal(json.dumps(tree))}::JSON)")


class Bindings:
    """Views without rows: statements are bound to them, a fiftieth of the work on real views, and never run.

    They are views and no tables, because tables have a column `rowid`, which the views of rows do not have.

    tables: for each name the names and the types, in SQL, of its columns.
    """

    def __init__(self, tables: Mapping[str, Sequence[tuple[str, str]]]) -> None:
        self._connection, self._bound = _parser().cursor(), LRUCache[bool](_SHAPE_CHARACTERS)
        for name, columns in tables.items():
            typed = ", ".join(f"NULL::{kind} AS {quoted(column)}" for column, kind in columns)
            self._connection.execute(f"CREATE TEMP VIEW {quoted(name)} AS SELECT {typed} WHERE false")

    def has(self, statement: str, params: Any) -> bool:
        """Whether DuckDB binds a query by these tables alone.

        A query that differs from such a one in numbers and texts alone counts as one, too: a constant that
        DuckDB refuses is told when the rows are read.
        """
        import duckdb

        is_plain = _OTHER_QUOTES.search(statement) is None
        shape = _CONSTANTS.sub(_kind_of_constant, statement) if is_plain else statement
        kept = self._bound.at((shape, _types(params)))
        if kept.value:
            return True
        try:
            self._connection.sql(statement, params=params)
        except (duckdb.Error, TypeError):
            return False
        return kept.keep(True, len(statement))


def _kind_of_constant(found: re.Match[str]) -> str:
    """The stand-in for a number or a text in the shape of a statement; a name stays as it is."""
    text = found[0]
    return text if text[0] == '"' else "'" if text[0] == "'" else "0"


def _types(params: Any) -> tuple[Any, ...]:
    """The types of the values of parameters, and their names."""
    if isinstance(params, Mapping):
        return tuple((name, type(value)) for name, value in params.items())
    return tuple(map(type, params)) if isinstance(params, list | tuple) else (type(params),)


class _Parser:
    """A connection that only parses and binds; it has no rows, reads no files, and has no optimizer."""

    def __init__(self) -> None:
        self._connection, self._lock = connect(), threading.Lock()
        self._connection.execute("SET threads = 1; PRAGMA disable_optimizer")
        lock(self._connection, [])
        self._connection.execute("PREPARE tree_of AS SELECT json_serialize_sql(?)")
        self._trees: LRUCache[str] = LRUCache(_CACHED_CHARACTERS)

    def ask(self, sql: str) -> str:
        """The text that a statement gives."""
        with self._lock:  # a connection takes one call at a time
            ((text,),) = self._connection.execute(sql).fetchall()
        return str(text)

    def cursor(self) -> DuckDBPyConnection:
        """A connection of its own to this database."""
        with self._lock:
            return self._connection.cursor()

    def tree_text(self, statement: str) -> str:
        """The tree of a statement as JSON; kept for the next time."""
        kept = self._trees.at(statement)
        return kept.value or kept.keep(tree := self.ask(f"EXECUTE tree_of({literal(statement)})"), len(tree))


# By process: a forked child must neither use nor close what its parent opened.
_parsers: dict[int, _Parser] = {}


def _parser() -> _Parser:
    own = os.getpid()
    return _parsers.get(own) or _parsers.setdefault(own, _Parser())


def nodes(tree: Any) -> Iterator[Node]:
    """All nodes of a tree, each before those inside it."""
    waiting = [tree]
    while waiting:
        one = waiting.pop()
        children: Iterable[Any] = reversed(one)
        if isinstance(one, dict):
            yield one
            children = reversed(one.values())
        waiting += [child for child in children if isinstance(child, dict | list) and child]
