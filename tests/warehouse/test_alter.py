"""Keys and groups that are added to a warehouse with data: built, resumed, and refused until whole."""

from __future__ import annotations

import importlib
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Container
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.query.groupworld import HOUR, START, TINY, GroupWorld, Row, check_quantile, group_of
from tests.query.keyoracle import check_key
from tests.soak import some
from tidemark import query, warehouse
from tidemark.warehouse import InputError

ROOT = Path(__file__).resolve().parents[2]


def rows(number: int, count: int = 60, unpriced: Container[int] = range(7)) -> list[Row]:
    """Rows of batch `number`, with NULL, NaN and equal values.

    unpriced: of seven rows that follow each other, the places of those without a price.
    """
    return [
        (
            START + ((number * 7 + i) % 40) * HOUR,
            ["a", "b", "é", None][(i + number) % 4],
            (i % 5) or None,
            math.nan if i % 13 == 0 else float(i * number % 17),
            None if i % 7 in unpriced else Decimal(i * number % 23) / 4,
        )
        for i in range(count)
    ]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> GroupWorld:
    """Five steps in history, and two live batches; neither keys nor groups."""
    made = GroupWorld.create(tmp_path_factory.mktemp("made"), groups=None, key_eps=0.05)
    for number in range(7):
        made.add(rows(number), load=number < 5)
    return made


@pytest.fixture
def world(made: GroupWorld, tmp_path: Path) -> GroupWorld:
    return made.copy(tmp_path)


def check(world: GroupWorld, keys: list[Any], groups: list[str], *, verified: bool = True) -> None:
    """Answers by the new keys and groups are those of the rows, and so are all others; and verify holds."""
    wh = world.open()
    for mode in ("quick", "accurate", "exact"):
        for measure in ("value", "price"):
            for name in groups:
                for answer in wh.quantile([0.1, 0.5, 1], measure, by=name, mode=mode):
                    assert answer.rows_scanned is None
                    check_quantile(answer, world.truth(measure, group_of(answer), None), mode)
    truth = world.truth("value", {}, None)
    assert wh.quantile(0.5, "value", mode="exact").value == truth.quantile(0.5)
    for key in keys:
        check_key(world, key, None, wh)
    if verified:
        report = warehouse.verify(world.path)
        assert report.ok, [check for check in report.checks if not check.ok]


def test_a_group_and_a_key_are_built_from_the_events(world: GroupWorld) -> None:
    report = warehouse.alter(None, world.path, add_group="origin", tuning=TINY)
    assert (report.outcome, report.rows) == ("loaded", 300)
    check_one(world)  # the rows of one group need no summaries
    check(world, ["origin"], ["origin"])  # the live batches lack its summaries, so their rows are read
    warehouse.create(None, world.path, ["value", "price"], time="time")  # the job that created it goes on
    warehouse.alter(None, world.path, add_key=["number", "origin"], tuning=TINY)
    check(world, ["origin", ["number", "origin"]], ["origin"])
    world.load_live()
    check(world, ["origin", ["number", "origin"]], ["origin"], verified=False)
    for number in range(7, 12):
        world.add(rows(number), load=number == 9)
    check(world, ["origin", ["number", "origin"]], ["origin"])
    assert warehouse.alter(None, world.path, add_group="origin", tuning=TINY).outcome == "known"


def test_the_default_key_stays(tmp_path: Path) -> None:
    made = GroupWorld.create(tmp_path, groups=["origin"])
    made.add(rows(1), load=True)
    warehouse.alter(None, made.path, add_key="number", tuning=TINY)
    assert [key.name for key in made.open().keys] == ["origin", "number"]
    check(made, ["origin", "number"], ["origin"])


def check_one(world: GroupWorld, *, scanned: bool = False) -> None:
    """Answers about one group are those of its rows."""
    wh = world.open()
    for name in ("a", "b", "é"):
        for measure in ("value", "price"):
            truth = world.truth(measure, {"origin": name}, None)
            if truth.n:
                answer = wh.quantile(0.5, measure, where={"origin": name}, mode="exact")
                check_quantile(answer, truth, "exact")
                assert (answer.rows_scanned is not None) == scanned


def check_unfinished(world: GroupWorld) -> None:
    """Groups are answered by a scan, as before the alter; the new key waits."""
    check_one(world, scanned=True)
    with pytest.raises(InputError, match=r"the keys of step.* not in history yet.*of 5 steps"):
        world.open().frequency("a", key="origin")


class StoppedError(Exception):
    """The process ends here."""


@pytest.mark.parametrize("commits", some([0, 1, 2, 3, 4, 7, 9], 3))
def test_it_goes_on_where_it_stopped(world: GroupWorld, commits: int) -> None:
    done = 0

    def stop(point: str) -> None:
        nonlocal done
        if point == "committed":
            done += 1
        if done > commits or (commits == 0 and point == "sorted"):
            raise StoppedError

    before = world.open()
    with pytest.raises(StoppedError):
        warehouse.alter(None, world.path, add_group="origin", progress=stop, tuning=TINY)
    assert world.truth("value", {}, None).n == before.quantile(0.5, "value", mode="exact").N
    check_unfinished(world)
    world.add(rows(20), load=False)
    warehouse.alter(None, world.path, add_group="origin", tuning=TINY)
    check_one(world)
    world.load_live()
    check(world, ["origin"], ["origin"])


