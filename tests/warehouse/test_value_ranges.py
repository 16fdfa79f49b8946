"""Files that cannot have a row to find are not read; each other one is."""

from __future__ import annotations

import json
import math
from bisect import bisect_left
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

from tests.query.groupworld import HOUR, START, TINY, GroupWorld
from tests.warehouse.corrections import changed, correct, create, numbered, swap, table_of
from tests.warehouse.test_remove import check, keep
from tidemark import warehouse
from tidemark.jobs.cli.main import main
from tidemark.warehouse import InputError
from tidemark.warehouse.columns.ticks import TickGrid
from tidemark.warehouse.columns.value_encoding import Measure
from tidemark.warehouse.delta.data_files import list_files
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.ingest import event_files
from tidemark.warehouse.removals import select, value_ranges
from tidemark.warehouse.removals.conditions import TimeRange
from tidemark.warehouse.removals.row_values import RowValues
from tidemark.warehouse.removals.value_ranges import ColumnRanges, EventTime

LONG = "long " * 9  # longer than a bound of text
TEXTS = st.sampled_from(
    ["", "a", "b", "é", LONG, LONG + "z", "\U0010ffff" * 40, "\ue000", "\U00010000", None]
)
NUMBERS = st.sampled_from([-(2**63), -1, 0, 1, 2**53 + 1, 2**63 - 1, None])
FLOATS = st.sampled_from([-math.inf, -1.5, -0.0, 0.0, 2.0, math.inf, math.nan, None])
TIMES = st.sampled_from([datetime(1969, 12, 31, 23, tzinfo=UTC), START, START + HOUR / 2, START + HOUR, None])
FIELDS = pa.schema(
    [("k", pa.string()), ("n", pa.int64()), ("f", pa.float64()), ("t", pa.timestamp("us", "UTC"))]
)
ROWS = st.lists(st.tuples(TEXTS, NUMBERS, FLOATS, TIMES), min_size=1, max_size=6)
GRID = TickGrid(HOUR // timedelta(microseconds=1))
TIME = EventTime(Measure("t", "timestamp"), GRID)


def batch(rows: list[Any]) -> pa.RecordBatch:
    columns = [pa.array([row[i] for row in rows], kind) for i, kind in enumerate(FIELDS.types)]
    return pa.RecordBatch.from_arrays(columns, schema=FIELDS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stats")
    (folder / "events").mkdir()
    return folder


def statistics_of(folder: Path, rows: list[Any]) -> dict[str, Any]:
    """Those of a file of `events` with these rows, by the code that writes it."""
    ticks = event_files.event_ticks(TIME.column, GRID, batch(rows).column(3))
    table = pa.Table.from_batches([batch(rows)]).append_column("_tick", pa.array(ticks))
    with event_files.RowFile(Store(str(folder)), table.schema) as file:
        file.write(table)
    found = json.loads(file.written().stats)
    return {
        f"{end}.{name}": value
        for end, kind in (("min", "minValues"), ("max", "maxValues"))
        for name, value in found[kind].items()
        if name != "t"  # times are left out of the list of files
    }


@given(ROWS, ROWS, st.booleans())
def test_a_file_with_an_equal_row_is_read(folder: Path, wanted: Any, rows: Any, nulls_match: bool) -> None:
    values = RowValues.of(batch(wanted), nulls_match=nulls_match, time=TIME)
    has_one = bool(values.mask(pa.Table.from_batches([batch(rows)])).any())
    share = values.share(statistics_of(folder, rows))
    assert share in (("some",) if has_one else ("some", "none"))
    assert values.share({}) == ("some" if values.rows.num_rows else "none")


def test_a_range_that_leaves_its_ends_out_is_caught(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken variant: the greatest value of a file counts as outside."""
    monkeypatch.setattr(value_ranges, "bisect_right", bisect_left)
    row = ("a", 1, 2.0, START)
    assert RowValues.of(batch([row]), nulls_match=True).share(statistics_of(folder, [row])) == "none"
    with pytest.raises(AssertionError):
        test_a_file_with_an_equal_row_is_read.hypothesis.inner_test(folder, [row], [row], True)  # type: ignore[attr-defined]


def test_one_row_has_to_lie_within_all_columns(folder: Path) -> None:
    stats = statistics_of(folder, [("a", 1, 0.0, START), ("b", 3, 0.0, START)])
    for rows, share in (
        ([("a", 2, 0.0, START)], "some"),
        ([("c", 2, 0.0, START), ("a", 4, 0.0, START)], "none"),
        ([("a", 2, 1.0, START)], "none"),
        ([("a", 2, 0.0, START + HOUR)], "none"),
        ([("a", 2, math.nan, START)], "some"),  # other tools leave NaN out of the bounds
        ([(None, 2, 0.0, START)], "some"),
    ):
        assert RowValues.of(batch(rows), nulls_match=True, time=TIME).share(stats) == share
    struct = ColumnRanges("n", [5], np.array([0]))
    assert struct.within({"min.n": 6}).tolist() == [False]  # type: ignore[union-attr]
    assert struct.within({"max.n": 5}).tolist() == [True]  # type: ignore[union-attr]
    assert struct.within({}) is None


@given(TIMES, TIMES, st.lists(TIMES, min_size=1, max_size=5))
def test_a_range_of_times_selects_its_rows_and_reads_their_files(
    folder: Path, start: Any, end: Any, times: Any
) -> None:
    if (start is None and end is None) or (start is not None and end is not None and start >= end):
        with pytest.raises(InputError, match="between must be"):
            TimeRange.of((start, end), TIME)
        return
    rows = [("a", 1, 0.0, time) for time in times]
    within = TimeRange.of((start, end), TIME)
    truth = [t is not None and (start is None or t >= start) and (end is None or t < end) for t in times]
    assert within.mask(pa.Table.from_batches([batch(rows)])).tolist() == truth
    share = within.share(statistics_of(folder, rows))
    assert share == "some" or not any(truth)
    assert within.share({}) == "some"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> GroupWorld:
    return create(tmp_path_factory.mktemp("made"))


@pytest.fixture
def world(made: GroupWorld, tmp_path: Path) -> GroupWorld:
    return made.copy(tmp_path)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files whose rows were looked at."""
    found, run = list[str](), select.SelectTask.run

    def told(self: select.SelectTask) -> Any:
        found.append(self.path)
        return run(self)

    monkeypatch.setattr(select.SelectTask, "run", told)
    return found


def test_corrections_and_deletes_read_the_files_of_their_keys(world: GroupWorld, read: list[str]) -> None:
    """Each batch has numbers of its own, and a file."""
    files = len(list_files(DeltaTable(str(world.path / "events"))))
    assert files == 5
    old = numbered(world, [111, 112])
    assert correct(world, "fix", [changed(row) for row in old], on="number").rows == 2
    assert len(set(read)) == 1
    swap(world, old, [changed(row) for row in old])
    read.clear()
    gone = pa.table({"number": [3, 77, 1000]})
    assert warehouse.delete(None, world.path, keys=gone, tuning=TINY).rows == 1
    assert len(set(read)) == 1
    keep(world, lambda row: row[2] != 3)
    read.clear()
    old = numbered(world, [401])  # a live row, by its whole image
    correct(world, "more", [changed(old[0])], before=old)
    assert len(set(read)) <= 2
    swap(world, old, [changed(old[0])])
    check(world)


def test_files_of_other_times_are_not_read_where_the_caller_names_a_time(
    world: GroupWorld, read: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    old = [row for row in world.rows if row[0] is not None and row[0] < START + 7 * HOUR]
    row = old[3]
    between = (START, START + 7 * HOUR)
    correct(world, "fix", [changed(row)], on="number", between=between)
    assert len(set(read)) < 5
    swap(world, [row], [changed(row)])
    late = numbered(world, [205])[0]
    with pytest.raises(InputError, match="are not in the warehouse"):
        correct(world, "late", [changed(late)], on="number", between=between)
    for bad in ((START, START), "now", (None, None)):
        with pytest.raises(InputError, match="between must be"):
            correct(world, "late", [changed(late)], on="number", between=bad)
    origins = pa.table({"origin": ["a"]})
    end = (START + 7 * HOUR).isoformat()
    report = warehouse.delete(None, world.path, keys=origins, between=(None, end), tuning=TINY)
    truth = [one for one in world.rows if one[1] == "a" and one[0] and one[0] < START + 7 * HOUR]
    assert report.rows == len(truth)
    swap(world, truth, [])
    check(world)
    given = ["delete", "-w", str(world.path), "--where", "origin = 'b'", "--dry-run"]
    assert main([*given, "--between", "-", end]) == 0
    count = sum(bool(one[1] == "b" and one[0] and one[0] < START + 7 * HOUR) for one in world.rows)
    assert f"would remove {count} rows" in capsys.readouterr().out


def test_without_times_there_is_no_range_of_them(tmp_path: Path) -> None:
    warehouse.create(None, tmp_path / "w", ["value"])
    warehouse.load(None, tmp_path / "w", table_of([]).select(["value"]).slice(0, 0), "none")
    warehouse.load(None, tmp_path / "w", pa.table({"value": [1.0, 2.0]}), "one")
    with pytest.raises(InputError, match="there is no time column"):
        warehouse.delete(None, tmp_path / "w", where="value = 1", between=(START, None))
