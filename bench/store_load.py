"""Loads and streams into an object store, against a plain Delta write of the same rows to the same store.

The peer is delta-rs' `write_deltalake`, because Spark has no file system for the store without Hadoop's. All
take turns. Requests and rounds, the longest chain of requests that wait for one another, are those of the
last turn.
"""

from __future__ import annotations

import shutil
import statistics
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import write_deltalake
from pyspark.sql import DataFrame, SparkSession

from bench.data import FIRST_DAY, Oracle, Rows, year
from bench.report import Section, number, say, table
from bench.store_spent import Spent, spent_on
from bench.turns import turns_of
from tests.stores.server import Server
from tidemark import query, stream, warehouse

PHIS = [0.0, 0.001, 0.1, 0.5, 0.9, 0.999, 1.0]
LATENCIES = (0.0, 0.025)  # seconds that the gate adds to each request


@dataclass(frozen=True, slots=True)
class Sizes:
    """Rows of a bulk load and of a small one, turns of each; rows of a batch, and batches."""

    rows: int
    small: int = 10_000
    repeats: int = 3
    batch_rows: int = 200_000
    batches: int = 15


def measure(spark: SparkSession, server: Server, folder: Path, section: Section, sizes: Sizes) -> None:
    """Adds the figures to the section."""
    lines = _load(server, section, sizes.rows, 0.0, sizes.repeats)
    lines += _spark_load(spark, server, folder, section, sizes)
    lines += [
        line for latency in LATENCIES for line in _load(server, section, sizes.small, latency, sizes.repeats)
    ]
    head = [
        "rows",
        "ms of latency",
        "what",
        "seconds, median",
        "processor: own",
        "server's",
        "requests",
        "rounds",
    ]
    section.text("Loads into new warehouses with one measure and no key:\n\n" + table(head, lines))
    lines = [line for latency in LATENCIES for line in _batches(server, section, sizes, latency)]
    lines += _spark_stream(spark, server, folder, section, sizes)
    section.text(
        "Batches, each a commit, into a warehouse with one measure and a key:\n\n" + table(head, lines)
    )


def _load(server: Server, section: Section, rows: int, latency: float, repeats: int) -> list[list[Any]]:
    """New warehouses, each loaded at once in this process."""
    say(
        f"stores: loads of {rows:,} rows at {1000 * latency:g} ms, {repeats} times in turn with a plain write"
    )
    parts = year("lognormal", rows, 1, days=30, mixed=True)
    given = _arrow(parts[0])

    def write(uri: str) -> None:
        write_deltalake(uri, given, storage_options=server.options)

    def load(uri: str) -> None:
        warehouse.load(None, uri, given, batch="all", storage_options=server.options)

    found = _in_turn(server, (write, load), given.schema, Oracle.of(parts), latency, repeats)
    size = f"{rows:,} rows, {1000 * latency:g} ms of latency"
    section.add(f"whole load / plain write, {size}", _ratio(*found), "x", 2.6)
    names = ("plain write", "load")
    return [_line(rows, latency, name, spent) for name, spent in zip(names, found, strict=True)]


def _spark_load(
    spark: SparkSession, server: Server, folder: Path, section: Section, sizes: Sizes
) -> list[list[Any]]:
    """The same by Spark from Parquet files; the peer's rows go from Spark to delta-rs in this process."""
    say(f"stores: loads of {sizes.rows:,} rows by Spark")
    parts = year("lognormal", sizes.rows, 1, days=30, mixed=True)
    parts[0].write(folder / "source", files=4)
    frame = spark.read.parquet(str(folder / "source"))

    def write(uri: str) -> None:
        write_deltalake(uri, frame.toArrow(), storage_options=server.options)

    def load(uri: str) -> None:
        warehouse.load(spark, uri, frame, batch="all", storage_options=server.options)

    schema = _arrow(parts[0]).schema
    found = _in_turn(server, (write, load), schema, Oracle.of(parts), 0.0, sizes.repeats)
    shutil.rmtree(folder)
    section.add(
        f"whole load by Spark / plain write of Spark's rows, {sizes.rows:,} rows", _ratio(*found), "x", 2.6
    )
    names = ("plain write of Spark's rows", "load by Spark")
    return [_line(sizes.rows, 0.0, name, spent) for name, spent in zip(names, found, strict=True)]


def _in_turn(
    server: Server,
    write_and_load: tuple[Callable[[str], None], Callable[[str], None]],
    schema: pa.Schema,
    oracle: Oracle,
    latency: float,
    repeats: int,
) -> tuple[list[Spent], list[Spent]]:
    """Plain writes and loads, each into a new place, without the first of each, which warms both."""
    plain, mine = [], []
    for _ in turns_of(repeats):
        write, load = write_and_load
        plain.append(spent_on(server, latency, partial(write, _new(server))))
        uri = _new(server)
        _create(server, uri, schema)
        mine.append(spent_on(server, latency, partial(load, uri)))
        _assert_same(server, uri, oracle)
    say("  answers of every load are right")
    return plain[-repeats:], mine[-repeats:]


def _ratio(plain: list[Spent], mine: list[Spent]) -> float:
    return statistics.median(ours.seconds / theirs.seconds for theirs, ours in zip(plain, mine, strict=True))


