"""What DuckDB's functions call: a warehouse pinned at moments, whose files, tables and answers they return.

Each function gets a moment, the time of the transaction. See duckdb_sql.py.
"""

from __future__ import annotations

import json
import shutil
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

from tidemark.query.reader import Reader
from tidemark.query.reading.duckdb_errors import Raised
from tidemark.query.reading.sql_text import literal, parquet_rows
from tidemark.query.sql import duckdb_calls, sql_rows
from tidemark.query.sql.calls import SIGNATURES
from tidemark.query.sql.found_rows import FoundSql, SiteFiles, found_rows, looked_up
from tidemark.query.sql.rows_in_memory import RowsInMemory
from tidemark.query.sql.shown_types import NOT_GIVEN
from tidemark.warehouse.errors import TidemarkError
from tidemark.warehouse.memory_cache import LRUCache
from tidemark.warehouse.snapshots.system_tables import RUN_COLUMNS, STEP_COLUMNS, Contents
from tidemark.warehouse.temporary_folders import make_folder

P = ParamSpec("P")
T = TypeVar("T")

CACHED_MOMENTS = 32  # pinned moments: an upper bound of the concurrent statements and transactions
_FOUND_BYTES = 2**25  # of the queries of rows that are kept
POSITIONAL = ("arg2", "arg3", "arg4")  # positional arguments after the subjects


# `on` in a thread that binds a statement for its columns: of `events` it needs no rows.
_columns_alone = threading.local()


@contextmanager
def binding_columns() -> Iterator[None]:
    """Inside, statements that this thread binds get the columns of `events` and no rows; nothing is read."""
    _columns_alone.on = True
    try:
        yield
    finally:
        _columns_alone.on = False


def _refusing(told: Callable[[str], T]) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """A method that returns an error of ours as an answer, so that DuckDB shows only its line."""

    def refusing(method: Callable[..., T]) -> Callable[..., T]:
        @wraps(method)
        def answer(readers: PinnedReaders, /, *given: Any) -> T:
            try:
                return method(readers, *given)
            except TidemarkError as error:
                readers.raised.keep(error)
                return told(str(error))
            except Exception as error:  # DuckDB passes on only the text of this error
                readers.raised.keep(error)
                raise

        return answer

    return refusing


def _first_row(message: str) -> list[str]:
    """The refusal in the place of the rows of a table, which are texts."""
    return [f"{duckdb_calls.REFUSED}{message}"]


def _failing_sql(message: str) -> str:
    """The refusal in the place of SQL of rows: it fails when it is bound."""
    return f"SELECT * FROM query(error({literal(message)}))"


