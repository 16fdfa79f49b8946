"""Files of an object store: the choice of the client, and ranges that are read in rounds and kept.

Files of a warehouse never change, and their names are never used again, with the exception of
`_last_checkpoint`. So `fetch` keeps what it read, and `FarFileSystem` opens a file that was fetched as a
whole from memory: the code that reads files does not know of rounds (round_trips.py). A file that was not
fetched is read from the store as it is used.

Requests are made by object_client.py, or by delta-rs if object_client.py has no access. delta-rs asks for the
size of a file before it reads the file, unless it is told the size. So it is told a size that no file has: if
a range ends beyond the file, a store answers with the bytes up to the file's end.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cached_property, partial
from typing import Any

import pyarrow as pa
from deltalake.fs import DeltaStorageHandler
from pyarrow import fs

from tidemark.warehouse.delta import write_behind
from tidemark.warehouse.delta.disk_cache import DiskCache
from tidemark.warehouse.delta.files import Files
from tidemark.warehouse.delta.log_files import KNOWN_BYTES, CachedLog
from tidemark.warehouse.delta.object_client import ObjectClient, Upload
from tidemark.warehouse.delta.round_trips import ByteRange, at_once
from tidemark.warehouse.delta.s3_options import s3_client_at
from tidemark.warehouse.delta.write_behind import WriteBehind
from tidemark.warehouse.memory_cache import LRUCache
from tidemark.warehouse.os_errors import report_os_errors
from tidemark.warehouse.per_process import per_process

CACHED_BYTES = 2**26  # of the files of one warehouse
KEPT_PUT_BYTES = 2**18
_NO_FILE_SIZE = 2**40
_KNOWN_PATHS = 2**14  # of one client of delta-rs


class FarFiles(Files):
    """The files of one warehouse in an object store; see `Files`."""

    takes_rounds = True

    def __init__(self, uri: str, options: dict[str, str] | None) -> None:
        self.folder = None
        self.uri, self.options = uri, options
        self._lock = threading.Lock()
        self._known: set[str] = set()
        self._expected: set[str] = set()
        self._client: Any = None
        self._disk: DiskCache | None = None
        self._cache: LRUCache[bytes] = LRUCache(CACHED_BYTES)
        self.logs: LRUCache[CachedLog] = LRUCache(KNOWN_BYTES)
        self.idle: dict[str, Any] = {}  # copies of logs by table that were given back (log_replica.py)
        self.filesystem = fs.PyFileSystem(FarFileSystem(self))

    @cached_property
    def objects(self) -> ObjectClient | None:
        """The warehouse's objects, each read and put with one request; None if only delta-rs has access."""
        return s3_client_at(self.uri, self.options)

    def get(self, ranges: Sequence[ByteRange]) -> list[bytes | None]:
        """The bytes of the ranges, None for files that do not exist, in one round; nothing is kept."""
        if not ranges:
            return []
        objects = self.objects
        if objects is not None:
            return at_once(lambda wanted: objects.get(wanted.path, wanted.start, wanted.stop), ranges)
        client = self._client_for({wanted.path for wanted in ranges})
        return at_once(partial(_read, client), ranges)

    def fetch(self, ranges: Iterable[ByteRange]) -> int:
        """Reads the ranges that are not in memory, in one round, and keeps those of files that exist."""
        missing = self.missing(ranges)
        with report_os_errors(f"reading files of the warehouse {self.uri}"):
            self.keep(missing, self.get(missing))
        return len(missing)

    def keep_on_disk(self, cache: DiskCache) -> None:
        """From now on keeps what is fetched in a folder, too."""
        self._disk = cache

    def absent(self, paths: Sequence[str]) -> list[str]:
        """Which of the files are not there; one round of requests."""
        first_bytes = self.get([ByteRange(path, 0, 1) for path in paths])
        return [path for path, first in zip(paths, first_bytes, strict=True) if first is None]

    def log_names(self, table: str) -> list[str]:
        """The names in the table's log, as far as they can be read."""
        with suppress(OSError):
            selector = fs.FileSelector(f"{table}/_delta_log", allow_not_found=True)
            return [info.base_name for info in self.filesystem.get_file_info(selector)]
        return []

    def log_entries(self, table: str, names: Sequence[str]) -> Sequence[bytes | None]:
        """The contents of entries of the log."""
        return self.get([ByteRange(f"{table}/_delta_log/{name}") for name in names])

    def open_objects(self) -> ObjectClient | None:
        """The files as objects; None if only delta-rs has access."""
        return self.objects

    def missing(self, ranges: Iterable[ByteRange]) -> list[ByteRange]:
        """The ranges that are neither in memory nor on disk, each once; reads those on disk into memory."""
        missing = [wanted for wanted in dict.fromkeys(ranges) if wanted not in self._cache]
        if self._disk is None:
            return missing
        found = [(wanted, self._disk.get(self._key(wanted))) for wanted in missing]
        for wanted, content in found:
            if content is not None:
                self._cache.put(wanted, content, len(content))
        return [wanted for wanted, content in found if content is None]

    def keep(self, ranges: Iterable[ByteRange], contents: Iterable[bytes | None]) -> None:
        """Keeps the bytes of ranges, as many as the budgets allow."""
        for wanted, content in zip(ranges, contents, strict=True):
            if content is not None:
                self._cache.put(wanted, content, len(content))
                if self._disk is not None:
                    self._disk.put(self._key(wanted), content)

    def _key(self, wanted: ByteRange) -> str:
        return f"{self.uri}/{wanted.path} {wanted.start} {wanted.stop}"

    def read(self, wanted: ByteRange) -> bytes:
        """The bytes of a range, from memory if it was fetched; FileNotFoundError if there is no such file."""
        content = self._cache.peek(wanted)
        if content is None:
            (content,) = self.get([wanted])
            if content is None:
                raise FileNotFoundError(wanted.path)
            self.keep([wanted], [content])
        return content

    def forget(self) -> None:
        """Drops all data in memory, and reads nothing from the folder on disk any more."""
        self._disk = None
        self._cache = LRUCache(CACHED_BYTES)
        self.logs = LRUCache(KNOWN_BYTES)
        self.idle = {}

    def whole(self, path: str) -> bytes | None:
        """The bytes of a file that was fetched as a whole, else None."""
        return self._cache.peek(ByteRange(path))

    def expect(self, paths: Iterable[str]) -> None:
        """Tells that these paths will be read, so that the next client of delta-rs serves them, too."""
        if self.objects is None:
            with self._lock:
                self._expected.update(paths)

    def _client_for(self, paths: set[str]) -> Any:
        """A client that reads these paths without asking for their sizes."""
        with self._lock:
            if not paths <= self._known:
                known = set() if len(self._known) > _KNOWN_PATHS else self._known
                known = known | paths | self._expected
                self._client = _client(self.uri, self.options, known)
                self._known, self._expected = known, set()
            return self._client


