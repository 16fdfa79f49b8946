"""An index gives the rows that a scan gives, whoever rewrote `events`, or was killed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.killing import Killed, killer
from tests.query.indexworld import (
    CHANGES,
    TINY,
    IndexWorld,
    check,
    compacted,
    covers_all,
    differences,
    first_time,
    loaded,
    widened,
)
from tests.soak import some
from tidemark import query, warehouse
from tidemark.query.scans.covered_files import CoveredFiles
from tidemark.warehouse.errors import DamagedWarehouse
from tidemark.warehouse.events.origins import Origins, StayingOrigins, origins_in
from tidemark.warehouse.ingest import event_files
from tidemark.warehouse.runs import run_tables

pytestmark = pytest.mark.usefixtures("index_pays")


@pytest.fixture(scope="module")
def made(few_indexes: IndexWorld) -> IndexWorld:
    return few_indexes


@pytest.mark.parametrize("change", CHANGES)
def test_an_index_gives_the_rows_of_a_scan_after_a_change(
    made: IndexWorld, tmp_path: Path, change: str
) -> None:
    world = made.copy(tmp_path)
    CHANGES[change](world)
    check(world)
    world.load("after")
    assert list(differences(world, 5, seed=1)) == []


def test_a_reader_of_an_earlier_moment_finds_the_rows_of_that_moment(
    made: IndexWorld, tmp_path: Path
) -> None:
    world = made.copy(tmp_path)
    pinned, statement = query.open(world.path).pinned(), "SELECT count(*) FROM events WHERE k = 'a'"
    (before,) = world.sql(statement).to_pylist()[0].values()
    CHANGES["delete"](world)
    world.join()
    assert before
    assert pinned.sql(statement).fetchall() == [(before,)]
    assert query.open(world.path).sql(statement).fetchall() == [(0,)]


def test_files_that_the_index_does_not_have_must_be_scanned(
    made: IndexWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Live batches, files that another tool joined or cut, and files that a delete wrote anew."""
    world = made.copy(tmp_path)

    def cut(world: IndexWorld) -> None:
        loaded(world)
        world.join(by_another_tool=True)

    changes: list[Callable[[IndexWorld], None]] = [lambda _: None, cut, one_row_deleted]
    for number, change in enumerate(changes):
        change(world)
        assert list(differences(world, 15, number)) == []
        with monkeypatch.context() as mistake:
            mistake.setattr(CoveredFiles, "of", covers_all)
            assert list(differences(world, 15, number)) != []


def rows_left(world: IndexWorld) -> int:
    """How many rows of `events` a statement about few rows would read."""
    (found,) = query.open(world.path).explain("SELECT * FROM events WHERE k = 'a'").parts
    assert found.way == "index"
    return int(found.rows_left)


def test_an_index_pays_after_files_were_written_anew(made: IndexWorld, tmp_path: Path) -> None:
    """Of joined files, and of those of which other batches lost rows, it knows where its rows are."""
    world = made.copy(tmp_path)
    loaded(world)
    few = rows_left(world)
    assert few < len(world.kept) / 8
    changes: list[Callable[[IndexWorld], None]] = [compacted, IndexWorld.join, widened, one_row_deleted]
    for change in changes:
        change(world)
        assert few - 1 <= rows_left(world) <= few
    check(world)


def one_row_deleted(world: IndexWorld) -> None:
    world.delete(f"t = {first_time(world)}")


class FirstRows(Origins):
    def of_rows(self, start: int, stop: int) -> Any:
        return super().of_rows(0, stop - start)


def first_rows(file: Any, path: str) -> FirstRows:
    found = origins_in(file, path)
    return FirstRows(found.files, found.first, found.rows, found.nulls)


def turned(staying: StayingOrigins, numbers: Any, _: int, __: int) -> Any:
    files, rows = staying.told.of_rows(0, int(staying.told.rows.sum()))
    return files[numbers], rows[numbers][::-1]


WRONG_ORIGINS: dict[str, tuple[Any, str, Any]] = {
    "each row group is taken for the first": (event_files, "origins_in", first_rows),
    "rows that stay get the numbers of others": (StayingOrigins, "of_rows", turned),
}


