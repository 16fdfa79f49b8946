"""Part `keys`: how long questions about keys take over history and a live side, against DuckDB."""

from __future__ import annotations

import math
import random
import shutil
import statistics
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from deltalake import DeltaTable
from numpy.typing import NDArray
from pyspark.sql import SparkSession

from bench.data import DAY_US, FIRST_DAY, Rows
from bench.engines import Duck
from bench.latency import DAYS, MS, Filled, Sizes, fill, timed
from bench.report import Section, say
from tidemark import query

PHI = 0.001
MOST = 1_000_000  # the greatest key, see Rows.keys


def run(spark: SparkSession, work: Path, sizes: Sizes) -> Section:
    """Measures and returns the section."""
    section = Section("keys", "Keys: frequencies and heavy hitters")
    folder = work / "keys"
    made = fill(spark, folder, "lognormal", sizes.rows, sizes, key="key")
    wh = query.open(made.uri)
    past, live = (counts(parts) for parts in (made.history, made.live))
    _assert_answers(wh, past, live)
    say("  answers about keys are right")
    _measure(section, wh, made, past + live, sizes)
    section.text(
        f"{made.rows:,} rows with Zipf's keys (exponent 1.3) in {sizes.runs} runs, and a live side of "
        f"{sizes.live_batches} batches. Warm, each question with another key; DuckDB counts the rows of one "
        "key in the files of `events`."
    )
    shutil.rmtree(folder)
    return section


def counts(parts: Sequence[Rows], window: tuple[int, int] | None = None) -> NDArray[np.int64]:
    """The rows of each key; `window` is a range of days, the end exclusive."""
    counts = np.zeros(MOST + 1, dtype=np.int64)
    for part in parts:
        keys = part.keys()
        if window is not None:
            days = part.times() // DAY_US
            keys = keys[(days >= window[0]) & (days < window[1])]
        counts += np.bincount(keys, minlength=MOST + 1)
    return counts


def _keys(seed: int, count: int) -> list[int]:
    """Keys of all frequencies."""
    chance = random.Random(seed)
    return [int(10 ** chance.uniform(0, 6)) for _ in range(count)]


def _assert_answers(wh: Any, past: NDArray[np.int64], live: NDArray[np.int64]) -> None:
    asked = _keys(1, 300)
    for answer in wh.frequency(asked, mode="exact"):
        assert answer.count == answer.lo == answer.hi == past[answer.value] + live[answer.value], answer
    failed = 0
    for answer in wh.frequency(asked):
        true = past[answer.value] + live[answer.value]
        assert true <= answer.hi, answer
        assert answer.in_history == past[answer.value], answer
        failed += not answer.lo <= true or abs(answer.count - true) > answer.eps * answer.m
    assert failed <= (1 - answer.confidence) * len(asked) + 1, failed
    total = past + live
    least = math.ceil(PHI * total.sum())
    found = {one.value: one for one in wh.heavy_hitters(PHI)}
    assert set(np.flatnonzero(total >= least).tolist()) <= set(found)
    assert all(total[one.value] >= least for one in found.values() if one.certain)
    assert all(one.lo <= total[one.value] <= one.hi for one in found.values())


def _measure(section: Section, wh: Any, made: Filled, total: NDArray[np.int64], sizes: Sizes) -> None:
    times: dict[str, list[float]] = {}

    def ask(kind: str, work: Any) -> Any:
        taken, answer = timed(work)
        times.setdefault(kind, []).append(taken)
        return answer

    for turn, key in enumerate(_keys(2, sizes.questions)):
        ask("one", partial(wh.frequency, key))
        if turn % 10 == 0:
            ask("many", partial(wh.frequency, _keys(turn, 100)))
            ask("window", partial(wh.frequency, key, last="7d"))
            ask("heavy", partial(wh.heavy_hitters, PHI))
            ask("top", partial(wh.top, 20))
    median = {kind: statistics.median(found) * MS for kind, found in times.items()}
    section.add("a frequency, median", median["one"], "ms", 15)
    section.add("a frequency, p90", statistics.quantiles(times["one"], n=10)[-1] * MS, "ms")
    section.add("100 frequencies at once, median", median["many"], "ms")
    section.add("a frequency of the last 7 days, median", median["window"], "ms")
    section.add(f"heavy hitters at {PHI}, median", median["heavy"], "ms", 200)
    section.add("the 20 most frequent keys, median", median["top"], "ms")
    stop = FIRST_DAY + DAYS + 1
    week = counts([*made.history, *made.live], (stop - 7, stop))
    answer = wh.frequency(1, last="7d")
    assert answer.lo <= week[1] <= answer.hi, answer
    duck, duck_times = Duck(DeltaTable(f"{made.uri}/events").file_uris()), []
    for turn, key in enumerate(_keys(3, 4)):
        taken, rows = timed(partial(duck.count, "key", key))
        assert rows == total[key]
        if turn:
            duck_times.append(taken)
    ratio = statistics.median(duck_times) * MS / median["one"]
    section.add("DuckDB count(*) where key = ... / a frequency", ratio, "x", 100, at_least=True)
