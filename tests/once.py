"""What takes long to make, and nobody changes, is made once for all processes of a run."""

from __future__ import annotations

import fcntl
import os
import pickle
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

Made = TypeVar("Made")


def once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], Made]) -> Made:
    """What `make` returns, given a folder; the process that asks first makes it, and others wait for it."""
    base = factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder, told = shared / name, shared / f"{name}.made"
    with one_process(shared / f"{name}.lock"):
        if not told.exists():
            shutil.rmtree(folder, ignore_errors=True)  # of one that failed
            folder.mkdir()
            made = make(folder)
            told.write_bytes(pickle.dumps(made))
        found: Made = pickle.loads(told.read_bytes())
    return found


@contextmanager
def one_process(lock: Path) -> Iterator[None]:
    """What one process does at a time; the others wait."""
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
