"""Loads a batch of files into a warehouse: the nightly job.

    spark-submit jobs/load_batch.py --warehouse W --input flights.parquet --batch 2001-04-01

At first use it creates the warehouse: --measure (and --key, --time, --tick, --eps, --kappa).
Running it again with the same --batch changes nothing. A crash is mended by running it again.

Exit codes: 0 done, 2 bad usage or bad input (nothing was changed), 1 anything else.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from rich.console import Console
from rich.table import Table

import warehouse
from jobs.inputs import FORMATS, as_input_error, read_batch
from jobs.progress import shown
from jobs.session import spark_session
from warehouse.errors import InputError, NotAWarehouse, TidemarkError
from warehouse.load import LoadReport
from warehouse.options import Options
from warehouse.ticks import from_epoch_us, parse_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession


def parser() -> argparse.ArgumentParser:
    """The job's arguments."""
    args = argparse.ArgumentParser(
        prog="load_batch.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    args.add_argument("--warehouse", required=True, metavar="PATH", help="the warehouse's folder or address")
    what = args.add_mutually_exclusive_group(required=True)
    what.add_argument("--input", metavar="PATH", help="a file or a folder of files, or a Delta table")
    what.add_argument(
        "--from-stream", action="store_true", help="load what the streams brought since the last load"
    )
    args.add_argument("--format", choices=FORMATS, help="the input's format (default: by its name)")
    args.add_argument("--batch", metavar="ID", help="the batch's name: the same name again changes nothing")
    args.add_argument(
        "--batch-every", metavar="SPAN", help="cut the input by event time into batches of this length"
    )
    create = args.add_argument_group("at first use, creates the warehouse; later these must agree with it")
    create.add_argument(
        "--measure", action="append", metavar="COLUMN", help="a numeric column; may be repeated"
    )
    create.add_argument("--key", metavar="COLUMN", help="the column that frequencies are asked of")
    create.add_argument("--time", metavar="COLUMN", help="the event time, a timestamp or date")
    create.add_argument("--tick", metavar="SPAN", help="the grain of windows (default 1 day)")
    create.add_argument("--eps", type=float, help="the promise, in (0, 0.5) (default 0.001)")
    create.add_argument("--kappa", type=int, help="the merge threshold, at least 2 (default 10)")
    return args


def main(argv: list[str] | None = None, progress: Callable[[str], None] | None = None) -> int:
    """Runs the job; returns its exit code. `progress` is told each point that a load reaches."""
    args = parser()
    given = args.parse_args(argv)
    if given.input and not given.batch:
        args.error("--batch is needed with --input: a name that stays the same when the job is run again")
    console, errors = Console(), Console(stderr=True)
    try:
        spark = spark_session("tidemark load")
        _run(spark, given, console, progress)
        return 0
    except TidemarkError as error:
        errors.print(f"[bold red]error:[/] {error}", highlight=False, soft_wrap=True)
        return 2 if isinstance(error, InputError) else 1
    except Exception as error:
        readable = as_input_error(error, given.input or given.warehouse)
        if not isinstance(readable, InputError):
            raise
        errors.print(f"[bold red]error:[/] {readable}", highlight=False, soft_wrap=True)
        return 2


def _run(
    spark: SparkSession, given: argparse.Namespace, console: Console, progress: Callable[[str], None] | None
) -> None:
    with shown(spark, console) as tell:

        def told(point: str) -> None:
            tell(point)
            if progress:
                progress(point)

        if given.from_stream:
            _summary(console, "from stream", warehouse.load(spark, given.warehouse, progress=told))
            return
        rows = _open(spark, given)
        for name, part in _batches(rows, given):
            began = time.perf_counter()
            report = warehouse.load(spark, given.warehouse, part, name, progress=told)
            report.seconds["in all"] = time.perf_counter() - began
            _summary(console, name, report)


def _open(spark: SparkSession, given: argparse.Namespace) -> DataFrame:
    """The input's rows; the warehouse is made where it is not there yet."""
    options = _options(given)
    rows = read_batch(spark, given.input, given.format, options, cut=bool(given.batch_every))
    warehouse.create(
        spark,
        given.warehouse,
        given.measure,
        key=given.key,
        time=given.time,
        tick=given.tick,
        eps=given.eps,
        kappa=given.kappa,
        schema=rows,
    )
    return rows


def _options(given: argparse.Namespace) -> Options | None:
    try:
        return warehouse.open_snapshot(given.warehouse).options
    except NotAWarehouse:
        if given.measure:
            return None
        raise


def _batches(rows: DataFrame, given: argparse.Namespace) -> Iterator[tuple[str, DataFrame]]:
    """The input as one batch, or cut by event time: [start, start + span) each, named by its start."""
    if not given.batch_every:
        yield given.batch, rows
        return
    time_column = warehouse.open_snapshot(given.warehouse).options.time
    if time_column is None:
        raise InputError("--batch-every needs a time column, and this warehouse has none.")
    span = parse_duration(given.batch_every)
    at = F.unix_micros(F.col(f"`{time_column}`").cast("timestamp"))
    found = rows.select(F.min(at), F.max(at), F.sum(F.when(at.isNull(), 1).otherwise(0))).collect()[0]
    if found[0] is not None:
        day = parse_duration("1 day")
        start = found[0] // day * day
        while start <= found[1]:
            yield (
                f"{given.batch}/{from_epoch_us(start):%Y-%m-%dT%H:%M:%S}",
                rows.where((at >= start) & (at < start + span)),
            )
            start += span
    if found[2]:
        yield f"{given.batch}/no-time", rows.where(at.isNull())


def _summary(console: Console, name: str, report: LoadReport) -> None:
    """What was done, as a small table."""
    said = {
        "loaded": "loaded",
        "known": "was loaded before, nothing changed",
        "empty": "no rows, nothing changed",
    }
    console.print(f"[bold]{name}[/]: {said[report.outcome]}", highlight=False)
    if report.outcome != "loaded":
        return
    seconds = ", ".join(f"{phase} {spent:.1f}" for phase, spent in report.seconds.items())
    table = Table("measure", "rows", "NaN", "NULL", "runs by level", box=None, pad_edge=True)
    for measure, levels in report.runs_by_level.items():
        runs = ", ".join(f"L{level}: {count}" for level, count in sorted(levels.items()))
        table.add_row(
            measure,
            f"{report.rows:,}",
            f"{report.nans.get(measure, 0):,}",
            f"{report.nulls.get(measure, 0):,}",
            runs,
        )
    console.print(table)
    console.print(
        f"  step {report.step}, {report.bytes_written:,} bytes of runs written; seconds: {seconds}",
        highlight=False,
    )


if __name__ == "__main__":
    sys.exit(main())
