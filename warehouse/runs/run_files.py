"""Run files: sorted Parquet files of a projection's rows, written with their marks in one pass, read, merged.

This module runs inside tasks; it knows neither Spark nor Delta. Row groups are the blocks that
readers read. They have encodings that Spark's vectorised reader takes, and LZ4: a Huffman stage gains a tenth
at most and doubles the time of a block read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from tidemark.warehouse.integrity.digests import column_digest, columns_by_name
from tidemark.warehouse.integrity.sealed_files import SealedFile, open_sealed
from tidemark.warehouse.runs.cuts import MergeSlice, SortedInput, clip_to_slice
from tidemark.warehouse.runs.marks import ENDS, FileDigests, RunFile, statistics_digest
from tidemark.warehouse.runs.projection import MarkedFile, Projection, R, RunSpec

WRITE_BLOCKS = 64  # blocks handed to the Parquet writer at a time


def merge_slice(
    filesystem: fs.FileSystem,
    projection: Projection[R],
    inputs: Sequence[SortedInput],
    piece: MergeSlice,
    read: list[int],
) -> R:
    """The slice's rows of all inputs, merged. `read` gets the digest of what was read of each input added."""
    parts: list[R] = []
    for source, (one, reach) in enumerate(zip(inputs, piece.input_ranges, strict=True)):
        offset = reach.start
        for table in _read_rows(filesystem, one, reach.start, reach.stop, projection.dictionaries):
            for rows in projection.from_stored(columns_by_name(table)):
                parts.append(clip_to_slice(rows, offset, source, piece))
                read[source] += projection.digest(parts[-1])
                offset += len(rows)
    return projection.merge(parts)


def _read_rows(
    filesystem: fs.FileSystem, one: SortedInput, start: int, stop: int, dictionaries: Sequence[str]
) -> Iterator[pa.Table]:
    """Rows start..stop (exclusive) of a sorted input, a table a file, through the row groups that hold them.

    The columns `dictionaries` come as such.
    """
    for file in one.files:
        low, high = max(start - file.first, 0), min(stop - file.first, file.rows)
        if low < high:
            with _open(filesystem, file, dictionaries) as opened:
                groups = range(opened.metadata.num_row_groups)
                edges = np.cumsum([0, *(opened.metadata.row_group(g).num_rows for g in groups)])
                first = int(np.searchsorted(edges, low, side="right")) - 1
                until = int(np.searchsorted(edges, high, side="left"))
                blocks = [_read_block(opened, file, block) for block in range(first, until)]
                table = pa.concat_tables(blocks).slice(low - int(edges[first]), high - low)
            yield table


def read_blocks(
    filesystem: fs.FileSystem, root: str, file: RunFile, projection: Projection[R]
) -> Iterator[R]:
    """All rows of a file of a run of the table `root`, a block at a time."""
    whole = replace(file, path=f"{root}/{file.path}")
    with _open(filesystem, whole, projection.dictionaries) as opened:
        for block in range(opened.metadata.num_row_groups):
            yield from projection.from_stored(columns_by_name(_read_block(opened, file, block)))


@contextmanager
def _open(filesystem: fs.FileSystem, file: RunFile, dictionaries: Sequence[str]) -> Iterator[SealedFile]:
    """A file whose pages are checked, as it is read once. It has no seal: its digests are in the marks."""
    with open_sealed(filesystem, file.path, texts=dictionaries, checksums=True) as opened:
        if opened.metadata.num_rows != file.rows:
            raise ValueError(f"it has {opened.metadata.num_rows} rows, its marks say {file.rows}")
        yield opened


def _read_block(opened: SealedFile, file: RunFile, block: int) -> pa.Table:
    table = opened.read_group(block)
    if file.digests is not None:
        file.digests.check_block(block, columns_by_name(table))
    return table


def write_rows(
    filesystem: fs.FileSystem,
    path: str,
    projection: Projection[R],
    pieces: Iterator[R],
    shape: RunSpec | None,
) -> MarkedFile:
    """Writes sorted pieces, in order, as one file of a run of that shape; None: as a chunk."""
    filesystem.create_dir(path.rsplit("/", 1)[0], recursive=True)
    collector = projection.collector(shape)
    schema = projection.to_stored(projection.merge([])).schema
    footers: list[pq.FileMetaData] = []
    digest = 0
    columns: list[list[int]] = [[] for _ in schema.names]
    how = {**_encoding(projection, schema), "metadata_collector": footers}
    with pq.ParquetWriter(path, schema, filesystem=filesystem, **how) as writer:
        for rows, edges in projection.blocks(pieces, shape):
            digest += projection.digest(rows)
            for start, stop, block in _writes(edges, 1 if projection.dictionaries else WRITE_BLOCKS):
                table = projection.to_stored(rows.part(start, stop))
                writer.write_table(table, row_group_size=block)
                for at in range(0, stop - start, block):
                    for found, column in zip(columns, table.slice(at, block).columns, strict=True):
                        found.append(column_digest(column))
            collector.add(rows, np.array(edges[:-1]))
    groups = range(footers[0].num_row_groups)
    ends = np.array([statistics_digest(footers[0].row_group(g)) for g in groups], np.uint64)
    blocks = {name: np.array(one, np.uint64) for name, one in zip(schema.names, columns, strict=True)}
    digests = FileDigests(digest % 2**64, end_to_end=True, blocks={**blocks, ENDS: ends})
    return replace(collector.finish(path, filesystem.get_file_info(path).size), digests=digests)


def _encoding(projection: Projection[Any], schema: pa.Schema) -> dict[str, Any]:
    return {
        "sorting_columns": [pq.SortingColumn(schema.names.index(name)) for name in projection.order],
        "store_schema": False,
        "write_page_index": False,
        "write_page_checksum": True,
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


def fixed_block_edges(rows: int, block: int) -> list[int]:
    """Where blocks of so many rows begin, the last may be shorter, and the end."""
    return [*range(0, rows, block), rows]
