"""Where tasks run: in Spark's tasks, or in this process. Nothing else of the package asks which.

A load, a merge or a stream is planned the same way, and writes the same files and commits, by either. So
what one began the other continues. The caller says which by the first argument of the public calls: a Spark
session, or None for this process.

    tasks       calls without arguments that hold a bounded slice each; their results come back in order
    rows        what the caller gives: a DataFrame with Spark, Arrow's rows or Parquet files without. They go
                through a function of Arrow batches, once a partition in Spark, once in this process
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
from deltalake import Field

from tidemark.warehouse.columns.schema import delta_fields, quoted
from tidemark.warehouse.errors import InputError, error_in_traceback
from tidemark.warehouse.execution.arrow_inputs import ArrowRows, arrow_rows
from tidemark.warehouse.sizes import DEFAULT, Tuning

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BatchWork = Callable[[Iterator[pa.RecordBatch]], Iterator[Any]]


class Input(Protocol):
    """The rows that a caller gives. They may be gone through more than once."""

    def fields(self, *but: str) -> list[Field]:
        """The columns but those, as Delta has them; InputError for a name twice, or a type not stored."""

    def each(self, names: Sequence[str], work: BatchWork) -> list[Any]:
        """What `work` yields of each partition's batches of these columns, which it finds by their order."""


class Executor(Protocol):
    """Runs tasks."""

    @property
    def cores(self) -> int:
        """How many tasks it runs at a time."""

    def run(self, tasks: Sequence[Callable[[], Any]]) -> list[Any]:
        """Runs each task, at least once; their results in order."""

    def input(self, rows: Any) -> Input:
        """The rows that the caller gave; InputError where they are not of this executor's kind."""


def executor_for(spark: SparkSession | None, tuning: Tuning = DEFAULT) -> Executor:
    """Spark's executor for a session, this process for None."""
    return LocalExecutor(tuning) if spark is None else SparkExecutor(spark)


@dataclass(frozen=True, slots=True)
class LocalExecutor:
    """Tasks run in this process, one after the other: memory is that of one task at a time."""

    tuning: Tuning = DEFAULT

    @property
    def cores(self) -> int:
        """One."""
        return 1

    def run(self, tasks: Sequence[Callable[[], Any]]) -> list[Any]:
        """Calls each task."""
        return [task() for task in tasks]

    def input(self, rows: Any) -> Input:
        """Arrow's rows, or Parquet files: see `arrowrows.arrow_rows`."""
        return LocalInput(arrow_rows(rows, self.tuning))


@dataclass(frozen=True, slots=True)
class LocalInput:
    """Rows in this process: one partition."""

    rows: ArrowRows

    def fields(self, *but: str) -> list[Field]:
        """The columns but those, as Delta has them."""
        return delta_fields(pa.schema([field for field in self.rows.schema if field.name not in but]))

    def each(self, names: Sequence[str], work: BatchWork) -> list[Any]:
        """What `work` yields."""
        return list(work(batch.select(list(names)) for batch in self.rows.read()))


@dataclass(frozen=True, slots=True)
class SparkExecutor:
    """Each task runs in a Spark task of its own."""

    spark: SparkSession

    @property
    def cores(self) -> int:
        """Spark's default parallelism; 8 where a session of Spark Connect does not tell."""
        try:
            return int(self.spark.sparkContext.defaultParallelism)
        except Exception:  # noqa: BLE001  a Spark Connect session has no context, and does not tell
            return 8

    def run(self, tasks: Sequence[Callable[[], Any]]) -> list[Any]:
        """Runs each task in a Spark task; an error of the package in one of them is that error here."""
        if not tasks:
            return []
        work = list(tasks)

        def execute(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, Any]]:
            for batch in batches:
                for i in batch.column(0).to_pylist():
                    yield i, work[i]()

        numbers = self.spark.range(0, len(work), 1, len(work))
        results = dict(_collected(numbers, execute))
        return [results[i] for i in range(len(work))]

    def input(self, rows: Any) -> Input:
        """A DataFrame."""
        if not hasattr(rows, "mapInArrow"):
            raise InputError(
                "with a Spark session rows are a DataFrame of it, got "
                f"{type(rows).__module__}.{type(rows).__name__}. Give None in place of the session for "
                "Arrow's rows and Parquet files, or make a DataFrame of them."
            )
        return SparkInput(rows)


@dataclass(frozen=True, slots=True)
class SparkInput:
    """A DataFrame's rows, in its partitions."""

    frame: DataFrame

    def fields(self, *but: str) -> list[Field]:
        """The columns but those, as Delta has them."""
        return delta_fields(self.frame.drop(*but).schema)

    def each(self, names: Sequence[str], work: BatchWork) -> list[Any]:
        """What `work` yields in Spark's tasks."""
        # mapInArrow looks columns up by name, and does not find those with a dot or a backquote in theirs.
        chosen = self.frame.select(*[quoted(name) for name in names])
        return _collected(chosen.toDF(*[f"c{i}" for i in range(len(names))]), work)


def _collected(frame: DataFrame, work: BatchWork) -> list[Any]:
    """What `work` yields of each partition, carried back as bytes."""

    def pickled(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for result in work(batches):
            yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(result)], pa.binary())], ["result"])

    with raise_task_errors():
        rows = frame.mapInArrow(pickled, "result binary").collect()
    return [pickle.loads(row.result) for row in rows]  # noqa: S301  our own tasks wrote it


@contextmanager
def raise_task_errors() -> Iterator[None]:
    """An error of the package that a task raised is that error here too, once Spark has tried again."""
    from pyspark.errors import PythonException

    try:
        yield
    except PythonException as error:
        said = error_in_traceback(str(error))
        if said is None:
            raise
        raise said from error
