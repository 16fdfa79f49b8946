"""Streams events into a warehouse's live ledger until it is stopped.

    spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0
        jobs/stream_events.py --warehouse W --source kafka --bootstrap HOST:PORT --topic clicks --format json
    spark-submit jobs/stream_events.py --warehouse W --source files --path incoming --format csv
    spark-submit jobs/stream_events.py --warehouse W --source delta --path table
    spark-submit jobs/stream_events.py --warehouse W --source delta --path table --changes

Records that do not parse, and events too far in the future, go to the table `rejected` with the reason. When
it is started again it continues where it stopped; a batch that was interrupted by a crash counts once.
SIGTERM and Ctrl-C end it after the current batch.
"""

from __future__ import annotations

if __name__ == "__main__":
    import tidemark.jobs.cli.starting  # noqa: F401  sets what Ctrl-C does

import argparse
import sys
import threading
from collections import deque
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from tidemark import query, stream, warehouse
from tidemark.jobs.cli.exit_codes import DONE, job_end
from tidemark.jobs.cli.options import loading, parsed
from tidemark.jobs.cli.process import job_arguments
from tidemark.jobs.cli.signals import delay_java_shutdown
from tidemark.jobs.cli.stop_signals import stop_on_signals
from tidemark.jobs.inputs.spark_inputs import as_input_error
from tidemark.jobs.spark.session import spark_session
from tidemark.query.answers.rendering import text_of
from tidemark.stream.records import read_lines
from tidemark.stream.start import AVAILABLE_NOW, BatchReport
from tidemark.warehouse.columns.json_values import json_text
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.errors import InputError, error_in_traceback

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from tidemark.warehouse.settings.options import Options

_POLL_SECONDS = 1
_REPORTS = 200  # that are kept for their lines; Spark tells the progress of the newest 100 batches


def main(argv: list[str] | None = None) -> int:
    """Runs the job; returns its exit code."""
    given = job_arguments("stream_events.py", __doc__, loading.STREAM, argv)
    with job_end(given) as end:
        end.code = run(given)
    return end.code


def run(given: argparse.Namespace) -> int:
    """Streams from the source of the arguments until a signal, or with --once until no records are left."""
    needed = ["bootstrap", "topic"] if given.source == "kafka" else ["path"]
    for name in needed:
        if not getattr(given, name):
            given.parser.error(f"--{name} is needed with --source {given.source}")
    if given.changes and (given.format == "csv" or given.columns):
        given.parser.error("--changes takes changes in JSON, or those of a Delta table")
    warehouse.open_snapshot(given.warehouse, given.storage_options)
    Store.from_uri(given.warehouse, given.storage_options).files.check_place(writing=True)
    stopping = threading.Event()
    try:
        spark = spark_session("tidemark stream")
        with stop_on_signals(stopping), delay_java_shutdown(spark, stopping):
            _stream(spark, given, stopping)
        return DONE
    except PySparkException as error:
        library_error = error_in_traceback(str(error))  # it crossed Spark's thread as text
        readable = library_error or as_input_error(error, given.path or given.topic)
        if readable is error:
            raise
        raise readable from error


