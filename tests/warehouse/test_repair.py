"""Repair: whatever is damaged of all but `events` is made again, and the answers are those of all rows."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.soak import some
from tests.warehouse.disk import tables_of
from tests.warehouse.hereloader import Loader, rows_of
from tidemark import query, stream, warehouse
from tidemark.jobs.cli import main as cli
from tidemark.warehouse import CommitFailed, DamagedWarehouse, RepairReport
from tidemark.warehouse.delta import idle_tables, log_repair
from tidemark.warehouse.ledger import batch_counts
from tidemark.warehouse.loads import missing_summaries, run_builder
from tidemark.warehouse.repairs import plans, runs
from tidemark.warehouse.runs import run_tables
from tidemark.warehouse.runs.levels import Layout
from tidemark.warehouse.snapshots.near_tables import NearTable
from tidemark.warehouse.verification import file_checks

ROWS = [rows_of(seed, 120) for seed in range(4)] + [rows_of(seed, 40) for seed in range(4, 9)]
Harm = Callable[[Path], None]


def filled(loader: Loader) -> Loader:
    """Runs of two levels, a step of streamed batches, and live ones."""
    for rows in ROWS[:4]:
        loader.load(rows)
    for rows in ROWS[4:7]:
        loader.stream(rows)
    loader.load_live()
    for rows in ROWS[7:]:
        loader.stream(rows)
    return loader


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Loader:
    return filled(Loader.create(tmp_path_factory.mktemp("sound") / "w", kappa=2, groups=["k"]))


@pytest.fixture
def loader(sound: Loader, tmp_path: Path) -> Loader:
    return sound.copied(tmp_path / "w")


@pytest.fixture(scope="module")
def sound_plain(tmp_path_factory: pytest.TempPathFactory) -> Loader:
    return filled(Loader.create(tmp_path_factory.mktemp("plain") / "w", key=None))


@pytest.fixture
def plain(sound_plain: Loader, tmp_path: Path) -> Loader:
    """As `loader`, without keys and groups: for damage of `events`."""
    return sound_plain.copied(tmp_path / "w")


def check_answers(uri: str) -> None:
    """Exact answers are those of a plain list of all rows."""
    wh, rows = query.open(uri), pa.concat_tables(ROWS)
    numbers = sorted(rows.column("n").to_pylist())
    told = wh.quantile([0.1, 0.5, 1.0], "n", mode="exact")
    at = [-(-len(numbers) * phi // 10) - 1 for phi in (1, 5, 10)]
    assert [(one.value, one.N) for one in told] == [(numbers[i], len(numbers)) for i in at]
    counts = Counter(rows.column("k").to_pylist())
    assert [one.count for one in wh.frequency(sorted(counts), mode="exact")] == [
        counts[key] for key in sorted(counts)
    ]
    k1 = sorted(
        n
        for k, n in zip(rows.column("k").to_pylist(), rows.column("n").to_pylist(), strict=True)
        if k == "k1"
    )
    (median,) = wh.quantile([0.5], "n", where={"k": "k1"}, mode="exact")
    assert (median.value, median.N) == (k1[-(-len(k1) // 2) - 1], len(k1))


def check_repaired(uri: str, report: RepairReport) -> None:
    assert report.outcome == "repaired", report
    found = warehouse.verify(uri)
    assert found.ok, str(found)
    check_answers(uri)


def check_told_once(report: RepairReport) -> None:
    """Why a log cannot be opened is told once, and without advice to run a repair."""
    told = [*report.actions, *report.only_a_copy]
    reasons = [one.partition("its log is put right (")[2].removesuffix(")") for one in told]
    for reason in filter(None, reasons):
        assert sum(reason in one for one in told) == 1, reason
        assert "tidemark repair" not in reason


def log_of(uri: Path, table: str) -> list[Path]:
    return sorted((uri / table / "_delta_log").glob("*.json"))


def remove_folder(table: str) -> Harm:
    return lambda uri: shutil.rmtree(uri / table)


def remove_newest(table: str, count: int = 1) -> Harm:
    """As a copy of the log from before the last commits."""

    def harm(uri: Path) -> None:
        for path in log_of(uri, table)[-count:]:
            for newer in path.parent.glob(f"{path.stem}*"):
                newer.unlink()
        for path in (uri / table / "_delta_log").glob("_last_checkpoint"):
            path.unlink()

    return harm


def tear(table: str, keep: Callable[[str], str]) -> Harm:
    """The newest entry of the log is cut."""

    def harm(uri: Path) -> None:
        newest = log_of(uri, table)[-1]
        text = keep(newest.read_text())
        remove_newest(table)(uri)
        newest.write_text(text)

    return harm


def restore(table: str, back: int) -> Harm:
    """Delta's own RESTORE, which is right for `events` alone."""

    def harm(uri: Path) -> None:
        found = DeltaTable(uri / table)
        found.restore(found.version() - back)

    return harm


