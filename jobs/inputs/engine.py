"""The engine of a command: this process for little data, Spark for much data or if a session exists.

Both give the same tables. Starting Spark takes seconds, more than the load of a small file takes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tidemark import warehouse
from tidemark.jobs.inputs.store_places import StorePlaces
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.errors import StoreUnavailable
from tidemark.warehouse.execution.input_files import find_inputs, format_of, is_local
from tidemark.warehouse.maintain import joinable_bytes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE_BYTES = 2**28  # bytes of files: with more, Spark's tasks save more time than its start costs
HERE_ROWS = 10_000_000  # the same for rows of a warehouse


def session_for(engine: str, choose: Callable[[], str], app_name: str, **conf: str) -> SparkSession | None:
    """The session of a command with this `--engine`, None if this process does the work.

    choose: called for `auto`, one of the functions below. conf: settings of a session that is started.
    """
    if (choose() if engine == "auto" else engine) == "local":
        return None
    from tidemark.jobs.spark.session import spark_session

    return spark_session(app_name, **conf)


def spark_is_there() -> bool:
    """Whether this process has a Spark session, or was started by spark-submit, or is told of a server."""
    if "PYSPARK_GATEWAY_PORT" in os.environ or "SPARK_REMOTE" in os.environ:
        return True
    pyspark = sys.modules.get("pyspark")
    return pyspark is not None and pyspark.SparkContext._active_spark_context is not None  # noqa: SLF001


def engine_for_files(given: Sequence[str], kind: str | None, store: Store) -> str:
    """The engine for an input; InputError if there is none.

    store: where the warehouse lies. Files of an object store are read here only if the warehouse is in a
        store of that kind: then its credentials are known here.
    """
    places = StorePlaces(store.options)
    if spark_is_there() or not all(is_local(path) or _scheme(path) == _scheme(store.uri) for path in given):
        return "spark"
    try:
        found = find_inputs(given, places)
        if format_of(given, found, kind) == "delta":
            return "spark"
        return "local" if sum(map(places.size, found.paths)) <= HERE_BYTES else "spark"
    except (OSError, StoreUnavailable):
        return "spark"  # which may have credentials of its own


def _scheme(path: str) -> str:
    """The scheme of an address; s3a, as Spark calls it, is s3."""
    scheme = path.partition("://")[0]
    return "s3" if scheme in ("s3a", "s3n") else scheme


def engine_for_rows(rows: int) -> str:
    """The engine for work on this many rows of a warehouse."""
    return "spark" if spark_is_there() or rows > HERE_ROWS else "local"


def engine_for_live_rows(uri: str, storage_options: dict[str, str] | None) -> str:
    """The engine to load what streams appended."""
    facts = warehouse.open_snapshot(uri, storage_options).current().info()
    return engine_for_rows(int(facts["live_rows"]))


def engine_for_history(uri: str, storage_options: dict[str, str] | None) -> str:
    """The engine to build a further key or group from all rows of history."""
    measures = warehouse.open_snapshot(uri, storage_options).current().info()["measures"]
    return engine_for_rows(max((int(facts["rows"]) for facts in measures.values()), default=0))


def engine_for_maintenance(uri: str, storage_options: dict[str, str] | None) -> str:
    """The engine to join the small files of `events`; the rest of maintenance is the caller's process."""
    if spark_is_there():
        return "spark"
    return "local" if joinable_bytes(Store.from_uri(uri, storage_options)) <= HERE_BYTES else "spark"
