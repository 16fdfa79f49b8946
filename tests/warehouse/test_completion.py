"""The commit that completes a step notes the versions of all tables, after any crash and beside others."""

from __future__ import annotations

import random
import shutil
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.soak import some
from tests.warehouse.hereloader import Loader
from tests.warehouse.test_swept_loads import POINTS
from tidemark import warehouse
from tidemark.warehouse.delta import tables
from tidemark.warehouse.delta.log_versions import LogOfTable, newest_versions
from tidemark.warehouse.delta.table_names import EVENTS, LEDGER, STEPS
from tidemark.warehouse.delta.table_open import open_directly
from tidemark.warehouse.events import completion
from tidemark.warehouse.events.completion import Completion
from tidemark.warehouse.events.reader import files_of_batches
from tidemark.warehouse.events.steps import read_step_plans
from tidemark.warehouse.runs import run_tables
from tidemark.warehouse.settings.options import read_options


def tables_of(uri: str) -> list[str]:
    return [str(log.parent.relative_to(uri)) for log in Path(uri).rglob("_delta_log")]


def versions(loader: Loader) -> dict[str, int]:
    """The newest version of each table, as delta-rs opens it."""
    return {name: open_directly(loader.store, name).version() for name in tables_of(loader.uri)}


def records(loader: Loader) -> dict[int, Completion]:
    """The record of each step; AssertionError if a step has two, or a record another place than its table."""
    found: dict[int, Completion] = {}
    for name in tables_of(loader.uri):
        log = LogOfTable(loader.store, name)
        for version in log.versions:
            record = Completion.parse(log.commit(version).completes)
            if record is not None:
                assert record.step not in found
                assert record.versions[name] == version
                found[record.step] = record
    return found


def check(loader: Loader, record: Completion) -> None:
    """Every projection has the step at the versions of the record and no later one; others have its rows."""
    store, options = loader.store, read_options(loader.store)
    for one in options.projections:
        runs = open_directly(store, one.runs_table, record.versions[one.runs_table])
        assert run_tables.read_layout(runs).last_step == record.step
    plans = read_step_plans(store, open_directly(store, STEPS, record.versions[STEPS]))
    (plan,) = [plan for plan in plans if plan.step == record.step]
    events = open_directly(store, EVENTS, record.versions[EVENTS])
    assert sum(file.rows for file in files_of_batches(events, list(plan.batches))) >= plan.rows
    assert 0 <= record.versions[LEDGER] <= open_directly(store, LEDGER).version()


@pytest.mark.parametrize("seed", range(2))
def test_each_step_has_one_record_with_the_versions_of_that_moment(tmp_path: Path, seed: int) -> None:
    r, loader = random.Random(seed), Loader.create(tmp_path / "w", groups=["k"], kappa=30)
    expected: dict[int, Mapping[str, int]] = {}
    for _ in range(6):
        if r.random() < 0.3:
            loader.maintain("7 days")
        else:
            loader.stream()
        if r.random() < 0.7:
            if r.random() < 0.5:
                loader.load()
            else:
                loader.load_live()
            now = versions(loader)  # without a merge nothing was committed since
            newest = max(records(loader), default=-1)
            if newest >= 0:
                expected.setdefault(newest, now)
    found = records(loader)
    assert {step: record.versions for step, record in found.items()} == expected
    for record in found.values():
        check(loader, record)


@pytest.fixture(scope="module")
def merging(tmp_path_factory: pytest.TempPathFactory) -> Loader:
    """A warehouse whose next load merges."""
    loader = Loader.create(tmp_path_factory.mktemp("merging") / "w")
    for _ in range(2):
        loader.stream()
        loader.load()
    return loader


