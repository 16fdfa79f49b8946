"""What is built holds every package and nothing else, and the wheel works where nothing of the tree is."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.jobs.installed import Installed, metadata, required
from tests.test_boundaries import imports
from tidemark import query

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("tidemark", "warehouse", "stream", "query", "sketches", "jobs")  # folders of the tree
IN_THE_TREE = {"jobs/demo.py"}  # runs with the project's data, and with all that `make setup` brings


def modules() -> set[str]:
    """Every module of the packages."""
    return {str(path.relative_to(ROOT)) for name in PACKAGES for path in (ROOT / name).rglob("*.py")}


def installed_as(name: str) -> str:
    """Where a file of the tree lies in the wheel."""
    return name if name.startswith("tidemark/") else f"tidemark/{name}"


def test_wheel_sdist_and_zip_hold_every_module(installed: Installed) -> None:
    """Byte for byte as they are in the tree, with the mark that they are typed, and nothing of the tests."""
    page = {str(path.relative_to(ROOT)) for path in (ROOT / "jobs" / "serve" / "page").iterdir()}
    needed = modules() | page | {"jobs/spark/java_home.sh", "tidemark/py.typed"}
    there = {installed_as(name) for name in needed}
    with zipfile.ZipFile(installed.wheel) as wheel:
        names = set(wheel.namelist())
        entry = next(name for name in names if name.endswith("entry_points.txt"))
        assert "tidemark = tidemark.jobs.cli.starting:main" in wheel.read(entry).decode()
        assert all(wheel.read(installed_as(name)) == (ROOT / name).read_bytes() for name in needed)
    assert {name for name in names if ".dist-info/" not in name} == there
    with zipfile.ZipFile(installed.zipped) as zipped:
        assert set(zipped.namelist()) == there
    with tarfile.open(installed.sdist) as sdist:
        held = {name.split("/", 1)[-1] for name in sdist.getnames()}
    assert needed | {"pyproject.toml", "README.md", "LICENSE"} <= held
    assert not {name for name in held if name.startswith(("tests", "bench", "docs", "tools", ".ci"))}


def test_the_metadata_is_that_of_the_project(installed: Installed) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    told = metadata(installed.wheel)
    assert (told["Name"], told["Version"], told["Summary"]) == (
        project["name"],
        project["version"],
        project["description"],
    )
    assert (told["License-Expression"], told["Requires-Python"]) == ("Apache-2.0", ">=3.11")
    assert told.get_all("Classifier") == project["classifiers"]
    assert told.get_all("License-File") == ["LICENSE"]
    body = told.get_payload()
    assert isinstance(body, str)
    assert body.strip() == (ROOT / "README.md").read_text().strip()
    assert {str(one) for one in required(installed.wheel)} == {
        str(Requirement(one)) for one in project["dependencies"]
    }


def strangers(path: Path) -> Iterator[tuple[str, bool]]:
    """The distributions that a module imports, and whether it does so when it is loaded."""
    for name, _, when_loaded in imports(ast.parse(path.read_text())):
        top = name.split(".")[0]
        if top not in sys.stdlib_module_names and top not in PACKAGES:
            yield top.replace("_", "-") if top == "prometheus_client" else top, when_loaded


# Imported by `jobs/serve/start.py` in a function, once it has looked for the extra; and what the package of
# an extra looks for by its address.
BEFORE = {f"jobs/serve/{name}.py" for name in ("__init__", "start", "tokens")}
DIALECTS = {"query/integrations/sqlalchemy_dialect.py"}
AFTER = DIALECTS | {name for name in modules() if name.startswith("jobs/serve/")} - BEFORE


def test_the_server_is_imported_once_its_extra_was_looked_for() -> None:
    for name in BEFORE:
        loaded = {one for one, _, when_loaded in imports(ast.parse((ROOT / name).read_text())) if when_loaded}
        served = {".".join(one.split(".")[:4]) for one in loaded if one.startswith("tidemark.jobs.serve.")}
        assert served <= {"tidemark.jobs.serve.tokens"}


def test_no_other_module_imports_what_the_package_of_an_extra_looks_for() -> None:
    others = {
        name
        for name in modules() - DIALECTS
        for one, *_ in imports(ast.parse((ROOT / name).read_text()))
        if f"{one.removeprefix('tidemark.').replace('.', '/')}.py" in DIALECTS
    }
    assert others == set()


def undeclared(needed: set[str], extras: set[str]) -> set[str]:
    """Imports that an environment with the wheel alone may lack: the module, and what it imports."""
    return {
        f"{name} imports {top}"
        for name in modules() - IN_THE_TREE
        for top, when_loaded in strangers(ROOT / name)
        if top not in (needed if when_loaded and name not in AFTER else needed | extras)
    }


@pytest.mark.slow
def test_what_is_imported_is_declared_and_what_is_declared_is_imported(installed: Installed) -> None:
    needed = {one.name for one in required(installed.wheel)} | {"py4j"}  # pyspark pins it
    told = map(Requirement, metadata(installed.wheel).get_all("Requires-Dist", []))
    extras = {one.name for one in told} - needed
    assert undeclared(needed, extras) == set()
    imported_by_others = {"pandas"}  # Spark's mapInArrow asks for it
    imported = {top for name in modules() for top, _ in strangers(ROOT / name)}
    assert needed - imported_by_others == needed & imported
    # One that is forgotten is caught, also where it is an extra's.
    assert "sketches/hashing/key_digests.py imports xxhash" in undeclared(needed - {"xxhash"}, extras)
    assert any("imports numpy" in one for one in undeclared(needed - {"numpy"}, extras | {"numpy"}))
    assert undeclared(needed, extras - {"matplotlib"})


def test_what_is_tested_with_is_what_the_wheel_asks_for(installed: Installed) -> None:
    """Each dependency is pinned to a version that the wheel takes, extras and the build's own among them."""
    pins = dict(re.findall(r"^([a-z0-9-]+)==([^ ;]+)", (ROOT / "requirements.txt").read_text(), re.MULTILINE))
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    for one in map(Requirement, [*metadata(installed.wheel).get_all("Requires-Dist", []), *build]):
        assert one.specifier.contains(pins[one.name]), one
    listed = re.findall(r"^([a-z][a-z0-9-]*)", (ROOT / "requirements.in").read_text(), re.MULTILINE)
    assert {one.name for one in required(installed.wheel)} <= set(listed)


