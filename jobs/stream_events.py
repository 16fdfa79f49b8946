"""Streams events into a warehouse's live ledger, until it is told to stop.

    spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0
        jobs/stream_events.py --warehouse W --source kafka --bootstrap HOST:PORT --topic clicks --format json
    spark-submit jobs/stream_events.py --warehouse W --source files --path incoming --format csv
    spark-submit jobs/stream_events.py --warehouse W --source delta --path table

Records that do not parse, and events from the far future, go to the table `rejected` with the reason. Run
again it goes on where it stopped, and a batch that was in work when it crashed counts once. SIGTERM and
Ctrl-C end it after the batch in work.

Exit codes: 0 stopped or done, 2 bad usage or input (nothing was changed), 1 anything else.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import functions as F
from rich.console import Console

import query
import stream
import warehouse
from jobs.inputs import as_input_error
from jobs.session import spark_session
from stream.start import AVAILABLE_NOW, DEFAULT_AHEAD, BatchReport
from warehouse.errors import InputError, TidemarkError, told_in
from warehouse.storage import Store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from warehouse.options import Options

_LOOK_SECONDS = 1
_STOP_SECONDS = 600  # for the batch in work, when the process is told to end
_BEFORE_SPARK = 100  # Spark's own hook has the priority 40


def parser() -> argparse.ArgumentParser:
    """The job's arguments."""
    args = argparse.ArgumentParser(
        prog="stream_events.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    args.add_argument("--warehouse", required=True, metavar="PATH", help="the warehouse's folder or address")
    args.add_argument(
        "--source", required=True, choices=["kafka", "files", "delta"], help="where events come from"
    )
    args.add_argument("--name", help="the stream's name in the warehouse (default: the topic or the folder)")
    args.add_argument(
        "--checkpoint", metavar="PATH", help="this stream's own folder (default: below the warehouse)"
    )
    args.add_argument("--bootstrap", metavar="HOST:PORT", help="Kafka's servers")
    args.add_argument("--topic", help="Kafka's topic")
    args.add_argument("--path", metavar="PATH", help="the folder that files come into, or the Delta table")
    args.add_argument("--format", choices=["json", "csv"], default="json", help="of a record (default json)")
    args.add_argument("--columns", metavar="A,B,C", help="CSV's fields (default: the warehouse's columns)")
    args.add_argument(
        "--starting-offsets",
        default="earliest",
        metavar="WHERE",
        help="where a new Kafka stream begins: earliest (the default), latest, or Spark's JSON",
    )
    args.add_argument(
        "--max-per-batch", type=int, metavar="N", help="records (Kafka) or files of a batch at most"
    )
    args.add_argument("--trigger", metavar="SPAN", help="time between batches, such as '10 seconds'")
    args.add_argument("--once", action="store_true", help="take what is there now, and end")
    args.add_argument(
        "--ahead",
        default=DEFAULT_AHEAD,
        metavar="SPAN",
        help=f"events further ahead of the clock are rejected (default {DEFAULT_AHEAD})",
    )
    args.add_argument(
        "--max-rejected-fraction", type=float, metavar="F", help="stop where more of a batch is rejected"
    )
    return args


def main(argv: list[str] | None = None) -> int:
    """Runs the job; returns its exit code."""
    args = parser()
    given = args.parse_args(argv)
    needed = ["bootstrap", "topic"] if given.source == "kafka" else ["path"]
    for name in needed:
        if not getattr(given, name):
            args.error(f"--{name} is needed with --source {given.source}")
    console, errors = Console(), Console(stderr=True)
    stopping = threading.Event()
    try:
        spark = spark_session("tidemark stream")
        with _told_to_stop(stopping), _java_waits(spark, stopping):
            _run(spark, given, console, stopping)
        return 0
    except (TidemarkError, PySparkException) as error:
        own = error if isinstance(error, TidemarkError) else told_in(str(error))  # or Spark's thread told it
        said = own or as_input_error(error, given.path or given.topic)
        if not isinstance(said, TidemarkError):
            raise
        errors.print(f"[bold red]error:[/] {said}", highlight=False, soft_wrap=True)
        return 2 if isinstance(said, InputError) else 1


@contextmanager
def _told_to_stop(stopping: threading.Event) -> Iterator[None]:
    """SIGTERM and SIGINT set the event, and end nothing by themselves."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread hears signals
        return
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = [signal.signal(number, lambda *_: stopping.set()) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


class _Hook:
    """What Java calls when it is told to end: it waits until the stream has ended."""

    def __init__(self, stopping: threading.Event) -> None:
        self.stopping, self.ended = stopping, threading.Event()

    def run(self) -> None:
        self.stopping.set()
        self.ended.wait(_STOP_SECONDS)

    class Java:
        """The interface that py4j is to show."""

        implements = ("java.lang.Runnable",)


@contextmanager
def _java_waits(spark: SparkSession, stopping: threading.Event) -> Iterator[None]:
    """Under spark-submit the signal reaches Java, which would end Spark in the middle of a batch.

    A hook that runs before Spark's own keeps it until the work inside is done, and the process ends with 0.
    """
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        yield
        return
    context = spark.sparkContext
    java: Any = context._jvm  # noqa: SLF001  Java's shutdown is not in the Python API
    ensure_callback_server_started(context._gateway)  # type: ignore[no-untyped-call]  # noqa: SLF001
    hook = _Hook(stopping)
    thread = java.java.lang.Thread(hook)  # Java's collections ask for hashes, which our object has not
    hooks = java.org.apache.hadoop.util.ShutdownHookManager.get()
    seconds = java.java.util.concurrent.TimeUnit.SECONDS
    hooks.addShutdownHook(thread, _BEFORE_SPARK, _STOP_SECONDS, seconds)
    try:
        yield
        if hooks.isShutdownInProgress():
            spark.stop()
            sys.stdout.flush()
            java.java.lang.Runtime.getRuntime().halt(0)
    finally:
        hook.ended.set()
        with suppress(Exception):  # Java is gone, or ending
            hooks.removeShutdownHook(thread)


def _run(spark: SparkSession, given: argparse.Namespace, console: Console, stopping: threading.Event) -> None:
    options = warehouse.open_snapshot(given.warehouse).options
    name = given.name or (given.topic if given.source == "kafka" else Path(given.path).name)
    busy, reports = threading.Lock(), {}

    def keep(report: BatchReport) -> None:
        reports[report.batch] = report

    running = stream.start(
        _read(spark, given, options),
        given.warehouse,
        source=name,
        checkpoint=given.checkpoint or Store.of(given.warehouse).spark_path(f"checkpoints/{name}"),
        trigger=AVAILABLE_NOW if given.once else given.trigger,
        ahead=given.ahead,
        max_rejected_fraction=given.max_rejected_fraction,
        progress=keep,
        busy=busy,
    )
    console.print(f"{name}: streaming into {given.warehouse}; SIGTERM or Ctrl-C stops it", highlight=False)
    reader = query.open(given.warehouse)
    shown = -1
    while running.isActive and not stopping.is_set():
        running.awaitTermination(_LOOK_SECONDS)
        shown = _show(running, reports, reader, console, shown)
    with busy:  # the batch in work ends first
        running.stop()
    _show(running, reports, reader, console, shown)
    failed = running.exception()
    if failed is not None and not stopping.is_set():
        raise failed
    console.print(f"{name}: stopped", highlight=False)


def _show(
    running: StreamingQuery,
    reports: dict[int, BatchReport],
    reader: query.Warehouse,
    console: Console,
    shown: int,
) -> int:
    """One line for each batch that ended since; the number of the last one shown."""
    for progress in [dict(one) for one in running.recentProgress]:
        number = int(progress["batchId"])
        report = reports.pop(number, None)
        if number <= shown or report is None:
            continue
        shown = number
        rate = report.rows / report.seconds if report.seconds else 0.0
        line = (
            f"batch {number}: {report.rows:,} rows, {report.rejected:,} rejected, {report.seconds:.2f} s, "
            f"{rate:,.0f} rows/s, behind {_behind(progress)}, live m {reader.info()['live_rows']:,}"
        )
        console.print(line, highlight=False, soft_wrap=True)
    return shown


def _behind(progress: dict[str, Any]) -> str:
    """How far the batch's end is behind the newest record of the source."""
    metrics = progress["sources"][0].get("metrics") or {}
    if "maxOffsetsBehindLatest" in metrics:
        return f"{int(metrics['maxOffsetsBehindLatest']):,} records"
    if "numFilesOutstanding" in metrics:
        return f"{int(metrics['numFilesOutstanding']):,} files"
    return "not told"


def _read(spark: SparkSession, given: argparse.Namespace, options: Options) -> DataFrame:
    """The streaming DataFrame of the source, as `stream.start` takes it."""
    columns = given.columns.split(",") if given.columns else None
    if given.source == "delta":
        reader = spark.readStream.format("delta")
        if given.max_per_batch:
            reader = reader.option("maxFilesPerTrigger", given.max_per_batch)
        return reader.load(given.path)
    if given.source == "kafka":
        reader = (
            spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", given.bootstrap)
            .option("subscribe", given.topic)
            .option("startingOffsets", given.starting_offsets)
        )
        if given.max_per_batch:
            reader = reader.option("maxOffsetsPerTrigger", given.max_per_batch)
        position = F.concat_ws("/", "topic", "partition", "offset")
        try:
            records = reader.load().select("value", position.alias("position"))
        except PySparkException as error:
            if "Failed to find data source: kafka" not in str(error):
                raise
            raise InputError(
                "this Spark has no Kafka source. Give spark-submit "
                "--packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"
            ) from error
    else:
        text = spark.readStream.format("text")
        if given.max_per_batch:
            text = text.option("maxFilesPerTrigger", given.max_per_batch)
        records = text.load(given.path).select("value", F.col("_metadata.file_path").alias("position"))
        if given.format == "csv":
            order = columns or [name for name, _ in options.columns]
            records = records.where(F.col("value") != ",".join(order))  # a header, where there is one
    return stream.parse(records, options, given.format, columns)


if __name__ == "__main__":
    sys.exit(main())
