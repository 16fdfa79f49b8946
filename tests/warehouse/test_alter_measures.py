"""Measures that come and go, keys and groups that go, options with new values, beside a list of all rows."""

from __future__ import annotations

import importlib
import math
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.query.groupworld import TINY, GroupWorld, check_quantile, group_of
from tests.query.keyoracle import check_key
from tests.soak import HAS_ALL, draws, some
from tests.warehouse.disk import files_of
from tests.warehouse.test_alter import ROOT, StoppedError
from tests.warehouse.test_alter import rows as mixed_rows
from tidemark import query, warehouse
from tidemark.sketches import SketchError
from tidemark.warehouse import InputError

ALL = {"value", "price", "number"}


rows = partial(mixed_rows, unpriced={3})


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> GroupWorld:
    """Three steps in history, four live batches, a group, and no grace."""
    made = GroupWorld.create(
        tmp_path_factory.mktemp("made"), groups=["origin"], key_eps=0.05, grace="0 s", kappa=3
    )
    for number in range(7):
        made.add(rows(number, 24), load=number < 3)
    return made


@pytest.fixture
def world(made: GroupWorld, tmp_path: Path) -> GroupWorld:
    return made.copy(tmp_path)


def alter(world: GroupWorld, **what: Any) -> warehouse.LoadReport:
    return warehouse.alter(None, world.path, tuning=TINY, **what)


def check(
    world: GroupWorld, measures: set[str], keys: set[str], groups: set[str], *, verified: bool = True
) -> None:
    """Each question has the answer of the list of rows, or is refused because nobody declared it.

    And verify holds.
    """
    wh = world.open()
    assert {one.name for one in wh.options.measures} == measures
    assert {one.name for one in wh.keys} == keys | groups
    for measure in ALL:
        if measure not in measures:
            with pytest.raises(InputError, match=f"no measure '{measure}' here"):
                wh.quantile(0.5, measure)
            continue
        for mode in ("quick", "exact"):
            for answer in wh.quantile([0.1, 0.5, 1], measure, mode=mode):
                check_quantile(answer, world.truth(measure, {}, None), mode)
        for name in groups:
            for answer in wh.quantile([0.5], measure, by=name, mode="exact"):
                assert answer.rows_scanned is None
                check_quantile(answer, world.truth(measure, group_of(answer), None), "exact")
    for name in keys | groups:
        check_key(world, name, None, wh)
    if verified:
        report = warehouse.verify(world.path)
        assert report.ok, [one for one in report.checks if not one.ok]


def files_of_value(world: GroupWorld) -> list[str]:
    """The data files of the measure `value`, also by group."""
    return [path for path in files_of(world.path) if "/value/run=" in path]


def test_a_measure_is_built_from_the_events(world: GroupWorld) -> None:
    report = alter(world, add_measure="number")
    assert (report.outcome, report.rows) == ("loaded", 72)
    check(world, ALL, set(), {"origin"})  # its live batches have no summaries of it: their rows are read
    world.add(rows(8, 24), load=False)  # completes a range of batches from before and after
    world.add(rows(9, 24), load=False)
    check(world, ALL, set(), {"origin"}, verified=False)
    warehouse.create(None, world.path, ["value", "price"], time="time")  # the job that created it goes on
    warehouse.create(None, world.path, ["value", "price", "number"], time="time")
    with pytest.raises(warehouse.OptionsMismatch, match="measures was given as"):
        warehouse.create(None, world.path, ["value"], time="time")
    world.load_live()
    check(world, ALL, set(), {"origin"})
    assert alter(world, add_measure="number").outcome == "known"


def test_a_step_that_is_built_twice_is_caught(world: GroupWorld, monkeypatch: Any) -> None:
    """The broken variant: each row of a step is sorted into the new measure twice."""
    builder = importlib.import_module("tidemark.warehouse.loads.run_builder")
    found = builder.files_of_batches
    monkeypatch.setattr(builder, "files_of_batches", lambda *asked: [*found(*asked)] * 2)
    with pytest.raises((AssertionError, warehouse.DamagedWarehouse)):
        test_a_measure_is_built_from_the_events(world)


