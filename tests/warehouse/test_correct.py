"""Corrections: rows leave and others come in one step, against a list; replays, kills, two at once."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.killing import Killed, killer
from tests.query.groupworld import KEEPS, ONE, TINY, GroupWorld
from tests.soak import DRAWS, some
from tests.warehouse.corrections import changed, correct, create, numbered, rows, swap, table_of
from tests.warehouse.test_remove import POINTS, check, delete, keep, load, once
from tidemark import stream, warehouse
from tidemark.jobs.cli.main import main
from tidemark.warehouse import BatchMismatch, InputError
from tidemark.warehouse.removals import coming, finish

ALL_POINTS = ["selected", "rewritten", "removal written", "batch named", "batch planned", *POINTS[2:]]
AT_ONCE = ["selected", "batch named", "batch planned", "removal planned", "decided"]
BESIDE = ["selected", "rewritten", "batch named", "batch planned", "removal planned"]
SOME = [3, 111, 112, 205, 313, 401]  # a step each, and a live row


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> GroupWorld:
    return create(tmp_path_factory.mktemp("made"))


@pytest.fixture
def world(made: GroupWorld, tmp_path: Path) -> GroupWorld:
    return made.copy(tmp_path)


def test_before_images_leave_and_new_rows_come(world: GroupWorld) -> None:
    old = numbered(world, SOME)
    new = [*map(changed, old), *rows(9, 3)]
    report = correct(world, "fix", new, before=old)
    assert (report.outcome, report.kind, report.rows, report.rows_in) == ("corrected", "correct", 6, 9)
    assert report.rows_by_step == {0: 1, 1: 2, 2: 1, 3: 1, 4: 1}
    swap(world, old, new)
    check(world, verified=False)
    assert correct(world, "fix", new, before=old).outcome == "known"
    assert load(world, new, "fix").outcome == "known"
    with pytest.raises(BatchMismatch, match="done before with other rows: 9 rows are stored, 8 came"):
        correct(world, "fix", new[1:], before=old)
    with pytest.raises(BatchMismatch, match="6 rows left, and 5 others are to leave"):
        correct(world, "fix", new, before=old[1:])
    with pytest.raises(BatchMismatch, match="was brought by a load"):
        correct(world, "batch 1", new, before=new)
    step = warehouse.history(world.path)[5]
    assert (step.rows_in, step.rows_out, step.batches[0][0]) == (9, 0, "load:fix")
    correct(world, "more", [changed(new[0])], before=[new[0]])  # a row that a correction brought
    swap(world, [new[0]], [changed(new[0])])
    check(world)
    assert correct(world, "fix", new, before=old).outcome == "known"


def test_columns_identify_the_rows(world: GroupWorld) -> None:
    new = [changed(row) for row in numbered(world, SOME)]
    report = correct(world, "fix", new, on="number")
    assert (report.rows, report.rows_in) == (6, 6)
    swap(world, numbered(world, SOME), new)
    check(world)
    assert correct(world, "fix", new, on=["number"]).outcome == "known"
    newer = [changed(row) for row in new]
    correct(world, "fix 2", newer, on=["number"], where="value > 500")
    swap(world, new, newer)
    check(world, verified=False)


@pytest.mark.parametrize(
    ("numbers", "how", "error"),
    [
        ([3, 77], {"on": "number"}, r"1 of the rows to correct \(such as number = 77\) are not in the ware"),
        ([3, 3], {"on": "number"}, "such as number = 3. are given more than once"),
        ([2], {"on": "origin"}, "such as origin = 'é'. are in the warehouse more than once"),
        ([3], {"on": "number", "where": "number > 100"}, "are not in the warehouse"),
        ([3], {"on": "nobody"}, "rows lack the columns 'nobody'"),
        ([3], {"on": []}, "on must be the names of columns"),
        ([3], {"on": "number", "before": [rows(0)[3]]}, "correct takes rows with before"),
        ([3], {}, "correct takes rows with before"),
        ([3], {"on": "number", "missing": "ignore"}, "missing must be"),
        ([3], {"on": "number", "where": "nothing = 1"}, "no column 'nothing'"),
        ([3], {"before": [changed(rows(0)[3])]}, "are not in the warehouse"),
        ([3], {"before": [rows(0)[3], rows(0)[3]]}, "are not in the warehouse"),
        ([3], {"before": table_of(rows(0)[:1]).select(["number"])}, "before lack the columns 'origin'"),
    ],
)
def test_what_does_not_fit_changes_nothing(made: GroupWorld, numbers: Any, how: Any, error: str) -> None:
    new = [rows(0)[number] if number < 30 else (*rows(0)[0][:2], number, 1.0, None) for number in numbers]
    before = sorted(made.path.rglob("_delta_log/*.json"))
    with pytest.raises(InputError, match=error):
        correct(made, "fix", new, **how)
    assert sorted(made.path.rglob("_delta_log/*.json")) == before


def test_null_identifies_no_row(made: GroupWorld) -> None:
    before = sorted(made.path.rglob("_delta_log/*.json"))
    with pytest.raises(InputError, match="NULL in columns that identify"):
        correct(made, "fix", [(None, None, None, 1.0, None)], on="number")
    assert sorted(made.path.rglob("_delta_log/*.json")) == before


def test_what_is_missing_is_inserted_if_that_is_wanted(world: GroupWorld) -> None:
    new = [changed(rows(0)[3]), changed(rows(8)[1])]
    report = correct(world, "fix", new, on="number", missing="insert")
    assert (report.rows, report.rows_in) == (1, 2)
    swap(world, [rows(0)[3]], new)
    check(world)
    assert correct(world, "gone", None, before=new).rows == 2
    swap(world, new, [])
    report = correct(world, "new", rows(7, 4), before=table_of([]))
    assert (report.outcome, report.rows, report.rows_in) == ("corrected", 0, 4)
    swap(world, [], rows(7, 4))
    check(world)
    assert correct(world, "none", [], before=table_of([])).outcome == "empty"


def test_of_equal_rows_as_many_leave_as_are_given(world: GroupWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    twin = (*rows(0)[4][:2], 1, 4.0, None)
    for name in ("c", "d"):
        load(world, [twin, twin, *rows(6, 2)], name)
        world.rows += [twin, twin, *rows(6, 2)]
    report = correct(world, "fix", [changed(twin)], before=[twin, twin, twin])
    assert (report.rows, report.rows_in) == (3, 1)
    swap(world, [twin] * 3, [changed(twin)])
    check(world)
    monkeypatch.setattr(coming.Coming, "chosen", lambda *given: list(given[2]))
    correct(world, "broken", None, before=[rows(6)[0]])  # the broken variant takes both
    swap(world, [rows(6)[0]], [])
    with pytest.raises(AssertionError):
        check(world, verified=False)


@pytest.mark.parametrize(("point", "old_rows"), some(product(ALL_POINTS, ("rewritten", "kept")), 6))
def test_a_correction_that_is_killed_is_finished_or_never_happened(
    world: GroupWorld, point: str, old_rows: str
) -> None:
    tuning = KEEPS if old_rows == "kept" else TINY
    old = numbered(world, SOME)
    new = [changed(row) for row in old]
    with pytest.raises(Killed):
        correct(world, "fix", new, before=old, progress=killer(point), tuning=tuning)
    load(world, rows(8), "other")
    world.rows += rows(8)
    happened = point in POINTS[2:]
    if happened:
        swap(world, old, new)
    check(world, verified=happened)
    again = correct(world, "fix", new, before=old, tuning=tuning)
    assert again.outcome == ("known" if happened else "corrected")
    if not happened:
        swap(world, old, new)
        check(world)


@pytest.mark.parametrize("point", some(["selected", "batch named", "removal planned", "decided"], 2))
def test_of_two_corrections_of_a_row_one_finds_it(world: GroupWorld, point: str) -> None:
    old = [rows(1)[7]]
    ours, theirs = changed(old[0]), changed(old[0], 2000.0)
    inside = once(point, lambda: correct(world, "theirs", [theirs], before=old))
    if point in ("selected", "batch named"):
        with pytest.raises(InputError, match="are not in the warehouse"):
            correct(world, "ours", [ours], before=old, progress=inside)
        swap(world, old, [theirs])
    else:
        with pytest.raises(InputError, match="are not in the warehouse"):
            correct(world, "ours", [ours], before=old, progress=inside)
        correct(world, "ours", [ours], before=old)
        swap(world, old, [ours])
    check(world)


@pytest.mark.parametrize("point", some(AT_ONCE, 3))
def test_the_same_correction_twice_at_once_happens_once(world: GroupWorld, point: str) -> None:
    old = numbered(world, SOME)
    new = [changed(row) for row in old]
    inside = once(point, lambda: correct(world, "fix", new, before=old))
    correct(world, "fix", new, before=old, progress=inside)
    swap(world, old, new)
    check(world)


def everything(world: GroupWorld) -> None:
    """What others may do at any moment."""
    load(world, rows(7), "beside")
    stream.append(None, world.path, table_of(rows(8)), source="s", batch=9, tuning=TINY)
    warehouse.maintain(None, world.path, grace="0s", tuning=TINY)
    delete(world, "number = 2")


@pytest.mark.parametrize("point", some(BESIDE, 2))
def test_loads_streams_deletes_and_maintenance_may_run_beside(world: GroupWorld, point: str) -> None:
    old = numbered(world, SOME)
    new = [changed(row) for row in old]
    correct(world, "fix", new, before=old, progress=once(point, lambda: everything(world)))
    swap(world, [*old, *numbered(world, [2])], [*new, *rows(7), *rows(8)])
    check(world)


def test_a_replay_that_is_not_looked_for_inserts_again(
    world: GroupWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = [rows(0)[3]], [changed(rows(0)[3])]
    correct(world, "fix", new, before=old, missing="insert")
    swap(world, old, new)
    monkeypatch.setattr(coming.Coming, "is_of", lambda *_: False)  # the broken variant
    correct(world, "fix", new, before=old, missing="insert")
    with pytest.raises(AssertionError):
        check(world, verified=False)


def test_a_correction_is_unloaded_and_its_name_comes_again(world: GroupWorld) -> None:
    old = numbered(world, SOME)
    new = [changed(row) for row in old]
    correct(world, "fix", new, before=old)
    assert warehouse.unload(None, world.path, "fix", tuning=TINY).rows == 6
    swap(world, old, [])
    check(world, verified=False)
    correct(world, "fix", old, before=table_of([]))
    swap(world, [], old)
    check(world)
    assert correct(world, "fix", old, before=table_of([])).outcome == "known"


def test_a_dry_run_changes_nothing(made: GroupWorld) -> None:
    versions = sorted(made.path.rglob("_delta_log/*.json"))
    old = numbered(made, SOME)
    report = correct(made, "fix", [changed(row) for row in old[1:]], before=old, dry_run=True)
    assert (report.outcome, report.rows, report.live_rows, report.rows_in) == ("planned", 5, 1, 5)
    assert sorted(made.path.rglob("_delta_log/*.json")) == versions


def test_the_command_corrects_by_files(
    world: GroupWorld, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "new.csv").write_text("time,origin,number,value,price\n2024-01-01T00:00:00Z,b,3,7.5,1.25\n")
    given = ["correct", "-w", str(world.path), "--batch", "fix", "--input", str(tmp_path / "new.csv")]
    assert main([*given, "--on", "number", "--engine", "local"]) == 0
    assert "removed 1 row of 1 batch, 1 row came in their place" in capsys.readouterr().out
    assert main([*given, "--on", "number", "--engine", "local"]) == 0
    assert "was done before" in capsys.readouterr().out
    assert world.open().quantile(1, where="number = 3").value == 7.5
    assert warehouse.verify(world.path).ok


def test_a_decision_in_two_commits_is_caught(world: GroupWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken variant: what leaves and what comes are decided by two commits."""
    whole = finish._actions

    def halved(store: Any, events: Any, files: Any) -> Any:
        return whole(store, events, [one for one in files if one.old is not None])

    monkeypatch.setattr(finish, "_actions", halved)
    old = [rows(0)[3]]
    with pytest.raises(warehouse.DamagedWarehouse, match="was not written: its steps should have"):
        correct(world, "fix", [changed(old[0])], before=old)


