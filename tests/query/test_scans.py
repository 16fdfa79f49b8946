"""Exact scans of events agree with plain Python over the visible rows, for any measure, group and filter."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings

from tests.query.scanworld import (
    EXPRESSIONS,
    FIRST_DAY,
    MEASURES,
    SCHEMA,
    Asked,
    World,
    check,
    questions,
    read_without_duckdb,
)
from tests.soak import draws
from tidemark import query, warehouse
from tidemark.query.reading import number_parts
from tidemark.query.reading.sorted_parts import RankedValues
from tidemark.query.scans import event_scan, held_rows, row_source
from tidemark.warehouse import InputError
from tidemark.warehouse.columns.ticks import Window
from tidemark.warehouse.delta import data_files, tables
from tidemark.warehouse.delta.races import replace_files
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import EVENTS
from tidemark.warehouse.events.reader import BatchRange
from tidemark.warehouse.events.visible_files import VisibleFile, visible_files
from tidemark.warehouse.ingest.event_files import JoinFiles
from tidemark.warehouse.snapshots import system_tables
from tidemark.warehouse.snapshots.system_tables import Contents


@pytest.fixture(scope="module")
def world(scan_world: World) -> World:
    return scan_world


@settings(max_examples=draws(25))
@given(asked=questions())
def test_any_question_has_the_answers_of_plain_python(world: World, asked: Asked) -> None:
    check(world, asked)


@pytest.mark.parametrize("measure", MEASURES)
def test_every_type_is_encoded_as_in_runs(world: World, measure: str) -> None:
    check(world, Asked(measure=measure))
    check(world, Asked(measure=measure, by=(measure,)))


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_every_expression_selects_what_it_says(world: World, text: str) -> None:
    check(world, Asked(text=text, by=("flag",)))


def test_small_batches_for_duckdb_change_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_source, "BATCH_ROWS", 3)
    read_without_duckdb(monkeypatch)
    check(world, Asked(by=("k", "b"), text="k LIKE 'a%'", equal=(("flag", (True, False)),)))


@pytest.mark.parametrize("measure", MEASURES)
def test_rows_that_duckdb_does_not_read_by_itself_give_the_same_answers(
    world: World, monkeypatch: pytest.MonkeyPatch, measure: str
) -> None:
    text = "k LIKE 'a%'" if list(MEASURES).index(measure) % 2 else None
    read_without_duckdb(monkeypatch)
    check(world, Asked(measure=measure, by=(measure, "k"), equal=(("k", ("a", "12", "ab")),), text=text))


def test_rows_beyond_the_memory_stay_in_duckdb(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are answered by a sort, as those in memory are; few rows of large files are held."""
    for held in (0, 60):
        monkeypatch.setattr(event_scan, "most_held", lambda *_, held=held: held)
        for measure in ("x", "n", "p"):
            check(world, Asked(measure=measure))
            check(world, Asked(measure=measure, by=("k",)))
            check(world, Asked(measure=measure, by=("k", "flag"), text="flag IS NOT TRUE"))


@pytest.mark.parametrize("small", [0, 10**9])
@pytest.mark.parametrize("few", [0, 8])
def test_ranks_are_selected_or_sorted(
    world: World, monkeypatch: pytest.MonkeyPatch, small: int, few: int
) -> None:
    monkeypatch.setattr(number_parts, "SMALL", small)
    monkeypatch.setattr(number_parts, "FEW", few)
    for measure in ("x", "n", "p"):
        check(world, Asked(measure=measure, by=("k",)))
        check(world, Asked(measure=measure, by=("k", "x"), window=Window(FIRST_DAY, FIRST_DAY + 4)))


