"""The temporary files of a process, in one folder that is deleted once the process has ended, however it did.

A process that is killed removes nothing. So its folder has a lock that the system frees with the process, and
the next process that makes such a folder removes those whose lock is free. Where the system has no such locks
(Windows), the folders of killed processes stay.
"""

from __future__ import annotations

import atexit
import os
import sys
from contextlib import suppress
from pathlib import Path
from shutil import rmtree
from tempfile import gettempdir, mkdtemp

from tidemark.warehouse.per_process import per_process

if sys.platform != "win32":
    import fcntl

PREFIX, LOCK = "tidemark-process-", "lock"


def make_folder(prefix: str) -> str:
    """A new folder for temporary files, inside that of this process."""
    try:
        return mkdtemp(prefix=prefix, dir=process_folder())
    except FileNotFoundError:  # somebody cleaned up
        process_folder.cache_clear()
        return mkdtemp(prefix=prefix, dir=process_folder())


@per_process
def process_folder() -> Path:
    """The folder of this process for temporary files; it is made, and others are swept, at the first call."""
    while (folder := _locked(Path(mkdtemp(prefix=PREFIX)))) is None:
        pass
    atexit.register(_remove, folder, os.getpid())
    for other in Path(gettempdir()).glob(f"{PREFIX}*"):
        if other != folder:
            _sweep(other)
    return folder


def _locked(folder: Path) -> Path | None:
    """The folder with its lock; None if another process took it for an abandoned one meanwhile."""
    lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT)  # the lock lives as long as it is open
    if _takes(lock) and (folder / LOCK).exists():
        return folder
    os.close(lock)
    return None


def _takes(lock: int) -> bool:
    if sys.platform != "win32":
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
    return True


def _sweep(folder: Path) -> None:
    """Removes the folder of a process that has ended. A folder without a lock file is just being made."""
    if sys.platform == "win32":
        return
    with suppress(OSError):  # of another user, or gone
        lock = os.open(folder / LOCK, os.O_RDWR)
        if _takes(lock):
            rmtree(folder, ignore_errors=True)
        os.close(lock)


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:  # a forked child has the exit functions of its parent
        rmtree(folder, ignore_errors=True)
