"""Spark's daemon of Python workers, which imports what every worker needs before it forks them.

Spark's own daemon leaves that to each worker, half a second of processor time, and a worker that has no work
for a minute ends. `FAST` names this one in the session that tests share, and tests/java.py in the processes
that they start. These may find nothing of `tests`, and maybe no tidemark: this folder is in their PYTHONPATH.
"""

from __future__ import annotations

import gc
from contextlib import suppress
from importlib import import_module
from pathlib import Path

FAST = {
    "spark.python.daemon.module": "spark_daemon",
    "spark.executorEnv.PYTHONPATH": str(Path(__file__).resolve().parent),
}
IMPORTED = (
    "pandas",
    "pyspark.worker",
    "tidemark.query",
    "tidemark.stream",
    "tidemark.warehouse",
)


def import_before_forks(*names: str) -> None:
    """Imports these modules; nothing of them is looked at as garbage again."""
    for name in names:
        with suppress(ImportError):  # the workers of a cluster get it later, with a task
            import_module(name)
    gc.collect()
    gc.freeze()  # a worker collects after each task: what is here already needs no look


if __name__ == "__main__":
    from pyspark.daemon import manager

    import_before_forks(*IMPORTED)
    manager()
