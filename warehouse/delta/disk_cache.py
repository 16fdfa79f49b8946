"""A folder of bounded size that keeps what was read from an object store, for the processes of one user.

An entry is a file: a checksum, then the content. An entry that is damaged counts as missing, so nothing that
is done to the folder can change an answer. The entries whose last use is longest ago are deleted first.
Several processes may use one folder at the same time.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

import xxhash

from tidemark.warehouse.errors import InputError, shortened
from tidemark.warehouse.os_errors import in_home

_CHECKSUM_BYTES = 16
_KEPT = 0.9  # of the budget, after entries were deleted


class DiskCache:
    """Contents by key, in a folder that is made if it does not exist. Safe to share between threads.

    budget: the bytes of all entries; there may be more for a moment, and while other processes write.

    InputError if the folder cannot be made.
    """

    def __init__(self, folder: str | os.PathLike[str], budget: int) -> None:
        self._budget = budget
        self._lock = threading.Lock()
        try:
            self._folder = Path(in_home(folder))
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except (OSError, TypeError, ValueError) as error:  # ValueError: no name of a file has such characters
            raise InputError(f"the cache folder {shortened(folder)} cannot be made: {error}.") from error
        self._size = sum(size for _, size, _ in self._entries())

    def get(self, key: str) -> bytes | None:
        """The content of a key; None if there is none, or if it is damaged."""
        path = self._path(key)
        try:
            stored = path.read_bytes()
            os.utime(path)
        except OSError:
            return None
        content = stored[_CHECKSUM_BYTES:]
        return content if xxhash.xxh3_128_digest(content) == stored[:_CHECKSUM_BYTES] else None

    def put(self, key: str, content: bytes) -> None:
        """Keeps the content; does nothing where the folder cannot be written."""
        path = self._path(key)
        with suppress(OSError):
            handle, name = tempfile.mkstemp(dir=self._folder)
            with os.fdopen(handle, "wb") as file:
                file.write(xxhash.xxh3_128_digest(content) + content)
            Path(name).replace(path)
        with self._lock:
            self._size += len(content) + _CHECKSUM_BYTES
            if self._size > self._budget:
                self._size = self._delete_oldest()

    def _path(self, key: str) -> Path:
        return self._folder / hashlib.sha256(key.encode()).hexdigest()

    def _entries(self) -> list[tuple[float, int, Path]]:
        """When each entry was last used, its size and its path."""
        entries = []
        for path in self._folder.iterdir():
            with suppress(OSError):
                status = path.stat()
                entries.append((status.st_mtime, status.st_size, path))
        return entries

    def _delete_oldest(self) -> int:
        """Deletes entries until the others have room; returns the bytes of these."""
        entries = sorted(self._entries())
        size = sum(size for _, size, _ in entries)
        for _, bytes_of_it, path in entries:
            if size <= _KEPT * self._budget:
                break
            with suppress(OSError):
                path.unlink()
            size -= bytes_of_it
        return size
