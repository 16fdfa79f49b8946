"""Readers beside removals: each projection is seen before or after one, and `events` with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal
from itertools import chain, count
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.killing import Killed
from tests.query import ways
from tests.query.groupworld import HOUR, START, TINY, GroupWorld, Row
from tests.query.tally import Tally
from tests.query.ways import QUESTIONS, Ask, check_ways
from tests.soak import HAS_ALL
from tidemark import warehouse
from tidemark.query.asking.session import Session
from tidemark.query.reading.costs import Rates
from tidemark.warehouse.companions import declared, kinds
from tidemark.warehouse.delta import tables
from tidemark.warehouse.delta.data_files import list_files
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import EVENTS
from tidemark.warehouse.errors import DamagedWarehouse, NotBuilt
from tidemark.warehouse.events import removals, versions
from tidemark.warehouse.events.versions import FilesBefore
from tidemark.warehouse.snapshots.near_tables import NearTable
from tidemark.warehouse.snapshots.table_state import TableState

Told = dict[str, int]
COMMITS = ("removal planned", "decided", "removal applied")
CUT = (START, START + 9 * HOUR)  # inside the cell of a run


@pytest.fixture(scope="module", autouse=True)
def registered() -> Iterator[None]:
    warehouse.register_companion(Tally())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(declared, "BUDGET", 1)  # one cell a run, so that a window cuts it
        yield
    kinds._REGISTERED.pop("tally", None)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> GroupWorld:
    """Four steps in history, three of them merged, and a live batch."""
    options: dict[str, Any] = {"groups": ["origin"], "companions": {"origins": ("tally", "origin")}}
    world = GroupWorld.create(tmp_path_factory.mktemp("made"), **options)
    for batch in range(5):
        world.add(rows(batch), load=batch < 4)
    return world


@pytest.fixture
def world(made: GroupWorld, tmp_path: Path) -> GroupWorld:
    return made.copy(tmp_path)


def rows(batch: int) -> list[Row]:
    price = Decimal("1.25")
    return [(START + (i % 20) * HOUR, "ab"[i % 2], (i + batch) % 5, float(i), price) for i in range(30)]


def delete(world: GroupWorld, number: int, **options: Any) -> warehouse.RemovalReport:
    return warehouse.delete(None, world.path, f"number = {number}", tuning=TINY, **options)


def told(wh: Any) -> Told:
    """How many rows each way to ask finds: two measures, a key, a group, a scan, cells and rows of these."""
    return {
        "value": wh.quantile(0.5, "value").N,
        "price": wh.quantile(0.5, "price").N,
        "key": wh.frequency("a").count,
        "group": wh.quantile(0.5, "value", where={"origin": "a"}).N,
        "scan": wh.quantile(0.5, "value", where="origin < 'b'").N,
        "cells": wh.companion("origins", between=CUT).N,
    }


def expected(rows: list[Row], *gone: int) -> Told:
    left = [row for row in rows if row[2] not in gone]
    of_a = sum(row[1] == "a" for row in left)
    inside = sum(CUT[0] <= row[0] < CUT[1] for row in left)
    found = {"value": len(left), "price": len(left), "key": of_a, "group": of_a, "scan": of_a}
    return {**found, "cells": inside}


def killer(place: int) -> Callable[[str], None]:
    """Ends a call at the commit of a removal that it reaches as the `place`-th."""
    seen: list[str] = []

    def reached(point: str) -> None:
        if point in COMMITS:
            seen.append(point)
            if len(seen) == place:
                raise Killed(point)

    return reached


def check_verified(world: GroupWorld) -> None:
    report = warehouse.verify(world.path)
    assert report.ok, str(report)


@pytest.mark.slow
def test_killed_anywhere_each_projection_is_seen_before_or_after(made: GroupWorld, tmp_path: Path) -> None:
    """Open readers, new ones and pinned ones; verify holds; then whoever loads next goes on."""
    base = made.copy(tmp_path / "base")
    delete(base, 3)
    was, becomes = expected(base.rows, 3), expected(base.rows, 3, 1)
    states = Counter[str]()
    for place in count(1) if HAS_ALL else chain([1, 2], count(4, 3)):
        world = base.copy(tmp_path / str(place))
        reader, pinned = world.open(), world.open().pinned()
        assert told(reader) == was
        try:
            delete(world, 1, progress=killer(place))
        except Killed as killed:
            point = str(killed)
        else:
            break
        now = told(reader)
        assert all(now[one] in (was[one], becomes[one]) for one in now), (point, now)
        state = "before" if now == was else "after" if now == becomes else "between"
        states[state] += 1
        if states[state] == 1:
            assert told(world.open()) == now
            check_verified(world)
        new = len(world.rows)
        world.add(rows(7), load=True)
        is_planned = state != "before" or point == "removal planned"
        left = [row for row in world.rows[:new] if row[2] not in ([3, 1] if is_planned else [3])]
        assert told(reader) == expected(left + world.rows[new:])
        assert told(pinned) == was
    assert told(reader) == becomes
    assert states["before"] == 1
    assert states["between"] > (3 if HAS_ALL else 1), states


@pytest.fixture(scope="module")
def decided(made: GroupWorld, tmp_path_factory: pytest.TempPathFactory) -> GroupWorld:
    """A removal that `events` shows, and no run yet."""
    world = made.copy(tmp_path_factory.mktemp("decided"))
    with pytest.raises(Killed, match="decided"):
        delete(world, 1, purge=True, progress=killer(2))
    return world


@pytest.mark.parametrize("asked", QUESTIONS)
def test_all_ways_show_a_removal_once_the_runs_do(decided: GroupWorld, asked: Ask) -> None:
    """An answer by a scan would be that after it, and the next one by the runs that before it."""
    assert decided.open()._session.newest_view("value").is_behind
    check_ways(decided.open(), asked)


def test_a_scan_that_is_ahead_of_the_runs_is_caught(
    decided: GroupWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TableState, "removed_of", lambda state, _: state.removed.number)
    with pytest.raises(AssertionError):
        check_ways(decided.open(), QUESTIONS[0])


def ask_beside_a_removal(
    world: GroupWorld, asked: Ask, patch: pytest.MonkeyPatch, memory: int | None = None
) -> bool:
    """Asks twice, while a removal is decided after a scan was chosen: the same. Returns whether it was."""
    delete(world, 3)  # the first removal changes the options: then each question is asked again
    wh, look, was_decided = world.open(memory=memory), Session.scan_contents, False
    wh._session.costs.rates = Rates(bounds=1e9, slice=1e9, passed_row=1e9)

    def decide_first(session: Session, *of: Any) -> Any:
        nonlocal was_decided
        was_decided = True
        patch.setattr(Session, "scan_contents", look)
        with pytest.raises(Killed, match="decided"):
            delete(world, 1, purge=True, progress=killer(2))
        return look(session, *of)

    patch.setattr(Session, "scan_contents", decide_first)
    first = ways.told(wh, asked, "scan")
    assert str(first) == str(ways.told(wh, asked, "runs"))
    return was_decided


RACED = (0, 2, 7)  # all rows and groups, quantiles and sums


@pytest.mark.parametrize("place", RACED)
def test_rows_do_not_come_back_after_a_removal_beside_the_choice_of_a_way(
    world: GroupWorld, monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    assert ask_beside_a_removal(world, QUESTIONS[place], monkeypatch)


def test_neither_do_they_where_live_rows_do_not_fit_and_the_scan_is_the_only_way(
    world: GroupWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked(wh: Any, **more: Any) -> Any:
        return wh.rank([-2, 0, 1], every=3 * HOUR, **more)

    assert ask_beside_a_removal(world, asked, monkeypatch, memory=1)


@pytest.mark.parametrize("place", RACED[:2])
def test_a_scan_that_does_not_look_at_the_runs_again_is_caught(
    world: GroupWorld, monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    monkeypatch.setattr(
        Session, "scan_contents", lambda session, measure, _: session.newest_contents(measure)
    )
    with pytest.raises(AssertionError):
        ask_beside_a_removal(world, QUESTIONS[place], monkeypatch)


def test_a_pinned_reader_of_live_rows_keeps_them_when_they_are_loaded_and_leave(world: GroupWorld) -> None:
    pinned, was = world.open().pinned(), expected(world.rows)
    world.load_live()
    delete(world, 1)
    delete(world, 2)
    assert told(pinned) == was
    assert was["value"] == pinned.quantile(0.5, "value", mode="exact").N
    assert told(world.open()) == expected(world.rows, 1, 2)


@pytest.mark.parametrize("steps", [1, 2, 3, 17])
def test_the_newest_version_before_a_removal_is_found(tmp_path: Path, steps: int) -> None:
    """Whatever came before and after it, by a few looks."""
    world = GroupWorld.create(tmp_path, ["value"], groups=[])
    store = Store.from_uri(world.path)
    before = {}
    for number in (0, 1):
        for _ in range(steps):
            world.add(rows(8)[:10], load=False)
        before[number - 1] = tables.open_table(store, EVENTS).version()
        delete(world, number)
    before[-1] += 1  # the feature is set before the first removal
    for _ in range(steps):
        world.add(rows(8)[:10], load=False)
    events = tables.open_table(store, EVENTS)
    for number in (-1, 0):
        found = versions.before(store, events, number)
        assert removals.decided(found) == number
        after = DeltaTable(store.table(EVENTS), version=found.version() + 1)
        assert removals.decided(after) == number + 1
    assert versions.before(store, events, 1) is events


def interrupted(folder: Path, patch: pytest.MonkeyPatch, place: int) -> tuple[Told, list[Told]]:
    """What a refresh finds when two removals come before its `place`-th look at a table; what may be seen."""
    world = GroupWorld.create(folder, groups=[], keys=["origin"])
    world.add(rows(0), load=True)
    delete(world, 3)
    wh, update, looks = world.open(), NearTable.update, list[str]()

    def tell() -> Told:
        key, scan = wh.frequency("a").count, wh.quantile(0.5, "value", where="origin < 'b'").N
        return {"value": wh.quantile(0.5, "value").N, "key": key, "scan": scan}

    def looked(table: NearTable) -> bool:
        looks.append(table.name)
        if len(looks) == place:
            patch.setattr(NearTable, "update", update)
            delete(world, 1)
            delete(world, 2)
            patch.setattr(NearTable, "update", looked)
        return update(table)

    tell()
    patch.setattr(NearTable, "update", looked)
    found = tell()
    patch.setattr(NearTable, "update", update)
    states = [expected(world.rows, 3), expected(world.rows, 3, 1), expected(world.rows, 3, 1, 2)]
    assert tell() == {one: states[-1][one] for one in found}
    return found, states


@pytest.mark.parametrize("place", [2, 3, 5])
def test_a_refresh_that_removals_interrupt_shows_each_projection_at_one_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    found, states = interrupted(tmp_path, monkeypatch, place)
    assert all(found[one] in [state[one] for state in states] for one in found), found


def test_a_reader_that_does_not_look_again_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its runs have the rows of two removals, which `events` shows as gone."""
    monkeypatch.setattr(TableState, "is_torn", lambda *_: False)
    with pytest.raises(NotBuilt, match="have rows that were removed"):
        interrupted(tmp_path, monkeypatch, 2)


def test_a_reader_of_the_newest_events_is_caught(world: GroupWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    pinned = world.open().pinned()
    delete(world, 1)
    monkeypatch.setattr(FilesBefore, "of", lambda _, events, number: list_files(events))  # noqa: ARG005
    with pytest.raises(DamagedWarehouse, match="are not those that came"):
        told(pinned)
