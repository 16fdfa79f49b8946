"""Exact counts, ranks and values of a measure by any group, for any filter, by a scan of `events`.

One statement of DuckDB reads the selected rows (row_source.py). Rows of one group that fit into memory answer
from there (scanned_rows.py). All others are kept in a temporary table: the stored keys of the group, the
stored value, and whether the row is live. This one scan answers all questions, inside DuckDB
(grouped_rows.py), which spills to a temporary folder what does not fit into its memory.

Cost: one read of the columns that are used, in all files with rows of the window; 9 bytes and the group's
keys for each selected row, in memory or on disk.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidemark.query.reading.connections import Progress, give_back, run_query, take_connection
from tidemark.query.reading.duckdb_errors import Raised, error_of_files, report_duckdb_errors
from tidemark.query.scans.expressions import Expression, unfit
from tidemark.query.scans.grouped_rows import GroupedRows
from tidemark.query.scans.row_source import ROWS, RowSource, key_of
from tidemark.query.scans.scanned_rows import HeldRows, Ints, RankedValues, ScannedGroup, ScannedRows
from tidemark.warehouse.columns.exact_sums import Sums
from tidemark.warehouse.columns.ticks import Window
from tidemark.warehouse.columns.value_encoding import Measure
from tidemark.warehouse.errors import InputError, TidemarkError
from tidemark.warehouse.snapshots.system_tables import Contents

T = TypeVar("T")

_OPERATION = "a scan of the events"
HELD_ROWS = 2**22  # of one group that are answered from memory, 9 bytes each


class EventScan:
    """One scan of the visible rows of `events`; the first question reads them, the others do not read again.

    Groups are numbered from 0 in the order of `groups`; arguments and results by group have this order.
    Close it, or use it in `with`: it holds memory and a temporary folder. Not safe to share between threads.

    All questions raise DamagedWarehouse if a file is missing or damaged, InputError if the expression fails
    on a row (a cast of text that is no number), SystemRefused if memory and disk do not suffice. Ctrl-C ends
    a question with KeyboardInterrupt.
    """

    def __init__(
        self,
        contents: Contents,
        measure: Measure,
        windows: Sequence[Window],
        *,
        equal: Mapping[str, Sequence[Any]] | None = None,
        expression: Expression | None = None,
        by: Sequence[str] = (),
        computed: Mapping[str, Expression] | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Checks the arguments and reads nothing.

        contents     the visible batches, of one moment
        windows      only rows with these ticks: one window, or several as `every` makes them
        equal        only rows whose value in each of these columns is among the allowed ones; values are
                     equal as keys are
        expression   only rows for which it is true
        by           the columns of the group, each once; a row with NULL in one of them belongs to no group
        computed     expressions of values by the name under which `measure`, `by` or `equal` have them
        progress     gets the share of each question that is done, from 0 to 1, about four times a second

        Raises InputError for a column that does not exist or whose type has no keys.
        """
        if len(set(by)) < len(by):
            raise InputError(f"a column of the group is named twice: {list(by)}. Name each column once.")
        computed = computed or {}
        keys = tuple(key_of(contents, name, computed) for name in by)
        selected = {key_of(contents, name, computed): list(values) for name, values in (equal or {}).items()}
        self._source = RowSource(contents, windows, measure, keys, selected, expression, computed)
        self._measure, self._progress = measure, progress
        self._failing = next(iter([*([expression] if expression else []), *computed.values()]), None)
        self._rows: ScannedRows | None = None
        self._raised, self._is_reading = Raised(), False
        with report_duckdb_errors(_OPERATION, self._raised):
            taken = take_connection(contents.store.files.folder)
        self.connection = taken.connection
        self._finalizer = weakref.finalize(self, give_back, taken)

    def close(self) -> None:
        """Frees the memory and the temporary files. May be called again."""
        self._rows = None
        self.__dict__.pop("connection", None)  # the next scan may have it
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def groups(self) -> list[ScannedGroup]:
        """The groups that have rows, ascending, those of a group by window.

        Without `by` and with one window it is one group of all rows, which may have none.
        """
        return self._scanned().groups

    def values_at(self, ranks: Sequence[Sequence[int] | Ints]) -> list[RankedValues]:
        """The stored values of ranks in each group: rank r is that of the r-th number by value.

        ranks   for each group, ranks from 1 to its numbers, n + m - nans, in any order; none for a group that
                is not asked

        InputError for a rank outside of its group.
        """
        groups, given = self.groups(), [np.asarray(wanted, np.int64) for wanted in ranks]
        if len(given) != len(groups):
            raise InputError(f"expected the ranks of {len(groups)} groups, got those of {len(given)}.")
        for group, wanted in zip(groups, given, strict=True):
            if len(wanted) and not (wanted.min() >= 1 and wanted.max() <= group.stored):
                raise InputError(
                    f"the group {group.values} has ranks from 1 to {group.stored}, got {wanted.tolist()}."
                )
        return self._scanned().values_at(given)

    def ranks_at(self, points: Sequence[NDArray[Any]]) -> list[Ints]:
        """The rows of each group whose stored value is <= points of that group; NaN is <= nothing.

        points   for each group stored values in any order. InputError for NaN
        """
        given = [np.asarray(own, self._measure.dtype) for own in points]
        if any(np.isnan(own).any() for own in given):
            raise InputError("NaN has no rank. Ask for a number, or for the NaN count.")
        return self._scanned().ranks_at(given)

    def sums(self) -> list[Sums]:
        """The exact sums of the numbers of each group."""
        return self._scanned().sums()

    def _scanned(self) -> ScannedRows:
        """The selected rows; they are read once."""
        if self._rows is None:

            def register(schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
                reader = pa.RecordBatchReader.from_batches(schema, self._raised.kept(batches))
                self.connection.register(ROWS, reader)

            relation = self._source.relation(register, self._progress or (lambda _: None))
            self._is_reading = True
            try:
                if self._source.group_columns or self._source.most_rows > HELD_ROWS:
                    self.rows(f"CREATE OR REPLACE TEMP TABLE scanned AS {relation}")
                    self._is_reading = False
                    self._rows = GroupedRows(self._source, self)
                else:
                    self._rows = HeldRows(self.columns(relation))
            finally:
                self._is_reading = False
                self.connection.unregister(ROWS)
        return self._rows

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        """The rows of a statement."""
        return self._ask(lambda: self.connection.execute(statement).fetchall())

    def columns(self, statement: str) -> pa.Table:
        """The rows of a statement, each column in one piece."""
        table: pa.Table = self._ask(lambda: self.connection.sql(statement).to_arrow_table())
        return table.combine_chunks()

    def _ask(self, ask: Callable[[], T]) -> T:
        expression = self._failing if self._is_reading else None
        share = (lambda: self._source.share) if self._is_reading and not self._source.paths else None

        def told(error: Exception) -> TidemarkError | None:
            damaged = error_of_files(error, self._source.paths)
            return unfit(expression.text, error) if damaged is None and expression is not None else damaged

        with report_duckdb_errors(_OPERATION, self._raised, told):
            return run_query(self.connection, ask, self._progress, share)