@pytest.mark.parametrize(
    ("point", "time"), some([*((point, 1) for point in POINTS), ("marked", 3), ("committed", 2)], 4)
)
def test_a_load_that_was_ended_anywhere_leaves_one_record_once_it_went_on(
    merging: Loader, tmp_path: Path, point: str, time: int
) -> None:
    loader = merging.copied(tmp_path / "w")
    seen = 0

    def end(reached: str) -> None:
        nonlocal seen
        seen += reached == point
        if reached == point and seen == time:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        loader.load(progress=end)
    loader.stream()
    loader.seed -= 2  # the rows of the load that was ended, again
    loader.load()
    found = records(loader)
    assert sorted(found) == [0, 1, 2]
    for record in found.values():
        check(loader, record)


def test_two_loads_at_once_leave_one_record_of_each_step(tmp_path: Path) -> None:
    loader = Loader.create(tmp_path / "w", kappa=3)
    others = [Loader(loader.uri, bulk=10 * number, seed=10 * number) for number in range(2)]
    others.append(Loader(loader.uri, bulk=0, seed=0))  # the same batches as the first
    failed: list[BaseException] = []

    def live(one: Loader) -> None:
        try:
            for _ in range(3):
                one.load()
        except BaseException as error:  # noqa: BLE001  told below
            failed.append(error)

    threads = [threading.Thread(target=live, args=[one]) for one in others]
    for thread in threads:
        thread.start()
    for _ in range(4):
        loader.stream()
    for thread in threads:
        thread.join()
    assert not failed
    found = records(loader)
    assert sorted(found) == list(range(6))
    for record in found.values():
        check(loader, record)
    assert warehouse.verify(loader.uri).ok


def test_a_group_that_came_later_catches_up_without_records(tmp_path: Path) -> None:
    loader = Loader.create(tmp_path / "w")
    loader.load()
    before = records(loader)
    warehouse.alter(None, loader.uri, add_group=["k"])
    assert records(loader) == before
    loader.load()
    assert sorted(records(loader)) == [0, 1]


def test_a_record_that_cannot_be_read_is_none() -> None:
    for text in (None, "", "{", "[]", "{}", "3", '{"step": "x"}', '{"step": 1, "versions": [2]}'):
        assert Completion.parse(text) is None
    whole = Completion(3, {"events": 4})
    assert Completion.parse(next(iter(whole.notes().values()))) == whole


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Loader:
    loader = Loader.create(tmp_path_factory.mktemp("lived") / "w")
    for number in range(7):
        loader.stream()
        loader.load()
        if number == 3:
            for name in (EVENTS, STEPS):
                tables.open_table(loader.store, name).create_checkpoint()
    return loader


def test_the_newest_versions_are_those_that_delta_rs_opens(lived: Loader, tmp_path: Path) -> None:
    now = versions(lived)
    for known in (None, 0, 3):
        older = {name: known and min(known, version) for name, version in now.items()}
        assert newest_versions(lived.store, older) == now
    assert newest_versions(lived.store, {"no/table": None}) == {}
    copied = lived.copied(tmp_path / "c")
    (copied.store.files.filesystem.delete_file)(f"{STEPS}/_delta_log/_last_checkpoint")
    assert newest_versions(copied.store, {STEPS: None})[STEPS] == now[STEPS]


def test_the_version_of_a_moment_is_the_newest_that_was_committed_by_then(lived: Loader) -> None:
    for name in (EVENTS, STEPS):
        log = LogOfTable(lived.store, name)
        times = [log.time_us(version) for version in log.versions]
        assert times == sorted(times)
        for moment in {at + shift for at in times for shift in (-1000, 0, 1000)}:
            expected = sum(at <= moment for at in times) - 1
            assert log.version_at(moment) == expected
    assert LogOfTable(lived.store, "no/table").versions == range(0)


def test_a_record_of_versions_from_before_the_commits_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broken variant: the versions that the load opened, not those that it committed."""
    real = completion.completion_of

    def early(*given: Any) -> Completion:
        found = real(*given)
        return Completion(found.step, {**found.versions, "runs/x": found.versions["runs/x"] - 1})

    monkeypatch.setattr("tidemark.warehouse.loads.history.completion_of", early)
    loader = Loader.create(tmp_path / "w")
    loader.load()
    with pytest.raises(AssertionError):
        check(loader, records(loader)[0])
    shutil.rmtree(loader.uri)
