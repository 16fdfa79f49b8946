"""The files of a warehouse on a disk of this machine: each is read when it is used, and links are refused."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from pyarrow import fs

from tidemark.warehouse.delta import containment
from tidemark.warehouse.delta.files import Files
from tidemark.warehouse.delta.log_nesting import may_nest
from tidemark.warehouse.delta.object_client import ObjectClient
from tidemark.warehouse.delta.round_trips import ByteRange
from tidemark.warehouse.errors import InputError, NotAWarehouse


class NearFiles(Files):
    """The files of one warehouse; see `Files`."""

    takes_rounds = False

    def __init__(self, folder: str) -> None:
        self.folder = self._root = folder
        self.filesystem = containment.ContainedFileSystem(folder)

    def check_place(self, *, writing: bool = False) -> None:
        """NotAWarehouse if the path is a file; InputError without permission for its folder."""
        place = Path(self._root)
        while not os.path.lexists(place) and place != place.parent:
            place = place.parent
        if not place.is_dir():
            raise NotAWarehouse(f"{place} is a file. A warehouse is a folder: give another path.")
        if not os.access(place, os.R_OK | os.X_OK | (os.W_OK if writing else 0)):
            raise InputError(
                f"no permission to {'write into' if writing else 'read'} the folder {place}. "
                "Ask its owner for it, or choose another path."
            )

    def check_links(self, path: str) -> None:
        """DamagedWarehouse if a part of the path is a symbolic link."""
        containment.check_links(self._root, path)

    def check_log(self, table: str) -> None:
        """DamagedWarehouse if the folder of the table's log, or a file in it, is a symbolic link."""
        containment.check_log(self._root, table)

    def log_names(self, table: str) -> list[str]:
        """The names in the table's log; errors as `check_log`."""
        return containment.check_log(self._root, table)

    def log_entries(self, table: str, names: Sequence[str]) -> list[bytes]:
        """The contents of entries of a log that may nest too deeply; nothing of the others."""
        found: list[bytes] = []
        with suppress(OSError):
            for name in names:
                path = f"{self._root}/{table}/_delta_log/{name}"
                is_large = may_nest(os.stat(path).st_size)  # noqa: PTH116  quicker than Path
                found.append(Path(path).read_bytes() if is_large else b"")
        return found

    def log_stamps(self, table: str, names: Sequence[str]) -> dict[str, tuple[int, int, int]] | None:
        """The numbers, times of change and sizes of files of the log; None if one is not there."""
        stamps, log = {}, f"{self._root}/{table}/_delta_log"
        with suppress(OSError):
            for name in names:
                found = os.stat(f"{log}/{name}")  # noqa: PTH116  quicker than Path
                stamps[name] = found.st_ino, found.st_mtime_ns, found.st_size
            return stamps
        return None

    def get(self, ranges: Sequence[ByteRange]) -> list[bytes | None]:
        """The bytes of the ranges, None for files that do not exist."""
        return [self._read(wanted) for wanted in ranges]

    def _read(self, wanted: ByteRange) -> bytes | None:
        if self.filesystem.get_file_info(wanted.path).type != fs.FileType.File:
            return None
        with self.filesystem.open_input_file(wanted.path) as file:
            stop = file.size() if wanted.stop is None else min(wanted.stop, file.size())
            return bytes(file.read_at(max(stop - wanted.start, 0), wanted.start))

    def absent(self, paths: Sequence[str]) -> list[str]:
        """Which of the files are not there."""
        return [path for path in paths if self.filesystem.get_file_info(path).type == fs.FileType.NotFound]

    def stamp(self, path: str) -> tuple[int, int] | None:
        """A stamp that tells a folder from a new one at its path; FileNotFoundError without a folder."""
        found = Path(self._root, path).stat()
        return found.st_ino, found.st_mtime_ns

    def open_objects(self) -> ObjectClient | None:
        """The files as objects that are put only if there is none of their name; makes the folder."""
        folder = Path(self._root)
        folder.mkdir(parents=True, exist_ok=True)
        return ObjectClient(folder.as_uri(), {}, {})  # obstore takes a folder as it takes a store
