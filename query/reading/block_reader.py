"""Reading blocks: row groups of run files, with their footers kept in memory.

A run file never changes and its name is never used again, so a footer is parsed once a process, and a local
file stays mapped until a newer version of its table is asked of, or too many are. The pages that were read
count as this process's memory, so they are given back every few reads. Blocks themselves are not kept: a read
costs a fraction of a millisecond. Every failure names the file.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tidemark.query.reading.memory_cache import Recent
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.integrity.digests import ColumnsByName, columns_by_name
from tidemark.warehouse.os_errors import report_unreadable_file
from tidemark.warehouse.runs.marks import RunFile

# Requests that fly at once on an object store. A local block is read before a thread would wake up.
THREADS = 8
FOOTER_BYTES = 2**24  # serialized; about 1,200 files of 100 row groups, or a billion rows
MAPPED_GROUPS = 64  # row groups whose pages stay, about 128 KB each
MAPPED_FILES = 256  # that are open at once
GROUPS_A_TASK = 4  # a long stretch is shared among the threads, a short one is opened once

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True, eq=False)
class Footer:
    """A file's Parquet metadata, and its columns' places; row group g is rows edges[g]..edges[g + 1]."""

    metadata: Any
    columns: Mapping[str, int]
    edges: NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class _Opened:
    """An open file, and what its name stood for then; on an object store nothing: names are for good."""

    file: pq.ParquetFile
    mapped: mmap.mmap | None
    columns: Mapping[str, int]
    identity: tuple[int, ...]


def _footer_bytes(footer: Footer) -> int:
    return int(footer.metadata.serialized_size)


# Of all readers in the process, by file and what its name stood for. Each keeps its own as well, by name
# alone: so asking costs it no look at the disk.
_parsed: Recent[Footer] = Recent(FOOTER_BYTES, _footer_bytes)


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(THREADS, thread_name_prefix="tidemark-blocks")


# A forked child has the pool's record but none of its threads.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)


def in_parallel(work: Callable[[T], R], items: Sequence[T], threads: int) -> list[R]:
    """`work` of every item, in order. The caller's thread takes its share: each waits for the others once."""
    shares = min(threads, len(items))

    def work_share(share: int) -> list[R]:
        return [work(item) for item in items[share::shares]]

    others = [_pool().submit(work_share, share) for share in range(1, shares)]
    results: list[Any] = [None] * len(items)
    for share in range(shares):
        results[share::shares] = work_share(share) if share == 0 else others[share - 1].result()
    return results


