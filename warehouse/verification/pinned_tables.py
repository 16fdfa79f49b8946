"""All tables of a warehouse, each pinned to one version, for `verify`. Later commits do not change them.

A load commits to `events` first, then to the ledger, the steps, the marks and the runs. Here each table is
opened after the tables that refer to it: runs, steps, ledger, the steps a second time, marks, `rejected`,
`events`, and, if rows of the warehouse may leave, the records of removals and their files. So every reference
in a pinned table resolves in a table that was opened after it: `events` has the rows of every batch in the
ledger and in every plan, the marks tables have the marks of every run, and the second reading of the steps
has the plan of every step that the ledger no longer holds. A load at the same time does not change that. Only
files may disappear: maintenance deletes those that left their table longer ago than the grace.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from deltalake import DeltaTable

from tidemark.warehouse.delta import data_files, idle_tables, table_open, tables
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import EVENTS, LEDGER, PURGES, REJECTED, REMOVALS, REMOVED, STEPS
from tidemark.warehouse.errors import TidemarkError
from tidemark.warehouse.events.removals import Removal, Removed, decided, read_removals, voided
from tidemark.warehouse.events.steps import StepPlan, read_step_plans
from tidemark.warehouse.runs.projection import Projection
from tidemark.warehouse.settings.features import SIGNED
from tidemark.warehouse.snapshots.behind import check_removed
from tidemark.warehouse.snapshots.snapshot import Snapshot
from tidemark.warehouse.snapshots.snapshot_reader import open_snapshot

# A table, the error that was raised when it was opened, or None if it does not exist.
Opened = DeltaTable | TidemarkError | None


@dataclass(frozen=True)
class PinnedTables:
    """A snapshot with its tables (runs, first steps, ledger), and the tables opened after it, by name.

    Plans and removals are read once: each check asks for them.

    contents   the sum of the content digests of all runs by the name of a projection, once they were read
    live       the rows of live batches by the newest step in history, once they were counted
    """

    snapshot: Snapshot
    opened: Mapping[str, Opened]
    contents: dict[str, int] = field(default_factory=dict)
    live: dict[int, int] = field(default_factory=dict)

    @property
    def store(self) -> Store:
        """Where the warehouse is stored."""
        return self.snapshot.store

    @property
    def versions(self) -> list[tuple[str, int | str]]:
        """The name and version of each table; the error's text instead if the table cannot be opened."""
        return [
            (name, table.version() if isinstance(table, DeltaTable) else str(table))
            for name, table in self.tables()
        ]

    def tables(self) -> Iterator[tuple[str, Opened]]:
        """Every table with its name; the steps twice, as they were before and after the ledger was opened."""
        runs_tables = [projection.runs_table for projection in self.snapshot.options.projections]
        for name in (*runs_tables, STEPS, LEDGER):
            yield name, self.snapshot.table(name)
        yield from self.opened.items()

    def table(self, name: str) -> DeltaTable:
        """A table, from the last time it was opened; TidemarkError if it cannot be opened."""
        table = self.opened[name] if name in self.opened else self.snapshot.table(name)
        if isinstance(table, TidemarkError):
            raise table
        return table or tables.open_table(self.store, name)

    @cached_property
    def plans(self) -> list[StepPlan]:
        """All plans, ordered by step."""
        return read_step_plans(self.store, self.table(STEPS))

    @cached_property
    def removals(self) -> list[Removal]:
        """The records of all removals; none without their table."""
        table = self.opened.get(REMOVALS)
        return [] if table is None else read_removals(self.store, self.table(REMOVALS))

    @cached_property
    def removed(self) -> Removed:
        """The removals by the pinned version of `events`; DamagedWarehouse if a record is missing."""
        events = self.table(EVENTS)
        return Removed.of(self.removals, decided(events), voided(events))

    def removed_of(self, projection: Projection[Any]) -> Removed:
        """The removals that the runs of the projection show; an error if they show a part of one."""
        return self.removed.up_to(check_removed(self.snapshot.state, projection))

    def file_sizes(self) -> dict[str, int]:
        """The size of every file of every table, as the table's log states it, by path."""
        return {
            f"{name}/{file.path}": file.size
            for name, table in self.tables()
            if isinstance(table, DeltaTable)
            for file in data_files.list_files(table)
        }

    def missing(self) -> dict[str, int]:
        """The files whose actual size is not the stated one, by path; the size is 0 if there is no file."""
        filesystem, stated = self.store.filesystem(), self.file_sizes()
        actual = {path: filesystem.get_file_info(path).size or 0 for path in stated}
        return {path: actual[path] for path, size in stated.items() if actual[path] != size}


def pin_tables(uri: str | os.PathLike[str], storage_options: dict[str, str] | None = None) -> PinnedTables:
    """Pins all tables to their newest versions; NotAWarehouse if there is no warehouse at `uri`."""
    store = Store.from_uri(uri, storage_options)
    store.files.forget()  # what the store has is checked, not what was read of it before
    idle_tables.forget(store)
    snapshot = open_snapshot(uri, storage_options).newest()
    marks_tables = [projection.marks_table for projection in snapshot.options.projections]
    purges = [PURGES] if table_open.exists(snapshot.store, PURGES) else []
    names = (STEPS, *marks_tables, REJECTED, *purges, EVENTS)
    if SIGNED in snapshot.options.features:
        names = (*names, REMOVALS, REMOVED)
    return PinnedTables(snapshot, {name: _open(snapshot.store, name) for name in names})


def _open(store: Store, name: str) -> Opened:
    try:
        return tables.open_table(store, name) if table_open.exists(store, name) else None
    except TidemarkError as error:
        return error
