"""Part `query`: how long a question takes, against DuckDB and Spark over the same rows.

For each distribution two warehouses are made by real loads and real appends: one of all rows, one of a tenth
of them, each with the same number of runs (kappa is above it, so nothing is merged) and a live side. They are
asked in turn, a different random phi each time, so what disturbs the machine disturbs both.
"""

from __future__ import annotations

import json
import random
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from pyspark.sql import SparkSession

from bench.data import FIRST_DAY, Oracle, Rows, year
from bench.engines import Duck, spark_percentile
from bench.plots import plot_latency
from bench.report import Section, number, say, table
from tidemark import query, stream, warehouse

EPS = 0.001
DAYS = 365
WINDOWS = (7, 90)
FRESH = "import sys; from tidemark import query; print(float(query.open(sys.argv[1]).quantile(0.5)))"
MS = 1_000
_FEW = 1_000_000  # rows that take less time than the start of a process


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is made and asked. `live_batches` hold a hundredth of the rows together.

    peers: whether DuckDB and Spark are asked, too. DuckDB needs memory for all rows.
    starts: how many fresh processes are timed.
    repeats: how many loads of the same rows are timed.
    """

    rows: int
    runs: int
    live_batches: int
    questions: int
    distributions: tuple[str, ...]
    peers: bool = True
    starts: int = 7
    repeats: int = 5


@dataclass(frozen=True, slots=True)
class Filled:
    """A warehouse and the rows that are in it."""

    uri: str
    history: list[Rows]
    live: list[Rows]

    @property
    def rows(self) -> int:
        """All rows."""
        return sum(part.rows for part in self.history + self.live)


TITLES = {"query": "Query: latency, blocks read, memory", "billion": "Query: a billion rows"}


def run(
    spark: SparkSession, work: Path, out: Path, sizes: Sizes, part: str = "query", kept: Path | None = None
) -> Section:
    """Measures and returns the section of a part, one of TITLES.

    kept: a folder of filled warehouses, which are used where they are whole, and stay there.
    """
    section = Section(part, TITLES[part])
    peers = "DuckDB (quantile_disc) and Spark (percentile_approx) read the files of the same runs, warm. "
    section.text(
        f"Warm questions, each with another random phi, `refresh` included; eps = {EPS}, {sizes.runs} runs, "
        f"a live side of {sizes.live_batches} batches with 1 % as many rows. {peers if sizes.peers else ''}"
        "uniform: every run has rows of all 365 days, the worst case for windows; the others: each run has "
        "its own days and 1 % of late rows."
    )
    bars: dict[str, dict[str, float]] = {}
    lines, columns = [], list(COLUMNS)
    for name in sizes.distributions:
        folder = (kept or work / "query") / name
        filled = [
            fill(spark, folder / f"{rows}", name, rows, sizes) for rows in (sizes.rows // 10, sizes.rows)
        ]
        measured = _measure(spark, section, name, filled, sizes)
        bars[name] = {engine: measured[engine] for engine in ENGINES if engine in measured}
        columns = [column for column in COLUMNS if column in measured]
        lines.append([name, *(number(measured[column]) for column in columns)])
        if kept is None:
            shutil.rmtree(folder)
    section.text(
        f"Milliseconds at {sizes.rows:,} rows, medians where nothing else is said:\n\n"
        + table(["", *columns], lines)
    )
    out.mkdir(parents=True, exist_ok=True)
    picture = out / ("latency.png" if part == "query" else f"{part}.png")
    plot_latency(picture, bars, sizes.rows)
    section.plot(picture, f"Median time of a question over {sizes.rows:,} rows, by engine")
    return section


ENGINES = ("quick", "accurate", "exact", "DuckDB", "Spark")
COLUMNS = (*ENGINES, "accurate p90", "100 phis", "fresh process")


def fill(
    spark: SparkSession,
    folder: Path,
    name: str,
    rows: int,
    sizes: Sizes,
    *,
    key: str | None = None,
    group: str | None = None,
) -> Filled:
    """A warehouse of that many rows and a hundredth of them live."""
    columns = [column for column in (key, group) if column is not None]
    say(f"query: {name}, filling a warehouse of {rows:,} rows in {sizes.runs} loads")
    history = year(name, rows, sizes.runs, days=DAYS, mixed=name == "uniform")
    today = FIRST_DAY + DAYS
    live = [
        Rows(name, 10_000 + batch, rows // 100 // sizes.live_batches, (today, today + 1), today - 6)
        for batch in range(sizes.live_batches)
    ]
    uri, whole = str(folder / "warehouse"), folder / f"whole-{sizes.runs}-{sizes.live_batches}"
    if whole.exists():
        return Filled(uri, history, live)
    began = time.perf_counter()
    with _sources(history + live, folder / "source", columns) as sources:
        for part, source in zip(history + live, sources, strict=True):
            frame = spark.read.parquet(str(source))
            if part is history[0]:
                kappa = max(2, sizes.runs)
                options: dict[str, Any] = {"key": key, "groups": [group] if group else None}
                options |= {"tick": "1h"} if group else {}
                warehouse.create(
                    spark, uri, ["value"], time="time", eps=EPS, kappa=kappa, schema=frame, **options
                )
            if part.step < len(history):
                warehouse.load(spark, uri, frame, batch=f"{part.step}")
            else:
                stream.append(spark, uri, frame, source="web", batch=part.step - 10_000)
            shutil.rmtree(source)
    whole.touch()
    say(f"  filled in {time.perf_counter() - began:.0f} s")
    return Filled(uri, history, live)


@contextmanager
def _sources(parts: Sequence[Rows], folder: Path, columns: Sequence[str]) -> Iterator[Iterator[Path]]:
    """The folders of the parts' files. Of many rows a process beside this one makes them a few ahead."""
    if sum(part.rows for part in parts) < _FEW:
        yield (_write(part, folder / f"{part.step}", columns) for part in parts)
        return
    with ProcessPoolExecutor(1, get_context("spawn")) as maker:

        def made() -> Iterator[Path]:
            waiting: list[Future[Path]] = []
            for part in parts:
                waiting.append(maker.submit(_write, part, folder / f"{part.step}", columns))
                if len(waiting) > 3:
                    yield waiting.pop(0).result()
            for one in waiting:
                yield one.result()

        yield made()


