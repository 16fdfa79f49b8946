"""A copy is the warehouse of one moment, also beside writers and after a kill, or there is none."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.soak import some
from tests.warehouse.hereloader import Loader, rows_of
from tidemark import query, stream, warehouse
from tidemark.jobs.cli import main
from tidemark.warehouse import Contended, DamagedWarehouse, InputError, NotAWarehouse
from tidemark.warehouse.delta.log_files import commit_name
from tidemark.warehouse.delta.table_names import COPIED_FROM, EVENTS
from tidemark.warehouse.verification import pinned_tables

copies: Any = import_module("tidemark.warehouse.copy")


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Loader:
    """Merged runs, live rows, a checkpoint of every log, and entries that were cleaned."""
    loader = Loader.create(tmp_path_factory.mktemp("copied") / "w", groups=["k"])
    for _ in range(3):
        loader.round()
    loader.stream()
    for log in list(Path(loader.uri).rglob("_delta_log")):
        table = DeltaTable(log.parent)
        if table.version() > 2:
            table.create_checkpoint()
            (log / commit_name(0)).unlink()
    loader.load()
    return loader


def answers(uri: str | os.PathLike[str]) -> list[Any]:
    wh = query.open(uri)
    return [
        wh.quantile([0.1, 0.5, 0.99], "n", mode="exact"),
        wh.quantile(0.5, "n", between=("1970-01-02", None)),
        wh.quantile(0.5, "n", by="k"),
        repr(wh.quantile([0.3, 0.6], "x")),
        wh.top(3),
        wh.sql("SELECT count(*), sum(n) FROM events").fetchall(),
        [fact for fact in wh.info().items() if fact[0] not in {"warehouse", "memory"}],
    ]


def test_a_copy_answers_and_lives_on_as_its_source(filled: Loader, tmp_path: Path) -> None:
    said: list[str] = []
    report = warehouse.copy(filled.uri, tmp_path / "c", progress=said.append)
    assert report.verified is not None
    assert report.verified.ok
    assert (report.files, report.there) == (len(list_files(tmp_path / "c")), 0)
    assert said[-1] != said[0] == f"files: 0% of {report.bytes / 2**20:.1f} MB"
    assert answers(tmp_path / "c") == answers(filled.uri)
    assert query.open(tmp_path / "c").identity == query.open(filled.uri).identity
    assert not (tmp_path / "c" / COPIED_FROM).exists()
    kept = filled.copied(tmp_path / "kept")
    both = [kept, Loader(str(tmp_path / "c"), kept.streamed, kept.bulk, kept.seed)]
    for loader in both:
        assert not stream.append(None, loader.uri, rows_of(1), source="web", batch=0)
        loader.round()
        warehouse.alter(None, loader.uri, add_key=["n"])
        assert warehouse.verify(loader.uri).ok
    assert answers(both[0].uri)[:6] == answers(both[1].uri)[:6]


def list_files(root: Path) -> dict[str, int]:
    """Data files by path, and their sizes."""
    return {
        str(path.relative_to(root)): path.stat().st_size
        for path in root.rglob("*.parquet")
        if "_delta_log" not in path.parts
    }


class Stopped(BaseException):
    """As a kill between two steps."""


class Writes:
    """Counts what a copy writes, and stops it in the middle of one write."""

    def __init__(self, most: int | None = None) -> None:
        self.count, self.most = 0, most

    def __call__(self, file: Any, piece: bytes) -> None:
        if self.count == self.most:
            file.write(piece[: len(piece) // 2])
            raise Stopped
        self.count += 1
        file.write(piece)


def answers_or_none(place: Path) -> list[Any] | None:
    """None where a reader says that the copy was not finished."""
    try:
        return answers(place)
    except NotAWarehouse as error:
        if "not finished" not in str(error):
            raise
        return None


def check_stops(uri: str, folder: Path) -> None:
    """Stops at some writes, and at each of the last ones. A place is no warehouse, or has all answers.

    Then the copy is finished.
    """
    truth, all_writes = answers(uri), Writes()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(copies, "_write_piece", all_writes)
        files = warehouse.copy(uri, folder / "whole", check=False).files
    assert all_writes.count > files + 10  # the marker, and the logs
    last = all_writes.count - 3
    for count in (*some(range(last), 5), *range(last, all_writes.count)):
        place = folder / f"{count}"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(copies, "_write_piece", Writes(count))
            with pytest.raises(Stopped):
                warehouse.copy(uri, place, check=False)
        if (found := answers_or_none(place)) is not None:
            assert found == truth, count
        report = warehouse.copy(uri, place)
        assert report.verified is not None
        assert report.verified.ok
        assert report.there in range(max(0, min(count, files) - 16), files + 1), count
        assert answers(place) == truth


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Loader:
    """Do not change it."""
    loader = Loader.create(tmp_path_factory.mktemp("small") / "w")
    loader.load(rows_of(1, 20))
    loader.stream(rows_of(2, 20))
    return loader


def test_a_copy_that_was_ended_is_finished_by_the_same_call(small: Loader, tmp_path: Path) -> None:
    check_stops(small.uri, tmp_path / "at")


def test_logs_without_the_mark_are_caught(
    small: Loader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broken variant: the place loses its mark before it has all logs."""
    copy_logs = copies._copy_logs

    def without_mark(source: Any, target: Any, pinned: Any) -> None:
        target.filesystem().delete_file(COPIED_FROM)
        copy_logs(source, target, pinned)

    monkeypatch.setattr(copies, "_copy_logs", without_mark)
    monkeypatch.setattr(copies, "delete_file", lambda *_: None)
    with pytest.raises((DamagedWarehouse, InputError)):
        check_stops(small.uri, tmp_path / "at")


