"""Tables on a disk of this machine that nobody uses any more, kept to be opened again.

A call opens the same tables many times, mostly at the version at which it left them, and delta-rs takes
milliseconds to read a log. So a table whose last user has let go of it is kept, and the next one gets it: as
it is, or moved on by the commits that came since. That takes a tenth of the time.

A kept table is opened again only while its log is the one that it was read from:

* each file of the log that delta-rs would read (log_nesting.py), and that was there when the table was opened
  or committed to, is the same file (by its number, its size and the time of its change), and none is missing;
* each other file that delta-rs would read is a commit after these.

Otherwise the table is opened from its log. After a commit that failed or lost a race, and after a change of
columns, a table is not kept. A process keeps the MOST tables that it used last, none with a log of more than
MOST_BYTES. Code that checks a warehouse calls `forget` first, so that it reads the logs.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from tidemark.warehouse.delta.log_files import LAST_CHECKPOINT
from tidemark.warehouse.delta.log_nesting import entries_read
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_facts import Facts, all_facts, keep_facts
from tidemark.warehouse.delta.table_open import check_not_forked, update

MOST = 64
MOST_BYTES = 2**22  # of a log: it names some ten thousand files
_LEASE = "tidemark_lease"  # the attribute of a table that is kept once nobody uses it

Stamps = Mapping[str, tuple[int, int, int]]  # by the name of a file of a log: its number, time and size


class _Lease:
    """A table that is in use: delta-rs's own object, and the files of the log that it was read from.

    stamps   None if the table must not be kept
    facts    what was asked of it
    """

    def __init__(self, store: Store, name: str, raw: Any, stamps: Stamps, facts: Facts) -> None:
        self.store, self.name, self.raw, self.facts = store, name, raw, facts
        self.stamps: Stamps | None = stamps

    def end(self) -> None:
        """Keeps the table, as nobody uses it any more; of two tables of one place, the last to be let go."""
        if self.stamps is None or sum(size for _, _, size in self.stamps.values()) > MOST_BYTES:
            return
        place = self.store.table(self.name)
        _kept.pop(place, None)
        _kept[place] = self
        while len(_kept) > MOST:
            with suppress(RuntimeError, StopIteration):  # another thread changed it
                _kept.pop(next(iter(_kept)), None)


_kept: dict[str, _Lease] = {}  # by address, the one that was used last at the end


@dataclass(frozen=True, slots=True)
class IdleTable:
    """The place of a table that may be kept; `table` is the kept one at its newest version.

    stamps   of its log before it is opened; None in an object store, where nothing is kept
    """

    store: Store
    name: str
    stamps: Stamps | None
    table: DeltaTable | None

    def lend(self, table: DeltaTable) -> DeltaTable:
        """The table, to be kept once nobody uses it."""
        if self.stamps is not None:
            facts = all_facts(table)
            lease = _Lease(self.store, self.name, table._table, self.stamps, facts)  # noqa: SLF001
            vars(table)[_LEASE] = lease
            weakref.finalize(table, lease.end).atexit = False
        return table


def taken(store: Store, name: str) -> IdleTable:
    """The place of a table. If a table is kept there, it is moved on to its newest version and lent."""
    stamps = _stamps(store, name)
    kept = None if stamps is None else _kept.pop(store.table(name), None)
    table = None if kept is None or stamps is None else _again(kept, stamps)
    place = IdleTable(store, name, stamps, table)
    if table is not None:
        place.lend(table)
    return place


def created(store: Store, name: str, table: DeltaTable) -> None:
    """Says that the table was opened when it was created: it is kept once nobody uses it."""
    if not store.files.takes_rounds:
        IdleTable(store, name, _stamps(store, name), None).lend(table)


def committed(table: DeltaTable) -> None:
    """Says that this process committed to the table, so that the log has newer files which it knows."""
    lease: _Lease | None = vars(table).get(_LEASE)
    if lease is not None and lease.stamps is not None:
        stamps, before = _stamps(lease.store, lease.name), lease.stamps
        both = [] if stamps is None else (stamps.keys() & before.keys()) - {LAST_CHECKPOINT}
        is_same = stamps is not None and all(stamps[one] == before[one] for one in both)
        lease.stamps = stamps if is_same else None


def drop(table: DeltaTable) -> None:
    """Says that the table must not be kept."""
    lease: _Lease | None = vars(table).get(_LEASE)
    if lease is not None:
        lease.stamps = None


def forget(store: Store) -> None:
    """Opens the tables of the warehouse from their logs the next time."""
    for place in [place for place in _kept.copy() if place.startswith(store.table(""))]:
        _kept.pop(place, None)


def _again(kept: _Lease, stamps: Stamps) -> DeltaTable | None:
    """The kept table at the newest version of the log with these files; None if it is another log."""
    before, raw = kept.stamps or {}, kept.raw
    commits, known = _commits(stamps), _commits(before)
    if not known or any(stamps.get(one) != stamp for one, stamp in before.items()):
        return None
    added = len(stamps) - len(before)
    if commits != list(range(commits[0], commits[0] + len(commits))) or len(commits) - len(known) != added:
        return None
    check_not_forked()
    table = DeltaTable.__new__(DeltaTable)
    table._table, table._storage_options = raw, None  # noqa: SLF001  the only way
    keep_facts(table, kept.facts)
    if table.version() < commits[-1]:
        try:
            update(kept.store, kept.name, table)
        except DeltaError:
            return None  # opening it tells why
    return table if table.version() == commits[-1] else None


def _commits(stamps: Stamps) -> list[int]:
    """The versions of the commits, ascending."""
    return sorted(int(name[:20]) for name in stamps if name.endswith(".json"))


def _stamps(store: Store, name: str) -> Stamps | None:
    """The stamps of the files of the log that delta-rs reads; None in an object store."""
    return store.files.log_stamps(name, entries_read(store.files.log_names(name)))
