"""Reads snapshots of a warehouse, consistent while loads run, without a JVM.

Snapshot isolation comes from the order of the reads. First the runs tables are read, at their newest version.
Then the steps: they hold the plan of every step in those runs. Then the ledger: it has rows for every batch
that those steps do not cover, because ledger rows stay for the grace period after their batch was loaded. So
no batch is missing and none is counted twice. If rows of the warehouse can be removed, `events` is read after
these: its version has the number of the newest removal. Then the records of the removals up to this number
are read. Either all runs of a projection are without the rows of a removal, or none is (table_state.py).

The state of a reader is one immutable snapshot, which is replaced once an update has ended. If an update is
interrupted, the snapshot is unchanged, and the next update starts from it.

Cost. A refresh that finds nothing new looks for two files of each table; in an object store it takes one
round of requests. A view reads only the marks and ledger rows of runs and batches that the previous views did
not have.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress

from tidemark.warehouse.delta.data_files import DataFile
from tidemark.warehouse.delta.disk_cache import DiskCache
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import LEDGER, STEPS
from tidemark.warehouse.errors import DamagedWarehouse, InputError, shortened
from tidemark.warehouse.events.reader import BatchRange
from tidemark.warehouse.os_errors import report_os_errors
from tidemark.warehouse.settings.options import Options
from tidemark.warehouse.snapshots.behind import Progress, StepsTold
from tidemark.warehouse.snapshots.needed import ALL, Needed
from tidemark.warehouse.snapshots.newest_tables import open_tables
from tidemark.warehouse.snapshots.quiet_logs import QuietLogs
from tidemark.warehouse.snapshots.snapshot import Snapshot
from tidemark.warehouse.snapshots.table_state import TableState


class SnapshotReader:
    """Reads the newest state of one warehouse. It is not safe to share between threads without a lock.

    `refresh` moves to the newest versions of the tables. `current` returns the state of the last refresh as
    an immutable `Snapshot`, whose parts are read when they are asked for; `pinned` has read all of them.
    """

    def __init__(self, store: Store) -> None:
        self.store, self._tables = store, open_tables(store)
        self._snapshot = Snapshot(self._tables.state, self._tables)
        # What was compared, and lacks nothing.
        self._whole: tuple[TableState | None, Sequence[str]] = (None, ())
        found = self._tables.state.files
        self._settle([name for name in ALL.runs_tables(self.options) if name in found])

    @property
    def options(self) -> Options:
        """The options of the warehouse, and its columns, as of the last look."""
        return self._tables.state.options

    @property
    def sites(self) -> tuple[SnapshotReader, ...]:
        """The reader of each warehouse: this one."""
        return (self,)

    @property
    def identity(self) -> str:
        """The id of the table `events`: it differs from that of another warehouse at the same place."""
        return self._tables.state.identity

    def refresh(self, needed: Needed = ALL, *, max_age: float = 0.0) -> bool:
        """Looks for newer versions of the tables, and for newer options; returns whether there were any.

        needed      the projections whose tables are looked at, beside steps and ledger
        max_age     a table that was looked at less than so many seconds ago is not looked at again

        InputError if the newest options have none of the projections that are needed.
        """
        before = self._snapshot
        self._settle(self._tables.look(needed, before.state, max_age))
        return self._snapshot is not before

    def newest(self, needed: Needed = ALL, *, max_age: float = 0.0) -> Snapshot:
        """The snapshot after a refresh, of which the needed parts may be asked."""
        self.refresh(needed, max_age=max_age)
        return self._snapshot

    def quiet(self, needed: Needed) -> QuietLogs | None:
        """While these logs are unchanged, `newest` is as it was; None if it must look."""
        return self._tables.quiet(needed, self._snapshot.state)

    def refresh_options(self, *, max_age: float) -> bool:
        """Looks for newer options and columns alone, `max_age` as in `refresh`; whether there were any."""
        before = self.options
        self._tables.look_for_options(max_age)
        return self.options is not before

    def refresh_events(self) -> bool:
        """Lets `event_files` see the newest version of `events`; returns whether it did not before."""
        return self._tables.look_for_events()

    def event_files(self, batches: Sequence[BatchRange]) -> list[DataFile]:
        """The files of `events` that may have rows of these batches, at a version that has all of them."""
        return self._snapshot.event_files(batches)

    def list_events(self) -> Sequence[DataFile]:
        """The files of `events` at the newest version without a removal that came after the last refresh."""
        return self._snapshot.list_events()

    @property
    def seen(self) -> Snapshot:
        """The state of the last look, to compare with that of another look."""
        return self._snapshot

    def current(self, needed: Needed = ALL) -> Snapshot:
        """The snapshot as of the last refresh; tables of needed parts are looked at if they were not yet."""
        names, known = needed.runs_tables(self.options), self._snapshot.state
        if known.options is not self.options or any(name not in known.files for name in names):
            self.refresh(needed)
        return self._snapshot

    def pinned(self) -> Snapshot:
        """The whole state as of the last refresh; the same object until a refresh finds something new."""
        snapshot = self.current()
        snapshot.read_all()
        return snapshot

    def _settle(self, runs_tables: Sequence[str]) -> None:
        """Takes the state of the tables after a look, once their steps are compared."""
        before, state = self._snapshot, self._tables.state
        known, tables_known = self._whole
        if state is before.state and state is known and runs_tables == tables_known:
            return
        told, is_whole = self._compare(runs_tables)
        state = self._tables.state
        self._whole = (state, runs_tables) if is_whole else (None, ())
        if state is not before.state or told not in (None, before.told):
            self._snapshot = Snapshot(state, self._tables, told)

    def _compare(self, runs_tables: Sequence[str]) -> tuple[StepsTold | None, bool]:
        """What the tables say of the steps, and whether they are whole: at one step, and no removal is torn.

        The first is None if no table lacks a step that another one has.

        If one lacks a step, or shows a part of a removal, all tables are looked at again, as long as that
        finds newer versions. A view of a table that then still lacks a step is refused, see behind.py.
        """
        told = None
        try:
            self._look_until_whole(runs_tables)
            while self._tables.state.lacks_steps(runs_tables):
                has_moved = self._look_at_all()
                self._tables.look_at([one.marks_table for one in self.options.projections])
                told = steps_told(self._tables.state)
                if not has_moved or not any(told.damage(name) for name in runs_tables):
                    break
            self._look_until_whole(runs_tables)
            state = self._tables.state
            return told, not (told or state.lacks_steps(runs_tables) or state.is_torn(runs_tables))
        except DamagedWarehouse:  # the view that reads the table raises it
            return told, False

    def _look_until_whole(self, runs_tables: Sequence[str]) -> None:
        """Looks at all tables while one shows a part of a removal and newer versions are found."""
        while self._tables.state.is_torn(runs_tables):
            self._tables.look_for_options()  # they say whether rows can be removed
            if not self._look_at_all():
                break

    def _look_at_all(self) -> bool:
        """Looks at the runs tables, and at the tables after them; returns whether any has moved."""
        before = self._tables.state
        self._tables.look_at(ALL.runs_tables(self.options))
        with suppress(DamagedWarehouse):  # of a table that no question reads
            self._tables.look_at(self.options.dropped_measures)
        has_moved = self._tables.state is not before
        if has_moved:
            self._tables.look_at([STEPS, LEDGER])
        self._tables.look_for_removed()
        return self._tables.state is not before


def steps_told(state: TableState) -> StepsTold:
    """What the tables say of the steps.

    The runs and marks tables of all projections were looked at, and the runs tables of dropped measures.
    """
    built_from, found = state.options.built_from, []
    for one in state.options.projections:
        marks = state.files[one.marks_table].files
        found.append(Progress.of(one, state.last_step(one.runs_table), marks, built_from))
    dropped = (state.last_step(name) for name in state.options.dropped_measures if name in state.files)
    return StepsTold(state.planned, tuple(found), max(dropped, default=-1))


def open_snapshot(
    uri: str | os.PathLike[str],
    storage_options: dict[str, str] | None = None,
    cache: DiskCache | None = None,
) -> SnapshotReader:
    """Opens a warehouse for reading; NotAWarehouse if there is no warehouse at `uri`.

    cache   keeps what this process reads of an object store from now on
    """
    with report_os_errors("opening"):
        if not isinstance(uri, (str, os.PathLike)):
            raise InputError(f"a warehouse is a path or an address, got {shortened(uri)}.")
        store = Store.from_uri(uri, storage_options)
        if cache is not None:
            store.files.keep_on_disk(cache)
        return SnapshotReader(store)
