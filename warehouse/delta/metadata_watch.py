"""Notices a change of a table's metadata on a local disk without opening the table again.

The columns and the options of a warehouse are metadata of `events`. Each batch adds files to this table, and
bringing it up to date for each batch would cost more than most questions. So only the new commits are read,
as text. Cost: one look for a file, and one read of each new commit.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from tidemark.warehouse.delta.log_files import commit_name
from tidemark.warehouse.delta.store import Store

LISTING_SECONDS = 60.0  # log cleanup can delete the commit that is looked for: look anew this often
_ACTION = b'"metaData"'  # a name in JSON has no escapes; elsewhere in a commit it costs one look too many


class MetadataWatch:
    """Follows the log of a table from a version on.

    `checked` is when it last looked, in time.monotonic(); `entry` the entry of the version then.
    """

    def __init__(self, store: Store, name: str) -> None:
        self._log = f"{store.table(name)}/_delta_log"
        self._moved, self.checked = float("-inf"), float("-inf")
        self._is_there = False  # the entry of the version
        self._take(-1)

    def start_from(self, version: int) -> None:
        """The table was opened at its newest version: this one."""
        self._take(version)
        self._moved = self.checked = time.monotonic()
        self._is_there = os.access(self.entry, os.F_OK)

    def may_have_changed(self) -> bool:
        """Whether a commit since the last look has new metadata.

        True also after LISTING_SECONDS, and if the entry of the version is gone: a purge has cut the log.
        """
        self.checked = time.monotonic()
        found = self.checked - self._moved > LISTING_SECONDS
        found = found or (self._is_there and not os.access(self.entry, os.F_OK))
        while (content := self._next_commit()) is not None:
            self._take(self._version + 1)
            self._is_there = True
            found = found or _ACTION in content
        return found

    def _take(self, version: int) -> None:
        """The paths are kept as texts, and asked for by `access`: pathlib and `exists` take longer."""
        self._version = version
        self.entry, self._next = (f"{self._log}/{commit_name(one)}" for one in (version, version + 1))

    def _next_commit(self) -> bytes | None:
        if not os.access(self._next, os.F_OK):
            return None
        with suppress(FileNotFoundError, IsADirectoryError):  # cleaned since then; a folder is no commit
            return Path(self._next).read_bytes()
        return None