def copy_patiently(uri: Path, place: Path) -> warehouse.CopyReport:
    """The writer has a grace of 0, which a copy refuses to race with for ever."""
    while True:
        try:
            return warehouse.copy(uri, place)
        except Contended:
            continue


def test_a_copy_beside_writers_is_of_one_moment(tmp_path: Path) -> None:
    """The writer loads, streams, merges, and deletes files at once."""
    loader = Loader.create(tmp_path / "w")
    loader.round()
    ended, failed = threading.Event(), []

    def write() -> None:
        try:
            while not ended.is_set():
                loader.round()
        except Exception as error:  # noqa: BLE001  told by the test
            failed.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for number in some(range(4), 2):
            report = copy_patiently(tmp_path / "w", tmp_path / f"c{number}")
            assert report.verified is not None
            assert report.verified.ok, str(report.verified)
            wh = query.open(tmp_path / f"c{number}")
            answer = wh.quantile(0.5, "n", mode="exact")
            assert (answer.n + answer.m) % 60 == 0  # of whole batches
            assert wh.sql("SELECT count(*) FROM events").fetchall() == [(answer.n + answer.m,)]
    finally:
        ended.set()
        writer.join()
    assert not failed


def test_a_checkpoint_that_comes_while_its_log_is_copied_is_not_missed(
    filled: Loader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hint names it, and it is not among the files that were listed."""
    uri = str(shutil.copytree(filled.uri, tmp_path / "w"))
    listed = copies.entries_read

    def listed_before_a_checkpoint(*given: Any) -> Any:
        found = listed(*given)
        for log in Path(uri).rglob("_delta_log"):
            DeltaTable(str(log.parent)).create_checkpoint()
        return found

    monkeypatch.setattr(copies, "entries_read", listed_before_a_checkpoint)
    report = warehouse.copy(uri, tmp_path / "c")
    assert report.verified is not None
    assert report.verified.ok, str(report.verified)


def test_events_that_are_opened_before_the_others_are_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broken variant: a load comes between."""
    pin = pinned_tables.pin_tables

    def pin_too_early(*given: Any) -> pinned_tables.PinnedTables:
        first = pin(*given)
        loader.load()
        later = pin(*given)
        opened: Mapping[str, Any] = {**later.opened, EVENTS: first.opened[EVENTS]}
        return pinned_tables.PinnedTables(later.snapshot, opened)

    loader = Loader.create(tmp_path / "w")
    loader.load()
    monkeypatch.setattr(copies, "pin_tables", pin_too_early)
    monkeypatch.setattr(copies, "_LOOKS", 0)
    report = warehouse.copy(tmp_path / "w", tmp_path / "c")
    assert report.verified is not None
    assert not report.verified.ok


def contents(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_what_cannot_be_copied_is_refused_and_changes_nothing(filled: Loader, tmp_path: Path) -> None:
    source = Path(filled.uri)
    full, other, part = tmp_path / "full", tmp_path / "other", tmp_path / "part"
    full.mkdir()
    (full / "notes").write_text("mine")
    Loader.create(other)
    part.mkdir()
    (part / COPIED_FROM).write_text("another")
    (tmp_path / "file").write_text("")
    before = contents(tmp_path), contents(source)
    for to, error, words in (
        (full, InputError, "is not empty"),
        (other, InputError, "has a warehouse already"),
        (part, InputError, "a copy of another warehouse"),
        (source, InputError, "into itself"),
        (source / "c", InputError, "into itself"),
        (source.parent, InputError, "into itself"),
        (tmp_path / "file", NotAWarehouse, "is a file"),
    ):
        with pytest.raises(error, match=words):
            warehouse.copy(source, to)
        assert (contents(tmp_path), contents(source)) == before
    with pytest.raises(NotAWarehouse):
        warehouse.copy(full, tmp_path / "c")
    assert contents(tmp_path) == before[0]


@pytest.fixture
def damaged(filled: Loader, tmp_path: Path) -> Path:
    return Path(filled.copied(tmp_path / "damaged").uri)


def test_damage_is_told(damaged: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = next(damaged.glob("runs/n/**/*.parquet"))
    whole = run.read_bytes()
    run.write_bytes(whole[:100] + bytes([whole[100] ^ 1]) + whole[101:])
    assert main.main(["copy", str(damaged), str(tmp_path / "flipped")]) == 1
    assert "not sound" in capsys.readouterr().out
    run.unlink()
    with pytest.raises(DamagedWarehouse, match=r"is missing.*tidemark repair"):
        warehouse.copy(damaged, tmp_path / "missing")
    assert warehouse.repair(None, damaged).outcome == "repaired"
    report = warehouse.copy(damaged, tmp_path / "missing")
    assert report.there > 0
    assert report.verified is not None
    assert report.verified.ok


def test_the_command_copies_and_tells(
    small: Loader, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main.main(["copy", small.uri, str(tmp_path / "a")]) == 0
    assert "; verified" in capsys.readouterr().out
    assert main.main(["copy", "-w", small.uri, str(tmp_path / "b"), "--json", "--no-verify"]) == 0
    said = capsys.readouterr().out
    assert '"ok": null' in said
    assert '"there": 0' in said
    monkeypatch.setenv("TIDEMARK_WAREHOUSE", small.uri)
    assert main.main(["copy", str(tmp_path / "c")]) == 0
    assert contents(tmp_path / "a") == contents(tmp_path / "b") == contents(tmp_path / "c")
    assert main.main(["copy", str(tmp_path / "c")]) == 2
    assert "has a warehouse already" in capsys.readouterr().err
    for words in (["copy", "-w", small.uri, "x", "y"], ["copy", "x", "y", "z"], ["copy"]):
        with pytest.raises(SystemExit) as stopped:
            main.main(words)
        assert stopped.value.code == 2
