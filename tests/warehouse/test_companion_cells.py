"""Cells of companions: their bytes, their place in marks and ledger, crashes and damage."""

from __future__ import annotations

import random
import struct
import threading
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tests.query.groupworld import HOUR, ONE, SCHEMA, START, TINY, GroupWorld
from tests.query.tally import Tally
from tests.query.test_companions import DECLARED, check, rows_of, world_of
from tests.soak import some
from tidemark import stream, warehouse
from tidemark.sketches import CorruptSketch
from tidemark.sketches.encoding.envelope import wrap
from tidemark.warehouse import DamagedWarehouse
from tidemark.warehouse.columns.tick_counts import TickCounts
from tidemark.warehouse.columns.ticks import NO_TICK
from tidemark.warehouse.companions import kinds
from tidemark.warehouse.companions.cells import Cell, fit_cells, join_by_tick, join_cells, summarise
from tidemark.warehouse.ledger import ledger_table
from tidemark.warehouse.runs import companion_marks


class Concatenation:
    """A kind whose summaries are texts: the values, sorted."""

    name = "text"
    deterministic = True

    def summarise(self, column: pa.Array, times: Any) -> list[str]:
        assert len(times) == len(column)
        return sorted(column.to_pylist())

    def join(self, parts: Any) -> list[str]:
        return sorted(value for part in parts for value in part)

    def to_bytes(self, summary: list[str]) -> bytes:
        return "".join(summary).encode()

    def from_bytes(self, data: bytes) -> list[str]:
        return list(data.decode())


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    for kind in (Tally(), Concatenation()):
        warehouse.register_companion(kind)
    yield
    for name in ("tally", "text"):
        kinds._REGISTERED.pop(name, None)


def cell(text: str, first: int, last: int | None = None, nulls: int = 0) -> Cell:
    return Cell("text", first, first if last is None else last, len(text) + nulls, nulls, text.encode())


GOLDEN = (
    "544d534b434d504e01000000290000000000000003000000000000000500000000000000060000000000000002000000"
    "0000000004" + b"textabcd".hex()
)


def test_the_stored_form_is_fixed() -> None:
    stored = cell("abcd", 3, 5, nulls=2).to_bytes()
    assert stored[:-4].hex() == GOLDEN
    assert Cell.from_bytes(stored) == cell("abcd", 3, 5, nulls=2)


def test_every_changed_or_missing_byte_is_noticed() -> None:
    stored = cell("abcd", 3, 5, nulls=2).to_bytes()
    for at in range(len(stored)):
        flipped = bytearray(stored)
        flipped[at] ^= 1
        for damaged in (bytes(flipped), stored[:at]):
            with pytest.raises(CorruptSketch):
                Cell.from_bytes(damaged)


HEAD = struct.Struct("<qqQQB")


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        HEAD.pack(5, 4, 1, 0, 4) + b"textx",  # ticks that fall
        HEAD.pack(4, 4, 1, 2, 4) + b"textx",  # more NULLs than rows
        HEAD.pack(4, 4, 1, 0, 9) + b"text",  # a name that is cut
        HEAD.pack(4, 4, 1, 0, 4) + "téx".encode(),
        HEAD.pack(4, 4, 1, 0, 4) + b"text",  # a row without a summary
        HEAD.pack(4, 4, 1, 1, 4) + b"textx",  # a summary without a row
    ],
)
def test_forged_cells_are_refused(payload: bytes) -> None:
    with pytest.raises(CorruptSketch, match=r"at byte \d+"):
        Cell.from_bytes(wrap(b"CMPN", 1, payload))


def test_nulls_and_times_are_told_apart() -> None:
    times = np.array([5, NO_TICK, 7])
    found = summarise("text", 2, pa.array(["b", None, "a"]), times)
    assert found == cell("ab", 2, nulls=1)
    assert summarise("none", 2, pa.nulls(3, pa.string()), times) == Cell("none", 2, 2, 3, 3, b"")


TICKS = st.integers(0, 9) | st.just(NO_TICK)
PARTS = st.builds(
    lambda text, tick, width, nulls: cell(text, tick, tick if tick == NO_TICK else tick + width, nulls),
    st.text("abc", max_size=3),
    TICKS,
    st.integers(0, 3),
    st.integers(0, 2),
)


