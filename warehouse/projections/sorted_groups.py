"""The projection of a measure by group: rows (group, value, tick), ascending by group, then value.

A file stores the columns of the group as `group_1`, `group_2` ..., the measure's value and the tick. A value
is NaN or NULL where the measure is: these rows are the last ones of their group (group_rows.py). A row with
NULL in a column of the group is not stored: the marks count it in `nulls`.

A block is bounded in rows and in the bytes of its distinct groups. Text columns have one dictionary in each
block. Floats have no Parquet statistics, because these leave out NaN, so a filter could lose rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidemark.sketches.hashing.row_hashes import splitmix
from tidemark.warehouse.columns.arrow_buffers import zero_for_null
from tidemark.warehouse.columns.keys import (
    Key,
    Names,
    as_names,
    ascends,
    encode_keys,
    name_sizes,
    number_names,
    stored_keys,
    take_names,
    unify_names,
)
from tidemark.warehouse.columns.tick_counts import TickCounts, count_by_tick
from tidemark.warehouse.columns.value_encoding import (
    Measure,
    as_numpy,
    as_numpy_bools,
    encode_values,
    single_array,
)
from tidemark.warehouse.delta.table_names import group_runs_table
from tidemark.warehouse.integrity.digests import PRIME, ColumnsByName, hash_sum, name_words
from tidemark.warehouse.integrity.sealed_files import SealedFile
from tidemark.warehouse.projections import span_marks
from tidemark.warehouse.projections.group_rows import (
    NAN,
    NULL,
    NUMBER,
    GroupRows,
    no_rows,
    sort_rows,
    sorted_rows,
    unsorted_rows,
)
from tidemark.warehouse.projections.key_statistics import key_statistics
from tidemark.warehouse.projections.span_marks import (
    MarkColumn,
    SpanMarkChecker,
    SpanMarkCollector,
    SpanMarks,
    span_mark_collector,
)
from tidemark.warehouse.runs.levels import Run
from tidemark.warehouse.runs.marks import MarksFile
from tidemark.warehouse.runs.projection import MarkedFile, Projection, RunSpec, SortKey
from tidemark.warehouse.runs.run_files import bounded_block_edges
from tidemark.warehouse.sizes import DEFAULT, Tuning


@dataclass(frozen=True, slots=True)
class SortedGroups(Projection[GroupRows]):
    """The values of a measure in each group, sorted; `keys` are the columns of the group."""

    keys: tuple[Key, ...]
    measure: Measure
    tuning: Tuning = field(default=DEFAULT, compare=False)

    @property
    def name(self) -> str:
        """The measure's name and the columns of the group."""
        return f"{self.measure.name} by {', '.join(key.name for key in self.keys)}"

    @property
    def type(self) -> str:
        """The measure's type."""
        return self.measure.type

    @property
    def _stored_names(self) -> list[str]:
        return [name for key in self.keys for name in key.stored_names]

    @property
    def runs_table(self) -> str:
        """``group_runs/<columns>/<measure>``."""
        return group_runs_table(self._stored_names, self.measure.stored_name)

    @property
    def group_columns(self) -> tuple[str, ...]:
        """The columns of a run that store those of the group."""
        return tuple(f"group_{number}" for number in range(1, len(self.keys) + 1))

    @property
    def runs_schema(self) -> pa.Schema:
        """The columns of the group, the value, its tick, and the run."""
        groups = [(name, key.stored_type) for name, key in zip(self.group_columns, self.keys, strict=True)]
        return pa.schema(
            [*groups, ("value", self.measure.arrow_type), ("tick", pa.int64()), ("run", pa.string())]
        )

    @property
    def marks_schema(self) -> pa.Schema:
        """The columns that span_marks.py defines."""
        return span_marks.schema(self._mark_columns)

    @property
    def _mark_columns(self) -> Sequence[MarkColumn]:
        groups = zip(self.group_columns, self.keys, strict=True)
        return (
            *(MarkColumn(name, key.marked_type, key) for name, key in groups),
            MarkColumn("kind", pa.int64()),
            MarkColumn("value", self.measure.arrow_type),
        )

    @property
    def order(self) -> tuple[str, ...]:
        """The columns of the group, then the value."""
        return (*self.group_columns, "value")

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the group and the measure, each once."""
        return tuple(dict.fromkeys([*(key.name for key in self.keys), self.measure.name]))

    @property
    def texts(self) -> tuple[str, ...]:
        """The columns of the group that are text or binary."""
        return tuple(key.name for key in self.keys if key.is_text)

    def decode(self, events: pa.Table) -> tuple[GroupRows, TickCounts]:
        """The rows of groups, in any order; and all rows by tick: rows of no group count as NULL."""
        ticks = as_numpy(events.column("_tick"))
        columns = [encode_keys(key, single_array(events.column(key.name))) for key in self.keys]
        measure = encode_values(self.measure, single_array(events.column(self.measure.name)))
        in_no_group = np.logical_or.reduce([column.null for column in columns])
        return unsorted_rows(columns, measure, ticks), count_by_tick(ticks, in_no_group)

    def sort(self, parts: Sequence[GroupRows]) -> GroupRows:
        """Sorts rows by group, kind and value; equal rows have no defined order."""
        return sort_rows([no_rows(self.keys, self.measure.dtype), *parts])

    def merge(self, parts: Sequence[GroupRows]) -> GroupRows:
        """Merges sorted parts."""
        return parts[0] if len(parts) == 1 else self.sort(parts)

    def blocks(
        self,
        pieces: Iterator[GroupRows],
        run_spec: RunSpec | None,  # noqa: ARG002
    ) -> Iterator[tuple[GroupRows, list[int]]]:
        """Blocks of bounded rows and bytes; no block has rows of two pieces."""
        for rows in pieces:
            if len(rows):
                sizes = np.sum([name_sizes(names) for names in rows.groups], axis=0)
                max_rows, max_bytes = self.tuning.block_rows, self.tuning.key_block_bytes
                yield rows, bounded_block_edges(rows.codes, sizes, max_rows, max_bytes)

    def to_stored(self, rows: GroupRows) -> pa.Table:
        """The columns of the group, the value (NaN and NULL where the measure is) and the tick."""
        columns = {}
        for name, key, names in zip(self.group_columns, self.keys, rows.groups, strict=True):
            if key.is_text:
                distinct, codes = names, rows.codes
                if len(self.keys) > 1:  # a name may be in several groups
                    distinct, (to_code,) = unify_names([names])
                    codes = to_code[codes]
                indices = pa.array(codes.astype(np.int32))
                columns[name] = pa.DictionaryArray.from_arrays(indices, stored_keys(key, distinct))
            else:
                columns[name] = stored_keys(key, take_names(names, rows.codes))
        values = rows.values
        if self.measure.is_double and bool(np.any(rows.kinds == NAN)):
            values = np.where(rows.kinds == NAN, np.nan, values)
        null = rows.kinds == NULL
        columns["value"] = pa.array(values, self.measure.arrow_type, mask=null if null.any() else None)
        return pa.table({**columns, "tick": pa.array(rows.ticks)})

    def from_stored(self, stored: ColumnsByName) -> list[GroupRows]:
        """The rows in parts: in each, every text column has a single dictionary."""
        columns = [stored[name] for name in self.group_columns]
        values, kinds = _values_and_kinds(stored["value"])
        ticks: NDArray[np.int64] = stored["tick"]
        parts = []
        for start, stop in pairwise(_chunk_edges(len(ticks), columns)):
            rows = slice(start, stop)
            groups = [_coded_names(key, column[rows]) for key, column in zip(self.keys, columns, strict=True)]
            parts.append(sorted_rows(groups, values[rows], kinds[rows], ticks[rows]))
        return parts

    @property
    def dictionaries(self) -> tuple[str, ...]:
        """The stored columns of the group that are text or binary."""
        return tuple(name for name, key in zip(self.group_columns, self.keys, strict=True) if key.is_text)

    @property
    def encoding(self) -> Mapping[str, Any]:
        """Dictionaries for ticks and text; DELTA_BINARY_PACKED for integers; no statistics of floats."""
        stored = dict(zip(self.group_columns, self.keys, strict=True))
        integers = [name for name, key in stored.items() if not key.is_text and not key.is_double]
        floats = {name for name, key in stored.items() if key.is_double}
        if self.measure.is_double:
            floats.add("value")
        else:
            integers.append("value")
        return {
            # A block limits its dictionary. Without a dictionary a long text would be stored for each row.
            "dictionary_pagesize_limit": 2**30,
            "use_dictionary": [*self.dictionaries, "tick"],
            "write_statistics": [name for name in (*stored, "value", "tick") if name not in floats],
            "column_encoding": dict.fromkeys(integers, "DELTA_BINARY_PACKED"),
        }

    def collector(self, run_spec: RunSpec | None) -> SpanMarkCollector:
        """Collects the marks of a run at the grain that eps requires; of a chunk, one at each block."""
        return span_mark_collector(self, run_spec)

    def statistics(self, ends: tuple[SortKey, SortKey] | None, ticks: NDArray[np.int64]) -> dict[str, Any]:
        """Delta's statistics: of the tick, and of the group's first column, by which the rows are sorted."""
        return key_statistics(self.keys[0], self.group_columns, ends, {"tick": ticks})

    def marks_tables(self, files: Sequence[MarkedFile], totals: TickCounts) -> Mapping[str, pa.Table]:
        """The header, the marks and the spans."""
        return span_marks.to_arrow(self._mark_columns, files, totals)

    def read_marks(self, run: Run, file: SealedFile, source: MarksFile) -> SpanMarks:
        """Reads the marks; their `spans` reads the spans on demand."""
        return SpanMarks.read(self._mark_columns, run, file, source)

    def ascends(self, rows: GroupRows) -> bool:
        """Whether the rows ascend by group, kind and value, and no value is NaN."""
        in_order = ascends([*rows.groups]) and ascends([rows.codes, rows.kinds, rows.values])
        return in_order and not np.isnan(rows.values).any()

    def checker(self, marks: SpanMarks) -> SpanMarkChecker:
        """Returns a checker of the marks and the counts by span and tick."""
        return SpanMarkChecker(marks)

    def digest(self, rows: GroupRows) -> int:
        """The sum of the hashes of (group, kind, value, tick), modulo 2**64."""
        with np.errstate(over="ignore"):
            words = np.zeros(len(rows.groups[0]), np.uint64)
            for names in rows.groups:
                hashes = name_words(names)
                words = splitmix(words + PRIME) + hashes
            mixed = splitmix(words)[rows.codes] + rows.values.view(np.uint64)
            return hash_sum(splitmix(mixed) + rows.kinds.view(np.uint64), rows.ticks)


def _chunk_edges(rows: int, columns: Sequence[Any]) -> list[int]:
    """The rows where a chunk of a text column starts, followed by the number of rows."""
    edges = {0, rows}
    for column in columns:
        if isinstance(column, pa.ChunkedArray):
            edges |= set(np.cumsum([len(chunk) for chunk in column.chunks]).tolist())
    return sorted(edges)


def _coded_names(key: Key, stored: Any) -> tuple[Names, NDArray[np.int64]]:
    """A stored column of at most one dictionary as names, and the index of each row's name."""
    if not key.is_text:
        names = number_names(key, stored)
        return names, np.arange(len(names))
    (chunk,) = (chunk for chunk in stored.chunks if len(chunk))
    return as_names(chunk.dictionary), as_numpy(chunk.indices).astype(np.int64)


def _values_and_kinds(stored: Any) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """A stored column of values as numbers, with 0 for NaN and NULL, and the kind of each row."""
    if isinstance(stored, np.ndarray):
        null, values = np.zeros(len(stored), dtype=bool), stored
    else:
        array = single_array(stored)
        null = as_numpy_bools(array.is_null())
        values = as_numpy(zero_for_null(array))
    kinds = np.where(null, NULL, NUMBER)
    if values.dtype.kind == "f":
        kinds[np.isnan(values)] = NAN
    return np.where(kinds == NUMBER, values, values.dtype.type(0)), kinds