class PinnedReaders:
    """A warehouse, or several, pinned at moments; a moment is the `now()` of a transaction, in microseconds.

    raised: keeps the errors of the functions.
    sites: the files of each warehouse by its name; of one by the name "".
    """

    def __init__(self, wh: Reader, raised: Raised) -> None:
        self.raised = raised
        # Not the warehouse itself: it may hold the connection that holds this object, and Python cannot
        # collect a cycle that passes through DuckDB.
        self._wh, self._lock = wh.twin(), threading.Lock()
        self._cache: LRUCache[Reader] = LRUCache(CACHED_MOMENTS)
        self._now: Reader | None = None  # inside `one_moment`
        self._found: LRUCache[FoundSql] = LRUCache(_FOUND_BYTES)
        folder = Path(make_folder("sql-"))
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self.sites = dict[str, SiteFiles]()
        for number, (name, site) in enumerate(wh.sites.items()):
            own = folder / str(number)
            own.mkdir()
            self.sites[name] = SiteFiles(site, own)
        # where the files of the views lie
        self.folders = (*(site.store.uri for site in self.sites.values()), str(folder))
        # While a view or a macro is made nothing is read of the warehouse: it needs the columns alone.
        self.has_views = self.has_macros = False

    def at(self, moment: int) -> Reader:
        """The warehouse as it was at the first call with this moment. NotAWarehouse for another one."""
        with self._lock:  # pinned once per moment, also if several parts of a statement call at once
            if self._now is not None:
                return self._now
            kept = self._cache.at(moment)
            return kept.keep(self._pinned()) if kept.value is None else kept.value

    def _pinned(self) -> Reader:
        for site in self.sites.values():
            site.registered.check()
        return self._wh.pinned()

    @contextmanager
    def one_moment(self) -> Iterator[None]:
        """Inside, every moment is the one when it began; NotAWarehouse as of `at`.

        For one statement, whose connection has no other meanwhile.
        """
        self._now = self._pinned()
        try:
            yield
        finally:
            self._now = None

    def rows_now(self, part: str, site: str, asked: str, memory: RowsInMemory) -> str:
        """As `rows_sql`, inside `one_moment`, for a statement that reads the memory. It raises errors."""
        found = self._rows_found(part, site, asked, cast("Reader", self._now).contents_by_site()[site])
        source = None if found.values is None else memory.sql(found.values)
        return self._sql_of(site, found) if source is None else found.sql_of(source)

    def _sql_of(self, site: str, found: FoundSql) -> str:
        """The query of rows, whose values are in a file."""
        values = found.values
        return found.sql_of("" if values is None else parquet_rows([self.sites[site].values.path_of(values)]))

    @_refusing(_failing_sql)
    def rows_sql(self, part: str, site: str, asked: str, moment: int) -> str:
        """SQL of the rows of a warehouse's part of which a WHERE may be true.

        asked: JSON of the ranges that it allows (`query/scans/sought.py`), and of the columns that the
            statement reads; "" for all rows.
        """
        own = self.sites[site]
        if not self.has_views or getattr(_columns_alone, "on", False):
            return f"SELECT * FROM {parquet_rows([own.empty])}"
        found = self._rows_found(part, site, asked, self.at(moment).contents_by_site()[site])
        return self._sql_of(site, found)

    def _rows_found(self, part: str, site: str, asked: str, contents: Contents) -> FoundSql:
        own, contents = self.sites[site], contents.listed()
        own.check_columns(contents.options)
        kept = self._found.at((part, asked), topic=site, sources=[contents])
        if kept.value is not None:  # a relation may be run again
            return kept.value
        found = looked_up(own, contents, **json.loads(asked)) if asked else None
        if asked and found is None:  # all rows are read, whatever is asked
            rows = self._rows_found(part, site, "", contents)
        else:
            rows = found_rows(own, contents, part, found)
        return kept.keep(rows, rows.nbytes)

    @_refusing(_first_row)
    def rows_of(self, name: str, site: str, moment: int) -> list[str]:
        """The rows of a system table of a warehouse as JSON."""
        contents = self.at(moment).contents_by_site()[site]
        columns, rows = {
            "steps": (STEP_COLUMNS, contents.step_rows),
            "runs": (RUN_COLUMNS, contents.run_rows),
        }[name]
        return _texts(columns, rows())

    @_refusing(_first_row)
    def summary(self, moment: int) -> list[str]:
        """The rows of the view `summary` as JSON."""
        wh = self.at(moment)
        columns = sql_rows.columns(sql_rows.SUMMARY_VIEW, wh.options, several=self.are_named)
        return _texts(columns, sql_rows.rows(wh, sql_rows.SUMMARY_VIEW, None, (), {}))

    @property
    def are_named(self) -> bool:
        """Whether the warehouses have names, as those that are asked as one have."""
        return "" not in self.sites

    @_refusing(_first_row)
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
            found = sql_rows.columns(name, self._wh.options, measure, several=self.are_named)
        return duckdb_calls.structure(found)

    def _columns(self, name: str, kinds: str, measure: str | None, moment: int) -> list[tuple[str, str]]:
        given, beyond = NOT_GIVEN, False
        if name in sql_rows.SHOWS_POINTS:
            given = duckdb_calls.given_points(kinds, SIGNATURES[name].subjects[0])
            reads = self.has_macros and not given.several
            beyond = reads and sql_rows.rows_beyond_double(self.at(moment), name, measure)
        options, several = self._wh.options, self.are_named
        return sql_rows.columns(name, options, measure, given, beyond_double=beyond, several=several)


def _texts(columns: Sequence[tuple[str, str]], rows: Iterator[tuple[Any, ...]]) -> list[str]:
    """The rows as JSON."""
    names = [name for name, _ in columns]
    return [duckdb_calls.row_text(names, row) for row in rows]


def _has_binary_keys(wh: Reader) -> bool:
    """Whether all keys are binary, so that text stands for bytes."""
    return bool(wh.keys) and all(key.type == "binary" for key in wh.keys)
