"""Deletes of files and folders, which are repeated while an object store does not answer.

delta-rs sends a delete as a POST request, which it does not repeat after a connection was cut. To delete what
is gone succeeds in an object store, so here it is repeated.
"""

from __future__ import annotations

from collections.abc import Callable

from pyarrow import fs

from tidemark.warehouse.delta import commits
from tidemark.warehouse.os_errors import is_store_failure


def delete_file(filesystem: fs.FileSystem, path: str) -> None:
    """Deletes a file. Raises the error of the last try."""
    _repeat(lambda: filesystem.delete_file(path))


def delete_folder(filesystem: fs.FileSystem, path: str) -> None:
    """Deletes a folder and all in it. Raises the error of the last try."""
    _repeat(lambda: filesystem.delete_dir(path))


def _repeat(delete: Callable[[], None]) -> None:
    for pause in commits.PATIENCE.store_pauses():
        try:
            delete()
        except OSError as error:
            if not is_store_failure(error):
                raise
            commits.PATIENCE.pause(pause)
        else:
            return
    delete()
