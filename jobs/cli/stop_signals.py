"""Stop signals: a job finishes the work in progress, then the process ends with `DONE`."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def stop_on_signals(stopping: threading.Event) -> Iterator[None]:
    """Makes SIGTERM and SIGINT set the event instead of ending the process."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread receives signals
        return
    numbers = (signal.SIGTERM, signal.SIGINT)
    previous = [signal.signal(number, lambda *_: stopping.set()) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, previous, strict=True):
            signal.signal(number, handler)
