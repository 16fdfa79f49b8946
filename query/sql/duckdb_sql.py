"""tidemark in DuckDB SQL: macros that answer questions, and views of a warehouse's rows.

Snapshot isolation. DuckDB binds a view for each statement and then calls the functions inside it, which list
the files of `events` and the visible batches. Each call passes `now()`, which is constant within a
transaction. The warehouse is pinned once for each such moment. So all tables of a statement, or of an
explicit transaction, are of one moment, and the next statement sees newer data.

DuckDB supports only scalar functions in Python. So the function of a macro returns a list of rows, which the
macro unnests; arguments and rows are passed as JSON, see duckdb_calls.py. The types of its columns come from
a second function, which DuckDB calls when it binds a statement.
"""

from __future__ import annotations

import atexit
import os
import re
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidemark.query.reader import Reader
from tidemark.query.reading.connections import lock
from tidemark.query.reading.duckdb_errors import Raised, connect, report_duckdb_errors
from tidemark.query.reading.sql_text import literal, quoted
from tidemark.query.sql import duckdb_calls, sql_rows
from tidemark.query.sql.calls import SIGNATURES
from tidemark.query.sql.macros import Macros
from tidemark.query.sql.narrowed import RowsView, function_name, rows_views
from tidemark.query.sql.pinned_readers import POSITIONAL, PinnedReaders
from tidemark.query.sql.relations import Database, RowsSql
from tidemark.query.sql.rows_in_memory import RowsInMemory
from tidemark.query.sql.spark_sql import checked_name
from tidemark.warehouse.delta.table_names import EVENTS
from tidemark.warehouse.errors import InputError, shortened
from tidemark.warehouse.private.tokens import text_prefix
from tidemark.warehouse.settings.allowed_columns import SYSTEM_COLUMNS
from tidemark.warehouse.snapshots.past import At, opened
from tidemark.warehouse.snapshots.system_tables import PARTS, RUN_COLUMNS, STEP_COLUMNS

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from tidemark.warehouse.settings.options import Options

# DuckDB writes to stderr if connections with Python functions are still open when Python exits.
_with_functions: weakref.WeakSet[DuckDBPyConnection] = weakref.WeakSet()


@atexit.register
def _close() -> None:
    for connection in list(_with_functions):
        connection.close()


SITE = "_site"  # the column of the views over several warehouses that has the name of each
_NOW = "epoch_us(now())"
_CHECKED = f"CASE WHEN starts_with(text, '{duckdb_calls.REFUSED}') THEN error(text[2:]) ELSE text END"


def register(
    connection: DuckDBPyConnection,
    wh: Reader,
    prefix: str,
    *,
    temporary: bool,
    rows_view: str,
    raised: Raised,
) -> None:
    """Creates the views and macros, with names that start with the prefix; existing ones are replaced.

    rows_view: the name of a view of the rows beside these; "" for none. raised: keeps the functions' errors.
    """
    _, macros, _ = _registered(
        connection, wh, prefix, temporary=temporary, rows_view=rows_view, raised=raised
    )
    with report_duckdb_errors("making the SQL functions", raised):
        macros.make(connection)


def _registered(
    connection: DuckDBPyConnection,
    wh: Reader,
    prefix: str,
    *,
    temporary: bool,
    rows_view: str,
    raised: Raised,
) -> tuple[PinnedReaders, Macros, RowsSql]:
    """As `register`, with macros that are not made yet, and the function that writes rows into statements."""
    readers = PinnedReaders(wh, raised)
    make = f"CREATE OR REPLACE {'TEMP ' if temporary else ''}"
    with report_duckdb_errors("making the SQL functions", readers.raised):
        define = _FunctionRegistry(connection, f"tidemark_{prefix}")
        own, found, rows_sql = _views(define, wh, readers)
        views = {f"{prefix}{name}": text for name, text in own.items()}
        if rows_view:
            views[rows_view] = f'FROM "{prefix}{EVENTS}"'
        for name, text in views.items():
            connection.execute(f'{make}VIEW "{name}" AS {text}')
        readers.has_views = True
        macros = {prefix + name: text for name, text in _macros(define, wh, readers).items()}
        for part, text in () if temporary else found.items():
            macros[function_name(prefix + part)] = partial(str, f"(asked) AS TABLE {text}")
    return readers, Macros(f"{make}MACRO", macros, readers), rows_sql


