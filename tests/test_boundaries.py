"""Who may import whom: sketches <- warehouse <- stream, query <- jobs, and where Spark must not be loaded."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# What each package may use of the project. Nobody uses tests or bench.
BELOW = {
    "sketches": set(),
    "warehouse": {"sketches"},
    "stream": {"sketches", "warehouse"},
    "query": {"sketches", "warehouse"},
    "jobs": {"sketches", "warehouse", "stream", "query"},
}
PROJECT = {*BELOW, "tests", "bench"}

SPARK = {"pyspark", "py4j", "delta"}
# sketches travel to executors and into ledger rows; query alone asks DuckDB.
NEVER = {
    "sketches": SPARK | {"deltalake", "duckdb"},
    "warehouse": {"duckdb"},
    "stream": {"duckdb"},
    "query": set(),
    "jobs": {"duckdb"},
}
# All of it works without Java: Spark is looked for only once a function that needs it is called.
NOT_WHEN_LOADED = {"warehouse": SPARK, "stream": SPARK, "query": SPARK}


def imports(node: ast.AST, *, when_loaded: bool = True) -> Iterator[tuple[str, int, bool]]:
    """Yield every absolute import below node as (dotted name, line, whether loading the module runs it)."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from ((alias.name, child.lineno, when_loaded) for alias in child.names)
        elif isinstance(child, ast.ImportFrom) and child.level == 0:
            yield from ((f"{child.module}.{alias.name}", child.lineno, when_loaded) for alias in child.names)
        elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            for statement in child.body:
                yield from imports(ast.Module([statement], []), when_loaded=False)
            yield from imports(ast.Module(child.orelse, []), when_loaded=when_loaded)
        else:
            inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            yield from imports(child, when_loaded=when_loaded and not inside)


def violations(package: str, source: str) -> list[str]:
    """Return what is wrong with the imports of one module of the package, a line each."""
    found = []
    for name, line, when_loaded in imports(ast.parse(source)):
        top, *rest = name.split(".")
        if top in PROJECT - BELOW[package] - {package}:
            found.append(f"line {line}: {package} may not use {top}")
        elif top in NEVER[package]:
            found.append(f"line {line}: {package} never uses {top}")
        elif when_loaded and top in NOT_WHEN_LOADED.get(package, ()):
            found.append(f"line {line}: {top} may be imported only inside a function of {package}")
        elif top in PROJECT - {package} and any(part.startswith("_") for part in rest):
            found.append(f"line {line}: {name} is private to {top}")
    return found


@pytest.mark.parametrize("package", BELOW)
def test_a_package_imports_only_what_lies_below_it(package: str) -> None:
    found = [
        f"{path.relative_to(ROOT)} {problem}"
        for path in sorted((ROOT / package).rglob("*.py"))
        for problem in violations(package, path.read_text(encoding="utf-8"))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("package", "source"),
    [
        ("sketches", "import warehouse"),
        ("sketches", "def f():\n    import pyspark.sql"),
        ("sketches", "if TYPE_CHECKING:\n    from deltalake import DeltaTable"),
        ("warehouse", "from query import answers"),
        ("warehouse", "import numpy, duckdb"),
        ("stream", "from query.answers import Answer"),
        ("query", "import stream"),
        ("query", "from pyspark.sql import SparkSession"),
        ("warehouse", "from pyspark.sql import SparkSession"),
        ("stream", "from pyspark.sql import functions as F"),
        ("query", "try:\n    import pyspark\nexcept ImportError:\n    pyspark = None"),
        ("query", "class Reader:\n    import pyspark"),
        ("query", "if TYPE_CHECKING:\n    pass\nelse:\n    import pyspark"),
        ("query", "from warehouse._commit import commit"),
        ("query", "from warehouse import _commit"),
        ("jobs", "import bench.engines"),
        ("jobs", "from tests import oracle"),
    ],
)
def test_an_import_out_of_bounds_is_caught(package: str, source: str) -> None:
    assert len(violations(package, source)) == 1


@pytest.mark.parametrize(
    ("package", "source"),
    [
        ("sketches", "import numpy\nfrom sketches import gk\nfrom . import _bytes"),
        ("warehouse", "if TYPE_CHECKING:\n    from pyspark.sql import DataFrame\nfrom sketches.gk import GK"),
        ("query", "import duckdb\nfrom warehouse import snapshot\nfrom query._probes import probe"),
        ("query", "def register(spark):\n    from pyspark.sql import functions"),
        ("query", "if TYPE_CHECKING:\n    from pyspark.sql import SparkSession"),
        ("jobs", "import query, stream, warehouse, pyspark"),
    ],
)
def test_an_import_within_bounds_passes(package: str, source: str) -> None:
    assert violations(package, source) == []


@pytest.mark.parametrize(
    ("package", "unwanted"),
    [
        ("query", SPARK),
        ("warehouse", SPARK),
        ("stream", SPARK),
        ("sketches", SPARK | {"deltalake", "duckdb"}),
    ],
)
def test_loading_a_package_does_not_load_spark(package: str, unwanted: set[str]) -> None:
    """py4j is how Python starts Java and talks to it: where it is not loaded, no Java runs."""
    script = f"import sys, {package}; print(*sorted({unwanted!r} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert run.stdout.split() == []


def test_a_reader_of_frequencies_does_not_load_numba() -> None:
    """Half a second that only updates and merges are worth: sketches open, add and answer without it."""
    stored = (
        "from sketches import ECM, DyadicECM, digest\n"
        "sketch, keys = ECM(0.1, 0.1), DyadicECM(16, 0.1, 0.1)\n"
        "sketch.update(digest(['a', 'b', 'a']), [1, 2, 3])\n"
        "keys.update([1, 2, 1], [1, 2, 3])\n"
        "print(sketch.to_bytes().hex(), keys.to_bytes().hex())"
    )
    write = subprocess.run(
        [sys.executable, "-c", stored], cwd=ROOT, capture_output=True, text=True, check=True
    )
    sketch, keys = write.stdout.split()
    script = (
        "import sys\n"
        "from sketches import ECM, DyadicECM, combine_frequencies, digest\n"
        f"sketch = ECM.from_bytes(bytes.fromhex('{sketch}'))\n"
        f"keys = DyadicECM.from_bytes(bytes.fromhex('{keys}'))\n"
        "bounds = combine_frequencies([sketch.bounds(2), sketch.bounds(2)])\n"
        "print(bounds.points(digest(['a']))[0].hi, sketch.self_join().hi)\n"
        "print(sketch.inner_product(sketch, 3).hi)\n"
        "print(keys.heavy_hitters(0.5).keys[0], keys.quantile(1).key, keys.count_range(0, 1).lo)\n"
        "print(*({'numba', 'pyarrow'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["2", "5", "1", "1", "2", "2"]
