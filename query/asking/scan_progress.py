"""Progress of long scans: a line where a person looks, or a callable of the caller."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SLOW_SECONDS = 2.0  # a scan that takes longer is shown


@contextmanager
def shown_progress(given: Callable[[float], None] | None) -> Iterator[Callable[[float], None] | None]:
    """Yields the callable to which a scan reports progress: `given`, or else one that shows a line.

    The line appears on a terminal or in a notebook, after SLOW_SECONDS, and is removed at the end. Without a
    person to read it there is no line.
    """
    if given is not None or not _is_watched():
        yield given
        return
    start, is_shown = time.monotonic(), False

    def show(share: float) -> None:
        nonlocal is_shown
        if time.monotonic() - start > SLOW_SECONDS:
            is_shown = True
            sys.stderr.write(f"\rscanning events: {share:4.0%}")
            sys.stderr.flush()

    try:
        yield show
    finally:
        if is_shown:
            sys.stderr.write("\r" + " " * 24 + "\r")
            sys.stderr.flush()


def _is_watched() -> bool:
    """Whether stderr is a terminal, or this process is the kernel of a notebook."""
    return "ipykernel" in sys.modules or (sys.stderr is not None and sys.stderr.isatty())
