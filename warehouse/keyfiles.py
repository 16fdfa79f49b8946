"""Key files: sorted Parquet files of (key, tick, count), written with their marks in one pass.

This module runs inside Spark's tasks; it knows neither Spark nor Delta. A row group, the block of
a look-up, is bounded in rows and in the bytes of its distinct keys. Texts are a dictionary a row
group: a key of many ticks is stored once there, read once, and compared once. Statistics are
exact; doubles have none in Parquet, which would leave NaN out of them and so lose rows of a filter.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from warehouse.keycollect import KeyCollector, WrittenKeys
from warehouse.keycuts import KeySlice, SortedKeys, within
from warehouse.keyrows import KeyRows, no_rows, sorted_rows, summed
from warehouse.keys import Key, as_names, names_of, sizes, stored_keys
from warehouse.marks import TickCounts
from warehouse.measures import numbers
from warehouse.runfiles import read_tables

GROUP_BYTES = 2**20  # of a row group's distinct keys; one key may be longer


def merge_key_slice(
    filesystem: fs.FileSystem, key: Key, inputs: Sequence[SortedKeys], piece: KeySlice
) -> KeyRows:
    """The slice's rows of all inputs, equal ones summed."""
    parts = [no_rows(key)]
    for one, reach in zip(inputs, piece.reaches, strict=True):
        if reach.start < reach.stop:
            tables = read_tables(filesystem, one.files, reach.start, reach.stop, texts=("key",))
            parts += [within(rows, piece) for table in tables for rows in key_rows(key, table)]
    return summed(parts)


def key_rows(key: Key, table: pa.Table) -> list[KeyRows]:
    """Stored rows in memory, a part for each dictionary that they have."""
    parts = []
    at = 0
    for chunk in table.column("key").chunks:
        ticks, counts = (numbers(table.column(name).slice(at, len(chunk))) for name in ("tick", "count"))
        at += len(chunk)
        if not key.is_text:
            parts.append(sorted_rows(names_of(key, chunk), ticks, counts))
        elif len(chunk):
            codes = numbers(chunk.indices).astype(np.int64)
            names = as_names(chunk.dictionary)[int(codes[0]) : int(codes[-1]) + 1]
            parts.append(KeyRows(names, codes - codes[0], ticks, counts))
    return parts


def write_keys(
    filesystem: fs.FileSystem,
    path: str,
    key: Key,
    pieces: Iterator[KeyRows],
    *,
    group_rows: int,
    totals: TickCounts | None,
) -> WrittenKeys:
    """Writes sorted pieces, in order and without a pair in common, as one file.

    `totals` are the rows by tick of the whole run; None for a chunk, whose marks are those of a merge alone.
    """
    filesystem.create_dir(path.rsplit("/", 1)[0], recursive=True)
    marks = KeyCollector(key, totals)
    # The schema is told by a first table: that of a dictionary and that of plain numbers differ.
    empty = _stored(key, no_rows(key))
    with pq.ParquetWriter(path, empty.schema, filesystem=filesystem, **_encoding(key)) as writer:
        for piece in pieces:
            edges = _group_edges(piece, group_rows)
            for start, stop in pairwise(edges):
                writer.write_table(_stored(key, piece.part(start, stop)), row_group_size=stop - start)
            if len(piece):
                marks.add(piece, np.array(edges[:-1]))
    return marks.finish(path, filesystem.get_file_info(path).size)


def _stored(key: Key, rows: KeyRows) -> pa.Table:
    if key.is_text:
        codes = pa.array(rows.codes.astype(np.int32))
        stored = pa.DictionaryArray.from_arrays(codes, stored_keys(key, rows.names))
    else:
        stored = stored_keys(key, rows.names[rows.codes])
    return pa.table([stored, pa.array(rows.ticks), pa.array(rows.counts)], names=["key", "tick", "count"])


def _encoding(key: Key) -> dict[str, Any]:
    common: dict[str, Any] = {
        "sorting_columns": [pq.SortingColumn(0), pq.SortingColumn(1)],
        "store_schema": False,
        "write_page_index": False,
        "compression": "lz4",
        # A row group bounds its dictionary; without one a long key would be there once a tick.
        "dictionary_pagesize_limit": 2**30,
    }
    if key.is_text:
        return {**common, "use_dictionary": ["key", "tick", "count"]}
    plain = {**common, "use_dictionary": ["tick", "count"]}
    if key.is_double:
        return {**plain, "write_statistics": ["tick", "count"]}
    return {**plain, "column_encoding": {"key": "DELTA_BINARY_PACKED"}}


def _group_edges(rows: KeyRows, group_rows: int) -> list[int]:
    """Where row groups begin, and the end: none has more rows, nor, beside one key, more bytes of keys."""
    edges = [0]
    held = np.concatenate([[0], np.cumsum(sizes(rows.names))])
    while edges[-1] < len(rows):
        start = edges[-1]
        first = int(rows.codes[start])
        names = max(1, int(np.searchsorted(held, held[first] + GROUP_BYTES, side="right")) - 1 - first)
        stop = int(np.searchsorted(rows.codes, first + names))
        edges.append(min(start + group_rows, stop, len(rows)))
    return edges
