"""What a key adds to a load, by shape of keys: time against a plain Delta write, and a worker's memory."""

from __future__ import annotations

import random
import shutil
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from bench.data import year
from bench.memory import Watch, greatest_worker_mb, reset_worker_peaks
from bench.report import Section, number, say, table
from bench.turns import turns_of
from tidemark import query, warehouse

# Of `key`, which is Zipf's with exponent 1.3.
SHAPES = {
    "BIGINT": "key",
    "text": "concat('https://example.org/', key)",
    "nine of ten rows in one key": "if(pmod(hash(time, value), 10) = 0, key, 7)",
    "all rows in one key": "7L",
    "no key twice": "monotonically_increasing_id() * 7919",
}


def measure(
    spark: SparkSession, folder: Path, section: Section, rows: int, repeats: int, shapes: Sequence[str]
) -> None:
    """Adds the figures to the section; `shapes` are names of SHAPES."""
    say(f"load: what keys add to a load of {rows:,} rows, {repeats} times in turn with a plain Delta write")
    part = year("lognormal", rows, 1, days=30, mixed=True)[0]
    part.write(folder / "source", files=4)
    size, lines = f"{rows / 1e6:g} M rows", []
    for shape in shapes:
        frame = spark.read.parquet(str(folder / "source")).withColumn("key", F.expr(SHAPES[shape]))
        frame.write.parquet(str(folder / "typed"))
        found = [_turn(spark, folder) for _ in turns_of(repeats)][-repeats:]
        ratio = statistics.median((keyed - plain_load) / plain for plain, plain_load, keyed, _ in found)
        section.add(f"keys on top / plain Delta write, {shape}, {size}", ratio, "x", 1.5)
        medians = [statistics.median(column) for column in zip(*found, strict=True)]
        lines.append(
            [shape, *(f"{seconds:.2f}" for seconds in medians[:3]), number(max(one[3] for one in found))]
        )
        say(f"  {shape}: plain {medians[0]:.2f} s, load {medians[1]:.2f} s, with keys {medians[2]:.2f} s")
        shutil.rmtree(folder / "typed")
    shutil.rmtree(folder / "source")
    head = ["key", "plain write (s)", "load (s)", "load with keys (s)", "greatest worker (MB)"]
    section.text(f"What a key adds to a load of {size}:\n\n" + table(head, lines))


def _turn(spark: SparkSession, folder: Path) -> tuple[float, float, float, float]:
    """Seconds of a plain write, of a load without the key, of one with it; a worker's peak (MB) in that."""
    frame = spark.read.parquet(str(folder / "typed"))
    plain = _seconds(partial(frame.write.format("delta").save, str(folder / "plain")))
    taken, peak = [], 0.0
    for key in (None, "key"):
        uri = str(folder / "warehouse")
        warehouse.create(spark, uri, ["value"], key=key, time="time", schema=frame)
        reset_worker_peaks()
        with Watch(greatest_worker_mb, 0.05) as watch:
            taken.append(_seconds(partial(warehouse.load, spark, uri, frame, batch="all")))
        if key:
            peak = watch.peak
            _assert_counts(uri, pq.read_table(folder / "typed", columns=["key"])["key"])
        shutil.rmtree(uri)
    shutil.rmtree(folder / "plain")
    return plain, taken[0], taken[1], peak


def _assert_counts(uri: str, keys: pa.ChunkedArray) -> None:
    """The most frequent keys, and some others, have the very counts."""
    counted = pc.value_counts(keys)
    names, counts = counted.field("values"), counted.field("counts")
    top = pc.select_k_unstable(counts, min(10, len(counts)), [("counts", "descending")]).to_pylist()
    asked = top + random.Random(1).sample(range(len(counts)), min(10, len(counts)))
    found = query.open(uri).frequency([names[i].as_py() for i in asked])
    assert isinstance(found, query.Answers)
    assert [one.count for one in found] == [one.in_history for one in found]
    assert [one.count for one in found] == [counts[i].as_py() for i in asked]
    assert (found[0].n, found[0].m, found[0].nulls) == (len(keys), 0, 0)


def _seconds(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
