"""Run files: writes, reads and merges sorted Parquet files of a projection's rows.

Tasks call this module; it imports neither Spark nor Delta. A file and its marks are written in one pass. A
block is a row group: the unit of reads. The encodings are those that Spark's vectorised reader supports. The
compression is LZ4: a Huffman stage saves at most a tenth of the size and doubles the time of a block read.
Doubles that LZ4 makes hardly smaller are not compressed; readers take them from the file as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import chain
from typing import Any, Generic

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyarrow import fs

from tidemark.warehouse.columns.value_encoding import as_numpy
from tidemark.warehouse.integrity.digests import column_digest, columns_by_name
from tidemark.warehouse.integrity.parquet_writer import ParquetWriter
from tidemark.warehouse.integrity.sealed_files import SealedFile, open_sealed
from tidemark.warehouse.os_errors import report_unreadable_file
from tidemark.warehouse.runs.cuts import MergeSlice, SortedInput, clip_to_slice
from tidemark.warehouse.runs.marks import STATISTICS_COLUMN, FileDigests, RunFile, statistics_digest
from tidemark.warehouse.runs.projection import MarkedFile, Projection, R, RunSpec

WRITE_BLOCKS = 64  # blocks handed to the Parquet writer at a time
# Doubles are compressed if LZ4 saves at least this share of some parts of the first rows.
SAMPLES, SAMPLE_ROWS, LEAST_SAVING = 8, 2**12, 0.05


class InputReader(Generic[R]):
    """Reads the rows of slices from the input `source` of a merge.

    The slices ascend; the last file stays open for the next slice.
    `digest` is that of the rows that were read.
    """

    def __init__(
        self, filesystem: fs.FileSystem, projection: Projection[R], inputs: Sequence[SortedInput], source: int
    ) -> None:
        self._filesystem, self._projection = filesystem, projection
        self._files, self._source = inputs[source].files, source
        self._open: tuple[RunFile, SealedFile] | None = None
        self._stack = ExitStack()
        self.digest = 0

    def __enter__(self) -> InputReader[R]:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def read(self, slice_plan: MergeSlice) -> Iterator[R]:
        """The rows of the slice, in consecutive parts."""
        input_range = slice_plan.input_ranges[self._source]
        offset = input_range.start
        for table in self._tables(input_range):
            for rows in self._projection.from_stored(columns_by_name(table)):
                part: R = clip_to_slice(rows, offset, self._source, slice_plan)
                self.digest += self._projection.digest(part)
                offset += len(rows)
                yield part

    def _tables(self, rows: range) -> Iterator[pa.Table]:
        """The rows of the range: a table for each file with some; reads only row groups with rows of it."""
        for file in self._files:
            low, high = max(rows.start - file.first, 0), min(rows.stop - file.first, file.rows)
            if low < high:
                with report_unreadable_file(file.path):
                    opened = self._opened(file)
                    groups = range(opened.metadata.num_row_groups)
                    edges = np.cumsum([0, *(opened.metadata.row_group(group).num_rows for group in groups)])
                    first = int(np.searchsorted(edges, low, side="right")) - 1
                    until = int(np.searchsorted(edges, high, side="left"))
                    opened.expect(first, until)
                    blocks = [_read_block(opened, file, block) for block in range(first, until)]
                    table = pa.concat_tables(blocks).slice(low - int(edges[first]), high - low)
                yield table

    def _opened(self, file: RunFile) -> SealedFile:
        if self._open is None or self._open[0] is not file:
            self._stack.close()
            opened = _open_run_file(self._filesystem, file, self._projection.dictionaries)
            self._open = file, self._stack.enter_context(opened)
        return self._open[1]


def merge_slices(
    projection: Projection[R], readers: Sequence[InputReader[R]], slices: Iterable[MergeSlice]
) -> Iterator[R]:
    """The rows of each slice, read from all inputs and merged."""
    for slice_plan in slices:
        yield projection.merge([part for reader in readers for part in reader.read(slice_plan)])


def read_blocks(
    filesystem: fs.FileSystem, root: str, file: RunFile, projection: Projection[R]
) -> Iterator[R]:
    """Reads all rows of a run's file of the table `root`, a block at a time."""
    in_warehouse = replace(file, path=f"{root}/{file.path}")
    with _open_run_file(filesystem, in_warehouse, projection.dictionaries) as opened:
        opened.expect(0, opened.metadata.num_row_groups)
        for block in range(opened.metadata.num_row_groups):
            yield from projection.from_stored(columns_by_name(_read_block(opened, file, block)))


@contextmanager
def _open_run_file(
    filesystem: fs.FileSystem, file: RunFile, dictionaries: Sequence[str]
) -> Iterator[SealedFile]:
    """Opens a file; reads check its pages. Run files have no seal: their digests are in the marks."""
    with open_sealed(filesystem, file.path, texts=dictionaries, checksums=True) as opened:
        if opened.metadata.num_rows != file.rows:
            raise ValueError(f"it has {opened.metadata.num_rows} rows, its marks say {file.rows}")
        yield opened


def _read_block(opened: SealedFile, file: RunFile, block: int) -> pa.Table:
    table = opened.read_group(block)
    file.digests.check_block(block, columns_by_name(table))
    return table


