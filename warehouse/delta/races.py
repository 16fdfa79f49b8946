"""Commits that may lose a race to other writers: then the change is planned anew on the newest version.

    race = Race(store, name)
    while is_wanted(race.table):
        if race.commit(actions_for(race.table)):
            break

Each commit names the version that it was planned on, so a writer that loses a race has changed nothing. If a
writer loses, another one has committed: a table always makes progress. A commit notes how many races it lost
before, for lost_race_counter.py.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime

from deltalake import DeltaTable
from deltalake.transaction import AddAction, RemoveAction, Transaction

from tidemark.warehouse.delta import data_files, retries, tables
from tidemark.warehouse.delta.changes import Change
from tidemark.warehouse.delta.commits import LOST, NO_NOTES, Commit, LostRace, commit_change
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.errors import Contended

_LOG = logging.getLogger("tidemark.commits")
_MAX_WRITERS = 5  # that an error lists


class Race:
    """The tries to change one table; each ends with a commit, or with that of another writer.

    first   the table for the first try, opened before; each further try opens the newest version. A commit on
            top of an old version loses the race, so an old snapshot costs a try and changes nothing else

    The methods that commit return whether they did. After a lost race they pause before they return; if the
    last try of `retries.PATIENCE` loses, they raise Contended. CommitFailed comes as from `tables.commit`.
    """

    def __init__(self, store: Store, name: str, first: DeltaTable | None = None) -> None:
        self._store, self.name, self._table = store, name, first
        self._started, self._tries = time.monotonic(), retries.PATIENCE.begin()
        self._winners: list[Commit] = []
        self._lost = 0  # since the last commit

    @property
    def table(self) -> DeltaTable:
        """The table that the next commit is planned on."""
        if self._table is None:
            self._table = tables.open_table(self._store, self.name)
        return self._table

    def look_again(self) -> None:
        """Plans the next commit on the newest version."""
        self._table = None

    def commit(
        self,
        actions: Iterable[AddAction | RemoveAction],
        *,
        blind: bool = False,
        transactions: Sequence[Transaction] = (),
        notes: Mapping[str, str] = NO_NOTES,
    ) -> bool:
        """Commits files as `tables.commit` does, see `FileChange`; whether it did."""
        noted = {**notes, **self._lost_note}
        lost = tables.commit(self.table, actions, blind=blind, transactions=transactions, notes=noted)
        return self._is_won(lost)

    def commit_numbered(self, source: str, number: int, actions: Sequence[AddAction]) -> bool:
        """Commits, and notes that the table has this number of the source.

        `tables.has_transaction` then finds the number, and all below it.
        """
        newest = max(number, tables.newest_transaction(self.table, source))
        return self.commit(actions, transactions=[Transaction(source, newest)])

    def change(self, change: Change) -> bool:
        """Commits a change of columns or properties; then `table` is opened anew."""
        is_won = self._is_won(commit_change(self.table, change, self._lost_note))
        self._table = None
        return is_won

    @property
    def _lost_note(self) -> Mapping[str, str]:
        return {LOST: str(self._lost)} if self._lost else NO_NOTES

    def _is_won(self, lost: LostRace | None) -> bool:
        self._lost = 0 if lost is None else self._lost + 1
        if lost is not None:
            self._table = None
            self._wait(lost)
        return lost is None

    def _wait(self, lost: LostRace) -> None:
        self._winners += lost.winners
        winner = lost.winners[-1].description if lost.winners else "others"
        _LOG.warning("%s: try %d lost the race to %s", self.name, self._tries.failed + 1, winner)
        if not self._tries.again():
            raise Contended(self._contended(lost))

    def _contended(self, lost: LostRace) -> str:
        newest = {commit.description: commit for commit in self._winners}
        counts = Counter(commit.description for commit in self._winners).most_common(_MAX_WRITERS)
        writers = "; ".join(
            f"{writer}: {count} commits, the last {_when(newest[writer])}" for writer, count in counts
        )
        seconds = time.monotonic() - self._started
        return (
            f"{self._tries.failed} tries in {seconds:.0f} s to commit to {self.name} lost the race to "
            f"others: {writers or 'not known'}. The last error: {lost.error}. Nothing was lost, and nothing "
            "was done twice: run the same again when they are done, or let fewer processes write at once."
        )


def _when(commit: Commit) -> str:
    if commit.at_ms is None:
        return f"version {commit.version}"
    at = datetime.fromtimestamp(commit.at_ms / 1000, UTC).isoformat(" ", "seconds")
    return f"version {commit.version} at {at}"


def add_files(store: Store, name: str, added: Sequence[AddAction], first: DeltaTable | None = None) -> None:
    """Adds files whatever others have committed meanwhile; `first` is the table for the first try."""
    race = Race(store, name, first)
    while not race.commit(added, blind=True):
        continue


def replace_files(store: Store, name: str, gone: Collection[str], added: Sequence[AddAction] = ()) -> None:
    """Removes the files with these paths, and adds others, in one commit; does nothing if none is there."""
    race = Race(store, name)
    while removed := [file for file in data_files.list_files(race.table) if file.path in gone]:
        if race.commit([*map(data_files.remove_action, removed), *added]):
            return
