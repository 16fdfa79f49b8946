"""A load that is killed is mended by running it again: nothing is lost, nothing counts twice.

What is killed are real Spark drivers with their Java and Python workers, and processes that load without
Spark, by SIGKILL. A process is in the middle of several loads, each of a warehouse of its own, when it dies:
one start of Java serves several kills. TIDEMARK_SOAK_KILLS asks for more kills at random moments than the
usual, and for drivers of Spark in the place of processes without.
"""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import soak
from tests.crash.attacks import kill_at_random
from tests.crash.conftest import Attacked, Stage, new_warehouse
from tests.crash.loader import Kill
from tests.crash.processes import PATIENCE, SOAK_KILLS, LoaderProcess, kill, load_command, start
from tidemark import warehouse

KILLS = SOAK_KILLS or 2
AT_ONCE = 4 if SOAK_KILLS else 2  # loads that one driver is in the middle of when it dies at a random moment

ABOUT = """Drivers run bulk loads, batches of a stream and loads of those batches, in several warehouses
at once, until SIGKILL ends them at a random moment; the next driver goes on with what is there. A reader asks
all warehouses without pause. After each kill nothing was lost or counted twice, and every answer on the way
was right."""

# Every point of a load that merges, and which of the projections reaches it: 1 and 2 are the measures, 3 is
# the key. In the shallow warehouse 4 and 5 are further keys, 6 to 9 the measures by each group. A soak takes
# all of these projections, the tests one for each point; together those are of all kinds.
POINTS = {
    "check": (1,),
    "append": (1,),
    "appended": (1,),
    "plan": (1,),
    "planned": (1,),
    "sort": (1,),
    "sorted": (1,),
    "commit": (5, 1, 9),
    "marked": (3, 2, 6),
    "committed": (8, 4, 5),
    "merge": (4, 1, 7),
    "merged": (7, 1, 4),
    "merge sorted": (9, 3, 5),
    "merge marked": (5, 3, 9),
}
STREAM_POINTS = {
    "plan": (1,),
    "planned": (1,),
    "sorted": (1,),
    "marked": (1,),
    "committed": (2, 1, 3),
    "merge marked": (1,),
    "merged": (1,),
}


def attacked_points(points: dict[str, tuple[int, ...]]) -> list[tuple[str, int]]:
    """The points at which loads are killed, each with the time at which it is reached."""
    return [(point, nth) for point, times in points.items() for nth in times[: None if SOAK_KILLS else 1]]


@pytest.mark.parametrize("submitted", [True, False], ids=["spark-submit", "Python"])
def test_a_bulk_load_killed_at_any_point_is_mended_by_the_next(
    stage: Stage, loaders: Callable[..., LoaderProcess], *, submitted: bool
) -> None:
    """With merges, sorting in chunks and two measures; one point of four in a driver by spark-submit.

    The others without Spark: the points are those of the same loads.
    """
    every = attacked_points(POINTS)
    points = [point for i, point in enumerate(every) if (i % 4 == 2) == submitted]
    # Only the shallow warehouse has more than three projections.
    attacked = [stage.copy("shallow" if i % 2 or nth > 3 else "deep") for i, (_, nth) in enumerate(points)]
    jobs = [one.load_job(10, hold=point, nth=nth) for one, (point, nth) in zip(attacked, points, strict=True)]
    loader = loaders(submitted=submitted, with_spark=submitted or SOAK_KILLS > 0)
    reached = loader.die(Kill(held=len(jobs)), *jobs)
    assert [reached[job.name] for job in jobs] == [point for point, _ in points]
    for one in attacked:
        one.load(10)
    once_more = warehouse.load(stage.spark, attacked[-1].uri, attacked[-1].rows(10), "b10")
    assert once_more.outcome == "known"
    stage.leave(*attacked)


