"""A table's log outlives the grace: readers of an old snapshot go on, and what left within it stays."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import types as t

from tests.warehouse.disk import backdate, table_names
from tidemark import warehouse
from tidemark.warehouse.columns.ticks import DAY_US
from tidemark.warehouse.delta import data_files, grace, tables, vacuum
from tidemark.warehouse.delta.data_files import append_actions
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.vacuum import VacuumResult

DAY = 86_400
SCHEMA = t.StructType([t.StructField("x", t.DoubleType()), t.StructField("k", t.StringType())])
OLD = "interval 30 days"


def kept(uri: Path) -> dict[str, str]:
    """How long each table keeps its log."""
    logs = {name: DeltaTable(uri / name).metadata().configuration for name in table_names(uri)}
    return {name: found["delta.logRetentionDuration"] for name, found in logs.items()}


def written_before(patch: pytest.MonkeyPatch, uri: Path, grace: str) -> Path:
    """A warehouse whose logs are set by another tool: its logs are kept for 30 days whatever the grace is."""
    with patch.context() as earlier:
        earlier.setattr(tables, "retention_interval", lambda _: OLD)
        warehouse.create(None, uri, "x", key="k", schema=SCHEMA, grace=grace)
    return uri


@pytest.mark.parametrize(
    ("grace", "interval"),
    [
        *(("0", OLD), ("7 days", OLD), ("29 days", OLD), ("30 days", "interval 31 days")),
        *(
            ("60 days", "interval 61 days"),
            ("721 hours", "interval 32 days"),
            ("9999 weeks", "interval 69994 days"),
        ),
    ],
)
def test_every_table_keeps_its_log_for_longer_than_the_grace(
    tmp_path: Path, grace: str, interval: str
) -> None:
    warehouse.create(None, tmp_path, "x", key="k", schema=SCHEMA, grace=grace)
    assert set(kept(tmp_path)) == {
        *("events", "steps", "ledger", "rejected"),
        *("runs/x", "marks/x", "keys/k", "key_marks/k"),
    }
    assert set(kept(tmp_path).values()) == {interval}
    assert "less than the grace" not in str(warehouse.verify(tmp_path))


def test_tables_that_the_first_load_makes_keep_theirs_too(spark: SparkSession, tmp_path: Path) -> None:
    warehouse.create(spark, tmp_path, "x", key="k", grace="45 days")
    warehouse.load(spark, tmp_path, spark.createDataFrame([(1.0, "a")], SCHEMA), "first")
    assert len(kept(tmp_path)) == 8
    assert set(kept(tmp_path).values()) == {"interval 46 days"}


@given(st.integers(0, 2**53))
def test_what_is_kept_is_longer_than_the_grace_and_read_back(grace_us: int) -> None:
    found = grace.retention_us({grace.RETENTION: grace.retention_interval(grace_us)})
    assert found >= max(30 * DAY_US, grace_us)


@pytest.mark.parametrize(
    ("said", "days"),
    [
        (None, 30),
        ("", 30),
        ("interval 2 weeks", 14),
        ("INTERVAL 5 DAYS 24 HOURS", 6),
        ("interval 1 month", 30),
    ],
)
def test_a_retention_is_read_as_delta_says_it(said: str | None, days: int) -> None:
    assert grace.retention_us({grace.RETENTION: said}) == days * DAY_US


def test_verify_tells_and_maintenance_mends_a_log_that_is_kept_for_less_than_the_grace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = written_before(monkeypatch, tmp_path / "w", "60 days")
    report = warehouse.verify(uri)
    assert report.ok
    assert "less than the grace" in str(report)
    assert all(name in str(report) for name in table_names(uri))
    options = warehouse.open_snapshot(uri).options
    done = warehouse.maintain(None, uri)
    assert done.lengthened == dict.fromkeys(table_names(uri), "interval 61 days")
    assert kept(uri) == done.lengthened
    assert warehouse.open_snapshot(uri).options == options
    assert "less than the grace" not in str(warehouse.verify(uri))
    assert warehouse.maintain(None, uri).lengthened == {}


def test_a_longer_grace_for_once_lengthens_the_logs_and_a_shorter_one_shortens_none(tmp_path: Path) -> None:
    warehouse.create(None, tmp_path, "x", grace="1 day")
    done = warehouse.maintain(None, tmp_path, grace="60 days")
    assert set(done.lengthened.values()) == {"interval 61 days"}
    assert warehouse.maintain(None, tmp_path, grace="0").lengthened == {}
    assert set(kept(tmp_path).values()) == {"interval 61 days"}


def old_log(uri: Path) -> Path:
    """A table with a checkpoint and commits of 40 days ago; the first of them."""
    store = Store.from_uri(uri)
    table = tables.open_table(store, "steps")
    rows = pa.schema(table.schema()).empty_table()
    for _ in range(3):
        tables.commit(tables.open_table(store, "steps"), append_actions(store, "steps", rows, []))
    tables.open_table(store, "steps").create_checkpoint()
    tables.commit(tables.open_table(store, "steps"), append_actions(store, "steps", rows, []))
    backdate(uri, 40 * DAY)
    return uri / "steps/_delta_log/00000000000000000000.json"


@pytest.mark.parametrize("how", ["made so", "made before", "for once"])
def test_commits_within_the_grace_stay_whoever_cleans(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Maintenance cleans, and so does every commit that writes a checkpoint."""
    if how == "made before":
        uri = written_before(monkeypatch, tmp_path / "w", "60 days")
    else:
        uri = tmp_path / "w"
        warehouse.create(None, uri, "x", grace="60 days" if how == "made so" else "7 days")
    first = old_log(uri)
    for _ in range(2):
        warehouse.maintain(None, uri, grace="60 days" if how == "for once" else None)
        DeltaTable(uri / "steps").cleanup_metadata()
        assert first.exists()
    held = DeltaTable(uri / "steps", version=0)
    held.update_incremental()
    assert held.version() == DeltaTable(uri / "steps").version()


