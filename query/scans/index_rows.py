"""The rows of an index whose values lie in ranges: from the blocks of its runs, as they are stored.

A block ascends by value, so the rows of a range are a slice of it. Only the columns that are needed are read
and decoded: the value, the place, and the included columns that are asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tidemark.query.reading.block_reader import BlockReader
from tidemark.query.reading.row_ranges import RowsWanted, read_row_ranges
from tidemark.query.scans.sought import Ends
from tidemark.warehouse.columns.arrow_buffers import arrow_array, arrow_table
from tidemark.warehouse.columns.codes import Ints
from tidemark.warehouse.columns.keys import (
    Key,
    Names,
    as_names,
    count_less,
    join_names,
    no_names,
    number_names,
)
from tidemark.warehouse.projections.included_columns import decoded_column, read_column, stored_column
from tidemark.warehouse.projections.index_marks import IndexMarks
from tidemark.warehouse.projections.row_index import FILE, ROW, VALUE, RowIndex
from tidemark.warehouse.projections.span_marks import SpanMarks

_blocks = BlockReader(kept_bytes=2**26)


@dataclass(frozen=True, slots=True, eq=False)
class IndexRows:
    """Rows that an index found, in no order: the file and the number of each in `events`.

    columns: the columns whose values were asked for. values: the stored values of each (included_columns.py).
    """

    files: Ints
    rows: Ints
    columns: tuple[Key, ...]
    values: tuple[pa.Array, ...]

    def table(self, chosen: Ints) -> pa.Table:
        """The chosen rows, ascending, with the columns that were asked for, as `events` has them."""
        values = self.values
        if len(chosen) < len(self.rows):
            indices = arrow_array(chosen)
            values = tuple(stored.take(indices) for stored in values)
        named = zip(self.columns, values, strict=True)
        return arrow_table({key.name: decoded_column(key, stored) for key, stored in named})


def edges_of(marks: SpanMarks, ends: Ends) -> tuple[int, int]:
    """The rows of the run that may have values in the range, the end exclusive."""
    names: Any = marks.sort_keys[0]
    low, high = ends
    first = 0 if low is None else _less(names, low)  # marks before the range
    after = len(names) if high is None else _less(names, high, equal=True)
    positions, rows = marks.positions, marks.rows
    start = 0 if low is None or first == 0 else int(positions[first - 1]) + 1
    stop = rows if high is None or after == len(positions) else int(positions[after])
    return start, max(start, stop)


def read_index_rows(
    projection: RowIndex, runs: Iterable[IndexMarks], ends: Sequence[Ends], names: AbstractSet[str]
) -> IndexRows:
    """The rows of the runs with values in the ranges, which are disjoint.

    names: the columns whose values are asked for, which the index has; none for the places alone.
    """
    stored = dict(zip(projection.own, (VALUE, *projection.stored_included), strict=True))
    columns = tuple(key for key in projection.own if key.name in names)
    read = tuple(dict.fromkeys([VALUE, FILE, ROW, *(stored[key] for key in columns)]))
    wanted = [RowsWanted(marks.files, *edges_of(marks, one), read) for marks in runs for one in ends]
    files, rows = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    values = [[stored_column(key, pa.nulls(0))] for key in columns]
    for block, _, _ in read_row_ranges(_blocks, projection.runs_table, wanted, projection.dictionaries):
        for start, stop in _within(names_in_block(projection.column, block[VALUE]), ends):
            files.append(block[FILE][start:stop])
            rows.append(block[ROW][start:stop])
            for key, parts in zip(columns, values, strict=True):
                parts.append(read_column(key, block[stored[key]][start:stop]))
    return IndexRows(
        np.concatenate(files), np.concatenate(rows), columns, tuple(map(pa.concat_arrays, values))
    )


def names_in_block(key: Key, stored: Any) -> Names:
    """A stored column of a block, or a part of it, as names."""
    if isinstance(stored, np.ndarray):
        return number_names(key, stored)
    parts = [one.dictionary_decode() if pa.types.is_dictionary(one.type) else one for one in stored.chunks]
    return join_names([no_names(key), *map(as_names, parts)])


def _within(names: Names, ends: Iterable[Ends]) -> Iterator[tuple[int, int]]:
    """The rows with values in each range, the end exclusive, of a block with these ascending names."""
    for low, high in ends:
        start = 0 if low is None else _less(names, low)
        stop = len(names) if high is None else _less(names, high, equal=True)
        if start < stop:
            yield start, stop


def _less(names: Names, name: Any, *, equal: bool = False) -> int:
    """As `count_less`; names of numbers may lie outside 64 bits."""
    if isinstance(names, np.ndarray) and -(2**63) <= name < 2**63:
        return int(np.searchsorted(names, name, "right" if equal else "left"))
    return count_less(names, name, equal=equal)
