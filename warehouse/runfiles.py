"""Run files: sorted Parquet files of (value, tick), written with their marks in one pass.

This module runs inside Spark's tasks; it knows neither Spark nor Delta. Row groups are of fixed
size, sorted ascending by value, with exact statistics and encodings that Spark's vectorised
reader takes: LZ4 (a Huffman stage gains a tenth at most and doubles the time of a block read), and
integers DELTA_BINARY_PACKED, where sorted duplicates cost next to nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyarrow import fs

from warehouse.cuts import Slice, SortedInput, trim
from warehouse.marks import ROW_GROUP_ROWS, coded
from warehouse.measures import numbers
from warehouse.refusals import reading

WRITE_ROWS = 64 * ROW_GROUP_ROWS  # rows handed to the Parquet writer at a time


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file and its marks.

    Positions count from the file's first row; `span_starts[i]` has the cells
    ``span_offsets[i]:span_offsets[i+1]`` of `ticks` and `counts`.
    """

    path: str
    rows: int
    size: int
    positions: NDArray[np.int64]
    values: NDArray[Any]
    span_starts: NDArray[np.int64]
    span_offsets: NDArray[np.int64]
    ticks: NDArray[np.int64]
    counts: NDArray[np.int64]
    tick_range: tuple[int, int] | None

    @property
    def stats(self) -> dict[str, Any]:
        """Delta's statistics, exact; infinities have no JSON, so a side that is infinite goes without."""
        if not self.rows or self.tick_range is None:
            return {"nullCount": {"value": 0, "tick": 0}}
        low, high = self.values[0].item(), self.values[-1].item()
        least: dict[str, Any] = {"tick": self.tick_range[0]}
        most: dict[str, Any] = {"tick": self.tick_range[1]}
        if math.isfinite(low) and math.isfinite(high):
            least["value"], most["value"] = low, high
        return {"minValues": least, "maxValues": most, "nullCount": {"value": 0, "tick": 0}}


