"""A moment of a warehouse, for `verify`: each table at one version, whatever is committed meanwhile.

The tables are opened in the order of readers (runs, steps, ledger), then the steps once more, the marks,
what was rejected, and `events` last. Commits are made the other way round, so whatever a table of the moment
speaks of is in those that were opened after it: the rows of every batch of the ledger and of every plan, the
marks of every run, the plan of every step that the ledger no longer holds. A loader beside it changes
nothing of that. Only files may vanish: those that left their table longer ago than the grace.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deltalake import DeltaTable

from tidemark.warehouse.delta import tables
from tidemark.warehouse.delta.store import EVENTS, LEDGER, REJECTED, STEPS, Store
from tidemark.warehouse.errors import TidemarkError
from tidemark.warehouse.events.steps import StepPlan, read_step_plans
from tidemark.warehouse.snapshots.snapshot_reader import SnapshotReader, open_snapshot

if TYPE_CHECKING:
    import os

Opened = DeltaTable | TidemarkError | None  # why it cannot be opened; None: there is none


@dataclass(frozen=True, slots=True)
class PinnedTables:
    """The views of a snapshot, and the tables beside it."""

    snapshot: SnapshotReader
    opened: Mapping[str, Opened]

    @property
    def store(self) -> Store:
        """Where the warehouse lies."""
        return self.snapshot.store

    @property
    def versions(self) -> list[tuple[str, int | str]]:
        """The version of each table; for one that cannot be opened, why."""
        return [
            (name, table.version() if isinstance(table, DeltaTable) else str(table))
            for name, table in self.tables()
        ]

    def tables(self) -> Iterator[tuple[str, Opened]]:
        """Every table with its name; the steps twice, as they were before and after the ledger."""
        for name in (*(one.runs_table for one in self.snapshot.options.projections), STEPS, LEDGER):
            yield name, self.snapshot.table(name)
        yield from self.opened.items()

    def table(self, name: str) -> DeltaTable:
        """A table; TidemarkError where it cannot be opened."""
        found = self.opened[name] if name in self.opened else self.snapshot.table(name)
        if isinstance(found, TidemarkError):
            raise found
        return found or tables.open_table(self.store, name)

    def plans(self) -> list[StepPlan]:
        """All plans, by step."""
        return read_step_plans(self.store, self.table(STEPS))

    def named(self) -> dict[str, int]:
        """Every file that a table names, and its size."""
        return {
            f"{name}/{file.path}": file.size
            for name, table in self.tables()
            if isinstance(table, DeltaTable)
            for file in tables.list_files(table)
        }

    def missing(self) -> dict[str, int]:
        """The named files that are not there in their full size, and the size that is."""
        filesystem = self.store.filesystem()
        sizes = {path: filesystem.get_file_info(path).size or 0 for path in self.named()}
        return {path: sizes[path] for path, size in self.named().items() if sizes[path] != size}


def look(uri: str | os.PathLike[str], storage_options: dict[str, str] | None = None) -> PinnedTables:
    """The warehouse as it is now; NotAWarehouse where there is none."""
    snapshot = open_snapshot(uri, storage_options)
    marks = [one.marks_table for one in snapshot.options.projections]
    return PinnedTables(
        snapshot, {name: _open(snapshot.store, name) for name in (STEPS, *marks, REJECTED, EVENTS)}
    )


def _open(store: Store, name: str) -> Opened:
    try:
        return tables.open_table(store, name) if tables.exists(store, name) else None
    except TidemarkError as error:
        return error
