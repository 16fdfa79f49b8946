"""tidemark in DuckDB's SQL: macros that answer, and views of what a warehouse holds.

A view is bound anew with each statement, and then the functions inside it are asked: which files of `events`
there are, and which batches are visible. They are told the statement's `now()`, which is that of its
transaction, and answer of one look at the warehouse for each: so all tables of a statement, and of an
explicit transaction, are of one moment, and the next statement sees what is new.

DuckDB takes Python's functions for scalars alone. So a macro's function returns a list of rows, which the
macro takes apart; its arguments cross as JSON.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from tidemark.query.reader import Reader
from tidemark.query.reading.memory_cache import Recent
from tidemark.query.sql import sql_rows
from tidemark.query.sql.calls import SIGNATURES
from tidemark.query.sql.spark_sql import checked_name
from tidemark.query.sql.sql_types import duckdb_type
from tidemark.warehouse.delta import tables
from tidemark.warehouse.delta.store import EVENTS
from tidemark.warehouse.errors import InputError
from tidemark.warehouse.snapshots.snapshot import open_snapshot
from tidemark.warehouse.snapshots.system_tables import BATCHES, RUNS, STEPS

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

# DuckDB complains on stderr about Python functions that are left when Python ends.
_with_functions: weakref.WeakSet[DuckDBPyConnection] = weakref.WeakSet()


@atexit.register
def _close() -> None:
    for connection in list(_with_functions):
        connection.close()


LOOKS = 32  # moments of which a warehouse is remembered: statements and transactions under way
_PLACES = ("arg2", "arg3", "arg4")  # what is given by position after the subjects


def register(connection: DuckDBPyConnection, wh: Reader, prefix: str, *, temporary: bool) -> None:
    """Makes the views and macros, their names beginning with the prefix; those there are replaced."""
    looks, make = _Looks(wh), f"CREATE OR REPLACE {'TEMP ' if temporary else ''}"
    define = _Functions(connection, f"tidemark_{prefix}")
    files = define(f"{EVENTS}_files", looks.files, ["VARCHAR"], "VARCHAR[]")
    batches = _rows(define("batches", looks.rows_of("batches"), [], _struct(BATCHES)))
    visible = (
        f"SELECT e.* FROM read_parquet({files}('{{part}}', epoch_us(now())), hive_partitioning = false) e "
        f"SEMI JOIN ({batches}) b ON e._source = b.source AND e._batch BETWEEN b.first_batch AND b.last_batch"
    )
    views = {"events": visible.format(part="events")}
    views |= {part: f"{visible.format(part=part)} AND b.part = '{part}'" for part in ("history", "live")}
    summary = sql_rows.columns("summary", wh.options)
    for name, columns in (("steps", STEPS), ("runs", RUNS), ("summary", summary)):
        views[name] = _rows(define(name, looks.rows_of(name), [], _struct(columns)))
    for name, text in views.items():
        connection.execute(f'{make}VIEW "{prefix}{name}" AS {text}')
    for name in SIGNATURES:
        told = _struct(sql_rows.columns(name, wh.options))
        asked = define(name, looks.answers_of(name), ["VARCHAR"], told)
        connection.execute(f'{make}MACRO "{prefix}{name}"{_macro(name, asked, wh)}')


def _rows(function: str, argument: str = "") -> str:
    """A query of the rows that a function returns as a list."""
    return f"SELECT r.* FROM (SELECT unnest({function}({argument}epoch_us(now()))) AS r)"


def _struct(columns: Any) -> str:
    return "STRUCT(" + ", ".join(f'"{name}" {duckdb_type(kind)}' for name, kind in columns) + ")[]"


def _macro(name: str, function: str, wh: Reader) -> str:
    """Parameters and body of a table macro."""
    signature = SIGNATURES[name]
    subjects = [one if signature.needed else f"{one} := NULL" for one in signature.subjects]
    named = [one for one in signature.parameters if one not in signature.subjects]
    key = wh.options.key_column
    said = {one: one for one in (*signature.subjects, *_PLACES, *named)}
    if key is not None and key.type == "binary" and signature.untold:
        said |= {one: f"hex(CAST({one} AS BLOB))" for one in signature.subjects}
    fields = ", ".join(f"'{one}': {value}" for one, value in said.items())
    parameters = ", ".join([*subjects, *(f"{one} := NULL" for one in (*_PLACES, *named))])
    return f"({parameters}) AS TABLE {_rows(function, f'to_json({{{fields}}}), ')}"


class _Functions:
    """Registers functions under names that begin alike; called again, in place of those before."""

    def __init__(self, connection: DuckDBPyConnection, prefix: str) -> None:
        self._connection, self._prefix = connection, prefix

    def __call__(self, name: str, function: Callable[..., Any], takes: list[str], returns: str) -> str:
        import duckdb

        full = f"{self._prefix}{name}"
        with suppress(duckdb.InvalidInputException):
            self._connection.remove_function(full)
        kinds: Any = [*takes, "BIGINT"]
        handling: Any = "special"  # NULL arguments are ours to judge
        self._connection.create_function(full, function, kinds, returns, null_handling=handling)
        _with_functions.add(self._connection)
        return full


class _Looks:
    """A warehouse as it was at moments, each the `now()` of a transaction in microseconds."""

    def __init__(self, wh: Reader) -> None:
        # Not the warehouse itself: it may hold the connection that holds this, and DuckDB breaks no circles.
        self._wh, self._lock = wh.twin(), threading.Lock()
        self._seen: Recent[Reader] = Recent(LOOKS)
        folder = tempfile.mkdtemp(prefix="tidemark-")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        # First in each list: it brings the columns, also where there are no rows.
        self._empty = f"{folder}/empty.parquet"
        events = tables.open_table(wh.contents().store, EVENTS)
        pq.write_table(tables.table_without_rows(pa.schema(events.schema())), self._empty)

    def at(self, moment: int) -> Reader:
        """The warehouse as it was when this was asked first."""
        with self._lock:  # one look a moment, whichever of its statements' parts asks first
            return self._seen.get(moment, self._wh.pinned)

    def files(self, part: str, moment: int) -> list[str]:
        """The files that may hold rows of the part, and one without rows."""
        contents = self.at(moment).contents()
        return [self._empty, *(contents.store.table(path) for path in contents.event_paths(part))]

    def rows_of(self, name: str) -> Callable[[int], list[dict[str, Any]]]:
        """A function that tells the rows of a table."""

        def tell(moment: int) -> list[dict[str, Any]]:
            wh = self.at(moment)
            if name == "summary":
                return _named(wh, name, sql_rows.rows(wh, name, None, (), {}))
            contents = wh.contents()
            columns, rows = {
                "batches": (BATCHES, contents.batches),
                "steps": (STEPS, contents.step_rows),
                "runs": (RUNS, contents.run_rows),
            }[name]
            names = [one for one, _ in columns]
            return [dict(zip(names, row, strict=True)) for row in rows()]

        return tell

    def answers_of(self, name: str) -> Callable[[str, int], list[dict[str, Any]]]:
        """A function that answers."""

        def tell(said: str, moment: int) -> list[dict[str, Any]]:
            wh = self.at(moment)
            given = json.loads(said, parse_float=Decimal)
            args = [given.pop(one) for one in _PLACES]
            key = wh.options.key_column
            if key is not None and key.type == "binary" and SIGNATURES[name].untold:
                for one in SIGNATURES[name].subjects:
                    given[one] = None if given[one] is None else bytes.fromhex(given[one])
            return _named(wh, name, sql_rows.rows(wh, name, None, args, given))

        return tell


def _named(wh: Reader, name: str, rows: Iterator[tuple[Any, ...]]) -> list[dict[str, Any]]:
    """The rows of a function by their columns' names."""
    names = [one for one, _ in sql_rows.columns(name, wh.options)]
    inner = {"window": ("start", "end"), "as_of": ("runs", "steps", "ledger")}
    return [
        {
            one: dict(zip(inner[one], value, strict=True)) if one in inner and value is not None else value
            for one, value in zip(names, row, strict=True)
        }
        for row in rows
    ]


