"""The common part of all scans of `events`: a connection to DuckDB, its statements and their errors."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypedDict, TypeVar, Unpack

import pyarrow as pa

from tidemark.query.answers.plan import SCAN
from tidemark.query.reading import spending
from tidemark.query.reading.connections import (
    Progress,
    ScanConnection,
    give_back,
    run_query,
    run_watched,
    take_connection,
)
from tidemark.query.reading.duckdb_errors import Raised, error_of_files, report_duckdb_errors
from tidemark.query.scans.asked_rows import ROWS, WINDOWS, TimeRange, key_of
from tidemark.query.scans.expressions import Expression, unfit
from tidemark.query.scans.row_source import RowSource
from tidemark.warehouse.columns.keys import Key
from tidemark.warehouse.columns.ticks import Window
from tidemark.warehouse.columns.value_encoding import Measure
from tidemark.warehouse.errors import InputError, TidemarkError
from tidemark.warehouse.snapshots.system_tables import AnyContents

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

T = TypeVar("T")

_OPERATION = "a scan of the events"


class Selected(TypedDict, total=False):
    """The keyword parameters of `OpenScan` that say which rows are selected, and how they are grouped."""

    times: TimeRange | None
    equal: Mapping[str, Sequence[Any]] | None
    expression: Expression | None
    by: Sequence[str]
    computed: Mapping[str, Expression] | None
    progress: Progress | None


class OpenScan:
    """One scan of the visible rows of `events`, which are read by its first question.

    Close it, or use it in `with`: it holds memory and a temporary folder. Not safe to share between threads.

    All questions raise DamagedWarehouse if a file is missing or damaged, InputError if the expression fails
    on a row (a cast of text that is no number), SystemRefused if memory and disk do not suffice. Ctrl-C ends
    a question with KeyboardInterrupt.
    """

    def __init__(
        self,
        contents: AnyContents,
        windows: Sequence[Window],
        *,
        measure: Measure | None = None,
        key: Sequence[Key] = (),
        **selected: Unpack[Selected],
    ) -> None:
        """Checks the arguments and reads nothing.

        contents     the visible batches, of one moment
        windows      only rows with these ticks: one window, or several as `every` makes them
        measure      the measure that is counted and ranked, if there is one
        key          the columns of the key that is counted, if there is one
        times        only rows of these event times, where the window cuts ticks
        equal        only rows whose value in each of these columns is among the allowed ones; values are
                     equal as keys are
        expression   only rows for which it is true
        by           the columns of the group, each once; a row with NULL in one of them belongs to no group
        computed     expressions of values by the name under which `measure`, `by` or `equal` have them
        progress     gets the share of each question that is done, from 0 to 1, about four times a second

        Raises InputError for a column that does not exist or whose type has no keys.
        """
        by, expression = selected.get("by", ()), selected.get("expression")
        computed, equal = selected.get("computed") or {}, selected.get("equal") or {}
        if len(set(by)) < len(by):
            raise InputError(f"a column of the group is named twice: {list(by)}. Name each column once.")
        keys = tuple(key_of(contents, name, computed) for name in by)
        allowed = {key_of(contents, name, computed): list(values) for name, values in equal.items()}
        self._source = RowSource(
            contents, windows, measure, keys, allowed, expression, computed, tuple(key), selected.get("times")
        )
        self._progress = selected.get("progress")
        self._failing = next(iter([*([expression] if expression else []), *computed.values()]), None)
        self._raised, self._is_reading, self._is_closed = Raised(), False, False
        spending.takes(SCAN)

    @cached_property
    def _taken(self) -> ScanConnection:
        """The connection, taken when a statement needs it; until then, the waiting connection tries files.

        AttributeError once the scan is closed: another one may use it then.
        """
        if self._is_closed:
            raise AttributeError("connection")
        with report_duckdb_errors(_OPERATION, self._raised):
            taken = take_connection(*(store.files.folder for store in self._source.contents.stores))
        self._finalizer = weakref.finalize(self, give_back, taken)
        return taken

    @property
    def connection(self) -> DuckDBPyConnection:
        """The connection of the scan."""
        return self._taken.connection

    @property
    def memory(self) -> int:
        """The bytes that DuckDB may use."""
        return self._taken.memory

    def close(self) -> None:
        """Frees the memory and the temporary files. May be called again."""
        self._is_closed = True
        if self.__dict__.pop("_taken", None) is not None:
            self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def rows_scanned(self, rows: int) -> int:
        """How many rows were read, if the windows have `rows`: fewer where an index found the rows."""
        left = self._source.rows_left
        return rows if left is None else min(rows, left)

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        """The rows of a statement."""
        return self._ask(lambda: self.connection.execute(statement).fetchall())

    def columns(self, statement: str) -> pa.Table:
        """The rows of a statement, each column in one piece."""
        return self.table(statement).combine_chunks()

    def table(self, statement: str) -> pa.Table:
        """The rows of a statement, each column in some pieces."""
        return self._ask(lambda: self.connection.sql(statement).to_arrow_table())

    def watched(self, read: Callable[[], T], stop: Callable[[], None], share: Callable[[], float]) -> T:
        """The result of `read`, which needs no statement; `stop` ends it, `share` is how much is done."""
        context = copy_context()  # its reads are of the question of this thread
        return run_watched(lambda: context.run(read), stop, self._progress, share)

    def keep(self, name: str, rows: str) -> None:
        """Keeps rows, SQL, in a table of this name until the scan is closed."""
        self.rows(self._taken.table_of(name, rows))

    @contextmanager
    def _reading(self) -> Iterator[str]:
        """SQL of the selected rows (row_source.py), which is run once, inside.

        Errors inside are those of the expression, and progress is that of the files.
        """
        source = self._source
        relation, batches = source.relation(self._progress)
        if source.buckets is not None and not source.buckets.are_windows:
            self.connection.register(WINDOWS, source.buckets.pairs)
        if batches is not None:
            kept = self._raised.kept(batches)
            self.connection.register(ROWS, pa.RecordBatchReader.from_batches(source.schema, kept))
        self._is_reading = True
        try:
            yield relation
        finally:
            self._is_reading = False
            self.connection.unregister(ROWS)
            self.connection.unregister(WINDOWS)

    def _ask(self, ask: Callable[[], T]) -> T:
        source = self._source
        share = (lambda: source.share) if self._is_reading and not source.paths else None
        with report_duckdb_errors(_OPERATION, self._raised, self._explain):
            self._taken.is_sound = False
            found = run_query(self.connection, ask, self._progress, share)
            self._taken.is_sound = True
            return found

    def _explain(self, error: Exception) -> TidemarkError | None:
        damaged = error_of_files(error, self._source.paths)
        if damaged is None and self._is_reading and self._failing is not None:
            return unfit(self._failing.text, error)
        return damaged
