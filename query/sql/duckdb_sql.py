"""tidemark in DuckDB SQL: macros that answer questions, and views of a warehouse's rows.

Snapshot isolation. DuckDB binds a view for each statement and then calls the functions inside it, which list
the files of `events` and the visible batches. Each call passes `now()`, which is constant within a
transaction. The warehouse is pinned once for each such moment. So all tables of a statement, or of an
explicit transaction, are of one moment, and the next statement sees newer data.

DuckDB supports only scalar functions in Python. So the function of a macro returns a list of rows, which the
macro unnests. Its arguments are passed as JSON.
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
from tidemark.query.sql import sql_rows
from tidemark.query.sql.calls import SIGNATURES
from tidemark.query.sql.spark_sql import checked_name
from tidemark.query.sql.sql_types import duckdb_type
from tidemark.warehouse.delta import tables
from tidemark.warehouse.delta.store import EVENTS
from tidemark.warehouse.errors import InputError, without_secrets
from tidemark.warehouse.memory_cache import LRUCache
from tidemark.warehouse.os_errors import report_unreadable_file
from tidemark.warehouse.snapshots.snapshot_reader import open_snapshot
from tidemark.warehouse.snapshots.system_tables import BATCH_COLUMNS, RUN_COLUMNS, STEP_COLUMNS

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

# DuckDB writes to stderr if connections with Python functions are still open when Python exits.
_with_functions: weakref.WeakSet[DuckDBPyConnection] = weakref.WeakSet()


@atexit.register
def _close() -> None:
    for connection in list(_with_functions):
        connection.close()


_COPY_BYTES = 2**22  # read from a store at once
CACHED_MOMENTS = 32  # pinned moments: an upper bound of the concurrent statements and transactions
_POSITIONAL = ("arg2", "arg3", "arg4")  # positional arguments after the subjects


def register(connection: DuckDBPyConnection, wh: Reader, prefix: str, *, temporary: bool) -> None:
    """Creates the views and macros, with names that start with the prefix; existing ones are replaced."""
    readers, make = _PinnedReaders(wh), f"CREATE OR REPLACE {'TEMP ' if temporary else ''}"
    define = _FunctionRegistry(connection, f"tidemark_{prefix}")
    files = define(f"{EVENTS}_files", readers.files, ["VARCHAR"], "VARCHAR[]")
    batches = _rows_query(define("batches", readers.rows_of("batches"), [], _struct_list(BATCH_COLUMNS)))
    visible = (
        f"SELECT e.* FROM read_parquet({files}('{{part}}', epoch_us(now())), hive_partitioning = false) e "
        f"SEMI JOIN ({batches}) b ON e._source = b.source AND e._batch BETWEEN b.first_batch AND b.last_batch"
    )
    views = {"events": visible.format(part="events")}
    views |= {part: f"{visible.format(part=part)} AND b.part = '{part}'" for part in ("history", "live")}
    summary = sql_rows.columns("summary", wh.options)
    for name, columns in (("steps", STEP_COLUMNS), ("runs", RUN_COLUMNS), ("summary", summary)):
        views[name] = _rows_query(define(name, readers.rows_of(name), [], _struct_list(columns)))
    for name, text in views.items():
        connection.execute(f'{make}VIEW "{prefix}{name}" AS {text}')
    for name in SIGNATURES:
        returns = _struct_list(sql_rows.columns(name, wh.options))
        function = define(name, readers.answers_of(name), ["VARCHAR"], returns)
        connection.execute(f'{make}MACRO "{prefix}{name}"{_macro_definition(name, function, wh)}')


def _rows_query(function: str, argument: str = "") -> str:
    """A query of the rows in the list that a function returns."""
    return f"SELECT r.* FROM (SELECT unnest({function}({argument}epoch_us(now()))) AS r)"


def _struct_list(columns: Any) -> str:
    """The DuckDB type of a list of rows with these columns."""
    return "STRUCT(" + ", ".join(f'"{name}" {duckdb_type(kind)}' for name, kind in columns) + ")[]"


def _macro_definition(name: str, function: str, wh: Reader) -> str:
    """The parameters and the body of a table macro."""
    signature = SIGNATURES[name]
    subjects = [name if signature.needed else f"{name} := NULL" for name in signature.subjects]
    named = [parameter for parameter in signature.parameters if parameter not in signature.subjects]
    expressions = {name: f'"{name}"' for name in (*signature.subjects, *_POSITIONAL, *named)}
    if _has_binary_keys(wh) and signature.accepts_any:
        expressions |= {subject: f"hex(CAST({subject} AS BLOB))" for subject in signature.subjects}
    fields = ", ".join(f"'{parameter}': {expression}" for parameter, expression in expressions.items())
    optional = (f'"{parameter}" := NULL' for parameter in (*_POSITIONAL, *named))
    parameters = ", ".join([*subjects, *optional])
    return f"({parameters}) AS TABLE {_rows_query(function, f'to_json({{{fields}}}), ')}"


def _has_binary_keys(wh: Reader) -> bool:
    """Whether all keys are binary: JSON has no binary values, so they are passed as hexadecimal digits."""
    return bool(wh.keys) and all(key.type == "binary" for key in wh.keys)


class _FunctionRegistry:
    """Registers functions under names with one prefix; a function of the same name is replaced."""

    def __init__(self, connection: DuckDBPyConnection, prefix: str) -> None:
        self._connection, self._prefix = connection, prefix

    def __call__(self, name: str, function: Callable[..., Any], takes: list[str], returns: str) -> str:
        import duckdb

        full_name = f"{self._prefix}{name}"
        with suppress(duckdb.InvalidInputException):
            self._connection.remove_function(full_name)
        kinds: Any = [*takes, "BIGINT"]
        handling: Any = "special"  # the function handles NULL arguments itself
        self._connection.create_function(full_name, function, kinds, returns, null_handling=handling)
        _with_functions.add(self._connection)
        return full_name


class _PinnedReaders:
    """A warehouse pinned at moments; a moment is the `now()` of a transaction, in microseconds."""

    def __init__(self, wh: Reader) -> None:
        # Not the warehouse itself: it may hold the connection that holds this object, and Python cannot
        # collect a cycle that passes through DuckDB.
        self._wh, self._lock = wh.twin(), threading.Lock()
        self._cache: LRUCache[Reader] = LRUCache(CACHED_MOMENTS)
        self._store = wh.contents().store
        self._folder = Path(tempfile.mkdtemp(prefix="tidemark-"))
        weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        # The first file of each list: it gives the view its columns even if there are no rows.
        self._empty = f"{self._folder}/empty.parquet"
        events = tables.open_table(self._store, EVENTS)
        pq.write_table(tables.table_without_rows(pa.schema(events.schema())), self._empty)

    def at(self, moment: int) -> Reader:
        """The warehouse as it was at the first call with this moment."""
        with self._lock:  # pinned once per moment, also if several parts of a statement call at once
            return self._cache.get(moment, self._wh.pinned)

    def files(self, part: str, moment: int) -> list[str]:
        """The files that may hold rows of the part, after one without rows."""
        contents = self.at(moment).contents()
        return [self._empty, *map(self._readable, contents.event_paths(part))]

    def _readable(self, path: str) -> str:
        """The path of a file of `events` for DuckDB: a file on a disk, or a copy of one in a store."""
        if self._store.is_local:
            return self._store.table(path)
        copy = self._folder / path.rsplit("/", 1)[-1]
        with self._lock:
            if not copy.exists():
                part = copy.with_suffix(".part")
                with (
                    report_unreadable_file(f"{path} of the warehouse {without_secrets(self._store.uri)}"),
                    self._store.filesystem().open_input_stream(path) as source,
                    part.open("wb") as target,
                ):
                    shutil.copyfileobj(source, target, _COPY_BYTES)
                part.rename(copy)
        return str(copy)

    def rows_of(self, name: str) -> Callable[[int], list[dict[str, Any]]]:
        """A function (moment) that returns the rows of a system table or of the summary."""

        def list_rows(moment: int) -> list[dict[str, Any]]:
            wh = self.at(moment)
            if name == "summary":
                return _rows_as_dicts(wh, name, sql_rows.rows(wh, name, None, (), {}))
            contents = wh.contents()
            columns, rows = {
                "batches": (BATCH_COLUMNS, contents.batches),
                "steps": (STEP_COLUMNS, contents.step_rows),
                "runs": (RUN_COLUMNS, contents.run_rows),
            }[name]
            names = [column for column, _ in columns]
            return [dict(zip(names, row, strict=True)) for row in rows()]

        return list_rows

    def answers_of(self, name: str) -> Callable[[str, int], list[dict[str, Any]]]:
        """A function (arguments as JSON, moment) that returns the rows of an answer."""

        def list_rows(arguments: str, moment: int) -> list[dict[str, Any]]:
            wh = self.at(moment)
            given = json.loads(arguments, parse_float=Decimal)
            args = [given.pop(parameter) for parameter in _POSITIONAL]
            if _has_binary_keys(wh) and SIGNATURES[name].accepts_any:
                for subject in SIGNATURES[name].subjects:
                    given[subject] = None if given[subject] is None else bytes.fromhex(given[subject])
            return _rows_as_dicts(wh, name, sql_rows.rows(wh, name, None, args, given))

        return list_rows


def _rows_as_dicts(wh: Reader, name: str, rows: Iterator[tuple[Any, ...]]) -> list[dict[str, Any]]:
    """The rows of a function as dicts by column name; structs are dicts, too."""
    names = [column for column, _ in sql_rows.columns(name, wh.options)]
    return [
        {column: _as_duckdb(column, value) for column, value in zip(names, row, strict=True)} for row in rows
    ]


_STRUCT_FIELDS = {"window": ("start", "end"), "as_of": ("runs", "steps", "ledger")}


def _as_duckdb(column: str, value: Any) -> Any:
    """A value as DuckDB's Python functions return it: structs and maps are dicts."""
    if value is None:
        return None
    if column == "group":
        return {"key": list(value), "value": list(value.values())}
    return dict(zip(_STRUCT_FIELDS[column], value, strict=True)) if column in _STRUCT_FIELDS else value


