"""Tables in an object store that a process keeps open from one commit to its next.

To open a table takes two or three rounds of requests, and to bring one up to date that was open for the last
commit one. A table is taken out while it is used, so it has one user at a time. On a local disk, and where
delta-rs opened the table itself (log_copy.py), each use opens it anew.

A warehouse may have been deleted and created again at the same address. A commit on top of the old version
would then leave a gap in the new log. So a kept table is used only if the log still has the commit of this
process after which it was kept.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from tidemark.warehouse.delta import commits, tables
from tidemark.warehouse.delta.log_copy import LogCopy, copy_of
from tidemark.warehouse.delta.remote_files import ByteRange, Rounds, in_rounds
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.per_process import per_process

KEPT = 16  # tables at most
# The log is kept for weeks: of the commits that came after the kept one, none was cleaned in this time.
KEPT_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class _Kept:
    """The copies by place, the one kept last at the end, each with the time.monotonic() of its keeping."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    copies: OrderedDict[tuple[Store, str], tuple[float, LogCopy]] = field(default_factory=OrderedDict)


def take(store: Store, *names: str) -> list[DeltaTable]:
    """The tables at their newest versions, which the caller may change and `keep`.

    Raises the errors of `tables.open_tables`.
    """
    kept = {name: copy for name in names if (copy := _take(store, name)) is not None}
    if not kept:
        return tables.open_tables(store, *names)
    own = {name: commits.own(copy.table) for name, copy in kept.items() if copy.table is not None}
    readings: list[Rounds[bool]] = [copy.catch_up() for copy in kept.values()]
    readings += [_has_commit(name, commit) for name, commit in own.items()]
    with suppress(DeltaError):  # a damaged log is damaged when it is opened, too
        has_own = dict(zip(own, in_rounds(store.files, readings)[len(kept) :], strict=True))
        good = {name: kept[name].table for name in names if has_own.get(name)}
        return [good.get(name) or tables.open_table(store, name) for name in names]
    return tables.open_tables(store, *names)


def keep(store: Store, opened: Mapping[str, DeltaTable]) -> None:
    """Keeps the tables, by name, for the next `take`; those that nothing was committed through are not kept.

    The caller must not use them any more.
    """
    kept = _kept()
    with kept.lock:
        for name, table in opened.items():
            copy = copy_of(table)
            if copy is not None and commits.own(table) is not None:
                kept.copies[store, name] = time.monotonic(), copy
                kept.copies.move_to_end((store, name))
        while len(kept.copies) > KEPT:
            kept.copies.popitem(last=False)


def _take(store: Store, name: str) -> LogCopy | None:
    kept = _kept()
    with kept.lock:
        since, copy = kept.copies.pop((store, name), (float("-inf"), None))
    return copy if time.monotonic() - since < KEPT_SECONDS else None


def _has_commit(name: str, own: commits.Commit | None) -> Rounds[bool]:
    """Whether the log has the commit, at its version."""
    if own is None:
        return False
    (content,) = yield [ByteRange(f"{name}/_delta_log/{own.version:020d}.json")]
    with suppress(ValueError, TypeError):
        return content is not None and commits.parse(own.version, content).id == own.id
    return False


@per_process
def _kept() -> _Kept:
    return _Kept()