@pytest.mark.parametrize("few", [0, 8])
def test_ranks_that_forget_equal_numbers_are_caught(
    world: World, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    """The broken variant: the rank of a value is the rank that was asked, whatever equals it."""
    monkeypatch.setattr(number_parts, "FEW", few)
    right = held_rows.HeldRows.same_values_at
    monkeypatch.setattr(
        held_rows.HeldRows,
        "same_values_at",
        lambda rows, ranks: RankedValues(right(rows, ranks).values, ranks),
    )
    with pytest.raises(AssertionError):
        check(world, Asked(by=("flag",)))


def test_rows_that_are_not_visible_are_caught(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken variant: rows are not filtered by the visible batches, whoever reads them."""

    def all_rows(files: Any, history: Any, live: Any, **_: Any) -> tuple[VisibleFile, ...]:
        every = [[BatchRange(one.source, 0, 2**62) for one in ranges] for ranges in (history, live)]
        return visible_files(files, *every)

    for is_read_by_duckdb in (True, False):
        with monkeypatch.context() as patch:
            if not is_read_by_duckdb:
                read_without_duckdb(patch)
            check(world, Asked())
            patch.setattr(system_tables, "visible_files", all_rows)
            with pytest.raises(AssertionError):
                check(world, Asked())


def test_a_view_that_takes_all_rows_for_visible_is_caught(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All files are joined: the new one has rows of history, of live batches, and of the unfinished one."""
    path = shutil.copytree(world.contents.store.files.folder or "", tmp_path / "w")
    store = Store.from_uri(str(path))
    events = tables.open_table(store, EVENTS)
    paths = [file.path for file in data_files.list_files(events)]
    joined = JoinFiles(store, pa.schema(events.schema()), tuple(paths)).run()
    replace_files(store, EVENTS, set(paths), [joined.action(new_rows=False)])
    parts = {"events": world.history + world.live, "history": world.history, "live": world.live}

    def counted(part: str) -> int:
        ((count,),) = query.open(path).sql(f"SELECT count(*) FROM {part}").fetchall()
        return int(count)

    assert {part: counted(part) for part in parts} == {part: len(rows) for part, rows in parts.items()}
    monkeypatch.setattr(Contents, "shows_all_rows", lambda _: True)
    assert counted("events") != len(parts["events"])


def test_an_expression_fails_on_visible_rows_alone(world: World) -> None:
    """`no number` is the text of the unfinished batch; the visible rows have others that are none."""
    numbers = Asked(text="CAST(k AS INTEGER) = 12", equal=(("k", ("12",)),))
    with numbers.scan(world.contents) as scan:
        (group,) = scan.groups()
    rows = [row for row in world.history + world.live if row["k"] == "12"]
    assert group.n + group.m + group.nulls == len(rows)
    with Asked(text="CAST(k AS INTEGER) = 12").scan(world.contents) as scan:
        with pytest.raises(InputError, match=r"CAST\(k AS INTEGER\) = 12.*Could not convert string"):
            scan.groups()
        with pytest.raises(InputError, match="Could not convert string"):
            scan.groups()  # each question tries again


def test_a_warehouse_without_rows_has_one_group_or_none(tmp_path: Path) -> None:
    warehouse.create(None, tmp_path / "w", ["x"], schema=SCHEMA, time="t")
    contents = query.open(tmp_path / "w").contents()
    with Asked(text="k = 'a'").scan(contents) as scan:
        (group,) = scan.groups()
        assert (group.values, group.rows, group.nulls) == ((), 0, 0)
        assert [list(values) for values, _ in scan.values_at([[]])] == [[]]
        assert [one.tolist() for one in scan.ranks_at([np.array([1.0])])] == [[0]]
    with Asked(by=("k", "n")).scan(contents) as scan:
        assert not list(scan.groups())
        assert scan.values_at([]) == []
        assert scan.ranks_at([]) == []


def test_values_that_no_row_can_have_select_nothing(world: World) -> None:
    check(world, Asked(equal=(("n", ()),)))
    for name, value in (("n", 0.5), ("i8", 1000), ("k", "nobody"), ("f", 0.1), ("flag", True)):
        with Asked(equal=((name, (value,)),)).scan(world.contents) as scan:
            (group,) = scan.groups()
            assert (group.n + group.m + group.nulls > 0) == (name == "flag")
    with pytest.raises(InputError, match="cannot compare"):
        Asked(equal=(("k", (5,)),)).scan(world.contents)
    with pytest.raises(InputError, match="cannot compare"):
        Asked(equal=(("flag", (None,)),)).scan(world.contents)


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        (Asked(by=("missing",)), "there is no column 'missing'. Expected one of: t, k, b"),
        (Asked(equal=(("_tick", (1,)),)), "there is no column '_tick'"),
        (Asked(by=("nested",)), "of type struct.*, which cannot group or select rows"),
        (Asked(by=("wide",)), r"of type decimal\(38,2\), which cannot group or select rows"),
        (Asked(by=("k", "n", "k")), "named twice"),
    ],
)
def test_columns_that_cannot_be_used_are_refused(world: World, asked: Asked, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        asked.scan(world.contents)


def test_ranks_and_points_are_checked(world: World) -> None:
    with Asked(by=("flag",)).scan(world.contents) as scan:
        last = scan.groups()[-1]
        with pytest.raises(InputError, match="the ranks of 2 groups, got those of 1"):
            scan.values_at([[1]])
        for rank in (0, last.stored + 1):
            with pytest.raises(InputError, match=f"ranks from 1 to {last.stored}, got"):
                scan.values_at([[], [1, rank]])
        with pytest.raises(InputError, match="NaN has no rank"):
            scan.ranks_at([np.array([1.0, math.nan]), np.array([1.0])])


def test_many_points_are_many_ranks(world: World) -> None:
    points = np.random.default_rng(7).normal(0, 1, 3000)
    values = [row["x"] for row in world.history + world.live if row["x"] is not None]
    with Asked().scan(world.contents) as scan:
        (found,) = scan.ranks_at([points])
        assert found.tolist() == [sum(v <= point for v in values) for point in points]
        assert [one.tolist() for one in scan.ranks_at([points[:0]])] == [[]]


def test_a_scan_of_all_ticks_is_caught(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken variant: files are pruned by the window, and their rows are not."""
    asked = Asked(window=Window(FIRST_DAY + 3, FIRST_DAY + 4))
    check(world, asked)
    monkeypatch.setattr(Window, "covers", lambda *_: True)
    with pytest.raises(AssertionError):
        check(world, asked)
    monkeypatch.setattr(Window, "holds", lambda _, ticks: np.ones(len(ticks), dtype=bool))
    read_without_duckdb(monkeypatch)
    with pytest.raises(AssertionError):
        check(world, asked)
