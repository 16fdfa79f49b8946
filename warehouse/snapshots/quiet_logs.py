"""Whether logs of tables on a disk got entries since the last look, by the times of their folders.

A look asks for two files of each table. A folder's time changes with each file that comes into it or leaves
it, so where no time has changed, one question for each folder is enough. The times count only

* if they are older than SETTLED: two files that come within the grain of a file system's clock give a folder
  one time;
* if the newest entry of the log came at the time of its folder, up to NEAR: not all file systems that are
  mounted from elsewhere keep times of folders, and a time that stands still would hide new entries;
* for LISTING_SECONDS after a look, as in near_tables.py.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass

from tidemark.warehouse.delta.metadata_watch import LISTING_SECONDS

SETTLED_NS = 2_500_000_000
NEAR_NS = 2_000_000_000

Stamp = tuple[int, int]  # the number of a folder, and the time of its last change


@dataclass(frozen=True, slots=True)
class QuietLogs:
    """The folders of logs as they were at a look that found nothing new."""

    folders: tuple[str, ...]
    stamps: tuple[Stamp, ...]
    until: float

    def are_unchanged(self) -> bool:
        """Whether no entry came since that look."""
        try:
            return time.monotonic() < self.until and self.stamps == tuple(map(_stamp, self.folders))
        except OSError:
            return False


NO_LOGS = QuietLogs((), (), math.inf)


def united_logs(parts: Sequence[QuietLogs]) -> QuietLogs:
    """The logs of several warehouses."""
    folders = tuple(folder for part in parts for folder in part.folders)
    stamps = tuple(stamp for part in parts for stamp in part.stamps)
    return QuietLogs(folders, stamps, min(part.until for part in parts))


def quiet_logs(entries: Sequence[str]) -> QuietLogs | None:
    """The folders of these newest entries of logs; None while their times do not count.

    Where this gives the same before a look and after it, the look saw the logs as they are given.
    """
    folders = tuple(entry.rpartition("/")[0] for entry in entries)
    try:
        stamps = tuple(map(_stamp, folders))
        newest = [os.stat(entry).st_mtime_ns for entry in entries]  # noqa: PTH116  quicker than Path
    except OSError:
        return None
    settled = time.time_ns() - SETTLED_NS
    if not all(
        at < settled and 0 <= at - own <= NEAR_NS for (_, at), own in zip(stamps, newest, strict=True)
    ):
        return None
    return QuietLogs(folders, stamps, time.monotonic() + LISTING_SECONDS)


def _stamp(folder: str) -> Stamp:
    found = os.stat(folder)  # noqa: PTH116  quicker than Path
    return found.st_ino, found.st_mtime_ns
