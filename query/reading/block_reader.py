"""Reading blocks: row groups of run files, with their footers kept in memory.

A run file never changes and its path is never reused. So each footer is parsed once per process, and a local
file stays mapped until a newer version of its table is read or too many files are mapped. Mapped pages count
as memory of this process, so they are released after every MAPPED_GROUPS row groups. Reading a block takes a
fraction of a millisecond; a reader of the small blocks of many runs, such as that of indexes, keeps decoded
blocks while their file is the same. Every error names the file.

On an object store the marks have the footers, so a block is one range of a file. The blocks of a question are
fetched in one round, or in several that hold ROUND_BYTES each, and stay in the cache of far_files.py.

Doubles that are stored plain and uncompressed (run_files.py) are taken out of the mapped file, or out of the
range that was fetched, in a fifth of the time of decoding their row group. The footer gives their place, and
their digest proves that the place was right. If it was wrong, they are decoded as all other columns are.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tidemark.query.reading import spending
from tidemark.warehouse.delta.far_files import FarFiles
from tidemark.warehouse.delta.round_trips import ByteRange, stores_at_once
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.integrity.digests import ColumnsByName, column_digest, columns_by_name
from tidemark.warehouse.integrity.sealed_files import bytes_of_chunk
from tidemark.warehouse.memory_cache import LRUCache
from tidemark.warehouse.os_errors import report_unreadable_file
from tidemark.warehouse.runs.marks import RunFile

ROUND_BYTES = 2**24  # bytes of the blocks that are fetched from an object store at once
FOOTER_BYTES = 2**24  # bytes of serialized footers; about 1,200 files of 100 row groups, or a billion rows
MAPPED_GROUPS = 64  # row groups whose pages stay in memory, about 128 KB each
MAPPED_FILES = 256  # files that are mapped at once
GROUPS_PER_TASK = 4  # row groups that are decoded at a time
# Before its doubles a page has a header and levels; Parquet does not give the length of the header.
PAGE_HEAD = 256


class _Place(NamedTuple):
    """A file: its store, its path relative to the warehouse there, and whether it is in an object store."""

    store: Store
    path: str
    is_far: bool

    @property
    def name(self) -> tuple[str, str]:
        return self.store.uri, self.path

    @property
    def identity(self) -> tuple[int, ...]:
        """An identity that changes when a local file is replaced."""
        return () if self.is_far else self.local_identity

    @property
    def local_identity(self) -> tuple[int, ...]:
        status = os.stat(f"{self.store.uri}/{self.path}")  # noqa: PTH116  Path's takes five times as long
        return status.st_ino, status.st_size, status.st_mtime_ns

    def reading(self) -> AbstractContextManager[None]:
        """Inside, errors of a read name this file."""
        return report_unreadable_file(f"{self.path} of the warehouse {self.store.uri}")


def _place(root: str, file: RunFile) -> _Place:
    if file.store is None:
        raise ValueError(f"{file.path} names no store")
    return _Place(file.store, path_of(root, file), file.store.files.takes_rounds)


def path_of(root: str, file: RunFile) -> str:
    """The path of a file relative to its warehouse; `root` is that of its table if the file names none."""
    return f"{file.root or root}/{file.path}"


class RowGroups(NamedTuple):
    """Some row groups of a file, by number, and how they are read.

    root: the folder of the table, relative to the warehouse.
    dictionaries: those of the columns that are decoded as dictionaries.
    copy: False if plain doubles may be views of the mapped file, for a caller that uses them at once.
    """

    root: str
    file: RunFile
    groups: Sequence[int]
    columns: Sequence[str]
    dictionaries: Sequence[str] = ()
    copy: bool = True


def _parts_of(wanted: RowGroups) -> Sequence[RowGroups]:
    count = len(wanted.groups)
    if count <= GROUPS_PER_TASK:
        return [wanted] if count else []
    firsts = range(0, count, GROUPS_PER_TASK)
    return [wanted._replace(groups=wanted.groups[first : first + GROUPS_PER_TASK]) for first in firsts]


def _known(place: _Place, wanted: RowGroups) -> tuple[Hashable, ...]:
    """The key by which decoded row groups are kept, beside their numbers."""
    with place.reading():
        file = *place.name, place.identity
    return *file, tuple(wanted.columns), tuple(wanted.dictionaries)


@dataclass(frozen=True, slots=True, eq=False)
class Footer:
    """The Parquet metadata of a file.

    columns: the index of each column by its name.
    edges: row group g is rows edges[g]..edges[g + 1], the end exclusive.
    """

    metadata: Any
    columns: Mapping[str, int]
    edges: NDArray[np.int64]
    _plain_ends: dict[tuple[int, str], int] = field(default_factory=dict)
    _extents: dict[tuple[int, tuple[str, ...]], tuple[int, int]] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """The bytes of the serialized metadata."""
        return int(self.metadata.serialized_size)

    def plain_end(self, group: int, name: str) -> int:
        """Where the doubles of a row group's column end in the file; 0 if they are not one plain page."""
        end = self._plain_ends.get((group, name))
        if end is None:
            chunk = self.metadata.row_group(group).column(self.columns[name])
            head = chunk.total_compressed_size - 8 * chunk.num_values
            is_plain = (
                chunk.physical_type == "DOUBLE"
                and chunk.compression == "UNCOMPRESSED"
                and set(chunk.encodings) <= {"PLAIN", "RLE"}
                and 0 < head <= PAGE_HEAD
            )
            end = chunk.data_page_offset + chunk.total_compressed_size if is_plain else 0
            self._plain_ends[group, name] = end
        return end

    def extent_of(self, group: int, columns: tuple[str, ...]) -> tuple[int, int]:
        """The rows of a row group, and the bytes of these columns of it."""
        extent = self._extents.get((group, columns))
        if extent is None:
            row_group = self.metadata.row_group(group)
            size = sum(row_group.column(self.columns[name]).total_compressed_size for name in columns)
            extent = self._extents[group, columns] = row_group.num_rows, size
        return extent

    def bytes_of(self, group: int, columns: Sequence[str]) -> tuple[int, int]:
        """The bytes of the file that have these columns of a row group, the end exclusive."""
        row_group = self.metadata.row_group(group)
        ranges = [bytes_of_chunk(row_group.column(self.columns[name])) for name in columns]
        return min(start for start, _ in ranges), max(stop for _, stop in ranges)


