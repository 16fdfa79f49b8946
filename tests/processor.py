"""The processor seconds of this process and of all below it: what tests cost, however busy the machine."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


def seconds() -> float:
    """Of the processes that run, and of those that have ended and whose end was waited for."""
    if not Path(f"/proc/self/task/{os.getpid()}/children").exists():  # no Linux
        return sum(os.times()[:4])
    found = [os.getpid()]
    for process in found:  # grows
        found += _children(process)
    return sum(map(_ticks, found)) / TICKS


def _children(process: int) -> list[int]:
    with suppress(OSError):  # it has ended
        texts = [file.read_text() for file in Path(f"/proc/{process}/task").glob("*/children")]
        return [int(child) for text in texts for child in text.split()]
    return []


def _ticks(process: int) -> int:
    """Of a process and of its children that have ended; in user and in system mode."""
    with suppress(OSError):
        return sum(map(int, Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:15]))
    return 0
