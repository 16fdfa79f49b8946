"""Packages import their names at the first use, and a question imports only what it needs."""

from __future__ import annotations

import ast
import pickle
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest

import tidemark
from tidemark import query, warehouse
from tidemark.first_use import Package, import_at_first_use

LATER: list[Any] = [tidemark, query, warehouse]


def for_types(package: ModuleType) -> dict[str, str]:
    """The names that a package imports for the checks of types, and their modules."""
    tree = ast.parse(Path(str(package.__file__)).read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    return {
        alias.name: str(line.module)
        for line in block.body
        if isinstance(line, ast.ImportFrom)
        for alias in line.names
    }


@pytest.mark.parametrize("package", LATER, ids=lambda package: package.__name__)
def test_the_names_of_a_package_are_those_that_the_checks_of_types_know(package: Any) -> None:
    public, known = set(package.__all__), for_types(package)
    homes = {name: home for name, (home, own) in package.homes.items() if own}
    assert homes.items() == {name: home for name, home in known.items() if name in public}.items()
    assert public <= set(dir(package))
    for name, home in homes.items():
        assert getattr(package, name) is getattr(import_module(home), name)
    with pytest.raises(AttributeError, match=rf"module '{package.__name__}' has no attribute 'nothing'"):
        _ = package.nothing
    assert pickle.loads(pickle.dumps(package)) is package  # cloudpickle does so for a task of Spark


@pytest.fixture
def some(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A package with a function `load` in the module `load`."""
    (tmp_path / "some").mkdir()
    (tmp_path / "some" / "__init__.py").touch()
    (tmp_path / "some" / "load.py").write_text("def load():\n    return 'loaded'\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("some", "some.load"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    package = import_module("some")
    import_at_first_use("some", {"load": "load"})
    return package


@pytest.mark.parametrize("is_broken", [False, True])
def test_a_name_is_the_function_whoever_imported_its_module_first(
    some: ModuleType, is_broken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broken variant leaves the attribute to Python, which sets the module."""
    if is_broken:
        monkeypatch.delattr(Package, "__setattr__")
    import_module("some.load")
    assert isinstance(some.load, ModuleType) is is_broken
    monkeypatch.undo()


@pytest.mark.slow
def test_a_process_that_asks_for_a_quantile_imports_nothing_for_other_work(tmp_path: Path) -> None:
    uri = str(tmp_path / "w")
    warehouse.create(None, uri, ["x"], schema=pa.schema([("x", pa.float64())]))
    warehouse.load(None, uri, pa.table({"x": [1.0, 2.0, 3.0]}), batch="1")
    script = (
        "import sys\n"
        "from tidemark import query\n"
        f"print(query.open({uri!r}).quantile(0.5).value)\n"
        "print(*sorted(name.removeprefix('tidemark.') for name in sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    value, names = run.stdout.splitlines()
    assert value == "2.0"
    imported = set(names.split())
    needed = {"query.reader", "warehouse.snapshots.snapshot_reader", "query.quantiles.rank_search"}
    assert needed <= imported
    writing = "alter copy correct create expire ingest load loads maintain remove removals repair repairs"
    others = {f"warehouse.{room}" for room in f"{writing} restore rotate verification verify".split()}
    others |= {"query.alerts", "query.plots", "query.sql", "duckdb", "http.client", "subprocess", "pandas"}
    assert imported & others == set()
