"""The projection of an index: the places of the rows of `events`, ascending by the value of one column.

Model. A *place* is (file, row): the id of a file of `events` and the number of a row in it. A run stores of
each row whose value is not NULL (value, file, row, tick), ascending in this order; values are ordered as keys
are, NaN last. So the rows with a value, or with values from u to v, are a range of the run, and the marks say
between which rows it starts and ends.

An index may *include* other columns. Its rows are then (value, included values, traits, file, row, tick) in
this order, and a question about these columns alone is answered by them, without `events`. Included values
are stored as keys are, which have no NULL and no -0.0: the traits of a row have a bit for each of these
(included_columns.py). Purges and merges treat them as they treat values.

Files of `events` never change, but they leave: maintenance, removals and other tools replace them. Places of
files that left mean nothing any more, and nobody has to take them out. What a question needs to know of a
file is whether the index has *all* of its rows. The row group `places` of the marks says how many rows of
each file a run has:

    a file is *covered* if   sum over runs of places(file) + NULLs of the file = rows of the file

Each run has a row once, and the runs have disjoint steps, so the sum counts each row once at most. Hence the
index has every row of a covered file that is not NULL. All other files are scanned: a file of unknown origin
costs time and never rows.

The digest that compares runs with `events` leaves the places out: they are where the rows were.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidemark.warehouse.columns.keys import Key, encode_keys, take_names
from tidemark.warehouse.columns.tick_counts import TickCounts, count_by_tick
from tidemark.warehouse.columns.value_encoding import DecodedColumn, Measure, as_numpy, single_array
from tidemark.warehouse.delta.table_names import index_marks_table, index_runs_table
from tidemark.warehouse.errors import DamagedWarehouse
from tidemark.warehouse.events.reader import FILE_OF_ROW, ROW_IN_FILE
from tidemark.warehouse.integrity.sealed_files import SealedFile
from tidemark.warehouse.projections import span_marks
from tidemark.warehouse.projections.group_rows import NUMBER, GroupRows
from tidemark.warehouse.projections.included_columns import TRAITS, encode_included
from tidemark.warehouse.projections.sorted_groups import SortedGroups
from tidemark.warehouse.projections.span_marks import (
    SpanMarkChecker,
    SpanMarkCollector,
    SpanMarks,
    span_mark_collector,
)
from tidemark.warehouse.projections.spans import Spans
from tidemark.warehouse.runs.levels import Run
from tidemark.warehouse.runs.marks import CONTENT_FIELD, PLACES_GROUP, MarksFile, RunFile
from tidemark.warehouse.runs.projection import MarkedFile, RunSpec
from tidemark.warehouse.sizes import DEFAULT, Tuning

_SMALLER = 8  # times the blocks of a measure are larger
_FILE, _ROW = Key(FILE_OF_ROW, "long"), Measure(ROW_IN_FILE, "long")


@dataclass(frozen=True, slots=True)
class RowIndex(SortedGroups):
    """The index on a column: rows of a group (value, file), whose measure is the row in the file."""

    @classmethod
    def on(cls, columns: Sequence[Key], tuning: Tuning = DEFAULT) -> RowIndex:
        """The index on the first column, which includes the others."""
        beside = (*columns[1:], TRAITS) if len(columns) > 1 else ()
        # Few rows of a run are read at a time, so blocks are smaller than those of a measure.
        block_rows = max(tuning.block_rows // _SMALLER, min(tuning.block_rows, _SMALLER))
        return cls((columns[0], *beside, _FILE), _ROW, replace(tuning, block_rows=block_rows))

    @property
    def column(self) -> Key:
        """The column."""
        return self.keys[0]

    @property
    def included(self) -> tuple[Key, ...]:
        """The columns that it includes."""
        return self.keys[1:-2]

    @property
    def name(self) -> str:
        """The words, and the column."""
        return f"index on {self.column.name}"

    @property
    def type(self) -> str:
        """The column's type."""
        return self.column.type

    @property
    def runs_table(self) -> str:
        """``index_runs/<columns>``."""
        return index_runs_table(self._stored_names)

    @property
    def marks_table(self) -> str:
        """``index_marks/<columns>``."""
        return index_marks_table(self._stored_names)

    @property
    def own(self) -> tuple[Key, ...]:
        """The column, and those that it includes."""
        return (self.column, *self.included)

    def has_values(self, names: Set[str]) -> bool:
        """Whether rows of the index have the values of these columns as `events` has them.

        Without traits it is not known whether 0.0 is -0.0.
        """
        is_exact = bool(self.included) or not self.column.is_double
        return is_exact and names <= set(self._names)

    @property
    def _names(self) -> list[str]:
        return [key.name for key in self.own]

    @property
    def _stored_names(self) -> list[str]:
        return [name for key in self.own for name in key.stored_names]

    @property
    def columns(self) -> tuple[str, ...]:
        """The column, those that it includes, and the place of a row."""
        return (*self._names, FILE_OF_ROW, ROW_IN_FILE)

    def decode(self, events: pa.Table) -> tuple[GroupRows, TickCounts]:
        """The places of rows whose value is not NULL, in any order; and all rows by tick."""
        ticks = as_numpy(events.column("_tick"))
        column = encode_keys(self.column, single_array(events.column(self.column.name)))
        totals = count_by_tick(ticks, DecodedColumn(ticks, np.zeros_like(column.null), column.null))
        kept = np.flatnonzero(~column.null)
        files = _numbers(events, FILE_OF_ROW)[:1]  # one row group at a time is read: all are of a file
        if column.codes is None or self.included:
            of_row = kept if column.codes is None else column.codes[kept]
            names, codes = take_names(column.names, of_row), np.arange(len(kept))
        else:
            names, codes = column.names, column.codes[kept]
        rows = _numbers(events, ROW_IN_FILE)[kept]
        included = encode_included(self.own, events, kept) if self.included else []
        groups = (names, *included, np.repeat(files, len(names)))
        return GroupRows(groups, codes, rows, np.full(len(kept), NUMBER), ticks[kept]), totals

    @property
    def encoding(self) -> Mapping[str, Any]:
        """As that of a group; dictionaries for the files and the traits, which are few in a block."""
        given = super(RowIndex, self).encoding  # a class with slots is made twice
        few = self.group_columns[-2:] if self.included else self.group_columns[-1:]
        packed = {name: kind for name, kind in given["column_encoding"].items() if name not in few}
        return {
            **given,
            "use_dictionary": [*given["use_dictionary"], *few],
            "column_encoding": packed,
        }

    def collector(self, run_spec: RunSpec | None) -> _Collector:  # type: ignore[override]  # and the places
        """Collects marks as those of a group, and the rows of each file."""
        return _Collector(span_mark_collector(self, run_spec))

    def marks_tables(self, files: Sequence[MarkedFile], totals: TickCounts) -> Mapping[str, pa.Table]:
        """The header, the marks, the spans, and the rows of each file."""
        spans = [replace(file, extra=file.extra.spans) for file in files]
        content = Places.joined([file.extra.places for file in files]).to_bytes()
        places = pa.table({CONTENT_FIELD.name: pa.array([content], CONTENT_FIELD.type)})
        return {**span_marks.to_arrow(self._mark_columns, spans, totals), PLACES_GROUP: places}

    def read_marks(self, run: Run, file: SealedFile, source: MarksFile) -> IndexMarks:
        """Reads the marks; their `spans` and `places` are read on demand."""
        return span_marks.read(IndexMarks, self._mark_columns, run, file, source)

    def checker(self, marks: SpanMarks) -> _Checker:  # type: ignore[override]  # and the places
        """Returns a checker of the marks, the counts, and the rows of each file."""
        return _Checker(marks)

    def content_digest(self, rows: GroupRows) -> int:
        """The sum of the hashes of all but the places: that of a row changes, its content does not."""
        nothing = np.zeros_like(rows.values)
        return self.digest(replace(rows, groups=rows.groups[:-1], values=nothing))

    def sorted_bytes(self, rows: int, ticks: int) -> int:
        """Five arrays of 8 bytes a row, and included values of 32."""
        return super(RowIndex, self).sorted_bytes(rows, ticks) + 32 * len(self.included) * rows