@given(st.lists(PARTS, max_size=20), st.integers(1, 3000))
def test_joined_cells_are_disjoint_and_keep_all_rows(parts: list[Cell], size: int) -> None:
    joined = join_by_tick(parts)
    fitted = fit_cells(joined, size)
    for found in (joined, fitted):
        assert all(before.last < after.first for before, after in pairwise(found))
        assert sum(part.rows for part in found) == sum(part.rows for part in parts)
        assert sum(part.nulls for part in found) == sum(part.nulls for part in parts)
        assert sorted(b"".join(part.data for part in found)) == sorted(b"".join(part.data for part in parts))
    timeless = [part for part in joined if part.first == NO_TICK]
    assert fitted[: len(timeless)] == timeless
    assert sum(part.nbytes for part in fitted) <= size or len(fitted) <= 1 + len(timeless)


def test_cells_of_runs_that_begin_at_different_ticks_never_chain() -> None:
    """Runs whose ticks overlap, each with a budget of its own: joined cells are still short."""
    runs = [
        fit_cells([cell("a", tick) for tick in range(first, first + 60)], 4000) for first in (-31, 2, 3, 6)
    ]
    widths = [part.last - part.first for run in runs for part in run]
    assert max(widths) == 1
    joined = join_by_tick(part for run in runs for part in run)
    assert max(part.last - part.first for part in joined) == 1
    assert sum(part.rows for part in joined) == 240


def test_cells_that_lack_rows_of_the_run_are_refused() -> None:
    totals = TickCounts(np.array([1, 2, 5]), np.array([2, 1, 3]), np.array([0, 1, 0]), np.array([1, 0, 0]))
    right = [cell("ab", 1, nulls=1), cell("cdefg", 2, 5)]
    companion_marks.check_cells("x", right, totals)
    for wrong in ([], right[:1], right[::-1], [right[0], cell("cd", 2)], [right[0], cell("cdefgh", 2, 5)]):
        with pytest.raises(DamagedWarehouse, match="'x'"):
            companion_marks.check_cells("x", wrong, totals)


class Stopped(Exception):
    """Instead of a kill."""


POINTS = ["planned", "sorted", "marked", "committed", "merge sorted", "merge marked", "merged"]


@pytest.mark.parametrize("point", some(POINTS, 3))
def test_a_load_that_stops_anywhere_goes_on(point: str, tmp_path: Path) -> None:
    world = world_of(tmp_path, [(True, rows_of(60))] * 2 + [(False, rows_of(20)), (False, rows_of(10))])

    def stop(reached: str) -> None:
        if reached == point:
            raise Stopped

    with pytest.raises(Stopped):
        warehouse.load(None, world.path, tuning=TINY, progress=stop)
    check(world.open(), world, None)
    world.load_live()
    check(world.open(), world, (START, START + 5 * HOUR))
    assert warehouse.verify(world.path).ok


def test_a_batch_whose_ledger_row_is_missing_is_summarised_from_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The text column is a key, so it is read as a dictionary; kinds see it plain all the same."""
    world = world_of(tmp_path, [(False, rows_of(20))])

    def stop(*_: Any, **__: Any) -> bool:
        raise Stopped

    with monkeypatch.context() as patch:
        patch.setattr(ledger_table, "append_batch", stop)
        with pytest.raises(Stopped):
            world.add(rows_of(30), load=False)
    world.rows += rows_of(30)
    world.batches += 1
    world.add(rows_of(10), load=False)
    assert check(world.open(), world, None) == 0
    assert warehouse.verify(world.path).ok


def test_damaged_files_are_never_part_of_an_answer(tmp_path: Path) -> None:
    """Bytes change in marks and ledger: the answer is right, or an error."""
    draw, refused = random.Random(5), 0
    world = world_of(tmp_path, [(True, rows_of(60)), (True, rows_of(60)), (False, rows_of(20))])
    files = [*world.path.glob("companion_marks/run=*/*.parquet"), *world.path.glob("ledger/*.parquet")]
    for path in files:
        sound = path.read_bytes()
        for _ in range(25):
            damaged = bytearray(sound)
            damaged[draw.randrange(len(damaged))] ^= 1 << draw.randrange(8)
            path.write_bytes(damaged)
            try:
                check(world.open(), world, None)
            except DamagedWarehouse:
                refused += 1
        path.write_bytes(sound)
    assert refused > 10
    assert check(world.open(), world, None) == 0


def first_value(self: Tally, column: pa.Array, times: Any) -> Any:
    """A fault of memory: all values become the first one of the tick."""
    return REAL(self, column.take(pa.array([0] * len(column))), times)


@pytest.mark.parametrize("load", [True, False])
def test_verify_finds_a_summary_of_other_rows_and_repair_makes_it_again(
    load: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bytes are sound, the rows are counted. In a tick all origins are equal, so these are right."""
    with monkeypatch.context() as patch:
        patch.setattr(Tally, "summarise", first_value)
        world = world_of(tmp_path, [(load, rows_of(40))])
    broken = [check.name for check in warehouse.verify(world.path).checks if not check.ok]
    assert broken == ["companion values: cells are those of the rows"]
    assert warehouse.repair(None, world.path).outcome == "repaired"
    assert warehouse.verify(world.path).ok


