"""What the system refuses, a full disk or a missing permission, is told in one line with the remedy."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import tempfile
from collections.abc import Callable, Iterator
from errno import EACCES, EDQUOT, EFBIG, EMFILE, ENOMEM, ENOSPC, EPERM, EROFS
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.compatibility.kept import unpacked
from tests.warehouse.disk import files_of
from tests.warehouse.limits import filled, full_disk, no_bytes, no_rights
from tidemark import query, stream, warehouse
from tidemark.jobs.cli import main
from tidemark.warehouse import DamagedWarehouse, InputError, SystemRefused, os_errors
from tidemark.warehouse.errors import error_in_traceback
from tidemark.warehouse.execution.executors import SparkExecutor

SCHEMA = "n int, k bigint"


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Do not change it."""
    return unpacked(tmp_path_factory.mktemp("kept"), "plain")


@pytest.fixture
def here() -> Iterator[Path]:
    """A folder that anybody may pass through, which pytest's own are not."""
    with tempfile.TemporaryDirectory(prefix="tidemark-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def answers(uri: Path) -> list[Any]:
    return [a.value for a in query.open(uri).quantile([0.1, 0.5, 0.9])]


def refused(use: Callable[[], Any], *words: str) -> str:
    with pytest.raises(SystemRefused) as found:
        use()
    said = str(found.value)
    assert all(word in said for word in words), said
    assert "\n" not in said
    assert "\x1b" not in said
    assert len(said) < 900
    return said


@pytest.mark.slow
def test_a_warehouse_that_finds_no_room_is_told_so_and_made_once_there_is_some(here: Path) -> None:
    with no_bytes():
        refused(lambda: warehouse.create(None, here / "w", "x"), "create", "File too large", "ulimit -f")
    assert warehouse.create(None, here / "w", "x").eps == 0.001
    assert warehouse.verify(here / "w").ok


@pytest.mark.slow
@pytest.mark.parametrize("why", ["no room", "no rights"])
def test_maintenance_that_is_refused_says_so_and_loses_nothing(kept: Path, here: Path, why: str) -> None:
    uri = here / "w"
    shutil.copytree(kept.parent / "timed", uri)
    known = answers(uri)
    barred, word, remedy = (
        (no_bytes(), "File too large", "ulimit -f")
        if why == "no room"
        else (no_rights(uri), "Permission denied", "owner")
    )
    with barred:
        refused(
            lambda: warehouse.maintain(None, uri),
            "maintain",
            word,
            remedy,
            "Nothing that was committed is lost",
        )
        assert warehouse.verify(uri).ok
    assert answers(uri) == known
    warehouse.maintain(None, uri)
    assert warehouse.verify(uri).ok


def test_a_reader_without_permission_is_told_so_and_not_of_damage(kept: Path, here: Path) -> None:
    uri = here / "w"
    shutil.copytree(kept, uri)
    for path in (path for path in uri.rglob("*.parquet") if "_delta_log" not in path.parts):
        path.chmod(0)
    with no_rights(uri):
        refused(lambda: query.open(uri).quantile(0.5, mode="exact"), "Permission denied", "owner", ".parquet")
    for path in (path for path in uri.rglob("_delta_log/*") if path.is_file()):
        path.chmod(0)
    with no_rights(uri):
        refused(lambda: query.open(uri), "Permission denied", "owner", "_delta_log")


@pytest.mark.parametrize("use", ["load", "append"])
def test_what_a_full_disk_stops_is_told_by_driver_and_tasks_and_done_once_there_is_room(
    spark: SparkSession, here: Path, use: str
) -> None:
    rows = spark.createDataFrame([(i % 7, i) for i in range(300)], SCHEMA)
    with full_disk(here / "disk") as disk:
        uri = disk / "w"
        warehouse.create(spark, uri, "n", key="k", eps=0.1, schema=rows)

        def again() -> None:
            if use == "load":
                warehouse.load(spark, uri, rows, "one")
            else:
                stream.append(spark, uri, rows, source="s", batch=0)

        with filled(disk) as number:
            refused(again, use, os.strerror(number), "run it again")
            assert query.open(uri).info()["live_rows"] == 0
        again()
        again()
        answer = query.open(uri).quantile(0.5, mode="exact")
        assert (answer.N, answer.value) == (300, 3)
        assert warehouse.verify(uri).ok


def test_what_stops_a_task_of_spark_s_is_told_as_if_it_had_stopped_the_driver(spark: SparkSession) -> None:
    class Stopped:
        def run(self) -> None:
            with tempfile.TemporaryFile(buffering=0) as file, no_bytes():
                file.write(b"x")

    def work() -> None:
        with os_errors.report_os_errors("load"):
            SparkExecutor(spark).run([Stopped()])

    refused(work, "load was stopped", "Errno 27", "File too large", "ulimit -f")


@pytest.mark.slow
def test_a_command_tells_it_in_one_line_and_ends_with_1(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is told before a warehouse is made, that its folder may not be written, stays bad input: 2."""
    with no_rights(here):
        assert main.main(["create", "-w", str(here / "w"), "--measure", "x"]) == 2
    assert "no permission to write" in capsys.readouterr().err
    with no_bytes(), pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stderr", (told := Told()))
        assert main.main(["create", "-w", str(here / "w"), "--measure", "x"]) == 1
    assert told.text.count("\n") == 1
    assert "File too large" in told.text


class Told:
    """A stream that keeps what is written: pytest's own is a file, which takes no bytes here."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> int:
        self.text += text
        return len(text)

    def flush(self) -> None:
        pass


@pytest.mark.parametrize("number", [ENOSPC, EDQUOT, EFBIG, EACCES, EPERM, EROFS, EMFILE, ENOMEM])
@pytest.mark.parametrize(
    "form",
    [
        lambda number: OSError(number, os.strerror(number), "/w/steps/a.parquet"),
        lambda number: OSError(
            f"Generic error\n  \x1b[31m↳\x1b[0m Unable\n {os.strerror(number)} (os error {number})\n"
        ),
        lambda number: RuntimeError(f'Os {{ code: {number}, kind: X, message: "{os.strerror(number)}" }}'),
        lambda number: RuntimeError(
            f"Traceback:\n  File 'a.py', line 3\nOSError: [Errno {number}] a [errno {number}] b\n\tat java"
        ),
        lambda number: RuntimeError(f"Job aborted\njava.io.IOException: {os.strerror(number)}\n\tat java.io"),
    ],
)
def test_a_refusal_is_known_in_every_form(number: int, form: Callable[[int], Exception]) -> None:
    told = os_errors.as_system_refused("load", form(number))
    assert told is not None
    assert os.strerror(number) in str(told)
    assert "\n" not in str(told)
    assert "\x1b" not in str(told)
    assert type(error_in_traceback(f"tidemark.warehouse.errors.SystemRefused: {told}\n")) is SystemRefused


@pytest.mark.parametrize(
    "error",
    [
        ValueError("exit code: 13"),
        FileNotFoundError(2, "No such file or directory"),
        OSError("Generic error (os error 2)"),
        KeyboardInterrupt(),
        RuntimeError("13"),
    ],
)
def test_other_errors_stay_what_they_are(error: BaseException) -> None:
    assert os_errors.as_system_refused("load", error) is None
    with pytest.raises(type(error)), os_errors.report_os_errors("load"):
        raise error


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (FileNotFoundError(2, "No such file or directory"), DamagedWarehouse, "the file a/b is missing. Run"),
        (ValueError("7 rows\n  and 8"), DamagedWarehouse, r"a/b cannot be read \(7 rows and 8\)\. Run"),
        (KeyError("tick"), DamagedWarehouse, r"a/b cannot be read \('tick'\)\. Run"),
        (pa.ArrowNotImplementedError("codec"), DamagedWarehouse, r"a/b cannot be read \(codec\)\. Run"),
        (PermissionError(EACCES, os.strerror(EACCES)), SystemRefused, "reading a/b was stopped.*owner"),
        (InputError("no key"), InputError, "^no key$"),
    ],
)
def test_what_fails_while_a_file_is_read_is_told_in_one_form(
    error: Exception, kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=words) as found, os_errors.report_unreadable_file("a/b"):
        raise error
    assert (
        type(error_in_traceback(f"tidemark.warehouse.errors.{kind.__name__}: {found.value}\nat java")) is kind
    )
    if kind is DamagedWarehouse:
        assert str(found.value).endswith(
            "tidemark verify` to see what else is damaged, and `tidemark repair`: it makes it again from "
            "events, or names it among the files that only a copy has."
        )
        assert found.value.__cause__ is error


def test_too_many_open_files_are_told(kept: Path) -> None:
    query.open(kept)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    held: list[int] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
    try:
        with contextlib.suppress(OSError):
            while True:
                held.append(os.open("/dev/null", os.O_RDONLY))
        with pytest.raises(SystemRefused) as found:
            query.open(kept)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for number in held:
            os.close(number)
    assert "Too many open files" in str(found.value)
    assert "ulimit -n" in str(found.value)


@pytest.mark.slow
def test_a_refusal_that_nobody_tells_is_caught(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os_errors, "as_system_refused", lambda *_: None)
    before = files_of(here)
    with no_bytes(), pytest.raises(OSError, match="os error 27"):
        refused(lambda: warehouse.create(None, here / "w", "x"))
    assert before == {}