def test_a_log_that_is_kept_for_less_than_the_grace_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = written_before(monkeypatch, tmp_path / "w", "60 days")
    monkeypatch.setattr(sys_maintain(), "extend_log_retention", lambda *_: None)
    first = old_log(uri)
    for _ in range(2):
        warehouse.maintain(None, uri)
    assert not first.exists()


def sys_maintain() -> object:
    """The module that the function of the same name hides."""
    return sys.modules["tidemark.warehouse.maintain"]


def left(store: Store, days: float) -> Path:
    """A file that was written long ago and left its table so many days ago, before a checkpoint."""
    tables.create(store, "t", pa.schema([("a", pa.int64())]))
    tables.commit(tables.open_table(store, "t"), append_actions(store, "t", pa.table({"a": [1]}), []))
    (file,) = data_files.list_files(tables.open_table(store, "t"))
    at = time.time() - days * DAY
    log = Path(store.uri, "t/_delta_log/00000000000000000002.json")
    removed = {"path": file.path, "dataChange": True, "deletionTimestamp": int(at * 1000)}
    log.write_text(json.dumps({"remove": removed}))
    os.utime(log, (at, at))
    data = Path(store.uri, "t", file.path)
    for path in (data, *(log.with_name(f"{version:020d}.json") for version in (0, 1))):
        os.utime(path, (at - 90 * DAY,) * 2)
    tables.open_table(store, "t").create_checkpoint()
    return data


@pytest.mark.parametrize(("days", "grace"), [(8, 30), (29.9, 30), (0.1, 7), (8, 9), (-0.01, 0)])
def test_a_file_that_left_within_the_grace_stays(tmp_path: Path, days: float, grace: int) -> None:
    """Also where the checkpoint has forgotten it, as Delta's forget after a week, or clocks differ."""
    data = left(Store.from_uri(tmp_path), days)
    assert vacuum.vacuum_table(Store.from_uri(tmp_path), "t", grace * DAY_US) == VacuumResult()
    assert data.exists()


@pytest.mark.parametrize(("days", "grace"), [(8, 7), (31, 30), (0.1, 0)])
def test_a_file_that_left_before_the_grace_goes(tmp_path: Path, days: float, grace: int) -> None:
    data = left(Store.from_uri(tmp_path), days)
    assert vacuum.vacuum_table(Store.from_uri(tmp_path), "t", grace * DAY_US) == VacuumResult(1)
    assert not data.exists()


def test_where_the_log_does_not_reach_back_over_the_grace_nothing_is_swept(tmp_path: Path) -> None:
    data = left(Store.from_uri(tmp_path), 8)
    for version in (0, 1):
        (tmp_path / f"t/_delta_log/{version:020d}.json").unlink()
    done = vacuum.vacuum_table(Store.from_uri(tmp_path), "t", 30 * DAY_US)
    assert (done.files, data.exists()) == (0, True)
    assert "log" in str(done.held)
    assert vacuum.vacuum_table(Store.from_uri(tmp_path), "t", 7 * DAY_US) == VacuumResult(1)


def test_a_sweep_by_what_the_checkpoint_remembers_is_caught(tmp_path: Path) -> None:
    data = left(Store.from_uri(tmp_path), 8)
    table = tables.open_table(Store.from_uri(tmp_path), "t")
    table.vacuum(30 * 24, dry_run=False, enforce_retention_duration=False, full=True)
    assert not data.exists()
