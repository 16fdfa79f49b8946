"""Load: moves batches into history as one step, exactly once, despite crashes and concurrent loads.

    events     a bulk load appends its rows as one batch; the rows of streams are there already
    plan       the batches of the step are committed to the table `steps`; a load that loses this commit
               race reads the table again and plans again
    sort       tasks sort bounded shares of `events`; if there are several, the sorted chunks are merged
               without a shuffle
    marks      the marks of the run are appended
    run        one commit adds the run to history: from here on readers see it
    merge      while a level holds more than kappa runs: files, marks, one commit

Recovery. Running the same load again continues after a crash at any point:

    after events   the replay finds the batch, checks that its rows are the same, and goes on
    after plan     the plan is used as it is
    after files or marks
                   they are written again; maintenance deletes the files that no commit names
    after the commit of a run
                   that projection is skipped and the next one is loaded; the key comes last
    in a merge     the input runs are still there: the merge is planned again

Steps enter history in order. A load that finds an earlier step unfinished loads it first. So two
concurrent loads of different batches may do the same work; for each run exactly one commit succeeds.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidemark.warehouse.columns.scalars import plain
from tidemark.warehouse.delta import own_files, tables
from tidemark.warehouse.delta.remote_files import at_once
from tidemark.warehouse.delta.store import EVENTS, LEDGER, STEPS, Store
from tidemark.warehouse.delta.tables import DataFile
from tidemark.warehouse.errors import BatchMismatch, InputError, NotAWarehouse, name_text, without_secrets
from tidemark.warehouse.events.reader import BULK, BatchRange, files_of_batches, rows_by_batch
from tidemark.warehouse.events.steps import (
    StepPlan,
    newest_plan,
    planned_batches,
    read_step_plans,
    write_step_plan,
)
from tidemark.warehouse.execution.executors import executor_for
from tidemark.warehouse.ingest import append_rows, same_rows
from tidemark.warehouse.ingest.row_filter import ALL_OR_NOTHING, DEFAULT_AHEAD, RowFilter, latest_time
from tidemark.warehouse.ledger import batch_counts, ledger_table, unaccounted
from tidemark.warehouse.ledger.ledger_rows import RANGE_COLUMNS
from tidemark.warehouse.loads import missing_summaries, run_builder
from tidemark.warehouse.os_errors import report_os_errors
from tidemark.warehouse.runs import run_tables
from tidemark.warehouse.runs.levels import Layout, Merge, Run, plan_merge
from tidemark.warehouse.runs.projection import Projection
from tidemark.warehouse.runs.run_tables import NewRun
from tidemark.warehouse.settings.options import Options, read_options
from tidemark.warehouse.sizes import Tuning
from tidemark.warehouse.snapshots.behind import behind_error, check_planned
from tidemark.warehouse.text.given import with_text_read

if TYPE_CHECKING:
    import os
    from datetime import timedelta

    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, SparkSession

    from tidemark.warehouse.execution.arrow_inputs import LocalRows
    from tidemark.warehouse.execution.executors import Executor, Input

_LOG = logging.getLogger("tidemark.load")

_Files = Mapping[Run, Sequence[DataFile]]


@dataclass(slots=True)
class LoadReport:
    """What a load did.

    outcome        'loaded', 'known' (the batch was in history already) or 'empty' (there were no rows)
    step           the newest step that it moved into history; None if it moved none
    rows           rows of the steps that it moved
    nans, nulls    how many of these are NaN and NULL, by title of the projection (measures and key)
    runs_by_level  by title of the projection, the number of runs of each level after the load
    bytes_written  bytes of the files of new runs, merges included
    seconds        time spent, by phase
    """

    outcome: str = "loaded"
    step: int | None = None
    rows: int = 0
    nans: dict[str, int] = field(default_factory=dict)
    nulls: dict[str, int] = field(default_factory=dict)
    runs_by_level: dict[str, dict[int, int]] = field(default_factory=dict)
    bytes_written: int = 0
    seconds: dict[str, float] = field(default_factory=dict)


class _Progress:
    """Tells the caller each point that the load reaches, and adds up the seconds of each phase."""

    def __init__(self, report: LoadReport, callback: Callable[[str], None] | None) -> None:
        self.report, self.callback = report, callback

    def reached(self, point: str) -> None:
        if self.callback:
            self.callback(point)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        self.reached(name)
        began = time.perf_counter()
        yield
        self.report.seconds[name] = self.report.seconds.get(name, 0.0) + time.perf_counter() - began


@report_os_errors("load")
def load(
    spark: SparkSession | None,
    uri: str | os.PathLike[str],
    rows: DataFrame | LocalRows | None = None,
    batch: str | None = None,
    *,
    ahead: str | timedelta | None = DEFAULT_AHEAD,
    storage_options: dict[str, str] | None = None,
    progress: Callable[[str], None] | None = None,
    tuning: Tuning | None = None,
) -> LoadReport:
    """Moves a batch of rows into history; without rows, all batches that streams appended.

    spark     a Spark session, whose tasks do the work; None: this process does it, one task after the other,
              in a few hundred MB of memory for any number of rows. Files and commits have the same content
              with Spark and without it, so a load that stopped in one can be continued in the other
    uri       the warehouse
    rows      the warehouse's columns in any order: a DataFrame of the session; without a session a pyarrow
              Table, RecordBatch or RecordBatchReader, whatever else gives an Arrow stream
              (`__arrow_c_stream__`: pandas, Polars, DuckDB), or the path of a file or folder of Parquet, CSV
              or JSON lines, a pattern such as 'in/*.csv', or a list of these. Integers may come in another
              type of integers, or for a float, if the stored type holds each value exactly
    batch     the name of the batch; it must stay the same when the load is run again
    ahead     a batch with rows whose time is further ahead of the clock is refused; None takes any time
    storage_options
              options of the object store, as delta-rs takes them
    progress  called with the name of each point reached
    tuning    sizes of files, blocks and tasks; None: the defaults of `Tuning`

    Streamed batches that the ledger has lost (another tool restored it) get their rows there again first; in
    an object store, only a load without rows looks for them.
    Loading the same batch again changes nothing. If there is nothing to load (the batch has no rows, or no
    streamed batch is waiting), the outcome is 'empty'. Raises BatchMismatch if the batch was loaded with
    other rows, InputError for rows that do not fit; then nothing was changed.
    """
    if (rows is None) != (batch is None):
        raise InputError(
            "rows and batch go together, got only one of them. Example: "
            "load(spark, uri, rows, batch='2026-11-20')."
        )
    if batch is not None:
        name_text("batch", batch)
    row_filter = replace(ALL_OR_NOTHING, latest=latest_time(plain(ahead)))
    store = Store.from_uri(uri, storage_options, tuning)
    executor = executor_for(spark, store.tuning)
    events, steps = tables.open_tables(store, EVENTS, STEPS)
    options = read_options(store, events)
    options.companions.check_kinds(executor.check_sendable)
    if rows is None or store.is_local:  # a bulk load does without: the requests of a store take time
        lost = unaccounted.find(store, events, tables.open_table(store, LEDGER), _plans(store)).lost
        missing_summaries.write_missing(executor, store, options, lost)
    report = LoadReport()
    load_progress = _Progress(report, progress)
    if rows is not None and batch is not None:
        if executor.in_process:
            keys = {*options.key_columns} - {*options.measure_names, options.time}
            rows = with_text_read(rows, pa.schema(events.schema()), dict(options.columns), keys)
        given = _Given(executor.input(rows), bulk_batch(batch), row_filter)
        step, options = _plan_bulk(executor, store, events, steps, options, given, load_progress)
    else:
        step = _plan_live(store, options, steps, load_progress)
    _finish_steps(executor, store, options, step, load_progress)
    _LOG.info("%s: load %s, %d rows", without_secrets(store.uri), report.outcome, report.rows)
    return report


def catch_up(
    executor: Executor, store: Store, options: Options, progress: Callable[[str], None] | None
) -> LoadReport:
    """Loads every planned step into the projections that lack it; for keys and groups that were added."""
    options.companions.check_kinds(executor.check_sendable)
    report = LoadReport()
    _finish_steps(executor, store, options, newest_planned_step(store), _Progress(report, progress))
    return report


def newest_planned_step(store: Store) -> int:
    """The number of the newest planned step, -1 if there is none."""
    return next_step(store) - 1


def bulk_batch(name: str) -> BatchRange:
    """The batch of the bulk load called `name`: the only one of its source, numbered by a hash of the source.

    Delta truncates the statistics of long text, so files cannot be pruned by source names that start alike.
    The hash is an integer with exact statistics, so files can be pruned by it.
    """
    source = f"{BULK}{name}"
    number = int.from_bytes(hashlib.blake2b(source.encode(), digest_size=6).digest(), "big")
    return BatchRange(source, number, number)


@dataclass(frozen=True, slots=True)
class _Given:
    """A bulk batch as it came: its rows, its name, and the filter that all of them have to pass."""

    rows: Input
    batch: BatchRange
    row_filter: RowFilter


def _plan_bulk(
    executor: Executor,
    store: Store,
    events: DeltaTable,
    steps: DeltaTable,
    options: Options,
    given: _Given,
    progress: _Progress,
) -> tuple[int | None, Options]:
    """Appends the batch to `events` and plans its step; the tables are opened, the options those in `events`.

    Returns the step, None if the batch has no rows; and the options after the append, which adds the columns
    to a warehouse without any.
    """
    rows, batch, row_filter = given.rows, given.batch, given.row_filter
    loaded = None
    with progress.phase("check"):
        append_rows.check_rows(options, rows)
        known = append_rows.has_batch(events, batch)
        if not known:
            _check_not_planned(store, steps, batch)
    if not known:
        with progress.phase("append"):
            tick = step_tick(store, options)
            outcome = append_rows.append_rows(
                store, rows, batch, tick, row_filter=row_filter, first=events
            ).outcome
        if outcome == "empty":
            progress.report.outcome = "empty"
            return None, options
        known = outcome == "known"  # another load appended this batch first
        progress.reached("appended")
        loaded, (events,) = _loaded(store, options, EVENTS)
        options = read_options(store, events)
    if known:
        with progress.phase("check"):
            different = same_rows.difference(executor, store, options, rows, batch, row_filter)
        if different:
            _check_rows_of_plan(store, events, batch)
            raise BatchMismatch(
                f"batch {batch.source!r} was loaded before with other rows: {different}. "
                "Nothing was changed. Load new rows under a new batch name."
            )
    if loaded is None:
        loaded, _ = _loaded(store, options)
    with progress.phase("plan"):

        def parts(planned: list[BatchRange]) -> list[tuple[BatchRange, int]]:
            if batch in planned:
                return []
            return [(batch, rows_by_batch(store.filesystem(), events, batch).total())]

        step = _plan(store, parts, steps, loaded)
        if step is None:
            step = next(plan.step for plan in _plans(store) if batch in plan.batches)
    progress.reached("planned")
    return step, options


def _check_not_planned(store: Store, steps: DeltaTable, batch: BatchRange) -> None:
    """DamagedWarehouse if a plan has the batch, which `events` does not: its rows came, and are gone."""
    if batch not in planned_batches(read_step_plans(store, steps)):
        return
    if not append_rows.has_batch(tables.open_table(store, EVENTS), batch):
        raise behind_error(EVENTS, f"it does not have {batch.text}, which a step has")


def _check_rows_of_plan(store: Store, events: DeltaTable, batch: BatchRange) -> None:
    """DamagedWarehouse if `events` has other rows of the batch than its plan."""
    expected = {part: rows for plan in _plans(store) for part, rows in plan.parts if part == batch}
    batch_counts.check_complete(store, files_of_batches(events, list(expected)), expected)


def _plan_live(store: Store, options: Options, steps: DeltaTable, progress: _Progress) -> int | None:
    """Plans one step with all batches of the ledger that no plan covers; returns the last planned step.

    None if nothing was ever planned. The outcome is 'empty' if plans cover all batches of the ledger. `steps`
    is the table, opened before, for the first try.
    """

    def choose(planned: list[BatchRange]) -> list[tuple[BatchRange, int]]:
        files = ledger_table.ranges_by_file(store, tables.open_table(store, LEDGER))
        live = ledger_table.live_ranges(chain.from_iterable(files.values()), planned)
        counts = ledger_table.row_counts(ledger_table.read_rows(store, files, live, [*RANGE_COLUMNS, "rows"]))
        by_source: dict[str, list[BatchRange]] = {}
        for batches in live:
            by_source.setdefault(batches.source, []).append(batches)
        return [
            (BatchRange(source, ranges[0].first, ranges[-1].last), sum(counts[batches] for batches in ranges))
            for source, ranges in by_source.items()
        ]

    with progress.phase("plan"):
        step = _plan(store, choose, steps, _loaded(store, options)[0])
    progress.reached("planned")
    if step is None:
        plans = _plans(store)
        progress.report.outcome = "empty"
        return plans[-1].step if plans else None
    return step


def step_tick(store: Store, options: Options) -> int:
    """The tick of new rows in a warehouse without a time column: the step planned next; 0 for others."""
    return 0 if options.time is not None else next_step(store)


def next_step(store: Store) -> int:
    """The number that the next planned step will have."""
    return newest_plan(_plans(store)) + 1


def _plans(store: Store) -> list[StepPlan]:
    return read_step_plans(store, tables.open_table(store, STEPS))


def _plan(
    store: Store,
    choose: Callable[[list[BatchRange]], list[tuple[BatchRange, int]]],
    first: DeltaTable,
    loaded: Sequence[tuple[str, int]] = (),
) -> int | None:
    """Commits a plan and returns its step; None if there is nothing to plan.

    `choose` gets the ranges that are planned already and returns the parts of the new plan, each with its
    number of rows. It is called again after a lost commit race. `first` is `steps`, opened before, for the
    first try. `loaded` are runs tables with their newest steps. DamagedWarehouse if one has no plan.
    """

    def attempt(table: DeltaTable) -> int | None:
        table, plans = _plans_since(store, table, loaded)
        step = newest_plan(plans) + 1
        parts = choose(planned_batches(plans, step))
        if not parts:
            return None
        write_step_plan(store, table, StepPlan(step, tuple(parts)))
        return step

    return tables.retry_lost_races(store, STEPS, attempt, first)


def _plans_since(
    store: Store, table: DeltaTable, loaded: Sequence[tuple[str, int]]
) -> tuple[DeltaTable, list[StepPlan]]:
    """The table `steps` with its plans, opened again if it is older than the runs.

    `loaded` are runs tables with their newest steps. DamagedWarehouse if one has a step without a plan.
    """
    plans = read_step_plans(store, table)
    if any(last > newest_plan(plans) for _, last in loaded):
        table = tables.open_table(store, STEPS)
        plans = read_step_plans(store, table)
        check_planned(newest_plan(plans), loaded)
    return table, plans


def _loaded(store: Store, options: Options, *others: str) -> tuple[list[tuple[str, int]], list[DeltaTable]]:
    """The first runs table with its newest step, nothing if it does not exist; and other tables, opened."""
    names = [projection.runs_table for projection in options.projections[:1]]
    try:
        opened = tables.open_tables(store, *others, *names)
    except NotAWarehouse:
        return [], tables.open_tables(store, *others)
    runs = opened[len(others) :]
    loaded = [
        (name, run_tables.read_layout(table).last_step) for name, table in zip(names, runs, strict=True)
    ]
    return loaded, opened[: len(others)]


def _finish_steps(
    executor: Executor, store: Store, options: Options, last_step: int | None, progress: _Progress
) -> None:
    """Loads every planned step up to `last_step` (inclusive; None: no step), then merges runs."""
    report = progress.report
    opened = _open_history(store, options)
    names = [projection.runs_table for projection in options.projections]
    has = [run_tables.read_layout(runs).last_step for _, runs in opened.projections]
    loaded = min(has, default=-1)
    _, plans = _plans_since(store, opened.steps, list(zip(names, has, strict=True)))
    pending = [plan for plan in plans if last_step is not None and loaded < plan.step <= last_step]
    for number, plan in enumerate(pending):
        opened = _open_history(store, options) if number else opened
        _load_step(executor, store, options, plan, opened, progress)
        report.step, report.rows = plan.step, report.rows + plan.rows
        report.outcome = "loaded"
    if report.outcome == "loaded" and report.step is None:
        report.outcome = "known"
    events, *runs = tables.open_tables(store, EVENTS, *names)
    for projection, table in zip(options.projections, runs, strict=True):
        layout = _merge_levels(executor, store, options, projection, table, progress)
        report.runs_by_level[projection.title] = layout.levels()
    newer = read_options(store, events)
    if newer.projections != options.projections:  # a key or group was added meanwhile
        _finish_steps(executor, store, newer, last_step, progress)


@dataclass(frozen=True, slots=True)
class _History:
    """Opened tables: `events`, `steps`, and the marks table and the runs table of each projection."""

    events: DeltaTable
    steps: DeltaTable
    projections: Sequence[tuple[DeltaTable, DeltaTable]]


def _open_history(store: Store, options: Options) -> _History:
    """Opens the tables at their newest versions; creates missing ones of projections."""
    names = [
        name for projection in options.projections for name in (projection.marks_table, projection.runs_table)
    ]

    def open_all() -> _History:
        events, steps, *others = tables.open_tables(store, EVENTS, STEPS, *names)
        return _History(events, steps, list(zip(others[::2], others[1::2], strict=True)))

    def create(projection: Projection[Any]) -> None:
        run_tables.create_tables(store, projection, options.grace_us)

    try:
        return open_all()
    except NotAWarehouse:
        at_once(create, options.projections)
        return open_all()


def _load_step(
    executor: Executor,
    store: Store,
    options: Options,
    plan: StepPlan,
    opened: _History,
    progress: _Progress,
) -> None:
    """Loads one step into every projection that does not have it, one commit per projection."""
    behind = [
        (projection, *pair)
        for projection, pair in zip(options.projections, opened.projections, strict=True)
        if run_tables.read_layout(pair[1]).last_step < plan.step
    ]

    def sort(projections: Sequence[Projection[Any]], events: DeltaTable | None = None) -> list[NewRun]:
        events = events or tables.open_table(store, EVENTS)  # maintenance may have joined its files
        run = Run(plan.step, plan.step, 0)
        return run_builder.sort_run(executor, store, options.eps, projections, run, [plan], events)

    with progress.phase("sort"):
        projections = [projection for projection, *_ in behind]
        runs = sort(projections, opened.events)
    progress.reached("sorted")
    runs = _kept(store, projections, runs, sort)
    committed = []
    for (projection, marks_table, runs_table), run in zip(behind, runs, strict=True):
        rows = run.totals.rows
        if rows != plan.rows:
            reason = (
                f"step {plan.step} was not loaded: its plan has {plan.rows} rows, "
                f"but the table events has {rows}"
            )
            raise batch_counts.changed_rows_error(store, dict(plan.parts), reason)
        with progress.phase("commit"):
            run_tables.append_marks(store, projection, run, marks_table)
            progress.reached("marked")
            if run_tables.commit_run(store, projection, run, runs_table):
                committed.append((projection, run))
        progress.reached("committed")
        report = progress.report
        report.bytes_written += sum(file.size for file in run.files)
        title = projection.title
        report.nans[title] = report.nans.get(title, 0) + int(run.totals.nans.sum())
        report.nulls[title] = report.nulls.get(title, 0) + int(run.totals.nulls.sum())
        _LOG.info("%s: step %d is in history, %d rows", projection.runs_table, plan.step, plan.rows)
    _keep_committed(store, committed, sort)


def _kept(
    store: Store,
    projections: Sequence[Projection[Any]],
    runs: list[NewRun],
    write: Callable[[Sequence[Projection[Any]]], list[NewRun]],
    *,
    with_marks: bool = False,
) -> list[NewRun]:
    """The runs of the projections, not committed; those of which a file is gone are written again."""

    def paths_of(written: list[NewRun]) -> list[str]:
        pairs = zip(projections, written, strict=True)
        return [path for one in pairs for path in run_tables.written_files(*one, with_marks=with_marks)]

    def write_again(written: list[NewRun]) -> list[NewRun]:
        lost = set(own_files.lost_files(store, paths_of(written)))
        gone = [
            place
            for place, one in enumerate(zip(projections, written, strict=True))
            if not lost.isdisjoint(run_tables.written_files(*one, with_marks=with_marks))
        ]
        again = dict(zip(gone, write([projections[place] for place in gone]), strict=True))
        return [again.get(place, run) for place, run in enumerate(written)]

    return own_files.until_kept(store, runs, paths_of, write_again, before_commit=not with_marks)


def _keep_committed(
    store: Store,
    committed: Sequence[tuple[Projection[Any], NewRun]],
    write: Callable[[Sequence[Projection[Any]]], list[NewRun]],
) -> None:
    """Replaces the files of committed runs, and their marks, that were gone before the commit."""
    newest = {projection.runs_table: run for projection, run in committed}

    def replace_lost(projections: Sequence[Projection[Any]]) -> list[NewRun]:
        again = write(projections)
        for projection, run in zip(projections, again, strict=True):
            old, newest[projection.runs_table] = newest[projection.runs_table], run
            run_tables.append_marks(store, projection, run)
            run_tables.replace_run(store, projection, old, run)
        return again

    _kept(store, [p for p, _ in committed], [run for _, run in committed], replace_lost, with_marks=True)


def _merge_levels(
    executor: Executor,
    store: Store,
    options: Options,
    projection: Projection[Any],
    table: DeltaTable,
    progress: _Progress,
) -> Layout:
    """Merges runs until no level holds more than kappa; returns the layout. `table` is the runs table."""
    while True:
        runs = run_tables.files_by_run(tables.list_files(table))
        layout = Layout.of(runs, projection.runs_table)
        merge = plan_merge(layout, options.kappa)
        if merge is None:
            return layout
        with progress.phase("merge"):

            def write(_: object, merge: Merge = merge, runs: _Files = runs) -> list[NewRun]:
                return [run_builder.merge_runs(executor, store, options.eps, projection, merge, runs)]

            written = write(None)
            progress.reached("merge sorted")
            (merged,) = _kept(store, [projection], written, write)
            run_tables.append_marks(store, projection, merged)
            progress.reached("merge marked")
            if run_tables.commit_merge(store, projection, merge, merged):
                _keep_committed(store, [(projection, merged)], write)
                progress.report.bytes_written += sum(file.size for file in merged.files)
                _LOG.info(
                    "%s: merged %d runs into %s", projection.runs_table, len(merge.inputs), merged.run.name
                )
        progress.reached("merged")
        table = tables.open_table(store, projection.runs_table)
