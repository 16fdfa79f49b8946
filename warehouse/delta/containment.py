"""Nothing of a warehouse leaves its folder: neither by a path in a table's log nor by a symbolic link.

A log names its table's files by text. All that tidemark and Spark write there is plain: letters, digits and
a few marks, part by part below the table. Anything else (`../`, an absolute path, another store's address,
an escape such as `%2e`) could lead elsewhere, and is refused where a snapshot's files are told. A link on the
way from the warehouse's folder to a file is refused where the file is opened, written or deleted. The folder
itself may be reached through links: it was chosen by who asks.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs

from tidemark.warehouse.errors import DamagedWarehouse

# Names that start with '_' or '.' are Delta's own, or nobody's.
_PART = "[0-9A-Za-z][0-9A-Za-z_=.~-]*"
_PLAIN = rf"^{_PART}(/{_PART})*$"


def check_paths(table: str, paths: pa.ChunkedArray) -> None:
    """DamagedWarehouse where a path of the table's log is not plainly one below the table."""
    plain = pc.match_substring_regex(paths, _PLAIN)
    if pc.all(plain, min_count=0).as_py():
        return
    first = paths.filter(pc.invert(plain))[0].as_py()
    raise DamagedWarehouse(
        f"the log of the table {table} names the file {first!r}, which is no plain path below it. Nothing "
        "outside a warehouse's folder is read or deleted: restore the table from a copy."
    )


def check_links(root: str, path: str) -> None:
    """DamagedWarehouse where a part of the path, which is below the root, is a symbolic link."""
    at = root
    for part in path.split("/"):
        at = f"{at}/{part}"
        if os.path.islink(at):  # noqa: PTH114  pathlib's takes several times as long
            raise _linked(at)


def check_log(root: str, table: str) -> None:
    """DamagedWarehouse where a table's folder, its log, or a file of its log is a symbolic link."""
    log = f"{table}/_delta_log"
    check_links(root, log)
    try:
        with os.scandir(f"{root}/{log}") as entries:
            linked = next((entry.path for entry in entries if entry.is_symlink()), None)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return  # whoever opens the table tells so
    if linked:
        raise _linked(linked)


def _linked(at: str) -> DamagedWarehouse:
    return DamagedWarehouse(
        f"{at} is a symbolic link. Nothing outside a warehouse's folder is read or deleted, so links in its "
        "tables are not followed: put the files that it leads to in its place."
    )


class ContainedFileSystem(fs.SubTreeFileSystem):  # type: ignore[misc]  # pyarrow has no types
    """The local file system below a warehouse's folder; it follows no symbolic link there."""

    def __init__(self, root: str) -> None:
        super().__init__(root, fs.LocalFileSystem())
        self._root = root

    def __reduce__(self) -> tuple[Any, ...]:
        return ContainedFileSystem, (self._root,)

    def open_input_file(self, path: str) -> pa.NativeFile:
        """As the file system's own, of a path without links."""
        check_links(self._root, path)
        return super().open_input_file(path)

    def open_input_stream(self, path: str, *args: Any, **named: Any) -> pa.NativeFile:
        """As the file system's own, of a path without links."""
        check_links(self._root, path)
        return super().open_input_stream(path, *args, **named)

    def open_append_stream(self, path: str, *args: Any, **named: Any) -> pa.NativeFile:
        """As the file system's own, of a path without links."""
        check_links(self._root, path)
        return super().open_append_stream(path, *args, **named)

    def open_output_stream(self, path: str, *args: Any, **named: Any) -> pa.NativeFile:
        """As the file system's own, of a path without links."""
        check_links(self._root, path)
        return super().open_output_stream(path, *args, **named)

    def create_dir(self, path: str, *, recursive: bool = True) -> None:
        """As the file system's own, of a path without links."""
        check_links(self._root, path)
        super().create_dir(path, recursive=recursive)

    def delete_dir(self, path: str) -> None:
        """As the file system's own, of a path without links."""
        check_links(self._root, path)
        super().delete_dir(path)

    def delete_file(self, path: str) -> None:
        """As the file system's own, of a path without links."""
        check_links(self._root, path)
        super().delete_file(path)

    def get_file_info(self, paths_or_selector: Any) -> Any:
        """Of a path or a selector; a link below a selector's folder is of an unknown type and not entered."""
        if isinstance(paths_or_selector, str):
            check_links(self._root, paths_or_selector)
            return super().get_file_info(paths_or_selector)
        chosen = paths_or_selector
        check_links(self._root, chosen.base_dir)
        if chosen.allow_not_found and not Path(self._root, chosen.base_dir).is_dir():
            return []
        return list(_below(self._root, chosen.base_dir, recursive=chosen.recursive))


def _below(root: str, folder: str, *, recursive: bool) -> Iterator[fs.FileInfo]:
    with os.scandir(f"{root}/{folder}") as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            path = f"{folder}/{entry.name}"
            if entry.is_symlink():
                yield fs.FileInfo(path, fs.FileType.Unknown)
            elif entry.is_dir():
                yield fs.FileInfo(path, fs.FileType.Directory)
                if recursive:
                    yield from _below(root, path, recursive=True)
            elif entry.is_file():
                try:
                    found = entry.stat()
                except FileNotFoundError:
                    continue  # somebody else's temporary file
                yield fs.FileInfo(path, fs.FileType.File, mtime_ns=found.st_mtime_ns, size=found.st_size)
