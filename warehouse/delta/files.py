"""The files of a warehouse: near, on a disk of this machine, or far, in an object store or behind a server.

Other modules do not ask for the kind, but at most for what follows from it (`takes_rounds`). Methods that
only one kind needs do nothing in the others.
"""

# ruff: noqa: ARG002  the arguments of methods that do nothing

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from pyarrow import fs

from tidemark.warehouse.delta.disk_cache import DiskCache
from tidemark.warehouse.delta.object_client import ObjectClient
from tidemark.warehouse.delta.round_trips import ByteRange


class Files(Protocol):
    """The files of one warehouse. Paths are relative to it. Safe to share between threads.

    filesystem    a file system whose root is the warehouse's folder; it refuses symbolic links below it
    folder        the folder on this machine; None in an object store
    takes_rounds  whether a look waits for a request to a store, so that looks are avoided
    reads_copied_logs
                  whether delta-rs has no way to the files, and opens tables from copies of their logs
    """

    filesystem: fs.FileSystem
    folder: str | None
    takes_rounds: bool
    reads_copied_logs: bool = False

    def check_place(self, *, writing: bool = False) -> None:
        """NotAWarehouse if a local path is a file; InputError without permission for its folder.

        InputError for writing where a server gives the files.
        """
        return

    def check_links(self, path: str) -> None:
        """DamagedWarehouse if a part of the path is a symbolic link."""
        return

    def check_log(self, table: str) -> None:
        """DamagedWarehouse if the folder of the table's log, or a file in it, is a symbolic link."""
        return

    def log_names(self, table: str) -> list[str]:
        """The names in the table's log, as far as they can be read; errors as `check_log`."""

    def log_entries(self, table: str, names: Sequence[str]) -> Sequence[bytes | None]:
        """The contents of entries of the log, at least of those that may nest too deeply (log_nesting.py)."""

    def log_stamps(self, table: str, names: Sequence[str]) -> dict[str, tuple[int, int, int]] | None:
        """The stamps of files of the log, to tell whether they are the same: inode, time of change, size.

        None in an object store, and if one of the files is not there.
        """
        return None

    def copied_log(self, table: str, version: int | None) -> str | None:
        """A new folder with the log that opens a version of a table, for None the newest.

        None where delta-rs reads the log itself.
        """
        return None

    def get(self, ranges: Sequence[ByteRange]) -> list[bytes | None]:
        """The bytes of the ranges, None for files that do not exist; nothing is kept."""

    def absent(self, paths: Sequence[str]) -> list[str]:
        """Which of the files are not there; one round of requests."""

    def stamp(self, path: str) -> tuple[int, int] | None:
        """A stamp that tells a folder from a new one at its path; None where that takes a request.

        FileNotFoundError without a folder.
        """
        return None

    def open_objects(self) -> ObjectClient | None:
        """The files as objects, each put only if there is none of its name; None if the store cannot."""

    def fetch(self, ranges: Iterable[ByteRange]) -> int:
        """Reads ranges of a store ahead, in one round; how many were not in memory."""
        return 0

    def keep_on_disk(self, cache: DiskCache) -> None:
        """From now on keeps what is fetched from a store in a folder, too."""
        return

    def forget(self) -> None:
        """Drops what is kept of a store."""
        return
