"""What is built holds every package and nothing else, and the wheel works where nothing of the tree is."""

from __future__ import annotations

import json
import os
import subprocess
import tarfile
import zipfile
from pathlib import Path

import query
from tests.jobs.installed import Installed

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("warehouse", "stream", "query", "sketches", "jobs")


def modules() -> set[str]:
    """Every module of the packages."""
    return {str(path.relative_to(ROOT)) for name in PACKAGES for path in (ROOT / name).rglob("*.py")}


def test_wheel_sdist_and_zip_hold_every_module(installed: Installed) -> None:
    needed = modules() | {"jobs/java_home.sh"}
    with zipfile.ZipFile(installed.wheel) as wheel:
        names = set(wheel.namelist())
        entry = next(name for name in names if name.endswith("entry_points.txt"))
        assert "tidemark = jobs.command:main" in wheel.read(entry).decode()
    assert {name for name in names if ".dist-info/" not in name} == needed
    with zipfile.ZipFile(installed.zipped) as zipped:
        assert set(zipped.namelist()) == needed
    with tarfile.open(installed.sdist) as sdist:
        held = {name.split("/", 1)[-1] for name in sdist.getnames()}
    assert needed | {"pyproject.toml", "README.md", "LICENSE"} <= held


def ran(installed: Installed, folder: Path, *line: object) -> str:
    """A program of the environment, started where nothing of the tree is found."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK_"))}
    command = [str(installed.folder / "bin" / str(line[0])), *map(str, line[1:])]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_installed_command_answers(installed: Installed, flights: Path, tmp_path: Path) -> None:
    where = "import query, warehouse; print(query.__file__, warehouse.__file__)"
    assert ran(installed, tmp_path, "python", "-c", where).count(str(installed.folder)) == 2
    wh = query.open(flights)
    assert json.loads(ran(installed, tmp_path, "tidemark", "info", "-w", flights, "--json"))["steps"] == 2
    said = ran(installed, tmp_path, "tidemark", "quantile", 0.5, 0.99, "-w", flights)
    assert said == f"{wh.quantile([0.5, 0.99])}\n"
    assert "tidemark" in ran(installed, tmp_path, "tidemark", "--help")
