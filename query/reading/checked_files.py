"""Local files that DuckDB reads by itself: each is first compared with its digests, once in a process.

The result for a file holds while its identity stays the same (inode, size, times of change), and for an hour
at most (RECHECK_SECONDS). So a file that somebody changes is compared again at once. Damage that does not
change the times, such as a flipped bit on the disk, is found within an hour. Other reads compare each block
whenever they read it.

Some damage to a footer, or to the head of a page, changes no value: our reader does not notice it, but DuckDB
refuses the file. So DuckDB tries each file first (`duckdb_reads`). Our reader reads the files that DuckDB
refuses.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tidemark.query.reading import spending
from tidemark.query.reading.connections import taken_connection
from tidemark.query.reading.sql_text import parquet_rows, quoted
from tidemark.warehouse.memory_cache import LRUCache

RECHECK_SECONDS = 3600.0
KNOWN_FILES = 2**14


@dataclass(frozen=True, slots=True)
class CheckedFile:
    """A local file, and the results for its parts, such as columns, by their names.

    identity: the file's identity when it was first compared. at: the time of that comparison.
    """

    path: str
    identity: tuple[int, ...]
    at: float
    facts: dict[str, Any] = field(default_factory=dict)

    def missing(self, names: Sequence[str]) -> list[str]:
        """The parts without a result: the caller compares them with their digests."""
        missing = [name for name in names if name not in self.facts]
        if missing:
            spending.compared_files()
        return missing

    def keep(self, found: Mapping[str, Any]) -> None:
        """Keeps results for parts, for this process."""
        self.facts.update(found)
        _checked.drop(self.path)
        _checked.put(self.path, self)


_checked: LRUCache[CheckedFile] = LRUCache(KNOWN_FILES)


def checked_file(path: str) -> CheckedFile:
    """The file, with the results since it last changed; OSError if there is no such file."""
    status = os.stat(path)  # noqa: PTH116  Path's takes five times as long
    identity = status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
    known = _checked.peek(path)
    if known is None or known.identity != identity or time.monotonic() - known.at > RECHECK_SECONDS:
        return CheckedFile(path, identity, time.monotonic())
    return known


def is_utf8(texts: pa.Array | pa.ChunkedArray) -> bool:
    """Whether all text is UTF-8; DuckDB refuses other text."""
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def duckdb_reads(folder: str, path: str, columns: Sequence[str]) -> bool:
    """Whether DuckDB decodes these columns of a file below the folder. Cost: one read of the columns."""
    import duckdb

    digest = f"bit_xor(hash({', '.join(map(quoted, columns))}))"
    with taken_connection(folder) as taken:
        try:
            taken.connection.execute(f"SELECT {digest} FROM {parquet_rows([path])}").fetchall()
        except duckdb.Error:
            return False
    return True
