"""What `sql` of a warehouse runs: DuckDB's relations, whose errors are the package's.

A relation runs whenever its rows are read. So each of its methods reports errors, and so do the relations and
readers of rows that these methods return. A connection takes one call at a time: threads that read relations
of one connection wait for each other.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cached_property, partial, wraps
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import pyarrow as pa

from tidemark.query.answers.plan import SqlPlan
from tidemark.query.reading.duckdb_errors import Raised, report_duckdb_errors
from tidemark.query.reading.sql_text import quoted
from tidemark.query.sql.explained import explained
from tidemark.query.sql.macros import Macros
from tidemark.query.sql.narrowed import Narrowed, Views, narrowed_views, with_rows
from tidemark.query.sql.parse_trees import Bindings, check_query
from tidemark.query.sql.pinned_readers import PinnedReaders, binding_columns
from tidemark.query.sql.rows_in_memory import RowsInMemory
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
# The methods that read all rows at once, or none.
WHOLE = frozenset({
    "columns", "description", "df", "dtypes", "fetch_arrow_table", "fetchall", "fetchdf", "fetchnumpy", "pl",
    "shape", "to_arrow_table", "to_df", "types",
})  # fmt: skip
T = TypeVar("T")
_OF_A_RESULT = ("df", "fetchall", "fetchdf", "fetchnumpy")  # those of them that a result of DuckDB has
_TO_ARROW = "to_arrow_table"  # a result has it, too, and copies the rows once more than a relation
_END = object()
_OF_A_STATEMENT = re.compile(r"[A-Z][A-Za-z ]* Error: ")


# For an error, the relation of the statement as it was written, or None.
AsItIs: TypeAlias = "Callable[[Exception], DuckDBPyRelation | None]"
# Of a part, what is asked of it, and where its rows may stay: see `PinnedReaders.rows_now`.
Whole: TypeAlias = Mapping[str, Callable[[], Any]]
RowsSql: TypeAlias = Callable[[str, str, RowsInMemory], str]


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
        self._rows_of, self._memory = rows, RowsInMemory(connection)
        self._has_indexes = any(view.indexed for view in views.values())
        self._has_tokens, self._lock = has_tokens, threading.RLock()
        self._file = re.compile(rf"(?:{'|'.join(map(re.escape, folders))})/[^\"'\n]*\.parquet")

    def sql(self, statement: str, params: Any) -> Relation:
        """The relation of a query. InputError for a statement that DuckDB refuses."""
        with self._report():
            parts = narrowed_views(statement, params, self._views) if self._has_indexes else []
            if not parts:
                check_query(statement, shows_text=not self._has_tokens)
            narrowed = with_rows(statement, parts) if parts else None
            if narrowed is None:
                whole = {read: partial(self._rows, statement, params, read) for read in _OF_A_RESULT}
                found = self._shown(statement, params, whole)
            else:
                ask = partial(self._found, parts, statement, params)
                whole = {read: partial(ask, read) for read in (*_OF_A_RESULT, _TO_ARROW)}
                as_it_is = partial(self._as_it_is, statement, params)
                # Before the statement is bound: a macro may have a name of DuckDB's.
                self._make_macros(_texts(statement, params))
                found = self._shown(narrowed, params, whole, as_it_is)
                if self._bindings.has(statement, params):
                    return found
            try:
                found.bind()
            except TypeError as error:
                raise InputError(f"params are the values for ? or $name: {one_line(str(error))}.") from error
            return found

    @cached_property
    def _bindings(self) -> Bindings:
        """Tables in the place of the views of rows."""
        with binding_columns():
            views = {name: self.connection.sql(f"FROM {quoted(name)}") for name in self._views}
        return Bindings(
            {name: list(zip(one.columns, map(str, one.types), strict=True)) for name, one in views.items()}
        )

    def _bound(self, statement: str, params: Any) -> DuckDBPyRelation:
        self._make_macros(_texts(statement, params))
        self._memory.hide_from(statement)
        with binding_columns():  # when its rows are read, the relation is bound for them
            return self.connection.sql(statement, params=params)

    def _as_it_is(self, statement: str, params: Any, error: Exception) -> DuckDBPyRelation | None:
        """The statement as it was written, if the error is of a text in which views were replaced."""
        import duckdb

        of_a_text = duckdb.DataError, duckdb.ProgrammingError, duckdb.NotSupportedError
        in_a_stream = isinstance(error, pa.ArrowException | OSError) and _OF_A_STATEMENT.match(str(error))
        if not isinstance(error, of_a_text) and not in_a_stream:
            return None
        if self._raised.behind(error) is not None:  # of a file of an index
            return None
        return self._bound(statement, params)

    def _shown(
        self, statement: str, params: Any, whole: Whole, as_it_is: AsItIs = lambda _: None
    ) -> Relation:
        bound = partial(self._bound, statement, params)
        return Relation(bound, self._report, self._make_macros, as_it_is, whole, only_read=self._has_tokens)

    def _found(self, parts: Sequence[Narrowed], statement: str, params: Any, read: str) -> Any:
        """As `_rows` of a statement that indexes narrow, with rows of this moment in the place of views."""

        def rows_of(one: Narrowed) -> str:
            return f"({self._rows_of[one.view.warehouse][1](one.view.part, one.told, self._memory)})"

        with self._memory.statement(), ExitStack() as moment:
            for readers, _ in self._rows_of.values():
                moment.enter_context(readers.one_moment())
            written = with_rows(statement, parts, rows_of)
            return self._rows(statement if written is None else written, params, read)

    def _rows(self, statement: str, params: Any, read: str) -> Any:
        """All rows of a statement, read while DuckDB goes on; those of a relation are read at its end.

        read: the method that reads them, one of _OF_A_RESULT, or _TO_ARROW.
        """
        try:
            if read == _TO_ARROW:
                return self._bound(statement, params).to_arrow_table()
            self._memory.hide_from(statement)
            return getattr(self.connection.execute(statement, params), read)()
        except BaseException:
            self.connection.abort()  # what is not read to its end would keep the connection
            raise

    def _make_macros(self, text: str | None = None) -> None:
        named = [macros for macros in self._macros if macros.named_in(text)]
        if named:
            with self.connection.cursor() as maker:  # the connection may have a result that is not read yet
                for macros in named:
                    macros.make(maker, text)

    def explain(self, sites: Mapping[str, Mapping[str, Contents]], statement: str, params: Any) -> SqlPlan:
        """How each view in the statement is read whose indexes may serve its WHERE."""
        parts = narrowed_views(statement, params, self._views) if self._has_indexes else []
        if not parts:
            check_query(statement, shows_text=not self._has_tokens)
            return SqlPlan([])
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

    bound: gives the relation of DuckDB, when it is needed first.
    make_macros: makes all macros, before what may need them: another method than WHOLE takes expressions, or
    gives rows of which some are read later. Until then the connection does not see macros that come.
    as_it_is: gives, for an error of `bound` or its rows, the relation of the statement as it was written,
    which then answers, or is refused, in place of `bound`; None: there is none.
    whole: calls that give all rows, by the names of the methods in whose place they are.
    """

    __slots__ = (
        "__weakref__", "_as_it_is", "_bound", "_known", "_make_macros", "_only_read", "_report", "_whole",
    )  # fmt: skip

    def __init__(
        self,
        bound: Callable[[], DuckDBPyRelation],
        report: Callable[[], AbstractContextManager[None]],
        make_macros: Callable[[], None],
        as_it_is: AsItIs,
        whole: Whole,
        *,
        only_read: bool = False,
    ) -> None:
        self._bound, self._report, self._only_read = bound, report, only_read
        self._make_macros, self._as_it_is, self._whole = make_macros, as_it_is, whole
        self._known: Any = None

    def bind(self) -> Any:
        """The relation of DuckDB; InputError for a statement that it refuses."""
        if self._known is None:
            with self._report():
                self._known = self._tried(self._bound, lambda as_it_is: as_it_is)
        return self._known

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in Relation.__slots__:
            raise AttributeError(name)
        with self._report():
            self._check(name)
            if name in self._whole:
                return self._method(name)
            if name not in WHOLE:
                self._make_macros()

            def of(relation: Any) -> Any:
                return getattr(relation, name)

            found = self._tried(lambda: of(self.bind()), of if name in WHOLE else None)
            is_method = callable(found) and not _is_relation(found)
            return self._method(name) if is_method else self._reporting(found, of)

    def __getitem__(self, name: str) -> Any:
        with self._report():
            self._check(name)
            return self._reporting(self.bind()[name], lambda one: one[name])

    def __len__(self) -> int:
        with self._report():
            return self._tried(lambda: len(self.bind()), len)

    def __contains__(self, name: str) -> bool:
        return name in self.bind()

    def __repr__(self) -> str:
        with self._report():
            return self._tried(lambda: repr(self.bind()), repr)

    def __str__(self) -> str:
        with self._report():
            return self._tried(lambda: str(self.bind()), str)

    def __dir__(self) -> list[str]:
        return dir(self.bind())

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        with self._report():
            self._make_macros()
            reader = self._tried(lambda: pa.RecordBatchReader.from_stream(self.bind()))
            return self._reporting(reader).__arrow_c_stream__(requested_schema)

    def _check(self, name: str) -> None:
        """InputError for a method that is not for reading rows, if a column is private."""
        if self._only_read and name not in _READS and hasattr(self.bind(), name):
            raise InputError(
                f"{name} is not there, because the warehouse has private columns: it could compare their "
                "tokens with text. Write it into the statement, or read the rows first: df, arrow, fetchall."
            )

    def _tried(self, call: Callable[[], T], again: Callable[[Any], T] | None = None) -> T:
        """What a call gives; if that fails, what `again` gives of the statement as it was written.

        None: rows may have been given before, so that only its error is raised.
        """
        try:
            return call()
        except Exception as error:  # noqa: BLE001  it is raised below
            first = error
        as_it_is = self._as_it_is(first)
        if as_it_is is not None:
            if again is not None:
                return again(as_it_is)
            for _ in as_it_is.to_arrow_reader():
                pass
        raise first

    def _reporting(self, found: Any, again: Callable[[Any], Any] | None = None) -> Any:
        """What an attribute or a method gave; what runs later reports errors, too.

        again: gives the same of the statement as it was written.
        """
        if _is_relation(found):

            def as_it_is(error: Exception) -> Any:
                other = None if again is None else self._as_it_is(error)
                return None if other is None or again is None else again(other)

            return Relation(
                lambda: found, self._report, self._make_macros, as_it_is, {}, only_read=self._only_read
            )
        if isinstance(found, pa.RecordBatchReader):
            return pa.RecordBatchReader.from_batches(found.schema, self._each(found))
        return self._each(found) if isinstance(found, Iterator) else found

    def _each(self, rows: Iterator[Any]) -> Iterator[Any]:
        while True:
            with self._report():
                one = self._tried(lambda: next(rows, _END))
            if one is _END:
                return
            yield one

    def _method(self, name: str) -> Callable[..., Any]:
        import duckdb

        @wraps(getattr(duckdb.DuckDBPyRelation, name))
        def call(*given: Any, **named: Any) -> Any:
            with self._report():
                values, by_name = [*map(_bare, given)], {key: _bare(value) for key, value in named.items()}

                def of(relation: Any) -> Any:
                    return getattr(relation, name)(*values, **by_name)

                whole = None if given or named else self._whole.get(name)
                found = self._tried(whole or (lambda: of(self.bind())), of if name in WHOLE else None)
                return self._reporting(found, of)

        return call


def _is_relation(found: Any) -> bool:
    import duckdb

    return isinstance(found, duckdb.DuckDBPyRelation)


def _bare(given: Any) -> Any:
    """The relation of DuckDB in one of ours; other arguments as they are."""
    return given.bind() if isinstance(given, Relation) else given