def test_the_page_on_clusters_names_the_packages_that_the_zip_needs(installed: Installed) -> None:
    """With their versions; pyspark is the cluster's own."""
    page = (ROOT / "docs" / "guides" / "clusters.md").read_text()
    named = {str(Requirement(one)) for one in re.findall(r"`([a-z]+[<>]=[^`]+)`", page)}
    assert named == {str(one) for one in required(installed.wheel) if one.name != "pyspark"}


def ran(installed: Installed, folder: Path, *line: object) -> str:
    """A program of the environment, started where nothing of the tree is found."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK_"))}
    command = [str(installed.folder / "bin" / str(line[0])), *map(str, line[1:])]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_installed_command_answers(installed: Installed, flights: Path, tmp_path: Path) -> None:
    where = "from tidemark import query, warehouse; print(query.__file__, warehouse.__file__)"
    assert ran(installed, tmp_path, "python", "-c", where).count(str(installed.folder)) == 2
    wh = query.open(flights)
    assert json.loads(ran(installed, tmp_path, "tidemark", "info", "-w", flights, "--json"))["steps"] == 2
    said = ran(installed, tmp_path, "tidemark", "quantile", 0.5, 0.99, "-w", flights)
    assert said == f"{wh.quantile([0.5, 0.99])}\n"
    assert "tidemark" in ran(installed, tmp_path, "tidemark", "--help")
