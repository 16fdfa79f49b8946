"""Whether anything happened in folders on this machine's disks, as the kernel tells (inotify of Linux).

To ask a folder for its time takes a microsecond and a half, and a question over many tables asks many. The
kernel tells of all watched folders at once, in half a microsecond, by one number that rises:

    heard() as it was    nothing came into a watched folder since, or left it

The kernel tells of a change before the call that made it returns. All folders above a watched one are watched
too, so it is noticed if one of them is moved. Folders are not watched where a change may come without a word:
on file systems that other machines can write, behind symbolic links, where a folder may not be read, and on
other systems than Linux. They are asked one by one then.
"""

from __future__ import annotations

import ctypes
import os
import select
import struct
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tidemark.warehouse.per_process import per_process

LOCAL = {"ext2", "ext3", "ext4", "f2fs", "tmpfs", "xfs"}  # written through this machine's kernel alone
MOST = 2**11  # watched folders of a process: some systems allow a user 2**13
_ATTRIB, _MOVED_FROM, _MOVED_TO, _CREATE, _DELETE = 0x4, 0x40, 0x80, 0x100, 0x200
_DELETE_SELF, _MOVE_SELF, _OVERFLOW, _IGNORED = 0x400, 0x800, 0x4000, 0x8000
_ONLY_FOLDERS, _NO_LINKS, _ADD = 0x0100_0000, 0x0200_0000, 0x2000_0000
_ABOVE = _DELETE_SELF | _MOVE_SELF
_INSIDE = _ABOVE | _ATTRIB | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE
_HOW = _ONLY_FOLDERS | _NO_LINKS | _ADD
_EVENT = struct.Struct("iIII")  # which watch, what, a cookie, and the length of the name behind it
_BYTES = 2**16


class FolderNews:
    """What the kernel told this process. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock, self._watches = threading.Lock(), set[int]()
        self._heard = self._deaf_until = time.monotonic_ns()  # above all that a parent process was told
        self._libc: Any = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
        self._file = -1 if self._libc is None else self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        self._ready = select.poll() if self._file >= 0 else None
        if self._ready is not None:
            self._ready.register(self._file, select.POLLIN)

    def watched(self, folders: Sequence[str]) -> int:
        """Watches folders, and returns what `heard` said before; -1 if they cannot be watched.

        OSError for a folder that is not there.
        """
        before, inside = self.heard(), list(folders)
        if self._file < 0 or not all(map(os.path.isabs, inside)):
            return -1
        disks = _local_disks()
        if not all(os.stat(one).st_dev in disks for one in inside):  # noqa: PTH116  quicker than Path
            return -1
        with self._lock:
            return before if all(self._watch(*one) for one in _with_those_above(inside).items()) else -1

    def _watch(self, folder: str, what: int) -> bool:
        watch = self._libc.inotify_add_watch(self._file, os.fsencode(folder), what | _HOW)
        if watch >= 0:
            self._watches.add(watch)
        return watch >= 0 and len(self._watches) <= MOST

    def heard(self) -> int:
        """The number of what was told so far."""
        if self._ready is not None and self._ready.poll(0):
            with self._lock:
                if self._ready.poll(0):  # no other thread has taken it
                    self._heard += 1  # before it is taken: another thread sees one of both
                    self._take(os.read(self._file, _BYTES))
        return self._heard

    def proves(self, watched: int) -> bool:
        """Whether all folders that were watched at a number are watched still."""
        with self._lock:
            return watched >= self._deaf_until

    def _take(self, told: bytes) -> None:
        at = 0
        while at < len(told):
            watch, what, _, name = _EVENT.unpack_from(told, at)
            at += _EVENT.size + name
            if what & (_IGNORED | _OVERFLOW):  # deleted, unmounted, or too much at once
                self._watches.discard(watch)
                self._deaf_until = self._heard


@per_process
def folder_news() -> FolderNews:
    """That of this process."""
    return FolderNews()


def _with_those_above(folders: Sequence[str]) -> dict[str, int]:
    """What to be told of the folders, and of those above them."""
    found: dict[str, int] = {}
    for one in folders:
        above = os.path.dirname(one)  # noqa: PTH120  quicker than Path
        while above not in found:
            found[above], above = _ABOVE, os.path.dirname(above)  # noqa: PTH120
    return found | dict.fromkeys(folders, _INSIDE)


def _local_disks() -> set[int]:
    """The numbers of the devices that only this machine's kernel writes to."""
    found = set()
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines():
        before, _, after = line.partition(" - ")
        if after.split(" ")[0] in LOCAL:
            major, _, minor = before.split(" ")[2].partition(":")
            found.add(os.makedev(int(major), int(minor)))
    return found
