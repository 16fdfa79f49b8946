"""Temporary files go with their process, also if it is killed; those of processes that run stay."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from shutil import rmtree

import pytest

from tidemark.warehouse import temporary_folders
from tidemark.warehouse.temporary_folders import LOCK, PREFIX, make_folder, process_folder

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """
from pathlib import Path
from tidemark.warehouse.temporary_folders import make_folder
(Path(make_folder("log-")) / "file").write_text("x")
print(flush=True)
input()
"""


def started(folder: Path) -> subprocess.Popen[str]:
    """A process that has made its temporary folder below `folder`."""
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(folder)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


def end(process: subprocess.Popen[str], how: signal.Signals | None = None) -> None:
    if how is not None:
        os.kill(process.pid, how)
    process.communicate("\n", timeout=60)


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """This process makes its folder below `tmp_path`, anew."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    process_folder.cache_clear()
    yield tmp_path
    process_folder.cache_clear()


@pytest.mark.slow
@pytest.mark.parametrize("is_broken", [False, True])
def test_what_a_killed_process_left_is_removed_and_what_others_use_is_not(
    own: Path, monkeypatch: pytest.MonkeyPatch, is_broken: bool
) -> None:
    """The broken variant takes every folder for an abandoned one."""
    killed, alive, ended = started(own), started(own), started(own)
    end(ended)
    assert len(list(own.iterdir())) == 2  # it ended by itself, and removed what it had
    end(killed, signal.SIGKILL)
    (own / f"{PREFIX}new").mkdir()  # one that is being made has no lock yet
    (own / "other").mkdir()
    if is_broken:
        monkeypatch.setattr(temporary_folders, "_takes", lambda _: True)
    folder = Path(make_folder("log-"))
    assert folder.parent == process_folder()
    files = sorted(path.parent.name[:4] for path in own.rglob("file"))
    assert files == ([] if is_broken else ["log-"])
    left = {path.name for path in own.iterdir()} - {process_folder().name}
    assert {f"{PREFIX}new", "other"} <= left
    assert len(left) == (2 if is_broken else 3)
    end(alive)


def test_a_folder_that_somebody_removed_is_made_again(own: Path) -> None:
    first = Path(make_folder("scan-"))
    rmtree(first.parent)
    second = Path(make_folder("scan-"))
    assert second.is_dir()
    assert (second.parent / LOCK).exists()
    assert second.parent.parent == own
