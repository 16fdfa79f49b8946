"""The open tables of a warehouse: one interface to those on a disk and those in an object store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tidemark.warehouse.delta.data_files import DataFile
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.events.reader import BatchRange
from tidemark.warehouse.snapshots.far_tables import FarTables
from tidemark.warehouse.snapshots.near_tables import NearTables
from tidemark.warehouse.snapshots.needed import Needed
from tidemark.warehouse.snapshots.quiet_logs import QuietLogs
from tidemark.warehouse.snapshots.table_state import TableState


class EventFiles(Protocol):
    """Where the files of `events` are found."""

    def event_files(self, batches: Sequence[BatchRange], removed: int) -> list[DataFile]:
        """The files of `events` that may have rows of these batches, at a version that has all of them.

        removed   as in `list_events`
        """

    def list_events(self, removed: int) -> Sequence[DataFile]:
        """The files of `events` at its newest version with no removal after the number `removed`.

        DamagedWarehouse if that version is not kept any more.
        """


class Tables(EventFiles, Protocol):
    """The open tables. Not safe to share between threads without a lock, but for the files of `events`.

    state   the tables as they were when each was looked at last. If a look was interrupted, this is no state
            of one moment
    """

    state: TableState

    def look(self, needed: Needed, since: TableState, max_age: float = 0.0) -> list[str]:
        """Moves the needed runs tables, steps and ledger to a state of one moment, and takes newer options.

        If rows of the warehouse can be removed, `events` is looked at last, and the state has its removals.

        since     the last state of one moment: steps and ledger are looked at after tables that moved since
                  then
        max_age   nothing is looked at if the last look was less than so many seconds ago

        Returns the names of the runs tables.
        InputError if the newest options have none of the projections that are needed.
        """

    def quiet(self, needed: Needed, since: TableState) -> QuietLogs | None:
        """While these logs are unchanged, a look finds nothing newer than a state; None: it must look."""

    def look_at(self, names: Sequence[str]) -> None:
        """Moves tables to their newest versions."""

    def look_for_options(self, max_age: float = 0.0) -> None:
        """Takes newer options and columns, unless it did so less than `max_age` seconds ago."""

    def look_for_events(self) -> bool:
        """Lets `event_files` see the newest version of `events`; returns whether it did not before."""

    def look_for_removed(self) -> None:
        """Takes the removals up to the newest version of `events`, if the warehouse may have removals."""


def open_tables(store: Store) -> Tables:
    """The tables of a warehouse; NotAWarehouse if there is none."""
    return FarTables(store) if store.files.takes_rounds else NearTables(store)
