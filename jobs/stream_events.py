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
import sys
import threading
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from tidemark import query, stream, warehouse
from tidemark.jobs.cli import arguments
from tidemark.jobs.cli.exit_codes import ended
from tidemark.jobs.cli.signals import java_waits, told_to_stop
from tidemark.jobs.inputs.spark_inputs import as_input_error
from tidemark.jobs.spark.session import spark_session
from tidemark.query.answers.json_values import json_text
from tidemark.stream.start import AVAILABLE_NOW, DEFAULT_AHEAD, BatchReport
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.errors import InputError, error_in_traceback

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from tidemark.warehouse.settings.options import Options

_LOOK_SECONDS = 1


def parser() -> argparse.ArgumentParser:
    """The job's arguments."""
    args = argparse.ArgumentParser(
        prog="stream_events.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.stream(args)
    return args


def main(argv: list[str] | None = None) -> int:
    """Runs the job; returns its exit code."""
    return ended(run, parser().parse_args(argv))


def run(given: argparse.Namespace) -> int:
    """Streams what the arguments say until it is told to stop."""
    needed = ["bootstrap", "topic"] if given.source == "kafka" else ["path"]
    for name in needed:
        if not getattr(given, name):
            given.parser.error(f"--{name} is needed with --source {given.source}")
    warehouse.open_snapshot(given.warehouse)
    Store.from_uri(given.warehouse).check_place(writing=True)
    stopping = threading.Event()
    try:
        spark = spark_session("tidemark stream")
        with told_to_stop(stopping), java_waits(spark, stopping):
            _run(spark, given, stopping)
        return 0
    except PySparkException as error:
        own = error_in_traceback(str(error))  # told by Spark's thread
        readable = own or as_input_error(error, given.path or given.topic)
        if readable is error:
            raise
        raise readable from error


def _run(spark: SparkSession, given: argparse.Namespace, stopping: threading.Event) -> None:
    options = warehouse.open_snapshot(given.warehouse).options
    name = given.name or (given.topic if given.source == "kafka" else Path(given.path).name)
    busy, reports = threading.Lock(), {}

    def keep(report: BatchReport) -> None:
        reports[report.batch] = report

    running = stream.start(
        _read(spark, given, options),
        given.warehouse,
        source=name,
        checkpoint=given.checkpoint or Store.from_uri(given.warehouse).spark_path(f"checkpoints/{name}"),
        trigger=AVAILABLE_NOW if given.once else given.trigger,
        ahead=given.ahead or DEFAULT_AHEAD,
        max_rejected_fraction=given.max_rejected_fraction,
        progress=keep,
        busy=busy,
    )
    if not given.json:
        _say(f"{name}: streaming into {given.warehouse}; SIGTERM or Ctrl-C stops it")
    reader = query.open(given.warehouse)
    shown = -1
    while running.isActive and not stopping.is_set():
        running.awaitTermination(_LOOK_SECONDS)
        shown = _show(running, reports, reader, shown, in_json=given.json)
    with busy:  # the batch in work ends first
        running.stop()
    _show(running, reports, reader, shown, in_json=given.json)
    failed = running.exception()
    if failed is not None and not stopping.is_set():
        raise failed
    if not given.json:
        _say(f"{name}: stopped")


def _say(line: str) -> None:
    """A line at once, also into a pipe."""
    print(line, flush=True)


def _show(
    running: StreamingQuery,
    reports: dict[int, BatchReport],
    reader: query.Warehouse,
    shown: int,
    *,
    in_json: bool,
) -> int:
    """One line for each batch that ended since; the number of the last one shown."""
    for progress in [dict(one) for one in running.recentProgress]:
        number = int(progress["batchId"])
        report = reports.pop(number, None)
        if number <= shown or report is None:
            continue
        shown = number
        behind, live = _behind(progress), reader.info()["live_rows"]
        if in_json:
            _say(json_text({**asdict(report), "behind": behind, "live_rows": live}))
            continue
        rate = report.rows / report.seconds if report.seconds else 0.0
        nulls = ", ".join(f"{name} {count:,}" for name, count in report.nulls.items())
        _say(
            f"batch {number}: {report.rows:,} rows, {report.rejected:,} rejected, {report.seconds:.2f} s, "
            f"{rate:,.0f} rows/s, behind {behind}, live m {live:,}{f', NULL: {nulls}' if nulls else ''}"
        )
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