class FarFileSystem(DeltaStorageHandler):
    """The warehouse's folder as a file system of pyarrow: that of delta-rs, and files that were fetched.

    New files go up in a thread (write_behind.py), small ones with one request (object_client.py).
    """

    def __init__(self, files: FarFiles) -> None:
        self._files = files

    @cached_property
    def _handler(self) -> Any:  # type: ignore[override]  # what delta-rs makes at once, made when it is used
        return _client(self._files.uri, self._files.options, ())

    def open_input_file(self, path: str) -> Any:
        """Opens a file for reading at any position."""
        content = self._files.whole(path)
        return super().open_input_file(path) if content is None else pa.BufferReader(content)

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """The bytes of ranges of a file, the ends exclusive, in one round; nothing is kept."""
        contents = self._files.get([ByteRange(path, *one) for one in ranges])
        if None in contents:
            raise FileNotFoundError(path)
        return contents  # type: ignore[return-value]  # none is None

    def open_output_stream(self, path: str, metadata: dict[str, str] | None = None) -> Any:
        """Opens a new file, which is there once it is closed; its parts go up while more is written."""
        objects = self._files.objects
        file = (
            self._handler.open_output_stream(path, metadata)
            if objects is None
            else _NewObject(self._files, objects, path)
        )
        return pa.PythonFile(WriteBehind(file), mode="w")


class _NewObject:
    """A new file of an object store, as `WriteBehind` writes it: a small one is put with one request."""

    def __init__(self, files: FarFiles, objects: ObjectClient, path: str) -> None:
        self._files, self._objects, self._path = files, objects, path
        self._whole = b""
        self._parts: Upload | None = None

    def write(self, piece: bytes) -> None:
        if self._parts is None and len(piece) < write_behind.PIECE_BYTES:  # there are no others
            self._whole = piece
            return
        self._parts = self._parts or self._objects.open_writer(self._path)
        self._parts.write(piece)

    def close(self) -> None:
        """Puts the file if it is small, and keeps a very small one: its writer may read it next."""
        if self._parts is not None:
            self._parts.close()
            return
        self._objects.put(self._path, self._whole)
        if len(self._whole) <= KEPT_PUT_BYTES:
            self._files.keep([ByteRange(self._path)], [self._whole])


def _client(uri: str, options: dict[str, str] | None, paths: Iterable[str]) -> Any:
    # Below the handler, because a file of pyarrow allocates as many bytes as it is asked for.
    return DeltaStorageHandler(uri, options, dict.fromkeys(paths, _NO_FILE_SIZE))._handler  # noqa: SLF001


def _read(client: Any, wanted: ByteRange) -> bytes | None:
    try:
        file = client.open_input_file(wanted.path)
        file.seek(wanted.start)
        return bytes(file.read(None if wanted.stop is None else wanted.stop - wanted.start))
    except FileNotFoundError:
        return None


@per_process
def far_files(uri: str, options: tuple[tuple[str, str], ...]) -> FarFiles:
    """The files of a warehouse; all calls of a process share one object."""
    return FarFiles(uri, dict(options) or None)
