"""tidemark in Spark's SQL: table functions that answer, and views of what a warehouse holds.

    query.register_views(spark, "/data/flights", name="flights")
    SELECT * FROM flights_quantile(0.99, '7 days')        SELECT count(*) FROM flights_events

A function runs in a Python worker, which keeps the warehouse open. A view is text: Spark reads it anew
with each query, and with it the tables at their newest versions. Which rows of `events` are visible is
told by the function NAME_batches. Spark opens `events` before it asks that function, so the batches that a
query shows are those that were visible when it was planned, and maybe some that became so while it ran,
each whole and once.

What crosses to the workers are classes without a reference to tidemark: where it cannot be imported there
they say so.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tidemark.query.sql import sql_rows
from tidemark.query.sql.calls import SIGNATURES
from tidemark.query.sql.spark_worker import options_of
from tidemark.warehouse.columns.schema import ddl, quoted
from tidemark.warehouse.delta.store import EVENTS, Store
from tidemark.warehouse.errors import InputError, error_in_traceback
from tidemark.warehouse.settings.option_checks import SYSTEM_COLUMNS
from tidemark.warehouse.settings.options import Options
from tidemark.warehouse.snapshots.system_tables import BATCHES, RUNS, STEPS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = "spark.tidemark."
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")


def register_views(
    spark: SparkSession,
    uri: str | os.PathLike[str] | None = None,
    name: str | None = None,
    *,
    storage_options: dict[str, str] | None = None,
) -> list[str]:
    """Registers the functions and views of a warehouse in the session, as NAME_quantile, NAME_events ...

    `name` is an identifier; the folder's name where it is left out. Without a `uri` the settings
    spark.tidemark.NAME say which warehouses there are. Registering again replaces. A session from Spark
    Connect will do; a path is then one that the server has. `storage_options` are what the workers open the
    warehouse with, see `query.open`; what Spark reads by itself, it reads with its own settings. Returns the
    warehouses' names.

    InputError for a bad name, NotAWarehouse where there is none, EmptyWindow where the columns are not
    known yet: all that is told by a worker of Spark's, which also has to have tidemark.
    """
    chosen = warehouses_set(spark, name) if uri is None else {name_of(uri, name): uri}
    for one, where in chosen.items():
        store = Store.from_uri(where, storage_options)
        register_functions(spark, checked_name(one), store)
        for view, text in views(one, store).items():
            spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {view} AS {text}")
    return list(chosen)


def checked_name(name: Any) -> str:
    """The name, if it can begin the names of functions and views."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InputError(
            f"name must be an identifier (letters, digits and _, at most 100, no digit first), got {name!r}."
        )
    return name


def warehouses_set(spark: SparkSession, name: str | None = None) -> dict[str, str]:
    """The warehouses that the session's settings name, or the one of that name; InputError for none."""
    known = {
        key.removeprefix(SETTINGS): value
        for key, value in spark.conf.getAll.items()
        if key.startswith(SETTINGS)
    }
    chosen = known if name is None else {one: where for one, where in known.items() if one == name}
    if not chosen:
        raise InputError(
            f"no warehouse was named. Give its path, or set {SETTINGS}{name or 'NAME'} to it; "
            f"set are: {', '.join(known) or 'none'}."
        )
    return chosen


def name_of(uri: str | os.PathLike[str], name: str | None = None) -> str:
    """The name, or that of the folder."""
    return os.fspath(uri).rstrip("/").rsplit("/", 1)[-1] if name is None else name


def register_functions(spark: SparkSession, name: str, store: Store) -> list[str]:
    """Registers the functions alone in the session; returns their names."""
    options, place = _described(spark, store)
    found = {f"{name}_{function}": told for function, told in _functions(options).items()}
    for function, (what, args, columns) in found.items():
        spark.udtf.register(function, table_function(place, what, args, columns))
    return list(found)


def _described(spark: SparkSession, store: Store) -> tuple[Options, tuple[Any, ...]]:
    """The options of the warehouse, and what a worker opens it by; a worker tells them."""
    from pyspark.errors import PySparkException

    place = (store.uri, store.storage_options)
    try:
        spark.udtf.register("tidemark_describe", table_function(place, "describe", (), "facts string"))
        found = spark.sql("SELECT facts FROM tidemark_describe()").collect()
    except PySparkException as error:
        own = error_in_traceback(str(error))
        if own is None:
            raise
        raise own from None
    finally:
        spark.sql("DROP TEMPORARY FUNCTION IF EXISTS tidemark_describe")
    options, identity = options_of(store.uri, found[0][0])
    options.measure()  # EmptyWindow where the columns are not known yet
    return options, (*place, identity)


def _functions(options: Options) -> dict[str, tuple[str, tuple[Any, ...], str]]:
    """By name: what of a worker is asked, with which arguments before the caller's, and the columns."""
    found: dict[str, tuple[str, tuple[Any, ...], str]] = {}
    for name in SIGNATURES:
        found[name] = ("rows", (name, None), ddl(sql_rows.columns(name, options)))
        for measure in options.measure_names if sql_rows.of_measure(name) else ():
            own = ddl(sql_rows.columns(name, options, measure))
            found[f"{measure}_{name}"] = ("rows", (name, measure), own)
    found["summary"] = ("summary", (), ddl(sql_rows.columns("summary", options)))
    for name, columns in (("batches", BATCHES), ("steps", STEPS), ("runs", RUNS)):
        found[name] = (name, (), ddl(columns))
    found["live"] = ("live", (), ddl([*SYSTEM_COLUMNS.items(), *options.columns]))
    return found


def views(name: str, store: Store) -> dict[str, str]:
    """The views' queries, by name; the functions have to be there."""
    events = f"delta.{quoted(store.spark_path(EVENTS))}"
    visible = (
        f"SELECT /*+ BROADCAST(b) */ e.* FROM {events} e LEFT SEMI JOIN {name}_batches() b "
        "ON e._source = b.source AND e._batch BETWEEN b.first_batch AND b.last_batch"
    )
    texts = {"events": visible, "history": f"{visible} AND b.part = 'history'"}
    texts |= {one: f"SELECT * FROM {name}_{one}()" for one in ("live", "steps", "runs", "summary")}
    return {f"{name}_{view}": text for view, text in texts.items()}


def table_function(place: tuple[Any, ...], what: str, bound: tuple[Any, ...], columns: str) -> Any:
    """A table function of Spark's. `live` yields Arrow batches; those of answers take arguments."""
    from pyspark.sql.functions import arrow_udtf, udtf

    missing = (
        "tidemark cannot be imported by Spark's Python workers. Install it in their environment, or give "
        "spark-submit --py-files with the zip of `make dist`"
    )

    class Answering:
        def eval(self, *args: Any, **named: Any) -> Iterator[Any]:
            try:
                from tidemark.query.sql import spark_worker
            except ImportError as error:
                raise ImportError(f"{missing}: {error}") from None
            yield from spark_worker.told(place, what, *bound, args, named)

    class Telling:
        def eval(self) -> Iterator[Any]:
            try:
                from tidemark.query.sql import spark_worker
            except ImportError as error:
                raise ImportError(f"{missing}: {error}") from None
            yield from spark_worker.told(place, what)

    if what == "live":
        return arrow_udtf(Telling, returnType=columns)
    # Without Arrow: a call has few rows, and those pass faster as they are.
    return udtf(Answering if what == "rows" else Telling, returnType=columns, useArrow=False)
