"""Warehouses to attack, and the reader that watches every attack."""

from __future__ import annotations

import itertools
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs
from pyspark.sql import DataFrame, SparkSession

from tests.crash.batches import (
    GROUPED,
    MEASURES,
    OPTIONS,
    Gone,
    batch_rows,
    rows_by_batch,
    rows_of,
    write_batch,
)
from tests.crash.loader import Job
from tests.crash.processes import SOAK_KILLS, LoaderProcess, ReaderProcess
from tests.crash.truth import Truth, problems, wrong_at_rest
from tests.once import once
from tests.stores.faults import TRIES, insist
from tidemark import stream, warehouse
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.errors import TidemarkError
from tidemark.warehouse.private.secrets import FILE_VARIABLE, new_secret

if TYPE_CHECKING:
    from tests.stores.server import Server

collect_ignore = (
    [] if sys.platform == "linux" else ["test_kills.py", "test_races.py", "test_removals.py", "test_store.py"]
)  # /proc names the processes
SPARK_EVERY = 2 if SOAK_KILLS else 4  # a load by Spark takes several times as long


@dataclass
class Attacked:
    """A warehouse, the truth about it, and the means to go on with it.

    It lies on a disk or in an object store; the environment has the store's options.
    """

    spark: SparkSession | None
    uri: str
    truth: Truth
    inputs: Path
    streamed: int = 0  # how many batches the stream 'web' has brought
    turn: int = 0  # of the loads and batches of this process, one of SPARK_EVERY is by Spark

    @property
    def is_stored(self) -> bool:
        """Whether it lies in an object store."""
        return "://" in self.uri

    def rows(self, number: int) -> DataFrame:
        assert self.spark is not None
        return self.spark.read.parquet(str(write_batch(self.inputs, number)))

    def load(self, number: int, **options: Any) -> None:
        """Loads a batch in this very process."""
        self.truth.coming(number)
        insist(lambda: warehouse.load(*self._next(number), f"b{number}", **options))
        self.truth.have_arrived(number)

    def load_live(self) -> None:
        """Loads in this very process what the stream brought."""
        spark = self._take_turn()
        insist(lambda: warehouse.load(spark, self.uri))

    def _next(self, number: int) -> tuple[SparkSession | None, str, DataFrame | Path]:
        """The session, the warehouse and the rows of a batch."""
        if spark := self._take_turn():
            return spark, self.uri, self.rows(number)
        return None, self.uri, write_batch(self.inputs, number)

    def _take_turn(self) -> SparkSession | None:
        """The session, where it is the turn of Spark."""
        self.turn += 1
        return self.spark if self.turn % SPARK_EVERY == 1 else None

    def stream(self, number: int) -> None:
        """Brings a batch as the stream's next."""
        self.truth.coming(number)
        insist(lambda: stream.append(*self._next(number), source="web", batch=self.streamed))
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
        return self._job(argv=argv, hold=hold, nth=nth, then=then)

    def stream_job(self, *, hold: str = "", nth: int = 1, then: tuple[Job, ...] = ()) -> Job:
        """The job that loads what the stream brought."""
        return self._job(argv=("--warehouse", self.uri, "--from-stream"), hold=hold, nth=nth, then=then)

    def append_job(self, number: int, at: int, *, source: str = "web", then: tuple[Job, ...] = ()) -> Job:
        """The job that brings a batch as number `at` of a stream."""
        self.truth.coming(number)
        return self._job(append=(self.uri, source, at, str(write_batch(self.inputs, number))), then=then)

    def maintain_job(self, grace: str | None = None) -> Job:
        """The job that maintains the warehouse."""
        return self._job(maintain=self.uri, grace=grace)

    def change_job(self, name: str, *, hold: str = "", nth: int = 1, **arguments: Any) -> Job:
        """The job that takes rows out, or puts others in their place: a function of `warehouse`."""
        return self._job(call=(name, {"uri": self.uri, **arguments}), hold=hold, nth=nth)

    def correct_job(self, number: int, gone: Gone, **how: Any) -> Job:
        """The job that puts a batch in the place of rows that are there."""
        rows = pa.concat_tables(rows_by_batch(self.truth.arrived))
        path = self.inputs / f"before-{Path(self.uri).name}-{number}.parquet"
        pq.write_table(rows.filter(gone.mask(rows)), path)
        given: dict[str, Any] = {
            "rows": str(write_batch(self.inputs, number)),
            "before": str(path),
            "batch": f"b{number}",
        }
        return self.change_job("correct", **given, **how)

    def _job(self, **what: Any) -> Job:
        return Job(Path(self.uri).name, tries=TRIES if self.is_stored else 1, **what)

    def check(self) -> None:
        """The warehouse at rest is what was sent to it."""
        assert insist(lambda: wrong_at_rest(self.uri, self.truth)) == []

    def what_is_wrong(self) -> list[str]:
        """What the checks say of it at rest, or the error that it now answers with."""
        try:
            return wrong_at_rest(self.uri, self.truth)
        except (TidemarkError, OSError) as error:
            return [str(error)]


