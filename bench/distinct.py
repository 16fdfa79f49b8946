"""Part `distinct`: distinct and persistent keys: times of questions, errors, and what they cost."""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from deltalake import DeltaTable
from numpy.typing import NDArray
from pyspark.sql import SparkSession

from bench.data import DAY_US, FIRST_DAY, USERS, Rows
from bench.engines import Duck
from bench.latency import DAYS, MS, Filled, Sizes, fill, timed
from bench.report import Section, say
from bench.turns import turns_of
from tidemark import query, warehouse
from tidemark.warehouse.integrity.sealed_files import SealedFile
from tidemark.warehouse.projections.distinct_marks import DistinctCollector
from tidemark.warehouse.projections.persistent_marks import PersistentCollector
from tidemark.warehouse.snapshots.snapshot_reader import open_snapshot

WEEK = 7
MONTH = 30
STOP = FIRST_DAY + DAYS + 1  # the live day is the newest
Edges = tuple[datetime, datetime]


def run(spark: SparkSession, work: Path, sizes: Sizes) -> Section:
    """Measures and returns the section."""
    section = Section("distinct", "Distinct keys: how many, which stay, which are new")
    folder = work / "distinct"
    made = fill(spark, folder, "lognormal", sizes.rows, sizes, key="user")
    wh = query.open(made.uri)
    truth = Truth(made)
    errors = _assert_answers(wh, truth)
    say("    answers about distinct keys are right")
    section.add("relative error, median of 40 windows", statistics.median(errors) * 100, "%", 1)
    section.add("relative error, greatest of 40 windows", max(errors) * 100, "%")
    _assert_persistent(wh, truth)
    _measure(section, wh, made, truth, max(3, sizes.questions // 10))
    _measure_persistent(section, wh, made, truth, max(3, sizes.questions // 10))
    _measure_size(section, made)
    _measure_load(spark, section, folder, made.history[0], sizes.repeats)
    section.text(
        f"{made.rows:,} rows of {USERS:,} visitors in {sizes.runs} runs, each with its own days and 1 % late "
        f"rows, and a live side of {sizes.live_batches} batches. Warm, each question about another window. "
        "DuckDB counts in the files of `events`."
    )
    shutil.rmtree(folder)
    return section


class Truth:
    """The visitors of each day, as numpy knows them."""

    def __init__(self, made: Filled) -> None:
        self._parts = [*made.history, *made.live]

    def visitors(self, first: int, stop: int) -> NDArray[np.bool_]:
        """Which visitors have rows on the days first..stop, the end exclusive; shape (USERS,)."""
        there = np.zeros(USERS, bool)
        for part in self._parts:
            if part.earliest < stop and part.days[1] > first:
                days = part.times() // DAY_US
                there[part.users()[(days >= first) & (days < stop)]] = True
        return there

    def days_of_visitors(self, first: int, stop: int) -> NDArray[np.int64]:
        """On how many of the days first..stop, the end exclusive, each visitor has rows; shape (USERS,)."""
        found = np.zeros(USERS, np.int64)
        for day in range(first, stop):
            found += self.visitors(day, day + 1)
        return found


def _between(first: int, stop: int) -> Edges:
    start = datetime(1970, 1, 1, tzinfo=UTC)
    return start + timedelta(days=first), start + timedelta(days=stop)


def _assert_answers(wh: Any, truth: Truth) -> list[float]:
    """Every certain bound holds, exact answers are exact; the relative errors of 40 windows."""
    random, errors, missed = np.random.default_rng(1), [], 0
    windows = [(FIRST_DAY, STOP), *((STOP - days, STOP) for days in (1, WEEK, MONTH, 90))]
    for _ in range(35):
        first = int(random.integers(FIRST_DAY, STOP - 1))
        windows.append((first, int(random.integers(first + 1, STOP + 1))))
    for first, stop in windows:
        answer = wh.distinct(between=_between(first, stop))
        right = int(truth.visitors(first, stop).sum())
        assert answer.least <= right <= answer.most, (answer, right)
        missed += not answer.lo <= right <= answer.hi
        errors.append(abs(answer.count / right - 1))
    assert missed <= 4, f"{missed} of {len(windows)} windows lie outside of bounds of 99 %"
    a, b = (STOP - WEEK, STOP), (STOP - 2 * WEEK, STOP - WEEK)
    in_a, in_b = truth.visitors(*a), truth.visitors(*b)
    rights = [int(part.sum()) for part in (in_a & in_b, in_a & ~in_b, in_b & ~in_a)]
    for mode in ("approximate", "exact"):
        found = wh.overlap(_between(*a), _between(*b), mode=mode)
        for number, right in zip(found.parts.values(), rights, strict=True):
            assert number.least <= right <= number.most, (mode, found, rights)
            assert mode == "approximate" or number.count == right
    return errors


def _assert_persistent(wh: Any, truth: Truth) -> None:
    """No persistent visitor is missed, the bounds hold, and exact answers are exact; also of rare ones."""
    first, least = STOP - MONTH, MONTH * 8 // 10
    days = truth.days_of_visitors(first, STOP)
    right = set(np.flatnonzero(days >= least).tolist())
    window = _between(first, STOP)
    found = {answer.value: answer for answer in wh.persistent(0.8, between=window)}
    assert right <= set(found), f"{len(right - set(found))} persistent visitors are missing"
    for visitor, answer in found.items():
        assert answer.lo <= days[visitor] <= answer.hi, (visitor, answer, days[visitor])
        assert not answer.certain or visitor in right
    exact = wh.persistent(0.8, between=window, mode="exact")
    assert {answer.value: answer.slots for answer in exact} == {one: days[one] for one in right}
    say(f"    {len(right):,} visitors come on {least} of {MONTH} days, {len(found):,} may do so")


def _median(turns: int, work: Callable[[int], Any]) -> float:
    """The median of the times in milliseconds; the first turn is not counted."""
    return statistics.median([timed(partial(work, turn))[0] for turn in range(turns + 1)][1:]) * MS


def _measure(section: Section, wh: Any, made: Filled, truth: Truth, turns: int) -> None:
    duck = Duck(DeltaTable(f"{made.uri}/events").file_uris())
    # Other ends, all after the newest row: the same rows, but no answer that is still in memory.
    everything = _median(turns, lambda turn: wh.distinct(between=_between(FIRST_DAY, STOP + turn)))
    week = _median(turns, lambda turn: wh.distinct(between=_between(STOP - WEEK, STOP + turn)))
    for name, since, ours, limit, ratio in (
        ("all time", FIRST_DAY, everything, 5, 200),
        ("last 7 days", STOP - WEEK, week, 10, 20),
    ):
        section.add(f"distinct, {name}, median", ours, "ms", limit)
        right = int(truth.visitors(since, STOP).sum())
        assert duck.distinct("user", "time", since * DAY_US) == right
        theirs = _median(2, partial(_count, duck, since))
        section.add(f"DuckDB count(DISTINCT) / distinct, {name}", theirs / ours, "x", ratio, at_least=True)
    months = min(turns, DAYS // MONTH - 1)
    daily = _median(
        months,
        lambda turn: wh.distinct(
            between=_between(STOP - (turn + 1) * MONTH, STOP - turn * MONTH), every="1d"
        ),
    )
    section.add("30 daily numbers, median", daily, "ms", 30)
    weeks = min(turns, DAYS // WEEK - 2)
    shared = _median(
        weeks,
        lambda turn: wh.overlap(
            _between(STOP - (turn + 1) * WEEK, STOP - turn * WEEK),
            _between(STOP - (turn + 2) * WEEK, STOP - (turn + 1) * WEEK),
        ),
    )
    section.add("overlap of two weeks, median", shared, "ms", 20)
    fresh = _median(weeks, lambda turn: wh.new_keys(between=_between(STOP - turn - 1, STOP - turn)))
    section.add("new keys of a day, median", fresh, "ms")
    again = _median(turns, lambda _: wh.distinct())
    section.add("distinct, all time, asked again", again, "ms")
    exact = _median(1, lambda _: wh.distinct(mode="exact"))
    section.add("distinct, all time, exact", exact, "ms")
    section.add("decoded samples and rows in memory", wh.info()["memory"]["used"] / 1e6, "MB")


def _measure_persistent(section: Section, wh: Any, made: Filled, truth: Truth, turns: int) -> None:
    """The last 30 days, asked anew each time: answers are not cached, the listings of runs are."""
    duck = Duck(DeltaTable(f"{made.uri}/events").file_uris())
    window = _between(STOP - MONTH, STOP)
    ours = _median(turns, lambda _: wh.persistent(0.8, between=window))
    section.add("persistent(0.8), last 30 days, median", ours, "ms", 200)
    least, since = MONTH * 8 // 10, (STOP - MONTH) * DAY_US
    right = int((truth.days_of_visitors(STOP - MONTH, STOP) >= least).sum())
    assert duck.persistent("user", "time", since, least) == right
    theirs = _median(2, lambda _: duck.persistent("user", "time", since, least))
    section.add("DuckDB GROUP BY HAVING / persistent, last 30 days", theirs / ours, "x", 20, at_least=True)
    exact = _median(2, lambda _: wh.persistent(0.8, between=window, mode="exact"))
    section.add("persistent(0.8), last 30 days, exact", exact, "ms")
    rare = _median(turns, lambda _: wh.persistent(0.8, between=window, most=60))
    section.add("persistent(0.8) with at most 60 rows, last 30 days", rare, "ms")


def _count(duck: Duck, since: int, _: int) -> int:
    return duck.distinct("user", "time", since * DAY_US)


def _measure_size(section: Section, made: Filled) -> None:
    """The bytes of samples in the ledger, and of samples and listings in the marks."""
    view = open_snapshot(made.uri).current().keys_view()
    ledger, field = DeltaTable(f"{made.uri}/ledger").file_uris(), view.projection.ledger_field
    sizes = [
        len(keys[field]["sample"])
        for file in ledger
        for keys in pq.read_table(file.removeprefix("file://"), columns=["keys"]).column("keys").to_pylist()
        if keys[field] is not None
    ]
    section.add("a sample in a ledger row, greatest", max(sizes) / 1e3, "kB", 80)
    samples = [marks.distinct() for marks in view.runs]
    greatest = max(len(sample.sample.to_bytes()) for sample in samples)
    section.add("a sample in the marks of a run, greatest", greatest / 1e6, "MB")
    marks = DeltaTable(f"{made.uri}/{view.projection.marks_table}").file_uris()
    both = max(_bytes_of_groups(file, ("distinct", "persistent")) for file in marks)
    section.add("sample and persistent keys in the marks of a run, greatest", both / 1e6, "MB", 1)


def _bytes_of_groups(file: str, wanted: Sequence[str]) -> int:
    """The bytes of some row groups of a marks file."""
    marks = SealedFile(pq.ParquetFile(file.removeprefix("file://")))
    groups = [marks.metadata.row_group(i) for i, name in enumerate(marks.names) if name in wanted]
    return sum(group.column(i).total_compressed_size for group in groups for i in range(group.num_columns))


def _measure_load(spark: SparkSession, section: Section, folder: Path, part: Rows, repeats: int) -> None:
    """What samples and persistent keys add to a load, against a plain write of the same rows.

    Both loads run in this process, where the collectors can be left out. Their difference is small, so it is
    one of processor time, which other work on the machine hardly changes.
    """
    source = folder / "one"
    part.write(source, files=2, columns=("user",))
    frame = spark.read.parquet(str(source))
    plain, added = [], []
    adds = {kind: kind.add for kind in (DistinctCollector, PersistentCollector)}
    for turn in turns_of(repeats):
        plain.append(timed(lambda: frame.write.format("delta").mode("append").save(str(folder / "plain")))[0])
        seconds = {}
        for kind in ("without", "with"):
            uri = folder / kind
            if not uri.exists():
                warehouse.create(spark, uri, ["value"], key="user", time="time", schema=frame)
            for collector, add in adds.items():
                collector.add = add if kind == "with" else _nothing  # type: ignore[method-assign]
            began = time.process_time()
            warehouse.load(None, uri, source, batch=f"{turn}")
            seconds[kind] = time.process_time() - began
        added.append(seconds["with"] - seconds["without"])
    write, more = (statistics.median(taken[-repeats:]) for taken in (plain, added))
    section.add(f"a plain Delta write of {part.rows:,} rows", write, "s")
    section.add(
        "what samples and persistent keys add to a load / a plain Delta write", more / write, "x", 0.1
    )
    say(f"    samples and persistent keys add {more:.2f} s of processor time")


def _nothing(*_: Any, **__: Any) -> None:
    """Stands in for a collector."""
