"""Nothing of a warehouse leaves its folder: neither by a path in a log nor by a symbolic link."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyarrow import fs

from tests.compatibility.kept import unpacked
from tests.warehouse.disk import files_of, replace_rows, rewrite_file
from tidemark import query, warehouse
from tidemark.warehouse import DamagedWarehouse
from tidemark.warehouse.delta import containment, data_files, tables
from tidemark.warehouse.delta.data_files import append_actions
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.vacuum import VacuumResult

TABLES = ["events", "steps", "ledger", "runs/n", "marks/n", "keys/k", "key_marks/k"]
UNREAD = {"marks/n", "key_marks/k"}  # readers find marks by name, not by their table


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Do not change it."""
    return unpacked(tmp_path_factory.mktemp("kept"), "plain")


@pytest.fixture
def here(kept: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    shutil.copytree(kept, tmp_path / "w")
    return tmp_path / "w"


@pytest.fixture
def wide(kept: Path, tmp_path: Path) -> Path:
    """A copy of the other warehouse, with rejected records and many values, that a test may change."""
    shutil.copytree(kept.parent / "timed", tmp_path / "w")
    return tmp_path / "w"


def answers(uri: Path) -> list[Any]:
    """What needs every table that readers read, and all keys."""
    wh = query.open(uri)
    found: list[Any] = [wh.info()["rejected"], wh.self_join().count]
    return found + [a.value for a in wh.quantile([i / 20 for i in range(21)], mode="exact")]


def named(uri: Path, name: str) -> str:
    """A file that the table names, with rows where there are such."""
    found = data_files.list_files(tables.open_table(Store.from_uri(uri), name))
    return max(found, key=lambda file: (str(file.stats.get("min._source", "")), file.rows)).path


def rename(uri: Path, name: str, old: str, new: str) -> None:
    """A commit by which the table's log names a file otherwise."""
    table = tables.open_table(Store.from_uri(uri), name)
    (file,) = [file for file in data_files.list_files(table) if file.path == old]
    removed = {"path": old, "dataChange": True, "deletionTimestamp": 1, "partitionValues": file.partition}
    least = {k.removeprefix("min."): v for k, v in file.stats.items() if k.startswith("min._source")}
    stats = {"numRecords": file.rows, **({"minValues": least, "maxValues": least} if least else {})}
    added = {
        "path": new,
        "size": file.size,
        "partitionValues": dict(file.partition),
        "modificationTime": file.modified,
        "dataChange": True,
        "stats": json.dumps(stats),
    }
    log = uri / name / "_delta_log" / f"{table.version() + 1:020d}.json"
    log.write_text("\n".join(json.dumps(one) for one in ({"remove": removed}, {"add": added})))


def refused(uri: Path, use: Callable[[Path], Any], *words: str) -> str:
    """The error of the use, which names the words; below the warehouse and beside it nothing has changed."""
    before = files_of(uri.parent)
    with pytest.raises(DamagedWarehouse) as found:
        use(uri)
    said = str(found.value)
    assert all(word in said for word in words), said
    assert files_of(uri.parent) == before
    return said


def failures(uri: Path) -> str:
    """What verify finds, or says where it cannot begin."""
    try:
        return "\n".join(check.detail for check in warehouse.verify(uri).checks if not check.ok)
    except DamagedWarehouse as error:
        return str(error)


CLIMBING = [
    *("../it.parquet", "../../outside/it.parquet", "run=a/../../it.parquet", "a/.."),
    *("%2e%2e/it.parquet", "%2E%2E%2Fit.parquet", "%252e%252e%252fit.parquet", "a%2f..%2f..%2fit.parquet"),
    *(
        "/outside/it.parquet",
        "//outside/it.parquet",
        "file:///outside/it.parquet",
        "file:/outside/it.parquet",
    ),
    *("s3://other-bucket/it.parquet", "abfss://c@a.net/it.parquet", "C:\\it.parquet", "~/it.parquet"),
    *("..\\it.parquet", "..%5cit.parquet", "a/./it.parquet", "./it.parquet", "a//it.parquet", "a/", ""),
    *("_delta_log/00000000000000000000.json", "_chunks/a/0.parquet", ".hidden", "a/.hidden", "a/_hidden"),
    *(
        "it.parquet\n",
        "it.parquet\n../it.parquet",
        "it%00.parquet",
        "it.parquet\0",
        "\u2024\u2024/it.parquet",
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize("table", TABLES)
def test_a_log_that_names_a_file_outside_is_refused_with_table_and_path(here: Path, table: str) -> None:
    path = "../" * (table.count("/") + 2) + "outside/it.parquet"
    old = named(here, table)
    (here.parent / "outside").mkdir()
    shutil.copy(here / table / old, here.parent / "outside/it.parquet")
    rename(here, table, old, path)
    if table not in UNREAD:
        refused(here, answers, table, path, "restore")
    refused(here, lambda uri: warehouse.maintain(None, uri, grace="0 s"), table, path, "restore")
    assert path in failures(here)


def test_every_form_of_a_path_that_is_not_plainly_below_its_table_is_refused(tmp_path: Path) -> None:
    """As delta-rs gives it back: it takes the escapes of a log for what they are when it opens a file."""
    store = Store.from_uri(tmp_path)
    tables.create(store, "t", pa.schema([("a", pa.int64())]))
    tables.commit(tables.open_table(store, "t"), append_actions(store, "t", pa.table({"a": [1]}), []))
    whole = (tmp_path / "t/_delta_log/00000000000000000001.json").read_text()
    path = named(tmp_path, "t")
    for form in CLIMBING:
        changed = whole.replace(json.dumps(path), json.dumps(form))
        (tmp_path / "t/_delta_log/00000000000000000001.json").write_text(changed)
        with pytest.raises(DamagedWarehouse) as found:
            data_files.list_files(tables.open_table(store, "t"))
        assert all(word in str(found.value) for word in ("/t", repr(form), "restore")), form


def test_every_path_that_was_ever_written_is_plain(kept: Path) -> None:
    """And those that Spark writes."""
    written = ["part-00000-0c5e2c4d-7f3c-4d5e-9a42-2d5ab3a42c27.c000.zstd.parquet", "run=L01-0-2/a_b.parquet"]
    containment.check_paths("w", pa.chunked_array([written]))
    containment.check_paths("w", pa.chunked_array([pa.array([], pa.string())]))
    assert answers(kept)


def renamed(rows: pa.Table) -> pa.Table:
    """Marks whose files lie outside."""
    at = rows.schema.names.index("file")
    names = pc.binary_join_element_wise("../../../outside/", rows.column("file"), "")
    return rows.set_column(at, rows.schema.field(at), names)


def test_marks_that_name_a_file_outside_are_refused(here: Path) -> None:
    """The marks' names have to be those of the table."""
    for table in ("marks/n", "key_marks/k"):
        for file in data_files.list_files(tables.open_table(Store.from_uri(here), table)):
            rewrite_file(here, table, file.path, renamed)
    refused(here, lambda uri: query.open(uri).quantile(0.5), "../../../outside/", "Run `tidemark repair`")
    refused(here, lambda uri: query.open(uri).top(3), "../../../outside/", "Run `tidemark repair`")
    assert "../../../outside/" in failures(here)


def swap(uri: Path, path: Path) -> None:
    """Puts a file or folder outside the warehouse, and a link in its place."""
    outside = uri.parent / "outside" / path.name
    outside.parent.mkdir()
    shutil.move(path, outside)
    path.symlink_to(outside)


LINKED: dict[str, tuple[str, Callable[[Path], Path]]] = {
    "a table": ("events", lambda uri: uri / "events"),
    "a table's parent": ("runs", lambda uri: uri / "runs"),
    "a measure's table": ("runs/n", lambda uri: uri / "runs/n"),
    "the ledger": ("ledger", lambda uri: uri / "ledger"),
    "a log": ("steps/_delta_log", lambda uri: uri / "steps/_delta_log"),
    "a commit": ("ledger/_delta_log", lambda uri: uri / "ledger/_delta_log/00000000000000000001.json"),
    "a file of keys": ("keys/k/run=", lambda uri: uri / "keys/k" / named(uri, "keys/k")),
    "marks": ("marks/n/run=", lambda uri: uri / "marks/n" / named(uri, "marks/n")),
    "a plan": ("steps/", lambda uri: uri / "steps" / named(uri, "steps")),
    "a ledger's file": ("ledger/", lambda uri: uri / "ledger" / named(uri, "ledger")),
    "rows": ("events/", lambda uri: uri / "events" / named(uri, "events")),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", LINKED)
def test_a_link_in_a_table_is_refused_by_all_and_what_it_leads_to_stays(here: Path, what: str) -> None:
    word, find = LINKED[what]
    swap(here, find(here))
    refused(here, answers, word, "symbolic link", "in its place")
    refused(here, lambda uri: warehouse.maintain(None, uri, grace="0 s"), word, "symbolic link")
    said = failures(here)
    assert "symbolic link" in said
    assert word in said


@pytest.mark.parametrize("part", ["folder", "file"])
def test_a_run_behind_a_link_is_not_read(wide: Path, part: str) -> None:
    file = wide / "runs/x" / named(wide, "runs/x")
    swap(wide, file.parent if part == "folder" else file)
    refused(wide, answers, "runs/x/run=", "symbolic link", "in its place")
    refused(wide, lambda uri: warehouse.maintain(None, uri, grace="0 s"), "runs/x/run=", "symbolic link")


def test_rejected_records_outside_are_not_read(wide: Path) -> None:
    rename(wide, "rejected", named(wide, "rejected"), "../../it.parquet")
    refused(wide, lambda uri: query.open(uri).info(), "rejected", "../../it.parquet", "restore")
    assert "../../it.parquet" in failures(wide)


@pytest.mark.parametrize("name", ["events", "steps", "ledger", "rejected", "runs", "marks", "keys"])
def test_no_warehouse_is_made_through_a_link(tmp_path: Path, name: str) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / name).symlink_to(tmp_path / "outside")
    refused(tmp_path / "w", lambda uri: warehouse.create(None, uri, "x", schema=None), name, "symbolic link")


def plant(uri: Path) -> tuple[Path, list[Path], list[Path]]:
    """Old files outside, links to them and to anywhere in the tables, and old files of nobody's."""
    outside = uri.parent / "outside"
    (outside / "deep").mkdir(parents=True)
    for path in (outside / "a.parquet", outside / "deep/b.parquet", outside / "00000.parquet"):
        path.write_bytes(b"PAR1")
    links = [uri / "runs/n/linked", uri / "runs/n/run=L00-0000000003-0000000003/linked.parquet"]
    links += [uri / "runs/n/_chunks/linked", uri / "events/linked", uri / "keys/k/loop", uri / "ledger/gone"]
    (uri / "runs/n/_chunks").mkdir(exist_ok=True)
    targets = [outside, outside / "a.parquet", outside, outside, uri, uri / "nowhere"]
    for link, target in zip(links, targets, strict=True):
        link.parent.mkdir(exist_ok=True)
        link.symlink_to(target)
    orphans = [
        uri / "runs/n/orphan.parquet",
        uri / "keys/k/orphan.parquet",
        uri / "runs/n/_chunks/a/0.parquet",
    ]
    for path in orphans:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"PAR1")
    for path in [*orphans, *(path for path in outside.rglob("*") if path.is_file())]:
        os.utime(path, (1, 1))
    return outside, links, orphans


def assert_nothing_outside_goes(uri: Path) -> None:
    before = answers(uri)
    outside, links, orphans = plant(uri)
    there = files_of(outside)
    for _ in range(2):
        report = warehouse.maintain(None, uri, grace="0 s")
        assert files_of(outside) == there
        assert sorted(report.links) == sorted(str(link.relative_to(uri)) for link in links)
        assert all(link.is_symlink() for link in links)
        assert not any(path.exists() for path in orphans)
    assert answers(uri) == before
    assert failures(uri) == ""


def test_maintenance_leaves_links_as_they_are_tells_them_and_sweeps_what_lies_beside(here: Path) -> None:
    assert_nothing_outside_goes(here)


def test_a_sweep_that_follows_links_is_caught(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """delta-rs lists the folder through links, and deletes what it finds behind them."""

    def followed(store: Store, name: str, *_: Any, **__: Any) -> VacuumResult:
        table = tables.open_table(store, name)
        gone = table.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
        return VacuumResult(len(gone), [])

    monkeypatch.setattr(sys.modules["tidemark.warehouse.maintain"], "vacuum_table", followed)
    outside, *_ = plant(here)
    (here / "keys/k/loop").unlink()  # there it fails
    there = files_of(outside)
    warehouse.maintain(None, here, grace="0 s")
    assert files_of(outside) != there


def test_a_reader_that_takes_any_path_is_caught(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_files, "check_paths", lambda *_: None)
    before, old = answers(here), named(here, "steps")
    shutil.copy(here / "steps" / old, here.parent / "it.parquet")
    rename(here, "steps", old, "../../it.parquet")
    assert answers(here) == before
    with pytest.raises(pytest.fail.Exception):
        refused(here, answers)


def test_a_reader_that_follows_links_is_caught(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containment, "check_links", lambda *_: None)
    monkeypatch.setattr(containment, "check_log", lambda *_: [])
    swap(here, here / "events")
    with pytest.raises(pytest.fail.Exception):
        refused(here, answers)


@pytest.mark.parametrize("deep", [False, True])
def test_a_warehouse_that_is_reached_through_a_link_is_one_like_any_other(here: Path, deep: bool) -> None:
    at = here.parent / "data"
    at.symlink_to(here.parent if deep else here)
    linked = at / "w" if deep else at
    assert answers(linked) == answers(here)
    replace_rows(
        linked,
        "steps",
        data_files.read(Store.from_uri(here), "steps", tables.open_table(Store.from_uri(here), "steps")),
    )
    warehouse.maintain(None, linked, grace="0 s")
    assert warehouse.verify(linked).ok
    made = at / "another"
    warehouse.create(None, made, "x")
    assert warehouse.verify(made).ok


def test_the_file_system_of_a_warehouse_reads_writes_and_deletes_through_no_link(tmp_path: Path) -> None:
    (tmp_path / "w/a").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/x").write_bytes(b"kept")
    (tmp_path / "w/a/folder").symlink_to(tmp_path / "outside")
    (tmp_path / "w/a/file").symlink_to(tmp_path / "outside/x")
    system = Store.from_uri(tmp_path / "w").filesystem()
    for use in (
        *(system.open_input_file, system.open_input_stream, system.open_output_stream, system.delete_file),
        *(system.delete_dir, system.create_dir, system.get_file_info, system.open_append_stream),
    ):
        for path in ("a/folder", "a/folder/x", "a/file"):
            with pytest.raises(DamagedWarehouse, match=r"a/(folder|file) is a symbolic link"):
                use(path)
    listed = {info.path: info.type for info in system.get_file_info(fs.FileSelector("a", recursive=True))}
    assert listed == {"a/folder": fs.FileType.Unknown, "a/file": fs.FileType.Unknown}
    assert (tmp_path / "outside/x").read_bytes() == b"kept"
