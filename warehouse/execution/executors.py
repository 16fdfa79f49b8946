"""Executors: run tasks and read input rows, either in Spark or in this process.

Loads, merges and streams are planned the same way with both executors and write the same files and commits,
so either executor can continue work that the other began. No other module distinguishes the two. The caller
chooses with the first argument of the public calls: a Spark session, or None for this process.

    tasks       objects with `run()`, each over a bounded slice; results come back in task order
    rows        the caller's input: a DataFrame with Spark, Arrow data or Parquet files without. An object
                with `run(batches)` processes them, once per partition in Spark, once in this process
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import pyarrow as pa
from deltalake import Field

from tidemark.warehouse.columns.schema import delta_fields, quoted
from tidemark.warehouse.errors import InputError, error_in_traceback
from tidemark.warehouse.execution.arrow_inputs import ArrowRows, arrow_rows
from tidemark.warehouse.execution.freed_memory import keep_freed_memory
from tidemark.warehouse.execution.spark_versions import check_version
from tidemark.warehouse.sizes import DEFAULT, Tuning

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# A task and a file cost some tenths of a second. Partitions are joined up to this size, as Spark estimates it
# before it decompresses: a tenth of the size of its own partitions of files.
JOINED_BYTES = 2**24
AT_ONCE = min(2, os.cpu_count() or 1)  # tasks of this process: each may take some hundred MB
_MOST = 2**30  # partitions that Spark can count
_FEW_ROWS = 2**10  # rows: the work on so few takes less time than sharing it out to threads


class Task(Protocol):
    """A part of a call's work over a bounded slice of rows. It can be pickled."""

    def run(self) -> Any:
        """Does the work and returns its result, which can be pickled."""


class RowsTask(Protocol):
    """The work on one partition of an input. It can be pickled."""

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Any]:
        """Does the work and yields its results, which can be pickled."""


class Input(Protocol):
    """The caller's rows. They may be read more than once."""

    @property
    def tokens_of(self) -> str:
        """The fingerprint of the secret whose tokens private columns have; empty if they have values."""

    def fields(self, *excluded: str) -> list[Field]:
        """All columns except the excluded ones, as Delta fields.

        InputError for a duplicate name, or for a type that cannot be stored.
        """

    def each(self, names: Sequence[str], task: RowsTask) -> list[Any]:
        """The results that the task yields for the batches of each partition.

        The batches have the columns `names` in this order. The task must find them by position: their names
        in the batches may differ.
        """


class Executor(Protocol):
    """Runs tasks."""

    @property
    def cores(self) -> int:
        """The number of tasks that run at the same time."""

    @property
    def in_process(self) -> bool:
        """Whether all tasks run in this process."""

    def run(self, tasks: Sequence[Task]) -> list[Any]:
        """The results of the tasks, in order. A task may run more than once."""

    def each(self, tasks: Sequence[Task]) -> Generator[Any, None, None]:
        """As `run`; tasks of this process go on while the caller works on earlier results."""

    def check_sendable(self, values: Mapping[str, object]) -> None:
        """InputError, which names it, if one of the values (by name) cannot be sent to the tasks."""

    def input(self, rows: Any) -> Input:
        """The caller's rows; InputError if this executor cannot read rows of this type."""


def executor_for(spark: SparkSession | None, tuning: Tuning = DEFAULT) -> Executor:
    """A Spark executor for a session, a local one for None; InputError for a Spark that is too old."""
    if spark is None:
        return LocalExecutor(tuning)
    if not hasattr(spark, "version"):
        raise InputError(
            "the first argument must be a Spark session, or None to work in this process, got "
            f"{type(spark).__name__}. The place of the warehouse comes after it."
        )
    check_version(spark.version)
    return SparkExecutor(spark)


@dataclass(frozen=True, slots=True)
class LocalExecutor:
    """Runs tasks in threads of this process. Memory: that of AT_ONCE tasks."""

    tuning: Tuning = DEFAULT
    cores: ClassVar[int] = 1
    in_process: ClassVar[bool] = True

    def run(self, tasks: Sequence[Task]) -> list[Any]:
        """Runs each task once. When one fails, those that have not begun are left out."""
        with closing(self.each(tasks)) as results:
            return [*results]

    def each(self, tasks: Sequence[Task]) -> Generator[Any, None, None]:
        """As `run`. When the generator is closed, tasks that have not begun are left out, too."""
        keep_freed_memory()
        if min(len(tasks), AT_ONCE) < 2 or self.tuning.sort_rows <= _FEW_ROWS:
            yield from (task.run() for task in tasks)
            return
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="tidemark-tasks") as threads:
            running = [threads.submit(task.run) for task in tasks]
            try:
                for one in running:
                    yield one.result()
            finally:
                threads.shutdown(wait=False, cancel_futures=True)

    def check_sendable(self, values: Mapping[str, object]) -> None:
        """Everything can: tasks run in this process."""

    def input(self, rows: Any) -> Input:
        """Arrow data or Parquet files: see `arrow_inputs.arrow_rows`."""
        given = arrow_rows(rows, self.tuning)
        return LocalInput(given, given.tokens_of)


