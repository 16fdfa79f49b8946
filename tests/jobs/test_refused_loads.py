"""Loads that are refused: one line says why, the exit code is 2, and every table is as it was, byte for byte.

They are loads by the command and in Spark: what can be told before Spark is needed is told without it.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.jobs.said import ROOT, Said, environment, tidemark
from tests.jobs.test_load_batch import OPTIONS, TABLE, bad_inputs, write_csv
from tests.warehouse.disk import tables_of
from tidemark import query, warehouse
from tidemark.jobs.spark import session

Ask = Callable[..., tuple[Said, bool]]


@pytest.fixture
def ask(spark: SparkSession, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ask:
    """The command, by the session that all tests share; and whether it asked for one."""
    asked: list[str] = []

    def shared(name: str, *_: object, **__: str) -> SparkSession:
        asked.append(name)
        return spark

    monkeypatch.setattr(session, "spark_session", shared)

    def run(*argv: object) -> tuple[Said, bool]:
        asked.clear()
        return tidemark(capsys, *argv), bool(asked)

    return run


def contents(uri: Path) -> dict[str, str]:
    """The digest of every file, by its path."""
    found = (path for path in sorted(uri.rglob("*")) if path.is_file())
    return {str(path.relative_to(uri)): sha256(path.read_bytes()).hexdigest() for path in found}


def changed(rows: pa.Table, name: str, column: pa.Array) -> pa.Table:
    return rows.set_column(rows.column_names.index(name), name, column)


def beyond_the_years(folder: Path) -> Path:
    """Good rows, and one of the year 33658."""
    path = folder / "beyond.parquet"
    times = [*TABLE["time"].cast(pa.int64()).to_pylist()[:-1], 10**18]
    pq.write_table(changed(TABLE, "time", pa.array(times).cast(TABLE.schema.field("time").type)), path)
    return path


def unfit(folder: Path) -> dict[str, tuple[Path, list[str], tuple[str, ...]]]:
    """Inputs that are read well, and do not fit the warehouse."""
    tables: dict[str, tuple[pa.Table, tuple[str, ...]]] = {
        "no measure": (TABLE.drop_columns("fare"), ("'fare'", "missing")),
        "no key": (TABLE.drop_columns("origin"), ("'origin'", "missing")),
        "no time": (TABLE.drop_columns("time"), ("'time'", "missing")),
        "a column more": (TABLE.append_column("more", TABLE["delay"]), ("unknown ['more']",)),
        "a measure of text": (changed(TABLE, "fare", TABLE["origin"]), ("'fare'", "string", "Cast")),
        "a measure with digits to lose": (changed(TABLE, "delay", TABLE["fare"]), ("'delay'", "double")),
        "a key of another type": (changed(TABLE, "origin", TABLE["delay"]), ("'origin'", "long", "string")),
        "a time that is text": (changed(TABLE, "time", TABLE["origin"]), ("'time'", "string")),
    }
    found: dict[str, tuple[Path, list[str], tuple[str, ...]]] = {}
    for reason, (rows, words) in tables.items():
        path = folder / "unfit" / f"{reason}.parquet"
        path.parent.mkdir(exist_ok=True)
        pq.write_table(rows, path)
        found[reason] = (path, [], words)
    return found


@dataclass
class Loads:
    """Loads into one warehouse, and what lay there before them: files by content, and tables."""

    ask: Ask
    uri: Path
    before: dict[str, str] = field(default_factory=dict)
    held: dict[str, Any] = field(default_factory=dict)

    def keep(self) -> None:
        self.before, self.held = contents(self.uri), tables_of(self.uri)

    def load(self, path: Path, batch: str, *options: str) -> tuple[Said, bool]:
        return self.ask(
            "load", "-w", self.uri, "--input", path, "--batch", batch, "--engine", "spark", *options
        )

    def wrong(self, said: Said, words: tuple[str, ...], *, read: bool = False) -> list[Any]:
        """What is not as it should be: 2, one line with the words, no file changed, none added.

        Where rows were `read`, other tasks may have written some: files that no table names, and are swept.
        """
        found: list[Any] = []
        told = [line for line in said.err.splitlines() if line.startswith(("error: ", "tidemark"))]
        if (said.code, said.out, len(told)) != (2, "", 1) or not all(word in told[0] for word in words):
            found.append(said)
        after = contents(self.uri)
        if self.before.items() - after.items() or tables_of(self.uri) != self.held:
            found.append("changed the warehouse")
        added = after.keys() - self.before.keys()
        swept = {path for path in added if read and path.startswith("events/") and "_delta_log" not in path}
        return [*found, *(added - swept)]


def test_a_first_load_that_is_refused_makes_no_warehouse(ask: Ask, tmp_path: Path) -> None:
    loads, good = Loads(ask, tmp_path / "w"), tmp_path / "good.parquet"
    pq.write_table(TABLE, good)
    for reason, options, word in BEFORE_SPARK:
        said, started = loads.load(good, "one", *options)
        assert not loads.wrong(said, (word,)), reason
        assert not started, reason
    spoilt = bad_inputs(tmp_path)
    for reason in ("a Parquet file of zeroes inside", "a folder with one cut file"):
        path, _, words = spoilt[reason]
        assert not loads.wrong(loads.load(path, "one", *OPTIONS)[0], words), reason
    said, _ = loads.load(beyond_the_years(tmp_path), "one", *OPTIONS)
    assert not loads.wrong(said, ("time lies outside the years 1 to 9999 in 1 rows",))
    assert not loads.uri.exists()


def test_a_load_that_is_refused_changes_nothing(ask: Ask, tmp_path: Path) -> None:
    loads, good = Loads(ask, tmp_path / "w"), tmp_path / "good.parquet"
    pq.write_table(TABLE, good)
    pq.write_table(TABLE.slice(0, 0), tmp_path / "none.parquet")
    write_csv(TABLE.slice(0, 10), tmp_path / "few.csv")
    assert loads.load(good, "one", *OPTIONS)[0].code == 0
    loads.keep()
    problems = {
        reason: loads.wrong(loads.load(good, "one", *options)[0], (words,))
        for reason, options, words in OTHER_OPTIONS
    }
    again, _ = loads.load(tmp_path / "few.csv", "one")
    problems["other rows"] = loads.wrong(again, ("60 rows are stored, 10 came",))
    for reason, (path, options, words) in unfit(tmp_path).items():
        problems[reason] = loads.wrong(loads.load(path, "two", *options)[0], words)
    late = beyond_the_years(tmp_path)
    words = ("time lies outside the years 1 to 9999",)
    problems["a year, cut"] = loads.wrong(loads.load(late, "two", "--batch-every", "7 days")[0], words)
    problems["a year"] = loads.wrong(loads.load(late, "two")[0], words, read=True)
    for reason, (path, options, words) in bad_inputs(tmp_path).items():
        problems[reason] = loads.wrong(loads.load(path, "two", *options)[0], words, read=True)
    assert {reason: found for reason, found in problems.items() if found} == {}
    said, _ = loads.load(tmp_path / "none.parquet", "two")
    assert (said.code, "no rows, nothing changed" in said.out) == (0, True)
    assert tables_of(loads.uri) == loads.held
    assert loads.load(good, "two")[0].code == 0  # the name is still free
    assert 2 * TABLE.num_rows == query.open(loads.uri).quantile(0.5).N
    assert warehouse.verify(loads.uri).ok


BEFORE_SPARK: list[tuple[str, list[str], str]] = [
    ("no warehouse", [], "is not a tidemark warehouse"),
    ("eps", [*OPTIONS, "--eps", "0.7"], "eps must lie in (0, 0.5), got 0.7"),
    ("kappa", [*OPTIONS, "--kappa", "1"], "kappa must be a whole number of at least 2, got 1"),
    ("tick", [*OPTIONS, "--tick", "1 fortnight"], "not a duration"),
    ("a measure twice", ["--measure", "x", "--measure", "x"], "named twice"),
    ("spans without time", ["--measure", "fare", "--batch-every", "1 day"], "needs a time column"),
    ("spans that are none", [*OPTIONS, "--batch-every", "often"], "not a duration: 'often'"),
    ("an unknown format", [*OPTIONS, "--format", "xml"], "choose from"),
]
OTHER_OPTIONS: list[tuple[str, list[str], str]] = [
    ("another eps", ["--eps", "0.2"], "eps was given as 0.2, the warehouse has 0.1"),
    ("another kappa", ["--kappa", "7"], "kappa was given as 7"),
    ("another key", ["--key", "time"], "keys was given as [['time']]"),
    ("another time", ["--time", "origin"], "time was given as 'origin'"),
    ("another tick", ["--tick", "1 h"], "tick was given as 3600000000"),
    ("other measures", ["--measure", "fare"], "measures was given as ['fare']"),
]


@pytest.mark.slow
def test_options_that_differ_are_told_before_spark_starts(flights: Path) -> None:
    """As processes of their own, with no Java to be found: they would fail otherwise."""
    for options, words in ((["--eps", "0.2"], "eps was given"), (["--batch-every", "no"], "not a duration")):
        line = [
            sys.executable,
            "-m",
            "tidemark.jobs.cli.main",
            "load",
            "-w",
            flights,
            "--input",
            "a.csv",
            "--batch",
            "b",
        ]
        done = subprocess.run(
            [*map(str, line), *options],
            cwd=ROOT,
            env=environment(PATH="/nowhere", JAVA_HOME="/nowhere"),
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, words in done.stderr, done.stderr.count("\n")) == (2, True, 1), done.stderr
