"""The wheel works alone: in an empty environment, with what pip resolves for it, by the lines of its page.

Here with the Python that runs the tests, and packages of the present environment: pip resolves with what they
say of themselves (own_packages.py). `make wheels` takes every Python that the wheel is for and this machine
has, with packages of the index, and once the oldest that the wheel says it works with.
"""

from __future__ import annotations

import json
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest

from tests.docs.pages import DOCS, VERSION, Block, blocks, is_shown
from tests.java import SHORT_LIVED, java_home
from tests.jobs import own_packages
from tests.jobs.conftest import FLIGHTS
from tests.jobs.installed import Installed, required
from tidemark.jobs.spark.session import DELTA_REMEDY, FETCH_REMEDY

pytestmark = pytest.mark.spark

PAGE = blocks(DOCS / "guides" / "wheel.md")
_, INSTALL, LOAD, PREPARE, SUBMIT = [block.text for block in PAGE if block.kind == "shell"]
LOAD_IN_SPARK = LOAD.replace("tidemark load", "tidemark load --engine spark")
(TYPED,) = [block.text for block in PAGE if block.kind == "python"]
PYTHONS = ("python3.11", "python3.12", "python3.13")
OLDEST = "oldest packages"
OWN = f"python3.{sys.version_info.minor}"


@dataclass(frozen=True)
class Place:
    """A folder to work in, with the environment `env`, and all the variables that there are."""

    folder: Path
    variables: dict[str, str]

    def run(self, *line: str, **more: str) -> subprocess.CompletedProcess[str]:
        env = {**self.variables, **more}
        return subprocess.run(line, cwd=self.folder, env=env, capture_output=True, text=True, check=False)

    def bash(self, text: str, **more: str) -> subprocess.CompletedProcess[str]:
        return self.run("/bin/bash", "-euo", "pipefail", "-c", text, **more)

    def activated(self, text: str, **more: str) -> subprocess.CompletedProcess[str]:
        return self.bash(f". env/bin/activate\n{text}", **more)

    def python(self, text: str, *options: str) -> subprocess.CompletedProcess[str]:
        return self.run("env/bin/python", *options, "-c", text)


def below(shell: str) -> str:
    """What the page shows below a block."""
    at = next(i for i, block in enumerate(PAGE) if block.text == shell)
    shown: Block = PAGE[at + 1]
    assert shown.kind == "text"
    return shown.text