@pytest.mark.parametrize("commits", [0, 1, 3])
def test_a_measure_is_refused_until_it_is_whole(world: GroupWorld, commits: int) -> None:
    done = 0

    def stop(point: str) -> None:
        nonlocal done
        done += point == "committed"
        if done > commits or (commits == 0 and point == "sorted"):
            raise StoppedError

    before = world.open()
    with pytest.raises(StoppedError):
        alter(world, add_measure="number", progress=stop)
    with pytest.raises(InputError, match=r"the values of step.*not in history yet"):
        world.open().quantile(0.5, "number")
    with pytest.raises(InputError, match=r"the values of step.*not in history yet"):
        before.quantile(0.5, "number")
    assert world.truth("value", {}, None).n == before.quantile(0.5, "value", mode="exact").N
    assert warehouse.verify(world.path).ok
    world.add(rows(8, 24), load=False)
    if commits == 1:
        world.load_live()  # which goes on with it
    else:
        alter(world, add_measure="number")
    check(world, ALL, set(), {"origin"})


def test_a_measure_that_is_asked_unbuilt_is_caught(world: GroupWorld, monkeypatch: Any) -> None:
    """The broken variant: nobody checks which steps the measure has."""
    monkeypatch.setattr("tidemark.warehouse.snapshots.snapshot.Snapshot._unbuilt", lambda *_: None)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        test_a_measure_is_refused_until_it_is_whole(world, 1)


def test_what_is_dropped_is_in_no_question_and_its_files_go(world: GroupWorld) -> None:
    reader, pinned = world.open(), world.open().pinned()
    before = pinned.quantile(0.5, "value", mode="exact")
    alter(world, drop_measure="value")
    with pytest.raises(InputError, match="no measure 'value' here"):
        reader.quantile(0.5, "value")
    assert pinned.quantile(0.5, "value", mode="exact") == before
    assert reader.quantile(0.5, mode="exact").measure == "price"
    check(world, {"price"}, set(), {"origin"}, verified=False)
    files = files_of_value(world)
    assert files
    warehouse.maintain(None, world.path, grace="1 day")
    assert set(files) <= set(files_of(world.path))
    report = warehouse.maintain(None, world.path)
    assert report.swept["runs/value"] == 3
    assert not files_of_value(world)
    check(world, {"price"}, set(), {"origin"})
    assert alter(world, drop_measure="value").outcome == "known"
    assert alter(world, drop_group="origin", drop_key="origin").outcome == "altered"
    check(world, {"price"}, set(), set())
    with pytest.raises(warehouse.OptionsMismatch, match="alter"):
        warehouse.create(None, world.path, ["value", "price"], time="time")


@pytest.mark.parametrize("emptied", [False, True])
def test_what_comes_back_is_whole(world: GroupWorld, emptied: bool) -> None:
    alter(world, drop_measure="value", drop_group="origin")
    check(world, {"price"}, {"origin"}, set(), verified=False)
    world.add(rows(8, 24), load=True)
    world.add(rows(9, 24), load=False)
    if emptied:
        warehouse.maintain(None, world.path)
    report = alter(world, add_measure="value", add_group="origin")
    assert (
        report.rows == world.truth("price", {}, None).n + world.truth("price", {}, None).nulls - 24 * 5
        or not emptied
    )
    check(world, {"price", "value"}, set(), {"origin"}, verified=False)
    warehouse.maintain(None, world.path)
    check(world, {"price", "value"}, set(), {"origin"})


def begun_in_first(world: GroupWorld, number: int) -> None:
    """A bulk load that ended once its step was in the first measure alone."""

    def stop(point: str) -> None:
        if point == "committed":
            raise StoppedError

    counted = list(world.rows)
    with pytest.raises(StoppedError):
        world.add(rows(number, 24), load=True, progress=stop)
    world.rows, world.batches = [*counted, *rows(number, 24)], world.batches + 1


def test_a_batch_that_only_the_dropped_measure_has_stays(world: GroupWorld) -> None:
    begun_in_first(world, 8)
    reader = world.open()
    rows_seen = reader.quantile(0.5, "price", mode="exact").N
    assert rows_seen == world.truth("price", {}, None).n
    alter(world, drop_measure="value")
    assert rows_seen == reader.quantile(0.5, "price", mode="exact").N
    check(world, {"price"}, set(), {"origin"})


def begins_while_it_is_dropped(world: GroupWorld, monkeypatch: Any) -> None:
    """A load with the options from before commits its step to the dropped measure alone, and ends."""
    old = warehouse.open_snapshot(world.path).options
    alter(world, drop_measure="value")
    with monkeypatch.context() as patch:
        patch.setattr(importlib.import_module("tidemark.warehouse.load"), "read_options", lambda *_: old)
        begun_in_first(world, 8)


