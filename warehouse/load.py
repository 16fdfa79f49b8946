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
    after a run's commit   that measure is skipped, the next one is done
    in a merge     the inputs are still there: it is planned again

Steps enter history in order. A loader that finds an earlier step undone does it first, so two
loaders of different batches at once may do the same work; one commit of each wins.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING

from warehouse import history, ingest, ledger, marks, tables, tasks
from warehouse.create import read_options
from warehouse.cuts import SortedInput, plan_slices
from warehouse.errors import DamagedWarehouse, InputError
from warehouse.events import Batches, event_files, share_out
from warehouse.history import NewRun
from warehouse.layout import Layout, Merge, Run, plan_merge
from warehouse.marks import RunMarks, TickCounts, add_totals
from warehouse.measures import Measure
from warehouse.options import Options
from warehouse.runfiles import WrittenFile
from warehouse.steps import Plan, covered, read_plans, write_plan
from warehouse.storage import EVENTS, LEDGER, STEPS, Store, runs_table

if TYPE_CHECKING:
    import os

    from pyspark.sql import DataFrame, SparkSession

BULK = "load:"  # the sources of bulk batches start so; a stream's name must not
SLICE_ROWS = 2**20  # rows of a merge that a task holds at a time
FILE_ROWS = (2**20, 2**22)  # rows of a run's file: least and most; between them one file a core


@dataclass(slots=True)
class LoadReport:
    """What a load did.

    `outcome` is 'loaded', 'known' (the batch was in history before) or 'empty'. `rows`, `nans`
    and `nulls` are those of the steps that it moved into history.
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


def load(
    spark: SparkSession,
    uri: str | os.PathLike[str],
    rows: DataFrame | None = None,
    batch: str | None = None,
    *,
    storage_options: dict[str, str] | None = None,
    progress: Callable[[str], None] | None = None,
) -> LoadReport:
    """Moves a batch of rows into history; without rows, what the streams brought.

    The same batch again changes nothing; the same batch with other rows raises BatchMismatch.
    A load of nothing succeeds and says so. `progress` is called with the name of each point
    reached.
    """
    if (rows is None) != (batch is None):
        raise InputError("rows and batch go together: load(spark, uri, rows, batch='2026-11-20').")
    if batch is not None and (not isinstance(batch, str) or not batch.strip()):
        raise InputError(
            f"batch must be a name that stays the same when the load is run again, got {batch!r}."
        )
    store = Store.of(uri, storage_options)
    options = read_options(store)
    report = LoadReport()
    watch = _Watch(report, progress)
    if rows is not None and batch is not None:
        step = _plan_bulk(spark, store, options, rows, bulk_batch(batch), watch)
        options = read_options(store)
    else:
        step = _plan_live(store, watch)
    _finish_steps(spark, store, options, step, watch)
    return report


def bulk_batch(name: str) -> Batches:
    """The batch of a bulk load: a source of its own, numbered by a hash of its name.

    Statistics of text are cut after a few characters; those of the number tell batches apart
    whose names begin alike.
    """
    source = f"{BULK}{name}"
    number = int.from_bytes(hashlib.blake2b(source.encode(), digest_size=6).digest(), "big")
    return Batches(source, number, number)


def _plan_bulk(
    spark: SparkSession, store: Store, options: Options, rows: DataFrame, batch: Batches, watch: _Watch
) -> int | None:
    """The step of the batch, its rows being in `events`; None where there are none."""
    with watch.phase("check"):
        ingest.check_rows(options, rows)
        known = ingest.has_batch(store, batch)
    if not known:
        with watch.phase("append"):
            outcome = ingest.append_rows(store, rows, batch, next_step(store)).outcome
        if outcome == "empty":
            watch.report.outcome = "empty"
            return None
        known = outcome == "known"  # another loader of this very batch came first
        watch.reached("appended")
    if known:
        with watch.phase("check"):
            ingest.check_same_rows(spark, store, read_options(store), rows, batch)
    with watch.phase("plan"):
        step = _plan(
            store, lambda planned: [(batch, _count(spark, store, batch))] if batch not in planned else []
        )
        if step is None:
            step = next(plan.step for plan in _plans(store) if batch in plan.batches)
    watch.reached("planned")
    return step


def _plan_live(store: Store, watch: _Watch) -> int | None:
    """The step that takes every batch of the ledger that no plan covers yet; None where there is none."""

    def choose(planned: list[Batches]) -> list[tuple[Batches, int]]:
        held = ledger.ranges_by_file(store, tables.open_table(store, LEDGER))
        live = ledger.live_ranges(chain.from_iterable(held.values()), planned)
        counts = ledger.row_counts(ledger.read_rows(store, held, live))
        by_source: dict[str, list[Batches]] = {}
        for one in live:
            by_source.setdefault(one.source, []).append(one)
        return [
            (Batches(source, found[0].first, found[-1].last), sum(counts[one] for one in found))
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


def _plans(store: Store) -> list[Plan]:
    return read_plans(store, tables.open_table(store, STEPS))


def _plan(store: Store, choose: Callable[[list[Batches]], list[tuple[Batches, int]]]) -> int | None:
    """Writes the plan of what `choose` takes, given what is planned; None where it takes nothing."""
    while True:
        table = tables.open_table(store, STEPS)
        plans = read_plans(store, table)
        step = plans[-1].step + 1 if plans else 0
        parts = choose(covered(plans, step))
        if not parts:
            return None
        try:
            write_plan(store, table, Plan(step, tuple(parts)))
            return step
        except tables.LostRace:
            continue


def _count(spark: SparkSession, store: Store, batch: Batches) -> int:
    """Rows of the batch in `events`; from the files' statistics where they hold no other batch."""
    found = event_files(tables.open_table(store, EVENTS), [batch])
    pure = all(file.stats.get("min._batch") == file.stats.get("max._batch") == batch.first for file in found)
    if pure and all(file.rows >= 0 for file in found):
        return sum(file.rows for file in found)
    events = spark.read.format("delta").load(store.spark_path(EVENTS))
    return events.where(
        (events["_source"] == batch.source) & events["_batch"].between(batch.first, batch.last)
    ).count()


