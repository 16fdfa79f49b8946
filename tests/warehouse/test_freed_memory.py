"""Arrays of some megabytes come from memory that the process has, once a task ran in it."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys

import pytest

# mallinfo2 of glibc counts the blocks that were taken from the system alone, as its fourth number. No array
# is freed: the first one would have the effect of the call.
MEASURE = """
import ctypes
import numpy as np
from tidemark.warehouse.execution.executors import LocalExecutor

class Info(ctypes.Structure):
    _fields_ = [(f"n{i}", ctypes.c_size_t) for i in range(10)]

class Task:
    def run(self):
        return None

mallinfo2 = ctypes.CDLL(None).mallinfo2
mallinfo2.restype = Info

held = []

def blocks():
    before = mallinfo2().n3
    held.append(np.empty(3 * 2**23, np.uint8))
    return mallinfo2().n3 - before

before = blocks()
LocalExecutor().run([Task()])
print(before, blocks())
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="the allocator is not glibc's")
def test_a_large_array_takes_a_block_from_the_system_only_before_the_first_task() -> None:
    usual = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    found = subprocess.run(
        [sys.executable, "-c", MEASURE], env=usual, capture_output=True, text=True, check=True
    )
    assert found.stdout.split() == ["1", "0"]
