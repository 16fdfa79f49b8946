"""Writers that are overtaken by a removal, and removals that are overtaken, put nothing back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.killing import Killed, killer
from tests.query.groupworld import HOUR, ONE, SCHEMA, START, TINY, GroupWorld, Row
from tidemark import stream, warehouse
from tidemark.warehouse import BatchMismatch
from tidemark.warehouse.columns.ticks import NO_TICK
from tidemark.warehouse.errors import NotBuilt
from tidemark.warehouse.events.removed_rows import left_rows
from tidemark.warehouse.ingest import same_rows
from tidemark.warehouse.runs import run_tables


def rows(batch: int, count: int = 30) -> list[Row]:
    return [(START + (batch + i) * HOUR, "ab"[i % 2], i % 5, float(i), None) for i in range(count)]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> GroupWorld:
    """Five steps in history: one run of three, and two of level 0."""
    batches = [(True, rows(batch)) for batch in range(5)]
    folder = tmp_path_factory.mktemp("made")
    return GroupWorld.of(folder, batches, measures=ONE, groups=[], keys=["origin"])


@pytest.fixture
def world(made: GroupWorld, tmp_path: Path) -> GroupWorld:
    return made.copy(tmp_path)


def delete(world: GroupWorld, number: int, **options: Any) -> warehouse.RemovalReport:
    return warehouse.delete(None, world.path, f"number = {number}", tuning=TINY, **options)


def check(world: GroupWorld, *gone: int) -> None:
    """A new reader sees the rows that are left, in a measure, a key and a scan."""
    left = [row for row in world.rows if row[2] not in gone]
    wh = world.open()
    of_a = sum(row[1] == "a" for row in left)
    scanned = wh.quantile(0.5, "value", where="origin < 'b'").N
    told = (wh.quantile(0.5, "value", mode="exact").N, wh.frequency("a", mode="exact").count, scanned)
    assert told == (len(left), of_a, of_a)


def by_name(files: Any, others: Any) -> bool:
    """The broken variant: a run with the same name counts as the same run, whatever its files."""
    return bool(files) and bool(others)


def overtaken(
    at: str, act: Callable[[], object], then: str, look: Callable[[], None]
) -> Callable[[str], None]:
    """Acts where a call reaches `at` for the first time, and looks wherever it reaches `then` after that."""
    done: list[str] = []

    def reached(point: str) -> None:
        if done and point == then:
            look()
        elif point == at and not done:
            done.append(point)
            act()

    return reached


@pytest.mark.parametrize("is_broken", [False, True])
def test_a_rewrite_that_a_second_removal_overtook_is_not_put_in_place(
    world: GroupWorld, monkeypatch: pytest.MonkeyPatch, *, is_broken: bool
) -> None:
    """The first removal has built the runs; another process puts its own in place, and removes more rows."""
    if is_broken:
        monkeypatch.setattr(run_tables, "_are_same", by_name)
    reached = overtaken(
        "removal sorted", lambda: delete(world, 2), "removal applied", lambda: check(world, 1, 2)
    )
    if is_broken:
        with pytest.raises((AssertionError, NotBuilt)):
            delete(world, 1, progress=reached)
        return
    assert delete(world, 1, progress=reached).outcome == "removed"
    check(world, 1, 2)
    assert warehouse.verify(world.path).ok


@pytest.mark.parametrize("is_broken", [False, True])
def test_a_merge_whose_inputs_a_removal_wrote_again_is_not_put_in_place(
    world: GroupWorld, monkeypatch: pytest.MonkeyPatch, *, is_broken: bool
) -> None:
    """Two merge the same runs: one has its output, the other is told of a greater kappa and removes rows."""
    if is_broken:
        monkeypatch.setattr(run_tables, "_are_same", by_name)

    def overtake() -> None:
        warehouse.alter(None, world.path, kappa=9, tuning=TINY)
        delete(world, 1)

    came = rows(7)
    seen: list[int] = []

    def look() -> None:
        seen.append(len(world.rows))
        left = [row for row in (*world.rows, *came) if row[2] != 1]
        assert len(left) == world.open().quantile(0.5, "value", mode="exact").N

    reached = overtaken("merge sorted", overtake, "merged", look)
    if is_broken:
        with pytest.raises((AssertionError, NotBuilt)):
            world.add(came, load=True, progress=reached)
        return
    world.add(came, load=True, progress=reached)
    assert seen
    check(world, 1)
    assert warehouse.verify(world.path).ok


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"PAR1")])
def test_a_removal_that_lost_its_file_before_it_was_decided_is_void(
    world: GroupWorld, damage: Callable[[Path], object]
) -> None:
    with pytest.raises(Killed):
        delete(world, 1, progress=killer("removal planned"))
    (file,) = (world.path / "removed").glob("*.parquet")
    damage(file)
    world.add(rows(8), load=True)
    check(world)
    warehouse.maintain(None, world.path, tuning=TINY)
    assert delete(world, 1).removal == 1
    check(world, 1)
    assert warehouse.verify(world.path).ok


def test_a_batch_with_refused_rows_is_known_after_its_newest_row_was_deleted(
    world: GroupWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock of the first time is not known: times up to the latest that the batch had were taken."""
    newest = (START + 99 * HOUR, "a", 77, 1.0, None)
    given = [*rows(6), newest, (datetime(2999, 1, 1, tzinfo=UTC), "b", 1, 1.0, None)]
    columns = {name: [row[i] for row in given] for i, name in enumerate(SCHEMA.names)}
    table = pa.table(columns, schema=SCHEMA)

    def append() -> bool:
        return stream.append(None, world.path, table, source="s", batch=9, tuning=TINY)

    assert append()
    assert delete(world, 77).rows == 1
    assert not append()

    def without(*given: Any) -> Any:
        return replace(left_rows(*given), latest=NO_TICK)

    monkeypatch.setattr(same_rows, "left_rows", without)  # the broken variant
    with pytest.raises(BatchMismatch, match="content differs"):
        append()