REAL = Tally.summarise


def of_another_kind(cell: Cell) -> bytes:
    """The bytes of a cell as if another kind had made it."""
    return TO_BYTES(replace(cell, kind="text"))


TO_BYTES = Cell.to_bytes


@pytest.mark.parametrize(
    ("place", "wrong", "told"),
    [
        ("tidemark.warehouse.loads.run_builder.COMPANIONS_GROUP", "unknown", "it has no cells of the"),
        ("tidemark.warehouse.companions.cells.Cell.to_bytes", of_another_kind, "are not of its kind 'tally'"),
    ],
    ids=["none", "of another kind"],
)
def test_a_run_without_its_cells_is_told_and_built_again(
    place: str, wrong: Any, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(place, wrong)
        world = world_of(tmp_path, [(True, rows_of(40))])
    with pytest.raises(DamagedWarehouse, match=rf"run=L00.*{told}.*\. Run `tidemark repair`"):
        world.open().companion("origins")
    assert not warehouse.verify(world.path).ok
    assert warehouse.repair(None, world.path).outcome == "repaired"
    assert world.open().companion("origins").N == 40


@pytest.mark.spark
def test_kinds_go_to_the_tasks_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    """Batches, loads and merges by Spark: its workers are processes that registered nothing."""
    world = GroupWorld.create(tmp_path, ONE, companions=DECLARED, keys=["origin"], groups=[])

    def frame(count: int) -> Any:
        return spark.createDataFrame(pa.Table.from_pylist(as_dicts(count), schema=SCHEMA))

    for number in range(4):
        warehouse.load(spark, world.path, frame(50 + number), f"b{number}", tuning=TINY)
        stream.append(spark, world.path, frame(20), source="s", batch=number, tuning=TINY)
        world.rows += rows_of(50 + number) + rows_of(20)
    check(world.open(), world, None)
    warehouse.load(spark, world.path, tuning=TINY)
    check(world.open(), world, (START, START + 5 * HOUR))
    assert warehouse.verify(world.path).ok


@pytest.mark.spark
def test_a_kind_that_cannot_go_to_spark_is_refused_first(spark: SparkSession, tmp_path: Path) -> None:
    world = world_of(tmp_path, [(False, rows_of(5))])
    unpicklable = Tally()
    unpicklable.lock = threading.Lock()  # type: ignore[attr-defined]
    warehouse.register_companion(unpicklable)
    frame = spark.createDataFrame(pa.Table.from_pylist(as_dicts(3), schema=SCHEMA))
    with pytest.raises(warehouse.InputError, match="'tally' cannot go to Spark's tasks"):
        warehouse.load(spark, world.path, frame, "b")
    with pytest.raises(warehouse.InputError, match="'tally' cannot go to Spark's tasks"):
        stream.append(spark, world.path, frame, source="s", batch=1)
    assert check(world.open(), world, None) == 0


def as_dicts(count: int) -> list[dict[str, Any]]:
    return [dict(zip(SCHEMA.names, row, strict=True)) for row in rows_of(count)]


def test_joining_one_cell_needs_no_kind() -> None:
    kinds._REGISTERED.clear()
    assert join_cells([cell("a", 1), Cell("text", 2, 2, 3, 3, b"")]) == cell("a", 1, 2, nulls=3)