def said(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def found(name: str) -> str | None:
    """A Python of that name which can make environments: this one, one on PATH, or one of pyenv's."""
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    places = [sys.executable if name == OWN else None, shutil.which(name)]
    for one in filter(None, [*places, *map(str, versions.glob(f"*/bin/{name}"))]):
        look = [one, "-c", "import sys, venv, ensurepip; print(sys._base_executable)"]
        done = subprocess.run(look, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return done.stdout.strip()
    return None


def java() -> dict[str, str]:
    """The Java that `make setup` has found or brought, where the system has none."""
    if shutil.which("java", path="/usr/bin:/bin"):
        return {}
    return {"JAVA_HOME": java_home()}


def for_pip() -> dict[str, str]:
    """How this machine reaches the package index, and what it has of it already."""
    ways = re.compile(r"PIP_.*|.*_proxy|.*_PROXY|SSL_CERT_FILE|REQUESTS_CA_BUNDLE")
    look = [sys.executable, "-m", "pip", "cache", "dir"]
    cache = subprocess.run(look, capture_output=True, text=True, check=False).stdout.strip()
    kept = {name: text for name, text in os.environ.items() if ways.fullmatch(name)}
    return {**kept, "PIP_CACHE_DIR": cache} if cache else kept


def oldest(wheel: Path) -> str:
    """Constraints to the least version of each package that the wheel names."""
    return "".join(
        f"{one.name}=={spec.version}\n"
        for one in required(wheel)
        for spec in one.specifier
        if spec.operator in ("==", ">=")
    )


OF_THE_INDEX = "TIDEMARK_WHEELS" in os.environ  # `make wheels` sets it


@pytest.fixture(scope="module", params=[*PYTHONS, OLDEST] if OF_THE_INDEX else [OWN])
def alone(
    request: pytest.FixtureRequest, installed: Installed, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    """The wheel as the page installs it."""
    name = OWN if request.param == OLDEST else request.param
    python = found(name)
    if python is None:
        pytest.skip(f"no {name} with venv and ensurepip is here")
    folder = tmp_path_factory.mktemp("alone")
    for part in ("home", "java", "bin"):
        (folder / part).mkdir()
    (folder / "bin" / "python3").write_text(f'#!/bin/sh\nexec {python} "$@"\n')
    (folder / "bin" / "python3").chmod(0o755)
    (folder / "dist").symlink_to(installed.wheel.parent)
    (folder / "docs").symlink_to(DOCS)
    variables = {
        "HOME": str(folder / "home"),
        "PATH": f"{folder / 'bin'}:/usr/bin:/bin",
        # Java looks its home up by itself.
        "JAVA_TOOL_OPTIONS": f"-Duser.home={folder / 'java'} {SHORT_LIVED}",
        **java(),
    }
    place = Place(folder, variables)
    constraints = folder / "constraints.txt"
    constraints.write_text(oldest(installed.wheel) if request.param == OLDEST else "")
    if OF_THE_INDEX:
        said(place.bash(INSTALL, **for_pip(), PIP_CONSTRAINT=str(constraints), PIP_NO_COMPILE="1"))
    else:
        own_packages.write_wheels(folder / "wheels")
        said(place.bash(INSTALL, PIP_NO_INDEX="1", PIP_FIND_LINKS=str(folder / "wheels")))
        frozen = re.findall(r"^([\w.-]+)==", said(place.activated("pip freeze")), re.MULTILINE)
        own_packages.link_files(set(frozen) - {"tidemark"}, folder / "env")
    versions = said(place.python("import sys; print(sys.version)")) + said(place.activated("pip freeze"))
    print(f"\n{request.param}: {versions}")
    yield place
    shutil.rmtree(folder)  # Spark alone is half a gigabyte


@pytest.fixture(scope="module")
def first_load(alone: Place) -> subprocess.CompletedProcess[str]:
    """The page's first load, in an environment whose Spark nobody has prepared."""
    return alone.activated(LOAD)


@pytest.fixture(scope="module")
def loaded(alone: Place, first_load: subprocess.CompletedProcess[str]) -> Place:
    """Where the first load is done."""
    said(first_load)
    return alone


def test_it_has_all_that_it_needs_and_nothing_else(alone: Place) -> None:
    said(alone.activated("pip check"))
    said(alone.python("from tidemark import jobs, query, sketches, stream, warehouse", "-W", "error"))
    assert said(alone.run("env/bin/tidemark", "--version")) == f"tidemark {VERSION}\n"
    others = [
        "matplotlib",
        "polars",
        "pytest",
        "mypy",
        "grpc",
        "tests",
        "bench",
        "tools",
        "warehouse",
        "jobs",
    ]
    look = f"import importlib.util as of; print(*filter(of.find_spec, {others}))"
    assert said(alone.python(look)) == "\n"


BESIDE = """
import json
import jobs.nightly, query, sketches, stream, warehouse
from query import quantile as theirs
from tidemark import query as ours, sketches as our_sketches, stream as our_stream, warehouse as our_warehouse
import tidemark

table = __import__("pyarrow").table({"x": [float(i) for i in range(100)]})
tidemark.create(None, "beside", ["x"])
tidemark.load(None, "beside", table, batch="1")
our_stream.append(None, "beside", table, source="s", batch=1)
print(json.dumps([
    [jobs.nightly.OWNER, query.OWNER, sketches.OWNER, stream.OWNER, warehouse.OWNER, theirs(0.5)],
    [tidemark.open("beside").quantile(0.5, mode="exact").value, ours.open("beside").info()["steps"]],
    [module.__name__ for module in (ours, our_sketches, our_stream, our_warehouse)],
    our_warehouse.verify("beside").ok,
]))
"""


def test_it_works_beside_packages_and_files_of_the_names_of_its_folders(alone: Place) -> None:
    """A distribution that installs `query` and `sketches`, and a folder of the user's own with the others."""
    (site,) = (alone.folder / "env").glob("lib/python3*/site-packages")
    own = alone.folder / "own"
    (own / "jobs").mkdir(parents=True)
    other = [site / "query" / "__init__.py", site / "sketches" / "__init__.py"]
    user = [
        own / "jobs" / "__init__.py",
        own / "jobs" / "nightly.py",
        own / "stream.py",
        own / "warehouse.py",
    ]
    for path in [*other, *user, own / "query.py"]:
        path.parent.mkdir(exist_ok=True)
        owner = "other" if path in other else "user"
        path.write_text(f"OWNER = {owner!r}\ndef quantile(phi): return 'of the {owner}'\n")
    (own / "main.py").write_text(BESIDE)
    try:
        done = alone.bash("cd own && ../env/bin/python -W error main.py")
        names = [f"tidemark.{name}" for name in ("query", "sketches", "stream", "warehouse")]
        owners = ["user", "user", "other", "user", "user", "of the user"]
        assert json.loads(said(done)) == [owners, [49.0, 1], names, True]
        answer = alone.bash("cd own && ../env/bin/tidemark quantile 0.5 -w beside --mode exact --json")
        assert json.loads(said(answer))["answers"][0]["value"] == 49.0
        # The command finds its own modules, also where Python puts the user's folder first.
        module = alone.bash("cd own && ../env/bin/python -m tidemark.jobs.cli.main info -w beside --json")
        assert json.loads(said(module))["steps"] == 1
    finally:
        for path in other:
            shutil.rmtree(path.parent)


NOWHERE = """
<ivysettings>
  <settings defaultResolver="nowhere"/>
  <resolvers><filesystem name="nowhere"><artifact pattern="/nowhere/[artifact]"/></filesystem></resolvers>
</ivysettings>
"""


def test_packages_that_cannot_be_fetched_are_told_with_what_the_resolver_said(alone: Place) -> None:
    (alone.folder / "nowhere.xml").write_text(NOWHERE)
    elsewhere = "--packages of:nobody:1 --conf spark.jars.ivySettings=nowhere.xml pyspark-shell"
    done = alone.activated(LOAD_IN_SPARK, PYSPARK_SUBMIT_ARGS=elsewhere)
    assert done.returncode == 1
    assert "unresolved dependency" in done.stderr
    words = f"error: Spark could not fetch packages, see above. {FETCH_REMEDY}"
    assert done.stderr.splitlines()[-1] == words
    assert not (alone.folder / "nightly").exists()


IN_ONE_JAVA = """
import contextlib, io, json, sys
from tidemark import query
from tidemark.jobs import load_batch
from tidemark.jobs import stream_events
from tidemark.jobs.cli import main
from tidemark.jobs.spark.session import spark_session

assert main.main(json.loads(sys.argv[1])) == 0
refused = []
for line in (
    "load -w nightly --input nightly/events --batch x",
    "stream -w nightly --source delta --path nightly/events --once",
):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main.main(line.split())
    refused.append([code, out.getvalue(), err.getvalue()])
made = ["--measure", "delay", "--key", "origin", "--time", "time"]
for name in ("a.parquet", "b.csv", "c.jsonl"):
    assert load_batch.main(["-w", "formats", "--input", name, "--batch", name, *made]) == 0
assert stream_events.main(["-w", "formats", "--source", "files", "--path", "incoming", "--once"]) == 0
spark, wh = spark_session("formats"), query.open("formats")
query.register_views(spark, "formats", name="f")
asked = "SELECT value, n, m FROM quantile(0.9, mode => 'exact')"
print(json.dumps([refused, [
    [[one.value, one.n, one.m] for one in wh.quantile([0.9], mode="exact")],
    [list(row) for row in spark.sql(asked.replace("FROM ", "FROM f_")).collect()],
    [list(row) for row in wh.sql(asked.replace("=>", ":=")).fetchall()],
    [list(row) for row in spark.sql("SELECT origin, count(*) FROM f_events GROUP BY origin").collect()],
    [list(row) for row in wh.sql("SELECT origin, count(*) FROM events GROUP BY origin").fetchall()],
]]))
"""


@pytest.fixture(scope="module")
def parts() -> list[pd.DataFrame]:
    """Rows for an input of each format, and for a stream."""
    rows = pd.read_parquet(FLIGHTS).iloc[::20]
    return [rows.iloc[i::4] for i in range(4)]


@pytest.fixture(scope="module")
def in_one_java(loaded: Place, parts: list[pd.DataFrame]) -> subprocess.CompletedProcess[str]:
    """The first load again, in Spark. Delta's jar is not there: its tables are refused, all else is taken."""
    a, b, c, d = parts
    (loaded.folder / "incoming").mkdir()
    a.to_parquet(loaded.folder / "a.parquet", coerce_timestamps="us")
    b.to_csv(loaded.folder / "b.csv", index=False, date_format="%Y-%m-%dT%H:%M:%SZ")
    for part, name in ((c, "c.jsonl"), (d, "incoming/d.json")):
        part.to_json(loaded.folder / name, orient="records", lines=True, date_format="iso")
    first, _ = LOAD_IN_SPARK.replace("\\\n", "").splitlines()
    return loaded.run("env/bin/python", "-c", IN_ONE_JAVA, json.dumps(shlex.split(first)[1:]))


def test_the_first_load_fetches_nothing_and_is_quiet(
    alone: Place,
    first_load: subprocess.CompletedProcess[str],
    in_one_java: subprocess.CompletedProcess[str],
) -> None:
    assert is_shown(below(LOAD), said(first_load))
    assert first_load.stderr == ""
    assert "2001-q1: was loaded before, nothing changed" in said(in_one_java)
    assert in_one_java.stderr == ""
    assert not list((alone.folder / "home").iterdir())
    assert not list((alone.folder / "java").rglob("*.jar"))


def test_a_delta_table_as_input_is_refused_with_what_to_do(
    in_one_java: subprocess.CompletedProcess[str],
) -> None:
    words = f"this Spark cannot read Delta tables: it has no jar of Delta's. {DELTA_REMEDY}"
    refused, _ = json.loads(said(in_one_java).splitlines()[-1])
    assert refused == [[2, "", f"error: {words}\n"]] * 2


def test_every_format_loads_a_folder_streams_and_all_ways_to_ask_agree(
    in_one_java: subprocess.CompletedProcess[str], parts: list[pd.DataFrame]
) -> None:
    rows, live = pd.concat(parts), parts[-1]["delay"].count()
    _, (python, spark, duckdb, counts, same) = json.loads(said(in_one_java).splitlines()[-1])
    exact = sorted(rows["delay"].dropna())[math.ceil(0.9 * rows["delay"].count()) - 1]
    assert python == [[exact, rows["delay"].count() - live, live]]
    assert python == spark == duckdb
    assert dict(counts) == dict(same) == rows["origin"].value_counts().to_dict()


WITHOUT = """
import sys
from tidemark import query
{}
print({{'pyspark', 'pandas', 'matplotlib'}} & sys.modules.keys() or 'none')
"""


def test_a_reader_imports_neither_spark_nor_pandas(loaded: Place) -> None:
    asked = "wh = query.open('nightly'); wh.quantile([0.5, 0.99], last='14d'); wh.top(3); wh.histogram(5)"
    assert said(loaded.python(WITHOUT.format(asked))) == "none\n"


def test_a_figure_without_matplotlib_is_refused_with_the_remedy(loaded: Place) -> None:
    words = "plots need matplotlib, which is not installed. Install it: pip install 'tidemark[plots]'."
    done = loaded.activated("tidemark plot cdf -w nightly -o delays.png")
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"error: {words}\n")
    done = loaded.python("from tidemark import query; query.open('nightly').plot.cdf()")
    assert done.stderr.splitlines()[-1] == f"tidemark.warehouse.errors.InputError: {words}"


REVEALED = """
from tidemark import stream
from tidemark import warehouse
from tidemark.sketches import GK

reveal_type(answer)
reveal_type(query.open("w").quantile([0.5]))
reveal_type(query.open("w").top(3))
reveal_type(query.open("w").plot)
reveal_type(warehouse.verify("w").ok)
reveal_type(warehouse.load)
reveal_type(GK)
reveal_type(stream.append)
"""


def mypy(place: Place, script: str) -> str:
    """A strict look at a user's script by this environment's mypy, through the eyes of the other one."""
    (place.folder / "script.py").write_text(script)
    how = ["--strict", "--config-file=", "--cache-dir", str(place.folder / "mypy")]
    how += ["--python-executable", str(place.folder / "env" / "bin" / "python")]
    return place.run(sys.executable, "-I", "-m", "mypy", *how, "script.py").stdout


def test_a_users_script_sees_the_types_strictly(alone: Place) -> None:
    out = mypy(alone, TYPED + REVEALED)
    assert out.splitlines()[-1].startswith("Success: no issues"), out
    types = re.findall(r'Revealed type is "(.*)"', out)
    assert types[:5] == [
        "tidemark.query.answers.measure_answers.Answer",
        "tidemark.query.answers.measure_answers.Answers[tidemark.query.answers.measure_answers.Answer]",
        "tidemark.query.answers.measure_answers.Answers[tidemark.query.answers.key_answers.HitterAnswer]",
        "tidemark.query.plots.plots.Plots",
        "bool",
    ]
    assert "Any" not in types


def test_a_wrong_call_and_a_package_without_types_are_caught(alone: Place) -> None:
    assert 'error: Argument 1 to "open"' in mypy(alone, "from tidemark import query\nquery.open(1)\n")
    (marker,) = alone.folder.glob("env/lib/python3*/site-packages/tidemark/py.typed")
    marker.unlink()
    assert "py.typed marker" in mypy(alone, TYPED)
    marker.touch()


def test_spark_submit_runs_where_the_environment_is_not_activated(loaded: Place) -> None:
    assert loaded.bash(SUBMIT).returncode != 0, "it is to be prepared first"
    said(loaded.activated(PREPARE))
    done = loaded.bash(SUBMIT)
    assert is_shown(below(SUBMIT), said(done))
    assert [line for line in done.stderr.splitlines() if "JAVA_TOOL_OPTIONS" not in line] == []


def test_the_block_of_the_page_prints_what_it_shows(loaded: Place) -> None:
    assert is_shown(below(TYPED), said(loaded.python(TYPED)))
