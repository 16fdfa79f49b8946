"""`warehouse.history`: every step with its facts; and batches with the rows of an earlier one are told."""

from __future__ import annotations

import getpass
import json
import logging
import shutil
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import csv

from tests.warehouse.hereloader import DAY_US, SCHEMA, Loader, rows_of
from tidemark import query, warehouse
from tidemark.jobs.cli import main
from tidemark.warehouse import DamagedWarehouse, InputError, OverlappingBatch
from tidemark.warehouse.columns.ticks import from_epoch_us
from tidemark.warehouse.delta import data_files, tables
from tidemark.warehouse.delta.commits import writer
from tidemark.warehouse.delta.table_names import REMOVALS, STEPS
from tidemark.warehouse.events import step_facts
from tidemark.warehouse.events.step_facts import StepFacts, read_facts


def load(loader: Loader, rows: Any, name: str, **how: Any) -> warehouse.LoadReport:
    return warehouse.load(None, loader.uri, rows, name, **how)


def times_of(rows: pa.Table) -> list[Any]:
    at = rows.column("t").cast(pa.int64()).to_pylist()
    return [from_epoch_us(min(at)), from_epoch_us(max(at))]


def facts(loader: Loader) -> dict[int, StepFacts]:
    return read_facts(loader.store, data_files.list_files(tables.open_table(loader.store, STEPS)))


def test_each_step_tells_its_rows_batches_and_times_and_who_loaded_it(tmp_path: Path) -> None:
    loader, expected = Loader.create(tmp_path / "w"), []
    for number in range(7):  # the plans are joined into one file meanwhile
        batches: Any = None
        given = [rows_of(10 * number + i) for i in range(1 + (number % 3 == 1))]
        if number % 3 == 1:
            for rows in given:
                loader.stream(rows)
            loader.load_live()
            batches = (("web", loader.streamed - 2, loader.streamed - 1, 120),)
        else:
            load(loader, given[0], f"day-{number}")
        expected.append((pa.concat_tables(given), batches))
    found = warehouse.history(loader.uri)
    assert [one.step for one in found] == list(range(7))
    for number, (one, (whole, batches)) in enumerate(zip(found, expected, strict=True)):
        assert (one.loaded, one.rows_in, one.rows_out) == (True, whole.num_rows, 0)
        assert [one.first_time, one.last_time] == times_of(whole)
        assert (one.user, one.host, one.version) == (getpass.getuser(), socket.gethostname(), writer())
        if batches is None:
            ((source, first, last, count),) = one.batches
            assert (source, first == last, count) == (f"load:day-{number}", True, 60)
        else:
            assert one.batches == batches
    assert [one.planned_at for one in found] == sorted(one.planned_at for one in found)
    assert warehouse.history(loader.uri, newest=2) == found[-2:]
    assert warehouse.history(loader.uri, at=3) == found[:4]
    assert warehouse.verify(loader.uri).ok


def test_a_step_that_is_not_finished_is_planned(tmp_path: Path) -> None:
    loader = Loader.create(tmp_path / "w")
    assert warehouse.history(loader.uri) == []

    def end(reached: str) -> None:
        if reached == "committed":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        loader.load(progress=end)
    assert [one.loaded for one in warehouse.history(loader.uri)] == [False]
    loader.load_live()
    assert [one.loaded for one in warehouse.history(loader.uri)] == [True]


def test_the_command_prints_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    loader = Loader.create(tmp_path / "w")
    loader.load()
    loader.stream()
    loader.load_live()
    assert main.main(["history", "-w", loader.uri]) == 0
    names, first, second = (line.split("\t") for line in capsys.readouterr().out.splitlines())
    assert len(names) == len(first) == len(second)
    assert (first[0], first[2], first[-1], second[-1]) == ("0", "60", "load:night-0", "web 0")
    assert main.main(["history", "-w", loader.uri, "--newest", "1", "--json"]) == 0
    (step,) = json.loads(capsys.readouterr().out)["steps"]
    assert (step["step"], step["batches"][0]["source"], step["rows_in"]) == (1, "web", 60)
    assert main.main(["history", "-w", loader.uri, "--newest", "0"]) == 2


DAY = rows_of(77, rows=400)


def _corrected() -> pa.Table:
    values = DAY.column("n").to_pylist()
    values[7] = (values[7] or 0) + 1
    return DAY.set_column(3, SCHEMA.field("n"), pa.array(values, pa.int64()))