def write_rows(
    filesystem: fs.FileSystem,
    path: str,
    projection: Projection[R],
    pieces: Iterator[R],
    run_spec: RunSpec | None,
) -> MarkedFile:
    """Writes consecutive sorted pieces as a file of a run; if `run_spec` is None, as a chunk to be merged."""
    filesystem.create_dir(path.rsplit("/", 1)[0], recursive=True)
    collector = projection.collector(run_spec)
    schema = projection.to_stored(projection.merge([])).schema
    footers: list[pq.FileMetaData] = []
    row_digest = 0
    column_digests: list[list[int]] = [[] for _ in schema.names]
    blocks_of_rows = projection.blocks(pieces, run_spec)
    first = next(blocks_of_rows, None)
    sample = projection.merge([]) if first is None else first[0]
    options = {**_encoding(projection, schema, sample), "metadata_collector": footers}
    with filesystem.open_output_stream(path) as file, ParquetWriter(file, schema, **options) as writer:
        for rows, edges in chain([] if first is None else [first], blocks_of_rows):
            row_digest += projection.digest(rows)
            for start, stop, block_rows in _write_ranges(
                edges, 1 if projection.dictionaries else WRITE_BLOCKS
            ):
                table = projection.to_stored(rows.part(start, stop))
                writer.write_table(table, row_group_size=block_rows)
                blocks_of_table = [slice(row, row + block_rows) for row in range(0, stop - start, block_rows)]
                for digests, column in zip(column_digests, columns_by_name(table).values(), strict=True):
                    digests += [column_digest(column[block]) for block in blocks_of_table]
            collector.add(rows, np.array(edges[:-1]))
        writer.close()
        size = file.tell()
    groups = range(footers[0].num_row_groups)
    by_column = dict(zip(schema.names, column_digests, strict=True))
    by_column[STATISTICS_COLUMN] = [statistics_digest(footers[0].row_group(group)) for group in groups]
    blocks = {name: np.array(digests, np.uint64) for name, digests in by_column.items()}
    file_digests = FileDigests(row_digest % 2**64, blocks)
    footer = pa.BufferOutputStream()
    footers[0].write_metadata_file(footer)
    marked = collector.finish(path, size)
    return replace(marked, digests=file_digests, footer=footer.getvalue().to_pybytes())


def _encoding(projection: Projection[R], schema: pa.Schema, sample: R) -> dict[str, Any]:
    return {
        "sorting_columns": [pq.SortingColumn(schema.names.index(name)) for name in projection.order],
        "store_schema": False,
        "write_page_index": False,
        "write_page_checksum": True,
        "compression": _codecs(projection, schema, sample),
        **projection.encoding,
    }


def _codecs(projection: Projection[R], schema: pa.Schema, sample: R) -> dict[str, str]:
    """LZ4 for each column; none for plain doubles of which it would save too little."""
    codecs = dict.fromkeys(schema.names, "lz4")
    coded = projection.encoding.get("use_dictionary", schema.names)
    plain = [field.name for field in schema if field.type == pa.float64() and field.name not in coded]
    if plain and len(sample):
        length = min(SAMPLE_ROWS, len(sample))
        starts = np.linspace(0, len(sample) - length, SAMPLES, dtype=np.int64).tolist()
        parts = [projection.to_stored(sample.part(start, start + length)) for start in starts]
        for name in plain:
            columns = [as_numpy(part.column(name).drop_null()) for part in parts]
            compressed = sum(len(pa.compress(column, "lz4_raw")) for column in columns)
            if compressed > (1 - LEAST_SAVING) * sum(column.nbytes for column in columns):
                codecs[name] = "none"
    return codecs


def _write_ranges(edges: Sequence[int], max_blocks: int) -> Iterator[tuple[int, int, int]]:
    """Groups consecutive blocks of one size, at most `max_blocks`: (start, stop, rows of a block).

    The last block of a group may be shorter. Edges 0, 4, 8, 10, 16 give (0, 10, 4) and (10, 16, 6).
    """
    first = 0
    while first < len(edges) - 1:
        size, until = edges[first + 1] - edges[first], first + 1
        while (
            until < len(edges) - 1 and until - first < max_blocks and edges[until + 1] - edges[until] == size
        ):
            until += 1
        if until < len(edges) - 1 and until - first < max_blocks and edges[until + 1] - edges[until] < size:
            until += 1
        yield edges[first], edges[until], size
        first = until


def bounded_block_edges(
    codes: NDArray[np.int64], sizes: NDArray[np.int64], max_rows: int, max_bytes: int
) -> list[int]:
    """The edges of blocks with at most `max_rows` rows and `max_bytes` bytes of names.

    Row i has the name `codes[i]`, an ascending number; name c takes `sizes[c]` bytes once in each block. A
    block of a single name may have more bytes.
    """
    edges = [0]
    bytes_before = np.concatenate([[0], np.cumsum(sizes)])
    while edges[-1] < len(codes):
        start = edges[-1]
        first = int(codes[start])
        names = max(
            1, int(np.searchsorted(bytes_before, bytes_before[first] + max_bytes, side="right")) - 1 - first
        )
        stop = int(np.searchsorted(codes, first + names))
        edges.append(min(start + max_rows, stop, len(codes)))
    return edges


def fixed_block_edges(rows: int, block: int) -> list[int]:
    """The edges of blocks of `block` rows; the last one may be shorter. 10 rows by 4: [0, 4, 8, 10]."""
    return [*range(0, rows, block), rows]
