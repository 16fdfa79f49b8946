"""Companions: summaries of users' own kinds, in the ledger and in the marks, against lists of all rows."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.query.groupworld import BATCHES, HOUR, ONE, SCHEMA, START, WINDOWS, GroupWorld, Row
from tests.query.tally import Tally, shown
from tests.soak import draws
from tidemark import query, warehouse
from tidemark.query import EmptyWindow, InputError
from tidemark.query.asking import companion_questions
from tidemark.warehouse.columns.ticks import NO_TICK, Window
from tidemark.warehouse.companions import declared, kinds
from tidemark.warehouse.memory_cache import LRUCache

SOME = settings(max_examples=draws(3), suppress_health_check=[HealthCheck.too_slow], deadline=None)
DECLARED = {"origins": ("tally", "origin"), "prices": ("tally", "price"), "values": ("tally", "value")}
BUDGETS = st.sampled_from([2**20, 2000, 1])  # one cell a tick; some ticks together; one cell a run
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Edges = tuple[datetime | None, datetime | None] | None


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    warehouse.register_companion(Tally())
    yield
    kinds._REGISTERED.pop("tally", None)


@contextmanager
def without_the_kind() -> Iterator[None]:
    """This process as one that did not register the kind."""
    kinds._REGISTERED.pop("tally")
    try:
        yield
    finally:
        warehouse.register_companion(Tally())


@contextmanager
def budget(size: int) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(declared, "BUDGET", size)
        yield


def world_of(folder: Path, batches: list[tuple[bool, list[Row]]], **options: Any) -> GroupWorld:
    """Each batch is (whether it is loaded, its rows); the others are streamed and stay live."""
    world = GroupWorld.create(
        folder, ONE, **{"companions": DECLARED, "keys": ["origin"], "groups": [], **options}
    )
    for is_loaded, rows in batches:
        world.add(rows, load=is_loaded)
    return world


def inside(world: GroupWorld, window: Edges) -> list[Row]:
    low, high = window or (None, None)
    return [
        row
        for row in world.rows
        if window is None
        or (row[0] is not None and (low is None or row[0] >= low) and (high is None or row[0] < high))
    ]


def check(wh: query.Warehouse, world: GroupWorld, window: Edges) -> int:
    """Compares every companion of a window with the rows; returns how many rows were scanned."""
    scanned = 0
    for name, (kind, column) in DECLARED.items():
        place = SCHEMA.names.index(column)
        rows = inside(world, window)
        filled = [row for row in rows if row[place] is not None]
        if not filled:
            with pytest.raises(EmptyWindow):
                wh.companion(name, between=window)
            continue
        answer = wh.companion(name, between=window)
        assert answer.summary.values == Counter(shown(row[place]) for row in filled)
        micros = [None if row[0] is None else (row[0] - EPOCH) // HOUR.resolution for row in filled]
        assert answer.summary.times == Counter(micros)
        assert (answer.N, answer.nulls) == (len(filled), len(rows) - len(filled))
        assert (answer.companion, answer.kind, answer.column) == (name, kind, column)
        assert answer.rows_scanned <= len(rows)
        scanned += answer.rows_scanned
    return scanned


@pytest.mark.slow
@given(BATCHES, st.lists(WINDOWS, min_size=1, max_size=4), BUDGETS, BUDGETS)
@SOME
def test_any_window_has_the_summary_of_its_rows(
    batches: list[tuple[bool, list[Row]]], windows: list[Edges], first: int, later: int
) -> None:
    """Loads, merges and live batches; cells of one tick, of several, and of a run; then all loaded."""
    with tempfile.TemporaryDirectory() as folder:
        with budget(first):
            world = world_of(Path(folder), batches)
            wh = world.open()
            for window in [None, (None, START + 9 * HOUR), (START + 9 * HOUR, None), *windows]:
                check(wh, world, window)
        with budget(later):
            world.load_live()
            for window in [None, *windows]:
                check(wh, world, window)
        assert warehouse.verify(world.path).ok


def rows_of(count: int, *, hours: int = 20) -> list[Row]:
    return [(START + (i % hours) * HOUR, "ab"[i % 2], i % 5, float(i), None) for i in range(count)]


def test_stored_cells_serve_until_the_budget_is_reached(tmp_path: Path) -> None:
    """With a cell a tick nothing is read; with one of several ticks, the rows of the part that is cut."""
    day = (START, START + 5 * HOUR)
    for size, scans in ((2**20, False), (1, True)):
        with budget(size):
            world = world_of(tmp_path, [(True, rows_of(200)), (True, rows_of(100)), (False, rows_of(40))])
            wh = world.open()
            assert check(wh, world, None) == 0
            assert (check(wh, world, day) > 0) == scans
            assert wh.companion("origins", between=day).rows_scanned == (75 if scans else 0)
            assert wh.companion("origins", last="20h").rows_scanned == 0  # no cell is cut


def test_the_cascade_joins_cells(tmp_path: Path) -> None:
    world = world_of(tmp_path, [(False, rows_of(6, hours=3)) for _ in range(29)])
    snapshot = warehouse.open_snapshot(world.path)
    assert len(snapshot.current().view().batches) == 3  # fan 3: ranges of 27, 1 and 1 batches
    assert check(world.open(), world, None) == 0
    assert warehouse.verify(world.path).ok
    warehouse.maintain(None, world.path)
    assert check(world.open(), world, (START, START + 2 * HOUR)) == 0


def several(folder: Path) -> tuple[query.Warehouse, GroupWorld]:
    """Two warehouses with batches of the same names, as one."""
    worlds = []
    for name, count in (("a", 90), ("b", 60)):
        world = world_of(folder / name, [(True, rows_of(count)), (True, rows_of(40)), (False, rows_of(30))])
        world.add(rows_of(count // 10, hours=3), load=False)
        worlds.append(world)
    both = copy(worlds[0])
    both.rows = [row for world in worlds for row in world.rows]
    return query.open({world.path.parent.name: world.path for world in worlds}), both


def test_several_warehouses_have_the_summary_of_all_rows(tmp_path: Path) -> None:
    """Their live batches have equal names; cells that the window cuts are read in each."""
    with budget(1):
        wh, both = several(tmp_path)
        assert check(wh, both, None) == 0
        assert check(wh, both, (START, START + 5 * HOUR)) > 0
    answer = wh.companion("origins", last="20h")
    assert {name: site.rows for name, site in answer.by_site().items()} == {"a": 169, "b": 136}
    assert (list(answer.as_of), answer.complete) == (["a", "b"], True)


def test_cells_that_are_kept_by_their_names_alone_are_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broken variant: a batch, or a run, of one warehouse stands for that of the other."""
    lookup, put = LRUCache._lookup, LRUCache.put

    def placeless(key: Any) -> Any:
        return (*key[:2], *key[3:]) if isinstance(key, tuple) and key[0] == "companion" else key

    def looked_up(self: Any, key: Any, sources: Any) -> Any:
        return lookup(self, (key[0], placeless(key[1])), sources)

    def kept(self: Any, key: Any, *value: Any, **how: Any) -> None:
        put(self, placeless(key), *value, **how)

    monkeypatch.setattr(LRUCache, "_lookup", looked_up)
    monkeypatch.setattr(LRUCache, "put", kept)
    wh, both = several(tmp_path)
    with pytest.raises(AssertionError):
        check(wh, both, None)


