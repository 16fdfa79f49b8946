"""The context of a call that writes: executor, warehouse, options, and the caller's progress function."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.execution.executors import Executor, executor_for
from tidemark.warehouse.settings.options import Options, read_options

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Work:
    """One call that writes to a warehouse.

    executor   runs its tasks
    options    those of the warehouse, as they were read last
    progress   the caller's: it is told each point that the call reaches
    seconds    the time spent so far, by phase
    step_files rows of the files of `steps` that were read: each is read once in a call
    """

    executor: Executor
    store: Store
    options: Options
    progress: Callable[[str], None] | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    step_files: dict[str, pa.Table] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Gives the store the names of the columns."""
        object.__setattr__(self, "store", replace(self.store, names=self.options.names))

    @classmethod
    def on(cls, spark: SparkSession | None, store: Store, progress: Callable[[str], None] | None) -> Work:
        """The work on a warehouse whose place may be written, with what Spark's tasks can be sent."""
        store.files.check_place(writing=True)
        executor, options = executor_for(spark, store.tuning), read_options(store)
        executor.check_sendable(options.companions.known_kinds())
        return cls(executor, store, options, progress)

    def reached(self, point: str) -> None:
        """Tells the caller that the point is reached: the one place that calls the caller's function."""
        if self.progress:
            self.progress(point)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """A phase: its beginning is told, and its seconds are added up."""
        self.reached(name)
        began = time.perf_counter()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - began
