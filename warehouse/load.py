"""Load: moves batches into history as one step, exactly once, despite crashes and concurrent loads.

    events     a bulk load appends its rows as one batch; the rows of streams are there already
    plan       the batches of the step are committed to the table `steps`; a load that loses this commit
               race reads the table again and plans again
    sort       tasks sort bounded shares of `events`; if there are several, the sorted chunks are merged
               without a shuffle
    marks      the marks of the run are appended. Readers see a bulk load once the first marks of its step are
               there (snapshots/behind.py); they saw the rows of streams before
    run        one commit adds the run to history
    merge      while a level holds more than kappa runs: files, marks, one commit

Recovery. Running the same load again continues after a crash at any point:

    after events   the same call finds the batch there, compares its rows, and continues with the plan
    after plan     the plan is used as it is
    after files or marks
                   they are written again; maintenance deletes the files that no commit names
    after the commit of a run
                   the projection that has the run is skipped, the others follow in the order of
                   `Options.projections`
    in a merge     the input runs are still there: the merge is planned again

Steps enter history in order. A load that finds an earlier step unfinished loads it first. So two
concurrent loads of different batches may do the same work; for each run exactly one commit succeeds.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

from tidemark.warehouse.columns.scalars import plain
from tidemark.warehouse.delta import tables
from tidemark.warehouse.delta.races import Race
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import EVENTS, LEDGER, STEPS
from tidemark.warehouse.errors import BatchMismatch, InputError, name_text, without_secrets
from tidemark.warehouse.events.reader import BULK, BatchRange, files_of_batches, rows_by_batch
from tidemark.warehouse.events.removals import decided, removed_at
from tidemark.warehouse.events.step_facts import StepFacts
from tidemark.warehouse.events.steps import (
    StepPlan,
    newest_plan,
    newest_step,
    planned_batches,
    read_step_plans,
)
from tidemark.warehouse.execution.executors import executor_for
from tidemark.warehouse.ingest import append_rows, same_rows
from tidemark.warehouse.ingest.append_rows import Appended, GivenBatch
from tidemark.warehouse.ingest.overlaps import check_no_overlap, overlaps, sample_of_batch
from tidemark.warehouse.ingest.private_rows import text_columns, with_tokens
from tidemark.warehouse.ingest.row_filter import ALL_OR_NOTHING, DEFAULT_AHEAD, latest_time
from tidemark.warehouse.ledger import batch_counts, ledger_table, unaccounted
from tidemark.warehouse.ledger.ledger_rows import RANGE_COLUMNS, TIME_COLUMNS, times_of
from tidemark.warehouse.loads import history, missing_summaries
from tidemark.warehouse.loads.history import LoadReport
from tidemark.warehouse.loads.next_step import NextStep, Parts
from tidemark.warehouse.os_errors import report_os_errors
from tidemark.warehouse.removals.finish import finish_open
from tidemark.warehouse.runs import run_tables
from tidemark.warehouse.runs.levels import plan_merge
from tidemark.warehouse.settings.features import SIGNED
from tidemark.warehouse.settings.options import read_options
from tidemark.warehouse.sizes import Tuning
from tidemark.warehouse.snapshots.behind import behind_error, check_planned
from tidemark.warehouse.text.given import text_files
from tidemark.warehouse.work import Work

if TYPE_CHECKING:
    import os
    from datetime import timedelta

    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, SparkSession

    from tidemark.warehouse.execution.arrow_inputs import LocalRows

_LOG = logging.getLogger("tidemark.load")

_HASH_BYTES = 6  # the low bytes of a bulk batch's number are the hash, the others the generation


def load(  # noqa: PLR0913  the rows, and how they are taken
    spark: SparkSession | None,
    uri: str | os.PathLike[str],
    rows: DataFrame | LocalRows | None = None,
    batch: str | None = None,
    *,
    ahead: str | timedelta | None = DEFAULT_AHEAD,
    again: bool = False,
    refuse_overlap: bool = False,
    evolve: bool = False,
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
              or JSON lines, a pattern such as 'in/*.csv', or a list of these. Integers may have another
              integer type than the column, or be given for a column of floats, if the stored type holds each
              value exactly
    batch     the name of the batch; it must stay the same when the load is run again
    ahead     a batch with rows whose time is further ahead of the clock is refused; None takes any time
    again     whether a batch that was unloaded may come again with the same rows
    refuse_overlap
              True: a batch is refused if its rows are the same, or nearly the same, as those of an earlier
              bulk load. False: it is loaded, and `overlaps` of the report and a logged warning name both
              batches. Batches that were unloaded are not compared
    evolve    whether columns that the warehouse lacks are added to it (`added_columns` of the report names
              them); by default they are refused. Earlier and later batches without them have NULL there. In
              text, a new column gets its type as in a first batch. Also whether a column gets the type of
              the rows if that is wider, as by `alter(widen=...)` and at its cost (`widened_columns`); in
              text, columns keep their types
    storage_options
              options of the object store, as delta-rs takes them
    progress  called with the name of each point reached
    tuning    sizes of files, blocks and tasks; None: the defaults of `Tuning`

    If the ledger has lost streamed batches (another tool restored an older version), their ledger rows are
    written again first; in an object store, only a load without rows looks for them. Loading the same batch
    again changes nothing. If there is nothing to load (the batch has no rows, or no streamed batch is
    waiting), the outcome is 'empty'. A batch that was unloaded may come again with other rows. Raises
    BatchMismatch if the batch was loaded with other rows, or was unloaded with the same ones and `again` is
    not given; OverlappingBatch for `refuse_overlap`; InputError for rows that do not fit the columns. After
    each of these errors nothing was changed.
    """
    with report_os_errors("load"):
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
        executor.check_sendable(options.companions.known_kinds())
        work = Work(executor, store, options, progress)
        # To save requests, a bulk load into a store skips this.
        if rows is None or not store.files.takes_rounds:
            ledger, plans = tables.open_table(store, LEDGER), read_step_plans(store, steps, work.step_files)
            if unaccounted.find(store, events, ledger, plans).lost:
                # With newer plans: maintenance may have removed ledger rows of batches that others loaded.
                lost = unaccounted.find(store, events, ledger, _plans(work)).lost
                missing_summaries.write_missing(work, lost)
        report = LoadReport(seconds=work.seconds)
        if rows is not None and batch is not None:
            if executor.in_process and (texts := text_files(rows)) is not None:
                keys = {*options.key_columns, *options.private} - {*options.measure_names, options.time}
                rows = texts.rows(text_columns(events, options), dict(options.columns), keys, evolve=evolve)
            times = unloads(store, events, batch)
            given_rows = with_tokens(executor.input(rows), options)
            given = GivenBatch(given_rows, bulk_batch(batch, times), row_filter, evolve=evolve)
            if times and not again:
                _check_not_unloaded(
                    work, events, replace(given, batch=bulk_batch(batch, times - 1)), given.batch
                )
            step, work = _plan_bulk(work, events, steps, given, report, refuse_overlap=refuse_overlap)
        else:
            step = _plan_live(work, steps, report)
        _finish_steps(work, step, report)
        _LOG.info("%s: load %s, %d rows", without_secrets(store.uri), report.outcome, report.rows)
        return report