def test_a_batch_of_a_load_that_began_before_the_drop_is_there_for_all(
    world: GroupWorld, monkeypatch: Any
) -> None:
    begins_while_it_is_dropped(world, monkeypatch)
    assert world.truth("price", {}, None).n == world.open().quantile(0.5, "price", mode="exact").N
    assert warehouse.maintain(None, world.path).held == {
        "runs/value": "a load of its newest step is unfinished"
    }
    assert world.truth("price", {}, None).n == world.open().quantile(0.5, "price", mode="exact").N
    world.load_live()
    check(world, {"price"}, set(), {"origin"}, verified=False)
    assert not warehouse.maintain(None, world.path).held
    check(world, {"price"}, set(), {"origin"})


def test_a_dropped_measure_whose_batches_vanish_is_caught(world: GroupWorld, monkeypatch: Any) -> None:
    """The broken variant: readers do not look at the tables of what was dropped."""
    monkeypatch.setattr("tidemark.warehouse.settings.options.Options.dropped_measures", [])
    with pytest.raises(AssertionError):
        test_a_batch_of_a_load_that_began_before_the_drop_is_there_for_all(world, monkeypatch)


def test_a_load_with_old_options_leaves_what_maintenance_emptied(world: GroupWorld, monkeypatch: Any) -> None:
    old = warehouse.open_snapshot(world.path).options
    alter(world, drop_measure="value")
    warehouse.maintain(None, world.path)
    with monkeypatch.context() as patch:
        patch.setattr(importlib.import_module("tidemark.warehouse.load"), "read_options", lambda *_: old)
        world.add(rows(8, 24), load=True)
    check(world, {"price"}, set(), {"origin"})
    warehouse.maintain(None, world.path)
    assert not files_of_value(world)


def test_a_damaged_table_of_what_was_dropped_stops_nobody(world: GroupWorld, monkeypatch: Any) -> None:
    begins_while_it_is_dropped(world, monkeypatch)
    for entry in (world.path / "runs/value/_delta_log").glob("*.json"):
        entry.write_text("no entry")
    for left in (world.path / "runs/value/_delta_log").glob("*.parquet"):
        left.unlink()
    world.open().quantile(0.5, "price")
    assert "runs/value" in warehouse.maintain(None, world.path).held
    world.load_live()
    check(world, {"price"}, set(), {"origin"})


@pytest.mark.slow
def test_a_kill_at_any_moment_is_mended_by_the_same_call(world: GroupWorld) -> None:
    what = "add_measure='number', drop_measure='value', drop_group='origin', kappa=2, eps=0.1, key_eps=0.02"
    script = (
        "import sys; from tidemark import warehouse; from tests.query.groupworld import TINY; "
        f"print(flush=True); warehouse.alter(None, {str(world.path)!r}, {what}, tuning=TINY)"
    )
    for delay in some((0.4, 0.05, 0.2, 0.7, 1.0), 2):
        process = subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(delay)
        world.add(rows(world.batches, 12), load=delay == 0.4)
        process.kill()
        process.wait()
        process.stdout.close()
        answer = world.open().quantile(0.5, mode="exact")
        assert world.truth(str(answer.measure), {}, None).n == answer.N
        broken = [one.detail for one in warehouse.verify(world.path).checks if not one.ok]
        # Between the new kappa and its merges, levels have too many runs.
        assert all(detail.endswith("run the load again") for detail in broken), broken
    alter(world, add_measure="number", drop_measure="value", drop_group="origin")
    check(world, {"price", "number"}, {"origin"}, set())


def leave(world: GroupWorld) -> None:
    """The rows of an origin leave the warehouse and the list."""
    warehouse.delete(None, world.path, where="origin = 'a'", tuning=TINY)
    world.rows = [row for row in world.rows if row[1] != "a"]


def test_what_is_added_after_rows_left_does_not_have_them(world: GroupWorld) -> None:
    leave(world)
    alter(world, add_measure="number")
    check(world, ALL, set(), {"origin"})


def test_what_comes_back_after_rows_left_does_not_have_them(world: GroupWorld) -> None:
    alter(world, drop_measure="price")
    leave(world)
    world.add(rows(8, 24), load=True)
    alter(world, add_measure="price")
    check(world, {"value", "price"}, set(), {"origin"})


