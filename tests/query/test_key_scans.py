"""Counts of all keys by DuckDB over the files of runs, against a Counter of the rows and reads of blocks."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.query.groupworld import BATCHES, HOUR, START, WINDOWS, GroupWorld
from tests.query.in_duckdb import damage_for_duckdb
from tests.query.keyoracle import Window, counts, shown
from tests.soak import draws
from tests.warehouse.test_damage import HARM
from tidemark import query, warehouse
from tidemark.query.asking.event_keys import EventKeys
from tidemark.query.keys import (
    candidates,
    key_relation,
    key_scan,
    key_source,
    scanned_parts,
    window_scan,
)
from tidemark.query.keys.listed_keys import ListedKeys
from tidemark.query.reading import checked_files
from tidemark.query.reading.block_reader import BlockReader, RowGroups
from tidemark.query.reading.costs import Costs, Rates
from tidemark.warehouse import DamagedWarehouse
from tidemark.warehouse.columns.keys import Key, no_names
from tidemark.warehouse.memory_cache import LRUCache

KEYS: list[Any] = ["origin", "number", "value", "price", ["number", "origin"], ["value", "price"]]
PARTS = 5 * HOUR
CUT = timedelta(minutes=15)
Patch = pytest.MonkeyPatch


def world_of(folder: Path, batches: Any, *keys: Any) -> GroupWorld:
    world = GroupWorld.create(folder, groups=None, keys=keys or KEYS)
    for is_loaded, rows in batches:
        world.add(rows, load=is_loaded)
    return world


def listed_nowhere(key: Key, *_: object) -> ListedKeys:
    """No list of marks reaches far enough."""
    none = np.empty(0, np.int64)
    return ListedKeys(no_names(key), none, none, 2**62)


@pytest.fixture
def scans(monkeypatch: Patch) -> None:
    """No list of marks reaches far enough, and the runs are scanned, not `events`."""
    monkeypatch.setattr(key_source, "listed_names", listed_nowhere)
    monkeypatch.setattr(Costs, "event_keys", lambda *_: math.inf)


def ranked(true: Counter[Any], k: int) -> list[int]:
    return [rows for _, rows in true.most_common(k)]


def check(world: GroupWorld, key: Any, window: Window) -> list[Any]:
    """Each question that counts all keys, in a window of whole ticks; returns the answers."""
    wh, (true, _) = world.open(), counts(world, key, window)
    found: list[Any] = []
    for mode in ("exact", "approximate"):
        options: dict[str, Any] = {"key": key, "between": window, "mode": mode}
        for k in (1, 3, 2**63 - 1):
            top = wh.top(k, **options)
            assert [one.lo for one in top] == [one.hi for one in top] == ranked(true, k)
            assert all(one.certain and true[shown(one.value)] == one.count for one in top)
            found.append(top.to_json())
        for phi in (0.2, Fraction(1, 10**6)):
            hitters = wh.heavy_hitters(phi, **options)
            least = phi * sum(true.values())
            assert {shown(one.value): one.count for one in hitters} == {
                value: rows for value, rows in true.items() if rows >= least
            }
            found.append(hitters.to_json())
        assert wh.self_join(**options).count == sum(rows**2 for rows in true.values())
    assert wh.distinct(key=key, between=window, mode="exact").count == len(true)
    other = (START + 3 * HOUR, START + 9 * HOUR)
    both = wh.overlap(window, other, key=key, mode="exact").both
    assert both.least == both.most == len(true.keys() & counts(world, key, other)[0].keys())
    check_parts(world, wh, key)
    return found


def check_parts(world: GroupWorld, wh: query.Warehouse, key: Any) -> None:
    """The same by parts of the window."""
    tops: dict[Any, list[Any]] = {}
    for one in wh.top(2, key=key, every="5h"):
        tops.setdefault(one.window, []).append(one)
    distinct = wh.distinct(key=key, every="5h", mode="exact")
    joins = wh.self_join(key=key, every="5h")
    for number, join in zip(distinct, joins, strict=True):
        true, _ = counts(world, key, number.window)
        top = tops.get(number.window, [])
        assert number.count == len(true)
        assert join.count == sum(rows**2 for rows in true.values())
        assert [one.count for one in top] == ranked(true, 2)
        assert all(true[shown(one.value)] == one.lo == one.hi for one in top)


def check_cut(world: GroupWorld, key: Any, window: tuple[Any, Any]) -> None:
    """A window that cuts ticks: bounds hold, and what is certain is true."""
    wh = world.open()
    start, end = window[0] + CUT, window[1] + 2 * CUT
    true, _ = counts(world, key, (start, end))
    options: dict[str, Any] = {"key": key, "between": (start, end)}
    for k in (1, 3):
        top = wh.top(k, **options)
        named = {shown(one.value) for one in top}
        omitted = max((rows for value, rows in true.items() if value not in named), default=0)
        for one in top:
            rows = true[shown(one.value)]
            assert one.lo <= rows <= one.hi
            assert not one.certain or rows >= omitted
    found = {shown(one.value) for one in wh.heavy_hitters(0.2, **options)}
    assert {value for value, rows in true.items() if rows >= 0.2 * sum(true.values())} <= found
    distinct = wh.distinct(mode="exact", **options)
    assert distinct.least <= len(true) <= distinct.most


@given(batches=BATCHES, window=WINDOWS, key=st.sampled_from(KEYS))
@settings(max_examples=draws(4))
def test_scans_count_as_a_counter_does_and_as_blocks_do(
    tmp_path_factory: pytest.TempPathFactory, batches: Any, window: Window, key: Any
) -> None:
    """NaN, NULL, infinities, bounds of integers, tuples; live rows; windows that cut ticks."""
    world = world_of(tmp_path_factory.mktemp("w"), batches, key)
    with Patch.context() as patch:
        scans.__wrapped__(patch)  # type: ignore[attr-defined]
        patch.setattr(Costs, "event_keys", lambda *_: -1.0)
        check(world, key, window)
        patch.setattr(Costs, "event_keys", lambda *_: math.inf)
        found = check(world, key, window)
        if window is not None:
            check_cut(world, key, window)
        patch.setattr(key_relation, "_checked_path", lambda *_: None)
        assert check(world, key, window) == found


def small(folder: Path, *keys: Any) -> GroupWorld:
    """Two loads of 60 and 40 rows, and 20 live ones."""
    made = [
        (START + (i % 12) * HOUR, f"k{i % 40}", i % 30, math.nan if i % 7 == 0 else i / 4, None)
        for i in range(120)
    ]
    return world_of(folder, [(True, made[:60]), (True, made[60:100]), (False, made[100:])], *keys)


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> GroupWorld:
    """To be read alone."""
    return small(tmp_path_factory.mktemp("known"))


BROKEN: dict[str, tuple[Any, str, Any]] = {
    "live rows are left out": (key_relation, "_batches", lambda *_: iter(())),
    "a window is not applied": (key_relation, "ALL_TIME", None),
    "a part of the names": (
        key_relation.KeyDatabase,
        "columns",
        lambda self, statement, parameters=(): (
            self.connection.sql(statement, params=list(parameters)).to_arrow_table().slice(1).combine_chunks()
        ),
    ),
}


@pytest.mark.usefixtures("scans")
@pytest.mark.parametrize("broken", [None, *BROKEN])
def test_broken_scans_are_noticed(known: GroupWorld, monkeypatch: Patch, broken: str | None) -> None:
    world, window = known, (START + 2 * HOUR, START + 7 * HOUR)
    if broken == "a window is not applied":
        relation = key_relation.KeyDatabase.relation

        def everything(self: Any, rows: Any, codes: Any = None) -> str:
            sql = relation(self, rows, codes)
            return f"{sql.partition(' WHERE tick >=')[0]})" if " WHERE tick >=" in sql else sql

        monkeypatch.setattr(key_relation.KeyDatabase, "relation", everything)
    elif broken is not None:
        monkeypatch.setattr(*BROKEN[broken])
    for key in ("number", ["value", "price"]):
        if broken is None:
            check(world, key, window)
            check_cut(world, key, window)
        elif key == "number":
            with pytest.raises(AssertionError):
                check(world, key, window)


@pytest.mark.usefixtures("scans")
def test_a_top_with_a_window_that_cuts_a_tick_leaves_out_no_key_that_may_have_more(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    """Of two keys one has its rows in the tick that is cut. The broken variant forgets the keys left out."""
    hour = [(START, "in", 1, 0.0, None)] * 6 + [(START + HOUR, "cut", 1, 0.0, None)] * 20
    world = world_of(tmp_path, [(True, hour)], "origin")
    window = (START, START + HOUR + CUT)
    asked: dict[str, Any] = {"key": "origin", "between": window}
    (first,) = world.open().top(1, **asked)
    assert (first.value, first.count, first.lo, first.hi, first.certain) == ("in", 6, 6, 6, False)
    named = key_scan._named

    def forgets(*given: Any) -> Any:
        found = named(*given)
        return replace(found, omitted=0)

    monkeypatch.setattr(key_scan, "_named", forgets)
    assert world.open().top(1, **asked)[0].certain


def reads(monkeypatch: Patch) -> list[str]:
    """The files whose blocks are read from now on."""
    read: list[str] = []
    original = BlockReader.read

    def counted(self: Any, wanted: RowGroups) -> Any:
        read.append(wanted.file.path)
        return original(self, wanted)

    monkeypatch.setattr(BlockReader, "read", counted)
    return read


@pytest.mark.usefixtures("scans")
def test_files_are_compared_once_and_again_each_hour(tmp_path: Path, monkeypatch: Patch) -> None:
    world, read = small(tmp_path, "number"), reads(monkeypatch)
    answer = world.open().top(2, key="number")
    once = len(read)
    assert once == len(set(read)) > 0
    assert answer[0].rows_scanned == 100 + 20
    for _ in range(2):
        assert world.open().top(2, key="number").to_json() == answer.to_json()
    assert len(read) == once
    monkeypatch.setattr(checked_files, "RECHECK_SECONDS", -1.0)
    world.open().top(2, key="number")
    assert len(read) == 2 * once


def largest_run(world: GroupWorld) -> Path:
    runs = (path for path in (world.path / "keys").rglob("*.parquet") if "run=" in str(path))
    return max(runs, key=lambda path: path.stat().st_size)


def recount(path: Path) -> None:
    """Adds one to each count of a file of a run, seconds later: by these DuckDB keeps footers."""
    rows, later = pq.read_table(path, partitioning=None), path.stat().st_mtime + 2
    counts = pa.chunked_array([[count + 1 for count in rows["count"].to_pylist()]])
    pq.write_table(rows.set_column(2, "count", counts), path)
    os.utime(path, (later, later))


@pytest.mark.usefixtures("scans")
@pytest.mark.parametrize("harm", [*HARM.values(), recount], ids=[*HARM, "recounted"])
def test_a_file_that_is_damaged_after_it_was_compared_is_found(
    tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    world = small(tmp_path, "number")
    wh, victim = world.open(), largest_run(world)
    wh.top(1, key="number")
    harm(victim)
    with pytest.raises(DamagedWarehouse, match=victim.name):
        wh.top(1000, key="number")


def test_a_damaged_file_of_events_is_found_where_they_are_counted(tmp_path: Path, monkeypatch: Patch) -> None:
    world = small(tmp_path, "number")
    wh, victim = (
        world.open(),
        max((world.path / "events").glob("*.parquet"), key=lambda one: one.stat().st_size),
    )
    monkeypatch.setattr(Costs, "event_keys", lambda *_: -1.0)
    assert len(wh.heavy_hitters(Fraction(1, 10**6), key="number", mode="exact")) == 30
    victim.write_bytes(victim.read_bytes()[:-100])
    with pytest.raises(DamagedWarehouse, match=victim.name):
        wh.self_join(key="number", mode="exact")


@pytest.mark.usefixtures("scans")
def test_a_file_that_is_trusted_whatever_became_of_it_is_counted_wrongly(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    """The broken variant of the test above."""
    world = small(tmp_path, "number")
    wh, true = world.open(), ranked(counts(world, "number", None)[0], 1)
    assert [one.count for one in wh.top(1, key="number")] == true
    recount(largest_run(world))
    trusted = checked_files.CheckedFile("", (), 0.0, {"rows": True})
    monkeypatch.setattr(key_relation, "checked_file", lambda _: trusted)
    assert [one.count for one in wh.top(1, key="number")] != true


@pytest.mark.usefixtures("scans")
def test_a_file_that_duckdb_alone_refuses_is_read_all_the_same(tmp_path: Path, monkeypatch: Patch) -> None:
    world = small(tmp_path, "number")
    true = ranked(counts(world, "number", None)[0], 1)
    damage_for_duckdb(largest_run(world))
    assert [one.count for one in world.open().top(1, key="number")] == true
    # The broken variant.
    monkeypatch.setattr(checked_files, "_checked", LRUCache(1))
    monkeypatch.setattr(key_relation, "duckdb_reads", lambda *_: True)
    with pytest.raises(DamagedWarehouse):
        world.open().top(1, key="number")


@pytest.mark.usefixtures("scans")
def test_text_that_is_not_utf_8_is_counted_and_a_folder_may_look_like_a_pattern(tmp_path: Path) -> None:
    texts = [b"\xff", b"a", b"\xff", b"\xc3("] * 5
    table = pa.table({"m": [1.0] * 20, "k": pa.array(texts, pa.binary()).view(pa.string())})
    for name in ("plain", "w*?{a,b}'s"):
        uri = tmp_path / name
        warehouse.create(None, uri, "m", key="k", schema=table.schema)
        warehouse.load(None, uri, table, "a")
        top = query.open(uri).heavy_hitters(0.01)
        assert sorted(one.count for one in top) == [5, 5, 10]


def test_a_scan_is_chosen_where_many_names_would_be_looked_up(known: GroupWorld, monkeypatch: Patch) -> None:
    """Names that the lists bound but do not count exactly are looked up, unless a scan is cheaper."""
    wh, true = known.open(), ranked(counts(known, "number", None)[0], 5)
    monkeypatch.setattr(candidates, "_exact_in_history", lambda _, names: np.full(len(names), -1))
    looked_up = wh.top(5, key="number", mode="exact")
    wh._session.costs.rates = Rates(statement=0)
    scanned = wh.top(5, key="number", mode="exact")
    assert [one.count for one in looked_up] == [one.count for one in scanned] == true
    assert (looked_up[0].rows_scanned, scanned[0].rows_scanned) == (None, 120)


MISTAKES: dict[str, Any] = {
    "live rows are history": (
        "ScannedKey",
        lambda value, history, live: scanned_parts.ScannedKey(value, live, history),
    ),
    "of equal keys the last": ("_RANKED", window_scan._RANKED.replace("name)", "name DESC)")),
}


@pytest.mark.parametrize("mistake", [None, *MISTAKES])
def test_the_top_keys_of_windows_are_those_of_each_window_alone(
    known: GroupWorld, monkeypatch: Patch, mistake: str | None
) -> None:
    monkeypatch.setattr(EventKeys, "counted", lambda *_: None)  # DuckDB counts, not a sort
    if mistake is not None:
        name, wrong = MISTAKES[mistake]
        monkeypatch.setattr(window_scan, name, wrong)
    wh, facts = known.open(), ("window", "value", "count", "lo", "hi", "in_history", "certain", "n", "m")

    def told(answers: Any) -> list[Any]:
        return [[getattr(one, name) for name in facts] for one in answers]

    together, alone = list[Any](), list[Any]()
    for key in ("number", "origin"):
        every = wh.top(3, key=key, every="5h", mode="exact")
        windows = sorted({one.window for one in every if one.window is not None})
        together += told(every)
        alone += [one for window in windows for one in told(wh.top(3, key=key, between=window, mode="exact"))]
    assert (together == alone) == (mistake is None)
