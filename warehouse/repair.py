"""Repair: what is damaged of history, the ledger and the plans is made again from `events`.

`events` is the truth: every row that came and was not removed, and the options. Everything else is computed
from it, by the code that a load, a stream and `alter` compute it with:

    logs       one that cannot be opened is written again; one that ends with a checkpoint without its commit
               gets an empty commit (warehouse/delta/log_repair.py)
    steps      plans that are left from step 0 on stay; the batches of those that are lost become one new step
    runs       a damaged run is built from the batches of its steps, and so is a run for each gap
    ledger     what neither a plan nor a sound file of the ledger has is summarised again
    load       steps that a projection lacks are loaded, and levels are merged, as after a killed load
    contents   then runs and ledger are compared with `events`: those that were written wrong are made again

Each commit is one of a load's kind, so readers see the old state or the new one; after a kill the same call
goes on with what is left. Damaged files of `events` itself, and records of `rejected`, cannot be built: they
must come from a copy. The report names the files, and what could not be built without them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tidemark.warehouse.delta import data_files, idle_tables, table_open, tables
from tidemark.warehouse.delta.data_files import DataFile
from tidemark.warehouse.delta.log_repair import bare_checkpoint, follow_checkpoint, unreadable
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import (
    EVENTS,
    LEDGER,
    PURGES,
    REJECTED,
    REMOVALS,
    REMOVED,
    STEPS,
)
from tidemark.warehouse.errors import DamagedWarehouse, without_secrets
from tidemark.warehouse.events import purges
from tidemark.warehouse.events.reader import BatchRange, files_of_batches
from tidemark.warehouse.events.removals import NONE, removed_at, replace_records
from tidemark.warehouse.events.steps import StepPlan, planned_batches
from tidemark.warehouse.execution.executors import executor_for
from tidemark.warehouse.ingest import rejected
from tidemark.warehouse.ledger import batch_counts, unaccounted
from tidemark.warehouse.load import catch_up
from tidemark.warehouse.os_errors import report_os_errors
from tidemark.warehouse.repairs import contents, ledger, plans, removed_parts, runs
from tidemark.warehouse.runs.levels import Layout
from tidemark.warehouse.runs.run_tables import net_of
from tidemark.warehouse.settings.alterations import change_options
from tidemark.warehouse.settings.features import SIGNED
from tidemark.warehouse.settings.options import Options, read_options
from tidemark.warehouse.sizes import Tuning
from tidemark.warehouse.verification import file_checks
from tidemark.warehouse.work import Work

if TYPE_CHECKING:
    import os

    from pyspark.sql import SparkSession

_LOG = logging.getLogger("tidemark.repair")

_EVENTS_REMEDY = (
    "Only a copy has its rows: put the file back. If a newer version of the table does without it, Delta "
    "restores an older one that does not name it: DeltaTable(path).restore(VERSION)."
)


@dataclass(slots=True)
class RepairReport:
    """What a repair did, or would do.

    outcome    'sound': nothing was damaged; 'repaired': all damage is repaired; 'damaged': some damage is
               left, see `only_a_copy`; 'planned': a dry run found something to do
    actions    what was made again, or would be, a line each
    only_a_copy
               what cannot be made from `events`, a line each: restore it from a copy, then repair again
    """

    outcome: str = "sound"
    actions: list[str] = field(default_factory=list)
    only_a_copy: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return "\n".join([self.outcome, *self.actions, *(f"only a copy: {one}" for one in self.only_a_copy)])


def repair(
    spark: SparkSession | None,
    uri: str | os.PathLike[str],
    *,
    dry_run: bool = False,
    storage_options: dict[str, str] | None = None,
    progress: Callable[[str], None] | None = None,
    tuning: Tuning | None = None,
) -> RepairReport:
    """Makes damaged parts of runs, marks, keys, groups, ledger, steps and companions again from `events`.

    spark      a Spark session, whose tasks do the work; None: this process does it, as in `load`
    uri        the warehouse
    dry_run    says what would be done, and changes nothing
    storage_options, progress, tuning
               as in `load`

    Nothing is removed from `events`, and no row of it is rewritten. Loads, streams and readers may go on.
    Readers that were open before a log was put right (the report names the table) have to be opened again.
    After a crash, the same call goes on with the rest.

    Raises NotAWarehouse if `events` is missing, DamagedWarehouse if its log cannot be opened: then nothing
    can be built. The cost is two reads of everything, and for damaged parts the cost of loading their rows.
    """
    with report_os_errors("repair"):
        store = Store.from_uri(uri, storage_options, tuning)
        store.files.check_place(writing=not dry_run)
        executor = executor_for(spark, store.tuning)
        idle_tables.forget(store)  # each log is read once, and again if its files change
        options = _options(store)
        executor.check_sendable(options.companions.known_kinds())
        call = _Repair(Work(executor, store, options, progress), dry_run)
        call.run()
        report = call.report
        if report.only_a_copy:
            report.outcome = "damaged"
        elif report.actions:
            report.outcome = "planned" if dry_run else "repaired"
        _LOG.info("%s: %s, %d actions", without_secrets(store.uri), report.outcome, len(report.actions))
        return report


def events_rows(store: Store) -> int:
    """The rows of `events`, by its log; the errors of `repair` if it cannot be opened."""
    _options(store)
    return sum(max(0, file.rows) for file in data_files.list_files(tables.open_table(store, EVENTS)))


def _options(store: Store) -> Options:
    """The options; DamagedWarehouse if there is a folder of `events` that cannot be opened."""
    reason = unreadable(store, EVENTS) if table_open.exists(store, EVENTS) else None
    if reason is not None:
        raise DamagedWarehouse(
            f"the log of {EVENTS} cannot be opened, and all is built from {EVENTS}: {reason} Nothing was "
            f"changed. Put its folder {EVENTS}/_delta_log back from a copy; if only its newest entry is cut, "
            "delete that entry: the batch of it comes again when its load or append is run again. The file "
            "_last_checkpoint there is a hint, which may be deleted."
        )
    return read_options(store)


def _faults_of_purges(store: Store) -> list[str]:
    try:
        purges.read_certificates(store)
    except (DamagedWarehouse, FileNotFoundError) as error:
        return [f"{PURGES} cannot be read: {error} Put its folder back from a copy."]
    return _size_faults(store, PURGES) if table_open.exists(store, PURGES) else []


def _size_faults(store: Store, name: str) -> list[str]:
    """Faults of a table's log, and its files that are missing, cut, or not the written ones."""
    if (reason := unreadable(store, name)) is not None:
        return [f"{name} cannot be read: {reason} Put its folder back from a copy."]
    files = data_files.list_files(tables.open_table(store, name))
    faults = (file_checks.size_fault(store, name, file) for file in files)
    return [f"{name}/{fault}. Put the file back from a copy." for fault in faults if fault is not None]