@dataclass
class Stage:
    """Where warehouses come from: each is a copy of one that was loaded once.

    models   by name, warehouses on a disk
    server   that of the object store in which the copies lie; None: they lie in `folder`
    faults   how many requests to the store went wrong
    """

    spark: SparkSession | None
    folder: Path
    reader: ReaderProcess
    models: dict[str, Attacked]
    server: Server | None = None
    names: Iterator[int] = field(default_factory=itertools.count)
    looks: int = 0
    faults: int = 0

    def copy(self, what: str) -> Attacked:
        """A new warehouse, watched from now on."""
        of = self.models[what]
        number = next(self.names)
        name = f"{what}-{number}"
        if self.server is None:
            uri = str(self.folder / name)
            shutil.copytree(of.uri, uri)
        else:
            uri = self.server.address(name)
            fs.copy_files(of.uri, "", destination_filesystem=Store.from_uri(uri).filesystem())
        self.reader.watch(uri)
        return Attacked(self.spark, uri, of.truth.copy(), of.inputs, of.streamed, number // 2)

    def calm(self) -> None:
        """The store answers every request from now on."""
        if self.server is not None:
            self.faults += sum(bool(request.fault) for request in self.server.requests())
            self.server.set()

    def left(self, attacked: Sequence[Attacked], began: float, looks: int) -> dict[str, int]:
        """Leaves the warehouses, and counts what was right since `began` and the looks of then."""
        rows = sum(rows_of(one.truth.arrived) for one in attacked)
        self.leave(*attacked)
        return {
            "rows in the end, all there once": rows,
            "looks of the reader, each right": self.looks - looks,
            "minutes": round((time.monotonic() - began) / 60),
        }

    def leave(self, *attacked: Attacked) -> None:
        """The warehouses are right at rest, and were at every moment that the reader looked."""
        self.calm()
        for one in attacked:
            rounds, journal = self.reader.collect(one.uri)
            self.looks += rounds
            assert problems(journal, one.truth) == []
            final = {seen.measure: seen.rows for seen in journal if seen.rows is not None}
            true = {rows_of(one.truth.arrived)}
            assert {final[measure] for measure in MEASURES} == true
            one.check()
            if not one.is_stored:
                shutil.rmtree(one.uri)


def new_warehouse(
    spark: SparkSession | None, folder: Path, name: str, options: dict[str, Any] = OPTIONS
) -> Attacked:
    uri = folder / name
    warehouse.create(spark, uri, list(MEASURES), schema=batch_rows(0).schema, **options)
    return Attacked(spark, str(uri), Truth(), folder / "inputs")


@pytest.fixture(scope="session")
def secret(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of the secret of the warehouses with private columns."""

    def make(folder: Path) -> Path:
        (folder / "secret").write_text(new_secret())
        return folder / "secret"

    return once(tmp_path_factory, "secret", make)


@contextmanager
def has(secret: Path) -> Iterator[None]:
    """This process has the secret, and so have those that it starts."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv(FILE_VARIABLE, str(secret))
        yield


@pytest.fixture(autouse=True)
def _has_secret(secret: Path) -> Iterator[None]:
    with has(secret):
        yield


@pytest.fixture(scope="session")
def stage(spark: SparkSession, secret: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("crash")
    with has(secret):
        reader = ReaderProcess(folder)
        made = once(tmp_path_factory, "attacked", lambda models: _built(models, reader))
    built = Stage(spark, folder, reader, {name: Attacked(None, *one) for name, one in made.items()})
    yield built
    print(f"the reader looked {built.looks} times")
    built.reader.end()


def _built(folder: Path, reader: ReaderProcess) -> dict[str, Any]:
    """What is copied, by name: of each `Attacked` what follows its session."""
    # Eight steps and two live batches: the next load merges two levels. What attacks a copy is Spark's, too.
    deep = new_warehouse(None, folder, "loaded")
    reader.connect()
    reader.watch(deep.uri)
    # Two steps, three keys and two groups, a private column: the next load merges.
    shallow = loaded_twice(None, folder, GROUPED)
    for number in range(7):
        deep.load(number)
    deep.stream(7)
    deep.load_live()
    deep.stream(8)
    deep.stream(9)
    _, journal = reader.collect(deep.uri)
    assert problems(journal, deep.truth) == []
    deep.check()
    shallow.check()
    models = {"shallow": shallow, "deep": deep}
    return {name: (one.uri, one.truth, one.inputs, one.streamed) for name, one in models.items()}


def loaded_twice(spark: SparkSession | None, folder: Path, options: dict[str, Any]) -> Attacked:
    """A new warehouse with two steps."""
    loaded = new_warehouse(spark, folder, "loaded-two", options)
    for number in range(2):
        loaded.load(number)
    return loaded


@pytest.fixture
def loaders(stage: Stage) -> Iterator[Callable[..., LoaderProcess]]:
    """Starts loader processes; all are dead when the test ends."""
    started: list[LoaderProcess] = []

    def start(*, submitted: bool = False, with_spark: bool = stage.spark is not None) -> LoaderProcess:
        name, engine = f"loader-{next(stage.names)}", "spark" if with_spark else "local"
        started.append(LoaderProcess(stage.folder, name, submitted=submitted, engine=engine))
        return started[-1]

    yield start
    for one in started:
        one.end()
