"""Progress of long work on the terminal: the phase, the count of Spark's tasks and the elapsed time.

rich is imported only when something is shown: most answers arrive sooner than its import would take.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tidemark.jobs.cli import terminal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.console import Console
    from rich.progress import Task

_EVERY_SECONDS = 0.3
_SLOW_SECONDS = 1.0


@contextmanager
def show_progress(
    spark: SparkSession | None, console: Console | None = None
) -> Iterator[Callable[[str], None]]:
    """Shows a progress bar of Spark's tasks during the `with` block; yields a function that sets the phase.

    Without a session, or while no task runs, only the phase and the elapsed time are shown. console: by
    default the console of stderr.
    """
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
    )
    from rich.text import Text

    class Completed(MofNCompleteColumn):
        """Completed tasks of all; nothing while their number is not known."""

        def render(self, task: Task) -> Text:
            return Text() if task.total is None else super().render(task)

    phase = TextColumn("{task.description}", markup=False)
    counts = () if spark is None else (BarColumn(), Completed())
    console = console or terminal.console(stderr=True)
    done = threading.Event()
    bar = Progress(
        SpinnerColumn(),
        phase,
        *counts,
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
        redirect_stdout=sys.stdout.isatty(),  # redirected output must not reach the terminal
    )
    with bar:
        task = bar.add_task("starting", total=None)

        def watch(session: SparkSession) -> None:
            tracker = session.sparkContext.statusTracker()
            while not done.wait(_EVERY_SECONDS):
                stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
                total = sum(stage.numTasks for stage in stages if stage)
                completed = sum(stage.numCompletedTasks for stage in stages if stage)
                bar.update(task, total=total or None, completed=completed)

        watcher = threading.Thread(target=watch, args=(spark,), daemon=True)
        if console.is_terminal and spark is not None:
            watcher.start()
        try:
            yield lambda phase: bar.update(task, description=phase)
        finally:
            done.set()
            if watcher.is_alive():
                watcher.join()


@contextmanager
def status_when_slow(text: str) -> Iterator[None]:
    """Shows a status line on the terminal while the `with` block runs longer than a second."""
    if not sys.stderr.isatty():
        yield
        return
    done = threading.Event()

    def show() -> None:
        if done.wait(_SLOW_SECONDS):
            return
        with terminal.console(stderr=True).status(text):
            done.wait()

    watcher = threading.Thread(target=show, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
