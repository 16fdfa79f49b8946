"""Who may import whom, packages and the rooms inside them, and where Spark must not be loaded."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# The rooms of each package, from the lowest floor to the highest. A room is a folder, or a file beside the
# package's __init__.py. It imports rooms of lower floors and its own files; never its own floor's neighbours.
FLOORS = {
    "sketches": [
        "errors compiled",
        "inputs memory_limit disjoint hashing encoding",
        "bounds sites",
        "counters distinct gk pagerank persistence qdigest sampling skyline topk",
        "ecm",
        "dcm geometric",
    ],
    "warehouse": [
        "cascade errors per_process",
        "private",
        "columns memory_cache os_errors sizes temporary_folders",
        "companions execution integrity",
        "delta text",
        "events exchange runs",
        "projections",
        "settings",
        "ledger work",
        "ingest loads snapshots",
        "removals",
        "create load maintain rotate verification",
        "repairs",
        "alter remove repair verify",
        "copy correct expire restore",
    ],
    "stream": ["append feeds records", "start"],
    "query": [
        "answers",
        "reading",
        "keys quantiles scans",
        "groups",
        "asking",
        "reader",
        "plots sql",
        "warehouse",
        "alerts integrations",
    ],
    "jobs": [
        "cli spark",
        "ask create demo inputs secret sql verify",
        "remove_rows",
        "alter copy_warehouse load_batch maintain pagerank repair serve site_reduce sql_server stream_events",
    ],
}
# What each package may use of the others. Nobody uses tests or bench.
BELOW = {
    "sketches": set(),
    "warehouse": {"sketches"},
    "stream": {"sketches", "warehouse"},
    "query": {"sketches", "warehouse"},
    "jobs": {"sketches", "warehouse", "stream", "query"},
}
OWN = {"first_use", "option_table"}  # of tidemark itself, for all packages; they import none of them
OUTSIDE = {"tests", "bench", "docs", "tools"}

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


def floor(package: str, room: str) -> int | None:
    """The floor of a room, counted from the lowest; None where the package has no such room."""
    return next((level for level, rooms in enumerate(FLOORS[package]) if room in rooms.split()), None)


def out_of_place(package: str, room: str, name: list[str]) -> str | None:
    """What is wrong with the import of tidemark.<name> from a room of the package; None where it may be."""
    top, *rest = name
    if top in OWN:
        return None
    if top == package:
        if not rest or not room or rest[0] == room:
            return None
        own, other = floor(package, room), floor(package, rest[0])
        below = own is not None and other is not None and other < own
        return None if below else f"{package}/{room} may not use {package}/{rest[0]}"
    if top not in BELOW[package]:
        return f"{package} may not use {top}"
    return f"{'.'.join(name)} is private to {top}" if any(part.startswith("_") for part in rest) else None


def violations(package: str, room: str, source: str) -> list[str]:
    """Return what is wrong with the imports of one module of a room of the package, a line each.

    The room "" is the package's __init__.py, which imports any of its rooms.
    """
    found = []
    for name, line, when_loaded in imports(ast.parse(source)):
        top, *rest = name.split(".")
        if top == "tidemark" and rest:
            problem = out_of_place(package, room, rest)
            found += [f"line {line}: {problem}"] if problem else []
        elif top in BELOW:
            found.append(f"line {line}: {name} is imported without tidemark. before it")
        elif top in OUTSIDE:
            found.append(f"line {line}: {package} may not use {top}")
        elif top in NEVER[package]:
            found.append(f"line {line}: {package} never uses {top}")
        elif when_loaded and top in NOT_WHEN_LOADED.get(package, ()):
            found.append(f"line {line}: {top} may be imported only inside a function of {package}")
    return found


def rooms(package: str) -> Iterator[tuple[Path, str]]:
    """Every module of a package and its room."""
    for path in sorted((ROOT / package).rglob("*.py")):
        first, *inner = path.relative_to(ROOT / package).parts
        yield path, first if inner else first.removesuffix(".py").replace("__init__", "")


@pytest.mark.parametrize("package", BELOW)
def test_a_room_imports_only_what_lies_below_it(package: str) -> None:
    found = [
        f"{path.relative_to(ROOT)} {problem}"
        for path, room in rooms(package)
        for problem in violations(package, room, path.read_text(encoding="utf-8"))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("package", BELOW)
def test_every_room_has_its_floor_and_every_floor_its_rooms(package: str) -> None:
    assert {room for _, room in rooms(package)} - {""} == set(" ".join(FLOORS[package]).split())


def test_no_job_has_the_name_of_a_module_of_python() -> None:
    """A script finds what lies beside it before Python's own modules: jobs/copy.py would be their copy."""
    beside = {path.stem for path in (ROOT / "jobs").iterdir()} - {"__init__", "__pycache__"}
    assert {"load_batch", "sql"} <= beside
    assert not beside & sys.stdlib_module_names
    assert "copy" in sys.stdlib_module_names


