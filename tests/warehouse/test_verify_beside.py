"""verify() beside a loader: what is under way is never called broken, and what is broken is found.

The loader has no Spark (tests/warehouse/hereloader.py); its commits, merges and sweeps are the true ones.
"""

from __future__ import annotations

import importlib
import json
import shutil
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.soak import some
from tests.warehouse.committing import instant
from tests.warehouse.disk import replace_rows, rewrite_file, rows_of
from tests.warehouse.hereloader import Loader
from tidemark import warehouse
from tidemark.jobs import verify as job
from tidemark.warehouse import Check, Report, read_options
from tidemark.warehouse.delta import data_files, tables
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.ledger import ledger_table
from tidemark.warehouse.sizes import Tuning
from tidemark.warehouse.snapshots import table_state
from tidemark.warehouse.verification.pinned_tables import PinnedTables

pytestmark = pytest.mark.slow

module = importlib.import_module("tidemark.warehouse.verify")  # the package has the function by this name
history = importlib.import_module("tidemark.warehouse.loads.history")
maintenance = importlib.import_module("tidemark.warehouse.maintain")
Act = Callable[[], object]
FIVES = Tuning(fan=5)


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse with a merged run, newer ones, and live batches with ranges of the cascade."""
    uri = tmp_path_factory.mktemp("beside") / "w"
    loader = Loader.create(uri, FIVES)
    for _ in range(4):
        loader.load()
    for _ in range(9):
        loader.stream()
    return uri


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between looks; none takes any time."""
    return instant(monkeypatch, module)


@pytest.fixture
def loader(begun: Path, tmp_path: Path) -> Loader:
    """A copy of the warehouse, and who goes on with it."""
    shutil.copytree(begun, tmp_path / "w")
    return Loader(str(tmp_path / "w"), streamed=9, bulk=4, seed=100, tuning=FIVES)


def states(report: Report) -> set[str]:
    return {check.state for check in report.checks}


def failures(report: Report) -> dict[str, str]:
    return {check.name: check.detail for check in report.checks if not check.ok}


def at_each_check(act: Act) -> Callable[[str], None]:
    return lambda _: (act(), None)[1]


def beside(loader: Loader, rounds: int) -> list[Report]:
    """The reports of verify() in a loop, while another thread loads, streams, merges and sweeps."""
    ended, failed, reports = threading.Event(), list[BaseException](), list[Report]()

    def work() -> None:
        try:
            for number in range(rounds):
                loader.round()
                loader.stream()
                loader.maintain("0 s" if number % 2 else "1 s")
        except BaseException as error:  # noqa: BLE001  handed to the test
            failed.append(error)
        finally:
            ended.set()

    thread = threading.Thread(target=work)
    thread.start()
    while not ended.is_set():
        reports.append(warehouse.verify(loader.uri))
    thread.join()
    assert failed == []
    reports.append(warehouse.verify(loader.uri))
    return reports


def never_broken(reports: list[Report]) -> None:
    for report in reports:
        assert report.ok, str(report)
        assert "FAIL" not in str(report)
    assert states(reports[-1]) == {"ok"}


def test_nothing_is_broken_while_others_load_stream_merge_and_sweep(loader: Loader) -> None:
    reports = beside(loader, len(some(range(4), 2)))
    never_broken(reports)
    assert len(reports) > 2


def test_every_check_holds_whatever_is_committed_and_swept_before_it(
    loader: Loader, waits: list[float]
) -> None:
    """Before each check a whole round of loads, with merges, and no grace at all."""
    rounds = iter(range(3))  # more would only take longer: the first checks read the most tables

    def act() -> None:
        if next(rounds, None) is not None:
            loader.round()

    report = warehouse.verify(loader.uri, progress=at_each_check(act))
    assert states(report) == {"ok"}, str(report)
    assert waits, "some of what it looked at was swept"


def test_every_point_of_a_load_up_to_its_merge_is_no_damage(loader: Loader) -> None:
    seen: dict[str, Report] = {}

    def verified(point: str) -> None:
        if point not in seen:
            seen[point] = warehouse.verify(loader.uri)

    loader.load(progress=verified)  # the first of its commits puts one measure ahead of the others
    assert {"sort", "sorted", "commit", "marked", "committed"} <= seen.keys()
    assert "steps 4..4 are planned" in str(seen["committed"])
    for point, report in seen.items():
        assert states(report) == {"ok"}, f"{point}: {report}"


