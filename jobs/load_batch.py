"""Loads a batch of files into a warehouse: the nightly job.

    spark-submit jobs/load_batch.py --warehouse W --input flights.parquet --batch 2001-04-01

At first use it creates the warehouse: --measure (and --key, --time, --tick, --eps, --kappa).
Running it again with the same --batch changes nothing. After a crash, run it again. Rows that are older than
the warehouse's retention then expire.
"""

from __future__ import annotations

if __name__ == "__main__":
    import tidemark.jobs.cli.starting  # noqa: F401  sets what Ctrl-C does

import argparse
import sys
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tidemark import warehouse
from tidemark.jobs.cli.exit_codes import DONE, job_end
from tidemark.jobs.cli.options import loading, parsed
from tidemark.jobs.cli.process import job_arguments
from tidemark.jobs.cli.progress import show_progress
from tidemark.jobs.inputs.engine import engine_for_files, engine_for_live_rows, session_for
from tidemark.jobs.inputs.spark_inputs import as_input_error
from tidemark.jobs.remove_rows import run_changes
from tidemark.query.answers.rendering import text_of, text_table
from tidemark.warehouse.columns.json_values import json_text
from tidemark.warehouse.columns.schema import column_types, delta_fields
from tidemark.warehouse.columns.ticks import from_epoch_us, parse_duration
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.errors import InputError, NotAWarehouse
from tidemark.warehouse.execution.executors import executor_for
from tidemark.warehouse.execution.input_files import described
from tidemark.warehouse.ingest.column_casts import check_columns
from tidemark.warehouse.ingest.row_filter import DEFAULT_AHEAD, latest_time
from tidemark.warehouse.loads.history import LoadReport
from tidemark.warehouse.settings.given_options import parse_options
from tidemark.warehouse.settings.options import Options
from tidemark.warehouse.text.guessed_types import Wanted, arrow_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    from tidemark.jobs.inputs.local_inputs import LocalInputs
    from tidemark.jobs.inputs.spark_inputs import SparkInputs
    from tidemark.warehouse import RemovalReport

    Inputs = LocalInputs | SparkInputs


def main(argv: list[str] | None = None) -> int:
    """Runs the job; returns its exit code."""
    given = job_arguments("load_batch.py", __doc__, loading.LOAD, argv)
    with job_end(given) as end:
        end.code = run(given)
    return end.code


def run(given: argparse.Namespace) -> int:
    """Loads the input of the arguments, or the rows of the streams."""
    if (given.input or given.changes) and not given.batch:
        given.parser.error(
            "--batch is needed with --input: a name that stays the same when the job is run again"
        )
    if given.changes:
        return _correct(given)
    if given.missing != "error":
        given.parser.error("--missing goes with --changes")
    _check_options(given)
    try:
        spark, inputs = _engine(given)
        with show_progress(spark) as set_phase:
            loaded = list(_load(spark, inputs, given, set_phase))
    except Exception as error:
        readable = as_input_error(error, described(given.input or [given.warehouse]))
        if readable is error:
            raise
        raise readable from error
    expired = _expire(spark, given)
    if given.json:
        beside = {} if expired is None else {"expired": asdict(expired)}
        print(
            json_text({"batches": [{"batch": name, **asdict(report)} for name, report in loaded], **beside})
        )
    return DONE


def _correct(given: argparse.Namespace) -> int:
    """Makes the changes of a feed: the batch is a correction."""
    chosen = [name for name, value in parsed.creation_options(given).items() if value is not None]
    others = ("batch_every", "again", "refuse_overlap", "evolve", "type")
    if wrong := [*(name for name in others if getattr(given, name)), *chosen]:
        given.parser.error(
            f"--changes goes without {wrong[0].replace('_', '-')}: no warehouse is created by changes"
        )
    return run_changes(given)


def _expire(spark: SparkSession | None, given: argparse.Namespace) -> RemovalReport | None:
    """Lets rows expire that are older than the warehouse keeps them, by the clock; None if it keeps all."""
    options = warehouse.read_options(Store.from_uri(given.warehouse, given.storage_options))
    if options.retention_us is None:
        return None
    report = warehouse.expire(spark, given.warehouse, storage_options=given.storage_options)
    if report.rows and not given.json:
        print(f"expired: {report.rows:,} rows before {report.before}", flush=True)
    return report