def killed_load(folder: Path) -> GroupWorld:
    """The marks of a bulk load's step are there, its runs are not."""
    world = world_of(folder, [(True, rows_of(60)), (False, rows_of(30))])
    late = rows_of(50, hours=4)

    def end(point: str) -> None:
        if point == "marked":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        world.add(late, load=True, progress=end)
    world.rows += late
    return world


def test_a_step_that_was_begun_is_part_of_the_summary(tmp_path: Path) -> None:
    """It is in other answers, too: its rows are read from `events`."""
    world = killed_load(tmp_path)
    wh = world.open()
    assert wh.quantile(0.5).N == 140
    assert check(wh, world, None) == 2 * 50  # of two companions; that of prices has NULL alone
    assert 0 < check(wh, world, (START + HOUR, START + 3 * HOUR)) < 2 * 50
    world.load_live()
    assert check(wh, world, None) == 0


def test_without_the_rows_of_a_begun_step_the_summary_lacks_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broken variant: a companion has what the ledger has."""
    world, never = killed_load(tmp_path), type("All", (set,), {"__contains__": lambda *_: True})
    monkeypatch.setattr(companion_questions, "set", never, raising=False)
    with pytest.raises(AssertionError):
        check(world.open(), world, None)


def test_last_counts_back_from_the_newest_tick_and_answers_show_themselves(tmp_path: Path) -> None:
    world = world_of(tmp_path, [(True, rows_of(60)), (False, rows_of(20))])
    answer = world.open().companion("origins", last="2h")
    assert (answer.n, answer.m) == (6, 2)
    assert repr(answer) == (
        "origins, tally of origin, from 2024-01-01 18:00:00 to before 2024-01-01 20:00:00: "
        "N = 8 (6 history + 2 live)"
    )
    assert '"companion": "origins"' in answer.to_json()
    assert "tally" in answer._repr_html_()
    with_nulls = world.open().companion("values")
    assert with_nulls.as_of["runs"] > 0


def test_a_warehouse_without_time_counts_steps(tmp_path: Path) -> None:
    world = world_of(tmp_path, [(True, rows_of(10))] * 4 + [(False, rows_of(7))], time=None, tick=None)
    wh = world.open()
    answer = wh.companion("origins", last=2)
    assert (answer.n, answer.m, answer.rows_scanned) == (10, 7, 0)
    assert answer.summary.times == Counter({None: 17})


def test_a_window_that_is_open_on_both_sides_leaves_rows_without_a_time_out(tmp_path: Path) -> None:
    world = world_of(tmp_path, [(True, [*rows_of(5), (None, "a", 1, 1.0, None)])])
    wh = world.open()
    assert check(wh, world, (None, None)) == 0
    for answer in (wh.companion("origins", between=(None, None)), wh.quantile(0.5, between=(None, None))):
        assert "all rows with a time: N = 5 " in str(answer)
    assert "all rows: N = 6 " in str(wh.companion("origins"))


def refusal(call: Any) -> str:
    with pytest.raises(InputError) as refused:
        call()
    return str(refused.value)


def test_a_process_without_the_kind_says_which_and_changes_nothing(tmp_path: Path) -> None:
    world = world_of(tmp_path, [(True, rows_of(30)), (False, rows_of(10))])
    before = {path: path.stat().st_size for path in world.path.rglob("*") if path.is_file()}
    wh, table = world.open(), rows_of(3)
    with without_the_kind():
        told = [
            refusal(lambda: world.add(table, load=True)),
            refusal(lambda: world.add(table, load=False)),
            refusal(world.load_live),
            refusal(lambda: warehouse.alter(None, world.path, add_key="number")),
            refusal(lambda: wh.companion("origins")),
            refusal(lambda: GroupWorld.create(tmp_path, companions=DECLARED)),
        ]
        assert wh.quantile(0.5).N == 40  # other questions need no kind
        warehouse.maintain(None, world.path)
        report = warehouse.verify(world.path)
    assert all("'tally' is not registered" in text and "register_companion" in text for text in told)
    assert report.ok
    assert "not registered here" in str(report)
    after = {path: path.stat().st_size for path in world.path.rglob("*") if path.is_file()}
    assert before.items() <= after.items()
    assert check(world.open(), world, None) == 0


@pytest.mark.parametrize(
    ("companions", "words"),
    [
        ({"a b": ("tally", "origin")}, "letters, digits"),
        ({"a": "tally"}, "must map names"),
        ({"a": ("tally", "origin", "x")}, "must map names"),
        ({"a": ("ta.lly", "origin")}, "letters, digits"),
        (["origin"], "must map names"),
        ({"a": ("other", "origin")}, "'other' is not registered"),
        ({"a": ("tally", "nothing")}, "companion column 'nothing' is missing"),
        ({"a": ("tally", "_tick")}, "tidemark's own columns"),
    ],
)
def test_declarations_are_checked(tmp_path: Path, companions: Any, words: str) -> None:
    assert words in refusal(lambda: GroupWorld.create(tmp_path, companions=companions))


@pytest.mark.parametrize(
    ("kind", "words"),
    [(object(), "name"), (type("K", (), {"name": "k"})(), "needs the methods"), (Tally, "class")],
)
def test_kinds_are_checked(kind: Any, words: str) -> None:
    assert words in refusal(lambda: warehouse.register_companion(kind))


def test_declarations_are_fixed(tmp_path: Path) -> None:
    world = world_of(tmp_path, [])
    assert warehouse.read_options(warehouse.open_snapshot(world.path).store).companion_names
    with pytest.raises(warehouse.OptionsMismatch, match="companions was given"):
        warehouse.create(None, world.path, companions={"origins": ("tally", "dest")})
    warehouse.create(None, world.path, companions=DECLARED)
    assert "no companion 'other' here. Declared: origins" in refusal(lambda: world.open().companion("other"))


class Failing(Tally):
    name = "tally"

    def summarise(self, column: Any, times: Any) -> Any:
        if "boom" in column.to_pylist():
            raise ValueError("cannot take boom")
        return super().summarise(column, times)


def test_a_kind_that_fails_stops_a_batch_before_anything_is_committed(tmp_path: Path) -> None:
    """A batch of a stream is refused. A bulk load stops after its plan, and goes on when the kind can."""
    warehouse.register_companion(Failing())
    world = world_of(tmp_path, [(False, rows_of(5))])
    rows = [(START, "boom", 1, 1.0, None)]
    with pytest.raises(InputError, match="cannot take boom"):
        world.add(rows, load=False)
    assert check(world.open(), world, None) == 0
    with pytest.raises(InputError, match="cannot take boom"):
        world.add(rows, load=True)
    assert check(world.open(), world, None) == 0
    warehouse.register_companion(Tally())
    world.load_live()
    world.rows += rows
    assert check(world.open(), world, None) == 0


@pytest.mark.parametrize("joined", [None, "text", b""])
def test_a_kind_that_joins_to_something_else_is_named(joined: Any, tmp_path: Path) -> None:
    """The cascade joins cells of a streamed batch; `to_bytes` cannot write what the kind's join returned."""

    class Broken(Tally):
        def join(self, parts: Any) -> Any:  # noqa: ARG002  of the protocol
            return joined

    world = world_of(tmp_path, [(False, rows_of(5)), (False, rows_of(5))])
    warehouse.register_companion(Broken())
    message = refusal(lambda: world.add(rows_of(5), load=False))
    assert "to_bytes of the kind of companions 'tally' failed for a summary of type " in message
    assert type(joined).__name__ in message
    warehouse.register_companion(Tally())
    assert check(world.open(), world, None) == 0
    world.add(rows_of(5), load=False)
    assert check(world.open(), world, None) == 0


