"""The default memory budgets of a process: for the decoded rows of its readers, and for its scans.

All readers share a tenth of the machine's memory, at least LEAST. They may use it for whole runs, because a
question about many groups or windows goes through whole runs in a fraction of the time of a scan. Live rows
of a reader take at most LIVE of it: each new batch is merged with all live rows, so with more of them
questions would wait.

A scan of DuckDB may take another quarter of the machine's memory, and spills the rest to disk. If several
questions are answered at the same time, as by a server, all of their scans together take at most half of the
machine's memory.
"""

from __future__ import annotations

import os
from pathlib import Path

from tidemark.warehouse.memory_cache import Budget
from tidemark.warehouse.per_process import per_process

LEAST = LIVE = 2**28
SHARE = 10  # a tenth of the machine's memory
_GROUP_LIMITS = (  # files with the limit of the process's container, by the two versions of control groups
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


_at_once = [1]  # questions of this process


def share_scans(questions: int) -> None:
    """Says that so many questions are answered at the same time in this process, each with a scan."""
    _at_once[0] = questions


def scan_memory() -> int:
    """The bytes that a scan may take."""
    return machine_memory() // max(4, 2 * _at_once[0])


@per_process
def shared_budget() -> Budget:
    """The budget of this process, which all its readers share."""
    return Budget(max(LEAST, machine_memory() // SHARE))


def machine_memory() -> int:
    """The bytes of memory of the machine, or of the container in which the process runs."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in _GROUP_LIMITS:
        limit = path.read_text().strip() if os.access(path, os.R_OK) else ""
        if limit.isdecimal():  # it is "max" where there is no limit
            found.append(int(limit))
    return min(found)