def _engine(given: argparse.Namespace) -> tuple[SparkSession | None, Inputs]:
    """The Spark session, None for the local engine, and the reader of inputs for the engine."""

    def choose() -> str:
        if given.from_stream:
            return engine_for_live_rows(given.warehouse, given.storage_options)
        return engine_for_files(
            given.input, given.format, Store.from_uri(given.warehouse, given.storage_options)
        )

    # The error of a failed task is printed once by the job, and not by Spark's log as well.
    spark = session_for(given.engine, choose, "tidemark load", **{"spark.log.level": "FATAL"})
    if spark is None:
        from tidemark.jobs.inputs.local_inputs import LocalInputs

        return None, LocalInputs(given.warehouse, given.storage_options)
    from tidemark.jobs.inputs.spark_inputs import SparkInputs

    return spark, SparkInputs(spark)


def _check_options(given: argparse.Namespace) -> None:
    """InputError for bad options; all checks that are possible before Spark starts, which takes seconds."""
    chosen = parse_options(**parsed.creation_options(given))
    span = given.batch_every and parse_duration(given.batch_every)
    if given.from_stream:
        options: Options | None = warehouse.open_snapshot(given.warehouse, given.storage_options).options
    else:
        options = _options(given)
    Store.from_uri(given.warehouse, given.storage_options).files.check_place(writing=True)
    if options is not None:
        options.check_same(chosen)
    if span and (options.time if options else given.time) is None:
        raise InputError("--batch-every needs a time column, and this warehouse has none.")


def _load(
    spark: SparkSession | None,
    inputs: Inputs,
    given: argparse.Namespace,
    progress: Callable[[str], None],
) -> Iterator[tuple[str | None, LoadReport]]:
    """Loads batch by batch; yields the name of each, None for the rows of the streams, with its report."""
    if given.from_stream:
        report = warehouse.load(
            spark, given.warehouse, storage_options=given.storage_options, progress=progress
        )
        _show(given, "from stream", report)
        yield None, report
        return
    rows = _open(spark, inputs, given)
    if given.batch_every:
        options = warehouse.open_snapshot(given.warehouse, given.storage_options).options
        check_columns(options, executor_for(spark).input(rows).fields(), evolve=given.evolve)
    for name, part in _batches(inputs, rows, given):
        began = time.perf_counter()
        try:
            report = warehouse.load(
                spark,
                given.warehouse,
                part,
                name,
                **parsed.ahead(given),
                again=given.again,
                refuse_overlap=given.refuse_overlap,
                evolve=given.evolve,
                storage_options=given.storage_options,
                progress=progress,
            )
        except InputError:
            inputs.check()
            raise
        report.seconds["in all"] = time.perf_counter() - began
        _show(given, name, report)
        yield name, report


def _open(spark: SparkSession | None, inputs: Inputs, given: argparse.Namespace) -> Any:
    """Opens the input and creates the warehouse if it does not exist; returns the rows."""
    options = _options(given)
    cut = bool(given.batch_every)
    wanted = _wanted(given, options)
    rows: Any = inputs.read(given.input, given.format, options, cut=cut, wanted=wanted, evolve=given.evolve)
    if options is None:
        inputs.check_times(rows, [*given.measure, *parsed.key_columns(given), *filter(None, [given.time])])
    elif cut:
        inputs.check_times(
            rows, [*options.measure_names, *options.key_columns, *filter(None, [options.time])]
        )
    created = warehouse.create(
        spark,
        given.warehouse,
        **parsed.creation_options(given),
        schema=rows,
        storage_options=given.storage_options,
    )
    if inputs.guessed and not given.json:
        columns = ", ".join(f"{text_of(name)} {kind}" for name, kind in created.columns or _types(rows))
        print(f"types of the text: {columns} (--type COLUMN=TYPE chooses another)", flush=True)
    return rows