def test_a_load_of_live_batches_killed_at_any_point_is_mended_by_the_next(
    stage: Stage, loaders: Callable[..., LoaderProcess]
) -> None:
    """And batches that arrive between the crash and the next load are loaded after what was planned.

    The points are those of the loads above, of which a quarter is killed in a driver of Spark.
    """
    points = attacked_points(STREAM_POINTS)
    attacked = [stage.copy("deep") for _ in points]
    jobs = [one.stream_job(hold=point, nth=nth) for one, (point, nth) in zip(attacked, points, strict=True)]
    reached = loaders(with_spark=SOAK_KILLS > 0).die(Kill(held=len(jobs)), *jobs)
    assert [reached[job.name] for job in jobs] == [point for point, _ in points]
    for at, one in enumerate(attacked):
        if at % 3 == 0:
            one.stream(11)
        one.load_live()
        assert warehouse.open_snapshot(one.uri).current().info()["live_batches"] == 0
    stage.leave(*attacked)


def test_a_driver_killed_at_random_moments_loses_nothing(
    stage: Stage, loaders: Callable[..., LoaderProcess]
) -> None:
    """Bulk loads, batches of a stream and loads of live batches, one after the other until the driver dies.

    The next driver starts with what the last one may have left undone, and is killed in its turn.
    """
    attacked = [stage.copy("deep" if i % 2 else "shallow") for i in range(AT_ONCE)]
    began, looks = time.monotonic(), stage.looks
    figures = kill_at_random(loaders, attacked, -(-KILLS // AT_ONCE), points=28 * AT_ONCE)
    figures |= stage.left(attacked, began, looks)
    if SOAK_KILLS:
        soak.write_section("Loads that are killed", ABOUT, figures)
    print(soak.table(figures))


def test_a_creation_killed_before_its_first_commit_is_mended_by_the_next(stage: Stage) -> None:
    """A log's folder with no version in it is all that such a kill can leave."""
    uri = stage.folder / f"half-made-{next(stage.names)}"
    log = uri / "events" / "_delta_log"
    log.mkdir(parents=True)
    (log / f".{0:020d}.json.tmp").write_text("{")
    (log / f"{0:020d}.json#1").write_text("{")
    one = new_warehouse(stage.spark, uri.parent, uri.name)
    one.load(10)
    one.check()


def test_a_folder_that_holds_somebody_s_files_is_left_alone(stage: Stage) -> None:
    uri = stage.folder / f"not-ours-{next(stage.names)}"
    theirs = uri / "events" / "important.csv"
    theirs.parent.mkdir(parents=True)
    theirs.write_text("1,2,3")
    with pytest.raises(warehouse.InputError, match=r"holds other files: events/important\.csv"):
        new_warehouse(stage.spark, uri.parent, uri.name)
    assert theirs.read_text() == "1,2,3"
    assert [path for path in uri.rglob("*") if path.is_file()] == [theirs]


def test_spark_submit_of_the_job_killed_is_mended_by_the_job(stage: Stage) -> None:
    """The command that users type: killed once its plan is on disk, and in a soak a random moment later.

    The next one is without Spark, and in a soak by spark-submit, too.
    """
    delays = [0.0, random.Random(5).uniform(0, 2)] if SOAK_KILLS else [0.0]
    attacked = [stage.copy("shallow") for _ in delays]
    jobs = [one.load_job(12).argv for one in attacked]
    logs = [stage.folder / f"submitted-{at}.log" for at in range(len(delays))]
    killed = [start(load_command(*job, spark=True), log) for job, log in zip(jobs, logs, strict=True)]
    for one, process, log, delay in zip(attacked, killed, logs, delays, strict=True):
        wait_for_version(one, "steps", 3, process, log)  # created, and two steps
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(delay)
        kill(process)
    assert killed[0].returncode == -signal.SIGKILL
    again = [
        start(load_command(*job, spark=SOAK_KILLS > 0), log) for job, log in zip(jobs, logs, strict=True)
    ]
    for one, process, log in zip(attacked, again, logs, strict=True):
        assert process.wait(PATIENCE) == 0, log.read_text()
        one.truth.have_arrived(12)
    stage.leave(*attacked)


def wait_for_version(
    one: Attacked, table: str, version: int, process: subprocess.Popen[bytes], log: Path
) -> None:
    """Until the table has that version."""
    while not Path(one.uri, table, "_delta_log", f"{version:020d}.json").exists():
        assert process.poll() is None, log.read_text()
        time.sleep(0.01)
