"""Tables in an object store that a process keeps open from one commit to its next.

To open a table takes five rounds of requests, and to bring one up to date that was open for the last commit
three. A table is taken out while it is used, so it has one user at a time. On a local disk each use opens
the table anew, which takes no longer.

A warehouse may have been deleted and created again at the same address. A commit on top of the old version
would then leave a gap in the new log. So a kept table is used only if the log still has the commit of this
process after which it was kept.
"""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from itertools import compress, islice
from typing import Any

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from tidemark.warehouse.delta import commits, tables
from tidemark.warehouse.delta.remote_files import ByteRange, at_once
from tidemark.warehouse.delta.store import Store

KEPT = 16  # tables at most
# The log is kept for weeks: of the commits that came after the kept one, none was cleaned in this time.
KEPT_SECONDS = 600.0

_Place = tuple[Store, str]
_lock = threading.Lock()
_kept: OrderedDict[_Place, tuple[float, DeltaTable]] = OrderedDict()


def take(store: Store, *names: str, application: str) -> list[DeltaTable]:
    """The tables at their newest versions, which the caller may change and `keep`.

    application   its newest transaction is known afterwards without a request

    Raises the errors of `tables.open_table`.
    """
    kept = {name: table for name in names if (table := _take(store, name)) is not None}
    moves = [partial(_moves, table, application) for table in kept.values()]
    looks = [partial(_has_commit, store, name, commits.own(table)) for name, table in kept.items()]
    others = [name for name in names if name not in kept]
    opens = [partial(_open, store, name, application) for name in others]
    works: list[Callable[[], Any]] = [*moves, *looks, *opens]
    done = iter(at_once(lambda work: work(), works))
    moved, there = list(islice(done, len(kept))), list(islice(done, len(kept)))
    good = (is_moved and is_there for is_moved, is_there in zip(moved, there, strict=True))
    opened = dict(compress(kept.items(), good)) | dict(zip(others, done, strict=True))
    return [opened[name] if name in opened else _open(store, name, application) for name in names]


def keep(store: Store, opened: Mapping[str, DeltaTable]) -> None:
    """Keeps the tables, by name, for the next `take`; those that are not at a commit of this process are not.

    The caller must not use them any more.
    """
    if store.is_local:
        return
    with _lock:
        for name, table in opened.items():
            if commits.own(table) is not None:
                _kept[store, name] = time.monotonic(), table
                _kept.move_to_end((store, name))
        while len(_kept) > KEPT:
            _kept.popitem(last=False)


def _take(store: Store, name: str) -> DeltaTable | None:
    with _lock:
        since, table = _kept.pop((store, name), (float("-inf"), None))
    return table if time.monotonic() - since < KEPT_SECONDS else None


def _open(store: Store, name: str, application: str) -> DeltaTable:
    table = tables.open_table(store, name)
    tables.newest_transaction(table, application)
    return table


def _moves(table: DeltaTable, application: str) -> bool:
    """Moves the table to its newest version; returns whether that was possible."""
    with suppress(DeltaError, OSError):
        table.update_incremental()
        tables.newest_transaction(table, application)
        return True
    return False


def _has_commit(store: Store, name: str, own: commits.Commit | None) -> bool:
    """Whether the log has the commit, at its version."""
    if own is None:
        return False
    with suppress(OSError, ValueError, TypeError):
        (content,) = store.files.get([ByteRange(f"{name}/_delta_log/{own.version:020d}.json")])
        return content is not None and commits.parse(own.version, content).id == own.id
    return False


def _forget() -> None:
    """A forked child inherits the tables but none of their threads and connections."""
    global _lock  # noqa: PLW0603  the parent may have held it
    _lock = threading.Lock()
    _kept.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