@pytest.mark.parametrize(
    ("place", "source"),
    [
        ("sketches", "from tidemark import warehouse"),
        ("sketches", "import tidemark.warehouse.load"),
        ("sketches/gk", "from tidemark.sketches.ecm import ecm"),
        ("sketches", "def f():\n    import pyspark.sql"),
        ("sketches", "if TYPE_CHECKING:\n    from deltalake import DeltaTable"),
        ("warehouse", "from tidemark.query import answers"),
        ("warehouse", "import numpy, duckdb"),
        ("warehouse/columns", "from tidemark.warehouse.delta import tables"),
        ("warehouse/events", "from tidemark.warehouse.runs import levels"),
        ("warehouse/delta", "def f():\n    from tidemark.warehouse import load"),
        ("warehouse/delta", "if TYPE_CHECKING:\n    from tidemark.warehouse.load import LoadReport"),
        ("warehouse/new", "from tidemark.warehouse.errors import InputError"),
        ("stream", "from tidemark.query.answers import answer"),
        ("query", "from tidemark import stream"),
        ("query", "import stream"),
        ("query", "from query.answers import Answer"),
        ("query/sql", "from tidemark.query.warehouse import Warehouse"),
        ("query", "from pyspark.sql import SparkSession"),
        ("warehouse", "from pyspark.sql import SparkSession"),
        ("stream", "from pyspark.sql import functions as F"),
        ("query", "try:\n    import pyspark\nexcept ImportError:\n    pyspark = None"),
        ("query", "class Reader:\n    import pyspark"),
        ("query", "if TYPE_CHECKING:\n    pass\nelse:\n    import pyspark"),
        ("query", "from tidemark.warehouse._commit import commit"),
        ("query", "from tidemark.warehouse import _commit"),
        ("jobs", "import bench.engines"),
        ("jobs", "from tests import oracle"),
    ],
)
def test_an_import_out_of_bounds_is_caught(place: str, source: str) -> None:
    package, _, room = place.partition("/")
    assert len(violations(package, room, source)) == 1


@pytest.mark.parametrize(
    ("place", "source"),
    [
        ("sketches/gk", "import numpy\nfrom tidemark.sketches.gk import gk_bytes\nfrom . import _bytes"),
        ("sketches/ecm", "from tidemark.sketches.errors import InvalidInput"),
        ("warehouse", "if TYPE_CHECKING:\n    from pyspark.sql import DataFrame"),
        ("warehouse/ledger", "from tidemark.sketches.gk.gk import GK"),
        ("query/keys", "import duckdb\nfrom tidemark.warehouse.snapshots import snapshot"),
        ("query", "def register(spark):\n    from pyspark.sql import functions"),
        ("query", "if TYPE_CHECKING:\n    from pyspark.sql import SparkSession"),
        ("jobs", "import pyspark\nfrom tidemark import query, stream, warehouse"),
    ],
)
def test_an_import_within_bounds_passes(place: str, source: str) -> None:
    package, _, room = place.partition("/")
    assert violations(package, room, source) == []


# Who may know whether a warehouse is on a disk: who decides it, and the file that is the one of the two.
SEAM = {
    "NearFiles": {"warehouse/delta/near_files.py", "warehouse/delta/store.py"},
    "NearTables": {"warehouse/snapshots/near_tables.py", "warehouse/snapshots/newest_tables.py"},
    "FarTables": {"warehouse/snapshots/far_tables.py", "warehouse/snapshots/newest_tables.py"},
}


def deciding_elsewhere(sources: dict[str, str]) -> list[str]:
    """The files that name one of two implementations, or ask for the kind of a store by its address."""
    return [
        f"{path}: {word}"
        for path, source in sources.items()
        for word in [*SEAM, "store.is_local"]
        if re.search(rf"{re.escape(word)}\b", source) and path not in SEAM.get(word, ())
    ]


def test_near_or_far_is_decided_in_one_place() -> None:
    """The broken variants are a file that asks for one of the two, and one that asks the store."""
    sources = {
        str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
        for package in BELOW
        for path, _ in rooms(package)
    }
    assert deciding_elsewhere(sources) == []
    for wrong in ("if isinstance(files, NearFiles):", "if not self._store.is_local:"):
        assert len(deciding_elsewhere({**sources, "query/new.py": wrong})) == 1


def test_the_wheel_has_every_folder_of_the_packages() -> None:
    """A folder that pyproject.toml does not list is in a checkout, and missing where it is installed."""
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    found = [path.parent.relative_to(ROOT) for name in FLOORS for path in (ROOT / name).rglob("__init__.py")]
    assert sorted(listed) == sorted(["tidemark", *(".".join(["tidemark", *path.parts]) for path in found)])


@pytest.mark.slow
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
    script = f"import sys, tidemark.{package}; print(*sorted({unwanted!r} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert run.stdout.split() == []


@pytest.mark.slow
def test_importing_tidemark_loads_nothing_until_a_name_is_used() -> None:
    """Milliseconds, for whoever wants one of its names: the packages come with the first use."""
    heavy = {"numpy", "pyarrow", "deltalake", "duckdb", *SPARK}
    script = (
        "import sys, tidemark\n"
        f"print(*sorted(({heavy!r} | {{'tidemark.query', 'tidemark.warehouse'}}) & set(sys.modules)))\n"
        "print(*(name for name in tidemark.__all__ if getattr(tidemark, name) is None))\n"
        "from tidemark import query\n"
        "print(tidemark.open is query.open, tidemark.query is query)\n"
        "print(set(tidemark.__all__) <= set(dir(tidemark)))"
    )
    run = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert run.stdout.split("\n") == ["", "", "True True", "True", ""]


@pytest.mark.slow
def test_a_reader_of_frequencies_does_not_load_numba() -> None:
    """Half a second that only updates and merges are worth: sketches open, add and answer without it."""
    stored = (
        "from tidemark.sketches import ECM, DyadicECM, digest\n"
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
        "from tidemark.sketches import ECM, DyadicECM, combine_frequencies, digest\n"
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
