"""Rows that leave: unloads and deletes against a list of all rows, beside other writers, and killed."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.killing import Killed, killer
from tests.query.groupworld import BOTH, ONE, SCHEMA, TINY, GroupWorld, Row, Truth, check_quantile
from tests.query.keyoracle import check_key, counts
from tests.soak import DRAWS
from tests.warehouse.disk import files_of
from tests.warehouse.test_alter import rows as mixed_rows
from tidemark import stream, warehouse
from tidemark.warehouse import BatchMismatch, EmptyWindow, InputError
from tidemark.warehouse.delta import data_files, tables
from tidemark.warehouse.delta.races import replace_files
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import EVENTS
from tidemark.warehouse.events.removed_rows import LeftRows
from tidemark.warehouse.ingest import same_rows
from tidemark.warehouse.ingest.event_files import JoinFiles
from tidemark.warehouse.integrity.digests import Fingerprint
from tidemark.warehouse.removals import finish

PLACES = {name: place for place, name in enumerate(SCHEMA.names)}
POINTS = ["rewritten", "removal written", "removal planned", "decided", "removal marked", "removal applied"]


rows = partial(mixed_rows, unpriced={0})


def filled(folder: Path, measures: Sequence[str] = ONE) -> GroupWorld:
    """Four steps in history, of which three are one run, and two live batches."""
    made = GroupWorld.create(folder, measures, groups=["origin"])
    for number in range(6):
        made.add(rows(number), load=number < 4)
    return made


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> GroupWorld:
    return filled(tmp_path_factory.mktemp("made"))


@pytest.fixture
def world(made: GroupWorld, tmp_path: Path) -> GroupWorld:
    return made.copy(tmp_path)


def keep(world: GroupWorld, stays: Callable[[Row], bool]) -> None:
    """The rows of the oracle for which it is true."""
    world.rows[:] = [row for row in world.rows if stays(row)]
    world._truths.clear()


def delete(world: GroupWorld, where: str, **options: Any) -> warehouse.RemovalReport:
    return warehouse.delete(None, world.path, where, tuning=TINY, **options)


def check(world: GroupWorld, *, verified: bool = True) -> None:
    """Every answer is that of the rows of the list: ranks, keys, groups, scans; and verify holds."""
    wh = world.open()
    for measure in world.measures:
        truth = world.truth(measure, {}, None)
        if not truth.n:
            with pytest.raises(EmptyWindow):
                wh.quantile(0.5, measure)
            continue
        for mode in ("quick", "accurate", "exact"):
            for answer in wh.quantile([0, 0.3, 0.5, 0.9, 1], measure, mode=mode):
                check_quantile(answer, truth, mode)
        scanned = wh.quantile(0.5, measure, where="coalesce(number, 0) >= 0", mode="exact")
        seen = Truth.of([row[PLACES[measure]] for row in world.rows if (row[2] or 0) >= 0])
        assert (scanned.N, scanned.nulls, scanned.value) == (seen.n, seen.nulls, seen.quantile(0.5))
    for (origin,) in world.groups(["origin"], None):
        own = world.truth("value", {"origin": origin}, None)
        if own.n:
            check_quantile(wh.quantile(0.5, "value", where={"origin": origin}), own, "accurate")
    if counts(world, "origin", None)[0]:
        check_key(world, "origin", None, wh)
    if verified:
        report = warehouse.verify(world.path)
        assert report.ok, [one for one in report.checks if not one.ok]


def test_deleted_rows_leave_every_answer(tmp_path: Path) -> None:
    world = filled(tmp_path, BOTH)
    report = delete(world, "origin = 'a' AND number >= 2")
    gone = [row for row in world.rows if row[1] == "a" and row[2] is not None and row[2] >= 2]
    assert (report.outcome, report.rows, report.removal) == ("removed", len(gone), 0)
    assert sum(report.rows_by_step.values()) == len(gone)
    keep(world, lambda row: not (row[1] == "a" and row[2] is not None and row[2] >= 2))
    check(world, verified=False)
    assert delete(world, "origin = 'a' AND number >= 2").outcome == "empty"
    assert delete(world, "value > 5").removal == 1
    keep(world, lambda row: not (row[3] is not None and (math.isnan(row[3]) or row[3] > 5)))
    check(world)


def test_all_rows_can_leave_and_others_come(world: GroupWorld) -> None:
    delete(world, "true")
    keep(world, lambda _: False)
    check(world)
    for number in range(3):
        world.add(rows(number + 8), load=True)
    check(world)


def test_a_batch_is_unloaded_and_its_name_comes_again(world: GroupWorld) -> None:
    report = warehouse.unload(None, world.path, "batch 2", tuning=TINY)
    assert (report.outcome, report.rows, report.rows_by_step, report.batches) == ("removed", 60, {2: 60}, 1)
    gone = rows(2)
    for row in gone:
        world.rows.remove(row)
    check(world, verified=False)
    assert warehouse.unload(None, world.path, "batch 2", tuning=TINY).outcome == "known"
    with pytest.raises(BatchMismatch, match="again=True"):
        load(world, gone, "batch 2")
    assert load(world, rows(9), "batch 2").outcome == "loaded"
    assert load(world, rows(9), "batch 2").outcome == "known"
    world.rows += rows(9)
    check(world)
    assert warehouse.unload(None, world.path, "batch 2", tuning=TINY).removal == 1
    assert load(world, gone, "batch 2").outcome == "loaded"  # those of the first generation
    with pytest.raises(BatchMismatch, match="other rows"):
        load(world, rows(9), "batch 2")
    with pytest.raises(InputError, match="never loaded"):
        warehouse.unload(None, world.path, "batch 99")


def table_of(given: list[Row]) -> pa.Table:
    columns = {name: pa.array([row[i] for row in given], SCHEMA.types[i]) for name, i in PLACES.items()}
    return pa.table(columns, schema=SCHEMA)


def load(world: GroupWorld, given: list[Row], name: str, **options: Any) -> warehouse.LoadReport:
    return warehouse.load(None, world.path, table_of(given), name, tuning=TINY, **options)


def append(world: GroupWorld, given: list[Row], batch: int) -> bool:
    return stream.append(None, world.path, table_of(given), source="s", batch=batch, tuning=TINY)


def is_gone(row: Row) -> bool:
    """What CONDITION selects."""
    return row[1] == "a" and row[2] is not None and row[2] >= 2


CONDITION = "origin = 'a' AND number >= 2"


def once(point: str, act: Callable[[], object]) -> Callable[[str], None]:
    """Acts where the call reaches the point for the first time."""
    done: list[str] = []

    def reached(name: str) -> None:
        if name == point and not done:
            done.append(name)
            act()

    return reached


def test_a_batch_that_lost_rows_is_known_when_it_comes_again(
    world: GroupWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    delete(world, CONDITION)
    assert load(world, rows(3), "batch 3").outcome == "known"
    with pytest.raises(BatchMismatch, match="60 rows are stored, 59 came"):
        load(world, rows(3)[1:], "batch 3")
    assert not append(world, rows(5), 5)  # it was live, and is in history now
    with pytest.raises(BatchMismatch, match="other rows"):
        append(world, rows(5)[1:], 5)
    nothing = LeftRows(Fingerprint(), 0)
    monkeypatch.setattr(same_rows, "left_rows", lambda *_: nothing)  # the broken variant
    with pytest.raises(BatchMismatch):
        load(world, rows(3), "batch 3")


def test_a_range_of_a_stream_is_unloaded_and_its_numbers_stay_used(world: GroupWorld) -> None:
    report = warehouse.unload(None, world.path, source="s", batches=(5, 5), tuning=TINY)
    assert (report.rows, report.batches) == (60, 1)
    for row in rows(5):
        world.rows.remove(row)
    world._truths.clear()
    check(world, verified=False)
    assert not append(world, rows(5), 5)
    with pytest.raises(BatchMismatch, match="other rows"):
        append(world, rows(8), 5)
    world.add(rows(7), load=False)
    check(world)
    again = warehouse.unload(None, world.path, source="s", batches=(5, 5), tuning=TINY)
    assert again.outcome == "empty"


@pytest.mark.parametrize("point", ["rewritten", "removal planned", "removal applied"])
def test_a_call_that_is_killed_is_finished_by_the_next_writer_or_never_happened(
    world: GroupWorld, point: str
) -> None:
    with pytest.raises(Killed):
        delete(world, CONDITION, request="r", progress=killer(point))
    world.add(rows(9), load=True)
    happened = point != "rewritten"
    if happened:
        keep(world, lambda row: row in rows(9) or not is_gone(row))
        truth = world.truth("value", {}, None)
        check_quantile(world.open().quantile(0.5, "value", mode="exact"), truth, "exact")
    report = delete(world, CONDITION, request="r")
    assert report.outcome == ("known" if happened else "removed")
    if not happened:
        keep(world, lambda row: not is_gone(row))
    check(world)


def join_by_another_tool(world: GroupWorld) -> None:
    """Joins two files of `events`, as OPTIMIZE does; its commit knows nothing of removals."""
    store = Store.from_uri(world.path)
    events = tables.open_table(store, EVENTS)
    paths = [file.path for file in data_files.list_files(events)][:2]
    joined = JoinFiles(store, pa.schema(events.schema()), tuple(paths)).run()
    replace_files(store, EVENTS, set(paths), [joined.action(new_rows=False)])


def test_files_that_another_tool_replaced_make_the_removal_void_and_it_is_selected_again(
    world: GroupWorld,
) -> None:
    report = delete(world, CONDITION, progress=once("removal planned", lambda: join_by_another_tool(world)))
    assert (report.outcome, report.removal) == ("removed", 1)
    keep(world, lambda row: not is_gone(row))
    check(world)


def test_a_decision_that_does_not_look_at_the_old_files_is_caught(
    world: GroupWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    def blind(_: Store, events: Any, files: Any) -> Any:
        named = {file.path: file for file in data_files.list_files(events)}
        gone = [data_files.remove_action(named[one.old]) for one in files if one.old in named]
        return [*gone, *(one.new.action() for one in files if one.new is not None)]

    monkeypatch.setattr(finish, "_actions", blind)
    with pytest.raises(warehouse.DamagedWarehouse, match="was not written: its steps should have"):
        delete(world, CONDITION, progress=once("removal planned", lambda: join_by_another_tool(world)))


@pytest.mark.parametrize("point", ["rewritten", "decided"])
def test_two_deletes_at_once_both_happen_once(world: GroupWorld, point: str) -> None:
    other: list[warehouse.RemovalReport] = []
    inside = once(point, lambda: other.append(delete(world, "number = 1")))
    report = delete(world, CONDITION, progress=inside)
    assert {report.outcome, other[0].outcome} == {"removed"}
    keep(world, lambda row: not is_gone(row) and row[2] != 1)
    check(world)


def test_rows_that_arrive_while_it_works_stay(world: GroupWorld) -> None:
    def arrive() -> None:
        world.add(rows(7), load=False)
        world.add(rows(8), load=True)

    delete(world, CONDITION, progress=once("rewritten", arrive))
    came = [*rows(7), *rows(8)]
    keep(world, lambda row: not is_gone(row))
    world.rows += [row for row in came if is_gone(row)]
    check(world)


@pytest.mark.parametrize("point", ["rewritten", "removal planned"])
def test_maintenance_without_a_grace_may_run_at_any_moment(world: GroupWorld, point: str) -> None:
    inside = once(point, lambda: warehouse.maintain(None, world.path, grace="0s", tuning=TINY))
    assert delete(world, CONDITION, progress=inside).outcome == "removed"
    keep(world, lambda row: not is_gone(row))
    check(world)


def test_a_dry_run_tells_what_is_done_and_changes_nothing(world: GroupWorld) -> None:
    live = sum(map(is_gone, [*rows(4), *rows(5)]))
    told = delete(world, CONDITION, dry_run=True)
    assert (told.outcome, told.live_rows) == ("planned", live)
    check(world, verified=False)
    did = delete(world, CONDITION)
    assert did.rows == told.rows + live
    assert {step: rows for step, rows in did.rows_by_step.items() if step < 4} == told.rows_by_step


@pytest.mark.parametrize(
    ("where", "error"),
    [
        ("", "empty"),
        ("nothing = 1", "no column 'nothing'"),
        ("CAST(origin AS INTEGER) = 1", "cannot be evaluated"),
        ("true) OR (true", "not valid"),
        (7, "must be text"),
    ],
)
def test_a_condition_that_is_none_changes_nothing(made: GroupWorld, where: Any, error: str) -> None:
    before = files_of(made.path)
    with pytest.raises(InputError, match=error):
        delete(made, where)
    assert files_of(made.path) == before


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({}, "takes a batch, or a source"),
        ({"batch": "a", "source": "s", "batches": (1, 2)}, "takes a batch, or a source"),
        ({"source": "s"}, "takes a batch, or a source"),
        ({"batch": "  "}, "not empty"),
        ({"source": "s", "batches": (6, 5)}, "first <= last"),
        ({"source": "s", "batches": (5, 99)}, "newest batch is 5"),
        ({"source": "x", "batches": (0, 0)}, "no batch of it ever came"),
        ({"source": "load:batch 1", "batches": (0, 0)}, "batch='batch 1'"),
        ({"source": "s", "batches": 5}, "must be .first, last."),
        ({"batch": "batch 1", "request": ""}, "request must be a name"),
    ],
)
def test_what_cannot_be_unloaded_is_told(made: GroupWorld, given: Any, error: str) -> None:
    with pytest.raises(InputError, match=error):
        warehouse.unload(None, made.path, **given)


@pytest.mark.parametrize("seed", range(DRAWS))
def test_loads_streams_and_removals_in_any_order_and_killed_at_any_point(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    world = GroupWorld.create(tmp_path, groups=["origin"])
    for number in range(9):
        move = draw.randrange(6) if world.rows else 0
        if move < 2:
            world.add(rows(number, draw.randrange(1, 40)), load=draw.random() < 0.6)
        elif move == 2:
            world.load_live()
        elif move == 3:
            warehouse.maintain(None, world.path, grace="0s", tuning=TINY)
        else:
            _remove_drawn(world, draw)
    check(world)


def _remove_drawn(world: GroupWorld, draw: random.Random) -> None:
    """A delete that may be killed, and is called again then."""
    number = draw.choice([1, 2, 3, 4])
    point = draw.choice([*POINTS, "", ""])
    options: dict[str, Any] = {"request": str(draw.random())}
    try:
        delete(world, f"number = {number}", progress=killer(point), **options)
    except Killed:
        delete(world, f"number = {number}", **options)
    keep(world, lambda row: row[2] != number)
