"""What only removals know is refused by name, and nothing is made again that could bring rows back."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.killing import Killed, killer
from tests.query.groupworld import HOUR, START, TINY, GroupWorld
from tidemark import warehouse
from tidemark.warehouse.delta import tables
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import EVENTS
from tidemark.warehouse.errors import DamagedWarehouse
from tidemark.warehouse.events import removals


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> GroupWorld:
    """Two steps, of which one removal took rows."""
    world = GroupWorld.create(tmp_path_factory.mktemp("made"), groups=[], keys=["origin"])
    for _ in range(2):
        rows = [(START + i * HOUR, "ab"[i % 2], i % 5, float(i), None) for i in range(20)]
        world.add(rows, load=True)
    warehouse.delete(None, world.path, "number = 1", tuning=TINY)
    return world


@pytest.fixture
def uri(made: GroupWorld, tmp_path: Path) -> Path:
    return made.copy(tmp_path).path


def broken(uri: Path) -> set[str]:
    return {check.name.split(":")[0] for check in warehouse.verify(uri).checks if not check.ok}


def test_lost_records_are_refused_by_readers_and_writers(uri: Path) -> None:
    shutil.rmtree(uri / "removals")
    with pytest.raises(DamagedWarehouse, match="removals is behind"):
        GroupWorld(uri, []).open().quantile(0.5)
    assert "removals" in broken(uri)
    report = warehouse.repair(None, uri)
    assert (report.outcome, report.actions) == ("damaged", [])
    assert "removals" in report.only_a_copy[0]
    version = DeltaTable(uri / "events").version()
    for call in (
        lambda: warehouse.delete(None, uri, "number = 2"),
        lambda: warehouse.load(None, uri),
        lambda: warehouse.maintain(None, uri),
    ):
        with pytest.raises(DamagedWarehouse, match="removals is behind"):
            call()
    assert DeltaTable(uri / "events").version() == version


@pytest.mark.parametrize("point", ["removal written", "removal planned"])
def test_a_torn_log_before_the_first_decision_is_told(tmp_path: Path, point: str) -> None:
    """No row left so far, so nobody else reads the records."""
    world = GroupWorld.create(tmp_path, groups=[], keys=["origin"])
    world.add([(START + i * HOUR, "ab"[i % 2], i % 5, float(i), None) for i in range(20)], load=True)
    with pytest.raises(Killed):
        warehouse.delete(None, world.path, "number = 1", tuning=TINY, progress=killer(point))
    (world.path / "removals/_delta_log" / f"{0:020d}.json").write_text("torn")
    report = warehouse.repair(None, world.path)
    assert (report.outcome, report.actions) == ("damaged", [])
    (told,) = report.only_a_copy
    assert told.startswith("removals cannot be read: ")
    assert told.endswith("Put its folder back from a copy.")


def test_lost_files_of_removals_are_told(uri: Path) -> None:
    shutil.rmtree(uri / "removed")
    assert GroupWorld(uri, []).open().quantile(0.5).N == 32
    assert "removals" in broken(uri)
    report = warehouse.repair(None, uri)
    assert (report.outcome, report.only_a_copy[0][:7]) == ("damaged", "removed")


def test_events_from_before_a_removal_are_refused(uri: Path) -> None:
    log = sorted((uri / "events/_delta_log").glob("0*.json"))
    log[-1].unlink()
    assert removals.decided(tables.open_table(Store.from_uri(uri), EVENTS)) == removals.NONE
    with pytest.raises(DamagedWarehouse, match="events is behind"):
        GroupWorld(uri, []).open().quantile(0.5)
    assert {"value", "price"} <= broken(uri)
    report = warehouse.repair(None, uri)
    assert (report.outcome, report.actions) == ("damaged", [])
    assert "events is behind" in report.only_a_copy[0]
    assert warehouse.load(None, uri).outcome in ("empty", "known")  # it decides the same removal again
    assert GroupWorld(uri, []).open().quantile(0.5).N == 32
    assert warehouse.verify(uri).ok


def test_runs_from_before_a_removal_are_written_again(tmp_path: Path) -> None:
    world = GroupWorld.create(tmp_path, groups=[], keys=["origin"])
    world.add([(START + i * HOUR, "ab"[i % 2], i % 5, float(i), None) for i in range(20)], load=True)
    shutil.copytree(world.path, tmp_path / "before")
    warehouse.delete(None, world.path, "number = 1", tuning=TINY)
    for name in ("runs/value", "keys/origin"):
        shutil.rmtree(world.path / name)
        shutil.copytree(tmp_path / "before" / name, world.path / name)
    assert world.open().quantile(0.5).N == 20  # as before the removal
    assert world.open().frequency("b").count == 10
    warehouse.repair(None, world.path)
    assert world.open().quantile(0.5).N == 16
    assert warehouse.verify(world.path).ok


def test_a_horizon_that_another_tool_took_away_is_told_and_comes_back(tmp_path: Path) -> None:
    """Rows expired, and the options do not say by which moment."""
    world = GroupWorld.create(tmp_path, groups=[], keys=["origin"])
    world.add([(START + i * HOUR, "ab"[i % 2], i % 5, float(i), None) for i in range(60)], load=True)
    moment = START + 30 * HOUR
    warehouse.expire(None, world.path, moment, tuning=TINY)
    for entry in (world.path / "events/_delta_log").glob("0*.json"):
        actions = [json.loads(line) for line in entry.read_text().splitlines()]
        for action in actions:
            action.get("metaData", {}).get("configuration", {}).pop("tidemark.horizon", None)
        entry.write_text("\n".join(map(json.dumps, actions)))
    for checksum in (world.path / "events/_delta_log").glob("*.crc"):
        checksum.unlink()
    assert broken(world.path) == {"expiry"}
    report = warehouse.repair(None, world.path)
    assert report.outcome == "damaged"
    assert "Expire again with the same moment" in report.only_a_copy[0]
    warehouse.expire(None, world.path, moment, tuning=TINY)
    assert broken(world.path) == set()
    assert warehouse.repair(None, world.path).outcome == "sound"


@pytest.mark.parametrize("table", ["purges", "removals", "removed"])
def test_a_file_of_another_size_is_told_by_repair_as_by_verify(
    made: GroupWorld, tmp_path: Path, table: str
) -> None:
    """That of another warehouse, which reads well: only a copy has the own one."""
    path = made.copy(tmp_path).path
    if table == "purges":
        warehouse.delete(None, path, "number = 2", purge=True, tuning=TINY)
    for entry in (path / table / "_delta_log").glob("0*.json"):
        entry.write_text(
            re.sub(r'"size":(\d+)', lambda size: f'"size":{int(size[1]) + 1}', entry.read_text())
        )
    for checksum in (path / table / "_delta_log").glob("*.crc"):
        checksum.unlink()
    assert "files" in broken(path)
    report = warehouse.repair(None, path)
    assert (report.outcome, report.actions) == ("damaged", [])
    assert all(told.startswith(f"{table}/") for told in report.only_a_copy)


@pytest.mark.parametrize("how", ["a file gone", "a log cut"])
def test_lost_certificates_are_told(made: GroupWorld, tmp_path: Path, how: str) -> None:
    path = made.copy(tmp_path).path
    warehouse.delete(None, path, "number = 2", purge=True, tuning=TINY)
    if how == "a file gone":
        Path(DeltaTable(path / "purges").file_uris()[0]).unlink()
    else:
        newest = max((path / "purges/_delta_log").glob("0*.json"))
        newest.write_text(newest.read_text()[:20])
    assert "purges" in broken(path)
    report = warehouse.repair(None, path)
    assert (report.outcome, report.only_a_copy[0][:6]) == ("damaged", "purges")
