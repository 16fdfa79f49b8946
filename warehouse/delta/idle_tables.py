"""Tables on a disk of this machine that nobody uses any more, kept to be opened again.

A call opens the same tables many times, mostly at the version at which it left them, and delta-rs takes
milliseconds to read a log. So a table is kept with a weak reference to its user. Who opens it next, and finds
that nobody refers to it any more, gets it: as it is, or moved on by the commits that came since. That takes a
tenth of the time.

A kept table is opened again only while its log is the one that it was read from:

* each file of the log that delta-rs would read (log_nesting.py), and that was there when the table was opened
  or committed to, is the same file (by its number, its size and the time of its change), and none is missing;
* each other file that delta-rs would read is a commit after these.

Otherwise the table is opened from its log. After a commit that failed or lost a race, and after a change of
columns, a table is not kept. A process keeps the MOST tables that it opened last, none with a log of more
than MOST_BYTES. Code that checks a warehouse calls `forget` first, so that it reads the logs.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping
from dataclasses import dataclass

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from tidemark.warehouse.delta.log_files import LAST_CHECKPOINT
from tidemark.warehouse.delta.log_nesting import entries_read
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_facts import all_facts, keep_facts
from tidemark.warehouse.delta.table_open import check_not_forked, update

MOST = 64
MOST_BYTES = 2**22  # of a log: it names some ten thousand files

Stamps = Mapping[str, tuple[int, int, int]]  # by the name of a file of a log: its number, time and size


class _Opened:
    """A table that is in use, or idle: delta-rs's own object, and the files of the log that it was read from.

    It is in use while its `user`, the table that `open_table` returned, is referred to from anywhere.
    """

    def __init__(self, store: Store, name: str, stamps: Stamps, table: DeltaTable) -> None:
        self.store, self.name, self.stamps, self.place = store, name, stamps, store.table(name)
        self.raw, self.facts, self.user = table._table, all_facts(table), weakref.ref(table)  # noqa: SLF001

    def keep(self) -> None:
        if sum(size for _, _, size in self.stamps.values()) <= MOST_BYTES:
            with _changing:
                _kept.append(self)
                del _kept[:-MOST]

    def committed(self) -> None:
        """Keeps the table, to which this process committed: the log has newer files, which it knows."""
        stamps, before = _stamps(self.store, self.name) or {}, self.stamps
        if all(stamps[one] == before[one] for one in (stamps.keys() & before.keys()) - {LAST_CHECKPOINT}):
            self.stamps = stamps
            self.keep()


_kept: list[_Opened] = []  # the one that was opened last at the end
_changing = threading.Lock()  # held while `_kept` is changed


@dataclass(frozen=True, slots=True)
class IdleTable:
    """The place of a table that may be kept; `table` is the kept one at its newest version.

    stamps   of its log before it is opened; None in an object store, where nothing is kept
    """

    store: Store
    name: str
    stamps: Stamps | None
    table: DeltaTable | None = None

    def lend(self, table: DeltaTable) -> DeltaTable:
        """The table, which is opened again once nobody uses it."""
        if self.stamps is not None:
            _Opened(self.store, self.name, self.stamps, table).keep()
        return table


def taken(store: Store, name: str) -> IdleTable:
    """The place of a table. If an idle one is kept there, it is moved on to its newest version and lent."""
    stamps = _stamps(store, name)
    if stamps is None:
        return IdleTable(store, name, None)
    check_not_forked()
    with _changing:
        idle = [one for one in _kept if one.place == store.table(name) and one.user() is None]
        _kept[:] = [one for one in _kept if one not in idle]
    table = _again(idle[-1], stamps) if idle else None
    place = IdleTable(store, name, stamps, table)
    if table is not None:
        place.lend(table)
    return place


def created(store: Store, name: str, table: DeltaTable) -> None:
    """Says that the table was opened when it was created: it is opened again once nobody uses it."""
    if not store.files.takes_rounds:
        IdleTable(store, name, _stamps(store, name)).lend(table)


def withdrawn(table: DeltaTable) -> _Opened | None:
    """Takes out a table that is about to change; its `committed` keeps it again. None if it was not kept."""
    with _changing:
        found = [one for one in _kept if one.user() is table]
        _kept[:] = [one for one in _kept if one not in found]
    return found[0] if found else None


def forget(store: Store) -> None:
    """Opens the tables of the warehouse from their logs the next time."""
    with _changing:
        _kept[:] = [one for one in _kept if not one.place.startswith(store.table(""))]


def _again(kept: _Opened, stamps: Stamps) -> DeltaTable | None:
    """The kept table at the newest version of the log with these files; None if it is another log."""
    before = kept.stamps
    commits, known = _commits(stamps), _commits(before)
    if not known or any(stamps.get(one) != stamp for one, stamp in before.items()):
        return None
    added = len(stamps) - len(before)
    if commits != list(range(commits[0], commits[0] + len(commits))) or len(commits) - len(known) != added:
        return None
    table = DeltaTable.__new__(DeltaTable)
    table._table, table._storage_options = kept.raw, None  # noqa: SLF001  the only way
    keep_facts(table, kept.facts)
    if table.version() < commits[-1]:
        try:
            update(kept.store, kept.name, table)
        except DeltaError:
            return None  # opening it tells why
    return table if table.version() == commits[-1] else None


def _commits(stamps: Stamps) -> list[int]:
    return sorted(int(name[:20]) for name in stamps if name.endswith(".json"))


def _stamps(store: Store, name: str) -> Stamps | None:
    """The stamps of the files of the log that delta-rs reads; None in an object store."""
    return store.files.log_stamps(name, entries_read(store.files.log_names(name)))
