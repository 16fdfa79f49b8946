"""tidemark in Spark SQL: table functions that answer questions, and views of a warehouse's rows.

    query.register_views(spark, "/data/flights", name="flights")
    SELECT * FROM flights_quantile(0.99, '7 days')        SELECT count(*) FROM flights_events

A function runs in a Python worker, which keeps the warehouse open. A view is a SQL text: Spark resolves it
for each query, with the tables at their newest versions. The function NAME_batches lists the batches of
`events` that are visible. Spark opens `events` before it calls that function. So a query sees the batches
that were visible when it was planned, and possibly some that became visible while it ran; each batch
completely and once.

Spark would compare tokens with text, and find nothing. So a private column raises an error in every
expression, and no answer has tokens. The column is not left out: `user` is a function of Spark, too, and
other tables may have the name. The function NAME_user_events has the rows of one value of a column `user`; it
takes the token.

The classes that are pickled for the workers do not refer to tidemark. Where a worker cannot import tidemark,
they raise an error that says so.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tidemark.query.sql import sql_rows
from tidemark.query.sql.calls import SIGNATURES
from tidemark.query.sql.spark_worker import options_of
from tidemark.warehouse.columns.schema import ddl, quoted
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import EVENTS
from tidemark.warehouse.errors import InputError, error_in_traceback, shortened
from tidemark.warehouse.execution.hadoop import has_file_system
from tidemark.warehouse.execution.spark_versions import arrow_table_function, check_version
from tidemark.warehouse.private.tokens import text_prefix
from tidemark.warehouse.settings.allowed_columns import SYSTEM_COLUMNS
from tidemark.warehouse.settings.options import Options
from tidemark.warehouse.snapshots.past import At, given_moment
from tidemark.warehouse.snapshots.system_tables import (
    BATCH_COLUMNS,
    PARTS,
    RUN_COLUMNS,
    SHARE_COLUMNS,
    STEP_COLUMNS,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = "spark.tidemark."
# Partitions of a view that tidemark reads in tasks. Without a number Spark would join them to fewer.
_READ_TASKS = 16

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")


def register_views(
    spark: SparkSession,
    uri: str | os.PathLike[str] | None = None,
    name: str | None = None,
    *,
    storage_options: dict[str, str] | None = None,
    at: At | None = None,
) -> list[str]:
    """Registers the functions and views of a warehouse in the session, as NAME_quantile, NAME_events ...

    spark: a session, also one of Spark Connect; a path is then a path on the server.
    uri: the warehouse. Without it all warehouses of the session's settings spark.tidemark.NAME are
        registered.
    name: an identifier; by default the name of the folder.
    storage_options: what the workers open the warehouse with, see `query.open`. Where Spark has Delta's
        jar, and a file system for the store (s3a ...), Spark reads `events` itself, with its own settings;
        else its tasks read it with these options.
    at: the moment of all answers and rows, see `query.open`; then Spark's tasks read `events` with tidemark.
        By default each query sees what is newest.

    Returns the names of the warehouses. Registering a name again replaces its functions and views.

    A private column fails wherever it is used; NAME_COLUMN_events('token:...') has the rows of one of its
    values. There are no functions about keys then.

    Raises InputError for an invalid name, and for private columns where Spark does not read `events` itself;
    NotAWarehouse if there is no warehouse, and EmptyWindow if its columns are not known yet. A Spark worker
    opens the warehouse, so tidemark must be installed there.
    """
    _log_no_refusals()
    chosen = warehouses_set(spark, name) if uri is None else {name_of(uri, name): uri}
    for chosen_name, address in chosen.items():
        store = Store.from_uri(address, storage_options)
        _, options = register_functions(spark, checked_name(chosen_name), store, at)
        for view, text in views(spark, chosen_name, store, options, at).items():
            spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {view} AS {text}")
        for function in _functions_of_tokens(chosen_name, store, options):
            spark.sql(f"CREATE OR REPLACE TEMPORARY FUNCTION {function}")
    return list(chosen)


def _log_no_refusals() -> None:
    """Refusals are raised; pyspark would also print them on stderr, with Java's stack in a line of JSON."""
    from pyspark.logger import PySparkLogger

    PySparkLogger.getLogger("SQLQueryContextLogger").addFilter(_is_no_refusal)


