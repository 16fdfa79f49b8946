"""Workers share the processors out; a process that one of them starts has all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
# What is seen before, inside by this thread, by another and by a process, inside again, and afterwards.
SEEN = """
import json, os, subprocess, sys
from concurrent.futures import ThreadPoolExecutor
from tests import one_processor

def seen():
    return sorted(os.sched_getaffinity(0))

process = [sys.executable, "-c", "import os; print(sorted(os.sched_getaffinity(0)))"]
found = [seen()]
{mistake}
with one_processor.kept():
    found += [seen(), ThreadPoolExecutor().submit(seen).result()]
    found += [json.loads(subprocess.check_output(process)), seen()]
print(json.dumps([*found, seen()]))
"""


def seen_by(worker: int, of: int, mistake: str = "") -> list[list[int]]:
    """In a process of its own, since a worker that runs this has one processor already."""
    given = {"PYTEST_XDIST_WORKER": f"gw{worker}", "PYTEST_XDIST_WORKER_COUNT": str(of)}
    line = [sys.executable, "-c", SEEN.format(mistake=mistake)]
    done = subprocess.run(line, cwd=ROOT, env={**os.environ, **given}, capture_output=True, check=True)
    found: list[list[int]] = json.loads(done.stdout)
    return found


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="the system has no affinity")
def test_workers_have_one_processor_each_and_their_processes_all() -> None:
    every = seen_by(0, of=1)[0]
    for number in range(2):
        own = [every[number % len(every)]]
        assert seen_by(number, of=len(every)) == [every, own, own, every, own, every]
    assert seen_by(0, of=len(every) - 1) == [every] * 6
    if len(every) > 1:
        kept_in = seen_by(0, len(every), "one_processor._everywhere = lambda start, *_: start")
        assert kept_in[3] == every[:1]  # the mistake is seen