@dataclass(frozen=True, slots=True, eq=False)
class _Held:
    """A file whose bytes are at hand: all of a local one, or a range of one in an object store.

    content: the bytes from the byte `start` on; None if all columns are decoded by Arrow.
    decoder: decodes by Arrow; None for a range, whose decoder is made when a column needs it.
    identity: inode, size and modification time of a local file, to notice a replaced one.
    """

    footer: Footer
    decoder: pq.ParquetFile | None
    content: mmap.mmap | bytes | None
    start: int = 0
    identity: tuple[int, ...] = ()


# Shared by all readers of the process, by path and file identity. Each reader has a second cache by path
# alone, which needs no access to the disk.
_shared_footers: LRUCache[Footer] = LRUCache(FOOTER_BYTES)


class BlockReader:
    """Reads the row groups of run files, each in the store that it names; safe to share between threads."""

    def __init__(self, kept_bytes: int = 0) -> None:
        """kept_bytes: of decoded row groups that are kept, while the file is the same; none by default."""
        self._kept: LRUCache[ColumnsByName] | None = LRUCache(kept_bytes) if kept_bytes else None
        self._footers: LRUCache[Footer] = LRUCache(FOOTER_BYTES)
        self._versions: dict[str, Sequence[int]] = {}
        self._open_files: dict[Hashable, _Held] = {}  # by the name of the file and dictionaries
        self._groups_read = 0

    def use_versions(self, root: str, versions: Sequence[int]) -> None:
        """Sets the versions of the tables at `root` that are read from now on; new ones close all files.

        versions: that of each warehouse whose runs are read together.
        """
        if self._versions.get(root) != versions:
            self._versions[root] = versions
            self._close()

    def _close(self) -> None:
        self._open_files, self._groups_read = {}, 0

    def _release_pages(self, open_files: dict[Hashable, _Held]) -> None:
        """Releases the memory of mapped pages; a later read maps them again. Closes all files if too many."""
        if len(open_files) > MAPPED_FILES or not hasattr(mmap, "MADV_DONTNEED"):
            self._close()
            return
        self._groups_read = 0
        for file in list(open_files.values()):
            if isinstance(file.content, mmap.mmap):
                file.content.madvise(mmap.MADV_DONTNEED)

    def footer(self, root: str, file: RunFile) -> Footer:
        """The file's footer. Raises DamagedWarehouse if it is missing, damaged, or its row count is wrong."""
        return self._footer(_place(root, file), file)

    def _footer(self, place: _Place, file: RunFile) -> Footer:
        kept = self._footers.at(place.name)
        return kept.value or kept.keep(footer := _verified_footer(place, file), footer.nbytes)

    def read_each(self, files: Sequence[RowGroups]) -> Iterator[ColumnsByName]:
        """The row groups of all files, in order; a few are in memory at once. See `read`.

        Those in object stores are fetched before, many at once, stores side by side. Between the reads the
        question may be stopped.
        """
        parts = [(_place(file.root, file.file), part) for file in files for part in _parts_of(file)]
        for part in self._fetched(parts):
            spending.check()
            yield from self.read(part)

    def _fetched(self, parts: Sequence[tuple[_Place, RowGroups]]) -> Iterator[RowGroups]:
        """The parts, each once it was fetched; kept row groups are not fetched.

        A round counts once for all stores: they are asked at once.
        """
        if not any(place.is_far for place, _ in parts):
            yield from (part for _, part in parts)
            return
        stores = [place.store.far_files if place.is_far else None for place, _ in parts]
        wanted = [
            self._ranges(place, self._not_kept(place, part)) if place.is_far else [] for place, part in parts
        ]
        sizes = np.cumsum([sum(one.size for one in ranges) for ranges in wanted], dtype=np.int64)
        rounds = sizes // ROUND_BYTES
        for number in np.unique(rounds):
            numbers = np.flatnonzero(rounds == number).tolist()
            by_store: dict[FarFiles, list[ByteRange]] = {}
            for i in numbers:
                store = stores[i]
                if store is not None and wanted[i]:
                    by_store.setdefault(store, []).extend(wanted[i])
            _fetch(by_store)
            yield from (parts[i][1] for i in numbers)

    def _not_kept(self, place: _Place, part: RowGroups) -> RowGroups:
        kept = self._kept
        if kept is None:
            return part
        known = _known(place, part)
        return part._replace(groups=[group for group in part.groups if (known, group) not in kept])

    def _ranges(self, place: _Place, wanted: RowGroups) -> list[ByteRange]:
        with place.reading():
            footer = self._footer(place, wanted.file)
            return [ByteRange(place.path, *footer.bytes_of(group, wanted.columns)) for group in wanted.groups]

    def read(self, wanted: RowGroups) -> list[ColumnsByName]:
        """Columns of whole row groups of one file, one `ColumnsByName` per row group.

        Raises DamagedWarehouse if the file is missing, damaged, or its checksums differ from those of its
        marks. Cost: one read per row group that is not kept.
        """
        place = _place(wanted.root, wanted.file)
        if self._kept is None:
            return self._read(place, wanted)
        known = _known(place, wanted)
        kept = [self._kept.at((known, group)) for group in wanted.groups]
        missing = [group for group, one in zip(wanted.groups, kept, strict=True) if one.value is None]
        read = iter(self._read(place, wanted._replace(groups=missing, copy=True)) if missing else ())
        return [
            one.keep(block := next(read), _bytes_of(block)) if one.value is None else one.value
            for one in kept
        ]

    def _read(self, place: _Place, wanted: RowGroups) -> list[ColumnsByName]:
        """As `read`, without the kept row groups."""
        if place.is_far:
            return self._read_far(place, place.store.far_files, wanted)
        key = *place.name, *wanted.dictionaries
        open_files = self._open_files  # `_close` on another thread replaces the dict
        with place.reading():
            # Removed while it is in use: two threads must not share an open file.
            held = open_files.pop(key, None)
            identity = place.local_identity
            if held is None or held.identity != identity:
                footer = self._footer(place, wanted.file)
                held = _Held(footer, *_open(place, footer, wanted.dictionaries), identity=identity)
            blocks = [_read_block(held, wanted, group) for group in wanted.groups]
        _count(place.path, held.footer, wanted)
        open_files[key] = held
        self._groups_read += len(wanted.groups)
        if self._groups_read > MAPPED_GROUPS:
            self._release_pages(open_files)
        return blocks

    def _read_far(self, place: _Place, far: FarFiles, wanted: RowGroups) -> list[ColumnsByName]:
        """As `_read`; row groups that were not fetched are fetched in one round."""
        ranges, footer, blocks = self._ranges(place, wanted), self._footer(place, wanted.file), []
        _fetch({far: ranges})
        with place.reading():
            for group, part in zip(wanted.groups, ranges, strict=True):
                blocks.append(_read_block(_Held(footer, None, far.read(part), part.start), wanted, group))
        _count(place.path, footer, wanted)
        return blocks

    def edge_values(self, root: str, file: RunFile, group: int) -> tuple[Any, Any]:
        """The first and last value of a sorted row group: its statistics in the footer; reads no data.

        Raises DamagedWarehouse if the footer has no statistics or they differ from the marks' checksums.
        """
        with _place(root, file).reading():
            row_group = self.footer(root, file).metadata.row_group(group)
            statistics = row_group.column(0).statistics
            file.digests.check_statistics(group, row_group)
            if statistics is None or not statistics.has_min_max:
                raise ValueError(f"row group {group} has no statistics")
            return statistics.min, statistics.max


