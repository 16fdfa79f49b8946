"""The tables of a warehouse on a disk of this machine, kept open: they are checked one after the other.

A look that finds nothing new asks for two files of each table: its newest entry, and the next one. Where the
logs have been quiet for a while it asks for one folder of each (quiet_logs.py).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from tidemark.warehouse.delta import table_open, tables
from tidemark.warehouse.delta.data_files import DataFile, list_files
from tidemark.warehouse.delta.log_files import commit_name
from tidemark.warehouse.delta.metadata_watch import LISTING_SECONDS, MetadataWatch
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import ALWAYS_THERE, EVENTS, LEDGER, REMOVALS, STEPS
from tidemark.warehouse.events.reader import BatchRange, files_with
from tidemark.warehouse.events.removals import NONE, decided, voided
from tidemark.warehouse.events.versions import FilesBefore
from tidemark.warehouse.settings.features import SIGNED
from tidemark.warehouse.settings.options import Options
from tidemark.warehouse.snapshots.needed import ALL, Needed
from tidemark.warehouse.snapshots.quiet_logs import QuietLogs, quiet_logs
from tidemark.warehouse.snapshots.table_state import TableState, are_recent

_NOTED_SECONDS = 1.0  # between two notes of quiet logs
_QUESTIONS = 4  # kinds of questions of which quiet logs are noted


class NearTables:
    """The tables on a local disk; see `Tables`. All are opened at once: that takes few milliseconds."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._opened: dict[str, NearTable] = {}
        self._events = NearTable(store, EVENTS)
        self._events.update()
        self._rows = NearTable(store, EVENTS)  # for its files; `_events` is for the options
        self._files: Sequence[DataFile] | None = None
        self._before = FilesBefore(store)
        self._rows_are_new = True
        self._numbers = (NONE, NONE)  # of removals, at the version of these rows: decided and void ones
        self._taken: tuple[int, int] | None = None  # the numbers that the state has
        self._watch = MetadataWatch(store, EVENTS)
        self._watch.start_from(self._events.existing.version())
        self._lock = threading.Lock()
        self._named: tuple[Options, Needed, list[str]] | None = None
        self._quiet: list[tuple[Needed, TableState, list[str], QuietLogs]] = []  # of the last questions
        self._noted = 0.0
        self.state = TableState.of(store, self._events.existing)
        self.look(ALL, self.state)

    def look(self, needed: Needed, since: TableState, max_age: float = 0.0) -> list[str]:
        """Looks at the options, the runs tables, steps, ledger, `events` and removals, in this order."""
        noted = self._noted_of(needed, since)
        if noted is not None and noted[1].are_unchanged():
            return noted[0]
        began = time.monotonic()
        is_due = began - self._noted > _NOTED_SECONDS
        before = self._quiet_logs(needed) if is_due else None
        runs = self._look(needed, since, max_age)
        if is_due:
            self._noted = began
            logs_now = None if before is None or self.state is not since else self._quiet_logs(needed)
            if before is not None and logs_now is not None and logs_now.stamps == before.stamps:
                others = [one for one in self._quiet if one[1] is since and one[0] != needed]
                self._quiet = [(needed, since, runs, before), *others[: _QUESTIONS - 1]]
        return runs

    def quiet(self, needed: Needed, since: TableState) -> QuietLogs | None:
        """The logs that were quiet at a look that found nothing newer than a state; see `Tables`."""
        noted = self._noted_of(needed, since)
        return None if noted is None else noted[1]

    def _noted_of(self, needed: Needed, since: TableState) -> tuple[list[str], QuietLogs] | None:
        for known, state, runs, logs in self._quiet:
            if state is since and state is self.state and known == needed:
                return runs, logs
        return None

    def _quiet_logs(self, needed: Needed) -> QuietLogs | None:
        """The logs that a look for these looks at, as they are now; None if their times do not count."""
        names = [*self._runs_tables(self.state.options, needed), LEDGER, *([STEPS] if needed.all else [])]
        opened = [self._opened.get(name) for name in names]
        entries = [one.entry for one in opened if one is not None and one.table is not None]
        if len(entries) < len(names) or self.state.removed.damage is not None:
            return None
        return quiet_logs([self._watch.entry, *entries])

    def _look(self, needed: Needed, since: TableState, max_age: float) -> list[str]:
        self.look_for_options(max_age)
        while True:
            options = self.state.options
            runs = self._runs_tables(options, needed)
            if max_age and self.state is since and are_recent(self._opened, [*runs, LEDGER], max_age):
                return runs
            self.look_at(runs)
            # New plans matter to a question only if a run has their steps.
            self.look_at([STEPS, LEDGER] if needed.all or self.state is not since else [LEDGER])
            if self.state is not since:
                self.look_for_options()  # since then they may say that rows can be removed
            if self.state.options is options:
                break
        self.look_for_removed()
        return runs

    def _runs_tables(self, options: Options, needed: Needed) -> list[str]:
        """The runs tables that are needed; kept for the next question of the kind."""
        named = self._named
        if named is None or named[0] is not options or named[1] != needed:
            named = self._named = options, needed, needed.runs_tables(options)
        return named[2]

    def look_for_removed(self) -> None:
        """Takes the removals up to the newest version of `events`; see `Tables`."""
        if SIGNED not in self.state.options.features:
            return
        with self._lock:
            self._look_for_rows()
            numbers = self._numbers
        if numbers != self._taken:
            self._update(REMOVALS)
            self.state = self.state.with_removed(*numbers)
            self._taken = numbers if self.state.removed.damage is None else None

    def look_at(self, names: Sequence[str]) -> None:
        """Moves tables to their newest versions, one after the other."""
        for name in names:
            self._update(name)

    def look_for_options(self, max_age: float = 0.0) -> None:
        """Takes newer options and columns; see `Tables`."""
        with self._lock:
            if max_age and self._watch.checked >= time.monotonic() - max_age:
                return
            if self._watch.may_have_changed():
                self._events.update()
                self._watch.start_from(self._events.existing.version())
                self.state = self.state.with_events(self._events.existing)

    def event_files(self, batches: Sequence[BatchRange], removed: int) -> list[DataFile]:
        """The files of `events` that may have rows of the batches; see `Tables`."""
        return files_with(self.list_events(removed), batches)

    def list_events(self, removed: int) -> Sequence[DataFile]:
        """The files of `events`: the same object until there is a newer one; see `Tables`."""
        with self._lock:
            self._look_for_rows()
            if self._numbers[0] > removed:
                return self._before.of(self._rows.existing, removed)
            if self._files is None:
                self._files = list_files(self._rows.existing)
            return self._files

    def _look_for_rows(self) -> None:
        if self._rows.update() or self._rows_are_new:
            self._rows_are_new, self._files = True, None  # until the numbers are read: that may fail
            self._numbers = decided(self._rows.existing), voided(self._rows.existing)
            self._rows_are_new = False

    def look_for_events(self) -> bool:
        """Does nothing: `event_files` looks for the newest version."""
        return False

    def _update(self, name: str) -> None:
        opened = self._opened.get(name)
        if opened is None:
            opened = self._opened[name] = NearTable(self._store, name)
        if opened.update() or name not in self.state.files:
            self.state = self.state.with_tables({name: opened.table})


