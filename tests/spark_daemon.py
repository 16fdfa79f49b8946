"""Spark's daemon of Python workers, which imports what every worker needs before it forks them.

Spark's own daemon leaves that to each worker, half a second of processor time, and a worker that has no work
for a minute ends. `FAST` names this one in the sessions that tests start.
"""

from __future__ import annotations

import gc
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
        import_module(name)
    gc.collect()
    gc.freeze()  # a worker collects after each task: what is here already needs no look
    manager()
