"""The tables of a warehouse at an earlier moment: they never move."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from deltalake import DeltaTable

from tidemark.warehouse.delta.data_files import DataFile, list_files
from tidemark.warehouse.events.reader import BatchRange, files_with
from tidemark.warehouse.events.removals import decided
from tidemark.warehouse.events.versions import FilesBefore
from tidemark.warehouse.snapshots.needed import Needed
from tidemark.warehouse.snapshots.quiet_logs import NO_LOGS, QuietLogs
from tidemark.warehouse.snapshots.table_state import TableState


@dataclass(slots=True)
class PastTables:
    """The tables of a moment. See `newest_tables.Tables`.

    events   the table, at the version of the moment
    """

    state: TableState
    events: DeltaTable
    _files: Sequence[DataFile] = field(init=False)
    _before: FilesBefore = field(init=False)

    def __post_init__(self) -> None:
        self._files, self._before = list_files(self.events), FilesBefore(self.state.store)

    def look(self, needed: Needed, since: TableState, max_age: float = 0.0) -> list[str]:  # noqa: ARG002
        """Nothing is newer."""
        return needed.runs_tables(self.state.options)

    def quiet(self, needed: Needed, since: TableState) -> QuietLogs:  # noqa: ARG002
        """No logs: nothing comes."""
        return NO_LOGS

    def look_at(self, names: Sequence[str]) -> None:
        """Does nothing."""

    def look_for_options(self, max_age: float = 0.0) -> None:
        """Does nothing."""

    def look_for_events(self) -> bool:
        """Does nothing."""
        return False

    def look_for_removed(self) -> None:
        """Does nothing."""

    def event_files(self, batches: Sequence[BatchRange], removed: int) -> list[DataFile]:
        """The files of `events` that may have rows of these batches."""
        return files_with(self.list_events(removed), batches)

    def list_events(self, removed: int) -> Sequence[DataFile]:
        """The files of `events`; those before a later removal than `removed`, see `newest_tables.Tables`."""
        if decided(self.events) > removed:
            return self._before.of(self.events, removed)
        return self._files