def catch_up(work: Work) -> LoadReport:
    """Loads every planned step into the projections that lack it, such as those that `alter` added."""
    work.executor.check_sendable(work.options.companions.known_kinds())
    report = LoadReport(seconds=work.seconds)
    _finish_steps(work, newest_step(work.store), report)
    return report


def ensure_caught_up(work: Work) -> None:
    """As `catch_up`, and quicker where it has nothing to do."""
    if not is_caught_up(work):
        catch_up(work)


def is_caught_up(work: Work) -> bool:
    """Whether `catch_up` has nothing to do, unless a removal is open. Marks are not looked at.

    False, too, if that is not known, as where a table is missing.
    """
    projections = work.options.projections
    names = [EVENTS, STEPS, *(one.runs_table for one in projections)]
    events, steps, *runs = tables.find_tables(work.store, *names)
    if events is None or steps is None or any(one is None for one in runs):
        return False
    options = read_options(work.store, events)
    if options.projections != projections:
        return False
    layouts = [run_tables.read_layout(one) for one in runs if one is not None]
    newest = newest_plan(read_step_plans(work.store, steps, work.step_files))
    return all(one.last_step == newest and plan_merge(one, options.kappa) is None for one in layouts)


def account(work: Work) -> None:
    """Writes ledger rows that batches of streams lack, and the plans of bulk batches that have none.

    After that, each row of `events` belongs to a ledger row or to a planned step.
    """
    events, ledger = tables.open_tables(work.store, EVENTS, LEDGER)
    found = unaccounted.find(work.store, events, ledger, _plans(work))
    missing_summaries.write_missing(work, found.streamed)
    for batch in found.bulk:
        sample = sample_of_batch(work, events, batch)
        facts = StepFacts.here(sample.times, sample)
        _next_step(work).commit_batch(batch, _rows_of(work, events, batch), facts)


