"""A delete, unload, correction or expiry that is killed is finished by the next call: no row leaves twice.

What is killed are real processes, by SIGKILL, which take rows out of several warehouses while others load and
stream into them. A reader asks all of them without pause: each answer is that of the rows before a change or
after it.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests import soak
from tests.crash.batches import GROUPED, OPTIONS, Gone
from tests.crash.conftest import Attacked, Stage, has, loaded_twice
from tests.crash.loader import Job, Kill
from tests.crash.processes import SOAK_KILLS, LoaderProcess, ReaderProcess
from tests.crash.truth import Change
from tidemark import warehouse

pytestmark = pytest.mark.slow

KILLS = SOAK_KILLS or 2
IN_A_ROW = 4 if SOAK_KILLS else 2  # kills until the warehouses are held against the truth
AT_ONCE = 2 if SOAK_KILLS else 1  # warehouses that one process is in the middle of changing
ABOUT = """A process deletes rows of warehouses, purges some, corrects, unloads and expires others, while it
loads, streams and maintains, until SIGKILL ends it at a random moment; the next process makes the same calls
again. A reader asks all warehouses without pause. In the end exactly the rows that did not leave were there,
once, and every answer on the way was that of the rows before a change or after it."""

# Every commit of a removal; of those that each projection reaches, by its number: 1 to 3 are two measures and
# a key, and in the warehouse with groups 4 to 9 are further keys and the measures by group.
POINTS = {
    "selected": (1,),
    "rewritten": (1,),
    "removal written": (1,),
    "removal planned": (1,),
    "decided": (1,),
    "removal sorted": (1,),
    "removal marked": (2, 1, 3),
    "removal applied": (1, 2, 3),
}
PURGED = ("samples purged", "marks purged", "fences put", "purge recorded")
NAMED = ("batch named", "batch planned")  # of a correction alone
BUILDS = ("removal sorted", "removal marked", "removal applied")  # not of a delete whose rows are kept
BEFORE_THE_RECORD = {"selected", "rewritten", "removal written", *NAMED}
IN_REMOVALS = {*POINTS, *PURGED, *NAMED, "select", "rewrite", "remove", "purge", "records purged"}
IN_REMOVALS |= {"digests purged", "horizon raised"}
DAY_US = 86_400_000_000


@pytest.fixture(scope="module")
def stage(secret: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Warehouses of two steps with a private key; one has groups. Nothing runs in Spark."""
    folder = tmp_path_factory.mktemp("removals")
    with has(secret):
        reader = ReaderProcess(folder)
        models = {"plain": loaded_twice(None, folder / "plain", {**OPTIONS, "private": True})}
        if SOAK_KILLS:
            models["grouped"] = loaded_twice(None, folder / "grouped", GROUPED)
    yield Stage(None, folder, reader, models)
    reader.end()


def where(gone: Gone) -> str:
    """The condition of a delete."""
    return f"page = '{gone.page}' AND time < TIMESTAMP '{moment(gone.before_us):%Y-%m-%d %H:%M:%S}'"


def moment(at_us: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at_us)


