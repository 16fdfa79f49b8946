"""Tries: how often something is tried, counted and with pauses between; and deletions, which are tried again.

What is tried again at a log, a store or a server goes through `Tries.again`, with a condition of its own:
commits.py and tables.py for what a store did not confirm, `Race` of races.py for lost races, object_client.py
for reads that were cut off, served_client.py for requests to a server, `_delete` below; and verify.py, with a
`Patience` of its own. What delta-rs tries again by itself is not seen here.

delta-rs sends a delete as a POST request, which it does not repeat after a connection was cut. An object
store lets one delete what is gone, so `_delete` repeats it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pyarrow import fs

from tidemark.warehouse.os_errors import is_store_failure


@dataclass(frozen=True, slots=True)
class Patience:
    """How often something is tried, and how long the pauses between the tries are.

    tries             the number of tries at most
    seconds           the sum of all pauses at most
    first             the first pause in seconds; each further one is twice as long, up to `longest`. Up to
                      half of a pause is left out at random
    store_tries       the number of tries at most while an object store does not answer
    log_read_pauses   the pauses in seconds between reads of a log that shows no new commit
    pause             sleeps for some seconds; a test replaces it
    jitter            returns a random number from 0 to 1
    """

    tries: int = 20
    seconds: float = 60.0
    first: float = 0.01
    longest: float = 5.0
    store_tries: int = 5
    log_read_pauses: tuple[float, ...] = (0.1, 0.4, 1.5)
    pause: Callable[[float], None] = time.sleep
    jitter: Callable[[], float] = random.random

    def pauses(self) -> Iterator[float]:
        """The pauses between the tries, one fewer than tries; their sum is at most `seconds`."""
        remaining = self.seconds
        for number in range(self.tries - 1):
            pause = min(self.longest, self.first * 2.0**number) * (1 - self.jitter() / 2)
            if pause > remaining:
                return
            remaining -= pause
            yield pause

    def begin(self, tries: int | None = None) -> Tries:
        """The tries of one operation: at most `tries`, or those of this patience if that is less or None."""
        return Tries(self, self.tries if tries is None else tries)

    def look(self) -> Iterator[bool]:
        """Looks, with pauses, at a log that a store may show late; yields whether a look is the last."""
        for pause in self.log_read_pauses:
            yield False
            self.pause(pause)
        yield True


class Tries:
    """The tries of one operation; `failed` is how many failed so far."""

    def __init__(self, patience: Patience, most: int) -> None:
        self._patience, self._pauses, self._most = patience, patience.pauses(), most
        self.failed = 0

    def again(self, wait: float | None = None) -> bool:
        """Counts a try that failed, and pauses; whether there is another one. If not, there is no pause.

        wait   the seconds of this pause, if something else than the patience decides them
        """
        self.failed += 1
        pause = next(self._pauses, None) if self.failed < self._most else None
        if pause is not None:
            self._patience.pause(pause if wait is None else wait)
        return pause is not None


PATIENCE = Patience()  # of this process; verify.py has its own


def delete_file(filesystem: fs.FileSystem, path: str) -> None:
    """Deletes a file. Raises the error of the last try."""
    _delete(filesystem.delete_file, path)


def delete_folder(filesystem: fs.FileSystem, path: str) -> None:
    """Deletes a folder and all in it. Raises the error of the last try."""
    _delete(filesystem.delete_dir, path)


def _delete(delete: Callable[[str], None], path: str) -> None:
    tries = PATIENCE.begin(PATIENCE.store_tries)
    while True:
        try:
            delete(path)
            return
        except OSError as error:
            if not is_store_failure(error) or not tries.again():
                raise