class BlockReader:
    """Reads the row groups of a warehouse's run files; safe to share between threads."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._filesystem = None if store.is_local else store.filesystem()
        self.threads = 1 if store.is_local else THREADS
        self._footers: Recent[Footer] = Recent(FOOTER_BYTES, _footer_bytes)
        self._versions: dict[str, int] = {}
        self._opened: dict[str, _Opened] = {}
        self._groups = 0

    def at(self, root: str, version: int) -> None:
        """Questions are now of this version of the table: files that it may not have any more are closed."""
        if self._versions.get(root) != version:
            self._versions[root] = version
            self._close()

    def _close(self) -> None:
        self._opened, self._groups = {}, 0

    def _give_back(self, opened: dict[str, _Opened]) -> None:
        """The pages of files that nobody reads now; a later read takes them from the system again."""
        if len(opened) > MAPPED_FILES or not hasattr(mmap, "MADV_DONTNEED"):
            self._close()
            return
        self._groups = 0
        for one in list(opened.values()):
            if one.mapped is not None:
                one.mapped.madvise(mmap.MADV_DONTNEED)

    def footer(self, root: str, file: RunFile) -> Footer:
        """The file's footer. DamagedWarehouse if the file is missing, damaged or of other rows."""
        path = f"{root}/{file.path}"
        return self._footers.get(path, lambda: self._shared_footer(path, file.rows))

    def fetch_footers(self, root: str, files: Sequence[RunFile]) -> None:
        """Reads the footers that are not in memory, several at a time."""
        missing = [file for file in files if f"{root}/{file.path}" not in self._footers]
        in_parallel(lambda file: self.footer(root, file), missing, self.threads)

    def read(
        self,
        root: str,
        file: RunFile,
        groups: Sequence[int],
        columns: Sequence[str],
        dictionaries: Sequence[str] = (),
    ) -> list[ColumnsByName]:
        """Columns of whole row groups of one file, those named `dictionaries` as such."""
        path = f"{root}/{file.path}"
        opened_now = self._opened
        with self._reading(path):
            # Taken out while it is read from: two threads do not share an open file.
            opened = opened_now.pop(path, None)
            identity = self._identity(path)
            if opened is None or opened.identity != identity:
                footer = self.footer(root, file)
                opened = _Opened(*self._open(path, footer, dictionaries), footer.columns, identity)
            # The file's own method looks the columns up by name each time: a fifth of the read of a block.
            read = opened.file.reader.read_row_group
            places = [opened.columns[name] for name in columns]
            blocks = [columns_by_name(read(g, column_indices=places, use_threads=False)) for g in groups]
            if file.sums is not None:
                for group, block in zip(groups, blocks, strict=True):
                    file.sums.check(group, block)
        opened_now[path] = opened
        self._groups += len(groups)
        if self._groups > MAPPED_GROUPS:
            self._give_back(opened_now)
        return blocks

    def edge_values(self, root: str, file: RunFile, group: int) -> tuple[Any, Any]:
        """The first and the last value of a row group, from the footer alone: it is sorted."""
        with self._reading(f"{root}/{file.path}"):
            held = self.footer(root, file).metadata.row_group(group)
            statistics = held.column(0).statistics
            if file.sums is not None:
                file.sums.check_ends(group, held)
            if statistics is None or not statistics.has_min_max:
                raise ValueError(f"row group {group} has no statistics")
            return statistics.min, statistics.max

    def _identity(self, path: str) -> tuple[int, ...]:
        if self._filesystem is not None:
            return ()
        found = os.stat(f"{self._store.uri}/{path}")  # noqa: PTH116  Path's takes five times as long
        return found.st_ino, found.st_size, found.st_mtime_ns

    def _open(
        self, path: str, footer: Footer | None = None, dictionaries: Sequence[str] = ()
    ) -> tuple[pq.ParquetFile, mmap.mmap | None]:
        how: dict[str, Any] = {"metadata": footer and footer.metadata, "read_dictionary": list(dictionaries)}
        if self._filesystem is None:
            self._store.check_links(path)
            # Mapped: Arrow reads a file through threads of its own, which takes longer than a block does.
            file = os.open(f"{self._store.uri}/{path}", os.O_RDONLY)
            try:
                mapped = mmap.mmap(file, 0, access=mmap.ACCESS_READ)
            finally:
                os.close(file)
            return pq.ParquetFile(pa.BufferReader(pa.py_buffer(mapped)), **how), mapped
        return pq.ParquetFile(path, filesystem=self._filesystem, **how), None

    def _shared_footer(self, path: str, rows: int) -> Footer:
        with self._reading(path):
            place = self._store.uri, path, self._identity(path)
            footer = _parsed.get(place, lambda: self._read_footer(path))
            if footer.edges[-1] != rows:
                raise ValueError(f"it holds {footer.edges[-1]} rows, its marks say {rows}")
            return footer

    def _read_footer(self, path: str) -> Footer:
        with self._open(path)[0] as opened:
            metadata = opened.metadata
        groups = range(metadata.num_row_groups)
        edges = np.cumsum([0, *(metadata.row_group(g).num_rows for g in groups)], dtype=np.int64)
        columns = {metadata.schema.column(i).path: i for i in range(metadata.num_columns)}
        return Footer(metadata, columns, edges)

    def _reading(self, path: str) -> AbstractContextManager[None]:
        return report_unreadable_file(f"{path} of the warehouse {self._store.uri}")