def overfull(loader: Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loader that never came to its merges."""
    with monkeypatch.context() as patch:
        patch.setattr(history, "plan_merge", lambda *_: None)
        for _ in range(3):
            loader.load()
        loader.load_live()


def test_a_level_that_waits_for_its_merge_is_waited_for(
    loader: Loader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "plan_merge", lambda *_: None)
    for _ in range(3):
        loader.load()
    loader.load_live()
    monkeypatch.undo()
    waits: list[float] = []

    def pause(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            loader.load()  # merges what was left

    monkeypatch.setattr(module, "PATIENCE", replace(module.PATIENCE, pause=pause))
    assert states(warehouse.verify(loader.uri)) == {"ok"}
    assert len(waits) == 3


def test_levels_of_a_smaller_kappa_are_waited_for(loader: Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    """As while `alter` merges what its commit made too many: levels above 0, too."""
    waits: list[float] = []

    def pause(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            monkeypatch.setattr(table_state, "read_options", read_options)

    monkeypatch.setattr(module, "PATIENCE", replace(module.PATIENCE, pause=pause))
    monkeypatch.setattr(table_state, "read_options", lambda *of: replace(read_options(*of), kappa=0))
    assert states(warehouse.verify(loader.uri)) == {"ok"}
    assert len(waits) == 3


def test_a_level_whose_merge_never_comes_is_broken(
    loader: Loader, monkeypatch: pytest.MonkeyPatch, waits: list[float]
) -> None:
    overfull(loader, monkeypatch)
    found = failures(warehouse.verify(loader.uri))
    assert found.keys() == {
        f"{one}: runs partition the steps, at most kappa a level" for one in ("x", "n", "keys of k")
    }
    assert all("run the load again" in detail for detail in found.values())
    assert 10 < sum(waits) / 3 <= 30


def test_a_merge_that_writes_is_busy(loader: Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files grow below the runs, and no commit names them yet."""
    overfull(loader, monkeypatch)
    growing = [Path(loader.uri) / root / "growing.parquet" for root in ("runs/x", "runs/n", "keys/k")]

    def pause(_: float) -> None:
        for path in growing:
            with path.open("ab") as file:
                file.write(b"x")

    monkeypatch.setattr(module, "PATIENCE", replace(module.PATIENCE, pause=pause))
    report = warehouse.verify(loader.uri)
    assert report.ok
    busy = [check for check in report.checks if check.state == "busy"]
    assert len(busy) == 3
    assert all("verify again later" in check.detail for check in busy)
    assert str(report).count("\nbusy  ") == 3


def swept_at_each_look(loader: Loader, patch: pytest.MonkeyPatch) -> None:
    """Whenever the plans are read, their file has just been replaced and swept."""
    true = vars(PinnedTables)["plans"].func
    replaced: list[int] = []

    def plans(self: PinnedTables) -> Any:
        if len(replaced) < 3:
            replaced.append(1)
            replace_rows(loader.uri, "steps", rows_of(loader.uri, "steps"))
            for path in {path for path in self.file_sizes() if path.startswith("steps/")}:
                (Path(loader.uri) / path).unlink(missing_ok=True)
        return true(self)

    patch.setattr(PinnedTables, "plans", property(plans))


def test_a_check_whose_files_are_swept_at_every_look_is_busy_and_the_job_ends_with_0(
    loader: Loader, monkeypatch: pytest.MonkeyPatch, waits: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    swept_at_each_look(loader, monkeypatch)
    monkeypatch.setattr(module, "PATIENCE", replace(module.PATIENCE, tries=3))
    assert job.main(["--warehouse", loader.uri, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["ok"] is True
    by_state = {check["name"]: (check["state"], check["ok"]) for check in told["checks"]}
    assert by_state["tables: none is behind the others"] == ("busy", True)
    assert by_state["files: every named file is there"] == ("ok", True)
    assert waits, "it looked more than once, and stopped"


def unlink_a_run(uri: Path) -> None:
    next((uri / "runs/x").glob("run=L01*/*.parquet")).unlink()


def cut_a_file(uri: Path) -> None:
    path = next((uri / "events").glob("*.parquet"))
    path.write_bytes(path.read_bytes()[:-10])


def nudge_a_value(uri: Path) -> None:
    """Sorted still, and the file's size is its old one: only the digest can tell."""
    store = Store.from_uri(uri)
    file = next(one for one in data_files.list_files(tables.open_table(store, "runs/n")) if "L01" in one.path)

    def nudged(rows: pa.Table) -> pa.Table:
        values = rows.column("value").to_numpy().copy()
        at = next(i for i in range(1, len(values) - 1) if values[i] < values[i + 1])
        values[at] += 1
        return rows.set_column(0, "value", pa.array(values))

    added = rewrite_file(uri, "runs/n", file.path, nudged)
    table = tables.open_table(store, "runs/n")
    tables.commit(table, [data_files.remove_action(file)])
    tables.commit(tables.open_table(store, "runs/n"), [added])


def lose_a_plan(uri: Path) -> None:
    rows = rows_of(uri, "steps")
    replace_rows(uri, "steps", rows.filter(np.array(rows.column("step").to_pylist()) != 1))


def count_a_live_row_twice(uri: Path) -> None:
    store = Store.from_uri(uri)
    table = tables.open_table(store, "ledger")
    held = ledger_table.ranges_by_file(store, table)
    path = next(path for path, found in held.items() if found[0].first == 8)
    rows = data_files.read_file(store, "ledger", path)
    wrong = [count + 1 for count in rows.column("rows").to_pylist()]
    at = rows.schema.get_field_index("rows")
    action = ledger_table.write_rows(store, held[path][0], rows.set_column(at, "rows", pa.array(wrong)))
    file = next(one for one in data_files.list_files(table) if one.path == path)
    tables.commit(table, [data_files.remove_action(file), action])


DAMAGES = {
    "files: every named file is there": unlink_a_run,
    "x: nothing is lost or counted twice": cut_a_file,
    "n: nothing is lost or counted twice": nudge_a_value,
    "batches: each in at most one step": lose_a_plan,
}


def stream_and_sweep(loader: Loader) -> None:
    """What goes on in spite of damage: only what does not read it."""
    loader.stream()
    warehouse.maintain(None, loader.uri, grace="1 hour")


def verified_beside(loader: Loader, patch: pytest.MonkeyPatch) -> Report:
    """Something is committed before each check and before each look."""

    def act() -> None:
        stream_and_sweep(loader)

    true = module._NewestTables.pin_again

    def again(self: Any) -> bool:
        act()
        return bool(true(self))

    patch.setattr(module._NewestTables, "pin_again", again)
    patch.setattr(maintenance, "_compact_events", lambda *_: None)  # it would read what is damaged
    checks = iter([True] * 4)
    return warehouse.verify(loader.uri, progress=lambda _: act() if next(checks, False) else None)


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_found_beside_a_running_loader(
    loader: Loader, monkeypatch: pytest.MonkeyPatch, name: str, waits: list[float]
) -> None:
    DAMAGES[name](Path(loader.uri))
    report = verified_beside(loader, monkeypatch)
    assert name in failures(report), str(report)
    assert not report.ok
    assert len(waits) < 20


def test_damage_at_rest_is_found_without_waiting(loader: Loader, waits: list[float]) -> None:
    for damage in (nudge_a_value, count_a_live_row_twice, lose_a_plan, unlink_a_run):
        damage(Path(loader.uri))
    report = warehouse.verify(loader.uri)
    assert {"batches: each in at most one step", "files: every named file is there"} <= failures(
        report
    ).keys()
    assert "busy" not in states(report)
    assert waits == []


def test_a_check_is_one_of_three_and_only_a_broken_one_breaks_the_report() -> None:
    ok, busy, broken = (Check("a", "ok", "seen"), Check("a", "busy", "seen"), Check("a", "broken", "seen"))
    assert (ok.ok, busy.ok, broken.ok) == (True, True, False)
    assert Report("w", (ok, busy)).ok
    assert not Report("w", (ok, busy, broken)).ok
    assert str(Report("w", (ok, busy, broken))) == "w\nok    a: seen\nbusy  a: seen\nFAIL  a: seen"


# Variants that are broken on purpose: the properties above fail on each.


def test_a_verifier_that_never_looks_again_is_caught(
    loader: Loader, monkeypatch: pytest.MonkeyPatch, waits: list[float]
) -> None:
    monkeypatch.setattr(module._NewestTables, "pin_again", lambda _: False)
    with pytest.raises(AssertionError):
        test_every_check_holds_whatever_is_committed_and_swept_before_it(loader, waits)


def test_a_verifier_that_calls_everything_busy_is_caught(
    loader: Loader, monkeypatch: pytest.MonkeyPatch, waits: list[float]
) -> None:
    true = module._run_check

    def mild(*given: Any) -> Check:
        found: Check = true(*given)
        return found if found.ok else replace(found, state="busy")

    monkeypatch.setattr(module, "_run_check", mild)
    with pytest.raises(AssertionError):
        test_damage_is_found_beside_a_running_loader(
            loader, monkeypatch, "batches: each in at most one step", waits
        )