def reserve(work: Work, batch: BatchRange, times: tuple[int, int] | None) -> int:
    """Takes the name of a bulk batch whose rows come by a removal, and plans a step of it without rows.

    Returns the step, or the step that an interrupted call had planned. `times` of the rows are for its facts.
    """
    race = Race(work.store, EVENTS)
    while not append_rows.has_batch(race.table, batch):
        if race.commit_numbered(batch.source, batch.first, []):
            break
    work.reached("batch named")
    step = _next_step(work)
    is_planned = step.commit_batch(batch, 0, StepFacts.here(times, None))
    work.reached("batch planned")
    return step.number if is_planned else step.step_of(batch)


def load_live(work: Work) -> None:
    """Moves all live batches into history, as a load without rows does."""
    report = LoadReport(seconds=work.seconds)
    _finish_steps(work, _plan_live(work, tables.open_table(work.store, STEPS), report), report)


def bulk_batch(name: str, generation: int = 0) -> BatchRange:
    """The batch of the bulk load called `name`, numbered by a hash of its source.

    `generation` is how often a batch of this name was unloaded: each time the name gets another batch.

    Delta truncates the statistics of long text, so files cannot be pruned by source names that start alike.
    The hash is an integer with exact statistics, so files can be pruned by it.
    """
    source = f"{BULK}{name}"
    number = int.from_bytes(hashlib.blake2b(source.encode(), digest_size=_HASH_BYTES).digest(), "big")
    number += generation << 8 * _HASH_BYTES
    return BatchRange(source, number, number)


def unloads(store: Store, events: DeltaTable, name: str) -> int:
    """How often the bulk batch with this name was unloaded, at this version of `events`."""
    source = bulk_batch(name).source
    return sum(
        one.kind == "unload" and any(part.batches.source == source for part in one.parts)
        for one in removed_at(store, events).removals
    )


def _check_not_unloaded(work: Work, events: DeltaTable, before: GivenBatch, batch: BatchRange) -> None:
    """BatchMismatch if the rows are those of `before`, which were unloaded, and `batch` is not there yet.

    So a scheduler's retry does not bring back rows that were taken out.
    """
    if not append_rows.has_batch(events, batch) and same_rows.difference(work, before) is None:
        raise BatchMismatch(
            f"batch {batch.source!r} was unloaded, and these are the same rows. Nothing was changed. Load "
            "other rows under its name, or say that these are wanted: load(..., again=True), --again."
        )


