"""The `Places` of `find_inputs` for inputs that are read without Spark: object stores and this machine.

The files of a store are copied into a temporary folder before they are read: a load reads its rows several
times. Such inputs are small, or the caller chose this process for them.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from tempfile import mkdtemp
from weakref import finalize

from pyarrow import fs

from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.execution.input_files import LocalPlaces, is_local, local_path
from tidemark.warehouse.os_errors import report_os_errors

_ADDRESS = re.compile(r"([^:]+://[^/]+)/*(.*)")


class StorePlaces(LocalPlaces):
    """Implements `Places`. InputError for the address of a store that delta-rs does not know."""

    def __init__(self, storage_options: dict[str, str] | None = None) -> None:
        self._options = storage_options
        self._copies: Path | None = None

    def is_folder(self, path: str) -> bool | None:
        """See `Places.is_folder`."""
        if is_local(path):
            return super().is_folder(path)
        kind = self._info(path).type
        return None if kind == fs.FileType.NotFound else kind == fs.FileType.Directory

    def entries(self, folder: str) -> list[tuple[str, bool]]:
        """See `Places.entries`."""
        if is_local(folder):
            return super().entries(folder)
        files, path = self._at(folder)
        with report_os_errors(f"listing {folder}"):
            found = files.get_file_info(fs.FileSelector(path, recursive=False))
        return [(info.base_name, info.type == fs.FileType.Directory) for info in found]

    def real(self, path: str) -> str:
        """See `Places.real`."""
        return super().real(path) if is_local(path) else path

    def size(self, path: str) -> int:
        """The size of a file in bytes."""
        return local_path(path).stat().st_size if is_local(path) else int(self._info(path).size)

    def on_this_machine(self, paths: Sequence[str]) -> list[Path]:
        """The files as they are here, or copies of them that live as long as this object."""
        return [local_path(path) if is_local(path) else self._copy(path) for path in paths]

    def _copy(self, path: str) -> Path:
        if self._copies is None:
            self._copies = Path(mkdtemp(prefix="tidemark-input-"))
            finalize(self, shutil.rmtree, self._copies, ignore_errors=True)
        files, inside = self._at(path)
        copy = self._copies / path.replace("://", "/")
        copy.parent.mkdir(parents=True, exist_ok=True)
        with (
            report_os_errors(f"reading {path}"),
            files.open_input_file(inside) as source,
            copy.open("wb") as here,
        ):
            shutil.copyfileobj(source, here, 2**23)
        return copy

    def _info(self, path: str) -> fs.FileInfo:
        files, inside = self._at(path)
        with report_os_errors(f"reading {path}"):
            return files.get_file_info([inside])[0]

    def _at(self, path: str) -> tuple[fs.FileSystem, str]:
        """The file system of the store, and the path in it."""
        address = _ADDRESS.fullmatch(path)
        root, inside = (address[1], address[2]) if address else (path, "")
        return Store.from_uri(root, self._options).filesystem(), inside.rstrip("/")
