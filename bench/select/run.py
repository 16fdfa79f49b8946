"""Part `select`: asks questions about few rows with an index and without, and measures what an index costs.

The warehouses without an index are the same files: a copy whose indexes were dropped. DuckDB, and Spark once,
are asked over the files of `events`, ClickHouse over tables of its own. All take turns, so what disturbs the
machine disturbs all; answers are compared before anything is timed.
"""

from __future__ import annotations

import gc
import os
import shutil
import statistics
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from bench.engines import Duck
from bench.latency import MS, timed
from bench.report import Section, number, say, table
from bench.select.clickhouse import SortedTables
from bench.select.questions import NONE, Question, questions
from bench.select.rows import Filled, Options, Sizes, fill, visits
from bench.turns import turns_of
from tidemark import query, warehouse

QUICK = Sizes((3_000,), loads=3, turns=1, repeats=1)
TABLES = ("rankings", "visits")
OPTIONS: dict[str, Options] = {
    "rankings": {"index": [{"on": "pageRank", "include": ["pageURL"]}]},
    "visits": {
        "index": [
            {"on": "visitDate", "include": ["sourceIP", "destURL", "adRevenue"]},
            {"on": "adRevenue", "include": ["visitId"]},
            "visitId",
        ]
    },
}
# What a load is measured with: the name, the index, and how many plain writes it may add.
LOADS: tuple[tuple[str, list[Any], float | None], ...] = (
    ("an index on visitDate", ["visitDate"], 0.3),
    ("an index on adRevenue, of which hardly a value comes twice", ["adRevenue"], None),
    (
        "an index on visitDate with sourceIP, destURL and adRevenue",
        [{"on": "visitDate", "include": ["sourceIP", "destURL", "adRevenue"]}],
        None,
    ),
)
EVEN, NO_GAIN, GAIN, SELECTIVE = 1.5, 1.1, 50.0, "0.001 %"
WITH, WITHOUT, DUCKDB, CLICKHOUSE, SPARK = "index", "no index", "DuckDB", "ClickHouse", "Spark"


def run(spark: SparkSession, work: Path, sizes: Sizes) -> Section:
    """Measures all sizes and the loads, and returns the section."""
    section = Section("select", "Select: few rows of many, by an index")
    found = [_measure_all(spark, section, work / "select", rows, sizes) for rows in sizes.rows]
    first, last = found[0], found[-1]
    for name, question in first.asked.items():
        if question.is_even and question.index != NONE:
            ratio = last.taken[name][WITH] / first.taken[name][WITH]
            target = EVEN if question.is_flat else None
            section.add(f"{name}: {last.title} / {first.title}, with the index", ratio, "x", target)
    _measure_loads(section, work / "select", sizes)
    return section


def run_large(spark: SparkSession, work: Path, sizes: Sizes) -> Section:
    """Measures one large size and returns the section."""
    section = Section("select-large", "Select: few rows of many more")
    found = _measure_all(spark, section, work / "select", sizes.rows[0], sizes)
    name = next(name for name in found.taken if name.startswith(SELECTIVE))
    for one in (name, "Q5: one date"):
        gain = found.taken[one][DUCKDB] / found.taken[one][WITH]
        section.add(f"{one}: DuckDB / tidemark with the index", gain, "x", GAIN, at_least=True)
    return section


PARTS = {"select": run, "select-large": run_large}


