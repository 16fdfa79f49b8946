"""Processes that begin at the same moment. They import this file's users, so that it imports little."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence


def let_go(processes: Sequence[subprocess.Popen[str]]) -> None:
    """Waits until each process has printed "ready", then writes a line to each at the same time."""
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
