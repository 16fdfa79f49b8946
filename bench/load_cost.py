"""Part `load`: what a load costs, against a plain Delta write of the same rows by the same Spark.

Both read the same Parquet files and take turns, so a noisy machine is noisy to both; medians of ratios count.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from bench import key_cost, text_cost
from bench.data import Oracle, Rows, year
from bench.report import Section, say, table
from bench.turns import turns_of
from tidemark import query, warehouse

KAPPA = 4


@dataclass(frozen=True, slots=True)
class Sizes:
    """Rows of a load, turns of it, steps, after how many of them memory is looked at, and shapes of keys."""

    rows: int
    repeats: int = 5
    steps: int = 40
    growth: tuple[int, ...] = (10, 40, 100)
    shapes: tuple[str, ...] = tuple(key_cost.SHAPES)


def run(spark: SparkSession, work: Path, sizes: Sizes) -> Section:
    """Measures and returns the section."""
    section = Section("load", "Load: cost and memory")
    folder, rows, repeats = work / "load", sizes.rows, sizes.repeats
    _bulk(spark, folder, section, rows, repeats)
    key_cost.measure(spark, folder, section, rows, repeats, sizes.shapes)
    text_cost.measure(spark, folder, section, rows, repeats)
    for each in (rows // sizes.steps, rows // 10):
        _steps(spark, folder, section, each, sizes.steps)
    _growth(folder, section, sizes.growth, rows // 100)
    return section


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    began = time.perf_counter()
    result = work()
    return time.perf_counter() - began, result


def _append_plainly(frame: Any, path: Path) -> None:
    frame.write.format("delta").mode("append").save(str(path))


def _create(spark: SparkSession, path: Path, frame: Any, kappa: int = KAPPA) -> str:
    uri = str(path)
    warehouse.create(spark, uri, ["value"], time="time", kappa=kappa, schema=frame)
    return uri


def _bulk(spark: SparkSession, folder: Path, section: Section, rows: int, repeats: int) -> None:
    say(f"load: a bulk load of {rows:,} rows, {repeats} times in turn with a plain Delta write")
    parts = year("lognormal", rows, 1, days=30, mixed=True)
    source = folder / "source"
    parts[0].write(source, files=4)
    frame = spark.read.parquet(str(source))
    oracle = Oracle.of(parts)
    seconds: list[tuple[float, float, float]] = []
    lines = []
    for turn in turns_of(repeats):
        plain, _ = _timed(lambda: _append_plainly(frame, folder / "plain"))
        uri = _create(spark, folder / "warehouse", frame)
        whole, report = _timed(partial(warehouse.load, spark, uri, frame, batch="all"))
        _assert_same(uri, oracle)
        run_seconds = report.seconds["sort"] + report.seconds["commit"]
        if turn >= 0:
            seconds.append((plain, run_seconds, whole))
            phases = _phases(report.seconds)
            lines.append([turn + 1, f"{plain:.2f}", f"{run_seconds:.2f}", f"{whole:.2f}", phases])
            say(f"  plain {plain:.2f} s, run {run_seconds:.2f} s, whole {whole:.2f} s ({phases})")
        for name in ("plain", "warehouse"):
            shutil.rmtree(folder / name)
    say("  answers of every load are right")
    size = f"{rows / 1e6:g} M rows"
    section.add(f"sorted run with marks / plain Delta write, {size}", _ratio(seconds, 1), "x", 1.6)
    section.add(f"whole bulk load / plain Delta write, {size}", _ratio(seconds, 2), "x", 2.6)
    head = ["turn", "plain write (s)", "run and marks (s)", "whole load (s)", "phases of the load (s)"]
    section.text(f"A bulk load of {size} (time, value, key) from Parquet files:\n\n" + table(head, lines))


def _phases(seconds: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {taken:.2f}" for name, taken in seconds.items())


def _ratio(seconds: Sequence[tuple[float, ...]], which: int) -> float:
    return statistics.median(one[which] / one[0] for one in seconds)


def _steps(spark: SparkSession, folder: Path, section: Section, each: int, steps: int) -> None:
    say(f"load: {steps} steps of {each:,} rows, kappa = {KAPPA}, in turn with plain appends")
    parts = year("lognormal", each * steps, steps, days=steps, mixed=False)
    plain, loads, phases = [], [], Counter[str]()
    uri = ""
    for part in parts:
        source = folder / "steps" / f"{part.step}"
        part.write(source)
        frame = spark.read.parquet(str(source))
        uri = uri or _create(spark, folder / "warehouse", frame)
        plain.append(_timed(partial(_append_plainly, frame, folder / "plain"))[0])
        taken, report = _timed(partial(warehouse.load, spark, uri, frame, batch=f"step {part.step}"))
        loads.append(taken)
        phases.update(report.seconds)
    _assert_same(uri, Oracle.of(parts))
    section.add(f"{steps} steps of {each:,} rows / {steps} plain appends", sum(loads) / sum(plain), "x", 3.5)
    section.text(
        f"{steps} steps of {each:,} rows, kappa = {KAPPA}: plain appends {sum(plain):.1f} s (median "
        f"{statistics.median(plain):.2f} s), loads {sum(loads):.1f} s (median {statistics.median(loads):.2f} "
        f"s, slowest {max(loads):.2f} s). Phases of the loads (s): {_phases(phases)}."
    )
    say(f"  plain {sum(plain):.1f} s, loads {sum(loads):.1f} s ({_phases(phases)})")
    small, few = [], min(5, steps)
    for number in range(few):
        part = Rows("lognormal", 1_000 + number, 1_000, parts[-1].days, parts[0].earliest)
        source = folder / "steps" / f"small-{number}"
        part.write(source)
        frame = spark.read.parquet(str(source))
        small.append(_timed(partial(warehouse.load, spark, uri, frame, batch=f"small {number}"))[0])
    section.add(f"a step of 1,000 rows after {steps} of {each:,}, the slowest of {few}", max(small), "s", 3.0)
    for name in ("plain", "warehouse", "steps"):
        shutil.rmtree(folder / name)


def _assert_same(uri: str, oracle: Oracle) -> None:
    """The warehouse holds the very rows: its quantiles are exact, there being no live side."""
    phis = [0.0, 0.001, 0.1, 0.5, 0.9, 0.999, 1.0]
    for answer in query.open(uri).quantile(phis):
        assert len(oracle.values) == answer.N, answer
        assert answer.value == oracle.quantile(answer.phi), answer


def _growth(folder: Path, section: Section, after: tuple[int, ...], each: int) -> None:
    say(f"load: memory after {after} steps of {each:,} rows, in a session of its own")
    asked = [sys.executable, "-m", "bench.growth", str(folder / "growth"), str(each), *map(str, after)]
    done = subprocess.run(asked, check=True, stdout=subprocess.PIPE, text=True)  # noqa: S603 - our own
    found = json.loads(done.stdout.splitlines()[-1])
    first, last = found[0], found[-1]
    lines = [[one["steps"], *(f"{one[who]:.0f}" for who in ("worker", "driver", "reader"))] for one in found]
    for who in ("worker", "driver", "reader"):
        growth = last[who] / first[who]
        section.add(f"peak of the {who}, {last['steps']} steps / {first['steps']} steps", growth, "x", 1.2)
    head = ["steps", "a Python worker (MB)", "the driver's Python (MB)", "a reader (MB)"]
    section.text(
        f"Greatest resident memory, steps of {each:,} rows, kappa = 10, imports included:\n\n"
        + table(head, lines)
    )
    shutil.rmtree(folder / "growth")