def _is_no_refusal(record: logging.LogRecord) -> bool:
    return error_in_traceback(record.getMessage()) is None


def checked_name(name: Any) -> str:
    """The name. Raises InputError unless it can be the prefix of names of functions and views."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InputError(
            "name must be an identifier (letters, digits and _, at most 100, no digit first), got "
            f"{shortened(name)}."
        )
    return name


def warehouses_set(spark: SparkSession, name: str | None = None) -> dict[str, str]:
    """Address by name of the warehouses in the session's settings, or of the one with that name.

    Raises InputError if there is none.
    """
    configured = {
        key.removeprefix(SETTINGS): value
        for key, value in spark.conf.getAll.items()
        if key.startswith(SETTINGS)
    }
    chosen = (
        configured if name is None else {key: address for key, address in configured.items() if key == name}
    )
    if not chosen:
        raise InputError(
            f"no warehouse was named. Give its path, or set {SETTINGS}{name or 'NAME'} to it; "
            f"set are: {', '.join(configured) or 'none'}."
        )
    return chosen


def name_of(uri: str | os.PathLike[str], name: str | None = None) -> str:
    """The given name; by default the name of the folder."""
    return os.fspath(uri).rstrip("/").rsplit("/", 1)[-1] if name is None else name


def register_functions(
    spark: SparkSession, name: str, store: Store, at: At | None = None
) -> tuple[list[str], Options]:
    """Registers the functions, without views, in the session; returns their names, and the options."""
    check_version(spark.version)
    options, address = _describe(spark, store, None if at is None else given_moment(at))
    by_tasks = not _spark_scans(spark, store, at)
    if options.private and by_tasks:
        raise InputError(
            "the warehouse has private columns, and Spark SQL has these only where Spark reads the rows "
            "itself: with Delta's jar, a file system for the address, and without `at`. Ask the warehouse by "
            "query.open(...).sql, where the secret is."
        )
    defined = _functions(options, by_tasks=by_tasks)
    functions = {f"{name}_{suffix}": definition for suffix, definition in defined.items()}
    for full_name, (function, args, columns) in functions.items():
        spark.udtf.register(full_name, table_function(address, function, args, columns))
    return list(functions), options


def _describe(spark: SparkSession, store: Store, at: int | str | None) -> tuple[Options, tuple[Any, ...]]:
    """The options of the warehouse, and the address that workers open it by; a worker reads both."""
    from pyspark.errors import PySparkException

    address = (store.uri, store.storage_options, None, at)
    try:
        spark.udtf.register("tidemark_describe", table_function(address, "describe", (), "facts string"))
        rows = spark.sql("SELECT facts FROM tidemark_describe()").collect()
    except PySparkException as error:
        tidemark_error = error_in_traceback(str(error))
        if tidemark_error is None:
            raise
        raise tidemark_error from None
    finally:
        spark.sql("DROP TEMPORARY FUNCTION IF EXISTS tidemark_describe")
    options, identity = options_of(store.uri, rows[0][0])
    options.measure()  # EmptyWindow where the columns are not known yet
    return options, (store.uri, store.storage_options, identity, at)


def _functions(options: Options, *, by_tasks: bool) -> dict[str, tuple[str, tuple[Any, ...], str]]:
    """By name: the worker's function, its arguments before those of the caller, and the columns as DDL.

    by_tasks   whether views read `events` in Spark's tasks
    """
    functions: dict[str, tuple[str, tuple[Any, ...], str]] = {}
    has_private_keys = any({*options.private} & {*key.columns} for key in options.keys)
    for name, signature in SIGNATURES.items():
        if has_private_keys and not signature.of_measure:
            continue  # their answers have tokens
        functions[name] = ("rows", (name, None), ddl(sql_rows.columns(name, options)))
        for measure in options.measure_names if sql_rows.of_measure(name) else ():
            columns_ddl = ddl(sql_rows.columns(name, options, measure))
            functions[f"{measure}_{name}"] = ("rows", (name, measure), columns_ddl)
    view = sql_rows.SUMMARY_VIEW
    functions[view] = (view, (), ddl(sql_rows.columns(view, options)))
    functions["batches"] = ("batches", (options.fingerprint,), ddl(BATCH_COLUMNS))
    for name, columns in (("steps", STEP_COLUMNS), ("runs", RUN_COLUMNS)):
        functions[name] = (name, (), ddl(columns))
    if options.private:
        return functions  # Spark reads all rows itself
    rows = (*SYSTEM_COLUMNS.items(), *options.columns)
    functions["live"] = ("live", (rows, options.names), ddl(rows))
    if by_tasks:
        functions["read"] = ("read", (rows, options.names), ddl(rows))
        for part in ("events", "history"):
            functions[f"{part}_files"] = ("files", (part,), ddl(SHARE_COLUMNS))
    return functions


def views(
    spark: SparkSession, name: str, store: Store, options: Options, at: At | None = None
) -> dict[str, str]:
    """The SQL text of each view, by name. The functions must be registered before, with these options."""
    if _spark_scans(spark, store, at):
        texts = _scanned_by_spark(name, store, options)
    else:
        texts = {part: _read_by_tasks(name, part) for part in ("events", "history")}
    texts = {view: f"SELECT * FROM {name}_{view}()" for view in ("live", "steps", "runs")} | texts
    texts["summary"] = f"SELECT * FROM {name}_{sql_rows.SUMMARY_VIEW}()"
    return {f"{name}_{view}": text for view, text in texts.items()}


def _spark_scans(spark: SparkSession, store: Store, at: At | None) -> bool:
    """Whether Spark itself reads `events`, the newest: it has a file system for the address, and Delta."""
    events = store.spark_path(EVENTS)
    if at is not None or store.files.reads_copied_logs or not has_file_system(spark, events):
        return False
    # Asked first, because pyspark prints each statement that fails. Databricks sets the second alone.
    settings = (spark.conf.get("spark.sql.extensions", ""), spark.conf.get("spark.sql.sources.default", ""))
    if "delta" not in "".join(filter(None, settings)).lower():
        return False
    try:
        return bool(spark.sql(f"SELECT * FROM delta.{quoted(events)}").columns)
    except Exception:  # noqa: BLE001  for whatever reason Spark cannot: its tasks can, and read the same rows
        return False


def _scanned_by_spark(name: str, store: Store, options: Options) -> dict[str, str]:
    """Delta's own scan of `events`, with the batches that are visible."""
    visible = _visible(name, store, options)
    parts = PARTS if options.private else PARTS[:1]
    return {EVENTS: visible} | {part: f"{visible} AND b.part = '{part}'" for part in parts}