def _one_more() -> pa.Table:
    return pa.concat_tables([pa.table([[None], ["k"], [None], [None]], schema=SCHEMA), DAY])


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (DAY, "has the same rows as batch 'monday' with 400 rows, which is step 0"),
        (_one_more(), "has nearly the same rows as batch 'monday' with 400 rows, which is step 0"),
        (_corrected(), "has .*the same rows as batch 'monday'"),
    ],
)
def test_a_batch_with_the_rows_of_an_earlier_one_is_told_or_refused(
    tmp_path: Path, rows: pa.Table, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    loader = Loader.create(tmp_path / "w")
    assert not load(loader, DAY, "monday").overlaps
    assert not load(loader, rows_of(78, rows=400), "tuesday", refuse_overlap=True).overlaps
    before = query.open(loader.uri).info()["versions"]
    with pytest.raises(OverlappingBatch, match=f"{said}.*Nothing was changed"):
        load(loader, rows, "again", refuse_overlap=True)
    assert query.open(loader.uri).info()["versions"] == before
    assert query.open(loader.uri).sql("SELECT count(*) FROM events").fetchall() == [(800,)]
    with caplog.at_level(logging.WARNING, "tidemark.load"):
        (told,) = load(loader, rows, "again").overlaps
    assert told in caplog.text
    assert load(loader, rows, "again").outcome == "known"
    assert load(loader, rows, "again", refuse_overlap=True).outcome == "known"  # a retry is no second batch
    assert warehouse.verify(loader.uri).ok


def test_the_same_file_under_another_name_is_told_by_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    csv.write_csv(DAY, tmp_path / "monday.csv")
    lines = (tmp_path / "monday.csv").read_text().splitlines(keepends=True)
    (tmp_path / "copy.csv").write_text("".join([lines[0], *lines[:0:-1]]))
    made = ["load", "-w", str(tmp_path / "w"), "--measure", "n", "--time", "t", "--engine", "local"]
    assert main.main([*made, "--input", str(tmp_path / "monday.csv"), "--batch", "monday"]) == 0
    again = [*made, "--input", str(tmp_path / "copy.csv"), "--batch", "copy"]
    capsys.readouterr()
    assert main.main([*again, "--refuse-overlap"]) == 2
    assert "batch 'copy' with 400 rows has the same rows as batch 'monday'" in capsys.readouterr().err
    assert main.main(again) == 0
    assert "warning: batch 'copy' with 400 rows has the same rows as" in capsys.readouterr().err


@pytest.mark.parametrize("point", ["appended", "planned"])
def test_a_load_that_was_ended_has_its_facts_and_is_compared(tmp_path: Path, point: str) -> None:
    loader = Loader.create(tmp_path / "w")
    load(loader, DAY, "monday")

    def end(reached: str) -> None:
        if reached == point:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        load(loader, DAY, "again", progress=end)
    report = load(loader, DAY, "again")
    assert len(report.overlaps) == (point == "appended")  # the plan told it before
    first, second = facts(loader)[0], facts(loader)[1]
    assert first == second
    assert first.sample is not None


def test_a_batch_that_was_unloaded_is_not_told_and_one_that_lost_rows_is(tmp_path: Path) -> None:
    loader = Loader.create(tmp_path / "w")
    load(loader, DAY, "monday")
    load(loader, rows_of(78, rows=400), "tuesday")
    assert warehouse.unload(None, loader.uri, "monday").rows == 400
    assert not load(loader, DAY, "monday", again=True, refuse_overlap=True).overlaps
    (told,) = load(loader, DAY, "copy").overlaps
    assert "batch 'monday' with 400 rows, which is step 2" in told
    warehouse.unload(None, loader.uri, "copy")
    gone = sum(key == "k3" for key in DAY.column("k").to_pylist())
    more = sum(key == "k3" for key in rows_of(78, rows=400).column("k").to_pylist())
    assert warehouse.delete(None, loader.uri, "k = 'k3'").rows_by_step == {1: more, 2: gone}
    said = f"batch 'monday' with 400 rows, of which {400 - gone} are left, which is step 2"
    with pytest.raises(OverlappingBatch, match=said):
        load(loader, DAY, "copy", again=True, refuse_overlap=True)
    assert [one.rows_out for one in warehouse.history(loader.uri)] == [400, more, gone, 400]
    warehouse.delete(None, loader.uri, "true")
    assert not load(loader, DAY, "another", refuse_overlap=True).overlaps
    steps = warehouse.history(loader.uri)
    assert [(one.rows_in, one.rows_out) for one in steps] == [(400, 400)] * 4 + [(400, 0)]
    assert [steps[0].first_time, steps[0].last_time] == times_of(DAY)
    assert warehouse.verify(loader.uri).ok


def test_rows_that_left_are_those_of_decided_removals(tmp_path: Path) -> None:
    loader = Loader.create(tmp_path / "w")
    load(loader, DAY, "monday")
    loader.stream(rows_of(5))
    loader.load_live()

    def end(at: str) -> Callable[[str], None]:
        def ended(reached: str) -> None:
            if reached == at:
                raise KeyboardInterrupt

        return ended

    def rows_out() -> list[int]:
        return [one.rows_out for one in warehouse.history(loader.uri)]

    for point, left in (("removal planned", 0), ("decided", 60)):
        with pytest.raises(KeyboardInterrupt):
            warehouse.unload(None, loader.uri, source="web", batches=(0, 0), progress=end(point))
        assert rows_out() == [0, left]
    assert len(load(loader, DAY, "again").overlaps) == 1  # and this load finishes the removal
    assert rows_out() == [0, 60, 0]
    assert [(one.step, one.rows_out) for one in warehouse.history(loader.uri, at=0)] == [(0, 0)]
    assert [one.rows_out for one in warehouse.history(loader.uri, at=2)] == [0, 60, 0]
    shutil.rmtree(Path(loader.uri, REMOVALS))
    with pytest.raises(DamagedWarehouse, match=REMOVALS):
        warehouse.history(loader.uri)


def test_two_loads_at_once_keep_the_facts_of_both(tmp_path: Path) -> None:
    loader = Loader.create(tmp_path / "w")
    given = {f"b{number}": rows_of(number, rows=200) for number in range(4)}
    threads = [threading.Thread(target=load, args=[loader, rows, name]) for name, rows in given.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(facts(loader)) == list(range(4))
    for one in warehouse.history(loader.uri):
        assert [one.first_time, one.last_time] == times_of(given[one.batches[0][0].removeprefix("load:")])
    assert len(load(loader, given["b2"], "again").overlaps) == 1


def test_samples_are_kept_of_the_newest_steps_and_facts_of_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_facts, "SAMPLED", 3)
    loader = Loader.create(tmp_path / "w", kappa=30)
    for number in range(5):  # the fifth joins the plans into one file
        load(loader, rows_of(number, rows=100), f"b{number}")
    found = facts(loader)
    assert [step for step, one in found.items() if one.sample is not None] == [2, 3, 4]
    assert all(one.times is not None and one.user is not None for one in found.values())


def test_plans_that_another_version_joined_have_no_facts_and_all_else(tmp_path: Path) -> None:
    loader = Loader.create(tmp_path / "w")
    load(loader, DAY, "monday")
    known, table = facts(loader), tables.open_table(loader.store, STEPS)
    rows = data_files.read(loader.store, STEPS, table)
    tables.commit(table, data_files.append_actions(loader.store, STEPS, rows, data_files.list_files(table)))
    assert not facts(loader)
    (one,) = warehouse.history(loader.uri)
    assert (one.rows_in, one.user, one.first_time) == (400, None, None)
    assert not load(loader, DAY, "again").overlaps
    assert known[0].sample == facts(loader)[1].sample


def test_a_repair_of_the_plans_keeps_their_facts(tmp_path: Path) -> None:
    loader = Loader.create(tmp_path / "w")
    for number in range(2):
        load(loader, rows_of(number), f"b{number}")
    before, table = facts(loader), tables.open_table(loader.store, STEPS)
    rows = data_files.read(loader.store, STEPS, table)
    tables.commit(table, data_files.append_actions(loader.store, STEPS, rows.slice(0, 1), []))  # twice
    warehouse.repair(None, loader.uri)
    assert facts(loader) == before


def test_a_damaged_text_is_told(tmp_path: Path) -> None:
    loader = Loader.create(tmp_path / "w")
    load(loader, DAY, "monday")
    (path,) = (file.path for file in data_files.list_files(tables.open_table(loader.store, STEPS)))
    place, text = Path(loader.uri, STEPS, path), b'"version": "tidemark'
    content = place.read_bytes()
    assert text in content
    place.write_bytes(content.replace(text, text.replace(b"tide", b"ride")))
    with pytest.raises(DamagedWarehouse, match=path):
        warehouse.history(loader.uri)


def test_times_are_those_of_the_rows_with_a_time(tmp_path: Path) -> None:
    loader, field = Loader.create(tmp_path / "w"), SCHEMA.field("t")
    load(loader, rows_of(3).set_column(0, field, pa.array([None] * 59 + [5 * DAY_US], field.type)), "b")
    (one,) = warehouse.history(loader.uri)
    assert one.first_time == one.last_time == from_epoch_us(5 * DAY_US)
    with pytest.raises(InputError):
        warehouse.history(loader.uri, at=9)