def register_duckdb(
    connection: DuckDBPyConnection,
    warehouse: Reader | str | os.PathLike[str],
    name: str | None = None,
    *,
    storage_options: dict[str, str] | None = None,
) -> None:
    """Creates views and macros of a warehouse in a DuckDB connection, as NAME_events, NAME_quantile ...

    They are temporary. Each statement sees the newest data; all of a statement, or of an explicit
    transaction, is of one moment.

    warehouse: an open warehouse, or its path or address. Of a warehouse in an object store, a statement first
        copies the files of `events` that it needs to a temporary folder; they stay as long as the connection.
    name: an identifier; by default the name of the folder.
    storage_options: of the object store, for a warehouse that is not open yet.

    Raises InputError for an invalid name.
    """
    wh = warehouse if isinstance(warehouse, Reader) else Reader(open_snapshot(warehouse, storage_options))
    uri = _check_path(wh)
    register(connection, wh, checked_name(Path(uri).name if name is None else name) + "_", temporary=True)


def connected(wh: Reader) -> DuckDBPyConnection:
    """A connection to a new in-memory database with the views and macros of the warehouse."""
    import duckdb

    _check_path(wh)
    connection = duckdb.connect()
    register(connection, wh, "", temporary=False)
    return connection


def checked_query(statement: str) -> None:
    """Raises InputError unless the text is one query; other statements have no use in this database."""
    import duckdb

    statements = duckdb.extract_statements(statement)
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        kinds = ", ".join(parsed.type.name for parsed in statements) or "nothing"
        raise InputError(f"sql takes one query, such as SELECT or FROM, got {kinds}.")


def _check_path(wh: Reader) -> str:
    """The address of the warehouse. Raises InputError if DuckDB would take a local one for a pattern."""
    store = wh.contents().store
    if store.is_local and re.search(r"[*?]", store.uri):
        raise InputError(
            f"DuckDB reads warehouses by paths without * and ?; this one is at {store.uri}. Rename the "
            "folder, or use query.register_views and Spark."
        )
    return store.uri
