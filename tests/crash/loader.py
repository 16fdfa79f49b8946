"""A loader: a process of its own that runs jobs, stops where it is told to, and kills itself.

    spark-submit loader.py spark SOCKET      or      python loader.py ENGINE SOCKET

With the engine `spark` it is a Spark driver; with `local` it does all itself.

It connects to the socket and obeys `Job`s, each in a thread of its own, so that one process can be in the
middle of many loads of many warehouses. It tells every point that a job reaches. A job may be held at a point
until it is let go. When `kill_at` jobs are held, or after `kill_after` points and `kill_delay` seconds, the
process kills all of its session (Java, Python workers) and itself with SIGKILL.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Client, Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tidemark import stream, warehouse
from tidemark.jobs import load_batch
from tidemark.jobs.cli.exit_codes import DONE, FAILED, job_end
from tidemark.jobs.spark.session import spark_session
from tidemark.warehouse import sizes


@dataclass(frozen=True)
class Job:
    """Something to do, held when it reaches `hold` for the `nth` time; `then` are jobs that follow.

    `argv` are load_batch's arguments; `append` is (warehouse, source, number, rows) of a stream's batch;
    `maintain` is a warehouse, to be maintained with `grace`; `call` is a function of `warehouse`, such as
    delete, with its keyword arguments. A job that fails is run again, as by a scheduler, `tries` times in
    all.
    """

    name: str
    argv: tuple[str, ...] = ()
    append: tuple[str, str, int, str] | None = None
    maintain: str = ""
    grace: str | None = None
    call: tuple[str, dict[str, Any]] | None = None
    hold: str = ""
    nth: int = 1
    then: tuple[Job, ...] = ()
    tries: int = 1

    def changed(self, spark: SparkSession | None, progress: Callable[[str], None] | None = None) -> None:
        """Makes the call."""
        assert self.call is not None
        name, arguments = self.call
        getattr(warehouse, name)(spark, **arguments, progress=progress)


@dataclass(frozen=True)
class Kill:
    """When the process ends itself: when `held` jobs are held, or `delay` seconds after `points` points."""

    held: int = 0
    points: int = 0
    delay: float = 0.0


@dataclass(frozen=True)
class Go:
    """Lets a held job go on."""

    name: str


def session_members(session: int) -> list[int]:
    """The processes of a session, by their ids."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(fields[3]) == session and fields[0] != "Z":
                found.append(int(entry.name))
    return found


def kill_session() -> None:
    """SIGKILL to every process of this session, this one last."""
    me = os.getpid()
    for pid in session_members(os.getsid(0)):
        if pid != me:
            os.kill(pid, signal.SIGKILL)
    os.kill(me, signal.SIGKILL)


class Loader:
    """Runs jobs in threads and keeps count of what they reached."""

    def __init__(self, connection: Connection, spark: SparkSession | None) -> None:
        self.connection, self.spark = connection, spark
        self.lock = threading.Lock()
        self.kill = Kill()
        self.held = 0
        self.points = 0
        self.gates: dict[str, threading.Event] = {}
        self.of_thread = threading.local()

    def serve(self) -> None:
        while True:
            try:
                order = self.connection.recv()
            except EOFError:
                return
            if isinstance(order, Kill):
                self.kill = order
            elif isinstance(order, Go):
                self.gates[order.name].set()
            elif isinstance(order, Job):
                self.gates[order.name] = threading.Event()
                threading.Thread(target=self.run, args=(order,), daemon=True).start()
            else:
                return

    def tell(self, *what: object) -> None:
        with self.lock:
            self.connection.send(what)

    def run(self, job: Job) -> None:
        for one in (job, *job.then):
            times: dict[str, int] = {}

            def progress(point: str, one: Job = one, times: dict[str, int] = times) -> None:
                times[point] = times.get(point, 0) + 1
                self.reached(job.name, one, point, times[point])

            try:
                code = self.work(one, progress)
                for _ in range(one.tries - 1):
                    code = self.work(one, progress) if code == FAILED else code
            except BaseException:  # noqa: BLE001 - whatever it is, the test wants to read it
                self.tell("done", job.name, traceback.format_exc())
                return
            if code:
                self.tell("done", job.name, code)
                return
        self.tell("done", job.name, 0)

    def work(self, job: Job, progress: Callable[[str], None]) -> int:
        """Does the job as a command does, and returns its exit code."""
        if job.argv:
            engine = () if self.spark else ("--engine", "local")
            self.of_thread.progress = progress
            return load_batch.main([*job.argv, *engine])
        with job_end(argparse.Namespace(), needs_warehouse=False) as end:
            if job.append:
                self.append(progress, *job.append)
            elif job.call:
                job.changed(self.spark, progress)
            else:
                warehouse.maintain(self.spark, job.maintain, grace=job.grace, progress=progress)
            end.code = DONE
        return end.code

    def append(self, progress: Callable[[str], None], uri: str, source: str, number: int, path: str) -> None:
        progress("append batch")
        rows = self.spark.read.parquet(path) if self.spark else path
        stream.append(self.spark, uri, rows, source=source, batch=number)
        progress("batch appended")

    @contextmanager
    def shown(self, _: SparkSession | None) -> Iterator[Callable[[str], None]]:
        """In the place of the bar of a load: who has started this thread's job is told."""
        yield self.of_thread.progress

    def reached(self, name: str, job: Job, point: str, times: int) -> None:
        with self.lock:
            self.connection.send(("at", name, point))
            self.points += 1
            if self.points == self.kill.points:
                threading.Timer(self.kill.delay, kill_session).start()
            stop = point == job.hold and times == job.nth
            self.held += stop
            if stop and self.held == self.kill.held:
                kill_session()
        if stop:
            self.tell("held", name, point)
            self.gates[name].wait()


def main(engine: str, address: str) -> None:
    # Small shares, so that a few thousand rows are sorted in chunks and merged in slices and files.
    sizes.DEFAULT = sizes.Tuning(sort_rows=1000, slice_rows=1000, file_rows=(1000, 2000), key_block_rows=100)
    settings = {
        "spark.master": "local[2]",
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2",
    }
    spark = spark_session("loader", **settings) if engine == "spark" else None
    with Client(address, family="AF_UNIX") as connection:
        connection.send(("ready",))
        loader = Loader(connection, spark)
        with patch.object(load_batch, "show_progress", loader.shown):
            loader.serve()
    if spark:
        spark.stop()


if __name__ == "__main__":
    # Threads and pickles name this module as the tests do.
    from tests.crash import loader

    loader.main(*sys.argv[1:])
