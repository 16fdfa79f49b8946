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
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from tidemark import warehouse
from tidemark.jobs.cli import arguments
from tidemark.jobs.cli.exit_codes import ended
from tidemark.jobs.cli.progress import shown
from tidemark.jobs.inputs.spark_inputs import as_input_error
from tidemark.warehouse.columns.ticks import from_epoch_us, parse_duration
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.errors import InputError, NotAWarehouse
from tidemark.warehouse.load import LoadReport
from tidemark.warehouse.settings.options import Options, parse_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    from tidemark.jobs.inputs.spark_inputs import Inputs


def parser() -> argparse.ArgumentParser:
    """The job's arguments."""
    args = argparse.ArgumentParser(
        prog="load_batch.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.load(args)
    return args


def main(argv: list[str] | None = None, progress: Callable[[str], None] | None = None) -> int:
    """Runs the job; returns its exit code. `progress` is told each point that a load reaches."""
    return ended(partial(run, progress=progress), parser().parse_args(argv))


def run(given: argparse.Namespace, progress: Callable[[str], None] | None = None) -> int:
    """Loads what the arguments say."""
    if given.input and not given.batch:
        given.parser.error(
            "--batch is needed with --input: a name that stays the same when the job is run again"
        )
    _check(given)
    try:
        spark, inputs = _engine(given)
        with shown(spark, Console(stderr=True)) as tell:
            done = list(_load(spark, inputs, given, lambda point: _tell(point, tell, progress)))
    except Exception as error:
        readable = as_input_error(error, given.input or given.warehouse)
        if readable is error:
            raise
        raise readable from error
    if given.json:
        from tidemark.query.answers.json_values import json_text

        print(json_text({"batches": [{"batch": name, **asdict(report)} for name, report in done]}))
    return 0


def _engine(given: argparse.Namespace) -> tuple[SparkSession | None, Inputs]:
    """Where tasks run, and what reads the input there."""
    if given.engine == "local":
        from tidemark.jobs.inputs.local_inputs import LocalInputs

        return None, LocalInputs(given.warehouse)
    from tidemark.jobs.inputs.spark_inputs import SparkInputs
    from tidemark.jobs.spark.session import spark_session

    # A task that fails is told once, in our words, and not by Spark's log too.
    spark = spark_session("tidemark load", **{"spark.log.level": "FATAL"})
    return spark, SparkInputs(spark)


def _check(given: argparse.Namespace) -> None:
    """What can be told before Spark starts, which takes seconds."""
    chosen = parse_options(**arguments.created_with(given), grace=None)
    span = given.batch_every and parse_duration(given.batch_every)
    if given.from_stream:
        options: Options | None = warehouse.open_snapshot(given.warehouse).options
    else:
        options = _options(given)
    Store.from_uri(given.warehouse).check_place(writing=True)
    if options is not None:
        options.check_same(chosen)
    if span and (options.time if options else given.time) is None:
        raise InputError("--batch-every needs a time column, and this warehouse has none.")


def _tell(point: str, *listeners: Callable[[str], None] | None) -> None:
    for listener in listeners:
        if listener:
            listener(point)


def _load(
    spark: SparkSession | None,
    inputs: Inputs,
    given: argparse.Namespace,
    progress: Callable[[str], None],
) -> Iterator[tuple[str | None, LoadReport]]:
    """Each batch's name, None for what the streams brought, with its report, as they are loaded."""
    console = Console(quiet=given.json)
    if given.from_stream:
        report = warehouse.load(spark, given.warehouse, progress=progress)
        _summary(console, "from stream", report)
        yield None, report
        return
    rows = _open(spark, inputs, given)
    for name, part in _batches(inputs, rows, given):
        began = time.perf_counter()
        report = warehouse.load(spark, given.warehouse, part, name, progress=progress)
        report.seconds["in all"] = time.perf_counter() - began
        _summary(console, name, report)
        yield name, report


def _open(spark: SparkSession | None, inputs: Inputs, given: argparse.Namespace) -> Any:
    """The input's rows; the warehouse is made where it is not there yet."""
    options = _options(given)
    cut = bool(given.batch_every)
    rows = inputs.read(given.input, given.format, options, cut=cut)
    if options is None:
        inputs.check_times(rows, [*given.measure, *filter(None, (given.key, given.time))])
    elif cut:
        inputs.check_times(rows, [*options.measure_names, *filter(None, (options.key, options.time))])
    warehouse.create(
        spark,
        given.warehouse,
        **arguments.created_with(given),
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


def _batches(inputs: Inputs, rows: Any, given: argparse.Namespace) -> Iterator[tuple[str, Any]]:
    """The input as one batch, or cut by event time: [start, start + span) each, named by its start."""
    if not given.batch_every:
        yield given.batch, rows
        return
    time_column = str(warehouse.open_snapshot(given.warehouse).options.time)
    span, day = parse_duration(given.batch_every), parse_duration("1 day")
    found = inputs.times(rows, time_column)
    if found.first is not None and found.last is not None:
        for start in range(found.first // day * day, found.last + 1, span):
            name = f"{given.batch}/{from_epoch_us(start):%Y-%m-%dT%H:%M:%S}"
            yield name, inputs.between(rows, time_column, start, start + span)
    if found.without:
        yield f"{given.batch}/no-time", inputs.without(rows, time_column)


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
