"""Containment: nothing is read, written or deleted outside a warehouse's folder.

Two ways lead out of the folder: a path in a table's log, and a symbolic link.

* The log has the paths of the table's files as text. tidemark and Spark write plain relative paths: letters,
  digits and a few punctuation marks. Any other path (`../`, an absolute path, the address of another store,
  an escape such as `%2e`) is refused when the files of a snapshot are listed.
* A symbolic link between the warehouse's folder and a file is refused when the file is opened, written or
  deleted. The path to the warehouse's folder itself may have links: the caller chose it.
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

# Names that start with '_' or '.' belong to Delta, or are ignored.
_PATH_PART = "[0-9A-Za-z][0-9A-Za-z_=.~-]*"
_PLAIN_PATH = rf"^{_PATH_PART}(/{_PATH_PART})*$"


def check_paths(table: str, paths: pa.ChunkedArray) -> None:
    """DamagedWarehouse if a path of the table's log is not a plain path relative to the table."""
    plain = pc.match_substring_regex(paths, _PLAIN_PATH)
    if pc.all(plain, min_count=0).as_py():
        return
    first = paths.filter(pc.invert(plain))[0].as_py()
    raise DamagedWarehouse(
        f"the log of the table {table} names the file {first!r}, which is not a plain path below it. Nothing "
        "outside a warehouse's folder is read or deleted: restore the table from a copy."
    )


def check_links(root: str, path: str) -> None:
    """DamagedWarehouse if a part of the path, relative to the root, is a symbolic link."""
    at = root
    for part in path.split("/"):
        at = f"{at}/{part}"
        if os.path.islink(at):  # noqa: PTH114  pathlib's takes several times as long
            raise _linked(at)


def check_log(root: str, table: str) -> list[str]:
    """The names in a table's log; DamagedWarehouse if its folder, its log or a file there is a link."""
    log = f"{table}/_delta_log"
    check_links(root, log)
    try:
        with os.scandir(f"{root}/{log}") as listed:
            entries = list(listed)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return []  # opening the table raises the error
    if linked := next((entry.path for entry in entries if entry.is_symlink()), None):
        raise _linked(linked)
    return [entry.name for entry in entries]


def _linked(at: str) -> DamagedWarehouse:
    return DamagedWarehouse(
        f"{at} is a symbolic link. Nothing outside a warehouse's folder is read or deleted, so links in its "
        "tables are not followed: put the files that it leads to in its place."
    )


def _checked(method: Any) -> Any:
    """The method of a file system, which takes a path; DamagedWarehouse if the path has a symbolic link."""

    def checked(self: ContainedFileSystem, path: str, *args: Any, **named: Any) -> Any:
        check_links(self._root, path)
        return method(self, path, *args, **named)

    return checked


class ContainedFileSystem(fs.SubTreeFileSystem):  # type: ignore[misc]  # pyarrow has no types
    """The local file system with a warehouse's folder as its root; it refuses symbolic links below it."""

    def __init__(self, root: str) -> None:
        super().__init__(root, fs.LocalFileSystem())
        self._root = root

    def __reduce__(self) -> tuple[Any, ...]:
        return ContainedFileSystem, (self._root,)

    open_input_file = _checked(fs.SubTreeFileSystem.open_input_file)
    open_input_stream = _checked(fs.SubTreeFileSystem.open_input_stream)
    open_append_stream = _checked(fs.SubTreeFileSystem.open_append_stream)
    open_output_stream = _checked(fs.SubTreeFileSystem.open_output_stream)
    create_dir = _checked(fs.SubTreeFileSystem.create_dir)
    delete_dir = _checked(fs.SubTreeFileSystem.delete_dir)
    delete_file = _checked(fs.SubTreeFileSystem.delete_file)

    def get_file_info(self, paths_or_selector: Any) -> Any:
        """As SubTreeFileSystem; symbolic links that a selector finds are of type Unknown and not followed."""
        if isinstance(paths_or_selector, str):
            check_links(self._root, paths_or_selector)
            return super().get_file_info(paths_or_selector)
        selector = paths_or_selector
        check_links(self._root, selector.base_dir)
        if selector.allow_not_found and not Path(self._root, selector.base_dir).is_dir():
            return []
        return list(_list_folder(self._root, selector.base_dir, recursive=selector.recursive))


def _list_folder(root: str, folder: str, *, recursive: bool) -> Iterator[fs.FileInfo]:
    with os.scandir(f"{root}/{folder}") as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            path = f"{folder}/{entry.name}"
            if entry.is_symlink():
                yield fs.FileInfo(path, fs.FileType.Unknown)
            elif entry.is_dir():
                yield fs.FileInfo(path, fs.FileType.Directory)
                if recursive:
                    yield from _list_folder(root, path, recursive=True)
            elif entry.is_file():
                try:
                    status = entry.stat()
                except FileNotFoundError:
                    continue  # a temporary file of another process
                yield fs.FileInfo(path, fs.FileType.File, mtime_ns=status.st_mtime_ns, size=status.st_size)
