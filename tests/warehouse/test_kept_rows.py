"""Rows that left and that runs still have: every question subtracts them, against a list of the rows left."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.killing import Killed, killer
from tests.query.groupworld import HOUR, KEEPS, ONE, START, TINY, GroupWorld, Row, Truth, check_quantile
from tests.query.keyoracle import check_key, counts
from tests.query.tally import Tally
from tests.soak import HAS_ALL
from tests.warehouse.test_remove import table_of
from tidemark import query, warehouse
from tidemark.warehouse import DamagedWarehouse, InputError
from tidemark.warehouse.companions import declared, kinds
from tidemark.warehouse.delta import tables
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import REMOVALS, REMOVED
from tidemark.warehouse.events.removals import read_removals
from tidemark.warehouse.events.removed_rows import has_rows
from tidemark.warehouse.removals.room_to_keep import Room

WINDOWS: list[tuple[datetime, datetime] | None] = [
    None,
    (START + 3 * HOUR, START + 11 * HOUR),
    (START + 2.5 * HOUR, START + 9.25 * HOUR),  # inside ticks: for questions about keys
]
FEW = WINDOWS if HAS_ALL else WINDOWS[:1]  # of all rows alone, where other checks have the windows, too
POINTS = ["rewritten", "removal written", "removal planned", "decided"]


@pytest.fixture(scope="module", autouse=True)
def registered() -> Any:
    warehouse.register_companion(Tally())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(declared, "BUDGET", 1)  # one cell a run
        yield
    kinds._REGISTERED.pop("tally", None)


def rows(batch: int) -> list[Row]:
    """Numbers, NaN and NULL of all columns, in twenty hours and without a time; a tenth has number 3."""
    found: list[Row] = []
    for i in range(60):
        value = [None, math.nan, math.inf, -0.0, float((7 * i + batch) % 13)][min(i % 9, 4)]
        time = None if i % 17 == 16 else START + (i % 20) * HOUR + i * HOUR / 100
        found.append((time, ["a", "b", "a", "é", None][i % 5], i % 10, value, None))
    return found


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> GroupWorld:
    """Four steps in history, three of them one run, and two live batches."""
    options: dict[str, Any] = {"groups": ["origin"], "companions": {"origins": ("tally", "origin")}}
    world = GroupWorld.create(tmp_path_factory.mktemp("made"), ONE, **options)
    for batch in range(6):
        world.add(rows(batch), load=batch < 4)
    return world


@pytest.fixture
def world(made: GroupWorld, tmp_path: Path) -> GroupWorld:
    return made.copy(tmp_path)


def delete(world: GroupWorld, number: int, **options: Any) -> warehouse.RemovalReport:
    return warehouse.delete(None, world.path, f"number = {number}", **{"tuning": KEEPS, **options})


def keep(world: GroupWorld, *gone: int) -> None:
    """The rows of the oracle without those with these numbers."""
    world.rows[:] = [row for row in world.rows if row[2] not in gone]
    world._truths.clear()


def inside(world: GroupWorld, window: Any) -> list[Row]:
    return [row for row in world.rows if window is None or (row[0] and window[0] <= row[0] < window[1])]


def check_measures(world: GroupWorld, wh: query.Warehouse, window: Any) -> None:
    truth = world.truth("value", {}, window)
    for mode in ("quick", "accurate", "exact"):
        for answer in wh.quantile([0, 0.2, 0.5, 0.8, 1], "value", between=window, mode=mode):
            check_quantile(answer, truth, mode)
        points = [-math.inf, 0.0, 3.5, math.inf]
        for ranked, shared in zip(
            wh.rank(points, "value", between=window, mode=mode),
            wh.cdf(points, "value", between=window, mode=mode),
            strict=True,
        ):
            rank = truth.rank(ranked.value)
            assert ranked.rank_lo <= rank <= ranked.rank_hi
            assert mode == "quick" or ranked.rank == rank
            assert shared.cdf_lo <= rank / truth.n <= shared.cdf_hi
    finite = [number for number in truth.numbers if math.isfinite(number)]
    summary = wh.summary("value", between=window)
    assert (summary.count, summary.N, summary.nulls) == (len(finite), truth.n, truth.nulls)
    assert (summary.min, summary.max) == (truth.numbers[0], truth.numbers[-1])
    assert summary.positive_infinities == len(truth.numbers) - len(finite)
    assert [one.value for one in wh.largest(3, "value", between=window)] == truth.numbers[:-4:-1]
    assert [one.value for one in wh.smallest(3, "value", between=window)] == truth.numbers[:3]
    assert sum(one.count for one in wh.histogram([-1, 3, 6, 14], "value", between=window).bins) == len(finite)


def check_groups(world: GroupWorld, wh: query.Warehouse, window: Any) -> None:
    """Single groups, all of them, and the largest; read by block and from memory."""
    groups = world.groups(["origin"], window)
    for mode in ("quick", "accurate"):
        answers = wh.quantile(0.5, "value", by="origin", between=window, mode=mode)
        assert [(answer.group or {})["origin"] for answer in answers] == [origin for (origin,) in groups]
        for answer in answers:
            check_quantile(answer, world.truth("value", dict(answer.group or {}), window), mode)
    largest = wh.rank(3.0, "value", by="origin", top=1, between=window)
    (most, n), *_ = counts(world, "origin", window)[0].most_common(1)
    assert largest[0].group == {"origin": most}
    assert n == sum(row[1] == most for row in inside(world, window))


def check_keys(world: GroupWorld, wh: query.Warehouse, window: Any) -> None:
    if window is None or not window[0].minute:
        check_key(world, "origin", window, wh)
    true, _ = counts(world, "origin", window)
    for mode in ("exact", "approximate"):
        how: dict[str, Any] = {"between": window, "mode": mode}
        distinct = wh.distinct(**how)
        assert distinct.least <= len(true) <= distinct.most
        assert wh.overlap(window, (START + 12 * HOUR, START + 14 * HOUR), mode=mode).both.most >= 1
        prefixes = {one.prefix: one for one in wh.hierarchy(0.01, ".", **how)}
        assert all(one.lo <= true[name] <= one.hi for name, one in prefixes.items())
        assert set(true) <= set(prefixes)
    for name in ("a", "b", "absent"):
        hours = {
            row[0].replace(minute=0, second=0, microsecond=0)
            for row in inside(world, window)
            if row[0] and row[1] == name
        }
        answer = wh.persistence(name, between=window)
        assert answer.lo <= len(hours) <= answer.hi
        assert hours <= {one[0] for one in (*answer.present, *answer.maybe)}
        if window is None or not window[0].minute:
            assert answer.lo == answer.hi
            found = {one.value: one.slots for one in wh.persistent(0.05, between=window)}
            assert found.get(name, 0) == len(hours) or len(hours) < 0.05 * answer.window_slots


def check(world: GroupWorld, wh: query.Warehouse | None = None, windows: Any = WINDOWS) -> None:
    """Every question is answered as the list tells, in windows, by group and by key, and verify holds."""
    wh = world.open() if wh is None else wh
    for window in windows:
        if window is None or not window[0].minute:
            check_measures(world, wh, window)
            check_groups(world, wh, window)
            tally = wh.companion("origins", between=window)
            assert sum(row[1] is not None for row in inside(world, window)) == tally.N
        check_keys(world, wh, window)
    daily = wh.quantile(0.5, "value", every="4h", mode="exact", last="16h")
    for answer in daily:
        own = [row[3] for row in inside(world, answer.window)]
        assert (answer.N, answer.value) == (Truth.of(own).n, Truth.of(own).quantile(0.5))
    assert [one.N for one in wh.distinct(every="4h")] == [
        sum(row[1] is not None for row in inside(world, one.window)) for one in wh.distinct(every="4h")
    ]
    assert wh.sql("SELECT count(*) FROM events").fetchall() == [(len(world.rows),)]
    report = warehouse.verify(world.path)
    assert report.ok, [one for one in report.checks if not one.ok]


def files_of_runs(world: GroupWorld) -> set[str]:
    return {
        str(path)
        for name in ("runs", "group_runs", "key_runs")
        for path in world.path.glob(f"{name}/**/*.parquet")
    }


def records(world: GroupWorld) -> list[tuple[bool, bool]]:
    """Of each removal whether its rows are kept, and whether its file has them."""
    store = Store.from_uri(world.path)
    found = read_removals(store, tables.open_table(store, REMOVALS))
    return [(one.kept, has_rows(store, one.file)) for one in found]


def test_rows_that_are_kept_leave_every_answer_and_no_run_is_written(world: GroupWorld) -> None:
    world.load_live()
    before, reader = files_of_runs(world), world.open()
    assert reader.quantile(0.5, "value").n
    planned = delete(world, 3, dry_run=True)
    report = delete(world, 3)
    assert (report.outcome, report.rows, report.runs_rewritten) == ("removed", planned.rows, {})
    assert planned.runs_rewritten == {}
    assert files_of_runs(world) == before
    assert records(world) == [(True, True)]
    keep(world, 3)
    check(world, reader)
    check(world, windows=FEW)


def test_live_rows_loads_merges_and_maintenance_go_on_beside_kept_rows(world: GroupWorld) -> None:
    """A merge takes them out of its inputs, a rewritten removal out of its runs, maintenance out of all."""
    delete(world, 3)  # the live batches have such rows, and are loaded first
    keep(world, 3)
    world.add(rows(7), load=False)
    check(world)
    for batch in (8, 9):
        world.add(rows(batch), load=True)
    check(world, windows=FEW)
    delete(world, 4)
    keep(world, 4)
    old, new = (
        next(row for row in world.rows if row[2] == 5),
        [(None, "a", 50 + i, 1.0, None) for i in range(2)],
    )
    warehouse.correct(None, world.path, table_of(new), batch="fix", before=table_of([old]), tuning=KEEPS)
    world.rows.remove(old)
    world.rows += new
    world._truths.clear()
    check(world, windows=FEW)
    assert [kept for kept, _ in records(world)] == [True, True, True]
    assert warehouse.unload(None, world.path, "batch 8", tuning=KEEPS).outcome == "removed"
    for row in [one for one in rows(9) if one[2] != 4]:
        world.rows.remove(row)
    world._truths.clear()
    assert delete(world, 5).outcome == "removed"
    keep(world, 5)
    check(world)
    assert (True, True) in records(world)
    warehouse.maintain(None, world.path, tuning=KEEPS)
    assert (True, True) not in records(world)
    check(world)
    assert delete(world, 6, tuning=TINY).runs_rewritten


@pytest.mark.parametrize("point", POINTS)
def test_killed_between_any_commits_the_rows_leave_once(made: GroupWorld, tmp_path: Path, point: str) -> None:
    world = made.copy(tmp_path)
    world.load_live()
    delete(world, 3)
    keep(world, 3)
    with pytest.raises(Killed):
        delete(world, 4, request="r", progress=killer(point))
    if point == "decided":
        keep(world, 4)
        check(world, windows=FEW)
    elif point == "removal planned":
        check(world, windows=FEW)
        world.add(rows(8), load=True)  # it finishes what is open
        gone = [row for row in world.rows[: -len(rows(8))] if row[2] == 4]
        for row in gone:
            world.rows.remove(row)
        world._truths.clear()
        check(world, windows=FEW)
        return
    assert delete(world, 4, request="r").outcome in {"removed", "known"}
    keep(world, 4)
    check(world, windows=FEW)


def test_a_purge_takes_kept_rows_out_of_runs_and_of_their_file(world: GroupWorld) -> None:
    world.load_live()
    delete(world, 3)
    warehouse.delete(None, world.path, "number = 4", purge=True, grace="0s", tuning=KEEPS)
    keep(world, 3, 4)
    assert records(world) == [(True, False), (False, False)]
    check(world)


def test_what_comes_later_is_built_without_them_and_what_was_is_seen_again(
    world: GroupWorld, tmp_path: Path
) -> None:
    """A new group and a wider type, an older moment, a copy, and a restore."""
    world.load_live()
    before, was = list(world.rows), world.open().pinned()
    delete(world, 3)
    assert Truth.of([row[3] for row in before]).n == was.quantile(0.5, "value").N
    past = query.open(world.path, at=4)
    assert Truth.of([row[3] for row in before]).n == past.quantile(0.5, "value").N
    keep(world, 3)
    warehouse.alter(None, world.path, add_group="number", tuning=KEEPS)
    own = world.truth("value", {"number": 4}, None)
    check_quantile(world.open().quantile(0.5, "value", where={"number": 4}), own, "accurate")
    check(world)
    warehouse.copy(world.path, tmp_path / "copy")
    check(GroupWorld(tmp_path / "copy", world.rows), windows=FEW)
    warehouse.restore(world.path, removal=0, tuning=KEEPS)
    world.rows[:] = before
    world._truths.clear()
    check(world)


def test_maintenance_goes_on_without_a_lost_file_of_kept_rows(world: GroupWorld) -> None:
    """As the error says: the runs are made again from events, and the rest of maintenance is done."""
    world.load_live()
    delete(world, 3)
    keep(world, 3)
    for path in (world.path / REMOVED).glob("0-*.parquet"):
        path.unlink()
    with pytest.raises(DamagedWarehouse, match=r"Run `tidemark maintain`") as told:
        world.open().quantile(0.5, "value")
    assert "tidemark repair" not in str(told.value)
    assert not warehouse.verify(world.path).ok
    for _ in range(2):
        warehouse.maintain(None, world.path, tuning=KEEPS)
        for look in (check_measures, check_groups, check_keys):
            look(world, world.open(), None)
    (left,) = warehouse.repair(None, world.path, tuning=KEEPS).only_a_copy
    assert left.startswith(f"{REMOVED}/0-")


def test_two_warehouses_are_asked_as_one(made: GroupWorld, tmp_path: Path) -> None:
    companions = {"origins": ("tally", "origin")}
    theirs = GroupWorld.create(tmp_path, ONE, groups=["origin"], companions=companions)
    ours = made.copy(tmp_path / "ours")
    theirs.add(rows(9), load=True)
    delete(ours, 3)
    delete(theirs, 4)
    keep(ours, 3)
    keep(theirs, 4)
    wh = query.open({"ours": ours.path, "theirs": theirs.path})
    both = GroupWorld(ours.path, [*ours.rows, *theirs.rows])
    check_quantile(wh.quantile(0.5, "value", mode="exact"), both.truth("value", {}, None), "exact")
    of_a = both.truth("value", {"origin": "a"}, None)
    check_quantile(wh.quantile(0.5, "value", where={"origin": "a"}), of_a, "accurate")
    assert wh.frequency("a", mode="exact").count == sum(row[1] == "a" for row in both.rows)
    assert wh.self_join().count == sum(n * n for n in counts(both, "origin", None)[0].values())


def test_the_moment_of_an_answer_has_the_removals_that_no_run_shows(made: GroupWorld, tmp_path: Path) -> None:
    companions = {"origins": ("tally", "origin")}
    ours = made.copy(tmp_path / "ours")
    theirs = GroupWorld.create(tmp_path, ONE, groups=["origin"], companions=companions)
    ours.load_live()
    theirs.add(rows(9), load=True)
    wh, answers = query.open({"ours": ours.path, "theirs": theirs.path}), []
    for number in (3, 4):
        answers.append(wh.quantile(0.5, "value"))
        delete(ours, number)
    answers.append(wh.quantile(0.5, "value"))
    assert len({one.N for one in answers}) == 3
    for one in answers:
        again = query.open({"ours": ours.path, "theirs": theirs.path}, at=one.moment).quantile(0.5, "value")
        assert (again.N, again.value, again.moment) == (one.N, one.value, one.moment)
    later = {**answers[-1].moment, "ours": {**answers[-1].moment["ours"], "removed": 2}}
    with pytest.raises(InputError, match="never had the removal 2"):
        query.open({"ours": ours.path, "theirs": theirs.path}, at=later)


@pytest.mark.parametrize(
    ("room", "fits", "is_full"),
    [
        (Room(5, may_keep=True, waiting=0, limit=5), True, False),
        (Room(5, may_keep=True, waiting=1, limit=5), False, True),  # with it there would be too many
        (Room(6, may_keep=True, waiting=1, limit=5), False, False),  # it alone is too many: others may wait
        (Room(6, may_keep=True, waiting=6, limit=5), False, True),
        (Room(0, may_keep=True, waiting=1, limit=5), False, False),
        (Room(2, may_keep=False, waiting=1, limit=5), False, False),
        (Room(1, may_keep=True, waiting=0, limit=0), False, False),
    ],
)
def test_rows_are_kept_up_to_a_limit(room: Room, fits: bool, is_full: bool) -> None:
    assert (room.fits, room.is_full) == (fits, is_full)


def test_too_many_kept_rows_are_taken_out_of_their_runs(world: GroupWorld) -> None:
    world.load_live()
    few = replace(TINY, kept_rows=40)
    assert not delete(world, 3, tuning=few).runs_rewritten
    assert delete(world, 4, tuning=few).runs_rewritten
    keep(world, 3, 4)
    assert not delete(world, 5, tuning=few).runs_rewritten
    keep(world, 5)
    check(world)


@pytest.mark.parametrize(
    ("batch", "empties"), [(0, False), (3, True)], ids=["of a merged run", "a whole run"]
)
def test_rows_are_not_kept_where_runs_lose_all_of_theirs(
    world: GroupWorld, batch: int, empties: bool
) -> None:
    world.load_live()
    report = warehouse.unload(None, world.path, f"batch {batch}", tuning=KEEPS)
    assert not report.runs_rewritten
    store = Store.from_uri(world.path)
    (record,) = read_removals(store, tables.open_table(store, REMOVALS))
    assert record.kept is not empties
    for row in rows(batch):
        world.rows.remove(row)
    world._truths.clear()
    check(world)
