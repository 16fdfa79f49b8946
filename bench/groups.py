"""Part `groups`: how long questions by group take over history and a live side, against other engines."""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from bench.data import DAY_US, FIRST_DAY, Oracle, Rows, group_name
from bench.engines import ClickHouse, Duck
from bench.latency import DAYS, MS, Filled, Sizes, fill, timed
from bench.report import Section, say
from bench.turns import turns_of
from tidemark import query, warehouse

PHI = 0.99
TOP = 20
WEEK = 7
GROUPS = {"heavy": 1, "middle": 100, "light": 20_000}  # by rank of the number of their rows


def run(spark: SparkSession, work: Path, sizes: Sizes) -> Section:
    """Measures and returns the section."""
    section = Section("groups", "Groups: quantiles of one group, of many, and over time")
    folder = work / "groups"
    made = fill(spark, folder, "lognormal", sizes.rows, sizes, group="group")
    wh = query.open(made.uri)
    parts = [*made.history, *made.live]
    _measure_one(section, wh, made, parts, sizes)
    _measure_many(section, wh, made, sizes)
    _measure_time(section, wh, parts, sizes)
    say("  answers by group are right")
    _measure_clickhouse(section, wh, made)
    memory = wh.info()["memory"]
    section.add("decoded rows in memory", memory["used"] / 1e6, "MB", memory["budget"] / 1e6)
    _measure_storage(section, wh)
    _measure_load(spark, section, folder, made.history[0], min(3, sizes.repeats))
    section.text(
        f"{made.rows:,} rows of 100,000 groups (Zipf 1.1) in {sizes.runs} runs, each with its own days and "
        f"1 % late rows, and a live side of {sizes.live_batches} batches. phi = {PHI}. Warm; DuckDB and "
        "ClickHouse read the files of `events`. All answers are exact, and were compared with numpy and "
        "DuckDB first."
    )
    shutil.rmtree(folder)
    return section


def _rows_of(parts: Sequence[Rows], group: int, since_us: int = 0) -> tuple[Any, Any]:
    """The values and times of a group's rows."""
    values, times = [], []
    for part in parts:
        if part.days[1] * DAY_US <= since_us:
            continue
        mine = part.groups() == group
        mine &= part.times() >= since_us
        values.append(part.values()[mine])
        times.append(part.times()[mine])
    return np.concatenate(values), np.concatenate(times)


def _median(turns: int, work: Any) -> tuple[float, Any]:
    """The median of the times in milliseconds, and the last result; the first turn is not counted."""
    times, result = [], None
    for turn in range(turns + 1):
        taken, result = timed(work)
        if turn:
            times.append(taken)
    return statistics.median(times) * MS, result