def _views(
    define: _FunctionRegistry, wh: Reader, readers: PinnedReaders
) -> tuple[dict[str, str], dict[str, str], RowsSql]:
    """The queries of the views, by their names without the prefix.

    The second mapping has, for each view of rows, the query of the rows that indexes find for the condition
    `asked`. It is empty without an index. The third part returns that query as of now.
    """
    rows_sql = define(f"{EVENTS}_sql", readers.rows_sql, ["VARCHAR", "VARCHAR", "VARCHAR"], "VARCHAR")
    rows_of = define("rows", readers.rows_of, ["VARCHAR", "VARCHAR"])
    tables = {"steps": STEP_COLUMNS, "runs": RUN_COLUMNS}

    def table(name: str, site: str) -> str:
        return _table(f"{rows_of}('{name}', {literal(site)}, {_NOW})", tables[name])

    prefix = text_prefix(wh.options.fingerprint)
    private = [
        f"{_token_struct(f'e.{quoted(name)}', prefix)} AS {quoted(name)}"
        for name, _ in wh.options.columns  # without columns before the first batch
        if name in wh.options.private
    ]
    tokens = f" REPLACE ({', '.join(private)})" if private else ""

    def named(site: str, found: str) -> str:
        pairs = readers.sites[site].names.renamed
        own_names = ", ".join(f"{quoted(stored)} AS {quoted(own)}" for own, stored in pairs)
        return f"(SELECT * RENAME ({own_names}) FROM {found})" if pairs else found

    def shown(site: str, found: str) -> str:
        return f"SELECT e.*{tokens} FROM {named(site, found)} e"

    def rows(part: str, asked: str, site: str) -> str:
        return shown(site, f"query({rows_sql}('{part}', {literal(site)}, {asked}, {_NOW}))")

    def rows_now(part: str, asked: str, memory: RowsInMemory) -> str:
        return _of_all(readers, lambda site: shown(site, f"({readers.rows_now(part, site, asked, memory)})"))

    views = {part: _of_all(readers, partial(rows, part, "''")) for part in (EVENTS, *PARTS)}
    views |= {name: _of_all(readers, partial(table, name)) for name in tables}
    view = sql_rows.SUMMARY_VIEW
    summary = f"{define(view, readers.summary)}({_NOW})"
    views["summary"] = _table(summary, sql_rows.columns(view, wh.options, several=readers.are_named))
    indexed = (EVENTS, *PARTS) if any(site.options.indexes for site in wh.sites.values()) else ()
    return views, {part: _of_all(readers, partial(rows, part, "asked")) for part in indexed}, rows_now


def _macros(define: _FunctionRegistry, wh: Reader, readers: PinnedReaders) -> dict[str, Callable[[], str]]:
    """The functions that make the parameters and bodies of the macros, by their names without the prefix."""
    functions = (
        define("answers", readers.answers_of, ["VARCHAR"] * 4),
        define("columns", readers.columns_of, ["VARCHAR"] * 3, "VARCHAR"),
    )
    options, several, macros = wh.options, readers.are_named, dict[str, Callable[[], str]]()
    for name in SIGNATURES:
        measures = [column.name for column in wh.measures] if sql_rows.of_measure(name) else []
        for measure in (None, *measures):
            full_name = name if measure is None else f"{measure}_{name}"
            macros[full_name] = partial(_macro_definition, name, functions, options, measure, several=several)
    return macros


def _token_struct(column: str, prefix: str) -> str:
    """SQL of a private column as statements see it: a struct, which DuckDB does not compare with text."""
    return f"CASE WHEN {column} IS NOT NULL THEN struct_pack(token := '{prefix}' || lower(hex({column}))) END"


def _of_all(readers: PinnedReaders, query_of: Callable[[str], str]) -> str:
    """A query of the rows of all warehouses; if they have names, with the name of each in the column SITE."""
    if not readers.are_named:
        return query_of("")
    queries = (f"SELECT {literal(name)} AS {SITE}, * FROM ({query_of(name)})" for name in readers.sites)
    return " UNION ALL BY NAME ".join(queries)


def _table(call: str, columns: Sequence[tuple[str, str]]) -> str:
    """A query of the rows that a call of a function returns."""
    return _rows_query(f"unnest({call}) AS text", f"'{duckdb_calls.structure(columns)}'", columns)


def _rows_query(source: str, columns_text: str, columns: Sequence[tuple[str, str]]) -> str:
    """A query of the rows whose texts are in the column `text` of `source`; a refusal becomes an error."""
    binary = ", ".join(f'unhex("{name}") AS "{name}"' for name, kind in columns if kind == "binary")
    replaced = f" REPLACE ({binary})" if binary else ""
    rows = (
        f"SELECT r.* FROM (SELECT from_json_strict({_CHECKED}, {columns_text}) AS r FROM (SELECT {source}))"
    )
    return f"SELECT *{replaced} FROM ({rows})" if binary else rows


def _macro_definition(
    name: str, functions: tuple[str, str], options: Options, measure: str | None, *, several: bool
) -> str:
    """The parameters and the body of a table macro: of one measure, or of the one that a call names."""
    signature = SIGNATURES[name]
    subjects = [name if signature.needed else f"{name} := NULL" for name in signature.subjects]
    named = [parameter for parameter in signature.parameters if parameter not in signature.subjects]
    fields = ", ".join(f"'{name}': \"{name}\"" for name in (*signature.subjects, *POSITIONAL, *named))
    optional = (f'"{parameter}" := NULL' for parameter in (*POSITIONAL, *named))
    parameters = ", ".join([*subjects, *optional])
    answers, columns = functions
    about = "NULL" if measure is None else literal(measure)
    called = f"unnest({answers}('{name}', to_json(given), typeof(given), {about}, {_NOW})) AS text, given"
    source = f"{called} FROM (SELECT {{{fields}}} AS given)"
    shown = sql_rows.columns(name, options, measure, several=several)
    body = _rows_query(source, f"{columns}('{name}', typeof(given), {about}, {_NOW})", shown)
    return f"({parameters}) AS TABLE {body}"


