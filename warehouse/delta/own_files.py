"""A writer checks that its files are still there, before and after the commit that names them.

Maintenance deletes files that no table names once they are older than the grace. With a grace of 0, or if a
clock is ahead, these may be files of a running load. A file that is missing before the commit is written
again. A file that is missing after the commit is replaced by another commit.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.errors import Contended

_LOG = logging.getLogger("tidemark.commits")
TRIES = 5


class Looks:
    """The checks by which a writer finds that files of its own were deleted; it writes them and checks again.

    before_commit  whether no commit names the files yet. In an object store they are then not checked: the
                   check after the commit finds missing files, and a round of requests is saved
    """

    def __init__(self, store: Store, *, before_commit: bool = False) -> None:
        self._files, self._passes = store.files, before_commit and store.files.takes_rounds
        self._lost = 0

    def lost(self, paths: Sequence[str]) -> set[str]:
        """Which of the files, in the warehouse, are gone; Contended if some are for the TRIES-th time."""
        lost = [] if self._passes else self._files.absent(paths)
        if not lost:
            return set()
        self._lost += 1
        if self._lost == TRIES:
            raise Contended(
                f"files that were just written were deleted {TRIES} times in a row, such as {lost[0]}. "
                "Maintenance with a grace of 0, or on a machine whose clock is ahead, deletes the files of "
                "writers. Nothing that was committed is lost: end it, and run the same call again."
            )
        _LOG.warning("%s was deleted before its commit, and %d more; written again", lost[0], len(lost) - 1)
        return set(lost)
