"""Reads an object in few rounds: a small object whole, a long range in large pieces, and columns at once.

A Parquet reader asks for the end of a file, for its footer and for each column of a row group, one after the
other. In an object store each of these is a request that waits for the one before it.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TypeAlias

from pyarrow import fs

WHOLE_BYTES = 2**20  # an object of at most this size is read at once
PIECE_BYTES = 2**23  # of a range that will be read
AT_ONCE_BYTES = 2**25  # of ranges that are read at once

Range: TypeAlias = tuple[int, int]
"""Bytes of a file, the end exclusive."""


class ReadAhead(io.RawIOBase):
    """An open object. It holds the piece that was read last, or the ranges that were read at once.

    is_whole   whether the object is so small that its first read holds all of it
    """

    def __init__(self, filesystem: fs.FileSystem, path: str) -> None:
        super().__init__()
        self._file = filesystem.open_input_file(path)
        self._size, self._position = self._file.size(), 0
        self._start, self._held = 0, b""
        self._objects, self._path = filesystem.handler, path
        self.is_whole = self._size <= WHOLE_BYTES
        self._expected = (0, 0)
        self._pieces: list[tuple[int, bytes]] = []  # each with its start

    def expect(self, start: int, stop: int) -> None:
        """Says that the bytes from start to stop (exclusive) will be read, in this order."""
        self._expected = (start, stop)

    def read_at_once(self, ranges: Sequence[Range]) -> None:
        """Reads in one round ranges that are needed next.

        Nothing is read if they are too long together, if `expect` has all of them, or if the object is small.
        """
        self._pieces = []
        first, stop = self._expected
        is_short = sum(end - start for start, end in ranges) <= AT_ONCE_BYTES
        is_new = any(start < first or stop < end for start, end in ranges)
        if is_short and is_new and not self.is_whole:
            self._held = b""
            contents = self._objects.read_ranges(self._path, ranges)
            self._pieces = list(zip((start for start, _ in ranges), contents, strict=True))

    def read(self, size: int = -1) -> bytes:
        """The next bytes; fewer than `size` at the end only."""
        left = self._size - self._position
        size = left if size < 0 else min(size, left)
        if not self._start <= self._position <= self._position + size <= self._start + len(self._held):
            self._fetch(size)
        offset = self._position - self._start
        self._position += size
        return self._held[offset : offset + size]

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Moves to an offset from the start, from the position or from the end."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        """The position."""
        return self._position

    def readable(self) -> bool:
        """Yes."""
        return True

    def seekable(self) -> bool:
        """Yes."""
        return True

    def _fetch(self, size: int) -> None:
        """Gets the next bytes, at least `size` of them."""
        for start, held in self._pieces:
            if start <= self._position and self._position + size <= start + len(held):
                self._start, self._held = start, held
                return
        first, stop = self._expected
        self._start = self._position
        if self.is_whole:
            self._start, size = 0, self._size
        elif first <= self._position < stop:
            size = max(size, min(PIECE_BYTES, stop - self._position))
        self._held = b""  # frees it before the next one comes
        self._held = self._file.read_at(size, self._start)

    def close(self) -> None:
        """Frees the bytes that it holds."""
        self._held, self._pieces = b"", []
        self._file.close()
        super().close()
