"""Delta tables through delta-rs: opened without a JVM, committed by compare-and-swap.

A commit names the version that it was planned on and succeeds only as the next version. A writer that loses
the race gets `LostRace`, re-reads the table and plans again (optimistic concurrency control, races.py); there
are no locks. commits.py decides whether a commit that raised an error succeeded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

import pyarrow as pa
from deltalake import DeltaTable, Field, Schema, write_deltalake
from deltalake.transaction import (
    AddAction,
    CommitProperties,
    PostCommitHookProperties,
    RemoveAction,
    Transaction,
)

from tidemark.warehouse.delta import commits
from tidemark.warehouse.delta.data_files import DataFile, append_actions, list_files, table_without_rows
from tidemark.warehouse.delta.log_replica import LogReplica, replica_of
from tidemark.warehouse.delta.retention import (
    CHECKPOINT_INTERVAL,
    COMMITS_OF_STREAMS,
    RETENTION,
    commits_between_checkpoints,
    retention_interval,
)
from tidemark.warehouse.delta.round_trips import in_rounds
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_open import exists, open_directly
from tidemark.warehouse.errors import NotAWarehouse
from tidemark.warehouse.os_errors import report_os_errors

_BLIND_RETRIES = 10  # by delta-rs, without a pause
_NEWEST = "tidemark_newest_transactions"  # the attribute of a table: (version, newest by application)

LostRace = commits.LostRace  # what `commit` raises


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
    configuration = {
        CHECKPOINT_INTERVAL: str(commits_between_checkpoints(name)),
        RETENTION: retention_interval(grace_us),
        **(properties or {}),
    }

    def make(metadata: dict[str, str]) -> None:
        DeltaTable.create(
            store.table(name),
            schema,
            mode="ignore",
            partition_by=list(partition_by),
            configuration=configuration,
            storage_options=store.options,
            commit_properties=CommitProperties(custom_metadata=metadata),
            raise_if_key_not_exists=False,
        )

    commits.create_and_confirm(make, lambda: exists(store, name), name)


def open_table(store: Store, name: str) -> DeltaTable:
    """The table at its newest version; see `open_tables`."""
    (table,) = open_tables(store, name)
    return table


def open_tables(store: Store, *names: str) -> list[DeltaTable]:
    """The tables at their newest versions; of an object store the copies of their logs.

    Raises the errors of `table_open.open_directly`.
    """
    opened = zip(names, _open_copies(store, *names), strict=True)
    return [table or open_directly(store, name) for name, table in opened]


def find_tables(store: Store, *names: str) -> list[DeltaTable | None]:
    """As `open_tables`; None for a table that does not exist."""
    found = _open_copies(store, *names)
    for place, name in enumerate(names):
        if found[place] is None:
            with suppress(NotAWarehouse):
                found[place] = open_directly(store, name)
    return found


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
) -> None:
    """Commits on top of the table's version; LostRace if it is not the newest, CommitFailed if refused.

    blind        commits on top of any version, for rows that do not depend on other rows. In an object store
                 it may lose the race, too
    transactions are set in the same commit
    """
    all_actions = list(actions)

    def write(table: DeltaTable, metadata: dict[str, str]) -> None:
        table.create_write_transaction(
            all_actions,
            mode="append",
            schema=table.schema(),
            partition_by=table.metadata().partition_columns,
            commit_properties=CommitProperties(
                custom_metadata=metadata,
                max_commit_retries=_BLIND_RETRIES if blind else 0,
                app_transactions=list(transactions) or None,
            ),
            post_commithook_properties=_cleanup_at_checkpoints(table),
        )

    added = [action.path for action in all_actions if isinstance(action, AddAction)]
    commits.commit_and_confirm(table, write, added)


def _cleanup_at_checkpoints(table: DeltaTable) -> PostCommitHookProperties:
    """Looks for expired log entries with a new checkpoint only, as Spark does: it lists the whole log.

    A copy of a log has nothing to clean.
    """
    interval = int(table.metadata().configuration.get(CHECKPOINT_INTERVAL, COMMITS_OF_STREAMS))
    due = (table.version() + 1) % interval == 0
    return PostCommitHookProperties(
        create_checkpoint=True, cleanup_expired_logs=None if due and replica_of(table) is None else False
    )


def has_transaction(table: DeltaTable, application: str, version: int) -> bool:
    """Whether the table has this version of the application, or a later one."""
    return newest_transaction(table, application) >= version


def newest_transaction(table: DeltaTable, application: str) -> int:
    """The newest version of the application in the table; -1 if there is none.

    Looked up once for a version of the table: delta-rs reads the log for it.
    """
    version, newest = vars(table).get(_NEWEST, (None, {}))
    if version != table.version():
        newest = {}
        vars(table)[_NEWEST] = (table.version(), newest)
    if application not in newest:
        newest[application] = table.transaction_version(application)
    return -1 if newest[application] is None else newest[application]


def add_columns(table: DeltaTable, fields: Sequence[Field]) -> None:
    """Adds columns on top of the table's version; raises LostRace and CommitFailed as `commit` does."""

    def write(table: DeltaTable, metadata: dict[str, str]) -> None:
        properties = CommitProperties(custom_metadata=metadata, max_commit_retries=0)
        table.alter.add_columns(list(fields), commit_properties=properties)

    commits.commit_and_confirm(table, write)


def widen(table: DeltaTable, schema: pa.Schema) -> None:
    """Adds the columns, and the fields of structs, that only `schema` has; the rows have NULL there.

    On top of the table's version; raises LostRace and CommitFailed as `commit` does.
    """

    def write(table: DeltaTable, metadata: dict[str, str]) -> None:
        properties = CommitProperties(custom_metadata=metadata, max_commit_retries=0)
        write_deltalake(
            table,
            table_without_rows(schema),
            mode="append",
            schema_mode="merge",
            commit_properties=properties,
        )

    commits.commit_and_confirm(table, write)


def set_properties(table: DeltaTable, properties: Mapping[str, str]) -> None:
    """Sets properties on top of the table's version; raises LostRace and CommitFailed as `commit` does."""

    def write(table: DeltaTable, metadata: dict[str, str]) -> None:
        commit_properties = CommitProperties(custom_metadata=metadata, max_commit_retries=0)
        table.alter.set_table_properties(
            dict(properties),
            raise_if_not_exists=False,  # delta-rs knows only Delta's own properties
            commit_properties=commit_properties,
        )

    commits.commit_and_confirm(table, write)


def append(
    store: Store,
    name: str,
    rows: pa.Table,
    *,
    table: DeltaTable,
    replaces: Sequence[DataFile] = (),
) -> None:
    """Appends rows as one file in one commit, on top of the version of `table`.

    replaces   files whose rows are among these; the same commit removes them
    """
    commit(table, append_actions(store, name, rows, replaces))