def _plan_bulk(
    work: Work,
    events: DeltaTable,
    steps: DeltaTable,
    given: GivenBatch,
    report: LoadReport,
    *,
    refuse_overlap: bool,
) -> tuple[int | None, Work]:
    """Appends the batch to `events` and plans its step; the tables are opened, the options those in `events`.

    Returns (step, work). The step is None if the batch has no rows. The work has the options as they are
    after the append: the first one adds the columns to a warehouse that has none.
    """
    store, batch, loaded, sample = work.store, given.batch, None, None
    with work.phase("check"):
        given.check_columns(work.options)
        is_known = append_rows.has_batch(events, batch)
        if not is_known:
            _check_not_planned(work, steps, batch)
    if not is_known:
        with work.phase("append"):
            appended = _append(work, events, given, steps if refuse_overlap else None)
        if appended.outcome == "empty":
            report.outcome = "empty"
            return None, work
        is_known = appended.outcome == "known"  # another load appended this batch first
        sample = appended.sample
        report.added_columns, report.widened_columns = [*appended.added], [*appended.widened]
        work.reached("appended")
        loaded, (events,) = _loaded(work, EVENTS)
        work = replace(work, options=read_options(store, events))
    if is_known:
        with work.phase("check"):
            different = same_rows.difference(work, given)
        if different:
            _check_rows_of_plan(work, events, batch)
            raise BatchMismatch(
                f"batch {batch.source!r} was loaded before with other rows: {different}. "
                "Nothing was changed. Load new rows under a new batch name."
            )
    if loaded is None:
        loaded, _ = _loaded(work)
    with work.phase("plan"):
        step, is_planned = _next_step(work, steps, loaded), False
        if batch not in step.planned:
            sample = sample or sample_of_batch(work, events, batch)  # an interrupted load wrote the rows
            facts = StepFacts.here(sample.times, sample)
            is_planned = step.commit_batch(batch, _rows_of(work, events, batch), facts)
            if is_planned:
                report.overlaps += overlaps(store, events, step.table, step.plans, batch, sample)
        number = step.number if is_planned else step.step_of(batch)
    for warning in report.overlaps:
        _LOG.warning("%s. If it is loaded twice by mistake, its rows count twice.", warning)
    work.reached("planned")
    return number, work


def _append(work: Work, events: DeltaTable, given: GivenBatch, steps: DeltaTable | None) -> Appended:
    """Appends the batch; with `steps`, OverlappingBatch if an earlier batch has (nearly) the same rows."""
    race, tick, done = Race(work.store, EVENTS, events), step_tick(work), None
    while done is None:
        written = append_rows.write(work.store, given, tick, race.table)
        if steps is not None:
            plans = read_step_plans(work.store, steps, work.step_files)
            sample = written.result.sample
            check_no_overlap(overlaps(work.store, race.table, steps, plans, given.batch, sample))
        done = append_rows.commit(work, race, written)
    return done


def _check_not_planned(work: Work, steps: DeltaTable, batch: BatchRange) -> None:
    """DamagedWarehouse if a plan has the batch but `events` does not: its rows were there and are lost."""
    if batch not in planned_batches(read_step_plans(work.store, steps, work.step_files)):
        return
    if not append_rows.has_batch(tables.open_table(work.store, EVENTS), batch):
        raise behind_error(EVENTS, f"it does not have {batch.text}, which a step has")


def _check_rows_of_plan(work: Work, events: DeltaTable, batch: BatchRange) -> None:
    """DamagedWarehouse unless `events` has as many rows of the batch as were planned and not removed."""
    planned = {part: rows for plan in _plans(work) for part, rows in plan.parts if part == batch}
    expected = removed_at(work.store, events).parts(planned)
    batch_counts.check_complete(work.store, files_of_batches(events, list(expected)), expected)


def _plan_live(work: Work, steps: DeltaTable, report: LoadReport) -> int | None:
    """Plans one step with all batches of the ledger that no plan covers; returns the last planned step.

    None if nothing was ever planned. The outcome is 'empty' if plans cover all batches of the ledger. `steps`
    is the table, opened before, for the first try.
    """
    with work.phase("plan"):
        step, is_planned = _next_step(work, steps, _loaded(work)[0]), False
        while not is_planned:
            parts, times = _live_parts(work.store, step.planned)
            if not parts:
                report.outcome = "empty"
                break
            is_planned = step.commit(parts, StepFacts.here(times, None))
    work.reached("planned")
    newest = step.number if is_planned else step.number - 1
    return None if newest < 0 else newest


def step_tick(work: Work) -> int:
    """The tick of new rows in a warehouse without a time column: the step planned next; 0 for others."""
    return 0 if work.options.time is not None else newest_step(work.store) + 1


def _plans(work: Work) -> list[StepPlan]:
    return read_step_plans(work.store, tables.open_table(work.store, STEPS), work.step_files)


