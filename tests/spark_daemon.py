"""Spark's daemon of Python workers, which imports what every worker needs before it forks them.

Spark's own daemon leaves that to each worker, half a second of processor time, and a worker that has no work
for a minute ends. `FAST` names this one in the sessions that tests start. The processes that tests start
have a copy of it (tests/java.py), which runs where nothing of `tests` is found, and maybe no tidemark.
"""

from __future__ import annotations

import gc
from contextlib import suppress
from importlib import import_module

FAST = {"spark.python.daemon.module": __name__}
IMPORTED = (
    "pandas",
    "pyspark.worker",
    "tidemark.query",
    "tidemark.stream",
    "tidemark.warehouse",
)

if __name__ == "__main__":
    from pyspark.daemon import manager

    for name in IMPORTED:
        with suppress(ImportError):  # the workers of a cluster get it later, with a task
            import_module(name)
    gc.collect()
    gc.freeze()  # a worker collects after each task: what is here already needs no look
    manager()
