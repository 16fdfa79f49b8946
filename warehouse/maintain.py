"""Maintenance: what nobody may still see is removed; small files become few.

The grace period is the whole rule: a file leaves the disk only when the grace has passed since
it left its table, or, where no table ever named it, since it was written. So a reader with a
snapshot younger than the grace finds all its files, and a load in flight loses nothing.

    runs      files of merged runs and of lost races, and chunks that a crash left, are swept
    marks     marks whose run was merged away or never committed leave the table, then the disk
    ledger    rows of batches that history has held for the grace leave, and those that a wider range
              has repeated for the grace; what few readers still take becomes one file
    events    small files are joined in tasks
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidemark.warehouse.columns.ticks import parse_grace
from tidemark.warehouse.delta import tables
from tidemark.warehouse.delta.commits import retry_lost_races, without_secrets
from tidemark.warehouse.delta.store import EVENTS, LEDGER, REJECTED, STEPS, Store
from tidemark.warehouse.delta.tables import DataFile
from tidemark.warehouse.delta.vacuum import expired as _expired
from tidemark.warehouse.delta.vacuum import extend_log_retention, vacuum_table
from tidemark.warehouse.events.reader import BatchRange
from tidemark.warehouse.events.steps import StepPlan, planned_batches, read_step_plans
from tidemark.warehouse.execution.executors import Executor, executor_for
from tidemark.warehouse.ingest.event_files import JoinFiles
from tidemark.warehouse.ledger import ledger_table
from tidemark.warehouse.os_errors import report_os_errors
from tidemark.warehouse.runs import run_tables
from tidemark.warehouse.runs.layout import Run
from tidemark.warehouse.runs.projection import Projection
from tidemark.warehouse.settings.options import Options, read_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG = logging.getLogger("tidemark.maintain")

_SMALL_BYTES = 2**27  # files of `events` below this are joined
_LEDGER_FILES = 8  # that few readers still take; more become one


@dataclass(slots=True)
class MaintenanceReport:
    """What was done: files swept by table, files before and after compaction, ledger rows expired.

    `lengthened` has the tables that now keep their log for longer than the grace, with the new retention;
    `held` those of which nothing was swept, with the reason; `links` are symbolic links in tables, which
    are not followed, and stay.
    """

    swept: dict[str, int] = field(default_factory=dict)
    compacted: dict[str, tuple[int, int]] = field(default_factory=dict)
    ledger_rows_expired: int = 0
    marks_expired: int = 0
    lengthened: dict[str, str] = field(default_factory=dict)
    held: dict[str, str] = field(default_factory=dict)
    links: list[str] = field(default_factory=list)


@report_os_errors("maintain")
def maintain(
    spark: SparkSession | None,
    uri: str | os.PathLike[str],
    *,
    grace: str | None = None,
    storage_options: dict[str, str] | None = None,
    progress: Callable[[str], None] | None = None,
) -> MaintenanceReport:
    """Sweeps, expires and compacts.

    `grace` overrides the warehouse's own for this once; a shorter one is safe only while nobody
    reads and no load runs. A table whose log would be cleaned before the grace keeps it longer from now on.

    Raises DamagedWarehouse, before anything is changed, where a table leads out of the warehouse's folder.
    Without a Spark session the files of `events` are joined in this process, one group after the other.
    """
    store = Store.from_uri(uri, storage_options)
    options = read_options(store)
    grace_us = options.grace_us if grace is None else parse_grace(grace)
    tell = progress or (lambda _: None)
    report = MaintenanceReport()
    held = {one.runs_table: _held_since(store, one) for one in options.projections if _has_runs(store, one)}
    marked = [one.marks_table for one in options.projections if one.runs_table in held]
    names = [*held, *marked, LEDGER, STEPS, REJECTED, EVENTS]
    for name in names:
        tables.check_no_links(store, name)
    for name in names:
        if (retention := extend_log_retention(store, name, grace_us)) is not None:
            report.lengthened[name] = retention
    for one in options.projections:
        if one.runs_table in held:
            tell(f"marks of {one.title}")
            report.marks_expired += _expire_marks(store, one, held[one.runs_table], grace_us)
            tell(f"runs of {one.title}")
            for name in (one.runs_table, one.marks_table):
                _sweep(store, name, grace_us, report)
    tell("ledger and steps")
    report.ledger_rows_expired = _compact_ledger(store, options, held, grace_us, report)
    for name in (LEDGER, STEPS, REJECTED):
        _sweep(store, name, grace_us, report)
    tell("events")
    _compact_events(executor_for(spark), store, report)
    _sweep(store, EVENTS, grace_us, report)
    _LOG.info(
        "%s: maintained: %d files swept, %d ledger rows and %d marks expired, compacted: %s",
        without_secrets(store.uri),
        sum(report.swept.values()),
        report.ledger_rows_expired,
        report.marks_expired,
        ", ".join(report.compacted) or "nothing",
    )
    return report


def _has_runs(store: Store, projection: Projection[Any]) -> bool:
    return tables.exists(store, projection.runs_table)


def _held_since(store: Store, projection: Projection[Any]) -> list[tuple[Run, int, set[str]]]:
    """Each run of the projection, since when (milliseconds) the table has it, and its attempts' names."""
    runs = run_tables.runs_of(tables.list_files(tables.open_table(store, projection.runs_table)))
    return [
        (run, max(f.modified for f in found), {run_tables.attempt_of(f.path) for f in found})
        for run, found in runs.items()
    ]


