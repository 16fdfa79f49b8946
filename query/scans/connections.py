"""Connections to DuckDB that touch no files but their own, and queries that can be interrupted.

A connection is locked: no statement reads another file, loads an extension or changes a setting. A query runs
in a thread of its own while the caller's thread waits, because a thread inside DuckDB does not see Ctrl-C.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tidemark.query.reading.duckdb_errors import connect

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

Progress = Callable[[float], None]  # takes the share of the work that is done, from 0 to 1

_CONFIGURATION: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "python_enable_replacements": False,  # names of tables never mean variables of Python
}
_REPORT_SECONDS = 0.25  # between two reports of progress
_INTERRUPT_SECONDS = 0.05  # between two interrupts: one that comes before the query starts is lost


def open_connection(**settings: str | bool) -> DuckDBPyConnection:
    """A connection to a new in-memory database, with times in UTC and these settings of DuckDB."""
    import duckdb

    connection = connect(_CONFIGURATION)
    for name, value in {"TimeZone": "UTC", **settings}.items():
        # In a notebook DuckDB's progress needs a package for its bar, also where no bar is printed.
        with suppress(*([duckdb.InvalidInputException] if name.startswith("enable_progress_bar") else [])):
            connection.execute(f"SET {name} = ?", [value])
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return connection


def run_query(
    connection: DuckDBPyConnection,
    statement: str,
    parameters: Sequence[Any] = (),
    progress: Progress | None = None,
    share: Callable[[], float] | None = None,
) -> list[tuple[Any, ...]]:
    """The rows of a statement. `progress` gets the share that is done about four times a second, then 1.

    share   returns the share that is done; by default DuckDB's own estimate

    KeyboardInterrupt, and any error of `progress`, interrupts the statement and is raised when it has ended.
    """
    share = share or (lambda: max(0.0, connection.query_progress()) / 100)
    with ThreadPoolExecutor(1, thread_name_prefix="tidemark-scan") as pool:
        future = pool.submit(lambda: connection.execute(statement, parameters or None).fetchall())
        try:
            _wait_for(future, progress, share)
        except BaseException:
            while not future.done():
                connection.interrupt()
                wait([future], _INTERRUPT_SECONDS)
            raise
        return future.result()


def _wait_for(future: Future[Any], progress: Progress | None, share: Callable[[], float]) -> None:
    done = 0.0
    while wait([future], _REPORT_SECONDS).not_done:
        if progress is not None:
            done = max(done, min(share(), 1.0))
            progress(done)
    if progress is not None and future.exception() is None:
        progress(1.0)