def _batches(server: Server, section: Section, sizes: Sizes, latency: float) -> list[list[Any]]:
    """Batches appended in this process, in turn with plain appends."""
    say(f"stores: {sizes.batches} batches of {sizes.batch_rows:,} rows at {1000 * latency:g} ms")
    parts = [_batch(step, sizes.batch_rows) for step in range(sizes.batches)]
    uri, plain_uri = _new(server), _new(server)
    _create(server, uri, _arrow(parts[0]).schema, "key")
    plain, mine = [], []
    for step, part in enumerate(parts):
        given = _arrow(part)
        write = partial(write_deltalake, plain_uri, given, mode="append", storage_options=server.options)
        plain.append(spent_on(server, latency, write))
        append = partial(
            stream.append, None, uri, given, source="s", batch=step, storage_options=server.options
        )
        mine.append(spent_on(server, latency, append))
    _assert_same(server, uri, Oracle.of(parts), mode="exact")
    say("  answers of the batches are right")
    warm = slice(min(3, sizes.batches - 1), None)
    rate = statistics.median(
        theirs.seconds / ours.seconds for theirs, ours in zip(plain[warm], mine[warm], strict=True)
    )
    name = f"events a second of `append` / of plain appends, {1000 * latency:g} ms of latency"
    section.add(name, rate, "x", 0.7, at_least=True)
    return [
        _line(sizes.batch_rows, latency, name, spent[warm])
        for name, spent in (("plain append", plain), ("append", mine))
    ]


def _spark_stream(
    spark: SparkSession, server: Server, folder: Path, section: Section, sizes: Sizes
) -> list[list[Any]]:
    """A stream of Spark from files, one a batch; the peer's batches go through delta-rs."""
    say(f"stores: a stream of Spark, {sizes.batches} batches of {sizes.batch_rows:,} rows")
    parts = [_batch(step, sizes.batch_rows) for step in range(sizes.batches)]
    (folder / "source").mkdir(parents=True)
    for part in parts:
        pq.write_table(_arrow(part), folder / "source" / f"{part.step:05d}.parquet")
    source = str(folder / "source")
    schema = spark.read.parquet(source).schema
    events = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(source)
    uri, plain_uri = _new(server), _new(server)
    _create(server, uri, _arrow(parts[0]).schema, "key")

    def append(rows: DataFrame, _: int) -> None:
        write_deltalake(plain_uri, rows.toArrow(), mode="append", storage_options=server.options)

    writer = events.writeStream.foreachBatch(append).trigger(availableNow=True)
    plain = _seconds(writer.option("checkpointLocation", str(folder / "plain")).start())
    running = stream.start(
        events,
        uri,
        source="s",
        checkpoint=folder / "ours",
        trigger="available now",
        storage_options=server.options,
        ahead=None,
    )
    mine = _seconds(running)
    _assert_same(server, uri, Oracle.of(parts), mode="exact")
    say("  answers of the stream are right")
    shutil.rmtree(folder)
    warm = slice(min(3, sizes.batches - 1), None)
    medians = [statistics.median(taken[warm]) for taken in (plain, mine)]
    name = "events a second of a stream of Spark / of plain appends in it"
    section.add(name, medians[0] / medians[1], "x", 0.7, at_least=True)
    return [
        [f"{sizes.batch_rows:,}", 0, name, f"{median:.3g}", "", "", "", ""]
        for name, median in zip(("plain append in Spark", "stream of Spark"), medians, strict=True)
    ]


def _seconds(running: Any) -> list[float]:
    """What each batch of the stream took, in order."""
    running.awaitTermination()
    found = [dict(one) for one in running.recentProgress]
    return [one["durationMs"]["triggerExecution"] / 1000 for one in found if one["numInputRows"]]


def _batch(step: int, rows: int) -> Rows:
    return Rows("lognormal", step, rows, (FIRST_DAY, FIRST_DAY + 1), FIRST_DAY - 5)


def _arrow(part: Rows) -> pa.Table:
    """The rows as a table of time, value and key."""
    times = pa.array(part.times()).cast(pa.timestamp("us", tz="UTC"))
    return pa.table({"time": times, "value": part.values(), "key": part.keys()})


def _new(server: Server) -> str:
    return server.address(uuid.uuid4().hex)


def _create(server: Server, uri: str, schema: pa.Schema, key: str | None = None) -> None:
    warehouse.create(
        None, uri, ["value"], key=key, time="time", schema=schema, storage_options=server.options
    )


def _line(rows: int, latency: float, name: str, found: list[Spent]) -> list[Any]:
    medians = [
        statistics.median(seconds)
        for seconds in zip(*((one.seconds, one.own, one.servers) for one in found), strict=True)
    ]
    return [
        f"{rows:,}",
        f"{1000 * latency:g}",
        name,
        *map(number, medians),
        found[-1].requests,
        found[-1].rounds,
    ]


def _assert_same(server: Server, uri: str, oracle: Oracle, **how: Any) -> None:
    """The warehouse holds the very rows: its quantiles are exact."""
    for answer in query.open(uri, server.options).quantile(PHIS, **how):
        assert len(oracle.values) == answer.N, answer
        assert answer.value == oracle.quantile(answer.phi), answer