def test_alters_at_the_same_time_all_happen(world: GroupWorld) -> None:
    errors: list[Exception] = []

    def change(**what: Any) -> None:
        try:
            alter(world, **what)
        except Exception as error:  # noqa: BLE001  whatever it is, the test shows it
            errors.append(error)

    asked: list[dict[str, Any]] = [
        {"add_measure": "number"},
        {"drop_measure": "value"},
        {"kappa": 2},
        {"drop_group": "origin"},
    ]
    threads = [threading.Thread(target=change, kwargs=what) for what in asked]
    for thread in threads:
        thread.start()
    world.add(rows(8, 24), load=True)
    for thread in threads:
        thread.join()
    assert not errors
    world.load_live()
    check(world, {"price", "number"}, {"origin"}, set())


def test_kappa_and_grace_hold_from_now_on(world: GroupWorld) -> None:
    report = alter(world, kappa=2, grace="40 days")
    assert report.outcome == "altered"
    assert max(max(levels.values()) for levels in report.runs_by_level.values()) <= 2
    assert alter(world, kappa=2, grace="40 days").outcome == "known"
    options = world.open().options
    assert (options.kappa, options.grace_us) == (2, 40 * 86_400_000_000)
    report_of = warehouse.verify(world.path)
    assert "keep their logs for less" not in str(report_of)
    check(world, {"value", "price"}, set(), {"origin"})
    with pytest.raises(warehouse.OptionsMismatch, match=r"kappa was given as 3, the warehouse has 2.*alter"):
        warehouse.create(None, world.path, ["value", "price"], kappa=3, time="time")


def check_promises(world: GroupWorld, least_eps: float, *, verified: bool = True) -> None:
    """Answers from summaries keep the eps that they state, which is not below the warehouse's."""
    wh = world.open(memory=0)
    truth = world.truth("value", {}, None)
    for mode in ("quick", "accurate"):
        for answer in wh.quantile([0.1, 0.5, 0.9], "value", mode=mode):
            assert answer.eps >= least_eps
            assert answer.error_bound <= answer.eps * (answer.N if mode == "quick" else answer.m)
            exact = truth.quantile(answer.phi)
            assert answer.low <= exact <= answer.high or math.isnan(exact)
    check_key(world, "origin", None, wh)
    if verified:
        report = warehouse.verify(world.path)
        assert report.ok, [one for one in report.checks if not one.ok]


def test_another_eps_holds_for_what_comes_and_answers_tell_what_holds(world: GroupWorld) -> None:
    assert alter(world, eps=0.01, key_eps=0.01).outcome == "altered"
    check_promises(world, 0.01, verified=False)
    assert world.open().quantile(0.5, "value").eps > 0.01  # of the batches that were live before
    assert world.open().top(1)[0].eps > 0.04
    for number in range(8, 12):  # complete ranges of batches from before, after, and both
        world.add(rows(number, 24), load=False)
        check_promises(world, 0.01, verified=number % 2 == 1)
    alter(world, eps=0.2, key_eps=0.2)
    for number in range(12, 17):
        world.add(rows(number, 24), load=False)
    check_promises(world, 0.2)
    world.load_live()
    world.add(rows(17, 24), load=False)
    check_promises(world, 0.2, verified=False)
    assert world.open().quantile(0.5, "value").eps == 0.2
    check(world, {"value", "price"}, set(), {"origin"})


