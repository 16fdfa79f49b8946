"""The tables of a warehouse in an object store, kept open: many are checked in one round of requests.

Opening all tables in one round does not keep the order that `snapshot_reader.py` requires. So after a round
that found a change, the tables that come later in that order are checked once more:

    newer                     checked once more
    a runs table              steps, ledger
    steps                     ledger
    the ledger, or nothing    none: all is done

If no runs table has changed, the steps are not checked: a new plan has no effect before a run has its step.
What the views will read (plans, marks, ledger rows, small files of live rows) is fetched in the same rounds
(round_trips.py). Runs tables are opened when a question needs them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from deltalake import DeltaTable

from tidemark.warehouse.delta import tables
from tidemark.warehouse.delta.data_files import DataFile, list_files
from tidemark.warehouse.delta.grace import COMMITS_OF_STREAMS
from tidemark.warehouse.delta.log_replica import LogReplica
from tidemark.warehouse.delta.round_trips import ByteRange, Rounds, fetching, in_rounds
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import ALWAYS_THERE, EVENTS, LEDGER, REMOVALS, STEPS
from tidemark.warehouse.delta.table_open import existing, open_directly
from tidemark.warehouse.errors import DamagedWarehouse
from tidemark.warehouse.events.reader import BatchRange, files_with
from tidemark.warehouse.events.removals import decided, voided
from tidemark.warehouse.events.versions import FilesBefore
from tidemark.warehouse.ledger import ledger_table
from tidemark.warehouse.os_errors import report_os_errors
from tidemark.warehouse.projections.companion_cells import CompanionCells
from tidemark.warehouse.projections.key_counts import KeyCounts
from tidemark.warehouse.projections.sorted_groups import SortedGroups
from tidemark.warehouse.projections.sorted_values import SortedValues
from tidemark.warehouse.runs import run_tables
from tidemark.warehouse.runs.projection import Projection
from tidemark.warehouse.settings.features import SIGNED
from tidemark.warehouse.settings.options import read_options
from tidemark.warehouse.snapshots.needed import Needed
from tidemark.warehouse.snapshots.table_state import Parts, TableFiles, TableState, are_recent

EVENTS_SECONDS = 60.0  # after so long files of `events` are listed again: files that left stay for the grace
PREFETCHED_BYTES = 2**23  # files of live rows are read ahead up to this size together


class FarTables:
    """The tables in an object store; see `Tables`."""

    def __init__(self, store: Store) -> None:
        self._store, self._files, self._parts = store, store.far_files, Parts()
        self._opened: dict[str, LogReplica] = {}
        # The options are in `events` and say which tables are read. So all commits of `events` are asked for
        # at once.
        self._events = LogReplica(store, EVENTS, COMMITS_OF_STREAMS + 1)
        self._lock = threading.Lock()  # of `events`: live rows are read without the lock of the session
        self._prefetched: frozenset[BatchRange] = frozenset()
        self._before = FilesBefore(store)
        self._taken: tuple[int, int] | None = None  # the numbers of removals that the state has
        names = (STEPS, LEDGER)
        in_rounds(self._files, [self._open_events(), *map(self._reading, names)])
        self._options_at = self._events.version
        self.state = TableState.of(store, existing(EVENTS, self._events.table), self._parts)
        self.state = self.state.with_tables({name: self._opened[name].table for name in names})

    def look(self, needed: Needed, since: TableState, max_age: float = 0.0) -> list[str]:
        """Looks at the options and all tables in one round, then again as the module describes."""
        options = self.state.options
        runs = needed.runs_tables(options)
        if max_age and self.state is since and are_recent(self._opened, [*runs, LEDGER], max_age):
            return runs
        names = [*runs, *([STEPS] if needed.all or self.state is not since else []), LEDGER]
        with report_os_errors("looking for newer data"):
            self._catch_up(names, self._catch_up_events())
            self._take_options()
            if self.state.options is not options:
                runs = needed.runs_tables(self.state.options)
                self._catch_up([name for name in runs if name not in names])
            self._look_again(needed, [*runs, STEPS, LEDGER], since)
            if self.state is since:
                self._take_removed()
            else:  # `events` is looked at after the tables that moved
                self._look_for_removed()
        return runs

    def quiet(self, needed: Needed, since: TableState) -> None:  # noqa: ARG002
        """None: a store is asked each time; see `Tables`."""
        return

    def look_for_removed(self) -> None:
        """Takes the removals up to the newest version of `events`; see `Tables`."""
        with report_os_errors("looking for rows that left"):
            self._look_for_removed()

    def _look_for_removed(self) -> None:
        if SIGNED in self.state.options.features:
            in_rounds(self._files, [self._catch_up_events()])
            self._take_removed()

    def _take_removed(self) -> None:
        """Takes the removals up to the version of `events` that was looked at."""
        if SIGNED not in self.state.options.features:
            return
        with self._lock:
            table = existing(EVENTS, self._events.table)
            numbers = decided(table), voided(table)
        if numbers != self._taken:
            self._catch_up([REMOVALS])
            self.state = self.state.with_removed(*numbers)
            self._taken = numbers if self.state.removed.damage is None else None

    def _look_again(self, needed: Needed, order: Sequence[str], since: TableState) -> None:
        """Looks again at all tables after the first changed one, and repeats this until none has changed."""
        moved = [name for name in order if self.state.has_moved(name, since)]
        while moved:
            before, later = self.state, order[order.index(moved[0]) + 1 :]
            self._catch_up(later, *self._prefetch(needed))
            moved = [name for name in later if self.state.has_moved(name, before)]

    def look_at(self, names: Sequence[str]) -> None:
        """Moves tables to their newest versions, in as many rounds as one of them takes."""
        with report_os_errors("comparing the tables"):
            self._catch_up(names)

    def look_for_options(self, max_age: float = 0.0) -> None:
        """Takes newer options and columns; see `Tables`."""
        with self._lock:
            if max_age and self._events.checked >= time.monotonic() - max_age:
                return
            with report_os_errors("looking for newer options"):
                in_rounds(self._files, [self._events.catch_up()])
            self._take_options()

    def event_files(self, batches: Sequence[BatchRange], removed: int) -> list[DataFile]:
        """The files of `events` at a version that has the batches; see `Tables`."""
        with self._lock:
            if not self._events_have(batches):
                in_rounds(self._files, [self._events.catch_up()])
            return files_with(self._files_of(existing(EVENTS, self._events.table), removed), batches)

    def list_events(self, removed: int) -> Sequence[DataFile]:
        """The files of `events`; see `Tables`."""
        return self._files_of(tables.open_table(self._store, EVENTS), removed)

    def _files_of(self, newest: DeltaTable, removed: int) -> Sequence[DataFile]:
        return list_files(newest) if decided(newest) <= removed else self._before.of(newest, removed)

    def look_for_events(self) -> bool:
        """Moves `events` to its newest version; see `Tables`."""
        with self._lock:
            before = self._events.version
            in_rounds(self._files, [self._events.catch_up()])
            return self._events.version != before

    def _events_have(self, batches: Iterable[BatchRange]) -> bool:
        """Whether `events` was looked at not long ago, and has these batches."""
        table, age = existing(EVENTS, self._events.table), time.monotonic() - self._events.checked
        return age < EVENTS_SECONDS and all(
            tables.has_transaction(table, one.source, one.last) for one in batches
        )

    def _take_options(self) -> None:
        if self._events.version != self._options_at:
            self.state = self.state.with_events(existing(EVENTS, self._events.table))
            self._options_at = self._events.version

    def _catch_up(self, names: Sequence[str], *others: Rounds[None]) -> None:
        """Moves tables to their newest versions, beside other readings."""
        in_rounds(self._files, [*map(self._reading, names), *others])
        self.state = self.state.with_tables({name: self._opened[name].table for name in names})

    def _reading(self, name: str) -> Rounds[None]:
        replica = self._replica(name)
        has_moved = yield from replica.catch_up()
        if replica.table is None and name in ALWAYS_THERE:
            open_directly(self._store, name)  # raises the error
        if has_moved and name == STEPS and replica.table is not None:
            new = (file.path for file in list_files(replica.table) if file.path not in self._parts.plans)
            yield from fetching(self._files, [ByteRange(f"{STEPS}/{path}") for path in new])

    def _replica(self, name: str) -> LogReplica:
        if name not in self._opened:
            self._opened[name] = LogReplica(self._store, name)
        return self._opened[name]

    def _catch_up_events(self) -> Rounds[None]:
        with self._lock:
            yield from self._events.catch_up()
            if self._events.table is None:
                open_directly(self._store, EVENTS)  # raises the error

    def _open_events(self) -> Rounds[None]:
        """Opens `events`, which has the options, and reads ahead for what most readers ask first."""
        yield from self._catch_up_events()
        for measure in read_options(self._store, self._events.table).measures[:1]:
            yield from self._replica(SortedValues(measure).runs_table).prepare()

    def _prefetch(self, needed: Needed) -> list[Rounds[None]]:
        """Reads ahead what views and live rows of the projections need and what was not read yet."""
        projections = needed.projections(self.state.options)
        ahead = [self._prefetch_parts(self.state, projections)]
        if needed.live_rows:
            ahead.append(self._prefetch_events(self.state, projections))
        return [_unless_damaged(reading) for reading in ahead]

    def _prefetch_parts(self, state: TableState, projections: Sequence[Projection[Any]]) -> Rounds[None]:
        files = self._files
        unstated = ledger_table.files_without_stated_range(state.files[LEDGER].files, self._parts.ranges)
        yield from fetching(files, [ByteRange(f"{LEDGER}/{path}") for path in unstated])
        wanted: list[ByteRange] = []
        for projection in projections:
            runs = state.files[projection.runs_table]
            wanted += self._unread_marks(projection, runs)
            files.expect(f"{projection.runs_table}/{file.path}" for file in runs.files)
            wanted += self._unread_ledger(projection, state)
        yield from fetching(files, wanted)

    def _prefetch_events(self, state: TableState, projections: Sequence[Projection[Any]]) -> Rounds[None]:
        """Fetches the files of live rows, if they are small."""
        last_steps = {state.last_step(one.runs_table) for one in projections}
        batches = {batches for last_step in last_steps for batches in state.live_ranges(last_step)}
        new, self._prefetched = batches - self._prefetched, frozenset(batches)
        with self._lock:
            if new and not self._events_have(new):
                yield from self._events.catch_up()
            files = files_with(list_files(existing(EVENTS, self._events.table)), list(new))
        if sum(file.size for file in files) <= PREFETCHED_BYTES:
            yield from fetching(self._files, [ByteRange(f"{EVENTS}/{file.path}") for file in files])

    def _unread_marks(self, projection: Projection[Any], table: TableFiles) -> Iterator[ByteRange]:
        known = self._parts.marks.get(projection.runs_table, {})
        for run in table.layout.runs:
            if table.runs[run][0].path not in known:
                yield ByteRange(run_tables.marks_path(projection, run, table.runs[run]), 0, None)

    def _unread_ledger(self, projection: Projection[Any], state: TableState) -> Iterator[ByteRange]:
        new = set(state.live_ranges(state.last_step(projection.runs_table)))
        if isinstance(projection, CompanionCells):
            return  # the rows of cells are those that a measure needs
        if isinstance(projection, KeyCounts):
            new -= self._parts.keys.get(projection.ledger_field, {}).keys()
        elif isinstance(projection, (SortedValues, SortedGroups)):
            new -= self._parts.rows.get(projection.measure.stored_name, {}).keys()
        for path, ranges in state.ledger_ranges.items():
            if not new.isdisjoint(ranges):
                yield ByteRange(f"{LEDGER}/{path}")


def _unless_damaged(ahead: Rounds[None]) -> Rounds[None]:
    """Reads ahead. A damaged file stops this; the view that reads the file raises the error."""
    with suppress(DamagedWarehouse):
        yield from ahead