def test_each_form_of_a_question_by_an_unfinished_group_is_answered(world: GroupWorld) -> None:
    def stop(point: str) -> None:
        if point == "sorted":
            raise StoppedError

    with pytest.raises(StoppedError):
        warehouse.alter(None, world.path, add_group="origin", progress=stop, tuning=TINY)
    wh = world.open()
    options: list[dict[str, Any]] = [{}, {"top": 2}, {"groups": ["a", "é"]}]
    for asked in options:
        found = wh.quantile([0.5], "value", by="origin", **asked)
        assert found
        for answer in found:
            assert answer.declare is None
            check_quantile(answer, world.truth("value", group_of(answer), None), "exact")
    in_sql = wh.sql("SELECT value, n + m FROM quantile(0.5, 'value', by => 'origin', top => 2)").fetchall()
    assert in_sql == [(one.value, one.N) for one in wh.quantile([0.5], "value", by="origin", top=2)]


def test_a_load_goes_on_where_it_stopped(world: GroupWorld) -> None:
    def stop(point: str) -> None:
        if point == "committed":
            raise StoppedError

    with pytest.raises(StoppedError):
        warehouse.alter(None, world.path, add_group="origin", progress=stop, tuning=TINY)
    world.load_live()
    check(world, ["origin"], ["origin"])


def test_loads_and_streams_that_began_before_lose_nothing(
    world: GroupWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = warehouse.open_snapshot(world.path).options
    warehouse.alter(None, world.path, add_key="origin", tuning=TINY)
    with monkeypatch.context() as patch:  # their options are from before
        patch.setattr(importlib.import_module("tidemark.warehouse.load"), "read_options", lambda *_: old)
        world.add(rows(30), load=True)
        world.add(rows(31), load=True)
    with pytest.raises(InputError, match="not in history yet"):
        world.open().frequency("a", key="origin", mode="exact")
    world.load_live()
    check(world, ["origin"], [])


def test_two_at_a_time_end_with_both(world: GroupWorld) -> None:
    errors: list[Exception] = []

    def add(**what: Any) -> None:
        try:
            warehouse.alter(None, world.path, tuning=TINY, **what)
        except Exception as error:  # noqa: BLE001  whatever it is, the test shows it
            errors.append(error)

    threads = [
        threading.Thread(target=add, kwargs=what)
        for what in ({"add_group": "origin"}, {"add_key": "number"}, {"add_group": "origin"})
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    world.load_live()
    check(world, ["origin", "number"], ["origin"])


@pytest.mark.slow
def test_a_kill_at_any_moment_is_mended_by_the_next_call(world: GroupWorld) -> None:
    script = (
        "import sys; from tidemark import warehouse; from tests.query.groupworld import TINY; "
        f"print(flush=True); warehouse.alter(None, {str(world.path)!r}, add_group='origin', tuning=TINY)"
    )
    for delay in some((0.02, 0.1, 0.3, 0.6), 2):
        process = subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(delay)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
        assert world.truth("value", {}, None).n == world.open().quantile(0.5, "value", mode="exact").N
    warehouse.alter(None, world.path, add_group="origin", tuning=TINY)
    world.load_live()
    check(world, ["origin"], ["origin"])


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ({}, "needs something to change: add_measure, add_key, add_group"),
        ({"add_key": "nothing"}, "the key column 'nothing' is missing"),
        ({"add_group": ["origin", "nothing"]}, "the group column 'nothing' is missing"),
        ({"add_key": []}, "a key is named by"),
        ({"add_key": 7}, "a key is named by"),
        ({"add_group": ["origin", "origin"]}, "origin"),
    ],
)
def test_what_cannot_be_added_changes_nothing(world: GroupWorld, what: dict[str, Any], words: str) -> None:
    before = sorted(Path(world.path).rglob("*"))
    with pytest.raises(InputError) as told:
        warehouse.alter(None, world.path, tuning=TINY, **what)
    assert words in str(told.value)
    assert sorted(Path(world.path).rglob("*")) == before


def test_an_unfinished_group_that_is_answered_is_caught(
    world: GroupWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broken variant: nobody checks which steps the group has."""
    monkeypatch.setattr("tidemark.warehouse.snapshots.snapshot.Snapshot._unbuilt", lambda *_: None)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        test_it_goes_on_where_it_stopped(world, 4)


def test_an_unfinished_group_that_is_refused_is_caught(
    world: GroupWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broken variant: an alter takes away what was answered before it."""
    monkeypatch.setattr("tidemark.warehouse.snapshots.snapshot.Snapshot.are_built", lambda *_: True)
    with pytest.raises(InputError, match="not in history yet"):
        test_it_goes_on_where_it_stopped(world, 4)


def test_an_empty_warehouse_is_altered_before_its_first_batch(tmp_path: Path) -> None:
    warehouse.create(None, tmp_path / "w", ["value"], time="time")
    assert warehouse.alter(None, tmp_path / "w", add_group="origin").outcome == "altered"
    world = GroupWorld(tmp_path / "w", [])
    world.add(rows(1), load=True)
    world.add(rows(2), load=False)
    assert [key.name for key in query.open(world.path).keys] == ["origin"]
    check_key(world, "origin", None)
