"""What the machine lacks or forbids is told in one line with the remedy, and changes nothing.

As processes of their own, or as another user for the time of a call.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

import pytest

from tests.jobs.said import ROOT, environment, process, tidemark, to_a_reader_that_ends
from tests.warehouse.disk import files_of
from tidemark.jobs.cli.commands import COMMANDS
from tidemark.jobs.cli.completion import script
from tidemark.jobs.cli.main import parser

NOBODY = 65534


@pytest.fixture
def place(flights: Path) -> Iterator[Path]:
    """A folder that another user may enter, with a warehouse in it."""
    folder = Path(tempfile.mkdtemp(prefix="tidemark-test-", dir="/tmp"))
    folder.chmod(0o755)
    shutil.copytree(flights, folder / "w")
    yield folder
    shutil.rmtree(folder)


@contextmanager
def somebody_else() -> Iterator[None]:
    """Root may do anything, so as root the work inside is done as another user."""
    if os.getuid() != 0:
        yield
        return
    for name in ("rich.status", *(one.run.split(":")[0] for one in COMMANDS if one.run)):
        import_module(name)  # now: Python itself may lie where the other one may not read
    os.setresuid(NOBODY, NOBODY, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)


NEEDS_TO_WRITE = (
    "create -w {place}/new --measure x",
    "load -w {place}/w --input {place}/a.csv --batch a",
    "load -w {place}/w --from-stream",
    "stream -w {place}/w --source files --path {place}",
    "maintain -w {place}/w",
    "alter -w {place}/w --add-key delay",
)


@pytest.mark.parametrize("line", NEEDS_TO_WRITE)
def test_a_folder_that_may_not_be_written_is_told(
    line: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder in (place, place / "w"):
        folder.chmod(0o555)
    before = files_of(place)
    with somebody_else():
        said = tidemark(capsys, *line.format(place=place).split())
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("error: no permission to write into the folder ")
    assert said.err.count("\n") == 1
    assert files_of(place) == before


@pytest.mark.parametrize(
    "line", ["info", "quantile 0.5", "top", "watch --times 1", "verify", "load --from-stream"]
)
@pytest.mark.parametrize("locked", [".", "w"])
def test_a_folder_that_may_not_be_read_is_told(
    line: str, locked: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / locked).chmod(0)
    with somebody_else():
        said = tidemark(capsys, *line.split(), "-w", place / "w")
    (place / locked).chmod(0o755)
    assert (said.code, said.out) == (2, "")
    assert said.err == (
        f"error: no permission to read the folder {(place / locked).resolve()}. "
        "Ask its owner for it, or choose another path.\n"
    )


def test_a_table_that_may_not_be_read_ends_with_1_and_is_named(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "w" / "runs" / "delay").chmod(0)
    with somebody_else():
        said = tidemark(capsys, "quantile", 0.5, "-w", place / "w")
    assert (said.code, said.out, said.err.count("\n")) == (1, "", 1)
    assert "runs/delay" in said.err
    assert "\x1b" not in said.err


@pytest.mark.parametrize(
    "line",
    [
        "info",
        "quantile 0.5",
        "freq ATL",
        "create --measure x",
        "load --from-stream",
        "maintain",
        "verify",
        "alter --add-key delay",
    ],
)
def test_a_file_is_no_warehouse(line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "file"
    file.write_text("kept")
    for path in (file, file / "below"):
        said = tidemark(capsys, *line.split(), "-w", path)
        assert (said.code, said.out) == (2, "")
        assert said.err == f"error: {file} is a file. A warehouse is a folder: give another path.\n"
    assert file.read_text() == "kept"


NO_JAVA = {
    "there is no Java": {"PATH": "/nowhere"},
    "JAVA_HOME is /nowhere, where there is no bin/java": {"JAVA_HOME": "/nowhere"},
    "Spark's Java process did not start": {"JAVA_HOME": "{broken}"},
}


@pytest.mark.parametrize("words", NO_JAVA)
def test_a_missing_java_is_told_by_what_needs_it(words: str, place: Path) -> None:
    """Where no script of `make setup` looks for one. Questions are answered all the same."""
    java = place / "broken" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\nexit 3\n")
    java.chmod(0o755)
    (place / "conf").mkdir()
    changed = {name: text.format(broken=java.parents[1]) for name, text in NO_JAVA[words].items()}
    changed["SPARK_CONF_DIR"] = str(place / "conf")
    before = files_of(place)
    lines = [
        "load --input {p}/a.csv --batch a --engine spark",
        "create --measure x --schema x\tdouble",
        "maintain --engine spark",
    ]
    lines += ["alter --add-key distance --engine spark"]
    for line in lines if "PATH" in changed else lines[:1]:
        where = place / "new" if line.startswith("create") else place / "w"
        argv = [one.replace("\t", " ").format(p=place) for one in line.split(" ")]
        said = process(*argv, "-w", where, **{"JAVA_HOME": "", **changed})
        assert (said.code, said.out) == (1, ""), said
        told = said.err.splitlines()[-1]
        assert told.startswith(f"error: {words}"), said
        assert "needs Java 17 or 21: install one" in told
    assert files_of(place) == before
    if "PATH" in changed:
        assert process("quantile", 0.5, "-w", place / "w", **{"JAVA_HOME": "", **changed}).code == 0


@pytest.mark.parametrize("when", ["Java starts", "rows are written"])
def test_control_c_ends_a_load_with_130_says_what_holds_and_it_can_be_run_again(
    when: str, place: Path
) -> None:
    """Java, too, ends. Before the batch is planned nothing of it is seen."""
    line = [sys.executable, "-m", "tidemark.jobs.cli.main", "load", "-w", place / "w", "--batch", "again"]
    line += ["--engine", "spark"]
    line += ["--input", place / "in.csv"]
    header, row = "time,delay,distance,origin,destination", "2001-04-01T00:00:00Z,1,2,ATL,ORD"
    (place / "in.csv").write_text("\n".join([header, *[row] * 50_000]) + "\n")
    before, answers = files_of(place / "w" / "events"), process("info", "-w", place / "w", "--json").json
    with subprocess.Popen(
        list(map(str, line)), cwd=ROOT, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        while True:
            time.sleep(0.05)
            java = Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()
            if java and (when == "Java starts" or files_of(place / "w" / "events") != before):
                break
            assert child.poll() is None
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(
            timeout=100
        )  # it returns once Java, which holds the pipes, has ended, too
    assert (child.returncode, out, err.count(b"\n")) == (130, b"", 1)
    assert err.startswith(b"stopped by Ctrl-C. What was printed as loaded is loaded."), err
    if when == "Java starts":
        assert process("info", "-w", place / "w", "--json").json == answers


def test_whoever_has_read_enough_ends_quietly_whatever_is_said(flights: Path) -> None:
    for line in ("top 200 -w {w}", "freq A B C -w {w} --json", "--help", "completion bash", "info -w {w}"):
        command = f"{sys.executable} -m tidemark.jobs.cli.main {line.format(w=flights)} | head -c 5"
        said = to_a_reader_that_ends(command)
        assert (said.code, said.err, len(said.out)) == (0, "", 5), line


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    said = tidemark(capsys, "--version")
    assert (said.code, said.out) == (0, "tidemark 0.2.0\n")
    assert "--version" in script("bash", parser())