class _FunctionRegistry:
    """Registers functions under names with one prefix; a function of the same name is replaced."""

    def __init__(self, connection: DuckDBPyConnection, prefix: str) -> None:
        self._connection, self._prefix = connection, prefix

    def __call__(
        self, name: str, function: Callable[..., Any], takes: Sequence[str] = (), returns: str = "VARCHAR[]"
    ) -> str:
        import duckdb

        full_name = f"{self._prefix}{name}"
        with suppress(duckdb.InvalidInputException):
            self._connection.remove_function(full_name)
        kinds: Any = [*takes, "BIGINT"]
        handling: Any = "special"  # the function handles NULL arguments itself
        self._connection.create_function(full_name, function, kinds, returns, null_handling=handling)
        _with_functions.add(self._connection)
        return full_name


def register_duckdb(
    connection: DuckDBPyConnection,
    warehouse: Reader | str | os.PathLike[str],
    name: str | None = None,
    *,
    storage_options: dict[str, str] | None = None,
    at: At | None = None,
) -> None:
    """Creates views and macros of a warehouse in a DuckDB connection, as NAME_events, NAME_quantile ...

    They are temporary. Each statement sees the newest data; all of a statement, or of an explicit
    transaction, is of one moment.

    warehouse: an open warehouse, or its path or address. Of a warehouse in an object store, a statement first
        copies the files of `events` that it needs to a temporary folder; they stay as long as the connection.
    name: an identifier; by default the name of the folder.
    storage_options: of the object store, for a warehouse that is not open yet.
    at: the moment of a warehouse that is not open yet, see `query.open`; by default each statement's own.

    Raises InputError for an invalid name, for `at` beside an open warehouse, and for private columns.
    """
    if isinstance(warehouse, Reader) and at is not None:
        raise InputError(
            f"at={shortened(str(at))} was given beside an open warehouse, which has its own moment. Give the "
            "path instead, or open the warehouse with query.open(path, at=...)."
        )
    wh = warehouse if isinstance(warehouse, Reader) else Reader(opened(warehouse, storage_options, at=at))
    check_registered(wh)
    if name is None:
        if "" not in wh.sites:
            raise InputError("several warehouses have no name together. Give name=, as in NAME_events.")
        name = Path(wh.store.uri).name
    register(connection, wh, checked_name(name) + "_", temporary=True, rows_view="", raised=Raised())


def check_registered(wh: Reader) -> None:
    """InputError for a warehouse that a caller's connection cannot take.

    Such a warehouse has private columns, or * or ? in its path.
    """
    if wh.options.private:
        raise InputError(
            "the warehouse has private columns, and statements of this connection would compare their tokens "
            "with text. Ask it by query.open(...).sql, where the secret is."
        )
    _check_paths(wh)


def connected(warehouses: Mapping[str, Reader], *, locked: bool = False) -> Database:
    """A new in-memory database with the views and macros of warehouses; macros are made when one is named.

    warehouses: each by its name, the prefix of its views and macros; one alone by "". The view of
        just that name has the rows.
    locked: whether statements can read no files but those of the warehouses.
    """
    for wh in warehouses.values():
        _check_paths(wh)
    connection = connect()
    connection.execute("SET TimeZone = 'UTC'")  # times without a zone are UTC, whatever the machine's zone is
    connection.execute("SET parquet_metadata_cache = true")  # the files never change
    raised, folders, views, macros = Raised(), list[str](), dict[str, RowsView](), list[Macros]()
    rows = dict[str, tuple[PinnedReaders, RowsSql]]()
    for name, wh in warehouses.items():
        prefix = f"{name}_" if name else ""
        readers, own, rows_sql = _registered(
            connection, wh, prefix, temporary=False, rows_view=name, raised=raised
        )
        macros.append(own)
        rows[name] = readers, rows_sql
        folders += readers.folders
        sites = wh.sites.values()
        indexed = {one.column.name for site in sites for one in site.options.indexes}
        columns = {column for site in sites for column, _ in site.options.columns}
        views |= rows_views(name, sorted(indexed), [*SYSTEM_COLUMNS, *sorted(columns)])
    if locked:
        lock(connection, folders)
    has_tokens = any(wh.options.private for wh in warehouses.values())
    return Database(connection, folders, raised, views, macros, rows, has_tokens=has_tokens)


def _check_paths(wh: Reader) -> None:
    """Raises InputError if DuckDB would take the path of a local warehouse for a pattern."""
    for site in wh.sites.values():
        if re.search(r"[*?]", site.store.files.folder or ""):
            raise InputError(
                f"DuckDB reads warehouses by paths without * and ?; this one is at {site.store.uri}. Rename "
                "the folder, or use query.register_views and Spark."
            )