def test_a_removal_killed_at_any_point_is_finished_or_never_happened(
    stage: Stage, loaders: Callable[..., LoaderProcess]
) -> None:
    """By the next load, or by the same call. Each other one is a correction, which brings rows, too."""
    every = [(point, nth) for point, times in POINTS.items() for nth in times[: None if SOAK_KILLS else 1]]
    every += [(point, 1) for point in (*NAMED, *PURGED)]
    points = every if SOAK_KILLS else [every[at] for at in (2, 7)]
    attacked = [stage.copy("plain") for _ in points]
    gone, jobs, changes = Gone("/2", 10 * DAY_US // 2), list[Job](), list[Change]()
    for at, (one, (point, nth)) in enumerate(zip(attacked, points, strict=True)):
        is_correction = point in (*NAMED, *BUILDS) or (at % 2 and point not in PURGED)
        changes.append(Change(frozenset({gone, 11} if is_correction else {gone})))
        one.truth.changing([changes[-1]])
        if is_correction:
            jobs.append(one.correct_job(11, gone, hold=point, nth=nth))
        else:
            options = {"where": where(gone), "request": "r", "purge": point in PURGED}
            jobs.append(one.change_job("delete", hold=point, nth=nth, **options))
    reached = loaders().die(Kill(held=len(jobs)), *jobs)
    assert [reached[job.name] for job in jobs] == [point for point, _ in points]
    for at, (one, (point, _), job, change) in enumerate(zip(attacked, points, jobs, changes, strict=True)):
        happened = point not in BEFORE_THE_RECORD
        if at % 4 < 2:
            if happened:
                one.truth.changing([change], [Change(frozenset({10}))])
            one.load(10)
            if happened:
                one.truth.have_changed([change])
            else:
                one.check()
        if at % 4 >= 2 or not happened:
            if not happened:
                one.truth.changing([change])
            job.changed(None)
            one.truth.have_changed([change])
    stage.leave(*attacked)


def test_removals_killed_at_random_moments_take_each_row_once(
    stage: Stage, loaders: Callable[..., LoaderProcess]
) -> None:
    attacked = [stage.copy("grouped" if at % 2 else "plain") for at in range(AT_ONCE)]
    began, looks, moments, figures = time.monotonic(), stage.looks, random.Random(9), Counter[str]()
    coming = loaders()
    for number in range(-(-KILLS // IN_A_ROW)):
        rounds = [Round.of(one, number, at) for at, one in enumerate(attacked)]
        for _ in range(IN_A_ROW):
            process, coming = coming, loaders()
            when = Kill(points=moments.randrange(1, 90 * AT_ONCE), delay=moments.uniform(0, 0.4))
            reached = process.die(when, *(job for one in rounds for job in one.jobs))
            process.end()
            assert process.foreign_errors() == []
            assert [text for text in process.ended.values() if text] == []
            figures["processes killed"] += 1
            figures["calls that a kill cut off"] += len(reached)
            figures["of them while rows left"] += sum(point in IN_REMOVALS for point in reached.values())
        for one in rounds:
            one.finish()
        figures["whole warehouses held against the truth"] += len(attacked)
    coming.end()
    figures |= stage.left(attacked, began, looks)
    if SOAK_KILLS:
        soak.write_section("Rows that leave while processes are killed", ABOUT, figures)
    print(soak.table(figures))


@dataclass
class Round:
    """What a warehouse goes through until it is held against the truth: calls one after the other, thrice.

    loads, streams   what comes: the batch `bulk`, and the batch `streamed` of a stream, which is loaded
    leaves           a delete or purge, a correction, the unload of an earlier bulk batch, an expiry
    changes          what may be seen of these
    """

    attacked: Attacked
    loads: list[Job]
    streams: list[Job]
    leaves: list[Job]
    changes: list[list[Change]]
    bulk: int
    streamed: int

    @classmethod
    def of(cls, attacked: Attacked, number: int, at: int) -> Round:
        """The `number`-th round: its batches are younger than the rows that leave in it."""
        bulk, streamed, fix = (10 + 3 * number + i for i in range(3))
        young = bulk * DAY_US // 2  # no row of the new batches is older
        old = Gone(f"/{2 + (number + at) % 4}", young)
        wrong = Gone(f"/{6 + (number + at) % 3}", young)
        expired = Gone(None, max(1, (bulk - 14) // 2) * DAY_US)
        unloaded = 1 if number == 0 else bulk - 3
        leaving = [
            Change(frozenset({old})),
            Change(frozenset({wrong, fix})),
            Change(go=frozenset({unloaded})),
            Change(frozenset({expired})),
        ]
        changes = [[Change(frozenset({bulk}))], [Change(frozenset({streamed}))], leaving]
        attacked.truth.changing(*changes)
        delete: dict[str, Any] = {
            "where": where(old),
            "request": f"r{number}",
            "purge": (number + at) % 2 == 0,
        }
        leaves = [
            attacked.change_job("delete", **delete),
            attacked.correct_job(fix, wrong),
            attacked.change_job("unload", batch=f"b{unloaded}"),
            attacked.change_job("expire", before=moment(expired.before_us)),
        ]
        loads = [attacked.load_job(bulk), attacked.maintain_job()]
        streams = [attacked.append_job(streamed, attacked.streamed), attacked.stream_job()]
        return cls(attacked, loads, streams, leaves, changes, bulk, streamed)

    @property
    def jobs(self) -> list[Job]:
        """Three at once; there is always more to do, so a kill comes in the middle of something."""
        more = [self.attacked.maintain_job()] * 50
        chains = {"loads": self.loads, "streams": self.streams, "leaves": [*self.leaves, *more]}
        name = Path(self.attacked.uri).name
        return [
            replace(chain[0], name=f"{name} {what}", then=tuple(chain[1:])) for what, chain in chains.items()
        ]

    def finish(self) -> None:
        """All of it again; then the rows are those that should be there, once."""
        one = self.attacked
        for job in self.leaves:
            job.changed(None)
        one.load(self.bulk)
        one.stream(self.streamed)
        one.load_live()
        one.truth.have_changed(*self.changes)
        again = self.leaves[0].call
        assert again is not None
        assert warehouse.delete(None, one.uri, again[1]["where"]).outcome == "empty"
        one.check()
