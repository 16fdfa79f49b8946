"""Kills at random moments, of whatever writes to warehouses, wherever these lie."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import repeat

from tests.crash.conftest import Attacked
from tests.crash.loader import Job, Kill
from tests.crash.processes import LoaderProcess

# The points of a load from its plan on.
IN_LOADS = {"plan", "planned", "sort", "sorted", "commit", "marked", "committed"}
IN_LOADS |= {"merge", "merge sorted", "merge marked", "merged"}


def kill_at_random(
    start: Callable[..., LoaderProcess],
    attacked: Sequence[Attacked],
    rounds: int,
    *,
    points: int,
    in_a_row: int = 1,
    seed: int = 4,
) -> Counter[str]:
    """Processes work on all the warehouses at once until they are killed; what they did, in figures.

    start     starts a loader process; half of those with Spark by spark-submit
    rounds    each has new batches, and ends with warehouses that are held against the truth
    points    a kill comes a moment after the jobs have reached a random number of points below this one
    in_a_row  how often in a round the jobs are killed; the next process runs the same jobs again
    """
    moments, figures = random.Random(seed), Counter[str]()
    with_spark = attacked[0].spark is not None
    drivers = started_ahead(start, rounds * in_a_row, moments, with_spark=with_spark)
    for round_ in range(rounds):
        numbers = [20 + 2 * round_, 21 + 2 * round_]
        for _ in range(in_a_row):
            driver = next(drivers)
            jobs = [work(one, round_, numbers) for one in attacked]
            when = Kill(points=moments.randrange(1, points), delay=moments.uniform(0, 0.4))
            reached = driver.die(when, *jobs)
            driver.end()
            assert driver.foreign_errors() == []
            figures["processes killed"] += 1
            figures["jobs that a kill cut off"] += len(jobs)
            figures["of them while files were sorted, committed or merged"] += sum(
                point in IN_LOADS for point in reached.values()
            )
        with ThreadPoolExecutor(len(attacked)) as pool:
            list(pool.map(finish, attacked, repeat(numbers)))
        figures["whole warehouses held against the truth"] += len(attacked)
    return figures


def started_ahead(
    start: Callable[..., LoaderProcess], count: int, moments: random.Random, *, with_spark: bool
) -> Iterator[LoaderProcess]:
    """So many processes, each of them on its way while the one before is at work."""
    coming = start(submitted=with_spark)
    for _ in range(count - 1):
        driver, coming = coming, start(submitted=with_spark and bool(moments.getrandbits(1)))
        yield driver
    yield coming


def work(one: Attacked, round_: int, numbers: list[int]) -> Job:
    """A bulk batch, a batch of the stream, a load of it and maintenance; their order differs by round."""
    bulk, append = one.load_job(numbers[0]), one.append_job(numbers[1], one.streamed)
    live, maintain = one.stream_job(), one.maintain_job()
    jobs = [
        [bulk, append, live, maintain],
        [append, live, maintain, bulk],
        [maintain, append, bulk, live],
    ][round_ % 3]
    # There is always more to do, so the process is killed in the middle of something.
    return replace(jobs[0], then=(*jobs[1:], *([bulk, maintain] * 25)))


def finish(one: Attacked, numbers: list[int]) -> None:
    """What the killed process was told to do, again; then all is there, once."""
    one.load(numbers[0])
    one.stream(numbers[1])
    one.load_live()
    one.check()
