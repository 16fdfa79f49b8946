"""A path that begins with ~ begins in the home folder at every door, as in a shell."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.jobs.said import tidemark
from tidemark import query, warehouse
from tidemark.query.alerts.state_file import StateFile

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home folder, with a file of rows; the current folder is another one."""
    place, other = tmp_path / "home", tmp_path / "other"
    place.mkdir()
    other.mkdir()
    pq.write_table(pa.table({"x": [1.0, 2.0, 4.0], "k": ["a", "b", "a"]}), place / "rows.parquet")
    monkeypatch.setenv("HOME", str(place))
    monkeypatch.chdir(other)
    return place


def from_python(capsys: Capture) -> None:
    tidemark(capsys, "secret", "new", "--to=~/secret")
    private: dict[str, Any] = {"private": True, "secret_file": "~/secret"}
    warehouse.create(None, "~/w", "x", key="k", schema=pq.read_schema("../home/rows.parquet"), **private)
    warehouse.load(None, Path("~/w"), "~/rows.*", "a")
    warehouse.copy("~/w", "~/copy")
    assert query.open("~/copy", cache="~/cache").frequency("a").count == 2
    StateFile("~/state").write()


def from_the_command(capsys: Capture) -> None:
    for line in (
        "load -w ~/w --input=~/rows.parquet --batch=a --measure=x --key=k",
        "copy --warehouse=~/w ~/copy",
        "freq a --warehouse=~/copy",
        "load -w ~/v --input=~/rows.parquet --batch=b --measure=x --key=k",
        "hitters 0.1 -w one=~/w -w two=~/v",
    ):
        said = tidemark(capsys, *line.split())
        assert said.code == 0, said.err


DOORS = {"python": from_python, "command": from_the_command}


MADE = {
    "python": ["cache", "copy", "rows.parquet", "secret", "state", "state.lock", "w"],
    "command": ["copy", "rows.parquet", "v", "w"],
}


def names_in(folder: Path) -> list[str]:
    return sorted(one.name for one in folder.iterdir())


@pytest.mark.parametrize("door", DOORS)
def test_paths_begin_in_the_home_folder(home: Path, capsys: Capture, door: str) -> None:
    DOORS[door](capsys)
    assert (names_in(Path.cwd()), names_in(home)) == ([], MADE[door])


def test_other_names_with_a_tilde_are_names(home: Path) -> None:
    for name in ("./~", "~no-such-user/w", f"file://{Path.cwd()}/~file"):
        warehouse.create(None, name, "x", schema=pa.schema([("x", pa.float64())]))
    assert (names_in(Path.cwd()), names_in(home)) == (["~", "~file", "~no-such-user"], ["rows.parquet"])


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("door", DOORS)
def test_a_door_that_leaves_paths_as_they_are_is_caught(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, door: str
) -> None:
    as_it_is: Callable[[str], str] = os.fspath
    monkeypatch.setattr(os.path, "expanduser", as_it_is)
    with pytest.raises((AssertionError, query.InputError)):
        DOORS[door](capsys)
