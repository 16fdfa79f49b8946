"""Files of a warehouse, read from `tidemark serve`, a round in few requests; nothing can be written.

delta-rs has no way to a server. So the logs of tables are copied, as far as a version needs them, and opened
from the copies (log_replica.py, table_open.py). All else is as in an object store (far_files.py): what was
read is kept in memory, ranges are read in rounds, digests are compared.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

from pyarrow import fs

from tidemark.warehouse.delta.far_files import FarFiles, FarFileSystem
from tidemark.warehouse.delta.log_nesting import entries_read
from tidemark.warehouse.delta.object_client import ObjectClient
from tidemark.warehouse.delta.round_trips import ByteRange, at_once
from tidemark.warehouse.delta.served_client import ServedClient
from tidemark.warehouse.delta.served_ranges import (
    ANSWER_BYTES,
    MOST_RANGES,
    NAMES_BYTES,
    Answered,
    Part,
    decode,
    most_bytes,
)
from tidemark.warehouse.errors import InputError
from tidemark.warehouse.per_process import per_process
from tidemark.warehouse.temporary_folders import make_folder

AT_ONCE = 4  # requests at a time, if a round needs several
MOST_FILE_BYTES = 2**30  # of a file that is read as a whole


class ServedFiles(FarFiles):
    """The files of one warehouse of a server; see `Files`."""

    reads_copied_logs = True

    def __init__(self, uri: str, options: dict[str, str] | None) -> None:
        super().__init__(uri, options)
        self._server = ServedClient.at(uri, options or {})
        self.filesystem = fs.PyFileSystem(_ServedFileSystem(self))

    @property
    def objects(self) -> ObjectClient | None:
        """None: nothing is put."""
        return None

    def check_place(self, *, writing: bool = False) -> None:
        """InputError for writing."""
        if writing:
            self.refuse()

    def open_objects(self) -> ObjectClient | None:
        """InputError: nothing is put."""
        self.refuse()

    def refuse(self) -> NoReturn:
        """Raises the error of all calls that write."""
        raise InputError(
            f"{self.uri} is read through a server, which changes nothing. Write where the warehouse is: "
            "give its folder or the address of its object store."
        )

    def get(self, ranges: Sequence[ByteRange]) -> list[bytes | None]:
        """The bytes of the ranges, None for files that do not exist, in as few requests as they fit into."""
        if not ranges:
            return []
        requests = planned(ranges)
        lanes = at_once(
            lambda lane: [self._read_all(one) for one in lane],
            [requests[first::AT_ONCE] for first in range(min(AT_ONCE, len(requests)))],
        )
        answers = (lanes[number % AT_ONCE][number // AT_ONCE] for number in range(len(requests)))
        found = (content for answer in answers for content in answer)
        return [_joined(found, _pieces(one)) for one in ranges]

    def _read_all(self, ranges: Sequence[ByteRange]) -> list[bytes | None]:
        """The bytes of one request's ranges; what is cut off takes further requests."""
        parts: list[list[bytes]] = [[] for _ in ranges]
        absent: set[int] = set()
        open_ones = dict(enumerate(ranges))
        while open_ones:
            for (place, asked), (kind, content) in zip(
                list(open_ones.items()), self._request(list(open_ones.values())), strict=True
            ):
                parts[place].append(content)
                if kind is Part.CUT:
                    start = asked.start + len(content)
                    open_ones[place] = ByteRange(asked.path, start, asked.stop)
                    if start > ranges[place].start + MOST_FILE_BYTES:
                        raise self._server.bad(f"{asked.path!r} has more than {MOST_FILE_BYTES:,} bytes")
                    continue
                del open_ones[place]
                if kind is Part.ABSENT:
                    absent.add(place)
        return [None if place in absent else b"".join(own) for place, own in enumerate(parts)]

    def _request(self, ranges: Sequence[ByteRange]) -> list[Answered]:
        body = {"ranges": [[one.path, one.start, one.stop] for one in ranges]}
        try:
            return decode(self._server.post("files/ranges", body, most_bytes(len(ranges))), ranges)
        except ValueError as error:
            if isinstance(error, InputError):
                raise
            raise self._server.bad(str(error)) from None

    def names(self, folder: str) -> list[fs.FileInfo]:
        """All files below a folder; none if there is no such folder."""
        answer = self._server.post("files/names", {"folder": folder}, NAMES_BYTES)
        try:
            return [
                fs.FileInfo(
                    str(path), fs.FileType.File, size=int(size), mtime_ns=None if at is None else int(at)
                )
                for path, size, at in json.loads(answer)["files"]
            ]
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
            raise self._server.bad("it is no list of files") from None

    def log_names(self, table: str) -> list[str]:
        """The names in the table's log."""
        return [Path(one.path).name for one in self.names(f"{table}/_delta_log")]

    def copied_log(self, table: str, version: int | None) -> str:
        """A new folder with the part of a table's log that opens a version, None for the newest."""
        names = entries_read(self.log_names(table), version)
        contents = self.log_entries(table, names)
        folder = Path(make_folder("log-"))
        (folder / "_delta_log").mkdir()
        for name, content in zip(names, contents, strict=True):
            if content is not None:
                (folder / "_delta_log" / name).write_bytes(content)
        return str(folder)