@dataclass(slots=True)
class NearTable:
    """A table at the version of the last update; `table` is None while it does not exist.

    `listed` is when its log was last listed, and `checked` when the last update began, in seconds of
    time.monotonic(). `entry` is the newest entry of the log at the last update, unless that moved the table.
    """

    store: Store
    name: str
    table: DeltaTable | None = None
    listed: float = 0.0
    checked: float = float("-inf")
    _entry: tuple[int, int, int] | None = None
    _version: int = -1  # before the last update; its entry in the log, and the next one
    entry: str = ""
    _next: str = ""

    @property
    def existing(self) -> DeltaTable:
        """The table; DamagedWarehouse if it does not exist."""
        return table_open.existing(self.name, self.table)

    def update(self) -> bool:
        """Moves to the newest version; returns whether it may have moved. If it raises, call it again."""
        self.checked, known = time.monotonic(), self.table
        before = -1 if known is None else known.version()
        if before != self._version:
            # The version last: if this is interrupted, the next update does it again.
            self.entry, self._next, self._version = self._commit(before), self._commit(before + 1), before
        if known is None or self._entry != self._entry_of(self.entry):  # none, or its log was begun anew
            # A warehouse that was created without a schema gets its runs tables with the first batch.
            is_there = self.name in ALWAYS_THERE or table_open.exists(self.store, self.name)
            self.table = tables.open_table(self.store, self.name) if is_there else None
        # To look for the file of the next commit is far cheaper than to list the log, or another look for it.
        elif self.checked - self.listed > LISTING_SECONDS or os.access(self._next, os.F_OK):
            try:
                table_open.update(self.store, self.name, known)
            except DeltaError:
                self.table = table_open.open_directly(self.store, self.name)  # raises the error
            self.listed = self.checked
        else:
            return False
        self._entry = None if self.table is None else self._entry_of(self._commit(self.table.version()))
        return True

    def _entry_of(self, path: str) -> tuple[int, int, int] | None:
        """The identity of the file of an entry of the log, to notice another file; None without a file."""
        try:
            found = os.stat(path)  # noqa: PTH116  pathlib's stat takes longer
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size

    def _commit(self, version: int) -> str:
        return f"{self.store.table(self.name)}/_delta_log/{commit_name(version)}"