def spoil(table: str, change: Callable[[Path], object], number: int = 0) -> Harm:
    """Changes one of the files that the table names."""

    def harm(uri: Path) -> None:
        change(uri / table / sorted(tables_of(uri)[table][1])[number])

    return harm


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 8
    path.write_bytes(data)


def half(text: str) -> str:
    return text[: len(text) // 2]


def without_its_last_line(text: str) -> str:
    return "".join(text.splitlines(keepends=True)[:-1])


HARM: dict[str, tuple[Harm, ...]] = {
    "runs gone": (remove_folder("runs/x"), restore("ledger", 1), spoil("key_marks/k", flip, -1)),
    "runs put back": (remove_newest("runs/x"), spoil("marks/n", cut, -1), remove_folder("keys/k")),
    "runs restored": (
        restore("runs/n", 3),
        spoil("group_marks/k/n", Path.unlink, -1),
        spoil("steps", cut, -1),
    ),
    "runs torn": (tear("runs/x", half), remove_folder("ledger")),
    "a line lost": (
        tear("runs/n", without_its_last_line),
        remove_folder("group_runs/k/x"),
        remove_folder("rejected"),
    ),
    "files gone": (spoil("runs/x", Path.unlink, -1), remove_folder("marks/x"), tear("ledger", half)),
    "steps gone": (spoil("runs/n", flip), tear("keys/k", half), remove_folder("steps")),
    "steps torn": (tear("steps", half), tear("marks/x", half)),
    "steps put back": (remove_newest("marks/n"), restore("group_runs/k/n", 2), remove_newest("steps")),
    "steps restored": (restore("steps", 3), spoil("ledger", flip, -1)),
}


def with_wrong_summaries(path: Path, wrong: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """As another tool may write a file of the ledger: without a seal, and with wrong summaries."""
    rows = pq.read_table(path)
    measures = [[wrong(one) for one in row] for row in rows.column("measures").to_pylist()]
    cut_measures = pa.array(measures, rows.schema.field("measures").type)
    pq.write_table(rows.set_column(rows.schema.get_field_index("measures"), "measures", cut_measures), path)


WRONG_SUMMARY: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "is damaged": lambda one: {**one, "sketch": one["sketch"][:-3]},
    "holds": lambda one: {**one, "nulls": one["nulls"] + 1},
}


@pytest.mark.parametrize("fault", WRONG_SUMMARY)
def test_a_wrong_summary_is_made_again_as_its_error_says(loader: Loader, fault: str) -> None:
    for number in range(len(tables_of(Path(loader.uri))["ledger"][1])):
        spoil("ledger", lambda path: with_wrong_summaries(path, WRONG_SUMMARY[fault]), number)(
            Path(loader.uri)
        )
    with pytest.raises(DamagedWarehouse, match=rf"summary of '.' in batch .* of '.*{fault}.*tidemark repair"):
        query.open(loader.uri).quantile(0.5, "n", mode="quick")
    check_repaired(loader.uri, warehouse.repair(None, loader.uri))


def test_a_repair_that_opens_no_summary_is_caught(loader: Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemark.warehouse.repairs.ledger.check_summaries", lambda _: None)
    monkeypatch.setattr("tidemark.warehouse.repairs.contents._of_ledger", lambda _: ())
    with pytest.raises(AssertionError):
        test_a_wrong_summary_is_made_again_as_its_error_says(loader, "holds")


@pytest.mark.parametrize("harm", some(HARM, 5))
def test_what_is_damaged_is_made_again(loader: Loader, harm: str) -> None:
    """A dry run says the same and changes nothing."""
    for one in HARM[harm]:
        one(Path(loader.uri))
    before = {path: path.stat().st_mtime_ns for path in Path(loader.uri).rglob("*")}
    told = warehouse.repair(None, loader.uri, dry_run=True)
    assert told.outcome == "planned"
    check_told_once(told)
    assert {path: path.stat().st_mtime_ns for path in Path(loader.uri).rglob("*")} == before
    report = warehouse.repair(None, loader.uri)
    assert report.actions[0].split(" (")[0] == told.actions[0].split(" (")[0]
    check_told_once(report)
    check_repaired(loader.uri, report)
    assert str(warehouse.repair(None, loader.uri, dry_run=True)) == "sound"
    if harm.startswith("steps"):
        loader.load(rows_of(77))
        loader.stream(rows_of(78))
        loader.load_live()
        assert warehouse.verify(loader.uri).ok


def test_a_repair_that_is_killed_between_any_two_commits_goes_on(
    sound: Loader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two tables are gone; each repair ends at its next commit of a run."""
    uri = tmp_path / "w"
    sound.copied(uri)
    for name in ("runs/x", "group_runs/k/n"):
        shutil.rmtree(uri / name)
    kills, replace_runs = 0, run_tables.replace_runs

    def dying(*given: Any) -> None:
        replace_runs(*given)
        raise KeyboardInterrupt

    for _ in range(50):
        with monkeypatch.context() as patch:
            patch.setattr(run_tables, "replace_runs", dying)
            try:
                report = warehouse.repair(None, uri)
            except KeyboardInterrupt:
                kills += 1
            else:
                break
    assert kills > 3
    assert report.outcome in ("repaired", "sound")
    assert warehouse.verify(uri).ok
    check_answers(str(uri))


def check_hints(loader: Loader) -> None:
    """`_last_checkpoint` names a checkpoint that is not there: only this hint goes, and nothing is built."""
    before, names = tables_of(loader.uri), ("runs/x", "marks/n", "ledger", "steps")
    for name in names:
        (Path(loader.uri) / name / "_delta_log" / "_last_checkpoint").write_text('{"version": 99, "size": 9}')
    with pytest.raises(DamagedWarehouse, match=r"Run `tidemark repair`, which makes it again"):
        query.open(loader.uri)
    assert warehouse.repair(None, loader.uri, dry_run=True).outcome == "planned"
    check_repaired(loader.uri, warehouse.repair(None, loader.uri))
    assert tables_of(loader.uri) == before


def test_a_hint_to_a_checkpoint_that_is_gone_costs_no_entry(loader: Loader) -> None:
    check_hints(loader)


def leave_only_a_checkpoint(table: Path) -> None:
    DeltaTable(table).create_checkpoint()
    for entry in (table / "_delta_log").glob("*.json"):
        entry.unlink()


def stream_and_load(loader: Loader) -> None:
    stream.append(None, loader.uri, rows_of(77), source="other", batch=0)
    loader.load_live()


@pytest.mark.parametrize("table", ["runs/x", "ledger", "events"])
def test_a_log_of_which_only_a_checkpoint_is_left_takes_commits_again(
    loader: Loader, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    leave_only_a_checkpoint(Path(loader.uri) / table)
    with monkeypatch.context() as broken:
        broken.setattr(import_module("tidemark.warehouse.repair"), "bare_checkpoint", lambda *_: None)
        assert warehouse.repair(None, loader.uri).outcome == "sound"
    with pytest.raises(CommitFailed, match=f"{table}.*not the commit.*nothing was changed.*tidemark repair"):
        stream_and_load(loader)
    assert warehouse.repair(None, loader.uri, dry_run=True).outcome == "planned"
    report = warehouse.repair(None, loader.uri)
    assert (report.outcome, report.actions[0].split(":")[0]) == ("repaired", table)
    stream_and_load(loader)
    assert warehouse.verify(loader.uri).ok


def check_unseen(loader: Loader) -> None:
    """An entry of a log is damaged, and its file has the size and the time that it had."""
    assert str(warehouse.repair(None, loader.uri, dry_run=True)) == "sound"
    newest = log_of(Path(loader.uri), "steps")[-1]
    before = newest.stat()
    newest.write_bytes(b"x" * before.st_size)
    os.utime(newest, ns=(before.st_atime_ns, before.st_mtime_ns))
    check_repaired(loader.uri, warehouse.repair(None, loader.uri))


def test_a_repair_reads_each_log(loader: Loader) -> None:
    check_unseen(loader)


def test_a_repair_of_what_the_process_has_read_is_caught(
    loader: Loader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idle_tables, "forget", lambda _: None)
    with pytest.raises((AssertionError, DamagedWarehouse)):
        check_unseen(loader)


def test_no_question_is_answered_between_the_loss_of_a_plan_and_its_new_one(
    loader: Loader, monkeypatch: pytest.MonkeyPatch
) -> None:
    restore("steps", 3)(Path(loader.uri))
    with monkeypatch.context() as patch:
        patch.setattr(plans, "write_plan", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            warehouse.repair(None, loader.uri)
    for name, asked in (("quantile", (0.5, "x")), ("top", (3,)), ("frequency", ("k1",))):
        with pytest.raises(DamagedWarehouse, match="Repair again"):
            getattr(query.open(loader.uri), name)(*asked)
    check_repaired(loader.uri, warehouse.repair(None, loader.uri))


def test_what_events_lacks_is_told_and_the_rest_is_made_again(
    loader: Loader, capsys: pytest.CaptureFixture[str]
) -> None:
    uri = Path(loader.uri)
    lost = next(uri / "events" / path for path, rows in tables_of(uri)["events"][1].items() if rows == 120)
    whole = lost.read_bytes()
    lost.unlink()
    remove_folder("runs/x")(uri)
    spoil("marks/n", cut, -1)(uri)
    remove_folder("ledger")(uri)
    assert cli.main(["repair", "-w", loader.uri, "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["outcome"] == "damaged"
    assert any(lost.name in line for line in told["only_a_copy"])
    assert any(line.startswith("ledger") for line in told["actions"])
    lost.write_bytes(whole)
    assert cli.main(["repair", "-w", loader.uri]) == 0
    assert "repaired" in capsys.readouterr().out
    assert warehouse.verify(loader.uri).ok
    check_answers(loader.uri)
    assert cli.main(["repair", "-w", loader.uri, "--dry-run"]) == 0
    assert "nothing is damaged" in capsys.readouterr().out


def flip_column(name: str) -> Callable[[Path], None]:
    """Changes a byte of the last page of a column; the file's length stays."""

    def change(path: Path) -> None:
        group = pq.read_metadata(path).row_group(0)
        chunks = [group.column(i) for i in range(group.num_columns)]
        (chunk,) = (one for one in chunks if one.path_in_schema == name)
        data = bytearray(path.read_bytes())
        data[chunk.data_page_offset + chunk.total_compressed_size - 9] ^= 4
        path.write_bytes(data)

    return change


EVENTS_HARM: dict[str, tuple[Harm, str]] = {
    "the log lost a live batch": (remove_newest("events"), "batch 4 of 'web' lost 40 of its 40 rows"),
    "restored": (restore("events", 2), "batch 3 of 'web' lost 40 of its 40 rows; batch 4 of 'web' lost"),
    "older than all steps": (remove_newest("events", 7), "load:night-2"),
    **{
        f"a byte of {name}": (spoil("events", flip_column(name)), "Only a copy has its rows")
        for name in ("t", "x", "_batch")
    },
}


@pytest.mark.parametrize("harm", some(EVENTS_HARM, 4))
def test_what_is_wrong_with_events_is_told(plain: Loader, harm: str) -> None:
    """By verify, by a dry run and by a repair, which makes no answer of what is left."""
    change, words = EVENTS_HARM[harm]
    change(Path(plain.uri))
    assert not warehouse.verify(plain.uri).ok
    for dry_run in (True, False):
        report = warehouse.repair(None, plain.uri, dry_run=dry_run)
        assert report.outcome == "damaged"
        assert any(words in line for line in report.only_a_copy), report


def test_a_warehouse_whose_events_cannot_be_opened_is_left_alone(plain: Loader) -> None:
    tear("events", half)(Path(plain.uri))
    with pytest.raises(DamagedWarehouse) as told:
        warehouse.repair(None, plain.uri, dry_run=True)
    assert str(told.value).count(" from a copy") == 1
    before = {path: path.stat().st_mtime_ns for path in Path(plain.uri).rglob("*")}
    with pytest.raises(DamagedWarehouse, match="Nothing was changed"):
        warehouse.repair(None, plain.uri)
    assert {path: path.stat().st_mtime_ns for path in Path(plain.uri).rglob("*")} == before


def test_spark_repairs_as_this_process_does(spark: SparkSession, loader: Loader) -> None:
    for harm in HARM["files gone"]:
        harm(Path(loader.uri))
    check_repaired(loader.uri, warehouse.repair(spark, loader.uri))


# Variants that are broken on purpose: the properties above fail on each.


def test_a_repair_that_looks_at_no_file_is_caught(loader: Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "_fault", lambda *_: None)
    with pytest.raises((AssertionError, DamagedWarehouse)):
        test_what_is_damaged_is_made_again(loader, "runs put back")


@pytest.mark.parametrize(
    ("harm", "broken"),
    [
        ("a byte of t", (file_checks, "content_fault", lambda *_: None)),
        ("restored", (batch_counts, "is_complete", lambda *_: True)),
    ],
)
def test_a_repair_that_does_not_look_at_events_is_caught(
    plain: Loader, monkeypatch: pytest.MonkeyPatch, harm: str, broken: tuple[Any, str, Any]
) -> None:
    monkeypatch.setattr(*broken)
    with pytest.raises(AssertionError):
        test_what_is_wrong_with_events_is_told(plain, harm)


def test_a_repair_that_keeps_a_wrong_hint_is_caught(loader: Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_repair, "LAST_CHECKPOINT", "nothing")
    with pytest.raises(AssertionError):
        check_hints(loader)


def test_a_repair_that_builds_no_gap_is_caught(loader: Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Layout, "of_loads", lambda *_: Layout(()))
    monkeypatch.setattr(run_builder, "sort_runs", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        test_what_is_damaged_is_made_again(loader, "runs gone")


def test_a_repair_that_summarises_nothing_is_caught(loader: Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemark.warehouse.repairs.ledger.summarise", lambda *_: [])
    assert missing_summaries.summarise is not None
    with pytest.raises(AssertionError):
        test_what_is_damaged_is_made_again(loader, "runs torn")


@pytest.mark.parametrize(
    "tables", [["ledger"], ["steps", "runs/n", "keys/k", "key_marks/k"], ["group_runs/k/n"]]
)
def test_an_open_reader_follows_a_table_that_was_made_again(loader: Loader, tables: list[str]) -> None:
    """Its log is another one, whose versions count from 0: what comes later is seen, too."""
    wh, more = query.open(loader.uri), rows_of(77, 30)
    before = counts(wh)
    for table in tables:
        remove_folder(table)(Path(loader.uri))
    assert warehouse.repair(None, loader.uri).outcome == "repaired"
    assert counts(wh) == before
    loader.stream(more)
    assert counts(wh) == before + counts_of(more)
    loader.load_live()
    assert counts(wh) == before + counts_of(more)


def test_a_reader_that_does_not_look_at_its_newest_entry_is_caught(
    loader: Loader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broken variant: it stays with the log of before."""
    monkeypatch.setattr(NearTable, "_entry_of", lambda *_: None)
    with pytest.raises(AssertionError):
        test_an_open_reader_follows_a_table_that_was_made_again(loader, ["ledger"])


def counts(wh: query.Warehouse) -> Counter[str]:
    """The rows of each key, and of all as a measure has them."""
    by_group = {one.group["k"]: one.N for one in wh.quantile(0.5, "n", by="k", top=9) if one.group}
    found = Counter({one.value: one.count for one in wh.top(9, mode="exact")})
    assert by_group == found
    found["all"] = wh.quantile(0.5, "n", mode="exact").N
    return found


def counts_of(rows: pa.Table) -> Counter[str]:
    return Counter([*rows.column("k").to_pylist(), *["all"] * len(rows)])


ASKED: dict[str, Callable[[query.Warehouse], Any]] = {
    "runs/n": lambda wh: wh.quantile(0.5, "n"),
    "keys/k": lambda wh: wh.frequency("k1"),
    "group_runs/k/n": lambda wh: wh.quantile(0.5, "n", where={"k": "k1"}),
}
OTHER = r"has the format 2, this version reads 1\. Run `tidemark repair`"


def set_format(uri: str, tables: list[str]) -> None:
    """As another version would have made them."""
    for name in tables:
        DeltaTable(Path(uri, name)).alter.set_table_properties(
            {"tidemark.format": "2"}, raise_if_not_exists=False
        )


@pytest.mark.parametrize("tables", [["keys/k"], [*ASKED, "runs/x"]], ids=len)
def test_runs_of_another_format_are_refused_until_repair_makes_them_again(
    loader: Loader, tables: list[str]
) -> None:
    set_format(loader.uri, tables)
    for name in ASKED.keys() & tables:
        with pytest.raises(DamagedWarehouse, match=OTHER):
            ASKED[name](query.open(loader.uri))
    for use in (loader.load_live, loader.maintain):
        with pytest.raises(DamagedWarehouse, match=OTHER):
            use()
    check_repaired(loader.uri, warehouse.repair(None, loader.uri))


@pytest.mark.parametrize("table", ["runs/n", "keys/k", "marks/n"])
def test_a_log_of_another_table_is_refused_until_repair_makes_it_again(loader: Loader, table: str) -> None:
    log = Path(loader.uri, table, "_delta_log")
    shutil.rmtree(log)
    shutil.copytree(Path(loader.uri, "events/_delta_log"), log)
    if table in ASKED:
        with pytest.raises(
            DamagedWarehouse, match="its log is that of another table, partitioned by nothing"
        ):
            ASKED[table](query.open(loader.uri))
    check_repaired(loader.uri, warehouse.repair(None, loader.uri))


def test_a_folder_in_place_of_the_next_commit_is_none(loader: Loader) -> None:
    newest = log_of(Path(loader.uri), "events")[-1]
    newest.with_name(f"{int(newest.stem) + 1:020}.json").mkdir()
    check_answers(loader.uri)


def test_a_reader_that_takes_any_format_is_caught(loader: Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_tables, "other_format", lambda _: None)
    with pytest.raises(pytest.fail.Exception):
        test_runs_of_another_format_are_refused_until_repair_makes_them_again(loader, ["keys/k"])
    with pytest.raises(KeyError, match="run"):
        test_a_log_of_another_table_is_refused_until_repair_makes_it_again(loader, "runs/n")