def _measure_one(section: Section, wh: Any, made: Filled, parts: Sequence[Rows], sizes: Sizes) -> None:
    duck = Duck(DeltaTable(f"{made.uri}/events").file_uris())
    turns = max(3, sizes.questions // 4)
    for size, rank in GROUPS.items():
        name = group_name(rank)
        truth = Oracle(_rows_of(parts, rank)[0])
        answer = wh.quantile(PHI, where={"group": name})
        assert (answer.value, answer.N) == (truth.quantile(PHI), len(truth.values)), answer
        ours, _ = _median(turns, partial(wh.quantile, PHI, where={"group": name}))
        theirs, value = _median(2, partial(duck.quantile_where, PHI, "group", name))
        assert value == answer.value, (value, answer)
        section.add(f"one group, {size} ({answer.N:,} rows), median", ours, "ms", 15)
        ratio = theirs / ours
        section.add(f"DuckDB quantile_disc ... WHERE / one group, {size}", ratio, "x", 30, at_least=True)
    exact, _ = _median(turns, partial(wh.quantile, PHI, where={"group": group_name(1)}, mode="exact"))
    section.add("one group, heavy, exact, median", exact, "ms")


def _measure_many(section: Section, wh: Any, made: Filled, sizes: Sizes) -> None:
    stop = FIRST_DAY + DAYS + 1
    window = (stop - WEEK, stop)
    answers = wh.quantile(PHI, by="group", top=TOP, last=f"{WEEK}d")
    duck = Duck(DeltaTable(f"{made.uri}/events").file_uris())
    work = partial(duck.largest_groups, PHI, "group", "time", window[0] * DAY_US, TOP)
    theirs, rows = _median(2, work)
    assert {(one.group["group"], one.value, one.N) for one in answers} == set(rows), rows
    ours, _ = _median(
        max(3, sizes.questions // 10), partial(wh.quantile, PHI, by="group", top=TOP, last=f"{WEEK}d")
    )
    section.add(f"the {TOP} largest groups, last {WEEK} days, median", ours, "ms", 150)
    section.add(f"DuckDB GROUP BY / the {TOP} largest groups", theirs / ours, "x", 15, at_least=True)


def _measure_time(section: Section, wh: Any, parts: Sequence[Rows], sizes: Sizes) -> None:
    for size, rank in list(GROUPS.items())[:2]:  # the others have few rows in a week
        where = {"group": group_name(rank)}
        answers = wh.quantile(PHI, where=where, every="1h", last=f"{WEEK}d")
        values, times = _rows_of(parts, rank, (FIRST_DAY + DAYS + 1 - WEEK) * DAY_US)
        for one in answers:
            start, end = (edge.timestamp() * 1e6 for edge in one.window)
            inside = values[(times >= start) & (times < end)]
            assert len(inside) == one.N, one
            assert one.N == 0 or one.value == Oracle(inside).quantile(PHI), one
        ask = partial(wh.quantile, PHI, where=where, every="1h", last=f"{WEEK}d")
        ours, found = _median(max(3, sizes.questions // 20), ask)
        section.add(
            f"one group, {size}, every hour of {WEEK} days ({len(found)} answers), median", ours, "ms", 200
        )


def _measure_clickhouse(section: Section, wh: Any, made: Filled) -> None:
    if find_spec("chdb") is None:
        section.text("ClickHouse was not measured: the package chdb is not installed.")
        return
    peer = ClickHouse(DeltaTable(f"{made.uri}/events").file_uris())
    name = group_name(GROUPS["middle"])
    exact = wh.quantile(PHI, where={"group": name}).value
    taken, value = _median(2, partial(peer.quantile, PHI, name))
    assert value == exact, (value, exact)
    section.add("ClickHouse quantileExact of one group, middle", taken, "ms")
    taken, estimate = _median(5, partial(peer.digest, PHI, name))
    section.add("ClickHouse t-digest view of one group, middle", taken, "ms")
    section.add("  its relative error in the value", abs(estimate / exact - 1) * 100, "%")
    peer.close()


def _measure_storage(section: Section, wh: Any) -> None:
    info = wh.info()
    (group,) = info["groups"].values()
    measure = info["measures"]["value"]
    section.add("bytes of a row in a measure's runs", measure["bytes"] / measure["rows"], "B")
    section.add("bytes of a row in a group's runs", group["bytes"] / group["rows"], "B")


def _measure_load(spark: SparkSession, section: Section, folder: Path, part: Rows, repeats: int) -> None:
    """The seconds that a group adds to a load of one step, against a plain Delta write of the same rows."""
    source = folder / "one"
    part.write(source, files=2, columns=("group",))
    frame = spark.read.parquet(str(source))
    times: dict[str, list[float]] = {"plain": [], "without": [], "with": []}
    for turn in turns_of(repeats):
        taken, _ = timed(lambda: frame.write.format("delta").mode("append").save(str(folder / "plain")))
        found = {"plain": taken}
        for kind, groups in (("without", None), ("with", ["group"])):
            uri = folder / kind
            if not uri.exists():
                warehouse.create(spark, uri, ["value"], key=None, groups=groups, time="time", schema=frame)
            found[kind], _ = timed(partial(warehouse.load, spark, uri, frame, batch=f"{turn}"))
        for kind, seconds in found.items() if turn >= 0 else ():
            times[kind].append(seconds)
    plain, without, with_group = (statistics.median(found) for found in times.values())
    section.add(f"a plain Delta write of {part.rows:,} rows", plain, "s")
    section.add("what a group adds to a load / a plain Delta write", (with_group - without) / plain, "x", 1.3)
    say(f"  load without a group {without:.1f} s, with one {with_group:.1f} s")