@pytest.mark.parametrize("seed", range(DRAWS))
def test_corrections_loads_and_deletes_in_any_order_and_killed_at_any_point(
    tmp_path: Path, seed: int
) -> None:
    draw = random.Random(seed)
    world = GroupWorld.create(tmp_path, ONE, groups=["origin"])
    world.add(rows(0), load=True)
    for number in range(1, 9):
        move = draw.randrange(6)
        if move < 2:
            world.add(rows(number, draw.randrange(1, 30)), load=draw.random() < 0.6)
        elif move == 2:
            warehouse.maintain(None, world.path, grace="0s", tuning=TINY)
        elif move == 3:
            _delete_drawn(world, draw.randrange(7))
        elif world.rows:
            _correct_drawn(world, draw, f"fix {number}")
    check(world)


def _delete_drawn(world: GroupWorld, value: int) -> None:
    delete(world, f"value = {value}")
    keep(world, lambda row: row[3] != value)


def _correct_drawn(world: GroupWorld, draw: random.Random, name: str) -> None:
    """A correction that may be killed, and is called again then."""
    old = draw.sample(world.rows, min(len(world.rows), draw.randrange(1, 9)))
    new = [changed(row, draw.choice([1.0, 1000.0])) for row in old if draw.random() < 0.8]
    how: dict[str, Any] = {"before": old} if draw.random() < 0.5 or len(new) < len(old) else {"on": "number"}
    progress: Callable[[str], None] = killer(draw.choice([*ALL_POINTS, "", ""]))
    try:
        correct(world, name, new, progress=progress, **dict(how))
    except Killed:
        correct(world, name, new, **dict(how))
    swap(world, old, new)
