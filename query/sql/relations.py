"""What `sql` of a warehouse runs: DuckDB's relations, whose errors are the package's.

A relation runs whenever its rows are read. So each of its methods reports errors, and so does what these
return: other relations, and readers of rows. A connection takes one call at a time: threads that read
relations of one connection wait for each other.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cached_property, partial, wraps
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from tidemark.query.answers.sql_plan import SqlPlan
from tidemark.query.reading.duckdb_errors import Raised, report_duckdb_errors
from tidemark.query.reading.sql_text import quoted
from tidemark.query.sql.explained import explained
from tidemark.query.sql.macros import Macros
from tidemark.query.sql.narrowed import Narrowed, Narrowing, Views
from tidemark.query.sql.parse_trees import Bindings
from tidemark.query.sql.pinned_readers import PinnedReaders, binding_columns
from tidemark.warehouse.errors import DamagedWarehouse, InputError, TidemarkError
from tidemark.warehouse.os_errors import one_line, unreadable_file_error
from tidemark.warehouse.snapshots.system_tables import Contents

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection, DuckDBPyRelation

_MISSING = re.compile("No files found|No such file")
# The methods of a relation with private columns: they read its rows. Others would take expressions, in which
# constants are not compared with tokens.
_READS = frozenset({
    "arrow", "close", "columns", "description", "df", "dtypes", "execute", "explain", "fetch_arrow_reader",
    "fetch_arrow_table", "fetch_df_chunk", "fetch_record_batch", "fetchall", "fetchdf", "fetchmany",
    "fetchnumpy", "fetchone", "limit", "pl", "record_batch", "shape", "show", "tf", "to_arrow_reader",
    "to_arrow_table", "to_csv", "to_df", "to_parquet", "torch", "types", "write_csv", "write_parquet",
})  # fmt: skip
# Those that read all rows at once, or none.
WHOLE = frozenset({
    "columns", "description", "df", "dtypes", "fetch_arrow_table", "fetchall", "fetchdf", "fetchnumpy", "pl",
    "shape", "to_arrow_table", "to_df", "types",
})  # fmt: skip
_END = object()
_OF_A_STATEMENT = re.compile(r"[A-Z][A-Za-z ]* Error: ")


RowsSql: TypeAlias = Callable[[str, str], str]  # of a part, and what is asked of it: see `PinnedReaders`


class Database:
    """A connection with the views and functions of a warehouse.

    folders: where the files of the warehouse's views lie. raised: the errors of its functions.
    views: the views of rows. macros: made when one is named. has_tokens: whether columns are private.
    rows: by the name of each warehouse, what pins it and what writes its rows of that moment.
    """

    def __init__(
        self,
        connection: DuckDBPyConnection,
        folders: Iterable[str],
        raised: Raised,
        views: Views,
        macros: Iterable[Macros],
        rows: Mapping[str, tuple[PinnedReaders, RowsSql]],
        *,
        has_tokens: bool = False,
    ) -> None:
        self.connection, self._raised, self._views, self._macros = connection, raised, views, [*macros]
        self._rows_of = rows
        self._has_indexes = any(view.indexed for view in views.values())
        self._has_tokens, self._lock = has_tokens, threading.RLock()
        self._file = re.compile(rf"(?:{'|'.join(map(re.escape, folders))})/[^\"'\n]*\.parquet")

    def sql(self, statement: str, params: Any) -> Relation:
        """The relation of a query. InputError for a statement that DuckDB refuses."""
        with self._report():
            found = self._narrowed(statement, params)
            if found is not None:
                return found
            try:
                relation = self._bound(statement, params)
                return self._shown(lambda: relation, partial(self._rows, statement, params))
            except TypeError as error:
                raise InputError(f"params are the values for ? or $name: {one_line(str(error))}.") from error

    def _narrowed(self, statement: str, params: Any) -> Relation | None:
        """The relation of a statement that indexes narrow; None if they do not, or it is refused."""
        import duckdb

        if not self._has_indexes:
            return None
        narrowing = Narrowing.of(statement, params, self._views)
        narrowed = narrowing.statement(statement) if narrowing.parts else None
        if narrowed is None:
            return None
        rows = partial(self._found, narrowing, statement, params)
        self._make_macros(_texts(statement, params))  # before it is bound: one may have a name of DuckDB's
        if self._bindings.has(statement, params):
            return self._shown(partial(self._bound_narrowed, narrowed, statement, params), rows)
        try:
            found = self._bound(narrowed, params)
        except (duckdb.Error, TypeError) as error:
            if self._raised.behind(error) is not None:  # of a file of an index
                raise
            return None
        return self._shown(lambda: found, rows)

    @cached_property
    def _bindings(self) -> Bindings:
        """Tables in the place of the views of rows."""
        with binding_columns():
            views = {name: self.connection.sql(f"FROM {quoted(name)}") for name in self._views}
        return Bindings(
            {name: list(zip(one.columns, map(str, one.types), strict=True)) for name, one in views.items()}
        )

    def _bound_narrowed(self, narrowed: str, statement: str, params: Any) -> DuckDBPyRelation:
        import duckdb

        try:
            return self._bound(narrowed, params)
        except duckdb.Error:
            return self._bound(statement, params)

    def _bound(self, statement: str, params: Any) -> DuckDBPyRelation:
        self._make_macros(_texts(statement, params))
        with binding_columns():  # when its rows are read, the relation is bound for them
            return self.connection.sql(statement, params=params)

    def _shown(self, bound: Callable[[], DuckDBPyRelation], rows: Callable[[], list[Any]]) -> Relation:
        return Relation(bound, self._report, self._make_macros, only_read=self._has_tokens, rows=rows)

    def _found(self, narrowing: Narrowing, statement: str, params: Any) -> list[tuple[Any, ...]]:
        """As `_rows` of a statement that indexes narrow, with the rows of this moment in the place of views.

        What the statement is refused for is told of its own text.
        """
        import duckdb

        def rows_of(one: Narrowed) -> str:
            return f"({self._rows_of[one.view.warehouse][1](one.view.part, one.told)})"

        with ExitStack() as moment:
            for readers, _ in self._rows_of.values():
                moment.enter_context(readers.one_moment())
            written = narrowing.statement(statement, rows_of)
            try:
                return self._rows(statement if written is None else written, params)
            except (duckdb.DataError, duckdb.ProgrammingError, duckdb.NotSupportedError):
                return self._rows(statement, params)

    def _rows(self, statement: str, params: Any) -> list[tuple[Any, ...]]:
        """All rows of a statement, read while DuckDB goes on; those of a relation are read at its end."""
        try:
            return self.connection.execute(statement, params).fetchall()
        except BaseException:
            self.connection.abort()  # what is not read to its end would keep the connection
            raise

    def _make_macros(self, text: str | None = None) -> None:
        with self.connection.cursor() as maker:  # the connection may have a result that is not read yet
            for macros in self._macros:
                macros.make(maker, text)

    def explain(self, sites: Mapping[str, Mapping[str, Contents]], statement: str, params: Any) -> SqlPlan:
        """How each view in the statement is read whose indexes may serve its WHERE."""
        if not self._has_indexes:
            return SqlPlan([])
        parts = Narrowing.of(statement, params, self._views).parts
        with self.connection.cursor() as counting:  # the connection may have a result that is not read yet
            return explained(sites, parts, None if self._has_tokens else counting)

    @contextmanager
    def _report(self) -> Iterator[None]:
        with self._lock, report_duckdb_errors("sql", self._raised, self._explain):
            yield

    def _explain(self, error: Exception) -> TidemarkError | None:
        import duckdb

        text = str(error)
        if (found := self._file.search(text)) is not None:
            return unreadable_file_error(found[0], FileNotFoundError() if _MISSING.search(text) else error)
        if type(error) is duckdb.Error:  # of the decoders of Parquet: it names no file
            return DamagedWarehouse(
                f"a file of events cannot be read ({one_line(text)}). Run `tidemark verify` to see which is "
                "damaged, and restore it from a copy."
            )
        if isinstance(error, duckdb.InternalException | duckdb.FatalException):
            return None
        if isinstance(error, duckdb.ResourceInUseException):
            return InputError(
                "an open reader of Arrow batches still reads rows of another statement that the same thread "
                "made. Read it to the end or close it, or call sql in a thread of its own."
            )
        if isinstance(error, duckdb.Error) or _OF_A_STATEMENT.match(text):
            return InputError(f"DuckDB refuses the statement: {one_line(text)}. Correct it.")
        return None


def _texts(statement: str, params: Any) -> str:
    """The statement, and values of parameters that are texts, in which macros may be named."""
    values = params.values() if isinstance(params, dict) else params if isinstance(params, list) else ()
    return " ".join([statement, *(value for value in values if isinstance(value, str))])


class Relation:
    """A relation of DuckDB: all of `duckdb.DuckDBPyRelation`, with errors of the package.

    It is executed each time that its rows are read: df, pl, arrow, fetchall, show ... With `only_read` it has
    no methods that take expressions.

    bound: gives that of DuckDB, when it is needed first.
    make_macros: makes all macros, before what may need them: another method than WHOLE takes expressions, or
    gives rows of which some are read later. Until then the connection does not see macros that come.
    rows: what fetchall gives; None: what that of the relation does.
    """

    __slots__ = ("__weakref__", "_bound", "_known", "_make_macros", "_only_read", "_report", "_rows")

    def __init__(
        self,
        bound: Callable[[], DuckDBPyRelation],
        report: Callable[[], AbstractContextManager[None]],
        make_macros: Callable[[], None],
        *,
        only_read: bool = False,
        rows: Callable[[], list[tuple[Any, ...]]] | None = None,
    ) -> None:
        self._bound, self._report, self._only_read = bound, report, only_read
        self._make_macros, self._rows = make_macros, rows
        self._known: Any = None

    @property
    def _relation(self) -> Any:
        if self._known is None:
            with self._report():
                self._known = self._bound()
        return self._known

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_relation" or name in Relation.__slots__:
            raise AttributeError(name)
        with self._report():
            self._check(name)
            if name == "fetchall" and self._rows is not None:
                return self._method(self._rows)
            if name not in WHOLE:
                self._make_macros()
            return self._reporting(getattr(self._relation, name))

    def __getitem__(self, name: str) -> Any:
        with self._report():
            self._check(name)
            return self._reporting(self._relation[name])

    def __len__(self) -> int:
        with self._report():
            return len(self._relation)

    def __contains__(self, name: str) -> bool:
        return name in self._relation

    def __repr__(self) -> str:
        with self._report():
            return repr(self._relation)

    def __str__(self) -> str:
        with self._report():
            return str(self._relation)

    def __dir__(self) -> list[str]:
        return dir(self._relation)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        with self._report():
            self._make_macros()
            reader = self._reporting(pa.RecordBatchReader.from_stream(self._relation))
            return reader.__arrow_c_stream__(requested_schema)

    def _check(self, name: str) -> None:
        """InputError for a method that is not for reading rows, if a column is private."""
        if self._only_read and name not in _READS and hasattr(self._relation, name):
            raise InputError(
                f"{name} is not there, because the warehouse has private columns: it could compare their "
                "tokens with text. Write it into the statement, or read the rows first: df, arrow, fetchall."
            )

    def _reporting(self, found: Any) -> Any:
        """What an attribute or a method gave; what runs later reports errors, too."""
        import duckdb

        if isinstance(found, duckdb.DuckDBPyRelation):
            return Relation(lambda: found, self._report, self._make_macros, only_read=self._only_read)
        if isinstance(found, pa.RecordBatchReader):
            return pa.RecordBatchReader.from_batches(found.schema, self._each(found))
        if isinstance(found, Iterator):
            return self._each(found)
        return self._method(found) if callable(found) else found

    def _each(self, rows: Iterator[Any]) -> Iterator[Any]:
        while True:
            with self._report():
                one = next(rows, _END)
            if one is _END:
                return
            yield one

    def _method(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def call(*given: Any, **named: Any) -> Any:
            with self._report():
                bare = {name: _bare(value) for name, value in named.items()}
                return self._reporting(method(*map(_bare, given), **bare))

        return call


def _bare(given: Any) -> Any:
    """The relation of DuckDB in one of ours; other arguments as they are."""
    return given._relation if isinstance(given, Relation) else given  # noqa: SLF001  of this module
