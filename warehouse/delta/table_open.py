"""Opens tables with delta-rs where they lie, after a check of their logs for entries that harm delta-rs."""

from __future__ import annotations

import os
import weakref
from pathlib import Path
from shutil import rmtree

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from tidemark.warehouse.delta.log_files import LAST_CHECKPOINT
from tidemark.warehouse.delta.log_nesting import check_nesting, entries_read
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import (
    COPIED_FROM,
    EVENTS,
    LEDGER,
    PROPERTY_PREFIX,
    PURGES,
    REJECTED,
    REMOVALS,
    REMOVED,
    STEPS,
)
from tidemark.warehouse.errors import DamagedWarehouse, NotAWarehouse
from tidemark.warehouse.os_errors import as_system_refused, forked_error

_COPIED = "tidemark_copied_log"  # the attribute of a table with the folder that has the copy of its log
_users: set[int] = set()  # the process that used delta-rs first, whose threads it has from then on


def check_not_forked() -> None:
    """SystemRefused in a child that was forked after a use of delta-rs, which would panic there."""
    _users.update(() if _users else {os.getpid()})
    if os.getpid() not in _users:
        raise forked_error()


def exists(store: Store, name: str) -> bool:
    """Whether there is a Delta table."""
    check_not_forked()
    files = store.files
    names = files.log_names(name) if files.reads_copied_logs or not files.takes_rounds else []
    if any(one != LAST_CHECKPOINT for one in entries_read(names)):
        return True
    return not files.reads_copied_logs and DeltaTable.is_deltatable(store.table(name), store.options)


def remedy(name: str) -> str:
    """How a table that is damaged as a whole, or missing, is brought back."""
    if name in (EVENTS, REJECTED, REMOVALS, REMOVED, PURGES):
        return "Restore its folder from a copy."
    return "Run `tidemark repair`, which makes it again from the table events."


def existing(name: str, table: DeltaTable | None) -> DeltaTable:
    """The table; DamagedWarehouse if it is None."""
    if table is None:
        raise DamagedWarehouse(f"the table {name} is missing. {remedy(name)}")
    return table


def open_directly(store: Store, name: str, version: int | None = None) -> DeltaTable:
    """The table at a version, None for the newest; in an object store without a copy (log_replica.py).

    NotAWarehouse if there is no table; DamagedWarehouse if the other tables of the warehouse are there, or if
    it cannot be read; StoreUnavailable and SystemRefused if the store or the system refuses.
    """
    check_not_forked()
    try:
        return _open(store, name, version)
    except (TableNotFoundError, DeltaError) as error:
        _check_missing(store, name, error)
        raise NotAWarehouse(
            f"{store.uri} is not a tidemark warehouse, or a damaged one: no table {name!r} "
            f"({_first_line(error)}). Create it with warehouse.create or `tidemark create`."
        ) from error


def find_directly(store: Store, name: str) -> DeltaTable | None:
    """As `open_directly` at the newest version; None where that is NotAWarehouse."""
    check_not_forked()
    try:
        return _open(store, name)
    except (TableNotFoundError, DeltaError) as error:
        _check_missing(store, name, error)
        return None


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]


def _check_missing(store: Store, name: str, error: Exception) -> None:
    """Raises a more exact error for a table that delta-rs does not open, where there is one."""
    store.files.check_place()
    if (refusal := as_system_refused(f"opening the table {name}", error)) is not None:
        raise refusal from error
    if not store.files.absent([COPIED_FROM]):
        raise NotAWarehouse(
            f"{store.uri} is a copy that was not finished. Run the same `tidemark copy` again."
        ) from error
    is_missing = isinstance(error, TableNotFoundError)
    is_damaged = _belongs_to_others(store, name, is_missing=is_missing)
    if is_damaged and not (is_missing and exists(store, name)):  # there by now: others just made it
        raise DamagedWarehouse(
            f"the table {name} of {store.uri} is missing, or its log cannot be read ({_first_line(error)}). "
            f"{remedy(name)}"
        ) from error


def update(store: Store, name: str, table: DeltaTable) -> None:
    """Moves a table to its newest version; raises the errors of delta-rs, and those of `check_entries`."""
    check_not_forked()
    check_entries(store, name, after=table.version())
    table.update_incremental()


def check_entries(store: Store, name: str, version: int | None = None, after: int = -1) -> None:
    """DamagedWarehouse if an entry of the log must not be given to delta-rs, or the log leads elsewhere.

    The entries with which a version is opened are checked (log_nesting.py). Entries that cannot be read are
    left to delta-rs, whose error says more.
    """
    wanted = entries_read(store.files.log_names(name), version, after)
    contents = store.files.log_entries(name, wanted)
    for one, content in zip(wanted, contents, strict=False):
        check_nesting(name, one, content or b"")


def _open(store: Store, name: str, version: int | None = None) -> DeltaTable:
    check_entries(store, name, version)
    folder = store.files.copied_log(name, version)
    if folder is None:
        return DeltaTable(store.table(name), version=version, storage_options=store.options)
    try:
        table = DeltaTable(folder, version=version)
    except BaseException:
        rmtree(folder, ignore_errors=True)
        raise
    vars(table)[_COPIED] = Path(folder)
    weakref.finalize(table, rmtree, folder, ignore_errors=True)
    return table


def copied_log(table: DeltaTable) -> Path | None:
    """The folder with the copy of the log that the table was opened from; None if it is no copy."""
    folder: Path | None = vars(table).get(_COPIED)
    return folder


def _belongs_to_others(store: Store, name: str, *, is_missing: bool) -> bool:
    """Whether other tables show that there is a warehouse here, to which this table must belong.

    Runs tables and marks tables may be missing. So may `events` beside tables without rows: `create` makes it
    last.
    """
    if name != EVENTS:
        return (not is_missing or name in (STEPS, LEDGER, REJECTED)) and _has_options(store)
    others = [other for other in (STEPS, LEDGER) if exists(store, other)]
    if not is_missing:
        return bool(others)
    return any(_open(store, other).version() for other in others)


def _has_options(store: Store) -> bool:
    """Whether there is a table `events` that is a warehouse's, as far as it can be read."""
    if not exists(store, EVENTS):
        return False
    try:
        events = _open(store, EVENTS)
    except (DeltaError, DamagedWarehouse):
        return True
    return any(name.startswith(PROPERTY_PREFIX) for name in events.metadata().configuration)
