"""A warehouse as it was after a step or at a time: history and live side of that moment.

Which version of a table is opened:

    a time                     the newest version that was committed by then
    a step with a record       the version that the record notes (events/completion.py); for tables that it
                               leaves out, the version at the time of the commit that completed the step
    a step without a record    the version at the time of the commit after which every projection had the step

Times come from the clocks of the machines that committed, which may differ a little, so versions that were
found by time may not fit together. Then some tables are opened at a later version, the first one that fits:

    steps       has the plan of every step in the runs
    events      has the live batches, those of the newest steps, and every removal that a run shows
    removals    has the records of these removals
    runs        all runs of the table show the same removals

Then each row of a committed batch is counted once: the runs decide which steps are in history.

The files of a version are kept for the grace after they left their table. A moment is refused if a newer
version of a table is older than the grace, or if files are gone.

Cost: one opening of each table, a few entries of each log, and one listing of each table's folder.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any, NoReturn, TypeAlias

from deltalake import DeltaTable
from pyarrow import fs

from tidemark.warehouse.columns.moments import first_us
from tidemark.warehouse.columns.scalars import plain
from tidemark.warehouse.columns.ticks import from_epoch_us, now_us
from tidemark.warehouse.delta import tables
from tidemark.warehouse.delta.disk_cache import DiskCache
from tidemark.warehouse.delta.log_versions import LogOfTable
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import EVENTS, LEDGER, REJECTED, REMOVALS, REMOVED, STEPS
from tidemark.warehouse.delta.table_open import open_directly
from tidemark.warehouse.errors import DamagedWarehouse, InputError, shortened, whole_number, without_secrets
from tidemark.warehouse.events.completion import Completion
from tidemark.warehouse.events.purges import read_certificates
from tidemark.warehouse.events.reader import BatchRange
from tidemark.warehouse.events.removals import NONE, decided, voided
from tidemark.warehouse.events.steps import read_planned_times
from tidemark.warehouse.events.versions import FilesBefore, PastEvents
from tidemark.warehouse.os_errors import report_os_errors
from tidemark.warehouse.runs import run_tables
from tidemark.warehouse.runs.projection import Projection
from tidemark.warehouse.settings.options import Options, read_options
from tidemark.warehouse.snapshots.needed import ALL
from tidemark.warehouse.snapshots.snapshot import Snapshot
from tidemark.warehouse.snapshots.snapshot_reader import SnapshotReader, open_snapshot, steps_told
from tidemark.warehouse.snapshots.table_state import TableState

Versions: TypeAlias = Mapping[str, int]  # of tables, by their names; and the newest removal, as `removed`
At: TypeAlias = int | str | datetime | date
_NEWEST_STEPS = 8  # that may be planned within the time by which clocks differ
_CLOCKS_US = 120 * 10**6  # by which the clocks of two machines may differ, twice what maintenance takes


def open_past(
    uri: str | os.PathLike[str],
    at: At | Versions,
    storage_options: dict[str, str] | None = None,
    cache: DiskCache | None = None,
) -> Snapshot:
    """The warehouse as it was at a moment; `cache` as in `open_snapshot`.

    at   the number of a step: the moment when every projection had it. Or a time: a datetime, a date (its
         midnight) or ISO text, without a zone in UTC: the moment when it was that time. Or versions of a
         runs table, `steps` and `ledger`: the moment when the last of them was committed. With `removed`, a
         moment after that removal took effect, even if the runs table does not show it yet

    NotAWarehouse if there is no warehouse. InputError for a moment in the future, or one whose files are
    gone.
    """
    with report_os_errors("opening an earlier moment"):
        given = None if isinstance(at, Mapping) else given_moment(at)
        store = Store.from_uri(uri, storage_options)
        if cache is not None:
            store.files.keep_on_disk(cache)
        options = read_options(store)
        past = _Past(store, options.grace_us, f"step {given}" if isinstance(given, int) else str(given or at))
        if isinstance(at, Mapping):
            past.begin_at_versions(at, options)
        elif isinstance(given, int):
            past.begin_at_step(given, options)
        else:
            past.begin_at_time(first_us(given))
        return past.snapshot()


def given_moment(at: Any) -> int | str:
    """A moment as the number of a step, or as the ISO text of a time; InputError for anything else."""
    given = plain(at)
    if isinstance(given, int) and not isinstance(given, bool):
        return given
    try:
        us = first_us(given)
    except InputError as error:
        raise InputError(
            f"at={shortened(given)} is neither the number of a step nor a time: {error}"
        ) from None
    return from_epoch_us(us).isoformat()


def opened(
    uri: str | os.PathLike[str],
    storage_options: dict[str, str] | None = None,
    cache: DiskCache | None = None,
    *,
    at: At | Versions | None = None,
) -> SnapshotReader | Snapshot:
    """A warehouse for reading: its newest state, or with `at` its state at a moment; see `open_past`."""
    if at is None:
        return open_snapshot(uri, storage_options, cache)
    return open_past(uri, at, storage_options, cache)


@dataclass(slots=True)
class _Past:
    """Finds the versions of a moment. `text` names the moment as it was given."""

    store: Store
    grace_us: int
    text: str
    moment_us: int = 0
    removed: int = NONE  # the removal that `events` has at least
    versions: dict[str, int] = field(default_factory=dict)  # those of the record
    _logs: dict[str, LogOfTable] = field(default_factory=dict)

    def begin_at_time(self, moment_us: int) -> None:
        now = now_us()
        if moment_us > now:
            raise InputError(
                f"at={self.text} has not been yet: it is {_iso(now)}. Give a time before, or the number of a "
                "step."
            )
        self.moment_us = moment_us

    def begin_at_versions(self, versions: Versions, options: Options) -> None:
        """Takes versions of tables, and a removal; InputError for a version or removal that is not there."""
        known = [*(one.runs_table for one in options.projections), STEPS, LEDGER]
        versions = dict(versions)
        removed = whole_number("the number of a removal", plain(versions.pop(REMOVED, NONE)), NONE)
        if removed > decided(tables.open_table(self.store, EVENTS)):
            raise InputError(
                f"{without_secrets(self.store.uri)} never had the removal {removed}. Give what `moment` of "
                "an answer has."
            )
        for name, version in versions.items():
            whole_number(f"the version of {name!r}", plain(version), -1)
            if name not in known or version >= self._log(name).versions.stop:
                raise InputError(
                    f"{without_secrets(self.store.uri)} was never at {name!r} {version}. Give the versions "
                    "that `moment` of an answer has, or a time."
                )
        there = {name: version for name, version in versions.items() if version >= 0}
        if not there:
            raise InputError("at has no version of a table. Give those that `moment` of an answer has.")
        self.versions, self.removed = versions, removed
        self.moment_us = max(self._log(name).time_us(version) for name, version in there.items())

    def begin_at_step(self, step: int, options: Options) -> None:
        """Takes the moment when every projection had the step; InputError if that moment has not been."""
        planned = read_planned_times(self.store)
        since_the_start = [
            one.runs_table for one in options.projections if one.runs_table not in options.built_from
        ]
        opened = tables.find_tables(self.store, *since_the_start)
        loaded = [run_tables.read_layout(table).last_step for table in opened if table is not None]
        newest = min(loaded, default=-1)
        if not 0 <= step <= newest or step not in planned:
            steps = f"its steps are 0 to {newest}" if newest >= 0 else "it has no steps"
            raise InputError(
                f"{without_secrets(self.store.uri)} was never at {self.text}: {steps}. Give one of them, or "
                "a time."
            )
        on_time = [one for one in options.projections if options.built_from.get(one.runs_table, -1) < step]
        for one in reversed(options.projections):
            found = self._record(one, step, planned[step] - _CLOCKS_US)
            if found is not None:
                self.versions, self.moment_us = dict(found[0].versions), found[1]
                return
        for one in on_time:
            log, version = self._log(one.runs_table), self._first_with(one, step)
            self.versions[one.runs_table] = version
            self.moment_us = max(self.moment_us, log.time_us(version))

    def snapshot(self) -> Snapshot:
        """The warehouse at the moment. InputError if files of it are deleted."""
        try:
            return self._found()
        except DamagedWarehouse as error:
            if isinstance(error.__cause__, FileNotFoundError):
                self._is_gone("a file that tells its steps or batches is deleted")
            raise

    def _found(self) -> Snapshot:
        state = TableState.of(self.store, self._open(EVENTS) or self._before_it_was())
        names = [
            *(name for one in state.options.projections for name in (one.runs_table, one.marks_table)),
            STEPS,
            LEDGER,
            REJECTED,
        ]
        state = state.with_tables({name: self._open(name) for name in names})
        runs = ALL.runs_tables(state.options)
        has_moved = True
        while has_moved:
            while state.planned < max(map(state.last_step, runs), default=-1) and self._moves_on(STEPS):
                state = state.with_tables({STEPS: self._open(STEPS)})
            events = self._events_with(state, runs)
            state, has_moved = self._with_removed(state, events, runs)
        told = steps_told(state) if state.lacks_steps(runs) else None
        opened = PastEvents(events, FilesBefore(state.store))
        self._check_age()
        self._check_files(state, opened)
        return Snapshot(state, opened, told)

    def _events_with(self, state: TableState, runs: Sequence[str]) -> DeltaTable:
        """`events`, with the batches that are visible, and with the removals that runs are without."""
        visible = {batches for plan in state.plans[-_NEWEST_STEPS:] for batches in plan.batches}
        visible |= {batches for name in runs for batches in state.live_ranges(state.last_step(name))}
        newest, events = max(self.removed, *map(state.net_of, runs)), self._open(EVENTS)
        while events is not None:
            fits = _has_batches(events, visible) and decided(events) >= newest
            if fits or not self._moves_on(EVENTS):
                return events
            events = self._open(EVENTS)
        return self._before_it_was()

    def _with_removed(
        self, state: TableState, events: DeltaTable, runs: Sequence[str]
    ) -> tuple[TableState, bool]:
        """The state with the removals by the version of `events`; and whether a runs table moved on for it.

        A runs table moves on until it shows a removal as a whole or not at all.
        """
        number = decided(events)
        if number == NONE:
            return state, False
        while True:
            state = state.with_tables({REMOVALS: self._open(REMOVALS)}).with_removed(number, voided(events))
            if state.removed.damage is None or not self._moves_on(REMOVALS):
                break
        torn = [name for name in runs if state.removed_of(name) is None]
        moved = {name: self._open(name) for name in torn if self._moves_on(name)}
        return state.with_tables(moved), bool(moved)

    def _log(self, name: str) -> LogOfTable:
        if name not in self._logs:
            self._logs[name] = LogOfTable(self.store, name)
        return self._logs[name]

    def _record(self, projection: Projection[Any], step: int, since_us: int) -> tuple[Completion, int] | None:
        """The record of a step in the log of a runs table, and the time of its commit; None without one."""
        log = self._log(projection.runs_table)
        for version in range(max(log.version_at(since_us), log.versions.start), log.versions.stop):
            record = Completion.parse(log.commit(version).completes)
            if record is not None and record.step >= step:
                return (record, log.time_us(version)) if record.step == step else None
        return None

    def _first_with(self, projection: Projection[Any], step: int) -> int:
        """The first version of a runs table that has the step; InputError if the log does not reach back."""
        name, versions = projection.runs_table, self._log(projection.runs_table).versions

        def last_step(version: int) -> int:
            return run_tables.read_layout(open_directly(self.store, name, version)).last_step

        first = versions.start + bisect_left(versions[:-1], step, key=last_step)
        if first == versions.start and first > 0:
            self._is_gone(f"the log of {name} does not reach back to it")
        return first

    def _version(self, name: str) -> int:
        """The version of a table at the moment, -1 if there was no table; InputError for too short a log."""
        log = self._log(name)
        if name not in self.versions:
            self.versions[name] = log.version_at(self.moment_us)
        version = self.versions[name]
        if version < log.versions.start and log.versions.start > 0:
            self._is_gone(f"the log of {name} does not reach back to it")
        return version

    def _open(self, name: str) -> DeltaTable | None:
        version = self._version(name)
        return None if version < 0 else open_directly(self.store, name, version)

    def _moves_on(self, name: str) -> bool:
        """Whether the table has a version after that of the moment, which is taken then."""
        if self.versions[name] + 1 >= self._log(name).versions.stop:
            return False
        self.versions[name] += 1
        return True

    def _before_it_was(self) -> NoReturn:
        created = _iso(self._log(EVENTS).time_us(0))
        raise InputError(
            f"{without_secrets(self.store.uri)} was created at {created}, after at={self.text}. Give a later "
            "time."
        )

    def _check_age(self) -> None:
        """InputError if files of a version left their table longer ago than the grace, or were purged."""
        if any(self.versions[EVENTS] < one.versions[EVENTS] for one in read_certificates(self.store)):
            self._is_gone("rows that it has were purged since")
        oldest = now_us() - self.grace_us
        for name, version in self.versions.items():
            log = self._log(name)
            if 0 <= version < log.versions.stop - 1 and log.time_us(version + 1) <= oldest:
                self._is_gone(
                    f"{name} has changed at {_iso(log.time_us(version + 1))}, before the grace began"
                )

    def _check_files(self, state: TableState, opened: PastEvents) -> None:
        for name, paths in _files_of(state, opened):
            listed = self.store.filesystem().get_file_info(fs.FileSelector(name, True, True))
            there = {one.path for one in listed}
            gone = next((path for path in paths if path not in there), None)
            if gone is not None:
                self._is_gone(f"{gone} is deleted")

    def _is_gone(self, why: str) -> NoReturn:
        grace = timedelta(microseconds=self.grace_us)
        raise InputError(
            f"{without_secrets(self.store.uri)} cannot be opened at {self.text}: {why}. Files are kept for "
            f"the grace, {grace}, after they left a table. Open a moment after "
            f"{_iso(now_us() - self.grace_us)}, or a copy that was made at that time."
        )


def _files_of(state: TableState, opened: PastEvents) -> Iterator[tuple[str, list[str]]]:
    """Tables with the paths of the files that a question may read."""
    for one in state.options.projections:
        found = state.files[one.runs_table]
        yield one.runs_table, [f"{one.runs_table}/{file.path}" for file in found.files]
        marks = [run_tables.marks_path(one, run, files) for run, files in found.runs.items()]
        yield one.marks_table, marks
    for name in (STEPS, LEDGER):
        yield name, [f"{name}/{file.path}" for file in state.files[name].files]
    if REMOVALS in state.files:
        yield REMOVALS, [f"{REMOVALS}/{file.path}" for file in state.files[REMOVALS].files]
    kept = [f"{REMOVED}/{one.file}" for one in state.removed.removals if one.kept]
    if kept:
        yield REMOVED, kept
    shown = (state.removed_of(one.runs_table) for one in state.options.projections)
    for number in {state.removed.number, *(one for one in shown if one is not None)}:
        yield EVENTS, [f"{EVENTS}/{file.path}" for file in opened.list_events(number)]


def _has_batches(events: DeltaTable, batches: set[BatchRange]) -> bool:
    return all(tables.has_transaction(events, one.source, one.last) for one in batches)


def _iso(us: int) -> str:
    return from_epoch_us(us).astimezone(UTC).isoformat(" ", "seconds")