def _visible(name: str, store: Store, options: Options) -> str:
    """The visible rows, by Delta's own scan of `e`."""
    columns = "e.*"
    if options.names.renamed or options.private:
        names = (*SYSTEM_COLUMNS, *dict(options.columns))
        columns = ", ".join(f"{_column(name, options, one)} AS {quoted(one)}" for one in names)
    return (
        f"SELECT /*+ BROADCAST(b) */ {columns} FROM delta.{quoted(store.spark_path(EVENTS))} e "
        f"LEFT SEMI JOIN {name}_batches() b "
        "ON e._source = b.source AND e._batch BETWEEN b.first_batch AND b.last_batch"
    )


def _column(name: str, options: Options, column: str) -> str:
    """SQL of a column of views; of a private one it fails for each row for which it is computed."""
    if column not in options.private:
        return f"e.{quoted(options.names.stored(column))}"
    error = (
        f"{column} is a private column, whose tokens Spark SQL would compare with text. Leave it out, as in "
        f"SELECT * EXCEPT ({', '.join(options.private)}). {_of_tokens(name, column)} has the rows of a value."
    )
    return f"CAST(raise_error({_literal(error)}) AS STRING)"


def _of_tokens(name: str, column: str) -> str:
    """The name of the function that has the rows of one value of a private column."""
    return f"{name}_{column}_events"


