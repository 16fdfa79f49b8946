"""Progress of long work on the terminal: the phase, Spark's tasks, and how long it has taken."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EVERY_SECONDS = 0.3


@contextmanager
def shown(spark: SparkSession, console: Console) -> Iterator[Callable[[str], None]]:
    """Shows a bar of Spark's tasks until the work is done; call what it yields with each phase."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    done = threading.Event()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("starting", total=None)

        def watch() -> None:
            tracker = spark.sparkContext.statusTracker()
            while not done.wait(_EVERY_SECONDS):
                stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
                total = sum(stage.numTasks for stage in stages if stage)
                completed = sum(stage.numCompletedTasks for stage in stages if stage)
                bar.update(task, total=total or None, completed=completed)

        watcher = threading.Thread(target=watch, daemon=True)
        if console.is_terminal:
            watcher.start()
        try:
            yield lambda phase: bar.update(task, description=phase)
        finally:
            done.set()
            if watcher.is_alive():
                watcher.join()