def sort_rows(values: NDArray[Any], ticks: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Rows by value; the order of ticks among equal values is free."""
    if len(ticks) == 0 or (ticks[0] == ticks[-1] and bool(np.all(ticks == ticks[0]))):
        return np.sort(values), ticks
    order = np.argsort(values)
    return values[order], ticks[order]


def merge_slice(
    filesystem: fs.FileSystem, inputs: Sequence[SortedInput], piece: Slice
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The slice's rows of all inputs, merged. A stable sort of sorted pieces is a merge."""
    values, ticks = [], []
    for source, (one, reach) in enumerate(zip(inputs, piece.reaches, strict=True)):
        if reach.start < reach.stop:
            v, t = read_rows(filesystem, one, reach.start, reach.stop)
            start, stop = trim(v, reach.start, source, piece)
            values.append(v[start:stop])
            ticks.append(t[start:stop])
    if not values:
        return inputs[0].values[:0], np.empty(0, dtype=np.int64)
    merged = np.concatenate(values)
    order = np.argsort(merged, kind="stable")
    return merged[order], np.concatenate(ticks)[order]


def read_rows(
    filesystem: fs.FileSystem, one: SortedInput, start: int, stop: int
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Rows start..stop (exclusive) of a sorted input."""
    table = pa.concat_tables(read_tables(filesystem, one.files, start, stop))
    return numbers(table.column("value")), numbers(table.column("tick"))


def read_tables(
    filesystem: fs.FileSystem,
    files: Sequence[tuple[str, int, int]],
    start: int,
    stop: int,
    *,
    texts: Sequence[str] = (),
) -> list[pa.Table]:
    """Rows start..stop (exclusive) of files in order, through the row groups that hold them.

    The columns `texts` come as dictionaries.
    """
    parts = []
    for path, first, rows in files:
        lo, hi = max(start - first, 0), min(stop - first, rows)
        if lo >= hi:
            continue
        with reading(path):
            parts.append(_read_slice(filesystem, path, lo, hi, texts))
    return parts


def _read_slice(filesystem: fs.FileSystem, path: str, lo: int, hi: int, texts: Sequence[str]) -> pa.Table:
    """Rows lo..hi (exclusive) of a file."""
    with pq.ParquetFile(path, filesystem=filesystem, read_dictionary=list(texts)) as file:
        edges = np.cumsum([0] + [file.metadata.row_group(g).num_rows for g in range(file.num_row_groups)])
        g0 = int(np.searchsorted(edges, lo, side="right")) - 1
        g1 = int(np.searchsorted(edges, hi, side="left"))
        table = file.read_row_groups(list(range(g0, g1)), use_threads=False)
        return table.slice(lo - int(edges[g0]), hi - lo)


def write_sorted(
    filesystem: fs.FileSystem,
    path: str,
    arrow_type: pa.DataType,
    pieces: Iterator[tuple[NDArray[Any], NDArray[np.int64]]],
    *,
    grain: int,
    span: int,
) -> WrittenFile:
    """Writes sorted pieces, in order, as one file; marks every `grain` rows, tick counts every `span`."""
    filesystem.create_dir(path.rsplit("/", 1)[0], recursive=True)
    marks = _MarkCollector(grain, span, arrow_type.to_pandas_dtype())
    schema = pa.schema([("value", arrow_type), ("tick", pa.int64())])
    with pq.ParquetWriter(path, schema, filesystem=filesystem, **_encoding(arrow_type)) as writer:
        for values, ticks in _in_row_groups(pieces):
            for at in range(0, len(values), WRITE_ROWS):
                part = slice(at, at + WRITE_ROWS)
                writer.write_table(
                    pa.table([pa.array(values[part], arrow_type), pa.array(ticks[part])], schema=schema),
                    row_group_size=ROW_GROUP_ROWS,
                )
            marks.add(values, ticks)
    return marks.finish(path, filesystem.get_file_info(path).size)


def _encoding(arrow_type: pa.DataType) -> dict[str, Any]:
    common: dict[str, Any] = {
        "use_dictionary": ["tick"],
        "sorting_columns": [pq.SortingColumn(0)],
        "store_schema": False,
        "write_page_index": False,
        "compression": "lz4",
    }
    if pa.types.is_floating(arrow_type):
        return common
    return {**common, "column_encoding": {"value": "DELTA_BINARY_PACKED"}}


def _in_row_groups(
    pieces: Iterator[tuple[NDArray[Any], NDArray[np.int64]]],
) -> Iterator[tuple[NDArray[Any], NDArray[np.int64]]]:
    """The same rows with every piece but the last a whole number of row groups."""
    held: tuple[NDArray[Any], NDArray[np.int64]] | None = None
    for piece in pieces:
        values, ticks = piece if held is None else _joined(held, piece)
        whole = len(values) - len(values) % ROW_GROUP_ROWS
        if whole:
            yield values[:whole], ticks[:whole]
        held = values[whole:], ticks[whole:]
    if held is not None and len(held[0]):
        yield held


def _joined(a: tuple[NDArray[Any], Any], b: tuple[NDArray[Any], Any]) -> tuple[NDArray[Any], Any]:
    return np.concatenate([a[0], b[0]]), np.concatenate([a[1], b[1]])


class _MarkCollector:
    """Collects the marks of rows that arrive in order, in pieces of any length."""

    def __init__(self, grain: int, span: int, dtype: Any) -> None:
        self.grain, self.span, self.rows = grain, span, 0
        self.positions: list[NDArray[np.int64]] = []
        self.values: list[NDArray[Any]] = [np.empty(0, dtype=dtype)]
        self.last: Any = None
        self.cells: list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]] = []

    def add(self, values: NDArray[Any], ticks: NDArray[np.int64]) -> None:
        at = np.arange(-self.rows % self.grain, len(values), self.grain)
        self.positions.append(at + self.rows)
        self.values.append(values[at])
        self.last = values[-1]
        self.cells.append(_cells((np.arange(len(ticks)) + self.rows) // self.span, ticks))
        self.rows += len(values)

    def finish(self, path: str, size: int) -> WrittenFile:
        positions = np.concatenate([*self.positions, np.empty(0, dtype=np.int64)])
        values = np.concatenate(self.values)
        if self.rows and positions[-1] != self.rows - 1:
            positions, values = np.append(positions, self.rows - 1), np.append(values, self.last)
        spans, ticks, counts = _join_cells(self.cells)
        starts, first = np.unique(spans, return_index=True)
        return WrittenFile(
            path=path,
            rows=self.rows,
            size=size,
            positions=positions,
            values=values,
            span_starts=starts * self.span,
            span_offsets=np.append(first, len(spans)).astype(np.int64),
            ticks=ticks,
            counts=counts,
            tick_range=(int(ticks.min()), int(ticks.max())) if len(ticks) else None,
        )


def _cells(
    spans: NDArray[np.int64], ticks: NDArray[np.int64], weights: NDArray[np.int64] | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Rows (or the sum of their weights) by (span, tick), ascending: spans, ticks, counts.

    `spans` ascend. Counted in a table where that is small beside the rows, by sorting otherwise.
    """
    names, code = coded(ticks)
    first = int(spans[0])
    cell = (spans - first) * len(names) + code
    if (int(spans[-1]) - first + 1) * len(names) <= 8 * len(ticks) + 4096:
        table = np.bincount(cell, weights)  # sums of weights are whole and below 2**53: exact
        found = np.flatnonzero(table)
        counts = table[found].astype(np.int64)
    else:
        found, inverse = np.unique(cell, return_inverse=True)
        counts = np.bincount(inverse, weights).astype(np.int64)
    return found // len(names) + first, names[found % len(names)], counts


def _join_cells(
    cells: list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]],
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """The cells of all pieces; a span cut by two pieces is summed."""
    if not cells:
        empty = np.empty(0, dtype=np.int64)
        return empty, empty, empty
    spans, ticks, counts = (np.concatenate(part) for part in zip(*cells, strict=True))
    return _cells(spans, ticks, counts)
