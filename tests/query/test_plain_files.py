"""Threads that read whole files in the place of DuckDB are stopped, and watched, as a statement is."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from threading import Event
from typing import Any

import pytest

from tests.query.groupworld import HOUR, START, GroupWorld
from tests.query.test_ways_left import Work
from tests.query.ways import forced
from tidemark.query.reading import connections, spending
from tidemark.query.reading.costs import Rates
from tidemark.query.reading.spending import Left, Limit
from tidemark.query.scans import coded_rows, plain_files
from tidemark.query.scans.coded_rows import CodedRows
from tidemark.query.scans.open_scan import OpenScan
from tidemark.query.scans.plain_files import FileReading, PlainFile
from tidemark.warehouse import DamagedWarehouse
from tidemark.warehouse.columns.keys import Key
from tidemark.warehouse.columns.value_encoding import Measure
from tidemark.warehouse.os_errors import report_unreadable_file

Patch = pytest.MonkeyPatch
Read = Callable[..., Iterator[Any]]
ASK: dict[str, Any] = {"by": "number", "mode": "exact"}
READ: Read = plain_files.read_rows
MEASURE, BY, SPANS = Measure("value", "double"), [Key("number", "long")], [(0, 5)]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> GroupWorld:
    """Two runs and live rows, in three files, by a group of integers."""
    rows: list[Any] = [(START + i % 8 * HOUR, "a", i % 5, float(i * 37 % 101), None) for i in range(60)]
    batches = [(True, rows[:20]), (True, rows[20:40]), (False, rows[40:])]
    folder = tmp_path_factory.mktemp("world")
    return GroupWorld.of(folder, batches, groups=["number"], measures=("value",))


def files_of(world: GroupWorld) -> list[PlainFile]:
    found = list((world.path / "events").rglob("*.parquet"))
    assert len(found) == 3
    return [PlainFile(str(path), ("number", "value"), 20, is_live=False) for path in found]


def check_stopped(world: GroupWorld, read: Read = READ) -> None:
    """A limit in the past stops the reading, which is no damage."""
    files, limit = files_of(world), Limit(-math.inf)
    with spending.spending() as spent, Patch.context() as patch:
        patch.setattr(coded_rows, "read_rows", read)
        reading = FileReading(files)
        assert CodedRows.of_files(files, SPANS, MEASURE, BY, reading) is not None
        assert reading.share == 1
        spent.limits.append(limit)
        reading = FileReading(files)
        with pytest.raises(Left) as left:
            CodedRows.of_files(files, SPANS, MEASURE, BY, reading)
        assert left.value.limit is limit
        assert reading.share == 0


def check_other_way(world: GroupWorld, read: Read = READ) -> None:
    """A question whose scan is stopped while files are read is answered by the other way."""
    clock, wh, known = Work(), world.open(), world.open().quantile([0, 0.5, 1], **ASK)
    free = dict.fromkeys(["statement", "event_row", "grouped", "grouped_row", "found_cell"], 0.0)
    wh._session.costs.rates = Rates(slice=1e3, cell=1e3, read_row=1e9, **free)
    wh._session.costs.patience = 0.0
    is_read = Event()

    def slow(*given: Any) -> Iterator[Any]:
        is_read.set()
        clock.done += 1000.0
        return read(*given)

    with clock.questions(), Patch.context() as patch:
        for wait in ("_LEAST_WAIT", "_REPORT_SECONDS"):  # the thread that reads is the first to see its end
            patch.setattr(connections, wait, 60)
        patch.setattr(coded_rows, "read_rows", slow)
        found = wh.quantile([0, 0.5, 1], **ASK)
    assert is_read.is_set()
    plan: Any = found[0].plan
    assert (plan.left, plan.way) == (["scan"], "index")
    assert [one.value for one in found] == [one.value for one in known]


def _damage_is_reported_of_all(*given: Any) -> Iterator[Any]:
    with report_unreadable_file("a file"):
        yield from READ(*given)


@pytest.mark.parametrize("check", [check_stopped, check_other_way])
def test_a_reading_that_is_stopped_is_no_damage(world: GroupWorld, check: Callable[..., None]) -> None:
    """The broken variant reports as damage whatever ends the reading."""
    check(world)
    with pytest.raises(DamagedWarehouse):
        check(world, _damage_is_reported_of_all)


def _asked(world: GroupWorld, progress: Callable[[float], None], read: Read) -> None:
    """A question that a scan answers."""
    with forced("scan"), Patch.context() as patch:
        patch.setattr(connections, "_REPORT_SECONDS", 0.001)
        patch.setattr(coded_rows, "read_rows", read)
        world.open(progress=progress).quantile(0.5, **ASK)


def check_progress(world: GroupWorld, patience: float = 60) -> None:
    """The reading of the files is told: a part of it while it goes on, and its end."""
    has_begun, is_told = Event(), Event()
    seen: list[float] = []

    def progress(share: float) -> None:
        if has_begun.is_set():  # before, files are compared
            seen.append(share)
            if 0 < share < 1:
                is_told.set()

    def read(*given: Any) -> Iterator[Any]:
        has_begun.set()
        for rows in READ(*given):
            yield rows
            assert is_told.wait(patience)

    _asked(world, progress, read)
    assert has_begun.is_set()
    assert seen == sorted(seen)
    assert seen[-1] == 1


class EnoughError(Exception):
    """What a caller's own function raises."""


def check_error_of_progress(world: GroupWorld, rounds: Iterable[int] | None = None) -> None:
    """It stops the reading, which does not end by itself here, and leaves once it has ended."""
    has_begun, has_ended = Event(), Event()

    def progress(share: float) -> None:
        if has_begun.is_set() and share < 1:
            raise EnoughError

    def read(files: Any, *given: Any) -> Iterator[Any]:
        has_begun.set()
        given[-1].add(-(2**60))  # so it is never told as a whole
        try:
            for _ in itertools.count() if rounds is None else rounds:
                yield from READ(files, *given)
        finally:
            has_ended.set()

    with pytest.raises(EnoughError):
        _asked(world, progress, read)
    assert has_ended.is_set()


def test_the_reading_reports_its_progress(world: GroupWorld, monkeypatch: Patch) -> None:
    check_progress(world)
    monkeypatch.setattr(OpenScan, "watched", lambda _, read, *__: read())
    with pytest.raises(AssertionError):
        check_progress(world, patience=0)


def test_an_error_of_progress_stops_the_reading(world: GroupWorld, monkeypatch: Patch) -> None:
    check_error_of_progress(world)
    monkeypatch.setattr(OpenScan, "watched", lambda _, read, *__: read())
    with pytest.raises(pytest.fail.Exception):
        check_error_of_progress(world, rounds=[1])
