"""Run files: sorted Parquet files of a projection's rows, written with their marks in one pass, read, merged.

This module runs inside tasks; it knows neither Spark nor Delta. Row groups are the blocks that
readers read. They have encodings that Spark's vectorised reader takes, and LZ4: a Huffman stage gains a tenth
at most and doubles the time of a block read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from warehouse.cuts import Slice, SortedInput, within
from warehouse.errors import DamagedWarehouse
from warehouse.projection import Projection, R, Shape, WrittenFile
from warehouse.refusals import reading

WRITE_BLOCKS = 64  # blocks handed to the Parquet writer at a time


def merge_slice(
    filesystem: fs.FileSystem, projection: Projection[R], inputs: Sequence[SortedInput], piece: Slice
) -> R:
    """The slice's rows of all inputs, merged."""
    parts: list[R] = []
    for source, (one, reach) in enumerate(zip(inputs, piece.reaches, strict=True)):
        offset = reach.start
        for table in _read_rows(filesystem, one, reach.start, reach.stop, projection.dictionaries):
            for rows in projection.loaded(table):
                parts.append(within(rows, offset, source, piece))
                offset += len(rows)
    return projection.merge(parts)


def _read_rows(
    filesystem: fs.FileSystem, one: SortedInput, start: int, stop: int, dictionaries: Sequence[str]
) -> Iterator[pa.Table]:
    """Rows start..stop (exclusive) of a sorted input, a table a file, through the row groups that hold them.

    The columns `dictionaries` come as such.
    """
    for path, first, rows in one.files:
        low, high = max(start - first, 0), min(stop - first, rows)
        if low >= high:
            continue
        with reading(path):
            table = _read_part(filesystem, path, low, high, dictionaries)
        yield table


def _read_part(
    filesystem: fs.FileSystem, path: str, low: int, high: int, dictionaries: Sequence[str]
) -> pa.Table:
    """Rows low..high (exclusive) of a file."""
    with pq.ParquetFile(path, filesystem=filesystem, read_dictionary=list(dictionaries)) as file:
        edges = np.cumsum([0] + [file.metadata.row_group(g).num_rows for g in range(file.num_row_groups)])
        first = int(np.searchsorted(edges, low, side="right")) - 1
        stop = int(np.searchsorted(edges, high, side="left"))
        table = file.read_row_groups(list(range(first, stop)), use_threads=False)
        return table.slice(low - int(edges[first]), high - low)


def read_blocks(filesystem: fs.FileSystem, path: str, projection: Projection[R], rows: int) -> Iterator[R]:
    """All rows of a file that should have so many, a block at a time."""
    texts = list(projection.dictionaries)
    with reading(path), pq.ParquetFile(path, filesystem=filesystem, read_dictionary=texts) as file:
        if file.metadata.num_rows != rows:
            raise DamagedWarehouse(f"{path} has {file.metadata.num_rows} rows, its marks say {rows}")
        for group in range(file.num_row_groups):
            yield from projection.loaded(file.read_row_group(group))


def write_rows(
    filesystem: fs.FileSystem, path: str, projection: Projection[R], pieces: Iterator[R], shape: Shape | None
) -> WrittenFile:
    """Writes sorted pieces, in order, as one file of a run of that shape; None: as a chunk."""
    filesystem.create_dir(path.rsplit("/", 1)[0], recursive=True)
    collector = projection.collector(shape)
    schema = projection.stored(projection.merge([])).schema
    with pq.ParquetWriter(path, schema, filesystem=filesystem, **_encoding(projection, schema)) as writer:
        for rows, edges in projection.blocks(pieces, shape):
            for start, stop, block in _writes(edges, 1 if projection.dictionaries else WRITE_BLOCKS):
                writer.write_table(projection.stored(rows.part(start, stop)), row_group_size=block)
            collector.add(rows, np.array(edges[:-1]))
    return collector.finish(path, filesystem.get_file_info(path).size)


def _encoding(projection: Projection[Any], schema: pa.Schema) -> dict[str, Any]:
    return {
        "sorting_columns": [pq.SortingColumn(schema.names.index(name)) for name in projection.order],
        "store_schema": False,
        "write_page_index": False,
        "compression": "lz4",
        **projection.encoding,
    }


def _writes(edges: Sequence[int], most: int) -> Iterator[tuple[int, int, int]]:
    """Stretches of at most so many blocks of one size, the last may be shorter: start, stop, size."""
    at = 0
    while at < len(edges) - 1:
        size, until = edges[at + 1] - edges[at], at + 1
        while until < len(edges) - 1 and until - at < most and edges[until + 1] - edges[until] == size:
            until += 1
        if until < len(edges) - 1 and until - at < most and edges[until + 1] - edges[until] < size:
            until += 1
        yield edges[at], edges[until], size
        at = until


def equal_blocks(rows: int, block: int) -> list[int]:
    """Where blocks of so many rows begin, the last may be shorter, and the end."""
    return [*range(0, rows, block), rows]