class _ServedFileSystem(FarFileSystem):
    """The warehouse's folder as a file system of pyarrow that only reads."""

    _files: ServedFiles

    @cached_property
    def _handler(self) -> Any:  # type: ignore[override]  # with the methods of delta-rs' handler
        return _Handler(self._files)

    def open_output_stream(self, path: str, metadata: dict[str, str] | None = None) -> Any:  # noqa: ARG002
        self._files.refuse()


class _Handler:
    """What delta-rs' handler of a store does, over a server."""

    def __init__(self, files: ServedFiles) -> None:
        self._files = files

    def get_type_name(self) -> str:
        return "tidemark"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: Sequence[str]) -> list[fs.FileInfo]:
        """Facts about paths; one with files below it is a folder."""
        return [self._info(path) for path in paths]

    def _info(self, path: str) -> fs.FileInfo:
        found = self._files.names(path)
        if len(found) == 1 and found[0].path == path:
            return found[0]
        return fs.FileInfo(path, fs.FileType.Directory if found else fs.FileType.NotFound)

    def get_file_info_selector(
        self, base_dir: str, allow_not_found: bool = False, recursive: bool = False
    ) -> list[fs.FileInfo]:
        """The files below a folder; FileNotFoundError for none, unless that is allowed."""
        found = self._files.names(base_dir)
        if not found and not allow_not_found:
            raise FileNotFoundError(base_dir)
        prefix = f"{base_dir}/" if base_dir else ""
        inside = [one for one in found if one.path.startswith(prefix)]
        folders = {
            f"{prefix}{'/'.join(parts[: depth + 1])}"
            for one in inside
            for parts in [one.path[len(prefix) :].split("/")]
            for depth in range(len(parts) - 1)
        }
        infos = [*(fs.FileInfo(path, fs.FileType.Directory) for path in sorted(folders)), *inside]
        return [one for one in infos if recursive or "/" not in one.path[len(prefix) :]]

    def open_input_file(self, path: str) -> io.BufferedReader:
        """A file, read in pieces of a megabyte or more; FileNotFoundError if there is none."""
        found = self._info(path)
        if found.type != fs.FileType.File:
            raise FileNotFoundError(path)
        return io.BufferedReader(_Opened(self._files, path, found.size), 2**20)

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("create_", "delete_", "move", "copy_", "open_")):
            return lambda *_, **__: self._files.refuse()
        raise AttributeError(name)


class _Opened(io.RawIOBase):
    def __init__(self, files: ServedFiles, path: str, size: int) -> None:
        self._files, self._path, self._size, self._place = files, path, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._place = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._size}[whence]
        return self._place

    def tell(self) -> int:
        return self._place

    def readinto(self, buffer: Any) -> int:
        stop = min(self._place + min(len(buffer), ANSWER_BYTES), self._size)
        if self._place >= stop:
            return 0
        (content,) = self._files.get([ByteRange(self._path, self._place, stop)])
        if content is None:
            raise FileNotFoundError(self._path)
        buffer[: len(content)] = content
        self._place += len(content)
        return len(content)


def planned(ranges: Sequence[ByteRange]) -> list[list[ByteRange]]:
    """The ranges, in their order, as requests that each fit into an answer.

    A range without an end counts nothing: an answer that is longer is cut, and goes on with another request.
    """
    requests: list[list[ByteRange]] = [[]]
    size = 0
    for one in (piece for whole in ranges for piece in _pieces(whole)):
        if size + one.size > ANSWER_BYTES or len(requests[-1]) == MOST_RANGES:
            requests.append([])
            size = 0
        requests[-1].append(one)
        size += one.size
    return requests


def _pieces(whole: ByteRange) -> list[ByteRange]:
    """The range in pieces that fit into an answer."""
    if whole.stop is None or whole.size <= ANSWER_BYTES:
        return [whole]
    starts = range(whole.start, whole.stop, ANSWER_BYTES)
    return [ByteRange(whole.path, start, min(start + ANSWER_BYTES, whole.stop)) for start in starts]


def _joined(found: Iterator[bytes | None], pieces: Sequence[ByteRange]) -> bytes | None:
    contents = [next(found) for _ in pieces]
    there = [content for content in contents if content is not None]
    return b"".join(there) if len(there) == len(contents) else None


@per_process
def served_files(uri: str, options: tuple[tuple[str, str], ...]) -> ServedFiles:
    """The files of a warehouse of a server; all calls of a process share one object."""
    return ServedFiles(uri, dict(options))