def _write(part: Rows, path: Path, columns: Sequence[str]) -> Path:
    part.write(path, files=2, columns=columns)
    return path


def _measure(
    spark: SparkSession, section: Section, name: str, filled: Sequence[Filled], sizes: Sizes
) -> dict[str, float]:
    """All figures of one distribution, in milliseconds."""
    small, big = filled
    readers = query.open(small.uri), query.open(big.uri)
    oracles = Oracle.of(small.history + small.live), Oracle.of(big.history + big.live)
    for one, wh, oracle in zip(filled, readers, oracles, strict=True):
        _assert_answers(wh, oracle, one)
    say(f"  answers of {name} are right")
    times, blocks = _ask(readers, oracles[1], sizes.questions)
    median = {key: statistics.median(found) * MS for key, found in times.items()}
    p90 = statistics.quantiles(times["accurate"], n=10)[-1] * MS
    section.add(f"{name}: accurate, median", median["accurate"], "ms", 15)
    section.add(f"{name}: accurate, p90", p90, "ms")
    section.add(f"{name}: blocks read a run", blocks / sizes.runs, "", 2)
    growth = median["accurate"] / median["a tenth"]
    section.add(f"{name}: accurate, {big.rows:,} rows / {small.rows:,} rows", growth, "x", 1.5)
    section.add(f"{name}: quick, median", median["quick"], "ms", 1)
    section.add(f"{name}: exact, median", median["exact"], "ms")
    section.add(f"{name}: 100 phis at once, median", median["100 phis"], "ms")
    for days in WINDOWS:
        _ask_window(section, name, readers[1], days, _window_oracle(big, days))
    fresh = _time_fresh(section, name, big.uri, sizes.starts)
    _weigh_reader(section, name, big.uri)
    peers = _time_peers(spark, section, name, big, median["accurate"]) if sizes.peers else {}
    return {**median, **peers, "accurate p90": p90, "fresh process": fresh}