def _functions_of_tokens(name: str, store: Store, options: Options) -> Iterator[str]:
    """The definitions of the functions that have the rows of a token."""
    prefix, private = text_prefix(options.fingerprint), {*options.private}
    columns = [(one, "string" if one in private else kind) for one, kind in options.columns]
    for column in (one for one, _ in columns if one in private):
        function = _of_tokens(name, column)
        error = (
            f"{function} takes the token of a value of the private column {column}, which begins with "
            f"{prefix}. It is str(query.token(value)), where the secret is."
        )
        returned, given = ddl((*SYSTEM_COLUMNS.items(), *columns)), f"{quoted(function)}.token"
        is_token = f"{given} IS NULL OR {given} RLIKE '^{prefix}([0-9a-f]{{2}}){{16,}}$'"
        digits = f"unhex(substring({given}, {len(prefix) + 1}))"
        yield (
            f"{quoted(function)}(token STRING) RETURNS TABLE ({returned}) RETURN "
            f"{_visible(name, store, options)} WHERE e.{quoted(options.names.stored(column))} = "
            f"CASE WHEN {is_token} THEN {digits} ELSE raise_error({_literal(error)}) END"
        )


def _literal(text: str) -> str:
    """A text in Spark's SQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _read_by_tasks(name: str, part: str) -> str:
    """The files of a part, read by tidemark in Spark's tasks."""
    files = f"SELECT /*+ REPARTITION({_READ_TASKS}, path) */ * FROM {name}_{part}_files()"
    return f"SELECT * FROM {name}_read(TABLE({files}))"


def table_function(address: tuple[Any, ...], function: str, bound: tuple[Any, ...], columns: str) -> Any:
    """A Spark table function that calls the worker's function `function` with the arguments `bound`.

    Calls of "rows" and "describe" are answered, or refused, when Spark analyses them; "rows" takes arguments
    of the caller, too. "live" and "read", which takes a table, yield Arrow batches.
    """
    from pyspark.sql.functions import udtf

    missing = (
        "tidemark cannot be imported by Spark's Python workers. Install it in their environment, or give "
        "spark-submit --py-files with the zip of `make dist`"
    )

    def worker() -> Any:
        try:
            from tidemark.query.sql import spark_worker
        except ImportError as error:
            raise ImportError(f"{missing}: {error}") from None
        return spark_worker

    class AnswerFunction:
        @staticmethod
        def analyze(*args: Any, **named: Any) -> Any:
            return worker().analysis_of_call(address, function, bound, args, named)

        def __init__(self, analysis: Any = None) -> None:
            self._analysis = analysis

        def eval(self, *args: Any, **named: Any) -> Iterator[Any]:
            yield from worker().rows_of_call(address, function, *bound, self._analysis, args, named)

    class SystemTableFunction:
        def eval(self, *table: Any) -> Iterator[Any]:
            yield from worker().rows_of_call(address, function, *bound, *table)

    if function in ("live", "read"):
        return arrow_table_function(SystemTableFunction, columns)
    # Without Arrow: a call has few rows, which are faster without the conversion.
    if function in ("rows", "describe"):
        return udtf(AnswerFunction, useArrow=False)
    return udtf(SystemTableFunction, returnType=columns, useArrow=False)