@pytest.mark.parametrize("name", WRONG_ORIGINS)
def test_a_wrong_origin_is_caught(
    made: IndexWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    world = made.copy(tmp_path)
    loaded(world)
    monkeypatch.setattr(*WRONG_ORIGINS[name])
    world.join(first_first=True)
    one_row_deleted(world)
    assert list(differences(world, 40, 3)) != []


def test_a_load_that_is_killed_at_any_point_leaves_an_index_that_is_right(tmp_path: Path) -> None:
    world = IndexWorld.create(tmp_path, 5, index=["k", "n"])
    points = [
        "appended",
        "planned",
        "sorted",
        "marked",
        "committed",
        "merge sorted",
        "merge marked",
        "merged",
    ]
    for number, point in enumerate(points):
        rows = world.rows(40)
        world.kept = pa.concat_tables([world.kept, rows])
        with suppress(Killed):
            warehouse.load(None, world.path, rows, f"b{number}", tuning=TINY, progress=killer(point))
        wh, statement = query.open(world.path), "SELECT count(*) AS c FROM events WHERE k = 'a'"
        seen = wh.sql(statement.replace(" WHERE k = 'a'", " WHERE k || '' = 'a'")).fetchall()
        assert wh.sql(statement).fetchall() == seen
        warehouse.load(None, world.path, rows, f"b{number}", tuning=TINY)
        assert list(differences(world, 5, number)) == []
    check(world)


def test_a_delete_from_a_joined_file_that_was_killed(made: IndexWorld, tmp_path: Path) -> None:
    """At each point: a reader finds what a scan finds, and so it does after the next call has finished it."""
    points = [
        "rewritten",
        "removal planned",
        "decided",
        "removal sorted",
        "removal marked",
        "removal applied",
    ]
    world = made.copy(tmp_path)
    loaded(world)
    world.join(first_first=True)
    for number, point in some([*enumerate(points)], 3):
        where, rows = f"t = {first_time(world)}", len(world.kept)
        with suppress(Killed):
            warehouse.delete(None, world.path, where, tuning=TINY, progress=killer(point))
        ((seen,),) = query.open(world.path).sql("SELECT count(*) FROM events").fetchall()
        assert seen == rows - (number > 1)
        if seen < rows:
            world.kept = world.sql(f"SELECT * FROM events WHERE ({where}) IS NOT TRUE")
        assert list(differences(world, 6, number)) == []
        world.delete(where)
        assert list(differences(world, 3, number)) == []
    check(world)


def made_by_an_earlier_version(world: IndexWorld) -> None:
    """The index on k was made when its rows were those of a group (k, file), with the row as their value."""
    log = world.path / "index_runs" / "k" / "_delta_log"
    for one in log.glob("*checkpoint*"):
        one.unlink()
    first = log / f"{0:020}.json"
    text = first.read_text()
    for new, old in (("value", "group_1"), ("file", "group_2"), ("row", "value")):
        text = text.replace(rf"\"name\":\"{new}\"", rf"\"name\":\"{old}\"")
    first.write_text(text)


def test_an_index_of_an_earlier_layout_is_refused_until_repair_makes_it_again(
    made: IndexWorld, tmp_path: Path
) -> None:
    world = made.copy(tmp_path)
    made_by_an_earlier_version(world)
    uses: list[Callable[[], Any]] = [
        lambda: query.open(world.path).sql("SELECT n FROM events WHERE k = 'a'").fetchall(),
        lambda: warehouse.load(None, world.path, tuning=TINY),
    ]
    for use in uses:
        with pytest.raises(
            DamagedWarehouse, match=r"columns group_1, group_2, value.* Run `tidemark repair`"
        ):
            use()
    assert warehouse.repair(None, world.path).outcome == "repaired"
    assert rows_left(world) < len(world.kept) / 2
    check(world)


def test_a_reader_that_takes_any_layout_is_caught(
    made: IndexWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_tables, "is_index_runs_table", lambda _: False)
    with pytest.raises(pytest.fail.Exception):
        test_an_index_of_an_earlier_layout_is_refused_until_repair_makes_it_again(made, tmp_path)
