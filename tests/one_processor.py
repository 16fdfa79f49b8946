"""A worker that shares the processors with as many others keeps to one of them.

A call of delta-rs, Arrow or DuckDB hands its work from thread to thread, three hundred times for an append.
To wake a thread on another processor takes longer than most of that work, above all in a virtual machine:
where all threads of a worker run on one processor, tests of warehouses take a fifth less processor time. The
processes that a test starts may use every processor: they race each other, or have work for many threads.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import pytest


@contextmanager
def kept() -> Iterator[None]:
    """Inside, this worker of pytest-xdist has one processor, if there are as many workers as processors."""
    number, workers = (os.environ.get(f"PYTEST_XDIST_WORKER{what}", "") for what in ("", "_COUNT"))
    every = os.sched_getaffinity(0) if number and hasattr(os, "sched_getaffinity") else set[int]()
    if not 1 < len(every) <= int(workers or 0):
        yield
        return
    import pyarrow as pa  # noqa: PLC0415  pure tests do without

    pa.cpu_count()  # as many threads has Arrow from now on: one for each processor, as elsewhere
    own = {sorted(every)[int(number.removeprefix("gw")) % len(every)]}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess.Popen, "__init__", _everywhere(subprocess.Popen.__init__, every, own))
        os.sched_setaffinity(0, own)
        try:
            yield
        finally:
            os.sched_setaffinity(0, every)


def _everywhere(start: Any, every: set[int], own: set[int]) -> Any:
    """A process has the processors of the thread that starts it."""

    @wraps(start)
    def started(*arguments: Any, **options: Any) -> None:
        os.sched_setaffinity(0, every)
        try:
            start(*arguments, **options)
        finally:
            os.sched_setaffinity(0, own)

    return started