@dataclass(slots=True)
class _Repair:
    """One call: finds and mends table by table, and keeps the report."""

    work: Work
    dry_run: bool
    report: RepairReport = field(default_factory=RepairReport)

    def run(self) -> None:
        self._end_logs()
        self._check_sizes()
        self._rejected()
        if not self._knows_removals():
            self._check_contents()
            return
        left, lost = self._plans()
        self._runs(left)
        if lost and not self.dry_run and not self.report.only_a_copy:
            plans.write_plan(self.work.store, lost, len(left))
        if lost:
            left = [*left, StepPlan(len(left), tuple(lost.items()))]
        self._ledger(left)
        if not self.report.only_a_copy and not (self.dry_run and self.report.actions):
            with self._guarded("history"):
                self._catch_up()
        self._check_rows(left)
        self._check_contents()
        if not self.report.only_a_copy and not (self.dry_run and self.report.actions):
            self._compare(left)

    def _compare(self, left: list[StepPlan]) -> None:
        """Makes parts again that are undamaged, but differ from `events`. All else is sound by now."""
        work = self.work
        work.reached("events: compare")
        differs = contents.compare(work.store)
        is_changed, _ = batch_counts.changed_by_tool(work.store) if differs.is_unlike_events else (False, "")
        if is_changed:  # the runs and the ledger may have the rows that came
            self.report.only_a_copy.append(batch_counts.describe_changes(work.store, []))
            return
        for projection, unlike in differs.runs.items():
            self._mend_runs(runs.find_damage(work.store, work.options, projection, left, unlike), left)
        if differs.ledger is not None:
            self._mend_ledger(ledger.all_wrong(work.store, differs.ledger), left)
        self.report.only_a_copy += differs.others

    def _act(self, *actions: str) -> None:
        self.report.actions += actions
        for action in actions:
            self.work.reached(action)

    @contextmanager
    def _guarded(self, what: str) -> Iterator[None]:
        """Reports what is missing for what is mended inside."""
        try:
            yield
        except DamagedWarehouse as error:
            self.report.only_a_copy.append(f"{what} cannot be built: {error}")

    def _end_logs(self) -> None:
        """Lets commits follow where the newest entry of a log is a checkpoint whose commit is gone."""
        store, own = self.work.store, self.work.options.projections
        names = [EVENTS, STEPS, LEDGER, REJECTED, REMOVALS, REMOVED, PURGES]
        for name in (*names, *(table for one in own for table in (one.runs_table, one.marks_table))):
            version = bare_checkpoint(store, name)
            if version is not None and unreadable(store, name) is None:
                self._act(
                    f"{name}: an empty commit is put after the checkpoint of version {version}, whose own "
                    "commit is gone"
                )
                if not self.dry_run:
                    follow_checkpoint(store, name, version)

    def _check_sizes(self) -> None:
        self.work.reached("events")
        for file in self._event_files():
            if (fault := file_checks.size_fault(self.work.store, EVENTS, file)) is not None:
                self.report.only_a_copy.append(f"{EVENTS}/{fault}. {_EVENTS_REMEDY}")

    def _check_rows(self, left: list[StepPlan]) -> None:
        """Reports batches of which `events` has fewer or more rows than plans and ledger say."""
        events = tables.open_table(self.work.store, EVENTS)
        expected = ledger.expected_rows(self.work.store, left, events)
        files = files_of_batches(events, list(expected))
        with suppress(DamagedWarehouse, FileNotFoundError):  # of a file, which is reported
            if not batch_counts.is_complete(self.work.store, files, expected):
                changes = batch_counts.changed_ranges(self.work.store, expected)
                if not self._is_of_ledger(changes, left):
                    self.report.only_a_copy.append(batch_counts.describe_changes(self.work.store, changes))

    def _is_of_ledger(self, changes: list[batch_counts.ChangedRange], left: list[StepPlan]) -> bool:
        """Whether the ledger lacks rows of live batches, which `_compare` then makes again."""
        planned = planned_batches(left)
        is_more = [
            one.actual > one.expected and not any(map(one.batches.overlaps, planned)) for one in changes
        ]
        return bool(changes) and all(is_more) and not batch_counts.changed_by_tool(self.work.store)[0]

    def _check_contents(self) -> None:
        """Reports files of `events` whose rows differ from those that were written."""
        self.work.reached("events: look")
        for file in self._event_files():
            if file_checks.size_fault(self.work.store, EVENTS, file) is None:
                fault = file_checks.content_fault(self.work.store, EVENTS, file)
                if fault is not None:
                    self.report.only_a_copy.append(f"{fault} {_EVENTS_REMEDY}")

    def _event_files(self) -> list[DataFile]:
        return data_files.list_files(tables.open_table(self.work.store, EVENTS))

    def _knows_removals(self) -> bool:
        """Whether the tables tell which rows left. If not, nothing is made again: rows could come back."""
        store, found = self.work.store, self.report.only_a_copy
        before, number = len(found), NONE
        if SIGNED in self.work.options.features:
            self.work.reached("removals")
            try:
                number = removed_at(store, tables.open_table(store, EVENTS)).number
            except (DamagedWarehouse, FileNotFoundError) as error:
                found.append(f"{REMOVALS} cannot be read: {error}")
                return False
        for projection in self.work.options.projections:
            present = runs.present_runs(store, projection)
            newest = max((net_of(files[0].path) for files in present.values()), default=NONE)
            if newest > number:
                found.append(
                    f"{EVENTS} is behind: its newest removal is {number}, and {projection.runs_table} has "
                    f"runs without the rows of removal {newest}. Put back its newest version."
                )
        is_known = len(found) == before
        if SIGNED in self.work.options.features:
            # Of `removed`, a batch that comes again needs to know which batches lost rows.
            found += _size_faults(store, REMOVED) + _faults_of_purges(store)
            found += _size_faults(store, REMOVALS) if table_open.exists(store, REMOVALS) else []
        return is_known

    def _rejected(self) -> None:
        """Makes the table again, without its records, if it is gone; reports it if it is damaged."""
        if not table_open.exists(self.work.store, REJECTED):
            self._act(f"{REJECTED}: the table is made again; the records that it had are lost")
            if not self.dry_run:
                tables.create(self.work.store, REJECTED, rejected.SCHEMA, grace_us=self.work.options.grace_us)
            return
        reason = unreadable(self.work.store, REJECTED)
        if reason is None:
            try:
                rejected.read(self.work.store, tables.open_table(self.work.store, REJECTED))
                reason = " ".join(_size_faults(self.work.store, REJECTED)) or None
            except DamagedWarehouse as error:
                reason = str(error)
        if reason is not None:
            self.report.only_a_copy.append(
                f"{REJECTED} is damaged: {reason} Put it back from a copy; without one delete its folder "
                "and repair again: the records that could not be taken are lost then."
            )

    def _plans(self) -> tuple[list[StepPlan], dict[BatchRange, int]]:
        """The plans that are left, and the batches that lost theirs, with their rows."""
        self.work.reached("steps")
        present = [runs.present_runs(self.work.store, one) for one in self.work.options.projections]
        newest = max((run.last for of_one in present for run in of_one), default=-1)
        damage = plans.find_damage(self.work.store, newest)
        if damage.log is not None:
            self._act(f"steps: its log is put right ({damage.log})")
            if not self.dry_run:
                plans.put_right(self.work.store, self.work.options.grace_us)
                damage = plans.find_damage(self.work.store, newest)
        left, lost = list(damage.plans), dict[BatchRange, int]()
        is_promised = self.work.options.built_from.get(STEPS, -1) == len(left)  # by an interrupted repair
        if damage or is_promised:
            of_ledger = ledger.find_damage(self.work.store)
            missing = ledger.find_missing(self.work.store, of_ledger, left)
            singles, others = missing.lost | missing.bulk, [one for plan in left for one in plan.batches]
            parts = removed_parts.find(self.work.store, left, missing.lost, of_ledger)
            of_removals = {} if parts is None else parts.rows
            alone = {one: rows for one, rows in singles.items() if not any(map(one.within, of_removals))}
            lost = of_removals | plans.joined(alone, [*others, *of_removals])
            unknown = (
                "or more, if its log has them once it is right" if damage.log else "a repair did not end"
            )
            self._act(f"steps: {len(left)} plans are left ({'; '.join(damage.faults) or unknown})")
            if lost:
                self._act(f"steps: {unaccounted.named(lost)} become step {len(left)}")
            if not self.dry_run:
                if lost:
                    # Until the step is planned, its rows are in `events` alone: readers refuse to answer.
                    begun = {STEPS: len(left)}
                    change_options(
                        self.work.store,
                        lambda options: replace(options, built_from={**options.built_from, **begun}),
                    )
                if parts is not None:
                    replace_records(self.work.store, parts.moved)
                plans.rewrite(self.work.store, damage)
        return left, lost

    def _runs(self, left: list[StepPlan]) -> None:
        for projection in self.work.options.projections:
            self.work.reached(f"{projection.name}: look")
            self._mend_runs(runs.find_damage(self.work.store, self.work.options, projection, left), left)

    def _mend_runs(self, damage: runs.RunsDamage, left: list[StepPlan]) -> None:
        if damage:
            self._act(*damage.texts())
            if not self.dry_run:
                with self._guarded(damage.projection.name):
                    runs.mend(self.work, damage, left)

    def _ledger(self, left: list[StepPlan]) -> None:
        self.work.reached("ledger")
        self._mend_ledger(ledger.find_damage(self.work.store), left)

    def _mend_ledger(self, damage: ledger.LedgerDamage, left: list[StepPlan]) -> None:
        missing = ledger.find_missing(self.work.store, damage, left).streamed
        if damage.log is not None:
            self._act(f"ledger: its log is put right ({damage.log})")
        self._act(*(f"ledger: {path} leaves ({fault})" for path, fault in damage.faults.items()))
        if missing:
            rows = sum(missing.values())
            self._act(f"ledger: {unaccounted.named(missing)} are summarised from events, {rows} rows")
        if (damage or missing) and not self.dry_run:
            with self._guarded("the ledger"):
                ledger.mend(self.work, damage, left)

    def _catch_up(self) -> None:
        kappa, overfull = self.work.options.kappa, list[str]()
        for projection in self.work.options.projections:
            levels = Layout.of(runs.present_runs(self.work.store, projection)).levels()
            if max(levels.values(), default=0) > kappa:
                overfull.append(projection.name)
        if overfull:
            self._act(f"history: levels of {', '.join(overfull)} with more than {kappa} runs are merged")
        if not self.dry_run:
            catch_up(self.work)
