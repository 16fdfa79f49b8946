"""A load that is killed is mended by running it again: nothing is lost, nothing counts twice.

What is killed are real Spark drivers with their Java and Python workers, by SIGKILL. A driver is in the middle
of several loads, each of a warehouse of its own, when it dies: so one start of Java serves several kills.
TIDEMARK_SOAK_KILLS asks for more kills at random moments than the usual.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import warehouse
from tests.crash.conftest import Attacked, Stage, load_batch_script
from tests.crash.loader import Job, Kill
from tests.crash.processes import LoaderProcess, kill, start, submit
from tests.crash.truth import MEASURES

KILLS = int(os.environ.get("TIDEMARK_SOAK_KILLS", "20"))
AT_ONCE = 4  # loads that one driver is in the middle of when it is killed at a random moment

# Every point of a load that merges, with the number of the time that it is reached: two measures, two of most.
POINTS = [
    ("check", 1),
    ("append", 1),
    ("appended", 1),
    ("plan", 1),
    ("planned", 1),
    ("sort", 1),
    ("sorted", 1),
    *((point, nth) for point in ("commit", "marked", "committed") for nth in (1, 2)),
    *((point, nth) for point in ("merge", "merge sorted", "merge marked", "merged") for nth in (1, 2)),
]
STREAM_POINTS = [(point, nth) for point, nth in POINTS if point not in {"check", "append", "appended"}]


def load_again(attacked: Attacked, number: int) -> None:
    """The mending, and once more to see that it was enough."""
    attacked.load(number)
    again = warehouse.load(attacked.spark, attacked.uri, attacked.rows(number), f"b{number}")
    assert again.outcome == "known"


@pytest.mark.parametrize("submitted", [True, False], ids=["spark-submit", "python"])
def test_a_bulk_load_killed_at_any_point_is_mended_by_the_next(
    stage: Stage, loaders: Callable[..., LoaderProcess], *, submitted: bool
) -> None:
    """At each point of the load, with merges, sorting in chunks and two measures; half of them by spark-submit."""
    points = POINTS[::2] if submitted else POINTS[1::2]
    attacked = [stage.copy("shallow" if i % 2 else "deep") for i in range(len(points))]
    jobs = [one.load_job(10, hold=point, nth=nth) for one, (point, nth) in zip(attacked, points, strict=True)]
    reached = loaders(submitted=submitted).die(Kill(held=len(jobs)), *jobs)
    assert [reached[job.name] for job in jobs] == [point for point, _ in points]
    for one in attacked:
        load_again(one, 10)
    stage.leave(*attacked)


def test_a_load_of_live_batches_killed_at_any_point_is_mended_by_the_next(
    stage: Stage, loaders: Callable[..., LoaderProcess]
) -> None:
    """And batches that arrive between the crash and the next load are loaded after what was planned."""
    attacked = [stage.copy("deep") for _ in STREAM_POINTS]
    jobs = [one.stream_job(hold=point, nth=nth) for one, (point, nth) in zip(attacked, STREAM_POINTS, strict=True)]
    reached = loaders().die(Kill(held=len(jobs)), *jobs)
    assert [reached[job.name] for job in jobs] == [point for point, _ in STREAM_POINTS]
    for at, one in enumerate(attacked):
        if at % 3 == 0:
            one.stream(11)
        warehouse.load(one.spark, one.uri)
        assert warehouse.open_snapshot(one.uri).info()["live_batches"] == 0
    stage.leave(*attacked)


def test_a_driver_killed_at_random_moments_loses_nothing(
    stage: Stage, loaders: Callable[..., LoaderProcess]
) -> None:
    """Bulk loads, batches of a stream and loads of live batches, one after the other until the driver dies.

    The next driver starts with what the last one may have left undone, and is killed in its turn.
    """
    moments = random.Random(4)
    attacked = [stage.copy("deep" if i % 2 else "shallow") for i in range(AT_ONCE)]
    coming = loaders(submitted=True)
    for round_ in range(-(-KILLS // AT_ONCE)):
        driver, coming = coming, loaders(submitted=bool(moments.getrandbits(1)))
        numbers = [20 + 2 * round_, 21 + 2 * round_]
        jobs = [work(one, round_, numbers) for one in attacked]
        when = Kill(points=moments.randrange(1, 34 * AT_ONCE), delay=moments.uniform(0, 0.4))
        driver.die(when, *jobs)
        driver.end()
        for one in attacked:
            finish(one, round_, numbers)
            one.check()
    stage.leave(*attacked)


def work(one: Attacked, round_: int, numbers: list[int]) -> Job:
    """A bulk batch, a batch of the stream, and a load of it; in an order that differs from round to round."""
    bulk, append = one.load_job(numbers[0]), one.append_job(numbers[1], one.streamed)
    jobs = [[bulk, append, one.stream_job()], [append, one.stream_job(), bulk], [append, bulk, one.stream_job()]][round_ % 3]
    again = one.load_job(numbers[0])
    # There is always more to do, so the driver is killed in the middle of something.
    return Job(jobs[0].name, jobs[0].argv, jobs[0].append, then=(*jobs[1:], *([again] * 50)))


def finish(one: Attacked, round_: int, numbers: list[int]) -> None:
    """What the killed driver was told to do, again."""
    if round_ % 3 == 0:
        one.load(numbers[0])
    one.stream(numbers[1])
    if round_ % 3 == 2:
        one.load(numbers[0])
    warehouse.load(one.spark, one.uri)
    if round_ % 3 == 1:
        one.load(numbers[0])


def command(one: Attacked, number: int) -> list[str]:
    job = one.load_job(number)
    return submit(load_batch_script(), *job.argv)


@pytest.mark.parametrize(
    "sign",
    [
        f"events/_delta_log/{1:020d}.json",
        f"steps/_delta_log/{0:020d}.json",
        *(f"runs/{measure}/_delta_log/{1:020d}.json" for measure in MEASURES),
    ][1:],
    ids=["the plan is written", "the first measure is committed", "the last measure is committed"],
)
def test_the_submitted_job_killed_once(stage: Stage, sign: str) -> None:
    """spark-submit jobs/load_batch.py is killed as soon as a file shows how far it is; the next one mends it."""
    one = stage.copy("shallow")
    log = Path(one.uri) / Path(sign).parent
    before = set(log.glob("*.json"))
    process = start(command(one, 12), stage.folder / "submitted.log")
    while set(log.glob("*.json")) == before:
        assert process.poll() is None, (stage.folder / "submitted.log").read_text()
    kill(process)
    assert process.returncode == -signal.SIGKILL
    finished = start(command(one, 12), stage.folder / "submitted.log")
    assert finished.wait() == 0, (stage.folder / "submitted.log").read_text()
    one.truth.have_arrived(12)
    stage.leave(one)


if sys.platform != "linux":
    pytest.skip("processes are found through /proc", allow_module_level=True)
