"""Delta tables through delta-rs: opened without a JVM, committed by compare-and-swap.

There are no locks: see commits.py, which decides whether a commit succeeded, and races.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

import pyarrow as pa
from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, CommitProperties, RemoveAction, Transaction

from tidemark.warehouse.delta import commits, idle_tables, retries
from tidemark.warehouse.delta.changes import FileChange
from tidemark.warehouse.delta.data_files import list_files
from tidemark.warehouse.delta.grace import (
    CHECKPOINT_INTERVAL,
    RETENTION,
    commits_between_checkpoints,
    retention_interval,
)
from tidemark.warehouse.delta.log_replica import LogReplica, replica_of
from tidemark.warehouse.delta.round_trips import at_once, in_rounds
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_facts import facts_of, know_newest
from tidemark.warehouse.delta.table_open import exists, find_directly, open_directly
from tidemark.warehouse.os_errors import report_os_errors


def create(
    store: Store,
    name: str,
    schema: pa.Schema | Schema,
    partition_by: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
    *,
    grace_us: int = 0,
) -> None:
    """Creates the table unless it exists; its log is kept for longer than the grace."""
    if exists(store, name):
        return
    store.files.check_place(writing=True)
    configuration = {
        CHECKPOINT_INTERVAL: str(commits_between_checkpoints(name, is_far=store.files.takes_rounds)),
        RETENTION: retention_interval(grace_us),
        **(properties or {}),
    }
    tries = retries.PATIENCE.begin(retries.PATIENCE.store_tries)
    while True:
        try:
            table = DeltaTable.create(
                store.table(name),
                schema,
                mode="ignore",
                partition_by=list(partition_by),
                configuration=configuration,
                storage_options=store.options,
                commit_properties=CommitProperties(custom_metadata=commits.commit_metadata()),
                raise_if_key_not_exists=False,
            )
            idle_tables.created(store, name, table)
            return
        except Exception as error:  # noqa: BLE001  of any type: only the store shows whether it is there
            if _appears(store, name):
                return
            commits.wait_or_fail(
                tries,
                error,
                f"the creation of the table {name}",
                f"the table {name} could not be created",
                "Nothing was changed. Remove the cause and run the same again.",
            )


def _appears(store: Store, name: str) -> bool:
    """Whether the table exists, made by this process or by another one; it is looked for several times."""
    for _is_last in retries.PATIENCE.look():
        with suppress(OSError, DeltaError):  # the table cannot be read either
            if exists(store, name):
                return True
    return False


def open_table(store: Store, name: str) -> DeltaTable:
    """The table at its newest version; see `open_tables`."""
    (table,) = open_tables(store, name)
    return table


def open_tables(store: Store, *names: str) -> list[DeltaTable]:
    """The tables at their newest versions; those of an object store from copies of their logs.

    Raises the errors of `table_open.open_directly`.
    """
    opened = zip(names, _open_copies(store, *names), strict=True)
    return [table or open_in_place(store, name) for name, table in opened]


def open_in_place(store: Store, name: str) -> DeltaTable:
    """As `open_table`, but never from a copy of the log."""
    place = idle_tables.taken(store, name)
    return place.table or place.lend(open_directly(store, name))


def find_tables(store: Store, *names: str) -> list[DeltaTable | None]:
    """As `open_tables`; None for a table that does not exist."""
    found = _open_copies(store, *names)
    for place, name in enumerate(names):
        if found[place] is None:
            idle = idle_tables.taken(store, name)
            table = None if idle.table else find_directly(store, name)
            found[place] = idle.table or (table and idle.lend(table))
    return found


def open_ahead(store: Store, *names: str) -> None:
    """Opens tables of a disk at the same time: the next calls, which open one by one, find them idle."""
    if not store.files.takes_rounds:
        at_once(lambda name: find_tables(store, name), names)


def _open_copies(store: Store, *names: str) -> list[DeltaTable | None]:
    """The tables whose logs can be copied from an object store; None for others."""
    if not store.files.takes_rounds:
        return [None] * len(names)
    copies = [store.far_files.idle.pop(name, None) or LogReplica(store, name) for name in names]
    with report_os_errors(f"opening the tables {', '.join(names)}"):
        in_rounds(store.far_files, [copy.catch_up() for copy in copies])
    return [copy.hand_over() for copy in copies]


def give_back(*given: DeltaTable) -> None:
    """Says that nobody uses the tables any more: those of an object store serve the next `open_tables`.

    That saves reading their checkpoints again, which takes long where they have many files.
    """
    for table in given:
        if (copy := replica_of(table)) is not None:
            copy.give_back(table)


def check_no_links(store: Store, name: str) -> None:
    """DamagedWarehouse if a file of the table lies outside its folder or behind a symbolic link."""
    for file in list_files(open_table(store, name)):
        store.files.check_links(f"{name}/{file.path}")


def commit(
    table: DeltaTable,
    actions: Iterable[AddAction | RemoveAction],
    *,
    blind: bool = False,
    transactions: Sequence[Transaction] = (),
    notes: Mapping[str, str] = commits.NO_NOTES,
) -> commits.LostRace | None:
    """Commits files, see `FileChange`, on top of the table's version; as `commits.commit_change`."""
    planned, newest = table.version(), facts_of(table).newest
    change = FileChange(tuple(actions), blind, tuple(transactions))
    lost = commits.commit_change(table, change, notes)
    if lost is None and not blind:  # it has the transactions of this version, and the new ones
        know_newest(table, planned + 1, newest | {one.app_id: one.version for one in transactions})
    return lost


def has_transaction(table: DeltaTable, application: str, version: int) -> bool:
    """Whether the table has this version of the application, or a later one."""
    return newest_transaction(table, application) >= version


def newest_transaction(table: DeltaTable, application: str) -> int:
    """The newest version of the application in the table; -1 if there is none.

    Looked up once for a version of the table: delta-rs reads the log for it.
    """
    newest = facts_of(table).newest
    if application not in newest:
        newest[application] = table.transaction_version(application)
    found = newest[application]
    return -1 if found is None else found
