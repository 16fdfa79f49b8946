"""Loaders that run at the same time: both end well, every row counts once, readers never see anything else.

Two real processes are held at the same point of their loads and let go together, or one is held while the
other runs to its end: so each race is run where it matters, in both orders.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.crash.conftest import Attacked, Stage, has
from tests.crash.loader import Job
from tests.crash.processes import PATIENCE, SOAK_KILLS, LoaderProcess, load_command, start
from tests.crash.truth import Truth

# Where both loaders are held. A soak holds each kind of race at each point, the tests at every other one.
POINTS = ["append", "planned", "marked", "committed", "merge", "merge marked"]
SAME, DIFFERENT = (POINTS, POINTS) if SOAK_KILLS else (POINTS[::2], POINTS[1::2])


class Crash(Exception):
    """Stops a load at a point, in this process."""


def crash_at(point: str) -> Callable[[str], None]:
    def progress(reached: str) -> None:
        if reached == point:
            raise Crash

    return progress


@pytest.fixture(scope="module")
def pair(stage: Stage, secret: Path) -> Iterator[tuple[LoaderProcess, LoaderProcess]]:
    """A process without Spark, which is a driver in a soak, and a driver by spark-submit."""
    with has(secret):
        both = (
            LoaderProcess(stage.folder, "racer-0", engine="spark" if SOAK_KILLS else "local"),
            LoaderProcess(stage.folder, "racer-1", submitted=True),
        )
    yield both
    for one in both:
        one.end()


def race(pair: tuple[LoaderProcess, LoaderProcess], jobs: list[list[Job]]) -> None:
    """Each driver does its jobs. Wherever both are held by the same name, they are let go together."""
    for loader, mine in zip(pair, jobs, strict=True):
        loader.begin(*mine)
    for mine, yours in zip(*jobs, strict=True):
        for loader, job in zip(pair, (mine, yours), strict=True):
            loader.until(job.name)  # a loader that has lost before the point is done already
        for loader, job in zip(pair, (mine, yours), strict=True):
            loader.go(job.name)
    for loader, mine in zip(pair, jobs, strict=True):
        loader.done(*[job.name for job in mine])


def test_two_loaders_of_the_same_batch_at_once_count_it_once(
    stage: Stage, pair: tuple[LoaderProcess, LoaderProcess]
) -> None:
    """Both are held at the same point, for each point, and let go together."""
    attacked = [stage.copy("shallow" if i % 2 else "deep") for i in range(len(SAME))]
    jobs = [one.load_job(10, hold=point) for one, point in zip(attacked, SAME, strict=True)]
    race(pair, [jobs, jobs])
    for one in attacked:
        one.truth.have_arrived(10)
    stage.leave(*attacked)


def test_two_loaders_of_different_batches_at_once_count_each_once(
    stage: Stage, pair: tuple[LoaderProcess, LoaderProcess]
) -> None:
    """One of the batches is what streams brought, or both are bulk batches."""
    attacked = [stage.copy("deep" if i % 2 else "shallow") for i in range(len(DIFFERENT))]
    mine = [one.load_job(10, hold=point) for one, point in zip(attacked, DIFFERENT, strict=True)]
    yours = [
        one.stream_job(hold=point) if i % 2 and point != "append" else one.load_job(11, hold=point)
        for i, (one, point) in enumerate(zip(attacked, DIFFERENT, strict=True))
    ]
    race(pair, [mine, yours])
    for one, job in zip(attacked, yours, strict=True):
        one.truth.have_arrived(10, *([] if "--from-stream" in job.argv else [11]))
    stage.leave(*attacked)


@pytest.mark.parametrize("point", ["merge", "merge marked"])
def test_a_load_beside_a_merge_and_a_merge_beside_a_load(
    stage: Stage, pair: tuple[LoaderProcess, LoaderProcess], point: str
) -> None:
    """A merge is held while a whole load passes it, merge included; and a load while a merge passes it."""
    merging, loading = pair
    attacked = [stage.copy("shallow"), stage.copy("deep")]
    for one in attacked:
        with pytest.raises(Crash):
            one.load(10, progress=crash_at("merge"))
        one.truth.have_arrived(10)
    held, passed = attacked
    merging.begin(held.load_job(10, hold=point))
    merging.until(held.load_job(10).name)
    loading.begin(held.load_job(11))
    loading.done(held.load_job(11).name)
    merging.go(held.load_job(10).name)
    merging.done(held.load_job(10).name)

    loading.begin(passed.load_job(11, hold="marked"))
    loading.until(passed.load_job(11).name)
    merging.begin(passed.load_job(10))
    merging.done(passed.load_job(10).name)
    loading.go(passed.load_job(11).name)
    loading.done(passed.load_job(11).name)
    for one in attacked:
        one.truth.have_arrived(11)
    stage.leave(*attacked)


def test_a_stream_brings_batches_while_two_loaders_take_them(
    stage: Stage, pair: tuple[LoaderProcess, LoaderProcess]
) -> None:
    one = stage.copy("deep")
    for number in (12, 13, 14):
        for loader in pair:
            loader.begin(one.stream_job())
        one.stream(number)
        for loader in pair:
            loader.done(one.stream_job().name)
    one.load_live()
    stage.leave(one)


def test_spark_submit_of_the_job_thrice_at_once_counts_every_row_once(stage: Stage) -> None:
    """The commands that users type, started at once: twice for the same batch, and for another one.

    Without Spark, and in a soak by spark-submit; that a driver of Spark races is shown above.
    """
    one, numbers = stage.copy("shallow"), (10, 10, 11)
    logs = [stage.folder / f"at-once-{at}.log" for at in range(3)]
    commands = [load_command(*one.load_job(number).argv, spark=SOAK_KILLS > 0) for number in numbers]
    started = [start(command, log) for command, log in zip(commands, logs, strict=True)]
    for process, log in zip(started, logs, strict=True):
        assert process.wait(PATIENCE) == 0, log.read_text()
    one.truth.have_arrived(*numbers)
    stage.leave(one)


def test_two_loaders_that_create_the_same_warehouse_at_once_create_one(
    stage: Stage, pair: tuple[LoaderProcess, LoaderProcess]
) -> None:
    """Both bring the first batch of a warehouse that is not there yet, the same one or different ones."""
    for round_ in range(2):
        one = Attacked(
            stage.spark,
            str(stage.folder / f"new-{next(stage.names)}"),
            Truth(),
            stage.models["shallow"].inputs,
        )
        options = (
            "--measure",
            "delay",
            "--measure",
            "size",
            "--time",
            "time",
            "--eps",
            "0.02",
            "--kappa",
            "2",
        )
        numbers = (10, 10 + round_ % 2)
        for loader, number in zip(pair, numbers, strict=True):
            job = one.load_job(number)
            loader.begin(replace(job, argv=(*job.argv, *options)))
        for loader in pair:
            loader.done(one.load_job(10).name)
        one.truth.have_arrived(*numbers)
        one.check()
