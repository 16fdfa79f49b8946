"""Maintenance takes away what nobody may still see, after the grace and not before, and loses nothing."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.warehouse.conftest import HISTORY, LIVE, SMALL, Grown, arrow, rows_of_batch
from tests.warehouse.disk import backdate, files_of, rows_of, tables_of
from tidemark import query, stream, warehouse
from tidemark.warehouse.delta import data_files, tables
from tidemark.warehouse.delta.store import Store

DAY = 86_400
PHIS = [i / 50 for i in range(51)]


def answers(uri: Path) -> list[str]:
    wh = query.open(uri)
    return [repr(a.value) for name in ("x", "n") for a in wh.quantile(PHIS, name, mode="exact")]


def files_on_disk(uri: Path, table: str) -> set[str]:
    return {
        str(path.relative_to(uri / table))
        for path in (uri / table).rglob("*.parquet")
        if "_delta_log" not in path.parts
    }


def current(uri: Path, table: str) -> set[str]:
    return set(tables_of(uri)[table][1])


def plant_orphans(uri: Path) -> list[Path]:
    """What a crash leaves: a run's file and its marks' file that no commit names, and a chunk of a sort."""
    planted = [
        uri / "runs/x/run=L00-0000000003-0000000003/orphan-00000.parquet",
        uri / "marks/x/run=L00-0000000003-0000000003/orphan.parquet",
        uri / "runs/x/_chunks/attempt/00000.parquet",
        uri / "keys/k/run=L00-0000000003-0000000003/orphan-00000.parquet",
        uri / "key_marks/k/run=L00-0000000003-0000000003/orphan.parquet",
        uri / "keys/k/_chunks/attempt/00000.parquet",
        uri / "ledger/orphan.parquet",
    ]
    for path in planted:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"PAR1")
    return planted


def test_within_the_grace_nothing_leaves_the_disk(spark: SparkSession, copied: Grown) -> None:
    before, known = answers(copied.uri), files_of(copied.uri)
    planted = plant_orphans(copied.uri)
    report = warehouse.maintain(spark, copied.uri)
    assert (sum(report.swept.values()), report.marks_expired, report.ledger_rows_expired) == (0, 0, 0)
    assert set(known) <= set(files_of(copied.uri))
    assert all(path.exists() for path in planted)
    assert answers(copied.uri) == before
    assert warehouse.verify(copied.uri).ok


def test_after_the_grace_the_old_is_gone_and_the_current_is_all_there(
    spark: SparkSession, copied: Grown
) -> None:
    """Superseded runs and their marks, orphans, chunks; then loads and streams go on."""
    uri, before = copied.uri, answers(copied.uri)
    planted = plant_orphans(uri)
    report = warehouse.maintain(spark, uri, grace="0 s")
    assert report.marks_expired == 9
    assert not [path for path in planted if path.exists()]
    for name, marks in (("runs/x", "marks/x"), ("runs/n", "marks/n"), ("keys/k", "key_marks/k")):
        assert files_on_disk(uri, name) == current(uri, name)
        assert len(current(uri, marks)) == 2
    assert files_on_disk(uri, "events") == current(uri, "events")
    assert answers(uri) == before
    warehouse.maintain(spark, uri, grace="0 s")
    for marks in ("marks/x", "marks/n", "key_marks/k"):
        assert files_on_disk(uri, marks) == current(uri, marks)
    assert answers(uri) == before
    report_of_checks = warehouse.verify(uri)
    assert report_of_checks.ok, str(report_of_checks)
    assert_replays_change_nothing(copied)
    assert_life_goes_on(copied)


def assert_replays_change_nothing(copied: Grown) -> None:
    before = tables_of(copied.uri)
    for name in HISTORY:
        assert warehouse.load(None, copied.uri, arrow(copied.batches[name]), name).outcome == "known"
    for number in LIVE:
        again = arrow(copied.batches[number])
        assert not stream.append(None, copied.uri, again, source="s", batch=number)
    assert tables_of(copied.uri) == before


def assert_life_goes_on(copied: Grown) -> None:
    wh = query.open(copied.uri)
    rows = wh.quantile(0.5, "n").N
    extra = rows_of_batch(77)
    kept = sum(row[3] is not None for row in extra)
    assert stream.append(None, copied.uri, arrow(extra), source="s", batch=2)
    assert rows + kept == wh.quantile(0.5, "n").N
    warehouse.load(None, copied.uri, arrow(extra), "another")
    warehouse.load(None, copied.uri)
    answer = wh.quantile(0.5, "n")
    assert (answer.N, answer.m) == (rows + 2 * kept, 0)
    report = warehouse.verify(copied.uri)
    assert report.ok, str(report)


def test_ledger_rows_leave_after_the_grace_and_their_batches_stay_known(copied: Grown) -> None:
    """Also once the log that named them is cleaned away and only the checkpoint is left."""
    uri = copied.uri
    warehouse.load(None, uri)
    before = answers(uri)
    warehouse.maintain(None, uri)
    assert len(rows_of(uri, "ledger")) == 10
    report = warehouse.maintain(None, uri, grace="0 s")
    assert report.ledger_rows_expired == len(rows_of(uri, "ledger")) + 10 == 10
    backdate(uri, 40 * DAY)
    warehouse.maintain(None, uri, grace="0 s")
    warehouse.maintain(None, uri, grace="0 s")
    for name in ("ledger", "steps", "runs/x", "marks/n"):
        assert not (uri / name / "_delta_log" / f"{0:020d}.json").exists(), name
    assert files_on_disk(uri, "ledger") == set()
    assert answers(uri) == before
    assert_replays_change_nothing(copied)
    assert_life_goes_on(copied)


def test_a_reader_from_before_sees_all_its_files_within_the_grace(copied: Grown) -> None:
    """A snapshot taken before a merge and a maintenance still reads the runs that the merge replaced."""
    snapshot = warehouse.open_snapshot(copied.uri)
    views = {name: snapshot.current().view(name) for name in ("x", "n")}
    warehouse.load(None, copied.uri)
    warehouse.load(None, copied.uri, arrow(copied.batches["night-1"]), "one more")
    assert tables_of(copied.uri)["runs/x"][1].keys() != {f.path for run in views["x"].runs for f in run.files}
    warehouse.maintain(None, copied.uri)
    for name, view in views.items():
        for run in view.runs:
            assert all((copied.uri / "runs" / name / file.path).exists() for file in run.files)
            assert len(run.spans().starts) > 0


def test_many_small_files_become_few_and_say_the_same(spark: SparkSession, copied: Grown) -> None:
    """Ten batches more, a cascade of threes; runs and marks are left in their order."""
    uri, tuning = copied.uri, replace(SMALL, fan=3)
    for number in range(2, 12):
        rows = arrow(rows_of_batch(number)[:12])
        stream.append(None, uri, rows, source="s", batch=number, tuning=tuning)
    before, runs, ledger = answers(uri), current(uri, "runs/x"), rows_of(uri, "ledger")
    report = warehouse.maintain(spark, uri, tuning=tuning)
    # Twelve batches, four ranges of three and one of nine; 0..8 and 9..11 are what readers take.
    assert report.compacted["ledger"] == (17, 3)
    assert report.compacted["events"][1] < report.compacted["events"][0]
    assert (
        rows_of(uri, "ledger")
        .sort_by([(name, "ascending") for name in ("first_batch", "last_batch", "tick")])
        .equals(ledger.sort_by([(name, "ascending") for name in ("first_batch", "last_batch", "tick")]))
    )
    assert current(uri, "runs/x") == runs
    assert answers(uri) == before
    assert DeltaTable(uri / "events").metadata().configuration["tidemark.kappa"] == "2"
    report = warehouse.maintain(None, uri, grace="0 s", tuning=tuning)
    assert report.compacted["ledger"] == (3, 2)
    assert answers(uri) == before
    warehouse.load(None, uri, tuning=tuning)
    assert answers(uri) == before
    report_of_checks = warehouse.verify(uri)
    assert report_of_checks.ok, str(report_of_checks)
    assert_replays_change_nothing(copied)


def test_the_warehouses_own_grace_is_what_counts(copied: Grown) -> None:
    """Old by a day less than the grace: kept; by a day more: swept."""
    uri = copied.uri
    planted = plant_orphans(uri)
    for days, left in ((6, planted), (8, [])):
        for path in planted:
            if path.exists():
                os.utime(path, (path.stat().st_atime, path.stat().st_mtime))
                backdate(path.parent, 0)
                now = max(p.stat().st_mtime for p in (uri / "steps").rglob("*") if p.is_file())
                os.utime(path, (now - days * DAY, now - days * DAY))
        warehouse.maintain(None, uri)
        assert [path for path in planted if path.exists()] == left
    assert warehouse.verify(uri).ok


@pytest.mark.parametrize("grace", ["soon", "0soon", "-1 s", ""])
def test_a_bad_grace_is_refused_before_anything_is_swept(copied: Grown, grace: str) -> None:
    before = files_of(copied.uri)
    with pytest.raises(warehouse.InputError):
        warehouse.maintain(None, copied.uri, grace=grace)
    assert files_of(copied.uri) == before


def test_a_warehouse_without_rows_can_be_maintained(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.createDataFrame([(1.0,)], "x double")
    for path, schema, session, given in (
        (tmp_path / "typed", "x double", spark, rows),
        (tmp_path / "bare", None, None, pa.table({"x": [1.0]})),
    ):
        warehouse.create(spark, path, ["x"], schema=schema, grace="0 s")
        warehouse.maintain(session, path)
        assert warehouse.verify(path).ok
        warehouse.load(session, path, given, "first")
        assert query.open(path).quantile(0.5).value == 1.0


def test_a_plan_in_flight_keeps_its_marks_and_files(copied: Grown) -> None:
    """A load that stopped before its run's commit: maintenance takes nothing that the rerun counts on."""

    class Stop(Exception):
        pass

    def stop(point: str) -> None:
        if point == "marked":
            raise Stop

    with pytest.raises(Stop):
        warehouse.load(None, copied.uri, progress=stop)
    before = answers(copied.uri)
    warehouse.maintain(None, copied.uri, grace="0 s")
    assert answers(copied.uri) == before
    warehouse.load(None, copied.uri)
    assert answers(copied.uri) == before
    assert warehouse.verify(copied.uri).ok
    store = Store.from_uri(copied.uri)
    warehouse.maintain(None, copied.uri, grace="0 s")
    attempts = {f.path for f in data_files.list_files(tables.open_table(store, "marks/x"))}
    assert len(attempts) == len({path.split("/")[0] for path in attempts})
    shutil.rmtree(copied.uri)