def _numbers(events: pa.Table, name: str) -> NDArray[np.int64]:
    """A column of places; 0 for rows that left and are kept elsewhere, which have none."""
    column = events.column(name)
    return np.zeros(len(column), np.int64) if pa.types.is_null(column.type) else as_numpy(column)


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """The rows of a run by file of `events`: ids ascend, each is there once."""

    files: NDArray[np.int64]
    rows: NDArray[np.int64]

    @classmethod
    def of(cls, files: NDArray[np.int64], rows: NDArray[np.int64]) -> Places:
        """The sums of the rows by file."""
        unique, codes = np.unique(files, return_inverse=True)
        sums = np.zeros(len(unique), np.int64)
        np.add.at(sums, codes, rows)
        return cls(unique[sums > 0], sums[sums > 0])

    @classmethod
    def joined(cls, parts: Sequence[Places]) -> Places:
        """The sums of all parts."""
        nothing = np.empty(0, np.int64)
        return cls.of(
            np.concatenate([nothing, *(part.files for part in parts)]),
            np.concatenate([nothing, *(part.rows for part in parts)]),
        )

    def to_bytes(self) -> bytes:
        """Both columns, little-endian."""
        return np.stack([self.files, self.rows]).astype("<i8").tobytes()

    @classmethod
    def from_bytes(cls, content: bytes) -> Places:
        """Decodes `to_bytes`; ValueError if it is malformed."""
        files, rows = np.frombuffer(content, "<i8").reshape(2, -1).astype(np.int64)
        return cls(files, rows)


