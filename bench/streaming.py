"""Part `stream`: how many events a second, how fresh, and what many live batches cost.

The peer of the throughput is the same foreachBatch over the same files with a plain Delta append in it, in
the same session. Both take one file a batch.
"""

from __future__ import annotations

import shutil
import statistics
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql import DataFrame, SparkSession

from bench.data import DAY_US, FIRST_DAY, Oracle, Rows
from bench.memory import greatest_worker_mb, own_mb
from bench.report import Section, say
from tidemark import query, stream, warehouse
from tidemark.sketches import GK
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.ledger import ledger_table
from tidemark.warehouse.ledger.batch_summaries import MeasureSummary, TickSummary

PHIS = [0.001, 0.1, 0.5, 0.9, 0.999]


@dataclass(frozen=True, slots=True)
class Sizes:
    """Rows of a batch and batches (throughput), seconds (freshness), live batches, batches (memory)."""

    batch_rows: int = 200_000
    batches: int = 25
    seconds: int = 60
    live: int = 10_000
    small: tuple[int, int] = (100, 400)


def run(spark: SparkSession, work: Path, sizes: Sizes) -> Section:
    """Measures and returns the section."""
    section = Section("stream", "Streams: events a second, freshness, many live batches")
    folder = work / "stream"
    _throughput(spark, folder / "throughput", section, sizes)
    _freshness(spark, folder / "freshness", section, sizes)
    _memory(spark, folder / "memory", section, sizes)
    _many_batches(spark, folder / "many", section, sizes)
    shutil.rmtree(folder)
    return section


def _rows(step: int, count: int) -> Rows:
    return Rows("lognormal", step, count, (FIRST_DAY, FIRST_DAY + 1), FIRST_DAY - 5)


def _put(part: Rows, made: Path, target: Path) -> None:
    """The rows as one file, which is there whole or not at all."""
    part.write(made)
    (made / "0.parquet").rename(target)


def _create(spark: SparkSession, folder: Path, source: Path, key: str | None = "key") -> str:
    uri = str(folder / "warehouse")
    frame = spark.read.parquet(str(source))
    warehouse.create(spark, uri, ["value"], key=key, time="time", schema=frame)
    return uri


def _streamed(spark: SparkSession, source: Path) -> DataFrame:
    schema = spark.read.parquet(str(source)).schema
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(source))


def _seconds(running: Any) -> list[float]:
    """What each batch of the stream took, in order."""
    running.awaitTermination()
    found = [dict(one) for one in running.recentProgress]
    return [one["durationMs"]["triggerExecution"] / 1000 for one in found if one["numInputRows"]]


def _throughput(spark: SparkSession, folder: Path, section: Section, sizes: Sizes) -> None:
    say(f"stream: {sizes.batches} batches of {sizes.batch_rows:,} events, and the same with a plain append")
    source = folder / "source"
    parts = [_rows(number, sizes.batch_rows) for number in range(sizes.batches)]
    source.mkdir(parents=True)
    for part in parts:
        _put(part, folder / "made", source / f"{part.step:05d}.parquet")
    uri = _create(spark, folder, source)

    def append(rows: DataFrame, _: int) -> None:
        rows.write.format("delta").mode("append").save(str(folder / "plain"))

    plain = (
        _streamed(spark, source)
        .writeStream.foreachBatch(append)
        .option("checkpointLocation", str(folder / "c1"))
        .trigger(availableNow=True)
    )
    theirs = _seconds(plain.start())
    ours = _seconds(
        stream.start(
            _streamed(spark, source),
            uri,
            source="s",
            checkpoint=folder / "c2",
            trigger="available now",
            ahead=None,
        )
    )
    oracle = Oracle.of(parts)
    for answer in query.open(uri).quantile(PHIS, mode="exact"):
        assert answer.value == oracle.quantile(answer.phi), answer
    say("  answers of the stream are right")
    warm = slice(3, None)
    rate, peer = (sizes.batch_rows / statistics.median(taken[warm]) for taken in (ours, theirs))
    section.add("events a second", rate, "/s", 100_000, at_least=True)
    section.add("events a second / a plain Delta append's", rate / peer, "x", 0.7, at_least=True)
    mine, other = (statistics.median(taken[warm]) for taken in (ours, theirs))
    section.text(
        f"{sizes.batches} batches of {sizes.batch_rows:,} events from files, one a batch: median "
        f"{mine:.2f} s a batch, with a plain append {other:.2f} s."
    )