def _live_parts(store: Store, planned: list[BatchRange]) -> tuple[Parts, tuple[int, int] | None]:
    """The parts of a step with all batches of the ledger that no plan has, and their first and last time."""
    files = ledger_table.ranges_by_file(store, tables.open_table(store, LEDGER))
    live = ledger_table.live_ranges(chain.from_iterable(files.values()), planned)
    rows = ledger_table.read_rows(store, files, live, [*RANGE_COLUMNS, "rows", *TIME_COLUMNS])
    counts, by_source = ledger_table.row_counts(rows), dict[str, list[BatchRange]]()
    for batches in live:
        by_source.setdefault(batches.source, []).append(batches)
    parts = [
        (BatchRange(source, ranges[0].first, ranges[-1].last), sum(counts[batches] for batches in ranges))
        for source, ranges in by_source.items()
    ]
    return parts, times_of(rows)


def _rows_of(work: Work, events: DeltaTable, batch: BatchRange) -> int:
    return rows_by_batch(work.store, events, batch).total()


def _next_step(
    work: Work, first: DeltaTable | None = None, loaded: Sequence[tuple[str, int]] = ()
) -> NextStep:
    """The step that is planned next; parameters as `_plans_since`."""
    return NextStep(work, *_plans_since(work, first or tables.open_table(work.store, STEPS), loaded))


def _plans_since(
    work: Work, table: DeltaTable, loaded: Sequence[tuple[str, int]]
) -> tuple[DeltaTable, list[StepPlan]]:
    """The table `steps` with its plans, opened again if it is older than the runs.

    `loaded` are pairs of a runs table and its newest step. DamagedWarehouse if such a step has no plan.
    """
    plans = read_step_plans(work.store, table, work.step_files)
    if any(last > newest_plan(plans) for _, last in loaded):
        table = tables.open_table(work.store, STEPS)
        plans = read_step_plans(work.store, table, work.step_files)
        check_planned(newest_plan(plans), loaded)
    return table, plans


def _loaded(work: Work, *others: str) -> tuple[list[tuple[str, int]], list[DeltaTable]]:
    """The first runs table with its newest step, nothing if it does not exist; and other opened tables."""
    names = [projection.runs_table for projection in work.options.projections[:1]]
    opened = tables.find_tables(work.store, *others, *names)
    runs = zip(names, opened[len(others) :], strict=True)
    rest = zip(others, opened[: len(others)], strict=True)
    found = [table or tables.open_table(work.store, name) for name, table in rest]
    return [(name, run_tables.read_layout(one).last_step) for name, one in runs if one is not None], found


def _finish_steps(work: Work, last_step: int | None, report: LoadReport) -> None:
    """Loads every planned step up to `last_step` (inclusive; None: no step), then merges runs.

    A removal that is not finished is finished before the merges. If `alter` added projections or lowered
    kappa meanwhile, or rows left while runs were merged, this starts over.
    """
    while True:
        _load_steps(work, last_step, report)
        projections, kappa = work.options.projections, work.options.kappa
        names = [projection.runs_table for projection in projections]
        events, *runs = tables.open_tables(work.store, EVENTS, *names)
        fresh = replace(work, options=read_options(work.store, events))
        if SIGNED in fresh.options.features:
            del events, runs  # tables that nobody uses are opened again sooner
            finish_open(fresh)
            events, *runs = tables.open_tables(work.store, EVENTS, *names)
        size, removed = report.bytes_written, decided(events)
        for projection, table in zip(projections, runs, strict=True):
            layout = history.merge_levels(work, projection, table, report)
            report.runs_by_level[projection.title] = layout.levels()
        work = replace(work, options=read_options(work.store, events))
        if report.bytes_written > size and decided(tables.open_table(work.store, EVENTS)) > removed:
            continue
        if work.options.projections == projections and work.options.kappa >= kappa:
            return


def _load_steps(work: Work, last_step: int | None, report: LoadReport) -> None:
    """Loads every planned step up to `last_step` into each projection that lacks it."""
    opened = history.open_history(work)
    names = [projection.runs_table for projection in work.options.projections]
    loaded = min(opened.last_steps, default=-1)
    _, plans = _plans_since(work, opened.steps, list(zip(names, opened.last_steps, strict=True)))
    pending = [plan for plan in plans if last_step is not None and loaded < plan.step <= last_step]
    for number, plan in enumerate(pending):
        opened = history.open_history(work) if number else opened
        history.load_step(work, plan, opened, report)
        report.step, report.rows = plan.step, report.rows + plan.rows
        report.outcome = "loaded"
    if report.outcome == "loaded" and report.step is None:
        report.outcome = "known"
