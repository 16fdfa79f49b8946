"""The projection of an index: the places of the rows of `events`, ascending by the value of one column.

Model. A *place* is (file, row): the origin of a row of `events` (events/origins.py), which is the file in
which it was first written, and its number there. A run stores of each row whose value is not NULL
(value, file, row, tick), ascending by the value; values are ordered as keys are, NaN last. So the rows with
a value, or with values from u to v, are a range of the run, and the marks bracket its start and its end.

An index may *include* other columns. Its rows are then (value, included values, file, row, tick), and a
question about these columns alone is answered by them, without `events`: all columns of the index are stored
as they were written (included_columns.py). Purges and merges treat included values as they treat values.

Files of `events` never change, but they leave: maintenance, removals and other tools replace them. Places in
files that left are never looked up, so nobody has to take them out. What a question needs to
know of a file is whether the index has *all* of its rows. The row group `places` of the marks says how many
rows of each file a run has; `query/scans/covered_files.py` compares these numbers with those of the files.

The digest that compares runs with `events` leaves the places out, because rows may lie elsewhere by now.

A run has the columns `value`, `included_1` ..., `file`, `row` and `tick`. Values that are texts are
dictionaries, because they repeat; included texts are stored plain, because in the order of another column
they seldom do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidemark.warehouse.columns.arrow_buffers import arrow_array, arrow_table, empty_for_null
from tidemark.warehouse.columns.keys import Key, as_names, encode_keys, name_sizes, stored_keys
from tidemark.warehouse.columns.tick_counts import TickCounts, count_by_tick
from tidemark.warehouse.columns.value_encoding import as_numpy, single_array
from tidemark.warehouse.delta.table_names import index_runs_table
from tidemark.warehouse.events.reader import FILE_OF_ROW, ROW_IN_FILE
from tidemark.warehouse.integrity.digests import ColumnsByName
from tidemark.warehouse.integrity.sealed_files import SealedFile
from tidemark.warehouse.projections import span_marks
from tidemark.warehouse.projections.included_columns import read_column, stored_column, stored_numbers
from tidemark.warehouse.projections.index_marks import IndexMarks, Places, RunPlaces
from tidemark.warehouse.projections.key_statistics import key_statistics
from tidemark.warehouse.projections.placed_rows import PlacedRows, no_rows, sort_rows
from tidemark.warehouse.projections.span_marks import (
    MarkColumn,
    SpanMarkChecker,
    SpanMarkCollector,
    SpanMarks,
    span_mark_collector,
)
from tidemark.warehouse.runs.levels import Run
from tidemark.warehouse.runs.marks import CONTENT_FIELD, PLACES_GROUP, MarksFile
from tidemark.warehouse.runs.projection import MarkedFile, Projection, RunSpec, SortKey
from tidemark.warehouse.runs.run_files import bounded_block_edges, fixed_block_edges
from tidemark.warehouse.sizes import DEFAULT, Tuning

VALUE, FILE, ROW, TICK = "value", "file", "row", "tick"  # stored columns
# By how much the blocks of a measure are larger: few rows of a run are read at once. Blocks with included
# columns take longer to read. Still smaller ones take longer to write.
_SMALLER, _SMALLER_WITH_INCLUDED = 2, 8


@dataclass(frozen=True, slots=True)
class RowIndex(Projection[PlacedRows]):
    """The index on `column`, which includes others."""

    column: Key
    included: tuple[Key, ...] = ()
    tuning: Tuning = field(default=DEFAULT, compare=False)

    sorts_alone = True  # an index has few columns in common with other projections, or none

    @classmethod
    def on(cls, columns: Sequence[Key], tuning: Tuning = DEFAULT) -> RowIndex:
        """The index on the first column, which includes the others."""
        smaller = _SMALLER_WITH_INCLUDED if len(columns) > 1 else _SMALLER
        block_rows = max(tuning.block_rows // smaller, min(tuning.block_rows, smaller))
        return cls(columns[0], tuple(columns[1:]), replace(tuning, block_rows=block_rows))

    @property
    def name(self) -> str:
        """``index on`` and the column."""
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
    def runs_schema(self) -> pa.Schema:
        """The value, the included values, the place, the tick, and the run."""
        included = zip(self.stored_included, self.included, strict=True)
        return pa.schema(
            [
                (VALUE, self.column.stored_type),
                *((name, key.stored_type) for name, key in included),
                *((name, pa.int64()) for name in (FILE, ROW, TICK)),
                ("run", pa.string()),
            ]
        )

    @property
    def marks_schema(self) -> pa.Schema:
        """The columns that span_marks.py defines."""
        return span_marks.schema(self._mark_columns)

    @property
    def _mark_columns(self) -> Sequence[MarkColumn]:
        return (MarkColumn(VALUE, self.column.marked_type, self.column),)

    order = (VALUE,)

    @property
    def own(self) -> tuple[Key, ...]:
        """The column, and the included columns."""
        return (self.column, *self.included)

    @property
    def stored_included(self) -> tuple[str, ...]:
        """The columns of a run that store the included ones."""
        return tuple(f"included_{number}" for number in range(1, len(self.included) + 1))

    def has_values(self, names: Set[str]) -> bool:
        """Whether rows of the index have the values of these columns."""
        return names <= set(self._names)

    @property
    def _names(self) -> list[str]:
        return [key.name for key in self.own]

    @property
    def _stored_names(self) -> list[str]:
        return [name for key in self.own for name in key.stored_names]

    @property
    def columns(self) -> tuple[str, ...]:
        """The column, the included columns, and the place of a row."""
        return (*self._names, FILE_OF_ROW, ROW_IN_FILE)

    @property
    def texts(self) -> tuple[str, ...]:
        """The column, if it is text or binary."""
        return self.column.texts

    def decode(self, events: pa.Table) -> tuple[PlacedRows, TickCounts]:
        """The places of rows whose value is not NULL, in any order; and all rows by tick."""
        ticks = as_numpy(events.column("_tick"))
        array, texts = single_array(events.column(self.column.name)), None
        if self.column.is_text:
            coded = encode_keys(self.column, array)
            texts, values, null = coded.names, coded.codes, coded.null
        else:
            values, null = stored_numbers(self.column, array)
        totals = count_by_tick(ticks, null)
        included = (stored_column(key, single_array(events.column(key.name))) for key in self.included)
        files, rows = (_numbers(events, name) for name in (FILE_OF_ROW, ROW_IN_FILE))
        found = PlacedRows(self.column, texts, values, tuple(included), files, rows, ticks)  # type: ignore[arg-type]  # texts have codes
        return found.take(np.flatnonzero(~null)) if null.any() else found, totals

    def sorted_bytes(self, rows: int, ticks: int) -> int:  # noqa: ARG002
        """Five arrays of 8 bytes a row, and included values of 32."""
        return (40 + 32 * len(self.included)) * rows

    def sort(self, parts: Sequence[PlacedRows]) -> PlacedRows:
        """Sorts rows by value; equal values have no defined order."""
        return sort_rows(parts or [no_rows(self.column, self.included)])

    def merge(self, parts: Sequence[PlacedRows]) -> PlacedRows:
        """Merges sorted parts."""
        return sort_rows(parts or [no_rows(self.column, self.included)], merged=True)

    def blocks(
        self,
        pieces: Iterator[PlacedRows],
        run_spec: RunSpec | None,  # noqa: ARG002
    ) -> Iterator[tuple[PlacedRows, list[int]]]:
        """Blocks of bounded rows and bytes; no block has rows of two pieces."""
        for rows in pieces:
            if len(rows):
                yield rows, self._edges(rows)

    def _edges(self, rows: PlacedRows) -> list[int]:
        most, most_bytes = self.tuning.block_rows, self.tuning.key_block_bytes
        texts = [column for key, column in zip(self.included, rows.included, strict=True) if key.is_text]
        if not texts:
            if rows.texts is None:
                return fixed_block_edges(len(rows), most)
            return bounded_block_edges(rows.values, name_sizes(rows.texts), most, most_bytes)
        sizes = np.sum([name_sizes(empty_for_null(column)) for column in texts], axis=0)
        if rows.texts is not None:  # a text is stored once in a block
            is_first = np.diff(rows.values, prepend=-1) != 0
            sizes += np.where(is_first, name_sizes(rows.texts)[rows.values], 0)
        return bounded_block_edges(np.arange(len(rows)), sizes, most, most_bytes)

    def to_stored(self, rows: PlacedRows) -> pa.Table:
        """The value, the included values, the place and the tick."""
        included = (
            stored_keys(key, column) if key.is_text else column
            for key, column in zip(self.included, rows.included, strict=True)
        )
        return arrow_table(
            {
                VALUE: _stored_texts(self.column, rows) if self.column.is_text else rows.values,
                **dict(zip(self.stored_included, included, strict=True)),
                FILE: rows.files,
                ROW: rows.rows,
                TICK: rows.ticks,
            }
        )

    def from_stored(self, stored: ColumnsByName) -> list[PlacedRows]:
        """The rows; of texts, in parts with a single dictionary each."""
        values = stored[VALUE]
        included = [
            read_column(key, stored[name])
            for name, key in zip(self.stored_included, self.included, strict=True)
        ]
        places = [stored[name] for name in (FILE, ROW, TICK)]
        if not self.column.is_text:
            return [PlacedRows(self.column, None, values, tuple(included), *places)]
        chunks = [chunk for chunk in values.chunks if len(chunk)]
        edges = np.cumsum([0, *map(len, chunks)]).tolist()
        return [
            PlacedRows(
                self.column,
                as_names(chunk.dictionary),
                as_numpy(chunk.indices).astype(np.int64),
                tuple(column[start:stop] for column in included),
                *(column[start:stop] for column in places),
            )
            for chunk, (start, stop) in zip(chunks, pairwise(edges), strict=True)
        ]

    @property
    def dictionaries(self) -> tuple[str, ...]:
        """The value, if it is text or binary."""
        return (VALUE,) if self.column.is_text else ()

    @property
    def encoding(self) -> Mapping[str, Any]:
        """Dictionaries for file, tick and text values; DELTA_BINARY_PACKED for other integers."""
        stored = {VALUE: self.column, **dict(zip(self.stored_included, self.included, strict=True))}
        integers = [name for name, key in stored.items() if not key.is_text and not key.is_double]
        return {
            # A block limits its dictionary. Without a dictionary a long text would be stored for each row.
            "dictionary_pagesize_limit": 2**30,
            "use_dictionary": [*self.dictionaries, FILE, TICK],
            "write_statistics": [TICK] if self.column.is_double else [VALUE, TICK],
            "column_encoding": dict.fromkeys([*integers, ROW], "DELTA_BINARY_PACKED"),
        }

    def statistics(self, ends: tuple[SortKey, SortKey] | None, ticks: NDArray[np.int64]) -> dict[str, Any]:
        """Delta's statistics: of the tick and of the value."""
        return key_statistics(self.column, (VALUE, FILE, ROW), ends, {TICK: ticks})

    def collector(self, run_spec: RunSpec | None) -> SpanMarkCollector:
        """Collects marks at the grain that eps requires, and the rows of each file."""
        return span_mark_collector(self, run_spec, RunPlaces())

    def marks_tables(self, files: Sequence[MarkedFile], totals: TickCounts) -> Mapping[str, pa.Table]:
        """The header, the marks, the spans, and the rows of each file."""
        content = Places.joined([file.extra.more for file in files]).to_bytes()
        places = pa.table({CONTENT_FIELD.name: pa.array([content], CONTENT_FIELD.type)})
        return {**span_marks.to_arrow(self._mark_columns, files, totals), PLACES_GROUP: places}

    def read_marks(self, run: Run, file: SealedFile, source: MarksFile) -> IndexMarks:
        """Reads the marks; their `spans` and `places` are read on demand."""
        return IndexMarks.read(self._mark_columns, run, file, source)

    def ascends(self, rows: PlacedRows) -> bool:
        """Whether the rows ascend by value."""
        return rows.ascends()

    def checker(self, marks: SpanMarks) -> SpanMarkChecker:
        """Returns a checker of the marks, the counts, and the rows of each file."""
        return SpanMarkChecker(marks, RunPlaces())

    def digest(self, rows: PlacedRows) -> int:
        """The sum of the hashes of the rows with all of their columns, modulo 2**64."""
        return rows.digest()

    def content_digest(self, rows: PlacedRows) -> int:
        """The sum of the hashes of the rows without their places, because the place of a row may change."""
        return rows.digest(with_places=False)


def _stored_texts(key: Key, rows: PlacedRows) -> pa.DictionaryArray:
    """The values of sorted rows, with a dictionary of the texts from the first to the last of them."""
    first, last = (int(rows.values[0]), int(rows.values[-1]) + 1) if len(rows) else (0, 0)
    texts: Any = rows.texts
    codes = arrow_array((rows.values - first).astype(np.int32))
    return pa.DictionaryArray.from_arrays(codes, stored_keys(key, texts[first:last]))


def _numbers(events: pa.Table, name: str) -> NDArray[np.int64]:
    """A column of places; 0 for rows that left and are kept elsewhere, which have none."""
    column = events.column(name)
    return np.zeros(len(column), np.int64) if pa.types.is_null(column.type) else as_numpy(column)