def _open(
    place: _Place, footer: Footer | None = None, dictionaries: Sequence[str] = ()
) -> tuple[pq.ParquetFile, mmap.mmap]:
    """Maps a local file; Arrow reads a file through its own threads, which is slower than the read."""
    place.store.files.check_links(place.path)
    file = os.open(f"{place.store.uri}/{place.path}", os.O_RDONLY)
    try:
        mapped = mmap.mmap(file, 0, access=mmap.ACCESS_READ)
    finally:
        os.close(file)
    source = pa.BufferReader(pa.py_buffer(mapped))
    metadata = footer and footer.metadata
    return pq.ParquetFile(source, metadata=metadata, read_dictionary=list(dictionaries)), mapped


def _open_range(held: _Held, wanted: RowGroups) -> pq.ParquetFile:
    """Opens a file of which one range is in memory. All other bytes are zeros, which take no memory.

    Arrow reads a file of Python's in threads that wait for each other: twice the time of a small block.
    """
    mapped, content = mmap.mmap(-1, wanted.file.size), held.content or b""
    mapped[held.start : held.start + len(content)] = content
    source = pa.BufferReader(pa.py_buffer(mapped))
    return pq.ParquetFile(source, metadata=held.footer.metadata, read_dictionary=list(wanted.dictionaries))


