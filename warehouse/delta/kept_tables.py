"""Tables in an object store that a process keeps open from one commit to its next.

To open a table takes five rounds of requests, and to bring one up to date that was open for the last commit
three. A table is taken out while it is used, so it has one user at a time. On a local disk each use opens
the table anew, which takes no longer.

A warehouse may have been deleted and created again at the same address. A commit on top of the old version
would then leave a gap in the new log. So a kept table is used only if the log still has the commit of this
process after which it was kept.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from tidemark.warehouse.delta import commits, tables
from tidemark.warehouse.delta.remote_files import ByteRange, at_once
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.per_process import per_process

KEPT = 16  # tables at most
# The log is kept for weeks: of the commits that came after the kept one, none was cleaned in this time.
KEPT_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class _Kept:
    """The tables by place, the one kept last at the end, each with the time.monotonic() of its keeping."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    tables: OrderedDict[tuple[Store, str], tuple[float, DeltaTable]] = field(default_factory=OrderedDict)


def take(store: Store, *names: str, application: str) -> list[DeltaTable]:
    """The tables at their newest versions, which the caller may change and `keep`.

    application   its newest transaction is known afterwards without a request

    Raises the errors of `tables.open_table`.
    """
    works: dict[tuple[str, str], Callable[[], Any]] = {}
    for name in names:
        kept = _take(store, name)
        if kept is None:
            works[name, "table"] = partial(_open, store, name, application)
        else:
            works[name, "table"] = partial(_moved, kept, application)
            works[name, "is same"] = partial(_has_commit, store, name, commits.own(kept))
    done = dict(zip(works, at_once(lambda work: work(), list(works.values())), strict=True))
    good = {name: done[name, "table"] for name in names if done.get((name, "is same"), True)}
    return [good.get(name) or _open(store, name, application) for name in names]


def keep(store: Store, opened: Mapping[str, DeltaTable]) -> None:
    """Keeps the tables, by name, for the next `take`; those that nothing was committed through are not kept.

    The caller must not use them any more.
    """
    if store.is_local:
        return
    kept = _kept()
    with kept.lock:
        for name, table in opened.items():
            if commits.own(table) is not None:
                kept.tables[store, name] = time.monotonic(), table
                kept.tables.move_to_end((store, name))
        while len(kept.tables) > KEPT:
            kept.tables.popitem(last=False)


def _take(store: Store, name: str) -> DeltaTable | None:
    kept = _kept()
    with kept.lock:
        since, table = kept.tables.pop((store, name), (float("-inf"), None))
    return table if time.monotonic() - since < KEPT_SECONDS else None


def _open(store: Store, name: str, application: str) -> DeltaTable:
    table = tables.open_table(store, name)
    tables.newest_transaction(table, application)
    return table


def _moved(table: DeltaTable, application: str) -> DeltaTable | None:
    """The table, moved to its newest version; None if that was not possible."""
    with suppress(DeltaError, OSError):
        table.update_incremental()
        tables.newest_transaction(table, application)
        return table
    return None


def _has_commit(store: Store, name: str, own: commits.Commit | None) -> bool:
    """Whether the log has the commit, at its version."""
    if own is None:
        return False
    with suppress(OSError, ValueError, TypeError):
        (content,) = store.files.get([ByteRange(f"{name}/_delta_log/{own.version:020d}.json")])
        return content is not None and commits.parse(own.version, content).id == own.id
    return False


@per_process
def _kept() -> _Kept:
    return _Kept()