def test_a_kind_that_cannot_read_what_was_stored_is_named(tmp_path: Path) -> None:
    class Other(Tally):
        def from_bytes(self, data: bytes) -> Any:
            raise ValueError(f"unknown form of {len(data)} bytes")

    world = world_of(tmp_path, [(True, rows_of(30)), (False, rows_of(10))])
    warehouse.register_companion(Other())
    with pytest.raises(warehouse.DamagedWarehouse, match="register the kind that wrote them"):
        world.open().companion("origins")
    report = warehouse.verify(world.path)
    assert not report.ok
    assert "unknown form" in str(report)


def whole_cells(window: Window, first: int, last: int) -> bool:
    """As if a cell that the window cuts were in it."""
    return not window.misses(first, last)


def no_times(_: Any, rows: Any) -> Any:
    return np.full(rows.num_rows, NO_TICK)


def joined_twice(_: Any, parts: Any) -> Any:
    tally = Tally()
    return REAL_JOIN(tally, [*parts, tally.from_bytes(tally.to_bytes(parts[-1]))])


REAL_JOIN = Tally.join
BROKEN: dict[str, tuple[type, str, Any]] = {
    "parts are joined twice": (Tally, "join", joined_twice),
    "parts are lost": (Tally, "join", lambda _, parts: parts[0]),
    "cells that are cut are taken whole": (Window, "covers", whole_cells),
    "times are lost": (declared.Companions, "times_of", no_times),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_variants_are_noticed(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = [*[(True, rows_of(60))] * 3, (False, rows_of(20))]
    with monkeypatch.context() as patch, budget(1):
        patch.setattr(*BROKEN[name])
        world = world_of(tmp_path, batches)
        wh = world.open()
        noticed = 0
        for window in (None, (START, START + 5 * HOUR)):
            try:
                check(wh, world, window)
            except AssertionError:
                noticed += 1
        assert noticed