def _expire_marks(
    store: Store, projection: Projection[Any], held: list[tuple[Run, int, set[str]]], grace_us: int
) -> int:
    """Takes out the marks of runs that the table no longer has and of attempts that it never had."""
    current = {attempt for _, _, attempts in held for attempt in attempts}

    def attempt() -> int:
        table = tables.open_table(store, projection.marks_table)
        gone = []
        for file in tables.list_files(table):
            run = Run.parse(file.partition["run"])
            since = [at for one, at, _ in held if one.first <= run.first and run.last <= one.last]
            # A run that nothing covers yet is a load in flight, or one that crashed and will be run again.
            if (
                run_tables.attempt_of(file.path) not in current
                and since
                and _expired(max(file.modified, *since), grace_us)
            ):
                gone.append(tables.remove_action(file))
        if gone:
            tables.commit(table, gone, blind=True)
        return len(gone)

    return retry_lost_races(projection.marks_table, attempt)


def _sweep(store: Store, name: str, grace_us: int, report: MaintenanceReport) -> None:
    done = vacuum_table(store, name, grace_us)
    report.swept[name] = done.files
    report.links += [f"{name}/{path}" for path in done.links]
    if done.held is not None:
        report.held[name] = done.held


def _compact_ledger(
    store: Store,
    options: Options,
    held: dict[str, list[tuple[Run, int, set[str]]]],
    grace_us: int,
    report: MaintenanceReport,
) -> int:
    """Takes out what nobody may still see, and puts what few still see into few files; rows taken out.

    A file of one range that readers take stays as it is: they find it by its statistics.
    """
    plans = read_step_plans(store, tables.open_table(store, STEPS))
    done = [plan for plan in plans if len(held) == len(options.projections) and _loaded(plan, held, grace_us)]
    gone = [batches for plan in done for batches in plan.batches]
    planned = planned_batches(plans)

    def attempt() -> int:
        table = tables.open_table(store, LEDGER)
        files = {file.path: file for file in tables.list_files(table)}
        ranges = ledger_table.ranges_by_file(store, table)
        live = set(ledger_table.live_ranges([one for found in ranges.values() for one in found], gone))
        old = {
            one
            for path, found in ranges.items()
            for one in found
            # A plan that was written while the range was made takes a part of it: its parts stay.
            if one in live
            and not ledger_table.in_part(one, planned)
            and _expired(files[path].modified, grace_us)
        }
        dropped = {
            one
            for found in ranges.values()
            for one in found
            if _within(one, gone) or old.intersection(ledger_table.wider(one))
        }
        cold = [path for path, found in ranges.items() if not (len(found) == 1 and found[0] in live)]
        if len(cold) <= _LEDGER_FILES and not dropped:
            return 0
        actions: list[Any] = []
        expired, parts = 0, []
        for path in cold:
            rows = tables.read_file(store, LEDGER, path)
            kept = ledger_table.without(rows, dropped)
            expired += len(rows) - len(kept)
            actions.append(tables.remove_action(files[path]))
            warm = live.intersection(ranges[path])
            actions += [
                ledger_table.write_rows(store, one, ledger_table.only(kept, one)) for one in sorted(warm)
            ]
            parts.append(ledger_table.without(kept, warm))
        rest = pa.concat_tables(parts)
        if len(rest):
            actions.append(tables.write_file(store, LEDGER, rest, f"{tables.unique_name()}.parquet"))
        tables.commit(table, actions)
        report.compacted[LEDGER] = (len(files), len(tables.list_files(tables.open_table(store, LEDGER))))
        return expired

    return retry_lost_races(LEDGER, attempt)


def _loaded(plan: StepPlan, held: dict[str, list[tuple[Run, int, set[str]]]], grace_us: int) -> bool:
    """Whether every projection has held the step for the grace."""
    return all(
        any(run.first <= plan.step <= run.last and _expired(since, grace_us) for run, since, _ in runs)
        for runs in held.values()
    )


def _within(one: BatchRange, gone: list[BatchRange]) -> bool:
    """Whether the batches of a range are all gone; those of one source may lie in several ranges."""
    at = one.first
    for other in sorted(other for other in gone if other.source == one.source):
        if other.first <= at <= other.last:
            at = other.last + 1
    return at > one.last


def _compact_events(executor: Executor, store: Store, report: MaintenanceReport) -> None:
    """Joins small files, neighbours by batch, in tasks; one commit replaces them."""
    table = tables.open_table(store, EVENTS)
    before = tables.list_files(table)
    groups = _joinable(before)
    if not groups:
        return
    schema = pa.schema(table.schema())
    work = [JoinFiles(store, schema, tuple(file.path for file in group)) for group in groups]
    joined = executor.run(work)

    def attempt() -> None:
        table = tables.open_table(store, EVENTS)
        here = {file.path for file in tables.list_files(table)}
        actions: list[Any] = []
        for group, file in zip(groups, joined, strict=True):
            if here.issuperset(one.path for one in group):  # no other maintenance has joined them
                actions += [tables.remove_action(one, gone_rows=False) for one in group]
                actions.append(file.action(new_rows=False))
        if not actions:
            return
        tables.commit(table, actions)
        after = len(tables.list_files(tables.open_table(store, EVENTS)))
        report.compacted[EVENTS] = (len(before), after)

    retry_lost_races(EVENTS, attempt)


def _joinable(found: list[DataFile]) -> list[list[DataFile]]:
    """Groups of two small files or more that together make one of a good size."""
    small = [file for file in found if file.size < _SMALL_BYTES]
    small.sort(key=lambda f: (f.stats.get("min._source") or "", f.stats.get("min._batch") or 0, f.path))
    groups: list[list[DataFile]] = []
    held = 0
    for file in small:
        if not groups or held + file.size > 2 * _SMALL_BYTES:
            groups.append([])
            held = 0
        groups[-1].append(file)
        held += file.size
    return [group for group in groups if len(group) > 1]
