"""Runs of which no row is left count as empty at once: nothing of them is counted, subtracted or merged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from tests.killing import Killed, killer
from tests.query.groupworld import HOUR, KEEPS, ONE, START, TINY, GroupWorld, Row
from tidemark import warehouse
from tidemark.warehouse.delta import idle_tables, tables
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.errors import DamagedWarehouse
from tidemark.warehouse.events.removals import Removed
from tidemark.warehouse.removals import finish
from tidemark.warehouse.runs import run_tables
from tidemark.warehouse.runs.levels import Run
from tidemark.warehouse.settings.alterations import Asked, declared
from tidemark.warehouse.settings.options import Options, read_options
from tidemark.warehouse.snapshots import kept_rows, snapshot
from tidemark.warehouse.snapshots.snapshot import Snapshot

BATCH_3 = "time = '2024-01-01T03:00:00Z'"
Told = dict[str, int]


def rows(batch: int) -> list[Row]:
    """The rows of a batch have one hour of their own, those of the first three a day before all others."""
    start = START - 48 * HOUR if batch < 3 else START
    return [(start + batch * HOUR, "ab"[i % 2], i % 5, float(i), None) for i in range(20)]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> GroupWorld:
    """Five steps in history: one run of three, and two of level 0; one more load merges all."""
    batches = [(True, rows(batch)) for batch in range(5)]
    return GroupWorld.of(tmp_path_factory.mktemp("made"), batches, measures=ONE, groups=["origin"])


@pytest.fixture
def world(made: GroupWorld, tmp_path: Path) -> GroupWorld:
    return made.copy(tmp_path)


def told(world: GroupWorld) -> Told:
    """How many rows each way to ask finds: a measure, a key, a group, a scan."""
    wh = world.open()
    return {
        "measure": wh.quantile(0.5, "value", mode="exact").N,
        "summary": wh.summary("value").N,
        "key": wh.frequency("a", mode="exact").count,
        "distinct": wh.distinct(mode="exact").count,
        "group": wh.quantile(0.5, "value", where={"origin": "a"}).N,
        "scan": wh.quantile(0.5, "value", where="origin < 'b'").N,
    }


def expected(*batches: int, without: float | None = None) -> Told:
    left = [row for batch in batches for row in rows(batch) if row[3] != without]
    of_a = sum(row[1] == "a" for row in left)
    found = {"measure": len(left), "summary": len(left), "key": of_a, "distinct": len({r[1] for r in left})}
    return {**found, "group": of_a, "scan": of_a}


def layouts(world: GroupWorld) -> dict[str, list[tuple[Run, int]]]:
    """The runs of each projection with the rows of their files."""
    store = Store.from_uri(world.path)
    names = [one.runs_table for one in read_options(store).projections]
    found = {name: run_tables.runs_of(tables.open_table(store, name)) for name in names}
    return {
        name: [(run, sum(file.rows for file in files)) for run, files in sorted(runs.items())]
        for name, runs in found.items()
    }


def attempts(world: GroupWorld) -> dict[str, dict[Run, str]]:
    """The runs of each projection with the path of their first file."""
    store = Store.from_uri(world.path)
    names = [one.runs_table for one in read_options(store).projections]
    found = {name: run_tables.runs_of(tables.open_table(store, name)) for name in names}
    return {name: {run: files[0].path for run, files in runs.items()} for name, runs in found.items()}


def unload(world: GroupWorld, batch: int, **options: Any) -> warehouse.RemovalReport:
    return warehouse.unload(None, world.path, f"batch {batch}", **{"tuning": TINY, **options})


def is_right(world: GroupWorld, wanted: Told) -> bool:
    return told(world) == wanted and warehouse.verify(world.path).ok


def test_the_unload_of_a_whole_run_writes_no_run_and_no_marks(world: GroupWorld) -> None:
    before = layouts(world)
    planned = unload(world, 3, dry_run=True)
    report = unload(world, 3)
    assert (report.rows, report.runs_rewritten, planned.runs_rewritten) == (20, {}, {})
    assert layouts(world) == before
    assert is_right(world, expected(0, 1, 2, 4))
    listed = world.open().sql("SELECT level, first_step, last_step FROM runs WHERE projection = 'value'")
    assert sorted(listed.fetchall()) == [(0, 3, 3), (0, 4, 4), (1, 0, 2)]  # it is still there


def test_it_opens_no_marks(world: GroupWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    opened, taken = set[str](), idle_tables.taken

    def telling(store: Store, name: str) -> idle_tables.IdleTable:
        opened.add(name)
        return taken(store, name)

    monkeypatch.setattr(idle_tables, "taken", telling)
    unload(world, 3)
    assert {"events", *layouts(world)} <= opened
    assert not [name for name in opened if "marks" in name]


@pytest.mark.parametrize("point", ["planned", "merge sorted"])
@pytest.mark.parametrize("is_broken", [False, True])
def test_what_a_killed_load_left_is_done_first(
    world: GroupWorld, monkeypatch: pytest.MonkeyPatch, point: str, *, is_broken: bool
) -> None:
    """A step that no projection has, or a level with too many runs."""
    if is_broken:
        monkeypatch.setattr(import_module("tidemark.warehouse.load"), "is_caught_up", lambda _: True)
    with pytest.raises(Killed):
        world.add(rows(5), load=True, progress=killer(point))
    unload(world, 3)
    assert all(len(runs) == 2 for runs in layouts(world).values()) is not is_broken


def test_maintenance_puts_an_empty_run_in_its_place(world: GroupWorld) -> None:
    unload(world, 3)
    unload(world, 4)
    warehouse.maintain(None, world.path, tuning=TINY)
    assert all(runs[1:] == [(Run(3, 4, 0), 0)] for runs in layouts(world).values())
    assert is_right(world, expected(0, 1, 2))


def test_a_merge_leaves_it_out(world: GroupWorld) -> None:
    unload(world, 3)
    world.add(rows(5), load=True)
    assert all([run for run, _ in runs] == [Run(0, 2, 1), Run(3, 5, 1)] for runs in layouts(world).values())
    assert is_right(world, expected(0, 1, 2, 4, 5))


def test_a_merge_of_such_runs_alone_makes_an_empty_one(world: GroupWorld) -> None:
    warehouse.alter(None, world.path, kappa=9, tuning=TINY)
    world.add(rows(5), load=True)
    for batch in (3, 4, 5):
        unload(world, batch)
    warehouse.alter(None, world.path, kappa=2, tuning=TINY)
    assert all(runs[1:] == [(Run(3, 5, 1), 0)] for runs in layouts(world).values())
    assert is_right(world, expected(0, 1, 2))


def test_rows_that_expire_leave_the_same_way(world: GroupWorld) -> None:
    before = layouts(world)
    report = warehouse.expire(None, world.path, before=START.date(), tuning=TINY)
    assert (report.rows, report.runs_rewritten) == (60, {})
    assert layouts(world) == before
    assert is_right(world, expected(3, 4))


def test_rows_that_left_before_are_not_subtracted_from_it(
    world: GroupWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse.delete(None, world.path, "value = 6", tuning=KEEPS)
    assert told(world) == expected(*range(5), without=6)
    unload(world, 3, tuning=KEEPS)
    wanted = expected(0, 1, 2, 4, without=6)
    assert is_right(world, wanted)
    with monkeypatch.context() as broken:
        waiting = kept_rows.waiting_of

        def of_all_runs(removed: Removed, runs: Any, last_step: int) -> Any:
            of_run = next(files for run, files in runs.items() if run.first == 4)  # net of nothing, too
            return waiting(removed, {**runs, Run(3, 3, 0): of_run}, last_step)

        broken.setattr(snapshot, "waiting_of", of_all_runs)
        assert not is_noticed_as_right(world, wanted)
    warehouse.maintain(None, world.path, tuning=TINY)
    assert is_right(world, wanted)


def is_noticed_as_right(world: GroupWorld, wanted: Told) -> bool:
    """Whether answers are as wanted; one that is refused is not."""
    try:
        return told(world) == wanted
    except warehouse.TidemarkError:
        return False


def test_a_reader_that_counts_its_rows_is_noticed(world: GroupWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    unload(world, 3)
    monkeypatch.setattr(Snapshot, "marks_with_rows", Snapshot.marks)
    assert told(world) != expected(0, 1, 2, 4)
    assert not warehouse.verify(world.path).ok


def test_its_marks_are_not_read(world: GroupWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """A question needs none of them, so it is answered without those that are damaged."""
    unload(world, 3)
    marks = list(world.path.glob(f"*marks*/**/run={Run(3, 3, 0).name}/*.parquet"))
    assert len(marks) >= len(layouts(world))
    for path in marks:
        path.write_bytes(b"damaged")

    def of_all_runs(snapshot: Snapshot, projection: Any) -> tuple[Any, ...]:
        emptied = snapshot.state.emptied(projection.runs_table)
        return tuple(marks for marks in snapshot.marks(projection) if marks.run not in emptied)

    assert told(world) == expected(0, 1, 2, 4)
    monkeypatch.setattr(Snapshot, "marks_with_rows", of_all_runs)
    with pytest.raises(DamagedWarehouse):
        told(world)


@pytest.mark.parametrize("is_emptied", [True, False])
def test_rows_that_left_before_take_no_room(world: GroupWorld, *, is_emptied: bool) -> None:
    """10 rows are kept of a step, which leaves then, or does not; 8 or 10 more rows are to be kept of 15."""
    few = replace(TINY, kept_rows=15)
    assert warehouse.delete(None, world.path, f"{BATCH_3} AND value >= 10", tuning=few).rows == 10
    if is_emptied:
        unload(world, 3, tuning=few)
    report = warehouse.delete(None, world.path, "value < 2", tuning=few)
    assert (report.rows, not report.runs_rewritten) == ((8, True) if is_emptied else (10, False))


@pytest.mark.parametrize("is_broken", [False, True])
def test_what_is_left_of_steps_is_counted_once_a_state(
    world: GroupWorld, monkeypatch: pytest.MonkeyPatch, *, is_broken: bool
) -> None:
    warehouse.delete(None, world.path, "value = 6", tuning=KEEPS)
    unload(world, 3, tuning=KEEPS)
    state = warehouse.open_snapshot(world.path).current().state
    counted, count = Counter[int](), Removed.rows_by_step

    def counting(removed: Removed, plans: Any) -> Counter[int]:
        counted[removed.number] += 1
        return count(removed, plans)

    monkeypatch.setattr(Removed, "rows_by_step", counting)
    before = state.removed.up_to(0)
    for _ in range(3):
        for name in layouts(world):
            if is_broken:
                state._left.clear()
            assert state.emptied(name) == {Run(3, 3, 0)}
            assert state._emptied(name, before) == frozenset()
    assert (max(counted.values()) == 1) is not is_broken


@pytest.mark.parametrize("point", ["removal planned", "decided"])
def test_a_killed_unload_is_finished_by_the_next_load(world: GroupWorld, point: str) -> None:
    with pytest.raises(Killed):
        unload(world, 3, progress=killer(point))
    assert told(world) == (expected(0, 1, 2, 4) if point == "decided" else expected(*range(5)))
    world.add(rows(5), load=True)
    assert is_right(world, expected(0, 1, 2, 4, 5))


def test_the_batch_may_come_again_and_what_left_is_restored(world: GroupWorld) -> None:
    removal = unload(world, 3).removal
    assert removal is not None
    warehouse.restore(world.path, removal=removal)
    assert is_right(world, expected(*range(5)))


def test_a_purge_leaves_no_file_with_the_rows(world: GroupWorld) -> None:
    unload(world, 3)
    warehouse.delete(None, world.path, "number = 99", purge=True, tuning=TINY)
    assert all(dict(runs)[Run(3, 3, 0)] == 0 for runs in layouts(world).values())
    assert is_right(world, expected(0, 1, 2, 4))


def test_a_projection_that_is_added_later_has_no_rows_of_it(world: GroupWorld) -> None:
    unload(world, 3)
    warehouse.alter(None, world.path, add_key="number", tuning=TINY)
    assert world.open().frequency(1, key="number", mode="exact").count == 4 * 4
    assert warehouse.verify(world.path).ok


def test_repair_keeps_it_without_rows(world: GroupWorld) -> None:
    unload(world, 3)
    for marks in (world.path / "marks" / "value").glob("run=L00*/*.parquet"):
        marks.unlink()
    warehouse.repair(None, world.path, tuning=TINY)
    assert is_right(world, expected(0, 1, 2, 4))


def forget_merges(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(finish, "_keep_from_merges", lambda *_: None)


def forget_earlier_kappas(patch: pytest.MonkeyPatch) -> None:
    read = read_options
    patch.setattr(finish, "read_options", lambda *given: replace(read(*given), least_kappa=None))


@pytest.mark.parametrize(
    ("kappa", "mistake"), [(None, None), (9, None), (None, forget_merges), (9, forget_earlier_kappas)]
)
def test_a_merge_that_began_before_does_not_bring_it_back(
    world: GroupWorld,
    monkeypatch: pytest.MonkeyPatch,
    kappa: int | None,
    mistake: Callable[[pytest.MonkeyPatch], None] | None,
) -> None:
    """A load begins, and sorts its merge, just before the record; it commits the merge after the decision.

    Meanwhile kappa may get a value with which no merge is due.
    """
    if mistake is not None:
        mistake(monkeypatch)
    held, goes_on, seen = Event(), Event(), list[Told]()

    def merging(point: str) -> None:
        if point == "merge sorted":
            held.set()
            goes_on.wait(60)
        elif point == "merged" and goes_on.is_set():
            seen.append(told(world))

    loading = Thread(target=lambda: world.add(rows(5), load=True, progress=merging))

    def unloading(point: str) -> None:
        if point == "removal written":
            loading.start()
            held.wait(60)
            if kappa is not None:
                warehouse.alter(None, world.path, kappa=kappa, tuning=TINY)
        elif point == "decided":
            goes_on.set()
            loading.join(60)

    unload(world, 3, progress=unloading)
    assert seen
    if mistake is not None:
        assert seen[0] != expected(0, 1, 2, 4, 5)
    else:
        assert all(one == expected(0, 1, 2, 4, 5) for one in seen)
    assert is_right(world, expected(0, 1, 2, 4, 5))


def test_the_smallest_kappa_so_far_is_kept() -> None:
    options, found = Options(("x",), None, None, 0.1, 5, 0), []
    for kappa in (5, 9, 3, 4):
        options = declared(options, Asked.of(kappa=kappa), lambda: -1)
        found.append((options.kappa, options.least_kappa))
    assert found == [(5, None), (9, 5), (3, 3), (4, 3)]
    assert options.smallest_kappa == 3
    by_earlier_version = replace(options, kappa=2)  # it does not know of the smallest one
    assert by_earlier_version.smallest_kappa == 2
    later = declared(by_earlier_version, Asked.of(kappa=6), lambda: -1)
    assert (later.kappa, later.least_kappa) == (6, 2)


def test_a_merge_waits_for_the_decision(world: GroupWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """A load that comes to its merges without having seen the record leaves them to who decides it."""
    with pytest.raises(Killed):
        unload(world, 3, progress=killer("removal planned"))
    with monkeypatch.context() as patch:
        patch.setattr(import_module("tidemark.warehouse.load"), "finish_open", lambda _: None)
        world.add(rows(5), load=True)
    assert all(len(runs) == 4 for runs in layouts(world).values())
    assert told(world) == expected(*range(6))
    warehouse.load(None, world.path, tuning=TINY)
    assert all(len(runs) == 2 for runs in layouts(world).values())
    assert is_right(world, expected(0, 1, 2, 4, 5))


@pytest.mark.parametrize("point", ["removal planned", "removal marked", "removal applied"])
def test_a_kill_while_runs_are_kept_from_a_merge(world: GroupWorld, point: str) -> None:
    """Level 0 has too many runs just before the record, since the merge of a smaller kappa was killed."""
    warehouse.alter(None, world.path, kappa=9, tuning=TINY)
    world.add(rows(5), load=True)
    before, ends = attempts(world), killer(point)

    def merging(name: str) -> None:
        if name == "removal written":
            with pytest.raises(Killed):
                warehouse.alter(None, world.path, kappa=2, tuning=TINY, progress=killer("merge sorted"))
        ends(name)

    with pytest.raises(Killed):
        unload(world, 3, progress=merging)
    assert (attempts(world) != before) is (point == "removal applied")
    assert told(world) == expected(*range(6))
    warehouse.load(None, world.path, tuning=TINY)
    assert all(len(runs) == 2 for runs in layouts(world).values())
    assert is_right(world, expected(0, 1, 2, 4, 5))
