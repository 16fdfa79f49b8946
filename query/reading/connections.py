"""Connections to DuckDB that read no files but a warehouse's, and queries that can be interrupted.

A connection is locked: no statement reads another file, loads an extension or changes a setting. To open a
connection takes longer than many scans, so a connection is kept for the next scan. A query runs in a thread
of its own while the caller's thread waits, because a thread inside DuckDB does not see Ctrl-C.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from tidemark.query.reading import spending
from tidemark.query.reading.budgets import scan_memory
from tidemark.query.reading.duckdb_errors import connect
from tidemark.warehouse.memory_cache import parse_bytes
from tidemark.warehouse.temporary_folders import make_folder

if TYPE_CHECKING:
    import pyarrow as pa
    from duckdb import DuckDBPyConnection

T = TypeVar("T")
Progress = Callable[[float], None]  # takes the share of the work that is done, from 0 to 1

_OFF = (
    "autoinstall_known_extensions",
    "autoload_known_extensions",
    "python_enable_replacements",  # names of tables never mean variables of Python
    "enable_external_access",
)
IDLE = 4  # connections that wait for the next scan, of all warehouses together
_REPORT_SECONDS = 0.25  # between two reports of progress
_LEAST_WAIT = 0.001  # seconds
_INTERRUPT_SECONDS = 0.05  # between two interrupts: one that comes before the query starts is lost


@dataclass(slots=True, eq=False)
class ScanConnection:
    """A connection that may read files below some folders; `spills` is its folder for temporary files.

    memory: the bytes that DuckDB may use. tables: the names of the tables that the scan has made.
    is_sound: whether it is known that no error has ended the database: a statement succeeded last.
    """

    connection: DuckDBPyConnection
    folders: frozenset[str]
    spills: str
    memory: int
    tables: set[str] = field(default_factory=set)
    is_sound: bool = False

    def table_of(self, name: str, rows: str) -> str:
        """The statement that keeps rows, SQL, in a temporary table until the scan ends."""
        self.tables.add(name)
        return f"CREATE OR REPLACE TEMP TABLE {name} AS {rows}"


# By process: a forked child must neither use nor close what its parent opened.
_idle: dict[int, list[ScanConnection]] = {}


@contextmanager
def registered(connection: DuckDBPyConnection, **tables: pa.Table) -> Iterator[None]:
    """The tables by their names, for the statements inside."""
    for name, table in tables.items():
        connection.register(name, table)
    try:
        yield
    finally:
        for name in tables:
            connection.unregister(name)


def take_connection(*readable: str | None) -> ScanConnection:
    """A connection without tables for one scan; it reads files below the folders. End it by `give_back`."""
    folders = frozenset(folder for folder in readable if folder is not None)
    waiting = _idle.setdefault(os.getpid(), [])
    for known in list(waiting):
        if known.folders == folders:
            with suppress(ValueError):  # another thread took it
                waiting.remove(known)
                if os.path.isdir(known.spills):  # noqa: PTH112  Path's takes longer
                    return known
    spills = make_folder("scan-")
    connection = open_connection(
        sorted(folders),
        memory_limit=f"{scan_memory()}B",
        temp_directory=spills,
        preserve_insertion_order=False,
        parquet_metadata_cache=True,  # the files never change: checked_files.py
        enable_progress_bar=True,
        enable_progress_bar_print=False,
    )
    ((memory,),) = connection.execute("SELECT current_setting('memory_limit')").fetchall()
    return ScanConnection(connection, folders, spills, parse_bytes(memory))


def give_back(used: ScanConnection) -> None:
    """Drops what a scan has made; the connection waits for the next scan, unless its database is broken."""
    import duckdb

    waiting = _idle.setdefault(os.getpid(), [])
    try:
        if not used.is_sound:
            used.connection.execute("SELECT 1").fetchall()  # refused if there is no database any more
        for name in used.tables:
            used.connection.execute(f"DROP TABLE IF EXISTS {name}")
    except duckdb.Error:
        used.connection.close()
        return
    used.tables.clear()
    used.is_sound = False
    waiting.append(used)
    while len(waiting) > IDLE:
        with suppress(IndexError):
            waiting.pop(0).connection.close()


@contextmanager
def taken_connection(*readable: str | None) -> Iterator[ScanConnection]:
    """As `take_connection`; it is given back at the end."""
    taken = take_connection(*readable)
    try:
        yield taken
    finally:
        give_back(taken)


def open_connection(folders: Sequence[str] = (), **settings: str | bool) -> DuckDBPyConnection:
    """A connection to a new in-memory database, with times in UTC and these settings of DuckDB.

    folders: it may read files below these, and no others.
    """
    import duckdb

    connection = connect()
    for name, value in {"TimeZone": "UTC", **settings}.items():
        # In a notebook DuckDB's progress needs a package for its bar, even if no bar is printed.
        with suppress(*([duckdb.InvalidInputException] if name.startswith("enable_progress_bar") else [])):
            connection.execute(f"SET {name} = ?", [value])
    lock(connection, folders)
    return connection


def lock(connection: DuckDBPyConnection, folders: Sequence[str]) -> None:
    """From here on statements read files below these folders alone, and change no setting."""
    connection.execute("SET allowed_directories = ?", [list(folders)])
    for name in _OFF:
        connection.execute(f"SET {name} = false")
    connection.execute("SET lock_configuration = true")


def run_query(
    connection: DuckDBPyConnection,
    ask: Callable[[], T],
    progress: Progress | None = None,
    share: Callable[[], float] | None = None,
) -> T:
    """Calls `ask`, which runs a statement, as `run_watched`.

    share: by default DuckDB's own estimate.
    """
    share = share or (lambda: max(0.0, connection.query_progress()) / 100)
    return run_watched(ask, connection.interrupt, progress, share)


def run_watched(
    ask: Callable[[], T], stop: Callable[[], None], progress: Progress | None, share: Callable[[], float]
) -> T:
    """Calls `ask` in a thread, and returns its result.

    stop       makes `ask` end soon; called again until it has ended
    progress   gets the share that is done about four times a second, then 1
    share      returns the share that is done

    KeyboardInterrupt, any error of `progress`, and the end of the question's time or way (spending.py)
    stop it, and are raised when it has ended.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="tidemark-scan") as pool:
        future = pool.submit(ask)
        try:
            _wait_for(future, progress, share)
        except BaseException:
            while not future.done():
                stop()
                wait([future], _INTERRUPT_SECONDS)
            raise
        return future.result()


def _wait_for(future: Future[Any], progress: Progress | None, share: Callable[[], float]) -> None:
    done = 0.0
    while wait([future], min(_REPORT_SECONDS, max(_LEAST_WAIT, spending.seconds_left()))).not_done:
        spending.check()
        if progress is not None:
            done = max(done, min(share(), 1.0))
            progress(done)
    if progress is not None and future.exception() is None:
        progress(1.0)