def register_duckdb(
    connection: DuckDBPyConnection, warehouse: Reader | str | os.PathLike[str], name: str | None = None
) -> None:
    """Makes views and macros of a warehouse in a DuckDB connection, as NAME_events, NAME_quantile ...

    They are temporary and see the warehouse as it is at each statement; all of a statement, or of an explicit
    transaction, is of one moment. `name` is an identifier, the folder's name where it is left out.
    InputError for another name, and for a warehouse that is not on this machine's disks.
    """
    wh = warehouse if isinstance(warehouse, Reader) else Reader(open_snapshot(warehouse))
    uri = _on_disk(wh)
    register(connection, wh, checked_name(Path(uri).name if name is None else name) + "_", temporary=True)


def connected(wh: Reader) -> DuckDBPyConnection:
    """A connection to a database of its own, with the tables and functions of the warehouse."""
    import duckdb

    _on_disk(wh)
    connection = duckdb.connect()
    register(connection, wh, "", temporary=False)
    return connection


def checked_query(statement: str) -> None:
    """InputError where the text is not one query: nothing else has a use in a database of its own."""
    import duckdb

    found = duckdb.extract_statements(statement)
    if len(found) != 1 or found[0].type != duckdb.StatementType.SELECT:
        kinds = ", ".join(one.type.name for one in found) or "nothing"
        raise InputError(f"sql takes one query, such as SELECT or FROM, got {kinds}.")


def _on_disk(wh: Reader) -> str:
    store = wh.contents().store
    if not store.is_local or re.search(r"[*?]", store.uri):
        raise InputError(
            f"DuckDB reads warehouses from this machine's disks, by paths without * and ?; this one is at "
            f"{store.uri}. Use query.register_views and Spark."
        )
    return store.uri
