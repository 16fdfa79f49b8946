"""Part `command`: how long `tidemark` takes as a whole process, from its start to its end.

Imports, opening and answering count alike, as they do at a prompt. The commands and a peer, a process that
asks DuckDB over the same rows, take turns. The answers of the first turn are asserted; it counts only where
it is the only one.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from bench.data import Oracle
from bench.key_latency import counts
from bench.latency import EPS, Sizes, fill
from bench.report import Section, say, table
from bench.turns import turns_of
from tidemark import query

PHI, KEY, TOP = 0.99, 1, 20
TARGET = 1.0  # seconds
TIDEMARK = [sys.executable, "-m", "tidemark.jobs.cli.main"]
PEER = """\
import duckdb, sys
asked = "SELECT quantile_disc(value, ?) FROM read_parquet(?)"
print(duckdb.execute(asked, [float(sys.argv[1]), sys.argv[2:]]).fetchone()[0])
"""


def run(spark: SparkSession, work: Path, sizes: Sizes) -> Section:
    """Measures and returns the section."""
    section = Section("command", "Command: whole processes")
    folder = work / "command"
    made = fill(spark, folder, "lognormal", sizes.rows, sizes, key="key")
    files = DeltaTable(f"{made.uri}/events").file_uris()
    commands = {
        f"tidemark {line}": [*TIDEMARK, *line.split(), "-w", made.uri, "--json"]
        for line in (f"quantile {PHI}", f"freq {KEY}", f"top {TOP}", "info")
    }
    commands["DuckDB quantile_disc"] = [sys.executable, "-c", PEER, str(PHI), *files]
    turns = turns_of(sizes.questions)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for turn in turns:
        spent = [_spent(line) for line in commands.values()]
        if turn == turns[0]:
            _assert_answers(made, [one.said for one in spent])
            say("  answers of the command are right")
        if turn >= 0:
            for name, one in zip(commands, spent, strict=True):
                times[name].append((one.wall, one.processor))
    _add_figures(section, times)
    section.text(
        f"{made.rows:,} rows with a key in {sizes.runs} runs, and {sizes.live_batches} live batches; "
        f"{sizes.questions} processes each, in turn, files warm."
    )
    shutil.rmtree(folder)
    return section


@dataclass(frozen=True, slots=True)
class _Spent:
    """What a process said in JSON, its seconds from start to end, and those of the processor."""

    said: Any
    wall: float
    processor: float


def _assert_answers(made: Any, said: list[Any]) -> None:
    """Quantile, frequency, top keys and info, in the order of the commands, and then DuckDB's quantile."""
    oracle, total = Oracle.of(made.history + made.live), counts([*made.history, *made.live])
    (answer,) = said[0]["answers"]
    assert oracle.error(PHI, answer["value"]) <= answer["error_bound"] <= EPS * said[0]["m"], answer
    (answer,) = said[1]["answers"]
    assert answer["lo"] <= total[KEY] <= answer["hi"], answer
    assert len(said[2]["answers"]) == TOP
    assert all(one["lo"] <= total[one["value"]] <= one["hi"] for one in said[2]["answers"])
    assert said[3] == json.loads(query.open(made.uri).info().to_json())
    assert said[4] == oracle.quantile(PHI)


def _spent(line: list[str]) -> _Spent:
    """Runs a command; the seconds of the processor are those that the system counts."""
    with tempfile.TemporaryFile() as out:
        to_file = [(os.POSIX_SPAWN_DUP2, out.fileno(), 1)]
        began = time.perf_counter()
        child = os.posix_spawn(line[0], line, os.environ, file_actions=to_file)
        _, status, usage = os.wait4(child, 0)
        taken = time.perf_counter() - began
        assert status == 0, line
        out.seek(0)
        return _Spent(json.load(out), taken, usage.ru_utime + usage.ru_stime)


def _add_figures(section: Section, times: dict[str, list[tuple[float, float]]]) -> None:
    rows, median = [], {}
    for name, found in times.items():
        walls, processor = ([one[at] for one in found] for at in (0, 1))
        median[name] = statistics.median(walls)
        ninth = float(np.quantile(walls, 0.9))
        target = TARGET if name.startswith("tidemark") else None
        section.add(f"{name}, median", median[name], "s", target)
        section.add(f"{name}, p90", ninth, "s")
        rows.append([name, *map(_ms, (min(walls), median[name], ninth, statistics.median(processor)))])
    section.text(table(["milliseconds", "least", "median", "p90", "of the processor, median"], rows))
    ratio = median["DuckDB quantile_disc"] / median[f"tidemark quantile {PHI}"]
    section.add("DuckDB / tidemark quantile", ratio, "x")


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:,.0f}"