@dataclass(frozen=True, slots=True)
class LocalInput:
    """Rows in this process: one partition; `tokens_of` as in `Input`."""

    rows: ArrowRows
    tokens_of: str = ""

    def fields(self, *excluded: str) -> list[Field]:
        """All columns except the excluded ones, as Delta fields."""
        return delta_fields(pa.schema([field for field in self.rows.schema if field.name not in excluded]))

    def each(self, names: Sequence[str], task: RowsTask) -> list[Any]:
        """The results that the task yields."""
        keep_freed_memory()
        return list(task.run(batch.select(list(names)) for batch in self.rows.read()))


@dataclass(frozen=True, slots=True)
class SparkExecutor:
    """Runs each task in a Spark task of its own."""

    spark: SparkSession
    in_process: ClassVar[bool] = False

    @property
    def cores(self) -> int:
        """Spark's default parallelism; 8 for a Spark Connect session, which does not expose it."""
        try:
            return int(self.spark.sparkContext.defaultParallelism)
        except Exception:  # noqa: BLE001  a Spark Connect session has no context
            return 8

    def run(self, tasks: Sequence[Task]) -> list[Any]:
        """Runs each task in a Spark task; a TidemarkError of a task is raised here with the same class."""
        if not tasks:
            return []
        numbers = self.spark.range(0, len(tasks), 1, len(tasks))
        results = dict(_collect_results(numbers, _NumberedTasks(tuple(tasks))))
        return [results[i] for i in range(len(tasks))]

    def each(self, tasks: Sequence[Task]) -> Generator[Any, None, None]:
        """As `run`: Spark's tasks come back together."""
        yield from self.run(tasks)

    def check_sendable(self, values: Mapping[str, object]) -> None:
        """InputError if one of the values cannot be pickled."""
        from pyspark import cloudpickle

        for name, value in values.items():
            try:
                cloudpickle.dumps(value)  # type: ignore[no-untyped-call]
            except Exception as error:
                raise InputError(
                    f"{name} cannot go to Spark's tasks: {error!r}. Keep what cannot be pickled, such as "
                    "open files and connections, out of the object."
                ) from error

    def input(self, rows: Any) -> Input:
        """A DataFrame."""
        if not hasattr(rows, "mapInArrow"):
            raise InputError(
                "with a Spark session, rows must be a DataFrame of that session; got "
                f"{type(rows).__module__}.{type(rows).__name__}. Pass None instead of the session to load "
                "Arrow data or Parquet files, or convert the rows to a DataFrame."
            )
        return SparkInput(rows, self.cores)


@dataclass(frozen=True, slots=True)
class SparkInput:
    """The rows of a DataFrame, in its partitions; small ones are joined, down to one for each core."""

    frame: DataFrame
    cores: int
    tokens_of: ClassVar[str] = ""

    def fields(self, *excluded: str) -> list[Field]:
        """All columns except the excluded ones, as Delta fields."""
        return delta_fields(self.frame.drop(*excluded).schema)

    def each(self, names: Sequence[str], task: RowsTask) -> list[Any]:
        """The results that the task yields in Spark's tasks."""
        # mapInArrow looks columns up by name and fails for names with a dot or a backquote: use c0, c1, ...
        selected = self.frame.select(*[quoted(name) for name in names])
        named = selected.toDF(*[f"c{i}" for i in range(len(names))])
        size = _estimated_bytes(named)
        joined = (
            named if size is None else named.coalesce(max(self.cores, min(size // JOINED_BYTES, _MOST) + 1))
        )
        return _collect_results(joined, task)


def _estimated_bytes(frame: DataFrame) -> int | None:
    """The size of the rows as Spark estimates it, seldom too small; None of Spark Connect, which hides it."""
    plan = getattr(frame, "_jdf", None)
    return None if plan is None else int(plan.queryExecution().optimizedPlan().stats().sizeInBytes())


@dataclass(frozen=True, slots=True)
class _NumberedTasks:
    """Runs the tasks whose numbers are the rows of a partition."""

    tasks: tuple[Task, ...]

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, Any]]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield number, self.tasks[number].run()


def _collect_results(frame: DataFrame, task: RowsTask) -> list[Any]:
    """The results that the task yields for each partition; they travel to the driver as pickled bytes."""

    def pickle_results(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        keep_freed_memory()
        for result in task.run(batches):
            yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(result)], pa.binary())], ["result"])

    with raise_task_errors():
        rows = frame.mapInArrow(pickle_results, "result binary").collect()
    return [pickle.loads(row.result) for row in rows]  # noqa: S301  our own tasks wrote it


@contextmanager
def raise_task_errors() -> Iterator[None]:
    """Raises a TidemarkError that a Spark task raised as that error, after Spark's own retries."""
    from pyspark.errors import PythonException

    try:
        yield
    except PythonException as error:
        task_error = error_in_traceback(str(error))
        if task_error is None:
            raise
        raise task_error from error
