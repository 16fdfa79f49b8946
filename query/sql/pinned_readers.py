"""What DuckDB's functions call: a warehouse pinned at moments, whose files, tables and answers they return.

Each function gets a moment, the time of the transaction. See duckdb_sql.py.
"""

from __future__ import annotations

import shutil
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tidemark.query.reader import Reader
from tidemark.query.reading.duckdb_errors import Raised
from tidemark.query.sql import duckdb_calls, sql_rows
from tidemark.query.sql.calls import SIGNATURES
from tidemark.query.sql.registered import Registered
from tidemark.warehouse.delta import data_files, tables
from tidemark.warehouse.delta.table_names import EVENTS
from tidemark.warehouse.errors import TidemarkError, without_secrets
from tidemark.warehouse.memory_cache import LRUCache
from tidemark.warehouse.os_errors import report_unreadable_file
from tidemark.warehouse.settings.option_checks import SYSTEM_COLUMNS
from tidemark.warehouse.snapshots.system_tables import BATCH_COLUMNS, RUN_COLUMNS, STEP_COLUMNS
from tidemark.warehouse.temporary_folders import make_folder

CACHED_MOMENTS = 32  # pinned moments: an upper bound of the concurrent statements and transactions
POSITIONAL = ("arg2", "arg3", "arg4")  # positional arguments after the subjects
_COPY_BYTES = 2**22  # read from a store at once


def _refusing(method: Callable[..., list[str]]) -> Callable[..., list[str]]:
    """The method; an error of ours takes the place of its rows, so that DuckDB shows its line alone."""

    @wraps(method)
    def answer(readers: PinnedReaders, *arguments: Any) -> list[str]:
        try:
            return method(readers, *arguments)
        except TidemarkError as error:
            readers.raised.keep(error)
            return [f"{duckdb_calls.REFUSED}{error}"]
        except Exception as error:  # of this DuckDB passes on only the text
            readers.raised.keep(error)
            raise

    return answer


class PinnedReaders:
    """A warehouse pinned at moments; a moment is the `now()` of a transaction, in microseconds."""

    def __init__(self, wh: Reader) -> None:
        self.raised = Raised()
        # Not the warehouse itself: it may hold the connection that holds this object, and Python cannot
        # collect a cycle that passes through DuckDB.
        self._wh, self._lock = wh.twin(), threading.Lock()
        self._cache: LRUCache[Reader] = LRUCache(CACHED_MOMENTS)
        self._store = wh.store
        self._registered = Registered(wh.store, wh.identity)
        self._folder = Path(make_folder("sql-"))
        self.folders = (wh.store.uri, str(self._folder))  # where the files of the views lie
        weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        # While a view is made its files are not listed: it needs their columns alone.
        self.has_views = False
        # The first file of each list: it gives the view its columns even if there are no rows, or only files
        # from before a column came.
        self._empty = f"{self._folder}/empty.parquet"
        schema = pa.schema(tables.open_table(self._store, EVENTS).schema())
        if known := dict(wh.options.columns):  # at an earlier moment without those that came since
            schema = pa.schema([one for one in schema if one.name in {**SYSTEM_COLUMNS, **known}])
        pq.write_table(data_files.table_without_rows(schema), self._empty)

    def at(self, moment: int) -> Reader:
        """The warehouse as it was at the first call with this moment. NotAWarehouse if it is another one."""
        with self._lock:  # pinned once per moment, also if several parts of a statement call at once
            kept = self._cache.at(moment)
            if kept.value is not None:
                return kept.value
            self._registered.check()
            return kept.keep(self._wh.pinned())

    @_refusing
    def files(self, part: str, moment: int) -> list[str]:
        """The files that may hold rows of the part, after one without rows."""
        if not self.has_views:
            return [self._empty]
        contents = self.at(moment).contents()
        return [self._empty, *map(self._readable, contents.event_paths(part))]

    def _readable(self, path: str) -> str:
        """The path of a file of `events` for DuckDB: a file on a disk, or a copy of one in a store."""
        if self._store.files.folder is not None:
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

    @_refusing
    def rows_of(self, name: str, moment: int) -> list[str]:
        """The rows of a system table or of the view `summary`, as JSON."""
        wh = self.at(moment)
        if name == sql_rows.SUMMARY_VIEW:
            return _texts(sql_rows.columns(name, wh.options), sql_rows.rows(wh, name, None, (), {}))
        contents = wh.contents()
        columns, rows = {
            "batches": (BATCH_COLUMNS, contents.batches),
            "steps": (STEP_COLUMNS, contents.step_rows),
            "runs": (RUN_COLUMNS, contents.run_rows),
        }[name]
        return _texts(columns, rows())

    @_refusing
    def answers_of(self, name: str, values: str, kinds: str, measure: str | None, moment: int) -> list[str]:
        """The rows of an answer as JSON; `values` are the arguments as JSON, `kinds` their types."""
        wh = self.at(moment)
        as_text = SIGNATURES[name].accepts_any and _has_binary_keys(wh)
        given = duckdb_calls.read_arguments(values, kinds, bytes_as_text=as_text)
        args = [given.pop(parameter) for parameter in POSITIONAL]
        columns = self._columns(name, kinds, measure, moment)
        return _texts(columns, sql_rows.rows(wh, name, measure, args, given, columns))

    def columns_of(self, name: str, kinds: str, measure: str | None, moment: int) -> str:
        """The columns of an answer.

        DuckDB calls it when it binds a statement, before there are values. A refusal is left to the rows,
        in whose place DuckDB shows its line alone.
        """
        try:
            found = self._columns(name, kinds, measure, moment)
        except TidemarkError:
            found = sql_rows.columns(name, self._wh.options, measure)
        return duckdb_calls.structure(found)

    def _columns(self, name: str, kinds: str, measure: str | None, moment: int) -> list[tuple[str, str]]:
        options = self._wh.options
        if name not in sql_rows.SHOWS_POINTS:
            return sql_rows.columns(name, options, measure)
        given = duckdb_calls.given_points(kinds, SIGNATURES[name].subjects[0])
        beyond = not given.several and sql_rows.rows_beyond_double(self.at(moment), name, measure)
        return sql_rows.columns(name, options, measure, given, beyond_double=beyond)


def _texts(columns: Sequence[tuple[str, str]], rows: Iterator[tuple[Any, ...]]) -> list[str]:
    """The rows as JSON."""
    names = [name for name, _ in columns]
    return [duckdb_calls.row_text(names, row) for row in rows]


def _has_binary_keys(wh: Reader) -> bool:
    """Whether all keys are binary, so that text stands for bytes."""
    return bool(wh.keys) and all(key.type == "binary" for key in wh.keys)
