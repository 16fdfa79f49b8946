"""The same attacks on warehouses in an object store, of which one request of twenty goes wrong.

The store is a real S3 server behind a gate (tests/stores). The processes find its options in the environment,
as those of users do. A job that the store has failed is run again, as by a scheduler.
"""

from __future__ import annotations

import contextlib
import random
import re
import shlex
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest

from tests import soak
from tests.crash.attacks import kill_at_random
from tests.crash.batches import OPTIONS, write_batch
from tests.crash.conftest import Attacked, Stage, loaded_twice
from tests.crash.loader import Job, Kill
from tests.crash.processes import (
    PATIENCE,
    ROOT,
    SOAK_KILLS,
    SUBMIT,
    LoaderProcess,
    ReaderProcess,
    is_foreign,
    kill,
    load_command,
    start,
)
from tests.docs.pages import blocks
from tests.stores.faults import FAULTS, TIMEOUT, TRIES
from tests.stores.gate import Fault
from tests.stores.server import Server, running
from tidemark import query, stream, warehouse
from tidemark.jobs.cli.exit_codes import DONE, FAILED
from tidemark.warehouse.delta.table_names import EVENTS

pytestmark = pytest.mark.slow

AT_ONCE = 2  # warehouses that are attacked
IN_A_ROW = 5 if SOAK_KILLS else 3
ROUNDS = -(-SOAK_KILLS // (AT_ONCE * IN_A_ROW)) or 1
ABOUT = """One process after the other runs bulk loads, batches of a stream, loads of those batches and
maintenance in a warehouse of an object store, until SIGKILL ends it at a random moment. At the same time
others do so in another warehouse. Of the requests to the store one of twenty fails: refused, cut, done
without an answer, or without an end. A reader asks both warehouses. In the end each row was there once, and
every answer on the way was right."""
GUIDE = ROOT / "docs" / "guides" / "object_stores.md"
FLIGHTS = ROOT / "docs" / "data" / "flights-20k.parquet"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """The store, with its options in the environment."""
    with running() as started, pytest.MonkeyPatch.context() as environment:
        for name, value in {**started.options, "AWS_TIMEOUT": TIMEOUT}.items():
            environment.setenv(name, value)
        yield started


@pytest.fixture(scope="module")
def stage(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Copies lie in the store; nothing runs in Spark."""
    folder = tmp_path_factory.mktemp("store")
    reader = ReaderProcess(folder)
    yield Stage(None, folder, reader, {"shallow": loaded_twice(None, folder, OPTIONS)}, server)
    reader.end()


def test_processes_killed_at_random_moments_lose_nothing(
    stage: Stage, server: Server, loaders: Callable[..., LoaderProcess]
) -> None:
    """Loads, batches of a stream, loads of those and maintenance; the next run mends what a kill left."""
    attacked = [stage.copy("shallow") for _ in range(AT_ONCE)]
    began, looks, faults = time.monotonic(), stage.looks, stage.faults
    server.set(*FAULTS)

    def attack(number: int) -> Counter[str]:
        mine = [attacked[number]]
        return kill_at_random(loaders, mine, ROUNDS, points=24, in_a_row=IN_A_ROW, seed=number)

    with ThreadPoolExecutor(AT_ONCE) as threads:
        figures = sum(threads.map(attack, range(AT_ONCE)), Counter[str]())
    right = stage.left(attacked, began, looks)
    figures |= {"requests that went wrong": stage.faults - faults, **right}
    assert figures["requests that went wrong"] > 100
    for at, one in enumerate(attacked):
        kill_in_sweep(one, loaders(), at)
    if SOAK_KILLS:
        soak.write_section("Kills beside an object store that fails", ABOUT, figures)
    print(soak.table(figures))


def kill_in_sweep(one: Attacked, process: LoaderProcess, seed: int) -> None:
    """Kills a maintenance that deletes all that is not needed any more; the next one ends what it began."""
    moments = random.Random(seed)
    when = Kill(points=moments.randrange(2, 8), delay=moments.uniform(0, 0.4))
    sweep = one.maintain_job("0 s")
    process.die(when, replace(sweep, then=(sweep,) * 9))
    assert process.foreign_errors() == []
    warehouse.maintain(None, one.uri, grace="0 s")
    one.check()


def test_loaders_streams_maintenance_and_a_reader_at_once(
    stage: Stage, server: Server, loaders: Callable[..., LoaderProcess]
) -> None:
    """Two processes that each load and bring a stream, and a third that maintains."""
    one = stage.copy("shallow")
    faults = stage.faults
    nights, streams = [[20, 21], [22, 23]], {"a": [24, 25, 26], "b": [27, 28, 29]}
    one.truth.coming_in_order(*nights, *streams.values())
    racers = [loaders() for _ in range(3)]
    for racer in racers:
        racer.connect()
    server.set(*FAULTS)
    for racer, bulk, (source, batches) in zip(racers, nights, streams.items(), strict=False):
        racer.begin(load_all(one, bulk), append_all(one, source, batches))
    racers[-1].begin(in_order("maintain", [one.maintain_job()] * 2))
    for racer, source in zip(racers, streams, strict=False):
        racer.done("load", source)
    racers[-1].done("maintain")
    one.truth.have_arrived(*(number for some in (*nights, *streams.values()) for number in some))
    stage.leave(one)
    assert stage.faults - faults > 100
    assert [line for racer in racers for line in racer.foreign_errors()] == []


def load_all(one: Attacked, numbers: list[int]) -> Job:
    """Two batches, and between them what the streams have brought."""
    first, second = map(one.load_job, numbers)
    return in_order("load", [first, one.stream_job(), second])


def append_all(one: Attacked, source: str, numbers: list[int]) -> Job:
    return in_order(source, [one.append_job(number, at, source=source) for at, number in enumerate(numbers)])


def in_order(name: str, jobs: list[Job]) -> Job:
    return replace(jobs[0], name=name, then=tuple(jobs[1:]))


@pytest.mark.parametrize("ignores_conditions", [False, True], ids=["the store", "one without conditions"])
def test_two_commits_of_the_same_version_at_the_same_moment(
    stage: Stage, server: Server, *, ignores_conditions: bool
) -> None:
    """Both puts are on their way before one is done. If a store takes both, a batch is gone, and missed."""
    one = stage.copy("shallow")
    stage.reader.collect(one.uri)
    one.truth.have_arrived(20, 21)
    puts = Fault("meet", "PUT", rf"{EVENTS}/_delta_log/\d+\.json", times=2, seconds=PATIENCE)
    server.set(puts, ignores_conditions=ignores_conditions)

    def append(number: int) -> bool:
        rows = write_batch(one.inputs, number)
        return stream.append(None, one.uri, rows, source=f"source {number}", batch=0)

    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(append, (20, 21))) == [True, True]
    met = [request for request in server.requests() if request.fault]
    assert len({request.path for request in met}) == len(met) - 1 == 1
    server.set()
    assert bool(one.what_is_wrong()) == ignores_conditions


@pytest.mark.spark
def test_the_nightly_job_of_the_guide_twice_and_after_a_kill(server: Server, tmp_path: Path) -> None:
    """By its lines in the guide alone: for a first batch, again, and for a second one that is cut off.

    Those that are loaded anew without Spark, and in a soak by spark-submit, too.
    """
    for name in ("docs", "jobs"):
        (tmp_path / name).symlink_to(ROOT / name)
    first, again = nightly_lines()
    second = [word.replace("Q1", "Q2") for word in again]
    moments = random.Random(6)
    server.set(*FAULTS)
    assert "2001-Q1: loaded" in run_to_its_end(first, tmp_path / "first.log")
    told = run_to_its_end(anew(again), tmp_path / "again.log")
    assert "2001-Q1: was loaded before, nothing changed" in told

    faults = sum(bool(request.fault) for request in server.requests())
    server.set(*FAULTS, latency=0.1)  # so that the load goes on for seconds after its first file
    killed = start(second, tmp_path / "killed.log")
    while not any("/events/" in one.path and one.method == "PUT" for one in server.requests()):
        assert killed.poll() is None, (tmp_path / "killed.log").read_text()
        time.sleep(0.1)
    with contextlib.suppress(subprocess.TimeoutExpired):
        killed.wait(moments.uniform(0, 1.5))
    kill(killed)
    assert killed.returncode == -signal.SIGKILL
    assert "2001-Q2: loaded" in run_to_its_end(anew(second), tmp_path / "second.log")
    assert faults + sum(bool(request.fault) for request in server.requests()) > 5

    server.set()
    wh = query.open("s3://warehouses/flights")
    flights = duckdb.from_parquet(str(FLIGHTS))
    for phi in (0.01, 0.5, 0.99):
        ((true,),) = flights.aggregate(f"quantile_disc(delay, {phi})").fetchall()
        answer = wh.quantile(phi, mode="exact")
        assert (answer.N + answer.nulls, answer.value) == (2 * flights.shape[0], true)
    for origin, count in flights.aggregate("origin, count(*)").fetchall():
        assert wh.frequency(origin, mode="exact").count == 2 * count
    assert warehouse.verify("s3://warehouses/flights").ok


def nightly_lines() -> list[list[str]]:
    """The words of the lines that load a batch."""
    text = "".join(block.text for block in blocks(GUIDE) if block.kind == "shell")
    lines = [shlex.split(line) for line in re.sub(r"\\\n\s*", "", text).splitlines()]
    return [[SUBMIT, *words[1:]] for words in lines if words and words[0] == "spark-submit"]


def anew(line: list[str]) -> list[str]:
    """The line a second time."""
    _, _, *argv = line
    return line if SOAK_KILLS else load_command(*argv, spark=False)


def run_to_its_end(command: list[str], log: Path) -> str:
    """Runs the job until it ends well, again while the store fails it; what it told."""
    for _ in range(TRIES):
        process = start(command, log)
        code, told = process.wait(PATIENCE), log.read_text()
        assert not [line for line in told.splitlines() if is_foreign(line)], told
        if code == DONE:
            return told
        assert code == FAILED, told
    pytest.fail(f"{command} failed {TRIES} times:\n{told}")