def _ask(readers: Sequence[Any], oracle: Oracle, questions: int) -> tuple[dict[str, list[float]], float]:
    """Seconds of each kind of question, asked in turn, and the blocks that accurate read on average."""
    chance = random.Random(7)
    small, big = readers
    seconds: dict[str, list[float]] = {}
    blocks = 0

    def ask(kind: str, wh: Any, phi: Any, mode: str) -> Any:
        taken, answer = timed(partial(wh.quantile, phi, mode=mode))
        seconds.setdefault(kind, []).append(taken)
        return answer

    for turn in range(questions):
        phi = chance.random()
        ask("a tenth", small, phi, "accurate")
        answer = ask("accurate", big, phi, "accurate")
        assert oracle.error(phi, answer.value) <= answer.error_bound <= EPS * answer.m
        blocks += answer.blocks_read
        answer = ask("quick", big, phi, "quick")
        assert oracle.error(phi, answer.value) <= answer.error_bound <= EPS * answer.N
        if turn % 10 == 0:
            assert ask("exact", big, phi, "exact").value == oracle.quantile(phi)
            ask("100 phis", big, [chance.random() for _ in range(100)], "accurate")
    return seconds, blocks / questions


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Its seconds and its result."""
    began = time.perf_counter()
    result = work()
    return time.perf_counter() - began, result


def _assert_answers(wh: Any, oracle: Oracle, filled: Filled) -> None:
    """Every mode keeps its promise, and every bound holds, against all rows sorted."""
    phis = [0.0, 1e-6, 0.001, *random.Random(1).choices(range(1, 1000), k=40), 0.999, 1.0]
    phis = [phi if phi <= 1 else phi / 1000 for phi in phis]
    m = sum(part.rows for part in filled.live)
    promises = {"quick": EPS * filled.rows, "accurate": EPS * m, "exact": 0}
    for mode, promise in promises.items():
        for answer in wh.quantile(phis, mode=mode):
            assert (answer.N, answer.m) == (filled.rows, m), answer
            assert oracle.error(answer.phi, answer.value) <= answer.error_bound <= promise, answer
            assert answer.low <= oracle.quantile(answer.phi) <= answer.high, answer


def _window_oracle(filled: Filled, days: int) -> Oracle:
    stop = FIRST_DAY + DAYS + 1  # the live day is the newest
    return Oracle.of(filled.history + filled.live, (stop - days, stop))


def _ask_window(section: Section, name: str, wh: Any, days: int, oracle: Oracle) -> None:
    chance = random.Random(days)
    first, answer = timed(lambda: wh.quantile(0.5, last=f"{days}d"))
    later = []
    blocks = []
    for at in range(30):
        phi = chance.random()
        if at:
            taken, answer = timed(partial(wh.quantile, phi, last=f"{days}d"))
            later.append(taken)
            blocks.append(answer.blocks_read)
        assert len(oracle.values) == answer.N, answer
        assert oracle.error(answer.phi, answer.value) <= answer.error_bound <= EPS * answer.m
    section.add(f"{name}: last {days} days, first question", first * MS, "ms")
    section.add(f"{name}: last {days} days, then, median", statistics.median(later) * MS, "ms")
    section.add(f"{name}: last {days} days, blocks read in all", statistics.mean(blocks), "")


def _time_fresh(section: Section, name: str, uri: str, starts: int) -> float:
    """Milliseconds of a process that imports, opens, answers and ends."""
    command = [sys.executable, "-c", FRESH, uri]
    start = partial(subprocess.run, command, check=True, stdout=subprocess.DEVNULL)
    median = statistics.median(timed(start)[0] for _ in range(starts))
    section.add(f"{name}: a fresh process imports, opens and answers, median of {starts}", median, "s", 1.5)
    return median * MS


def _weigh_reader(section: Section, name: str, uri: str) -> None:
    command = [sys.executable, "-m", "bench.reader", uri]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)  # noqa: S603 - our own
    found = json.loads(done.stdout)
    above = found["peak"] - found["imports"]
    section.add(f"{name}: a reader's own memory, no windows asked", found["own_whole"], "MB")
    section.add(f"{name}: a reader's own memory, windows too", found["own"], "MB")
    section.add(f"{name}: a reader's peak above its imports, libraries' code included", above, "MB", 150)


def _time_peers(
    spark: SparkSession, section: Section, name: str, big: Filled, accurate: float
) -> dict[str, float]:
    """DuckDB and Spark over the files of the runs."""
    runs = f"{big.uri}/runs/value"
    oracle = Oracle.of(big.history)
    duck = Duck(DeltaTable(runs).file_uris())
    chance = random.Random(11)
    times: dict[str, list[float]] = {"DuckDB": [], "Spark": []}
    for turn in range(4):
        phi = chance.random()
        taken, value = timed(partial(duck.quantile, phi))
        assert oracle.error(phi, value) <= 1, ("DuckDB", phi, value)
        if turn:
            times["DuckDB"].append(taken)
    for _ in range(2 if big.rows < 5_000_000 else 1):  # the loads have warmed it
        phi = chance.random()
        taken, value = timed(partial(spark_percentile, spark, runs, phi))
        assert oracle.error(phi, value) <= 1e-3 * len(oracle.values), ("Spark", phi, value)
        times["Spark"].append(taken)
    medians = {engine: statistics.median(found) * MS for engine, found in times.items()}
    targets = {"DuckDB": ("quantile_disc", 200), "Spark": ("percentile_approx", 1000)}
    for engine, (function, target) in targets.items():
        ratio = medians[engine] / accurate
        section.add(f"{name}: {engine} {function} / accurate", ratio, "x", target, at_least=True)
    return medians