def sizes(part: str, rows: int) -> Sizes:
    """The sizes of a part; `rows` is the number that the command line gives."""
    return Sizes() if part == "select" else Sizes((rows // 5 * 2,), turns=5)


@dataclass(frozen=True, slots=True)
class Measured:
    """The questions of one size, and the medians in ms of each by the names of engines."""

    title: str
    asked: Mapping[str, Question]
    taken: Mapping[str, Mapping[str, float]]


def _measure_all(spark: SparkSession, section: Section, folder: Path, rows: int, sizes: Sizes) -> Measured:
    """Makes the rows, asks all questions, and adds their figures and their table."""
    title = f"{rows / 1e6:g} M rows"
    say(f"select: {title} of each table in {sizes.loads} loads")
    filled = fill(folder, rows, sizes.loads, OPTIONS)
    files = {name: DeltaTable(filled.uri(name) / "events").file_uris() for name in TABLES}
    duck, plain = _duck(files), _without_indexes(filled, files)
    engines: dict[str, Callable[[str], list[Any]]] = {
        WITH: _asker({name: filled.uri(name) for name in TABLES}),
        WITHOUT: _asker(plain),
        DUCKDB: duck.rows,
    }
    turns = [{one.name: one for one in questions(filled, turn)} for turn in turns_of(sizes.turns)]
    counts, taken = dict[str, int](), dict[str, dict[str, float]]()
    for name in turns[0]:
        counts[name], taken[name] = _measure(engines, [turn[name] for turn in turns], duck)
    others: dict[str, Callable[[str], list[Any]]] = {SPARK: _spark(spark, filled)}
    if find_spec("chdb") is not None:
        others[CLICKHOUSE] = SortedTables(files).rows
    for engine, rows_of in others.items():
        few = 1 if engine == SPARK else len(turns)
        for name in turns[0]:
            taken[name] |= _measure({engine: rows_of}, [turn[name] for turn in turns[:few]], duck)[1]
    say("  answers of all engines are right")
    asked = turns[0]
    found = Measured(title, asked, taken)
    _report(section, found, counts, sizes)
    shutil.rmtree(folder)
    return found


def _measure(
    engines: Mapping[str, Callable[[str], list[Any]]], turns: Sequence[Question], duck: Duck
) -> tuple[int, dict[str, float]]:
    """The rows of the answer, and the medians in ms of engines that take turns; every answer is compared.

    Each turn begins with another engine. The first turn warms, unless it is the only one.
    """
    seconds: dict[str, list[float]] = {name: [] for name in engines}
    names, rows = deque(engines), 0
    for question in turns:
        answer = sorted(duck.rows(question.sql))
        rows = len(answer)
        for name in names:
            with _uncollected():
                taken, own = timed(partial(engines[name], question.sql))
            assert sorted(own) == answer, (name, question.name, sorted(own)[:3], answer[:3])
            seconds[name].append(taken)
        names.rotate()
    counted = slice(1 if len(turns) > 1 else 0, None)
    medians = {name: statistics.median(taken[counted]) * MS for name, taken in seconds.items()}
    say(f"  {turns[0].name}: " + ", ".join(f"{name} {ms:.1f} ms" for name, ms in medians.items()))
    return rows, medians


@contextmanager
def _uncollected() -> Iterator[None]:
    """Inside, Python does not look for garbage: the rows of earlier answers are none, and it reads all."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _asker(uris: Mapping[str, Path]) -> Callable[[str], list[Any]]:
    """Asks statements of warehouses: of one alone, or of several that a statement names."""
    alone = {name: query.open(uri) for name, uri in uris.items()}
    together = query.connect({name: str(uri) for name, uri in uris.items()})

    def ask(statement: str) -> list[Any]:
        named = [name for name in uris if f" {name} " in statement]
        if len(named) > 1:
            return list(together.sql(statement).fetchall())
        own = statement.replace(f"FROM {named[0]} ", "FROM events ")
        return list(alone[named[0]].sql(own).fetchall())

    return ask


def _duck(files: Mapping[str, Sequence[str]]) -> Duck:
    first, *others = files
    duck = Duck(files[first], first)
    for name in others:
        duck.add(name, files[name])
    return duck


def _without_indexes(filled: Filled, files: Mapping[str, Sequence[str]]) -> dict[str, Path]:
    """Copies of the warehouses, of the same files, whose indexes are dropped."""
    found = {}
    for name in files:
        found[name] = filled.folder / f"{name} without"
        shutil.copytree(filled.uri(name), found[name], copy_function=_linked)
        for one in warehouse_indexes(name):
            warehouse.alter(None, found[name], drop_index=one)
    return found


def _linked(origin: str, own: str) -> None:
    """The same file under another name if it never changes, else a copy."""
    if origin.endswith(".parquet") and "_delta_log" not in origin:
        os.link(origin, own)
    else:
        shutil.copy2(origin, own)


def warehouse_indexes(name: str) -> list[str]:
    """The columns with an index in a warehouse."""
    return [one if isinstance(one, str) else one["on"] for one in OPTIONS[name]["index"]]


def _spark(spark: SparkSession, filled: Filled) -> Callable[[str], list[Any]]:
    for name in TABLES:
        spark.read.format("delta").load(str(filled.uri(name) / "events")).createOrReplaceTempView(name)
    return lambda statement: [tuple(row) for row in spark.sql(statement).collect()]


def _report(section: Section, found: Measured, counts: Mapping[str, int], sizes: Sizes) -> None:
    """The figures and the table of one size."""
    title, asked = found.title, found.asked
    worst = max(
        found.taken[one][WITH] / found.taken[one][WITHOUT] for one in asked if asked[one].index == NONE
    )
    section.add(f"{title}: with an index that does not pay / without one, the slowest", worst, "x", NO_GAIN)
    engines = list(next(iter(found.taken.values())))
    lines = [
        [name, f"{counts[name]:,}", *map(number, taken.values()), number(taken[DUCKDB] / taken[WITH])]
        for name, taken in found.taken.items()
    ]
    missing = "" if CLICKHOUSE in engines else " ClickHouse was not measured: its package is not installed."
    section.text(
        f"{title} of each table in {sizes.loads} loads, `wh.sql` with indexes and without, and the other "
        f"engines over the same files. Warm medians of {sizes.turns} turns, each about other values; Spark "
        "is asked once. ClickHouse has MergeTree "
        f"tables in the order of pageRank and of visitDate.{missing} The ratio is DuckDB / tidemark with "
        "an index.\n\n" + table(["question", "rows", *(f"{name} (ms)" for name in engines), "ratio"], lines)
    )


def _measure_loads(section: Section, folder: Path, sizes: Sizes) -> None:
    """What indexes add to a load, in plain writes of the same rows."""
    part = visits(sizes.rows[-1], 2, 0)
    say(f"select: loads of {part.num_rows:,} visits, {sizes.repeats} times in turn with plain writes")
    variants: dict[str, list[Any]] = {"": [], **{name: index for name, index, _ in LOADS}}
    seconds: dict[str, list[float]] = {name: [] for name in ("plain", *variants)}
    for turn in turns_of(sizes.repeats):
        one, _ = timed(lambda: write_deltalake(folder / "plain", part))
        taken = {"plain": one}
        for name, index in variants.items():
            warehouse.create(None, folder / "w", "adRevenue", index=index, schema=part.schema)
            taken[name], _ = timed(lambda: warehouse.load(None, folder / "w", part, "all"))
            shutil.rmtree(folder / "w")
        shutil.rmtree(folder / "plain")
        if turn >= 0:
            for name, one in taken.items():
                seconds[name].append(one)
    for name, _, most in LOADS:
        adds = [
            (own - bare) / plain
            for own, bare, plain in zip(seconds[name], seconds[""], seconds["plain"], strict=True)
        ]
        section.add(f"{name} adds to a load, in plain writes", statistics.median(adds), "x", most)
    medians = {name: statistics.median(one) for name, one in seconds.items()}
    section.text(
        f"A load of {part.num_rows:,} visits in this process with a measure and no index takes "
        f"{medians['']:.2f} s, a plain write of the same rows by delta-rs {medians['plain']:.2f} s. Medians "
        f"of {sizes.repeats} turns."
    )
    shutil.rmtree(folder, ignore_errors=True)
