"""Which files of events a scan reads, and who reads them: damaged, foreign and unneeded files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.query.in_duckdb import damage_for_duckdb
from tests.query.scanworld import (
    FIRST_DAY,
    Asked,
    World,
    check,
    facts,
    table,
)
from tidemark import warehouse
from tidemark.query.reading import checked_files
from tidemark.query.scans import duckdb_files
from tidemark.query.scans.duckdb_files import ScannedColumns
from tidemark.warehouse import DamagedWarehouse
from tidemark.warehouse.columns.ticks import Window
from tidemark.warehouse.memory_cache import LRUCache


@pytest.fixture
def own(changed_scan_world: World, tmp_path: Path) -> World:
    return changed_scan_world.copied(tmp_path / "own")


def test_a_scan_has_the_contents_that_it_was_given(own: World) -> None:
    """Later batches are not part of it, and what maintenance rewrites is read once."""
    before = World(own.uri, own.random, list(own.history), list(own.live))
    contents = own.contents
    own.load(30, "late")
    warehouse.load(None, own.uri)
    warehouse.maintain(None, own.uri, grace="0 s")
    with Asked().scan(contents) as scan:
        (group,) = scan.groups()
    assert (group.n, group.m) == tuple(
        sum(r["x"] is not None for r in rows) for rows in (before.history, before.live)
    )


def test_files_outside_of_the_window_are_not_opened(own: World) -> None:
    for row in (rows := own.rows(10)):
        row["t"] = own.time(500)
    warehouse.load(None, own.uri, table(rows), "later")
    own.history += rows
    window = Window(FIRST_DAY + 490, FIRST_DAY + 510)
    for fact in facts(own):
        if fact["max._tick"] < window.start and fact["min._batch"] == fact["max._batch"]:
            (own.uri / "events" / fact["path"]).unlink()  # of several batches: they are counted in any window
    check(own, Asked(window=window))
    with Asked().scan(own.contents) as scan, pytest.raises(DamagedWarehouse, match="is missing"):
        scan.groups()


def test_damage_is_found_before_it_is_answered_from(own: World) -> None:
    files = [own.uri / "events" / fact["path"] for fact in facts(own)]
    (unfinished,) = (path for path in files if b"no number" in path.read_bytes())
    unfinished.unlink()  # nobody reads it
    asked = Asked(by=("k",), text="x > 0")
    check(own, asked)
    victim = max((path for path in files if path != unfinished), key=lambda path: path.stat().st_size)
    damaged = bytearray(victim.read_bytes())
    for at in range(200, 1200):
        damaged[at] ^= 0x55
    victim.write_bytes(damaged)
    scan = Asked(by=("k",), text="x > 0").scan(own.contents)
    with scan, pytest.raises(DamagedWarehouse, match=victim.name):
        scan.groups()


def test_a_file_that_was_damaged_after_its_check_is_found(own: World) -> None:
    """Its size and times of change are those of before, but for the one that nobody can set."""
    asked = Asked(by=("k",), text="x > 0")
    check(own, asked)
    files = [own.uri / "events" / fact["path"] for fact in facts(own)]
    visible = [path for path in files if b"no number" not in path.read_bytes()]
    victim = max(visible, key=lambda path: path.stat().st_size)
    before = victim.stat()
    damaged = bytearray(victim.read_bytes())
    for at in range(200, 1200):
        damaged[at] ^= 0x55
    victim.write_bytes(damaged)
    os.utime(victim, ns=(before.st_atime_ns, before.st_mtime_ns))
    with asked.scan(own.contents) as scan, pytest.raises(DamagedWarehouse, match=victim.name):
        scan.groups()


def test_a_file_that_duckdb_alone_refuses_is_read_all_the_same(
    own: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [own.uri / "events" / fact["path"] for fact in facts(own)]
    visible = [path for path in files if b"no number" not in path.read_bytes()]
    damage_for_duckdb(max(visible, key=lambda path: path.stat().st_size))
    asked = Asked(by=("k",), text="x > 0")
    check(own, asked)
    # The broken variant.
    monkeypatch.setattr(checked_files, "_checked", LRUCache(1))
    monkeypatch.setattr(duckdb_files, "duckdb_reads", lambda *_: True)
    with asked.scan(own.contents) as scan, pytest.raises(DamagedWarehouse):
        scan.groups()


def test_damage_that_nothing_shows_is_found_within_an_hour(
    own: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broken variant never compares a file again."""
    seen: list[str] = []
    checked = ScannedColumns._checked

    def counted(columns: ScannedColumns, file: str, names: Sequence[str]) -> dict[str, int | None]:
        seen.append(file)
        return checked(columns, file, names)

    monkeypatch.setattr(ScannedColumns, "_checked", counted)
    check(own, Asked(text="x > 0"))
    files = len(set(seen))
    assert files > 1
    seen.clear()
    check(own, Asked(text="x > 0"))
    assert seen == []
    check(own, Asked(text="value > 2"))
    assert len(set(seen)) == files  # another column
    seen.clear()
    monkeypatch.setattr(checked_files, "RECHECK_SECONDS", -1)
    check(own, Asked(text="x > 0"))
    assert set(seen) != set()


@pytest.mark.parametrize("is_trusted", [False, True])
def test_nan_in_files_of_other_tools_is_not_skipped(
    own: World, monkeypatch: pytest.MonkeyPatch, is_trusted: bool
) -> None:
    """Their statistics leave out NaN, which is greater than all numbers. The broken variant trusts them."""
    events = DeltaTable(str(own.uri / "events"))
    events.optimize.compact()
    if is_trusted:
        monkeypatch.setattr(ScannedColumns, "_checked", lambda _, __, names: dict.fromkeys(names, True))
        monkeypatch.setattr(checked_files, "_checked", LRUCache(9))
    asked = [Asked(), Asked(measure="n", text="value > 2"), Asked(measure="f", by=("x",))]
    with pytest.raises(AssertionError) if is_trusted else nullcontext():
        for one in asked:
            check(own, one)