def _stream(spark: SparkSession, given: argparse.Namespace, stopping: threading.Event) -> None:
    options = warehouse.open_snapshot(given.warehouse, given.storage_options).options
    name = given.name or (given.topic if given.source == "kafka" else Path(given.path).name)
    busy = threading.Lock()  # held while a batch is processed
    reports = deque[BatchReport](maxlen=_REPORTS)
    streaming = stream.start(
        _read(spark, given, options),
        given.warehouse,
        source=name,
        checkpoint=given.checkpoint
        or Store.from_uri(given.warehouse, given.storage_options).spark_path(f"checkpoints/{name}"),
        trigger=AVAILABLE_NOW if given.once else given.trigger,
        **parsed.ahead(given),
        changes=given.changes,
        missing=given.missing,
        max_rejected_fraction=given.max_rejected_fraction,
        progress=reports.append,
        storage_options=given.storage_options,
        busy=busy,
    )
    if not given.json:
        _print_line(f"{name}: streaming into {given.warehouse}; SIGTERM or Ctrl-C stops it")
    reader = query.open(given.warehouse, given.storage_options)
    last_shown, shown = -1, {"in_json": given.json, "in_changes": given.changes}
    while streaming.isActive and not stopping.is_set():
        streaming.awaitTermination(_POLL_SECONDS)
        last_shown = _show_batches(streaming, reports, reader, last_shown, **shown)
    with busy:  # waits for the current batch
        streaming.stop()
    _show_batches(streaming, reports, reader, last_shown, **shown)
    failure = streaming.exception()
    if failure is not None and not stopping.is_set():
        raise failure
    if not given.json:
        _print_line(f"{name}: stopped")


def _print_line(line: str) -> None:
    """Prints without buffering, so that a pipe gets the line at once."""
    print(text_of(line), flush=True)


def _show_batches(
    streaming: StreamingQuery,
    reports: deque[BatchReport],
    reader: query.Warehouse,
    last_shown: int,
    *,
    in_json: bool,
    in_changes: bool,
) -> int:
    """Prints a line for each batch after `last_shown`; returns the number of the last batch printed."""
    recent, by_number = streaming.recentProgress, {report.batch: report for report in reports.copy()}
    for progress in map(dict, recent):
        number = int(progress["batchId"])
        report = by_number.get(number)
        if number <= last_shown or report is None:
            continue
        last_shown = number
        behind, live = _behind(progress), reader.info()["live_rows"]
        if in_json:
            _print_line(json_text({**asdict(report), "behind": behind, "live_rows": live}))
            continue
        if in_changes:
            _print_line(
                f"batch {number}: {report.rows:,} rows added, {report.removed:,} removed, "
                f"{report.seconds:.2f} s, behind {behind}"
            )
            continue
        rate = report.rows / report.seconds if report.seconds else 0.0
        nulls = ", ".join(f"{name} {count:,}" for name, count in report.nulls.items())
        _print_line(
            f"batch {number}: {report.rows:,} rows, {report.rejected:,} rejected, {report.seconds:.2f} s, "
            f"{rate:,.0f} rows/s, behind {behind}, live m {live:,}{f', NULL: {nulls}' if nulls else ''}"
        )
    return last_shown


def _behind(progress: dict[str, Any]) -> str:
    """How far the end of the batch is behind the newest record of the source."""
    metrics = progress["sources"][0].get("metrics") or {}
    if "maxOffsetsBehindLatest" in metrics:
        return f"{int(metrics['maxOffsetsBehindLatest']):,} records"
    if "numFilesOutstanding" in metrics:
        return f"{int(metrics['numFilesOutstanding']):,} files"
    return "unknown"


def _read_delta(spark: SparkSession, given: argparse.Namespace) -> DataFrame:
    reader = spark.readStream.format("delta")
    if given.max_per_batch:
        reader = reader.option("maxFilesPerTrigger", given.max_per_batch)
    if given.changes:
        reader = reader.option("readChangeFeed", "true")
    if given.starting_version is not None:
        reader = reader.option("startingVersion", given.starting_version)
    try:
        return reader.load(given.path)
    except Exception as error:  # Java's own where Spark has no such source
        raise as_input_error(error, given.path) from error


def _read(spark: SparkSession, given: argparse.Namespace, options: Options) -> DataFrame:
    """The streaming DataFrame of the source, in the form that `stream.start` expects."""
    columns = given.columns.split(",") if given.columns else None
    if given.source == "delta":
        return _read_delta(spark, given)
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
        records = read_lines(spark, given.path, given.format, given.max_per_batch)
    if given.changes:
        return stream.parse_changes(records, options)
    return stream.parse(records, options, given.format, columns, lines=given.source == "files")


if __name__ == "__main__":
    sys.exit(main())