def _types(rows: Any) -> list[tuple[str, str]]:
    return list(column_types(delta_fields(rows.schema)).items())


def _wanted(given: argparse.Namespace, options: Options | None) -> Wanted:
    """The known types of text: those of --type, and text for keys.

    InputError for a type that differs from the warehouse's.
    """
    types = parsed.types_of(given)
    keys, numbers = set(parsed.key_columns(given)), {given.time, *(given.measure or ())}
    if options is not None:
        keys, numbers = set(options.key_columns), {options.time, *options.measure_names}
        stored = dict(options.columns)
        for name, kind in column_types(delta_fields(arrow_schema(types))).items() if stored else ():
            if stored.get(name) != kind and (name in stored or not given.evolve):
                has = f"is {stored[name]}" if name in stored else "is not there"
                raise InputError(f"--type {name}={types[name]}: the column {has} in the warehouse. Omit it.")
    return Wanted(types, frozenset(keys - numbers))


def _options(given: argparse.Namespace) -> Options | None:
    try:
        return warehouse.open_snapshot(given.warehouse, given.storage_options).options
    except NotAWarehouse:
        if given.measure:
            return None
        raise


def _batches(inputs: Inputs, rows: Any, given: argparse.Namespace) -> Iterator[tuple[str, Any]]:
    """The input as (name, rows): one batch, or batches cut by event time.

    A cut batch holds the times [start, start + span) and is named after its start; spans start on the day of
    the first time, and those without rows are no batches. Rows without a time go to a batch of their own.
    """
    if not given.batch_every:
        yield given.batch, rows
        return
    time_column = str(warehouse.open_snapshot(given.warehouse, given.storage_options).options.time)
    span, day = parse_duration(given.batch_every), parse_duration("1 day")
    times = inputs.times(rows, time_column)
    _check_ahead(times.last, given)
    if times.first is not None:
        for start in inputs.starts(rows, time_column, times.first // day * day, span):
            name = f"{given.batch}/{from_epoch_us(start).replace(tzinfo=None).isoformat()}"
            yield name, inputs.between(rows, time_column, start, start + span)
    if times.without:
        yield f"{given.batch}/no-time", inputs.without(rows, time_column)


def _check_ahead(last: int | None, given: argparse.Namespace) -> None:
    """InputError for a time too far ahead: up to it there might be a batch for each day of a century."""
    latest = latest_time(**{"ahead": DEFAULT_AHEAD, **parsed.ahead(given)})
    if last is not None and latest is not None and last > latest:
        raise InputError(
            f"the input has a time too far in the future, {from_epoch_us(last):%Y-%m-%d %H:%M}. Nothing was "
            "loaded. Correct such rows, leave them out, or allow them: --ahead '2 years', or --ahead any."
        )


def _show(given: argparse.Namespace, name: str, report: LoadReport) -> None:
    """Prints one line for the batch; with --verbose also the runs of each measure and the seconds."""
    if given.json:
        return
    messages = {
        "loaded": f"loaded, {report.rows:,} rows{_added(report)}",
        "known": "was loaded before, nothing changed",
        "empty": "no rows, nothing changed",
    }
    print(f"{text_of(name)}: {messages[report.outcome]}", flush=True)
    if report.outcome != "loaded" or not given.verbose:
        return
    rows = [
        (
            measure,
            report.nans.get(measure, 0),
            report.nulls.get(measure, 0),
            ", ".join(f"L{level}: {count}" for level, count in sorted(levels.items())),
        )
        for measure, levels in report.runs_by_level.items()
    ]
    print(text_table(("measure", "NaN", "NULL", "runs by level"), rows))
    seconds = ", ".join(f"{phase} {spent:.1f}" for phase, spent in report.seconds.items())
    print(f"step {report.step}, {report.bytes_written:,} bytes of runs written; seconds: {seconds}")


def _added(report: LoadReport) -> str:
    """The columns that the batch added or widened, for its line."""
    told = (("added", report.added_columns), ("widened", report.widened_columns))
    return "".join(f"; {did} {', '.join(map(text_of, names))}" for did, names in told if names)


if __name__ == "__main__":
    sys.exit(main())
