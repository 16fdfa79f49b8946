"""Versions of `events` before a removal, for readers that opened the warehouse before it, or at a moment.

Rows that left stay in the files of older versions until maintenance deletes these, a grace later. Each
version has the number of the newest removal that is decided; it only rises.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from deltalake import DeltaTable

from tidemark.warehouse.delta.data_files import DataFile, list_files
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import EVENTS
from tidemark.warehouse.delta.table_open import open_directly
from tidemark.warehouse.errors import DamagedWarehouse, NotAWarehouse
from tidemark.warehouse.events.reader import BatchRange, files_with
from tidemark.warehouse.events.removals import decided


@dataclass(frozen=True, slots=True)
class FilesBefore:
    """The files of `events` at the newest version with at most a number; found once for each number."""

    store: Store
    _found: dict[int, Sequence[DataFile]] = field(default_factory=dict, init=False)

    def of(self, events: DeltaTable, number: int) -> Sequence[DataFile]:
        """The files, the same object each time; DamagedWarehouse if the log does not reach back so far."""
        if number not in self._found:
            self._found[number] = list_files(before(self.store, events, number))
        return self._found[number]


@dataclass(frozen=True, slots=True)
class PastEvents:
    """The table `events` at the version of a moment: it never moves. See `newest_tables.EventFiles`."""

    events: DeltaTable
    before: FilesBefore

    def event_files(self, batches: Sequence[BatchRange], removed: int) -> list[DataFile]:
        """The files of `events` that may have rows of these batches."""
        return files_with(self.list_events(removed), batches)

    def list_events(self, removed: int) -> Sequence[DataFile]:
        """The files of `events`, or those before a later removal than `removed`."""
        return self.before.of(self.events, removed)


def before(store: Store, events: DeltaTable, number: int) -> DeltaTable:
    """`events` at the newest version with at most this number; itself if it has no greater one.

    DamagedWarehouse if the log does not reach back so far. O(log n) versions are opened, of n that are newer.
    """
    if decided(events) <= number:
        return events
    newer, back, found = events.version(), 1, None
    older = newer  # the greatest version that has at most the number, or is not kept
    while older == newer:
        version = max(events.version() - back, -1)
        table = _open(store, version)
        if table is None or decided(table) <= number:
            older, found = version, table
        else:
            newer, older, back = version, version, 2 * back
    while newer - older > 1:
        middle = (newer + older) // 2
        table = _open(store, middle)
        if table is None or decided(table) <= number:
            older, found = middle, table
        else:
            newer = middle
    if found is None:
        raise DamagedWarehouse(
            f"rows left the table {EVENTS} since this reader looked, and its version from before that is not "
            "kept any more. Open the warehouse again: it answers as of now."
        )
    return found


def _open(store: Store, version: int) -> DeltaTable | None:
    """The version; None if its log is not kept."""
    try:
        return open_directly(store, EVENTS, version) if version >= 0 else None
    except (DamagedWarehouse, NotAWarehouse):
        return None