def _freshness(spark: SparkSession, folder: Path, section: Section, sizes: Sizes) -> None:
    """10,000 events a second in a file each fifth of a second; a reader looks until it sees them."""
    say(f"stream: freshness at 10,000 events a second for {sizes.seconds} s")
    incoming, first = folder / "incoming", folder / "first"
    incoming.mkdir(parents=True)
    _rows(0, 2_000).write(first)
    uri = _create(spark, folder, first)
    schema = spark.read.parquet(str(first)).schema
    events = spark.readStream.schema(schema).parquet(str(incoming))
    running = stream.start(events, uri, source="s", checkpoint=folder / "c", ahead=None)
    produced: list[float] = []

    def produce() -> None:
        began = time.perf_counter()
        for number in range(sizes.seconds * 5):
            time.sleep(max(0.0, began + number / 5 - time.perf_counter()))
            _put(_rows(number, 2_000), folder / "made", incoming / f"{number:06d}.parquet")
            produced.append(time.perf_counter())

    producer = threading.Thread(target=produce)
    producer.start()
    wh = query.open(uri)
    visible: list[float] = []
    while len(visible) < sizes.seconds * 5:
        try:
            seen = wh.quantile(0.5).N // 2_000
        except query.EmptyWindow:
            seen = 0
        visible += [time.perf_counter()] * (seen - len(visible))
        time.sleep(0.01)
    producer.join()
    running.stop()
    waited = (np.array(visible) - np.array(produced))[len(produced) // 10 :]  # the first ones warm it
    section.add("from produced to visible in an answer, median", float(np.median(waited)), "s")
    section.add("from produced to visible in an answer, p99", float(np.quantile(waited, 0.99)), "s")


def _memory(spark: SparkSession, folder: Path, section: Section, sizes: Sizes) -> None:
    """An hour has 360 batches of ten seconds. They come without a pause here."""
    few, many = sizes.small
    say(f"stream: memory after {few} and {many} batches of 1,000 events")
    source = folder / "source"
    source.mkdir(parents=True)
    for number in range(many):
        _put(_rows(number, 1_000), folder / "made", source / f"{number:05d}.parquet")
    uri, found = _create(spark, folder, source), {}

    def look(report: stream.BatchReport) -> None:
        if report.batch + 1 in (few, many):
            found[report.batch + 1] = [own_mb(), greatest_worker_mb(), _java_mb(spark)]

    running = stream.start(
        _streamed(spark, source),
        uri,
        source="s",
        checkpoint=folder / "c",
        trigger="available now",
        ahead=None,
        progress=look,
    )
    running.awaitTermination()
    for i, of in enumerate(("the driver's Python", "the greatest Python worker", "the driver's Java heap")):
        before, after = found[few][i], found[many][i]
        section.add(f"memory of {of}, {many} batches / {few} batches", after / before, "x", 1.2)
        section.text(f"Memory of {of}: {before:.0f} MB after {few} batches, {after:.0f} MB after {many}.")


def _java_mb(spark: SparkSession) -> float:
    """What Java's heap holds once it has been cleared of garbage, in MB."""
    java: Any = spark.sparkContext._jvm  # noqa: SLF001  Java's memory is not in the Python API
    java.java.lang.System.gc()
    runtime = java.java.lang.Runtime.getRuntime()
    return float(runtime.totalMemory() - runtime.freeMemory()) / 2**20


def _many_batches(spark: SparkSession, folder: Path, section: Section, sizes: Sizes) -> None:
    """Batches are put into the ledger as a stream does it, without Spark's part."""
    say(f"stream: {sizes.live:,} live batches")
    source = folder / "history"
    history = _rows(0, 100_000)
    history.write(source)
    uri = _create(spark, folder, source, key=None)
    warehouse.load(spark, uri, spark.read.parquet(str(source)), "history")
    alone = _opened(uri)
    store = Store.from_uri(uri)
    eps = warehouse.open_snapshot(uri).options.eps
    rng = np.random.default_rng(9)
    values = [history.values()]
    for number in range(sizes.live):
        rows = np.sort(rng.lognormal(3.0, 2.0, 100))
        values.append(rows)
        times = (FIRST_DAY * DAY_US, FIRST_DAY * DAY_US + 1)
        sketch = GK.from_sorted(rows, ledger_table.level_eps(eps, 0), np.float64)
        summary = TickSummary(FIRST_DAY, len(rows), times, (MeasureSummary("value", 0, 0, sketch),))
        assert ledger_table.append_batch(store, eps, "s", number, [summary])
    ordered = np.sort(np.concatenate(values))
    # memory=0: the summaries are in the ledger, but their rows are not in `events`.
    for answer in query.open(uri, memory=0).quantile(PHIS):
        le, lt = (int(np.searchsorted(ordered, answer.value, side)) for side in ("right", "left"))
        r = max(1, int(np.ceil(answer.phi * len(ordered))))
        assert len(ordered) == answer.N
        assert max(0, r - le, lt + 1 - r) <= answer.error_bound <= eps * answer.m, answer
        assert answer.rank_lo <= le <= answer.rank_hi, answer
        assert answer.low <= ordered[r - 1] <= answer.high, answer
    say("  answers of many batches keep their promise")
    section.add(f"opening and answering, {sizes.live:,} live batches more", _opened(uri) - alone, "s", 1.0)


def _opened(uri: str) -> float:
    def once() -> float:
        began = time.perf_counter()
        query.open(uri, memory=0).quantile(0.5)
        return time.perf_counter() - began

    return statistics.median(once() for _ in range(5))