def _finish_steps(
    spark: SparkSession, store: Store, options: Options, last: int | None, watch: _Watch
) -> None:
    """Brings every planned step up to `last` into history, and merges."""
    report = watch.report
    for measure in options.measures:
        history.create_tables(store, measure)
    done = min((_layout(store, measure).last_step for measure in options.measures), default=-1)
    pending = [plan for plan in _plans(store) if last is not None and done < plan.step <= last]
    if report.outcome == "loaded" and not pending:
        report.outcome = "known"
    for plan in pending:
        _load_step(spark, store, options, plan, watch)
        report.step, report.rows = plan.step, report.rows + plan.rows
        report.outcome = "loaded"
    for measure in options.measures:
        _merge_levels(spark, store, options, measure, watch)
        report.runs_by_level[measure.name] = _layout(store, measure).levels()


def _layout(store: Store, measure: Measure) -> Layout:
    return history.layout_of(tables.open_table(store, runs_table(measure.name)))


def _load_step(spark: SparkSession, store: Store, options: Options, plan: Plan, watch: _Watch) -> None:
    measures = [measure for measure in options.measures if _layout(store, measure).last_step < plan.step]
    with watch.phase("sort"):
        runs = _sort(spark, store, options, measures, plan)
    watch.reached("sorted")
    for measure, new in zip(measures, runs, strict=True):
        rows = new.totals.counts.sum() + new.totals.nans.sum() + new.totals.nulls.sum()
        if rows != plan.rows:
            raise DamagedWarehouse(
                f"step {plan.step} expects {plan.rows} rows of {plan.batches}, events holds {rows}. "
                "Rows of events were removed or added by hand: restore them."
            )
        with watch.phase("commit"):
            history.append_marks(store, measure, new)
            watch.reached("marked")
            history.commit_run(store, measure, new)
        watch.reached("committed")
        report = watch.report
        report.bytes_written += sum(file.size for file in new.files)
        report.nans[measure.name] = report.nans.get(measure.name, 0) + int(new.totals.nans.sum())
        report.nulls[measure.name] = report.nulls.get(measure.name, 0) + int(new.totals.nulls.sum())


