"""Rows that come back: those of an unload or a delete, once, while their old files are there."""

from __future__ import annotations

from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.killing import Killed, killer
from tests.query.groupworld import ONE, START, TINY, GroupWorld
from tests.warehouse.test_remove import check, delete, is_gone, keep, load, once, rows
from tidemark import query, warehouse
from tidemark.warehouse import BatchMismatch, DamagedWarehouse, InputError
from tidemark.warehouse.restore import gone_rows

CONDITION = "origin = 'a' AND number >= 2"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> GroupWorld:
    """Four steps in history and a live batch; a delete, then an unload, then a load."""
    made = GroupWorld.create(tmp_path_factory.mktemp("made"), ONE, groups=["origin"])
    for number in range(5):
        made.add(rows(number), load=number < 4)
    delete(made, CONDITION)
    warehouse.unload(None, made.path, "batch 2", tuning=TINY)
    keep(made, lambda row: not is_gone(row))
    for row in rows(2):
        if not is_gone(row):
            made.rows.remove(row)
    made.add(rows(9), load=True)
    return made


@pytest.fixture
def world(made: GroupWorld, tmp_path: Path) -> GroupWorld:
    return made.copy(tmp_path)


def restore(world: GroupWorld, **options: Any) -> warehouse.RestoreReport:
    return warehouse.restore(world.path, tuning=TINY, **options)


UNLOADED = [row for row in rows(2) if not is_gone(row)]
DELETED = [row for number in range(5) for row in rows(number) if is_gone(row)]


def back(world: GroupWorld, *came: Any) -> None:
    for one in came:
        world.rows += one
    world._truths.clear()


def test_the_rows_of_a_removal_come_back_once(world: GroupWorld) -> None:
    told = restore(world, removal=1, dry_run=True)
    assert (told.outcome, told.removals, told.rows) == ("planned", [1], len(UNLOADED))
    check(world, verified=False)
    report = restore(world, removal=1)
    assert (report.outcome, report.rows, len(report.steps)) == ("restored", len(UNLOADED), 1)
    back(world, UNLOADED)
    check(world)
    assert restore(world, removal=1).outcome == "known"
    report = restore(world, step=3)
    assert (report.removals, report.rows) == ([0], len(DELETED))
    back(world, DELETED)
    check(world, verified=False)
    assert restore(world, step=0).outcome == "known"
    assert load(world, rows(3), "batch 3").outcome == "known"
    assert warehouse.unload(None, world.path, "restored removal 1", tuning=TINY).rows == len(UNLOADED)
    for row in UNLOADED:
        world.rows.remove(row)
    check(world, verified=False)
    assert restore(world, removal=1).outcome == "known"  # the later removal has the rows
    assert restore(world, removal=2).outcome == "restored"
    back(world, UNLOADED)
    check(world)


def test_all_removals_after_a_step_are_undone_each_by_a_step(world: GroupWorld) -> None:
    report = restore(world, step=3)
    assert (report.removals, len(report.steps)) == ([0, 1], 2)
    back(world, UNLOADED, DELETED)
    check(world)
    assert restore(world, step=max(report.steps)).outcome == "empty"


@pytest.mark.parametrize("point", ["appended", "planned", "restore"])
def test_killed_it_is_finished_by_the_same_call(world: GroupWorld, point: str) -> None:
    with pytest.raises(Killed):
        restore(world, step=3, progress=killer(point))
    restore(world, step=3)
    assert restore(world, step=3).outcome == "known"
    back(world, UNLOADED, DELETED)
    check(world)


def test_two_at_once_bring_the_rows_back_once(world: GroupWorld) -> None:
    restore(world, removal=0, progress=once("restore", lambda: restore(world, step=3)))
    back(world, UNLOADED, DELETED)
    check(world)


def test_rows_of_before_a_column_came_and_another_got_wider_come_back(tmp_path: Path) -> None:
    uri = tmp_path / "w"
    first = pa.table({"k": ["a", "b", "c"], "n": pa.array([1, 2, 3], pa.int32())})
    warehouse.create(None, uri, ["n"], key="k", schema=first.schema)
    warehouse.load(None, uri, first, "one")
    warehouse.delete(None, uri, "k = 'b'")
    warehouse.load(None, uri, first.append_column("more", pa.array([1.0, None, 3.0])), "two", evolve=True)
    warehouse.alter(None, uri, widen={"n": "long"})
    assert warehouse.restore(uri, removal=0).rows == 1
    found = query.open(uri).sql("SELECT k, n, more FROM events ORDER BY ALL").fetchall()
    assert found == [
        ("a", 1, 1.0),
        ("a", 1, None),
        ("b", 2, None),
        ("b", 2, None),
        ("c", 3, 3.0),
        ("c", 3, None),
    ]
    assert warehouse.verify(uri).ok


def test_removals_that_share_a_batch_are_caught(world: GroupWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    module = import_module("tidemark.warehouse.restore")  # the package has its function by this name
    monkeypatch.setattr(module, "_name", lambda _: "restored")
    with pytest.raises(BatchMismatch):
        restore(world, step=3)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({}, "takes a removal or a step"),
        ({"removal": 0, "step": 0}, "takes a removal or a step"),
        ({"removal": 7}, "there are: 0, 1"),
        ({"removal": True}, "removal must be"),
        ({"step": 99}, "its steps are 0 to"),
    ],
)
def test_what_cannot_be_restored_is_told(made: GroupWorld, options: Any, error: str) -> None:
    with pytest.raises(InputError, match=error):
        restore(made, **options)


def test_after_the_grace_and_after_expiry_rows_stay_away(world: GroupWorld) -> None:
    report = warehouse.expire(None, world.path, START.replace(hour=9), tuning=TINY)
    with pytest.raises(InputError, match="expired, and would again"):
        restore(world, removal=report.removal)
    assert report.removal not in restore(world, step=0, dry_run=True).removals
    warehouse.maintain(None, world.path, grace="0s", tuning=TINY)
    with pytest.raises(InputError, match="is deleted"):
        restore(world, step=3)
    with pytest.raises(InputError, match="is deleted"):
        restore(world, removal=0)


@given(st.lists(st.integers(0, 4)), st.data())
def test_rows_that_are_gone_are_those_that_the_new_file_lacks(old: list[int], data: st.DataObject) -> None:
    stays = [one for one in old if data.draw(st.booleans())]
    gone = gone_rows(np.array(old, np.uint64), np.array(stays, np.uint64))
    assert Counter(np.array(old, np.uint64)[gone].tolist()) == Counter(old) - Counter(stays)
    assert gone_rows(np.array(old, np.uint64), None).all()
    with pytest.raises(DamagedWarehouse):
        gone_rows(np.array(old, np.uint64), np.array([9], np.uint64))
