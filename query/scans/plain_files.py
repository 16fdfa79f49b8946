"""Whole files of `events` whose rows are all selected: read without DuckDB, which hands rows over slowly.

DuckDB could read these files by itself (duckdb_files.py), so they were compared with their digests. Values
are encoded as loads encode them. Footers are kept, up to FOOTER_BYTES, while a file is the same: many columns
make a footer that takes as long to parse as a column to read. Threads decode row groups ahead, and one goes
through the rows: numpy's calls are so short that threads would wait for each other. In a share of a thread
(reading/shares.py) that thread does both. Another thread waits, reports how much is read, and may stop it.

Cost: about two thirds of what DuckDB takes to read numbers and hand them over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from threading import Lock
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tidemark.query.reading import spending
from tidemark.query.reading.checked_files import checked_file
from tidemark.query.reading.shares import worked_ahead
from tidemark.warehouse.columns.keys import Key
from tidemark.warehouse.columns.value_encoding import (
    Measure,
    as_numpy_bools,
    single_array,
    stored_numbers,
)
from tidemark.warehouse.memory_cache import LRUCache
from tidemark.warehouse.os_errors import report_unreadable_file

T = TypeVar("T")

AHEAD = 16  # row groups that are decoded ahead
READ_WEIGHT = 8  # how many times as long as to go through a row it takes to read it
FOOTER_BYTES = 2**24  # as they are stored; in memory they take a few times as much

_footers: LRUCache[pq.FileMetaData] = LRUCache(FOOTER_BYTES)


class PlainFile(NamedTuple):
    """A file, and what is read of it.

    columns: the stored names of the columns that are read: those of the group, then the measure, or instead
    of a measure the key that is counted, and the tick where windows cut the file.
    texts: those columns that are read as text, with dictionaries.
    """

    path: str
    columns: tuple[str, ...]
    rows: int
    is_live: bool
    texts: tuple[str, ...] = ()


class Rows(NamedTuple):
    """Some rows.

    groups: for each column of the group its numbers. values: of the measure; 0 where they are NULL.
    is_null, is_live: for each row; empty if it is true of none.
    """

    groups: list[NDArray[np.int64]]
    values: NDArray[Any]
    is_null: NDArray[np.bool_]
    is_live: NDArray[np.bool_]


def is_plain(measure: Measure, by: Sequence[Key]) -> bool:
    """Whether columns of these types are read."""
    kind = measure.column_type
    return (kind.is_double or kind.is_integer) and all(key.column_type.is_integer for key in by)


class Stopped(Exception):
    """The reading was stopped by the thread that waits for it."""


class FileReading:
    """How much of some files is read by threads; another thread looks at it, and may stop them."""

    def __init__(self, files: Sequence[PlainFile]) -> None:
        self._rows, self._lock = sum(file.rows for file in files), Lock()
        self._read, self._is_stopped = 0, False

    @property
    def share(self) -> float:
        """The share of the rows that is read, from 0 to 1."""
        return self._read / self._rows if self._rows else 1.0

    def add(self, rows: int) -> None:
        """So many more rows are read."""
        with self._lock:
            self._read += rows

    def stop(self) -> None:
        """Threads stop at their next row group."""
        self._is_stopped = True

    def check(self) -> None:
        """Ends a thread: Stopped, or as `spending.check`."""
        spending.check()
        if self._is_stopped:
            raise Stopped


def read_rows(
    files: Sequence[PlainFile], measure: Measure, by: Sequence[Key], most: int, reading: FileReading
) -> Iterator[Rows]:
    """The rows of files without NULL in a column of the group, at most so many at once.

    Errors and stops as those of `read_row_groups`.
    """
    for rows in read_row_groups(files, lambda table, file: _encoded(table, file, measure, by), reading):
        for first in range(0, len(rows.values), most):
            here = slice(first, first + most)
            groups = [column[here] for column in rows.groups]
            yield Rows(groups, rows.values[here], rows.is_null[here], rows.is_live[here])


def read_row_groups(
    files: Sequence[PlainFile], decode: Callable[[pa.Table, PlainFile], T], reading: FileReading
) -> Iterator[T]:
    """What `decode` makes of the columns of each row group.

    DamagedWarehouse if a file cannot be read. It stops between row groups as `reading` says.
    """

    def read(group: _RowGroup) -> pa.Table:
        with report_unreadable_file(group.file.path):
            return group.opened.read_row_group(group.number, [*set(group.file.columns)], use_threads=False)

    groups: deque[_RowGroup] = deque()  # that are being read, or were
    for table in worked_ahead(read, _row_groups(files, groups), AHEAD):
        reading.check()  # not inside: a reading that is stopped is no damage
        group = groups.popleft()
        with report_unreadable_file(group.file.path):
            found = decode(table, group.file)
        if group.is_last:
            group.opened.close(force=True)
        reading.add(len(table))
        yield found


class _RowGroup(NamedTuple):
    file: PlainFile
    opened: pq.ParquetFile
    number: int

    @property
    def is_last(self) -> bool:
        return bool(self.number == self.opened.num_row_groups - 1)


def _row_groups(files: Sequence[PlainFile], taken: deque[_RowGroup]) -> Iterator[_RowGroup]:
    """Those of all files, each of which is also put into `taken`."""
    for file in files:
        with report_unreadable_file(file.path):
            footer = _footers.at((file.path, checked_file(file.path).identity))
            opened = pq.ParquetFile(
                pa.OSFile(file.path),
                metadata=footer.value,
                pre_buffer=False,
                read_dictionary=[*file.texts],
            )
            if footer.value is None:
                footer.keep(opened.metadata, opened.metadata.serialized_size)
        if not opened.num_row_groups:
            opened.close(force=True)
        for number in range(opened.num_row_groups):
            taken.append(_RowGroup(file, opened, number))
            yield taken[-1]


def _encoded(table: pa.Table, file: PlainFile, measure: Measure, by: Sequence[Key]) -> Rows:
    """The rows of a row group without NULL in a column of the group."""
    nothing = np.zeros(0, bool)
    *columns, values = (single_array(table.column(name)) for name in file.columns)
    groups = [stored_numbers(key.column_type, one) for key, one in zip(by, columns, strict=True)]
    numbers = stored_numbers(measure.column_type, values)
    is_null = as_numpy_bools(values.is_null()) if values.null_count else nothing
    if any(column.null_count for column in columns):
        kept = ~np.any([as_numpy_bools(column.is_null()) for column in columns], axis=0)
        groups = [column[kept] for column in groups]
        numbers, is_null = numbers[kept], is_null[kept] if len(is_null) else is_null
    return Rows(groups, numbers, is_null, np.ones(len(numbers), bool) if file.is_live else nothing)
