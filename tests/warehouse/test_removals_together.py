"""Removals with whatever else changes a warehouse: two at once, added columns, copies, lost plans."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.query.groupworld import HOUR, START, TINY, GroupWorld, Row
from tests.soak import some
from tests.warehouse.corrections import changed, correct, create, numbered, rows, swap, table_of
from tests.warehouse.file_contents import files_with, forms_of_text
from tests.warehouse.test_remove import check, delete, keep, once
from tidemark import query, stream, warehouse
from tidemark.warehouse import InputError
from tidemark.warehouse.delta.store import Store

KEY = "zebra-person"
CUT = START + 12 * HOUR


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> GroupWorld:
    """Four steps in history and a live batch; the rows with the number 7 left before, as removal 0."""
    world = create(tmp_path_factory.mktemp("made"))
    delete(world, "number = 7")
    return world


@pytest.fixture
def world(made: GroupWorld, tmp_path: Path) -> GroupWorld:
    copied = made.copy(tmp_path)
    keep(copied, lambda row: row[2] != 7)
    return copied


class Calls:
    """The calls, each with what it does to the list; no two of them touch the same rows."""

    def __init__(self, world: GroupWorld) -> None:
        self.world = world
        self.old = numbered(world, [103, 204])

    def delete(self, **options: Any) -> object:
        return delete(self.world, "number IN (111, 310)", **options)

    def has_deleted(self) -> None:
        keep(self.world, lambda row: row[2] not in (111, 310))

    def correct(self, **options: Any) -> object:
        return correct(self.world, "fix", list(map(changed, self.old)), before=self.old, **options)

    def has_corrected(self) -> None:
        there = numbered(self.world, [103, 204])
        swap(self.world, there, [] if not there else list(map(changed, self.old)))

    def expire(self, **options: Any) -> object:
        return warehouse.expire(None, self.world.path, CUT, tuning=TINY, **options)

    def has_expired(self) -> None:
        keep(self.world, lambda row: row[0] is None or row[0] >= CUT)

    def restore(self, **options: Any) -> object:
        return warehouse.restore(self.world.path, removal=0, tuning=TINY, **options)

    def has_restored(self) -> None:
        self.world.rows += came(7)
        self.world._truths.clear()

    def alter(self, **options: Any) -> object:
        return warehouse.alter(None, self.world.path, add_group="number", tuning=TINY, **options)

    def has_altered(self) -> None:
        """No row."""


def came(number: int) -> list[Row]:
    """The row with this number, as it came."""
    return [row for row in rows(number // 100) if row[2] == number]


DID = {
    "delete": "has_deleted",
    "correct": "has_corrected",
    "expire": "has_expired",
    "restore": "has_restored",
    "alter": "has_altered",
}
AT_ONCE = [
    ("delete", "selected", "correct"),
    ("delete", "decided", "correct"),
    ("expire", "removal planned", "delete"),
    ("correct", "batch planned", "restore"),
    ("restore", "appended", "correct"),
    ("alter", "marked", "delete"),
    ("delete", "removal sorted", "alter"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("first", "point", "second"), some(AT_ONCE, 5))
def test_two_at_once_do_what_one_after_the_other_does(
    world: GroupWorld, first: str, point: str, second: str
) -> None:
    calls = Calls(world)
    other: list[object] = []
    getattr(calls, first)(progress=once(point, lambda: other.append(getattr(calls, second)())))
    assert other, "the point was reached"
    for name in (first, second):
        getattr(calls, DID[name])()
    check(world)


def test_a_correction_whose_rows_left_meanwhile_changes_nothing(world: GroupWorld) -> None:
    calls = Calls(world)
    with pytest.raises(InputError, match="not in the warehouse"):
        calls.correct(progress=once("selected", lambda: delete(world, "number IN (103, 204)")))
    keep(world, lambda row: row[2] not in (103, 204))
    check(world)


def evolved(folder: Path) -> tuple[Path, list[dict[str, Any]]]:
    """Two steps from before a column came, one that brought it; KEY has rows in each; a delete between."""
    path, all_rows = folder / "evolved", list[dict[str, Any]]()
    warehouse.create(
        None,
        path,
        "value",
        key="who",
        groups=["who"],
        time="at",
        tick="1h",
        schema=FIRST,
        kappa=2,
        grace="1h",
    )
    for number in range(3):
        rows = [
            {
                "at": START + i * HOUR,
                "who": KEY if i % 5 == 0 else "abc"[i % 3],
                "value": float(number * 100 + i),
                **({"note": f"{KEY} {i}" if i % 5 == 0 else None} if number == 2 else {}),
            }
            for i in range(20)
        ]
        schema = FIRST.append(pa.field("note", pa.string())) if number == 2 else FIRST
        table = pa.Table.from_pylist(rows, schema)
        warehouse.load(None, path, table, f"batch {number}", evolve=number == 2, tuning=TINY)
        all_rows += rows
        if number == 0:
            warehouse.delete(None, path, "value = 1", tuning=TINY)
    return path, [row for row in all_rows if row["value"] != 1]


FIRST = pa.schema([("at", pa.timestamp("us", "UTC")), ("who", pa.string()), ("value", pa.float64())])


def test_a_purge_where_columns_came_later_leaves_nothing_to_copy_or_restore(tmp_path: Path) -> None:
    path, rows = evolved(tmp_path)
    where = f"who = '{KEY}' OR note LIKE '{KEY}%'"
    report = warehouse.delete(None, path, where, purge=True, grace="0s", tuning=TINY)
    left = [row for row in rows if row["who"] != KEY]
    assert (report.rows, report.certificate and report.certificate.stage) == (len(rows) - len(left), "gone")
    with pytest.raises(InputError, match="purged"):
        warehouse.restore(path, removal=0)
    there = tmp_path / "copied"
    assert warehouse.copy(path, there).verified
    for place in (path, there):
        assert files_with(Store.from_uri(place).filesystem(), forms_of_text(KEY)) == set()
        wh = query.open(place)
        assert len(left) == wh.quantile(0.5, mode="exact").N
        assert sum(one["who"] == "a" for one in left) == wh.quantile(0.5, where={"who": "a"}, mode="exact").N
        assert wh.frequency(KEY).count == 0
        assert wh.sql("SELECT count(*), count(note) FROM events").fetchall() == [(len(left), 0)]
        assert warehouse.verify(place).ok
        assert warehouse.certificates(place) == [report.certificate]


@pytest.mark.parametrize("lost", ["steps", "steps and ledger"])
def test_lost_plans_are_made_again_without_the_rows_that_left(world: GroupWorld, lost: str) -> None:
    correct(world, "fix", list(map(changed, numbered(world, [103]))), before=numbered(world, [103]))
    swap(world, numbered(world, [103]), list(map(changed, numbered(world, [103]))))
    warehouse.unload(None, world.path, "batch 2", tuning=TINY)
    world.load_live()
    delete(world, "number = 410")
    world.add(rows(6), load=False)
    keep(world, lambda row: not (200 <= row[2] < 300 or row[2] == 410))
    for name in lost.split(" and "):
        shutil.rmtree(world.path / name)
    assert warehouse.repair(None, world.path, tuning=TINY).outcome == "repaired"
    check(world)
    again: dict[str, Any] = {"source": "s", "batch": 4, "tuning": TINY}
    assert not stream.append(None, world.path, table_of(rows(4)), **again), "known, with the row that left"
    delete(world, "number = 1")
    keep(world, lambda row: row[2] != 1)
    world.add(came(7), load=True)
    check(world)
    assert warehouse.repair(None, world.path, tuning=TINY).outcome == "sound"