@dataclass(frozen=True, slots=True)
class IndexMarks(SpanMarks):
    """The marks of a run of an index."""

    def places(self) -> Places:
        """How many rows it has of each file of `events`, read on every call."""
        with self.source.open() as file:
            content = file.read(PLACES_GROUP, columns=[CONTENT_FIELD.name]).column(0)[0]
            found = Places.from_bytes(content.as_py())
        if int(found.rows.sum()) != self.rows:
            raise DamagedWarehouse(f"the places of run {self.run.name} do not match its {self.rows} rows.")
        return found


class _SpansAndPlaces(NamedTuple):
    """`MarkedFile.extra` of an index."""

    spans: Spans
    places: Places


def _places_of(rows: GroupRows) -> Places:
    files: Any = rows.groups[-1]
    return Places.of(files, np.bincount(rows.codes, minlength=len(files)))


class _Collector:
    """Collects the marks of a file, and the rows of each file of `events`."""

    def __init__(self, marks: SpanMarkCollector) -> None:
        self._marks, self._places = marks, Places.joined([])

    def add(self, rows: GroupRows, blocks: NDArray[np.int64]) -> None:
        """Adds the next rows."""
        self._marks.add(rows, blocks)
        self._places = Places.joined([self._places, _places_of(rows)])

    def finish(self, path: str, size: int) -> MarkedFile:
        """The file with its marks and places."""
        file = self._marks.finish(path, size)
        return replace(file, extra=_SpansAndPlaces(file.extra, self._places))


class _Checker:
    """Compares the rows of a run with its marks, its counts by span and tick, and its places."""

    def __init__(self, marks: Any) -> None:
        self._marks, self._checker, self._places = marks, SpanMarkChecker(marks), Places.joined([])

    def begin(self, file: RunFile) -> None:
        """Starts a file."""
        self._checker.begin(file)

    def add(self, rows: GroupRows) -> None:
        """Compares the marks in the next rows; DamagedWarehouse if they differ."""
        self._checker.add(rows)
        self._places = Places.joined([self._places, _places_of(rows)])

    def finish(self) -> None:
        """Compares the counts and the places after the last row; DamagedWarehouse if they differ."""
        self._checker.finish()
        if self._marks.places().to_bytes() != self._places.to_bytes():
            raise DamagedWarehouse(f"the places of run {self._marks.run.name} do not match its rows")
