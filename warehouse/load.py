"""Load: batches become a step of history, exactly once, whatever crashes or runs beside it.

    events     the rows are appended as one batch (a bulk load; a stream's rows are there already)
    plan       the step's batches are written down; whoever loses this race takes up the winner's plan
    sort       tasks sort bounded shares of events; several chunks are merged without a shuffle
    marks      the marks of the run are appended
    run        one commit puts the run into history: this is the moment that readers see
    merge      while a level holds more than kappa runs: files, marks, one commit

Recovery. A crash at any point is mended by running the same load again:

    after events   the replay finds the batch, checks that its rows are the same, and goes on
    after plan     the plan is taken as it stands
    after files or marks   they are written anew; maintenance sweeps what no commit names
    after a run's commit   that measure is skipped, the next one is done; the key comes last
    in a merge     the inputs are still there: it is planned again

Steps enter history in order. A loader that finds an earlier step undone does it first, so two
loaders of different batches at once may do the same work; one commit of each wins.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

from tidemark.warehouse.delta import tables
from tidemark.warehouse.delta.commits import retry_lost_races, without_secrets
from tidemark.warehouse.delta.store import EVENTS, LEDGER, STEPS, Store
from tidemark.warehouse.errors import InputError
from tidemark.warehouse.events.reader import BatchRange, rows_by_batch
from tidemark.warehouse.events.steps import StepPlan, planned_batches, read_step_plans, write_step_plan
from tidemark.warehouse.execution.executors import executor_for
from tidemark.warehouse.ingest import append_rows
from tidemark.warehouse.ingest.row_filter import WHOLE
from tidemark.warehouse.ingest.same_rows import check_same_rows
from tidemark.warehouse.ledger import batch_counts, ledger_table
from tidemark.warehouse.ledger.ledger_rows import RANGE
from tidemark.warehouse.loads import run_builder
from tidemark.warehouse.os_errors import report_os_errors
from tidemark.warehouse.runs import run_tables
from tidemark.warehouse.runs.layout import Layout, plan_merge
from tidemark.warehouse.runs.projection import Projection
from tidemark.warehouse.settings.options import Options, read_options

if TYPE_CHECKING:
    import os

    from pyspark.sql import DataFrame, SparkSession

    from tidemark.warehouse.execution.arrow_inputs import LocalRows
    from tidemark.warehouse.execution.executors import Executor, Input

_LOG = logging.getLogger("tidemark.load")

BULK = "load:"  # the sources of bulk batches start so; a stream's name must not


@dataclass(slots=True)
class LoadReport:
    """What a load did.

    `outcome` is 'loaded', 'known' (the batch was in history before) or 'empty'. `rows`, `nans`
    and `nulls` are those of the steps that it moved into history, by measure and for the key.
    """

    outcome: str = "loaded"
    step: int | None = None
    rows: int = 0
    nans: dict[str, int] = field(default_factory=dict)
    nulls: dict[str, int] = field(default_factory=dict)
    runs_by_level: dict[str, dict[int, int]] = field(default_factory=dict)
    bytes_written: int = 0
    seconds: dict[str, float] = field(default_factory=dict)


class _Watch:
    """Tells the caller each point that the load reaches, and keeps the seconds of each phase."""

    def __init__(self, report: LoadReport, progress: Callable[[str], None] | None) -> None:
        self.report, self.progress = report, progress

    def reached(self, point: str) -> None:
        if self.progress:
            self.progress(point)

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
    storage_options: dict[str, str] | None = None,
    progress: Callable[[str], None] | None = None,
) -> LoadReport:
    """Moves a batch of rows into history; without rows, what the streams brought.

    spark     a Spark session, whose tasks do the work; None does it in this process, with memory for one
              task (some hundred MB) however many rows there are. Files and commits are the same, and either
              continues what the other began
    uri       the warehouse
    rows      the warehouse's columns in any order: a DataFrame of the session; without a session a pyarrow
              Table, RecordBatch or RecordBatchReader, or the path of a Parquet file or of a folder of them
    batch     the batch's name, which stays the same when the load is run again
    progress  called with the name of each point reached

    The same batch again changes nothing; a load of nothing succeeds and says so. Raises BatchMismatch where
    the batch came before with other rows, InputError for rows that do not fit; then nothing was changed.
    """
    if (rows is None) != (batch is None):
        raise InputError("rows and batch go together: load(spark, uri, rows, batch='2026-11-20').")
    if batch is not None and (not isinstance(batch, str) or not batch.strip()):
        raise InputError(
            f"batch must be a name that stays the same when the load is run again, got {batch!r}."
        )
    executor = executor_for(spark)
    store = Store.from_uri(uri, storage_options)
    options = read_options(store)
    report = LoadReport()
    watch = _Watch(report, progress)
    if rows is not None and batch is not None:
        step = _plan_bulk(executor, store, options, executor.input(rows), bulk_batch(batch), watch)
        options = read_options(store)
    else:
        step = _plan_live(store, watch)
    _finish_steps(executor, store, options, step, watch)
    _LOG.info("%s: load %s, %d rows", without_secrets(store.uri), report.outcome, report.rows)
    return report


def bulk_batch(name: str) -> BatchRange:
    """The batch of a bulk load: a source of its own, numbered by a hash of its name.

    Statistics of text are cut after a few characters; those of the number tell batches apart
    whose names begin alike.
    """
    source = f"{BULK}{name}"
    number = int.from_bytes(hashlib.blake2b(source.encode(), digest_size=6).digest(), "big")
    return BatchRange(source, number, number)


def _plan_bulk(
    executor: Executor, store: Store, options: Options, rows: Input, batch: BatchRange, watch: _Watch
) -> int | None:
    """The step of the batch, its rows being in `events`; None where there are none."""
    with watch.phase("check"):
        append_rows.check_rows(options, rows)
        known = append_rows.has_batch(store, batch)
    if not known:
        with watch.phase("append"):
            outcome = append_rows.append_rows(store, rows, batch, next_step(store), sieve=WHOLE).outcome
        if outcome == "empty":
            watch.report.outcome = "empty"
            return None
        known = outcome == "known"  # another loader of this very batch came first
        watch.reached("appended")
    if known:
        with watch.phase("check"):
            check_same_rows(executor, store, read_options(store), rows, batch)
    with watch.phase("plan"):
        step = _plan(store, lambda planned: [(batch, _count(store, batch))] if batch not in planned else [])
        if step is None:
            step = next(plan.step for plan in _plans(store) if batch in plan.batches)
    watch.reached("planned")
    return step


def _plan_live(store: Store, watch: _Watch) -> int | None:
    """The step that takes every batch of the ledger that no plan covers yet; None where there is none."""

    def choose(planned: list[BatchRange]) -> list[tuple[BatchRange, int]]:
        held = ledger_table.ranges_by_file(store, tables.open_table(store, LEDGER))
        live = ledger_table.live_ranges(chain.from_iterable(held.values()), planned)
        counts = ledger_table.row_counts(ledger_table.read_rows(store, held, live, [*RANGE, "rows"]))
        by_source: dict[str, list[BatchRange]] = {}
        for one in live:
            by_source.setdefault(one.source, []).append(one)
        return [
            (BatchRange(source, found[0].first, found[-1].last), sum(counts[one] for one in found))
            for source, found in by_source.items()
        ]

    with watch.phase("plan"):
        step = _plan(store, choose)
    watch.reached("planned")
    if step is None:
        plans = _plans(store)
        watch.report.outcome = "empty"
        return plans[-1].step if plans else None
    return step


def next_step(store: Store) -> int:
    """The number of the next step that a plan will take."""
    plans = _plans(store)
    return plans[-1].step + 1 if plans else 0


def _plans(store: Store) -> list[StepPlan]:
    return read_step_plans(store, tables.open_table(store, STEPS))


def _plan(store: Store, choose: Callable[[list[BatchRange]], list[tuple[BatchRange, int]]]) -> int | None:
    """Writes the plan of what `choose` takes, given what is planned; None where it takes nothing."""

    def attempt() -> int | None:
        table = tables.open_table(store, STEPS)
        plans = read_step_plans(store, table)
        step = plans[-1].step + 1 if plans else 0
        parts = choose(planned_batches(plans, step))
        if not parts:
            return None
        write_step_plan(store, table, StepPlan(step, tuple(parts)))
        return step

    return retry_lost_races(STEPS, attempt)


def _count(store: Store, batch: BatchRange) -> int:
    """Rows of the batch in `events`."""
    return rows_by_batch(store.filesystem(), tables.open_table(store, EVENTS), batch).total()


def _finish_steps(
    executor: Executor, store: Store, options: Options, last: int | None, watch: _Watch
) -> None:
    """Brings every planned step up to `last` into history, and merges."""
    report = watch.report
    for projection in options.projections:
        run_tables.create_tables(store, projection, options.grace_us)
    done = min((_layout(store, one).last_step for one in options.projections), default=-1)
    pending = [plan for plan in _plans(store) if last is not None and done < plan.step <= last]
    if report.outcome == "loaded" and not pending:
        report.outcome = "known"
    for plan in pending:
        _load_step(executor, store, options, plan, watch)
        report.step, report.rows = plan.step, report.rows + plan.rows
        report.outcome = "loaded"
    for projection in options.projections:
        _merge_levels(executor, store, options, projection, watch)
        report.runs_by_level[projection.title] = _layout(store, projection).levels()


def _layout(store: Store, projection: Projection[Any]) -> Layout:
    return run_tables.layout_of(tables.open_table(store, projection.runs_table))


def _load_step(executor: Executor, store: Store, options: Options, plan: StepPlan, watch: _Watch) -> None:
    behind = [one for one in options.projections if _layout(store, one).last_step < plan.step]
    with watch.phase("sort"):
        runs = run_builder.sort_step(executor, store, options.eps, behind, plan)
    watch.reached("sorted")
    for projection, new in zip(behind, runs, strict=True):
        rows = new.totals.counts.sum() + new.totals.nans.sum() + new.totals.nulls.sum()
        if rows != plan.rows:
            said = f"step {plan.step} expects {plan.rows} rows, {rows} are there, and it was not loaded"
            raise batch_counts.not_those_that_came(store, dict(plan.parts), said)
        with watch.phase("commit"):
            run_tables.append_marks(store, projection, new)
            watch.reached("marked")
            run_tables.commit_run(store, projection, new)
        watch.reached("committed")
        report = watch.report
        report.bytes_written += sum(file.size for file in new.files)
        name = projection.title
        report.nans[name] = report.nans.get(name, 0) + int(new.totals.nans.sum())
        report.nulls[name] = report.nulls.get(name, 0) + int(new.totals.nulls.sum())
        _LOG.info("%s: step %d is in history, %d rows", projection.runs_table, plan.step, plan.rows)


def _merge_levels(
    executor: Executor, store: Store, options: Options, projection: Projection[Any], watch: _Watch
) -> None:
    """Merges until no level holds more than kappa runs."""
    while True:
        table = tables.open_table(store, projection.runs_table)
        found = run_tables.runs_of(tables.list_files(table))
        merge = plan_merge(Layout.of(found), options.kappa)
        if merge is None:
            return
        with watch.phase("merge"):
            new = run_builder.merge_runs(executor, store, options.eps, projection, merge, found)
            watch.reached("merge sorted")
            run_tables.append_marks(store, projection, new)
            watch.reached("merge marked")
            if run_tables.commit_merge(store, projection, merge, new):
                watch.report.bytes_written += sum(file.size for file in new.files)
                _LOG.info(
                    "%s: merged %d runs into %s", projection.runs_table, len(merge.inputs), new.run.name
                )
        watch.reached("merged")
