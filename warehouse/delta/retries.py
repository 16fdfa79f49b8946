"""Patience: how many tries there are and the pauses between them; and deletions, which are tried again.

The loops with these pauses, each with its own condition: commits.py and tables.py for what a store did not
confirm, `Race` of races.py for lost races, object_client.py for reads that were cut off, served_client.py for
requests to a server, `_delete` below; and verify.py, with a `Patience` of its own.

delta-rs sends a delete as a POST request, which it does not repeat after a connection was cut. An object
store lets one delete what is gone, so `_delete` repeats it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

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

    def store_pauses(self, tries: int | None = None) -> Iterator[float]:
        """The pauses between `tries` tries, by default `store_tries`, while a store does not answer."""
        return islice(self.pauses(), (tries or self.store_tries) - 1)


PATIENCE = Patience()  # of this process; verify.py has its own


def delete_file(filesystem: fs.FileSystem, path: str) -> None:
    """Deletes a file. Raises the error of the last try."""
    _delete(filesystem, path, is_folder=False)


def delete_folder(filesystem: fs.FileSystem, path: str) -> None:
    """Deletes a folder and all in it. Raises the error of the last try."""
    _delete(filesystem, path, is_folder=True)


def _delete(filesystem: fs.FileSystem, path: str, *, is_folder: bool) -> None:
    pauses = PATIENCE.store_pauses()
    while True:
        try:
            if is_folder:
                filesystem.delete_dir(path)
            else:
                filesystem.delete_file(path)
            return
        except OSError as error:
            pause = next(pauses, None)
            if pause is None or not is_store_failure(error):
                raise
            PATIENCE.pause(pause)
