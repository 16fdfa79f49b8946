"""A writer looks at the files that it wrote, before and after the commit that names them.

Maintenance deletes files that no table names once they are older than the grace. With a grace of 0, or by a
clock that is ahead, these are files of a load that is running. What is gone before the commit is written
again, and what is gone after it is replaced. So no commit names a file that was deleted before it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

from pyarrow import fs

from tidemark.warehouse.delta.remote_files import ByteRange
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.errors import Contended

_LOG = logging.getLogger("tidemark.commits")
TRIES = 5

T = TypeVar("T")


def lost_files(store: Store, paths: Sequence[str]) -> list[str]:
    """Which of the files, relative to the warehouse, are not there. One round of requests."""
    if not store.is_local:
        first_bytes = store.files.get([ByteRange(path, 0, 1) for path in paths])
        return [path for path, first in zip(paths, first_bytes, strict=True) if first is None]
    filesystem = store.filesystem()
    return [path for path in paths if filesystem.get_file_info(path).type == fs.FileType.NotFound]


def until_kept(
    store: Store,
    written: T,
    paths_of: Callable[[T], Sequence[str]],
    write_again: Callable[[T], T],
    *,
    before_commit: bool = False,
) -> T:
    """What was written, once all its files are there.

    write_again    is called while files are gone, with what was written, and returns what it wrote instead

    before_commit  whether no commit names the files yet. In an object store they are then not looked at: the
                   look after the commit finds what is gone, and a round of requests is saved

    Contended if files are gone TRIES times in a row.
    """
    if before_commit and not store.is_local:
        return written
    for _ in range(TRIES):
        lost = lost_files(store, paths_of(written))
        if not lost:
            return written
        _LOG.warning("%s was deleted before its commit, and %d more; written again", lost[0], len(lost) - 1)
        written = write_again(written)
    raise Contended(
        f"files that were just written were deleted {TRIES} times in a row, such as {lost[0]}. Maintenance "
        "with a grace of 0, or on a machine whose clock is ahead, deletes the files of writers. Nothing that "
        "was committed is lost: end it, and run the same call again."
    )
