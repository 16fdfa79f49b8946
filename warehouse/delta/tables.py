"""Delta tables through delta-rs: opened without a JVM, committed by compare-and-swap.

A commit names the version that it was planned on and succeeds only as the next version. A writer that loses
the race gets `LostRace`, re-reads the table and plans again (optimistic concurrency control, races.py); there
are no locks. commits.py decides whether a commit that raised an error succeeded.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import repeat
from typing import Any

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
from tidemark.warehouse.delta.containment import check_paths
from tidemark.warehouse.delta.log_copy import LogCopy, copy_of
from tidemark.warehouse.delta.opening import exists, open_directly
from tidemark.warehouse.delta.remote_files import ByteRange, in_rounds
from tidemark.warehouse.delta.retention import (
    CHECKPOINT_INTERVAL,
    COMMITS_OF_STREAMS,
    RETENTION,
    commits_between_checkpoints,
    retention_interval,
)
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.errors import NotAWarehouse
from tidemark.warehouse.integrity.sealed_files import ROWS, SealedWriter, open_sealed
from tidemark.warehouse.os_errors import report_os_errors

_BLIND_RETRIES = 10  # by delta-rs, without a pause
_NEWEST = "tidemark_newest_transactions"  # the attribute of a table: (version, newest by application)

LostRace = commits.LostRace  # what `commit` raises


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file of a table's snapshot.

    `path` is relative to the table; `modified` is in milliseconds since 1970.
    """

    path: str
    rows: int
    size: int
    modified: int
    partition: Mapping[str, str]
    stats: Mapping[str, Any]


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

    Raises the errors of `opening.open_directly`.
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
    if store.is_local:
        return [None] * len(names)
    copies = [store.files.idle.pop(name, None) or LogCopy(store, name) for name in names]
    with report_os_errors(f"opening the tables {', '.join(names)}"):
        in_rounds(store.files, [copy.catch_up() for copy in copies])
    return [copy.hand_over() for copy in copies]


def give_back(*given: DeltaTable) -> None:
    """Says that nobody uses the tables any more: those of an object store serve the next `open_tables`.

    That saves reading their checkpoints again, which takes long where they have many files.
    """
    for table in given:
        if (copy := copy_of(table)) is not None:
            copy.give_back(table)


def list_files(table: DeltaTable) -> list[DataFile]:
    """The files of the table's snapshot; DamagedWarehouse if a path could leave the table's folder."""
    # Not pa.table: it imports pandas (half a second, 40 MB) to check for a DataFrame.
    actions = pa.RecordBatchReader.from_stream(table.get_add_actions(flatten=True)).read_all()
    check_paths(table.table_uri, actions.column("path"))
    # Converting times to Python imports pandas, too; no statistics of a time are needed.
    fields = (field for field in actions.schema if not pa.types.is_temporal(field.type))
    columns = {field.name: actions.column(field.name).to_pylist() for field in fields}
    facts = (columns[name] for name in ("path", "num_records", "size_bytes", "modification_time"))
    prefix = "partition."
    partitions = _by_file({k.removeprefix(prefix): v for k, v in columns.items() if k.startswith(prefix)})
    stats = _by_file({k: v for k, v in columns.items() if k.startswith(("min.", "max."))})
    return [
        DataFile(path, -1 if rows is None else rows, size, modified, next(partitions), next(stats))
        for path, rows, size, modified in zip(*facts, strict=True)
    ]


def check_no_links(store: Store, name: str) -> None:
    """DamagedWarehouse if a file of the table lies outside its folder or behind a symbolic link."""
    for file in list_files(open_table(store, name)):
        store.check_links(f"{name}/{file.path}")


def table_without_rows(schema: pa.Schema) -> pa.Table:
    """A table of that schema without rows. Not `empty_table`: it imports pandas, which no reader needs."""
    return pa.Table.from_batches([], schema)


def _by_file(columns: Mapping[str, list[Any]]) -> Iterator[dict[str, Any]]:
    """One dict of the columns' values per file; without columns, empty dicts without end."""
    if not columns:
        return repeat({})
    return (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))


def write_file(
    store: Store,
    name: str,
    data: pa.Table | Mapping[str, pa.Table],
    path: str,
    stats: Mapping[str, Any] | None = None,
) -> AddAction:
    """Writes a sealed Parquet file into the table's folder; returns its add action.

    data    rows for one row group, or rows by the name of their row group
    path    relative to the table; `key=value` folders are its partition
    """
    filesystem = store.filesystem()
    full = f"{name}/{path}"
    filesystem.create_dir(full.rsplit("/", 1)[0], recursive=True)
    parts = {ROWS: data} if isinstance(data, pa.Table) else data
    schema = next(iter(parts.values())).schema
    with SealedWriter(filesystem, full, schema, compression="zstd") as writer:
        for group, rows in parts.items():
            writer.write(rows, group)
    count = sum(rows.num_rows for rows in parts.values())
    return add_action(path, writer.size, count, stats)


def add_action(
    path: str,
    size: int,
    rows: int,
    stats: Mapping[str, Any] | None = None,
    partition: Mapping[str, str] | None = None,
    *,
    new_rows: bool = True,
) -> AddAction:
    """The add action of a written file; without `partition`, the partition is that of the path.

    new_rows   whether the rows are new to the table; if not, readers of the change data ignore the file
    """
    if partition is None:
        partition = dict(part.split("=", 1) for part in path.split("/")[:-1])
    facts = {"numRecords": rows, **(stats or {})}
    # Without \\u escapes: delta-rs decodes surrogate pairs wrongly.
    stats_json = json.dumps(facts, ensure_ascii=False)
    return AddAction(path, size, partition, int(time.time() * 1000), new_rows, stats_json)


def remove_action(file: DataFile, *, gone_rows: bool = True) -> RemoveAction:
    """The remove action of a file of the snapshot; `gone_rows` False: other files have its rows."""
    return RemoveAction(file.path, gone_rows, int(time.time() * 1000), file.size, dict(file.partition))


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
        create_checkpoint=True, cleanup_expired_logs=None if due and copy_of(table) is None else False
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


def append_actions(
    store: Store, name: str, rows: pa.Table, replaces: Sequence[DataFile] = ()
) -> list[AddAction | RemoveAction]:
    """Writes rows as one file; the actions that `append` commits."""
    added = write_file(store, name, rows, f"{unique_name()}.parquet")
    return [*map(remove_action, replaces), added]


def unique_name() -> str:
    """A name for a file, unique among all files."""
    return uuid.uuid4().hex


def read(store: Store, name: str, table: DeltaTable, cache: dict[str, pa.Table] | None = None) -> pa.Table:
    """All rows of a small table. `cache` keeps the rows of its files by path between calls."""
    known = cache if cache is not None else {}
    paths = [file.path for file in list_files(table)]
    if not store.is_local:
        store.files.fetch(ByteRange(f"{name}/{path}") for path in paths if path not in known)
    for path in paths:
        if path not in known:
            known[path] = read_file(store, name, path)
    for path in set(known) - set(paths):
        del known[path]
    if not paths:
        return table_without_rows(pa.schema(table.schema()))
    # A file from before a column was added has NULL there.
    return pa.concat_tables([known[path] for path in paths], promote_options="default")


def read_file(store: Store, name: str, path: str, columns: Sequence[str] | None = None) -> pa.Table:
    """The rows of one file of a small table."""
    path = f"{name}/{path}"
    with open_sealed(store.filesystem(), path, display_name=f"{path} of the warehouse {store.uri}") as file:
        return file.read(ROWS, columns=columns)
