"""Warehouses to attack, and the reader that watches every attack."""

from __future__ import annotations

import itertools
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.crash.loader import Job
from tests.crash.processes import ROOT, LoaderProcess, ReaderProcess
from tests.crash.truth import (
    GROUPED,
    MEASURES,
    OPTIONS,
    SCHEMA,
    Truth,
    problems,
    rows_of,
    write_batch,
    wrong_at_rest,
)
from tidemark import stream, warehouse

collect_ignore = (
    [] if sys.platform == "linux" else ["test_kills.py", "test_races.py"]
)  # /proc names the processes


@dataclass
class Attacked:
    """A warehouse, the truth about it, and the means to go on with it."""

    spark: SparkSession
    uri: str
    truth: Truth
    inputs: Path
    streamed: int = 0  # how many batches the stream 'web' has brought
    turn: int = 0  # loads and batches of this process take turns: by Spark, and without

    def rows(self, number: int) -> DataFrame:
        return self.spark.read.parquet(str(write_batch(self.inputs, number)))

    def load(self, number: int, **options: Any) -> None:
        """Loads a batch in this very process."""
        self.truth.coming(number)
        warehouse.load(*self._next(number), f"b{number}", **options)
        self.truth.have_arrived(number)

    def load_live(self) -> None:
        """Loads in this very process what the stream brought."""
        self.turn += 1
        warehouse.load(self.spark if self.turn % 2 else None, self.uri)

    def _next(self, number: int) -> tuple[SparkSession | None, str, DataFrame | Path]:
        """The session, the warehouse and the rows of a batch."""
        self.turn += 1
        if self.turn % 2:
            return self.spark, self.uri, self.rows(number)
        return None, self.uri, write_batch(self.inputs, number)

    def stream(self, number: int) -> None:
        """Brings a batch as the stream's next."""
        self.truth.coming(number)
        stream.append(*self._next(number), source="web", batch=self.streamed)
        self.streamed += 1
        self.truth.have_arrived(number)

    def load_job(self, number: int, *, hold: str = "", nth: int = 1, then: tuple[Job, ...] = ()) -> Job:
        """The job that loads a batch."""
        self.truth.coming(number)
        argv = (
            "--warehouse",
            self.uri,
            "--input",
            str(write_batch(self.inputs, number)),
            "--batch",
            f"b{number}",
        )
        return Job(Path(self.uri).name, argv, hold=hold, nth=nth, then=then)

    def stream_job(self, *, hold: str = "", nth: int = 1, then: tuple[Job, ...] = ()) -> Job:
        """The job that loads what the stream brought."""
        return Job(
            Path(self.uri).name, ("--warehouse", self.uri, "--from-stream"), hold=hold, nth=nth, then=then
        )

    def append_job(self, number: int, at: int, *, then: tuple[Job, ...] = ()) -> Job:
        """The job that brings a batch as number `at` of the stream."""
        self.truth.coming(number)
        return Job(
            Path(self.uri).name,
            append=(self.uri, "web", at, str(write_batch(self.inputs, number))),
            then=then,
        )

    def check(self) -> None:
        """The warehouse at rest is what was sent to it."""
        assert wrong_at_rest(self.uri, self.truth) == []


@dataclass
class Stage:
    """Where warehouses come from: each is a copy of one that was loaded once."""

    spark: SparkSession
    folder: Path
    reader: ReaderProcess
    shallow: Attacked  # two steps, three keys and two groups: the next load merges
    deep: Attacked  # eight steps and two live batches: the next load merges two levels
    names: Iterator[int] = field(default_factory=itertools.count)
    looks: int = 0

    def copy(self, what: str) -> Attacked:
        """A new warehouse, watched from now on."""
        of: Attacked = getattr(self, what)
        number = next(self.names)
        uri = self.folder / f"{what}-{number}"
        shutil.copytree(of.uri, uri)
        self.reader.watch(str(uri))
        return Attacked(self.spark, str(uri), of.truth.copy(), of.inputs, of.streamed, number // 2)

    def leave(self, *attacked: Attacked) -> None:
        """The warehouses are right at rest, and were at every moment that the reader looked."""
        for one in attacked:
            rounds, journal = self.reader.collect(one.uri)
            self.looks += rounds
            assert problems(journal, one.truth) == []
            final = {seen.measure: seen.rows for seen in journal if seen.rows is not None}
            true = {rows_of(one.truth.arrived)}
            assert {final[measure] for measure in MEASURES} == true
            one.check()
            shutil.rmtree(one.uri)


def new_warehouse(
    spark: SparkSession, folder: Path, name: str, options: dict[str, Any] = OPTIONS
) -> Attacked:
    uri = folder / name
    warehouse.create(spark, uri, list(MEASURES), schema=SCHEMA, **options)
    return Attacked(spark, str(uri), Truth(), folder / "inputs")


@pytest.fixture(scope="session")
def stage(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("crash")
    reader = ReaderProcess(folder)
    deep = new_warehouse(spark, folder, "loaded")
    reader.connect()
    reader.watch(deep.uri)
    shallow = new_warehouse(spark, folder, "loaded-two", GROUPED)
    for number in range(2):
        shallow.load(number)
    for number in range(7):
        deep.load(number)
    deep.stream(7)
    deep.load_live()
    deep.stream(8)
    deep.stream(9)
    built = Stage(spark, folder, reader, shallow, deep)
    _, journal = reader.collect(deep.uri)
    assert problems(journal, deep.truth) == []
    deep.check()
    shallow.check()
    yield built
    print(f"the reader looked {built.looks} times")
    reader.end()


@pytest.fixture
def loaders(stage: Stage) -> Iterator[Callable[..., LoaderProcess]]:
    """Starts loader processes; all are dead when the test ends."""
    started: list[LoaderProcess] = []

    def start(*, submitted: bool = False) -> LoaderProcess:
        started.append(LoaderProcess(stage.folder, f"loader-{next(stage.names)}", submitted=submitted))
        return started[-1]

    yield start
    for one in started:
        one.end()


def load_batch_script() -> Path:
    return ROOT / "jobs" / "load_batch.py"