@pytest.mark.parametrize(
    ("place", "changed"),
    [
        ("warehouse.ledger.ledger_table.can_join", lambda *_: True),
        ("warehouse.snapshots.views.View.live_eps", 0.0),
        ("warehouse.ledger.key_summaries.KeyPromise.hashes_of", lambda promise, _: promise.hashes),
    ],
    ids=["a range crosses the change", "answers state the new eps", "all sketches have the new hashes"],
)
def test_an_eps_that_does_not_hold_is_caught(
    world: GroupWorld, monkeypatch: Any, place: str, changed: Any
) -> None:
    monkeypatch.setattr(f"tidemark.{place}", changed)
    with pytest.raises((AssertionError, SketchError, IndexError, ValueError)):
        test_another_eps_holds_for_what_comes_and_answers_tell_what_holds(world)


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ({}, "needs something to change: add_measure"),
        ({"add_measure": "nothing"}, "the measure column 'nothing' is missing"),
        ({"add_measure": "origin"}, "origin"),
        ({"add_measure": ["number"]}, "a measure is the name of a column"),
        ({"add_measure": "Value"}, "named twice"),
        ({"drop_measure": "number"}, "no measure 'number' here.*There are: value, price"),
        ({"drop_key": "origin"}, "is a group, and a group is a key"),
        ({"drop_key": "number"}, "no key number here"),
        ({"drop_group": "number"}, "no group number here.*There are: origin"),
        ({"add_key": "number", "drop_key": ["number"]}, "added and dropped"),
        ({"add_measure": "number", "drop_measure": "nothing"}, "no measure 'nothing' here"),
        ({"kappa": 1}, "kappa must be"),
        ({"kappa": True}, "kappa must be"),
        ({"eps": 0.5}, "eps must lie in"),
        ({"key_eps": 1e-9}, "too small for any sketch"),
        ({"grace": "soon"}, "soon"),
        ({"grace": "-1 s"}, "-1 s"),
    ],
)
def test_what_cannot_be_changed_changes_nothing(made: GroupWorld, what: dict[str, Any], words: str) -> None:
    before = files_of(made.path)
    with pytest.raises(InputError, match=f"(?s){words}"):
        alter(made, **what)
    assert files_of(made.path) == before


def test_the_last_measure_stays(world: GroupWorld) -> None:
    alter(world, drop_measure="price")
    with pytest.raises(InputError, match="'value' is the only measure"):
        alter(world, drop_measure="value")
    check(world, {"value"}, set(), {"origin"})


STEPS = st.lists(
    st.sampled_from([
        "load", "append", "append", "load live", "maintain", "kill load",
        *[f"{verb} measure {name}" for verb in ("add", "drop") for name in sorted(ALL)],
        "add key number", "drop key number", "add group origin", "drop group origin",
        "kappa 2", "kappa 4", "eps 0.01", "key_eps 0.3",
    ]),
    min_size=3,
    max_size=7,
)  # fmt: skip


@settings(max_examples=draws(3))
@given(steps=STEPS)
def test_any_order_of_alters_and_loads(tmp_path_factory: Any, steps: list[str]) -> None:
    """Equality with the list of rows, certified bounds, and verify at the end; in a soak after each step."""
    world = GroupWorld.create(
        tmp_path_factory.mktemp("any"), groups=["origin"], key_eps=0.05, grace="0 s", kappa=3
    )
    declared: dict[str, set[str]] = {"measure": {"value", "price"}, "key": set(), "group": {"origin"}}
    world.add(rows(0, 12), load=False)
    for step in steps:
        _take(world, step, declared)
        keys = declared["key"] - declared["group"]
        if world.open().info()["behind"] == "":
            check(world, declared["measure"], keys, declared["group"], verified=HAS_ALL)
        else:
            assert warehouse.verify(world.path).ok
    alter(world, kappa=5)
    check(world, declared["measure"], declared["key"] - declared["group"], declared["group"])


def _take(world: GroupWorld, step: str, declared: dict[str, set[str]]) -> None:
    verb, *rest = step.split()
    if step == "kill load":
        begun_in_first(world, world.batches)
    elif step == "load live":
        world.load_live()
    elif step == "maintain":
        warehouse.maintain(None, world.path)
    elif verb in ("load", "append"):
        world.add(rows(world.batches, 12), load=verb == "load")
    elif verb in ("kappa", "eps", "key_eps"):
        alter(world, **{verb: float(rest[0]) if "eps" in verb else int(rest[0])})
    else:
        role, name = rest
        known = name in declared[role]
        if verb == "drop" and (not known or declared[role] == {"measure"} or len(declared["measure"]) == 1):
            return
        alter(world, **{f"{verb}_{role}": name})
        declared[role] = declared[role] | {name} if verb == "add" else declared[role] - {name}
        if step == "drop group origin":
            declared["key"] = declared["key"] | {"origin"}  # its key stays


def test_an_open_reader_follows_all_of_it(world: GroupWorld) -> None:
    reader = query.open(world.path)
    for what in ({"add_measure": "number"}, {"drop_measure": "value"}, {"add_measure": "value"}):
        alter(world, **what)
        for measure in (one.name for one in reader.options.measures):
            answer = reader.quantile(0.5, measure, mode="exact")
            check_quantile(answer, world.truth(measure, {}, None), "exact")