def _verified_footer(place: _Place, file: RunFile) -> Footer:
    with place.reading():
        kept = _shared_footers.at((*place.name, place.identity))
        footer = kept.value or kept.keep(footer := _read_footer(place, file), footer.nbytes)
        if footer.edges[-1] != file.rows:
            raise ValueError(f"it holds {footer.edges[-1]} rows, its marks say {file.rows}")
        return footer


def _read_footer(place: _Place, file: RunFile) -> Footer:
    if place.is_far:
        metadata = pq.read_metadata(pa.BufferReader(file.footer))
    else:
        with _open(place)[0] as opened:
            metadata = opened.metadata
    groups = range(metadata.num_row_groups)
    edges = np.cumsum([0, *(metadata.row_group(g).num_rows for g in groups)], dtype=np.int64)
    columns = {metadata.schema.column(i).path: i for i in range(metadata.num_columns)}
    return Footer(metadata, columns, edges)


def _fetch(wanted: Mapping[FarFiles, Sequence[ByteRange]]) -> None:
    """Fetches ranges of several object stores side by side: one round."""
    known = spending.current()
    if any(stores_at_once(lambda one: one[0].fetch(one[1]), list(wanted.items()))) and known is not None:
        known.plan.rounds += 1


def _count(path: str, footer: Footer, wanted: RowGroups) -> None:
    known = spending.current()
    if known is not None:
        named = tuple(wanted.columns)
        for group in wanted.groups:
            known.add(path, 1, *footer.extent_of(group, named))


def _bytes_of(block: ColumnsByName) -> int:
    return sum(int(column.nbytes) for column in block.values())


def _read_block(held: _Held, wanted: RowGroups, group: int) -> ColumnsByName:
    """The columns of a row group; ValueError if they differ from the written ones."""
    block: dict[str, Any] = {}
    for name in wanted.columns:
        values = _plain_doubles(held, wanted, group, name)
        if values is not None:
            block[name] = values
    if len(block) < len(wanted.columns):
        missing = [name for name in wanted.columns if name not in block]
        block.update(_decode_block(held, wanted, group, missing))
    return block


def _decode_block(held: _Held, wanted: RowGroups, group: int, columns: Sequence[str]) -> ColumnsByName:
    """Columns of a row group, decoded by Arrow; ValueError if they differ from the written ones."""
    decoder = held.decoder
    if decoder is None:
        decoder = _open_range(held, wanted)
    indices = [held.footer.columns[name] for name in columns]
    # ParquetFile.read_row_group looks up the columns by name each time, a fifth of a block's cost.
    decoded = columns_by_name(decoder.reader.read_row_group(group, column_indices=indices, use_threads=False))
    wanted.file.digests.check_block(group, decoded)
    return decoded


def _plain_doubles(held: _Held, wanted: RowGroups, group: int, name: str) -> NDArray[np.float64] | None:
    """The doubles of a file as they are at hand; None if they must be decoded, or have another digest."""
    if held.content is None:
        return None
    end = held.footer.plain_end(group, name) - held.start
    rows = int(held.footer.edges[group + 1] - held.footer.edges[group])
    if not 8 * rows < end <= len(held.content):
        return None
    values = np.frombuffer(held.content, np.float64, rows, end - 8 * rows)
    if wanted.copy:
        values = values.copy()
    return values if column_digest(values) == wanted.file.digests.blocks[name][group] else None
