"""Maintenance: deletes files past the grace, and joins small files.

Retention is the grace period. A file is deleted only when the grace has passed since it left its table or, if
no version of the table ever named it, since it was written. So a reader whose snapshot is younger than the
grace finds all its files, and a load in progress loses none.

    runs      vacuum of the files of merged runs, of lost commit races, and of sorted chunks left by a crash
    marks     marks leave the table if their run was merged or never committed; their files are vacuumed later
    ledger    rows leave the table if history has had their batches for the grace, or if a wider range has
              repeated them for the grace; rows that few readers need are joined into one file
    events    small files are joined in tasks
    removals  a removal that is open is finished first; the files of those that never happened leave
    dropped   the rows of what was dropped leave its tables a grace later, and its files are deleted then
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidemark.warehouse.columns.ticks import parse_grace
from tidemark.warehouse.delta import data_files, table_open, tables
from tidemark.warehouse.delta.clock import check_clock
from tidemark.warehouse.delta.commits import first_line
from tidemark.warehouse.delta.data_files import DataFile
from tidemark.warehouse.delta.grace import expired
from tidemark.warehouse.delta.races import Race
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import (
    EVENTS,
    LEDGER,
    PURGES,
    REJECTED,
    REMOVALS,
    REMOVED,
    STEPS,
    marks_of,
)
from tidemark.warehouse.delta.vacuum import extend_log_retention, vacuum_table
from tidemark.warehouse.errors import DamagedWarehouse, without_secrets
from tidemark.warehouse.events.purges import Certificate
from tidemark.warehouse.events.reader import files_of_batches
from tidemark.warehouse.events.removals import removed_at
from tidemark.warehouse.events.steps import StepPlan, planned_batches, read_step_plans
from tidemark.warehouse.execution.executors import Executor, executor_for
from tidemark.warehouse.ingest.event_files import JoinFiles
from tidemark.warehouse.ledger import batch_counts
from tidemark.warehouse.ledger.ledger_compaction import write_compaction
from tidemark.warehouse.os_errors import report_os_errors
from tidemark.warehouse.removals import purge_files, upkeep
from tidemark.warehouse.removals.finish import finish_open
from tidemark.warehouse.runs import run_tables
from tidemark.warehouse.runs.levels import Run
from tidemark.warehouse.runs.projection import Projection
from tidemark.warehouse.settings.features import SIGNED
from tidemark.warehouse.settings.options import Options, read_options
from tidemark.warehouse.sizes import Tuning, packed
from tidemark.warehouse.snapshots.behind import behind_error, check_marks
from tidemark.warehouse.snapshots.snapshot_reader import SnapshotReader
from tidemark.warehouse.work import Work

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG = logging.getLogger("tidemark.maintain")

_SMALL_BYTES = 2**27  # files of `events` below this are joined


@dataclass(slots=True)
class MaintenanceReport:
    """What a call of `maintain` did.

    swept                by table, how many files were deleted
    compacted            by table, the number of files before and after joining; only tables that changed
    ledger_rows_expired  rows that left the ledger
    marks_expired        files of marks that left their table
    lengthened           by table, how long its log is now kept; it was shorter than the grace
    held                 by table, why none of its files were deleted, or why it keeps its runs
    links                symbolic links in tables; they are not followed and not deleted
    purged               the certificates of purges whose rows left a grace ago: of those whose files are gone
                         now, and of those that wait for something
    """

    swept: dict[str, int] = field(default_factory=dict)
    compacted: dict[str, tuple[int, int]] = field(default_factory=dict)
    ledger_rows_expired: int = 0
    marks_expired: int = 0
    lengthened: dict[str, str] = field(default_factory=dict)
    held: dict[str, str] = field(default_factory=dict)
    links: list[str] = field(default_factory=list)
    purged: list[Certificate] = field(default_factory=list)


def maintain(
    spark: SparkSession | None,
    uri: str | os.PathLike[str],
    *,
    grace: str | None = None,
    storage_options: dict[str, str] | None = None,
    progress: Callable[[str], None] | None = None,
    tuning: Tuning | None = None,
) -> MaintenanceReport:
    """Deletes files past the grace and joins small files.

    spark     a Spark session, whose tasks join files of `events`; None: this process joins them, one group
              after the other
    uri       the warehouse
    grace     overrides the warehouse's grace in this call; a shorter one is safe only while nothing reads or
              loads
    storage_options
              options of the object store, as delta-rs takes them
    progress  called with a text at the start of each part
    tuning    sizes of joined files' row groups; None: the defaults of `Tuning`

    In an object store, parts of uploads that a kill left unfinished are not deleted: no library here can list
    them. A lifecycle rule of the bucket aborts them, see docs/guides/object_stores.md.

    A table's log that is kept for less than the grace is now kept for longer. Raises DamagedWarehouse,
    before anything is changed, if a path of a table leads out of the warehouse's folder, or if the log of a
    table is behind the others: files that it does not name any more would be deleted. Raises SystemRefused if
    this machine's clock differs from the store's by more than a minute.
    """
    with report_os_errors("maintain"):
        store = Store.from_uri(uri, storage_options, tuning)
        executor = executor_for(spark, store.tuning)
        return maintain_store(Work(executor, store, read_options(store), progress), grace)


def maintain_store(work: Work, grace: str | None) -> MaintenanceReport:
    """As `maintain`, in the work of a call; the options are read again."""
    store, options = work.store, read_options(work.store)
    grace_us = options.grace_us if grace is None else parse_grace(grace)
    report = MaintenanceReport()
    projections = [
        projection for projection in options.projections if table_open.exists(store, projection.runs_table)
    ]
    runs = {projection.runs_table: _committed_runs(store, projection) for projection in projections}
    is_signed = SIGNED in options.features
    names = [projection.runs_table for projection in projections]
    names += [projection.marks_table for projection in projections]
    later = (REMOVALS, REMOVED, PURGES) if is_signed else (PURGES,)
    names += [LEDGER, STEPS, REJECTED, EVENTS, *_existing(store, *later)]  # not those of dropped projections
    waiting = purge_files.due(store, grace_us)
    for name in names:
        tables.check_no_links(store, name)
    check_clock(store)
    _check_complete(store)
    if finish_open(replace(work, options=options), with_kept=True).runs:
        runs = {projection.runs_table: _committed_runs(store, projection) for projection in projections}
    for name in names:
        if (kept_for := extend_log_retention(store, name, grace_us)) is not None:
            report.lengthened[name] = kept_for
    for projection in projections:
        work.reached(f"marks of {projection.title}")
        report.marks_expired += _expire_marks(store, projection, runs[projection.runs_table], grace_us)
        work.reached(f"runs of {projection.title}")
        for name in (projection.runs_table, projection.marks_table):
            _sweep(store, name, grace_us, report)
    work.reached("ledger and steps")
    purged = purge_files.newest_step(waiting)
    report.ledger_rows_expired = _compact_ledger(store, options, runs, grace_us, report, purged)
    for name in (LEDGER, STEPS, REJECTED, *_existing(store, PURGES)):
        _sweep(store, name, grace_us, report)
    if is_signed:
        work.reached("removals")
        _take_removed(store, grace_us, report)
    for name in options.dropped:
        work.reached(f"dropped: {name}")
        _take_dropped(store, name, options, grace_us, report)
    work.reached("events")
    _compact_events(work.executor, store, report)
    _sweep(store, EVENTS, grace_us, report)
    report.purged = purge_files.certify(store, options, waiting, grace_us)
    _LOG.info(
        "%s: maintained: %d files swept, %d ledger rows and %d marks expired, compacted: %s",
        without_secrets(store.uri),
        sum(report.swept.values()),
        report.ledger_rows_expired,
        report.marks_expired,
        ", ".join(report.compacted) or "nothing",
    )
    return report


def _existing(store: Store, *names: str) -> list[str]:
    return [name for name in names if table_open.exists(store, name)]


def _check_complete(store: Store) -> None:
    """DamagedWarehouse if a table is behind the others: files that its log lost would be deleted."""
    snapshot = SnapshotReader(store).newest()
    snapshot.behind()
    for projection in snapshot.options.projections:
        name = projection.marks_table
        marks = tables.open_table(store, name) if table_open.exists(store, name) else None
        check_marks(projection, snapshot.table(projection.runs_table), marks)
    steps, ledger, events = tables.open_tables(store, STEPS, LEDGER, EVENTS)
    removed = removed_at(store, events)
    expected = batch_counts.expected_rows(store, read_step_plans(store, steps), ledger, removed)
    if batch_counts.is_complete(store, files_of_batches(events, list(expected)), expected):
        return
    for change in batch_counts.changed_ranges(store, expected):  # verify reports changes by other tools
        batches = change.batches
        if not change.actual and not tables.has_transaction(events, batches.source, batches.last):
            raise behind_error(EVENTS, f"it does not have {batches.text}, which the others have")


@dataclass(frozen=True, slots=True)
class _CommittedRun:
    """A run in history. `since` is when it was committed, in milliseconds since 1970.

    `attempts` are the names of the attempts that wrote its files; its marks are named after them.
    """

    run: Run
    since: int
    attempts: frozenset[str]


_RunsByTable = dict[str, list[_CommittedRun]]


def _committed_runs(store: Store, projection: Projection[Any]) -> list[_CommittedRun]:
    runs = run_tables.runs_of(tables.open_table(store, projection.runs_table))
    return [
        _CommittedRun(
            run,
            max(file.modified for file in files),
            frozenset(run_tables.attempt_name(file.path) for file in files),
        )
        for run, files in runs.items()
    ]


def _expire_marks(store: Store, projection: Projection[Any], runs: list[_CommittedRun], grace_us: int) -> int:
    """Removes from their table the marks of runs that were merged and of attempts that were never committed.

    Returns how many files of marks were removed. Marks of steps that no committed run covers stay: their load
    is in progress, or crashed and will run again.
    """
    current = {attempt for committed in runs for attempt in committed.attempts}
    race = Race(store, projection.marks_table)
    while True:
        gone = []
        for file in data_files.list_files(race.table):
            run = Run.parse(file.partition["run"])
            covered_since = [
                committed.since
                for committed in runs
                if committed.run.first <= run.first and run.last <= committed.run.last
            ]
            if (
                run_tables.attempt_name(file.path) not in current
                and covered_since
                and expired(max(file.modified, *covered_since), grace_us)
            ):
                gone.append(data_files.remove_action(file))
        if not gone or race.commit(gone, blind=True):
            return len(gone)


def _sweep(
    store: Store, name: str, grace_us: int, report: MaintenanceReport, *, removed_too: bool = False
) -> None:
    """Deletes the files of a table that are past the grace; `removed_too` as in `vacuum_table`."""
    wanted = partial(upkeep.wanted_files, store) if name == EVENTS else None
    vacuumed = vacuum_table(store, name, grace_us, wanted, removed_too=removed_too)
    report.swept[name] = vacuumed.files
    report.links += [f"{name}/{path}" for path in vacuumed.links]
    if vacuumed.held is not None:
        report.held[name] = vacuumed.held


def _take_dropped(
    store: Store, name: str, options: Options, grace_us: int, report: MaintenanceReport
) -> None:
    """Empties the tables of dropped projections, a grace later, and deletes their files; the logs stay.

    A damaged table stays: no question reads it, and repair makes only the tables of declared projections.
    """
    try:
        _empty_dropped(store, name, options, grace_us, report)
    except DamagedWarehouse as error:
        report.held[name] = first_line(error)


def _empty_dropped(
    store: Store, name: str, options: Options, grace_us: int, report: MaintenanceReport
) -> None:
    """As `_take_dropped`; DamagedWarehouse for a table that cannot be read.

    A step that only the dropped measure has stays, until a load has finished it: readers see that it began.
    """
    pair = [one for one in (name, marks_of(name)) if table_open.exists(store, one)]
    for table in pair:
        tables.check_no_links(store, table)
    if not pair or not expired(options.dropped[name] // 1000, grace_us):
        return
    if name in options.dropped_measures and _last_step(store, name) > min(
        (_last_step(store, one.runs_table) for one in options.projections), default=-1
    ):
        report.held[name] = "a load of its newest step is unfinished"
        return
    for table in pair:
        race = Race(store, table)
        while files := data_files.list_files(race.table):
            if name not in read_options(store).dropped:  # it was added again
                return
            if race.commit(map(data_files.remove_action, files)):
                break
        _sweep(store, table, grace_us, report, removed_too=True)  # nobody has needed them for the grace


def _last_step(store: Store, name: str) -> int:
    if not table_open.exists(store, name):
        return -1
    return run_tables.read_layout(tables.open_table(store, name)).last_step


def _take_removed(store: Store, grace_us: int, report: MaintenanceReport) -> None:
    upkeep.forget_kept(store, read_options(store).projections)
    upkeep.expire_removed(store, grace_us)
    for name in (REMOVALS, REMOVED):
        _sweep(store, name, grace_us, report)


def _compact_ledger(
    store: Store,
    options: Options,
    runs: _RunsByTable,
    grace_us: int,
    report: MaintenanceReport,
    purged_steps: int,
) -> int:
    """Removes ledger rows past the grace, and joins files that few readers need; returns the rows removed.

    `purged_steps`: the steps up to this one were in history a grace ago, when rows were purged.
    """
    plans = read_step_plans(store, tables.open_table(store, STEPS))
    all_tables_exist = len(runs) == len(options.projections)
    loaded_plans = [
        plan
        for plan in plans
        if plan.step <= purged_steps or (all_tables_exist and _loaded(plan, runs, grace_us))
    ]
    loaded = [batches for plan in loaded_plans for batches in plan.batches]
    race = Race(store, LEDGER)
    while True:
        before = len(data_files.list_files(race.table))
        compaction = write_compaction(store, race.table, loaded, planned_batches(plans), grace_us)
        if compaction is None:
            return 0
        actions, rows_removed = compaction
        if race.commit(actions):
            report.compacted[LEDGER] = (before, len(data_files.list_files(tables.open_table(store, LEDGER))))
            return rows_removed


def _loaded(plan: StepPlan, runs: _RunsByTable, grace_us: int) -> bool:
    """Whether every projection has had the step in history for the grace."""
    return all(
        any(
            committed.run.first <= plan.step <= committed.run.last and expired(committed.since, grace_us)
            for committed in committed_runs
        )
        for committed_runs in runs.values()
    )


def _compact_events(executor: Executor, store: Store, report: MaintenanceReport) -> None:
    """Joins small files of `events` that are neighbours by batch, in tasks; one commit replaces them."""
    table = tables.open_table(store, EVENTS)
    before, kept = data_files.list_files(table), upkeep.wanted_files(store)
    groups = _joinable([file for file in before if file.path not in kept])
    if not groups:
        return
    schema = pa.schema(table.schema())
    join_tasks = [JoinFiles(store, schema, tuple(file.path for file in group)) for group in groups]
    joined = executor.run(join_tasks)
    race = Race(store, EVENTS)
    while True:
        current = {file.path for file in data_files.list_files(race.table)}
        actions: list[Any] = []
        for group, file in zip(groups, joined, strict=True):
            if current.issuperset(old.path for old in group):  # unless another maintenance has joined them
                actions += [data_files.remove_action(old, gone_rows=False) for old in group]
                actions.append(file.action(new_rows=False))
        if not actions:
            return
        if race.commit(actions):
            after = len(data_files.list_files(tables.open_table(store, EVENTS)))
            report.compacted[EVENTS] = (len(before), after)
            return


def joinable_bytes(store: Store) -> int:
    """The bytes of the small files of `events` that `maintain` would join now; they choose its engine."""
    groups = _joinable(data_files.list_files(tables.open_table(store, EVENTS)))
    return sum(file.size for group in groups for file in group)


def _joinable(files: list[DataFile]) -> list[list[DataFile]]:
    """Groups of at least two small files, neighbours by batch, of at most 2 * _SMALL_BYTES together."""
    small = [file for file in files if file.size < _SMALL_BYTES]
    small.sort(
        key=lambda file: (file.stats.get("min._source") or "", file.stats.get("min._batch") or 0, file.path)
    )
    groups = packed(small, attrgetter("size"), 2 * _SMALL_BYTES)
    return [group for group in groups if len(group) > 1]