def _sort(
    spark: SparkSession, store: Store, options: Options, measures: Sequence[Measure], plan: Plan
) -> list[NewRun]:
    """The step's run of each measure, written and not committed."""
    run = Run(plan.step, plan.step, 0)
    attempt = tables.new_name()
    found = event_files(tables.open_table(store, EVENTS), plan.batches)
    shares = share_out(store.filesystem(), found, tasks.SORT_ROWS // max(1, len(measures)))
    whole = len(shares) <= 1

    def paths(i: int) -> tuple[str, ...]:
        if whole:
            return tuple(history.run_path(measure, run, attempt, 0) for measure in measures)
        return tuple(f"{_chunks(measure)}/{attempt}/{i:05d}.parquet" for measure in measures)

    work = [
        tasks.SortTask(
            store, tuple(measures), plan.batches, tuple(part), paths(i), options.eps if whole else None
        )
        for i, part in enumerate(shares or [[]])
    ]
    results = tasks.run(spark, work)
    by_measure = [[task[i] for task in results] for i in range(len(measures))]
    runs = []
    for measure, chunks in zip(measures, by_measure, strict=True):
        totals = add_totals([one for _, one in chunks])
        files = [file for file, _ in chunks]
        if not whole:
            inputs = [SortedInput(((f.path, 0, f.rows),), f.rows, f.positions, f.values) for f in files]
            files = _merge(spark, store, options, measure, inputs, totals, run, attempt)
            store.filesystem().delete_dir(f"{_chunks(measure)}/{attempt}")
        runs.append(NewRun(run, attempt, tuple(files), totals))
    return runs


def _chunks(measure: Measure) -> str:
    """Where sorted chunks wait for their merge; Delta looks past names that start with '_'."""
    return f"{runs_table(measure.name)}/_chunks"


def _merge(
    spark: SparkSession,
    store: Store,
    options: Options,
    measure: Measure,
    inputs: Sequence[SortedInput],
    totals: TickCounts,
    run: Run,
    attempt: str,
) -> list[WrittenFile]:
    """Merges sorted inputs into the files of a run: a task a file, a bounded slice at a time."""
    rows = sum(one.rows for one in inputs)
    grain = marks.grain(rows, options.eps)
    span = marks.span(rows, grain, len(totals.ticks))
    slices = plan_slices(inputs, -(-rows // SLICE_ROWS))
    least, most = FILE_ROWS
    per_file = max(1, min(most, max(least, rows // _cores(spark))) // SLICE_ROWS)
    files: list[WrittenFile] = tasks.run(
        spark,
        [
            tasks.MergeTask(
                store,
                measure.arrow_type,
                tuple(inputs),
                tuple(slices[at : at + per_file]),
                history.run_path(measure, run, attempt, at // per_file),
                grain,
                span,
            )
            for at in range(0, len(slices), per_file)
        ],
    )
    written = sum(file.rows for file in files)
    if written != rows:
        raise DamagedWarehouse(
            f"merging into run {run.name} of {measure.name!r} wrote {written} of {rows} values. "
            "Nothing was committed: run verify, it names the file whose marks are wrong."
        )
    return files


def _cores(spark: SparkSession) -> int:
    try:
        return int(spark.sparkContext.defaultParallelism)
    except Exception:  # noqa: BLE001  a Spark Connect session has no context, and does not tell
        return 8


def _merge_levels(
    spark: SparkSession, store: Store, options: Options, measure: Measure, watch: _Watch
) -> None:
    """Merges until no level holds more than kappa runs."""
    while True:
        table = tables.open_table(store, runs_table(measure.name))
        found = history.runs_of(tables.files(table))
        merge = plan_merge(Layout.of(found), options.kappa)
        if merge is None:
            return
        with watch.phase("merge"):
            inputs = [history.read_marks(store, measure, run, found[run]) for run in merge.inputs]
            new = _merge_runs(spark, store, options, measure, merge, inputs)
            watch.reached("merge sorted")
            history.append_marks(store, measure, new)
            watch.reached("merge marked")
            if history.commit_merge(store, measure, merge, new):
                watch.report.bytes_written += sum(file.size for file in new.files)
        watch.reached("merged")


def _merge_runs(
    spark: SparkSession,
    store: Store,
    options: Options,
    measure: Measure,
    merge: Merge,
    inputs: Sequence[RunMarks],
) -> NewRun:
    attempt = tables.new_name()
    totals = add_totals([one.totals for one in inputs])
    root = runs_table(measure.name)
    sources = [
        SortedInput(
            tuple((f"{root}/{f.path}", f.first, f.rows) for f in one.files),
            one.rows,
            one.positions,
            one.values,
        )
        for one in inputs
    ]
    files = _merge(spark, store, options, measure, sources, totals, merge.output, attempt)
    return NewRun(merge.output, attempt, tuple(files), totals)
