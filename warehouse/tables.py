"""Delta tables through delta-rs: opened without a JVM, committed by compare-and-swap.

A commit names the version it was planned on and succeeds only as the very next version. So
whoever plans on a fresh snapshot and loses the race learns of it, looks again and decides anew:
that is all the locking there is.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, Field, Schema
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, CommitProperties, RemoveAction, Transaction

from warehouse.errors import DamagedWarehouse, NotAWarehouse
from warehouse.storage import Store

# Readers of an older version need their files and their log: both outlive the grace period.
# Whoever opens a table replays the commits since its last checkpoint: a few, not delta-rs's hundred.
_CONFIGURATION = {"delta.logRetentionDuration": "interval 30 days", "delta.checkpointInterval": "20"}


class LostRace(Exception):
    """Somebody else committed first: plan again on a fresh snapshot."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file that a table's snapshot names.

    `path` is below the table; `modified` is in milliseconds since 1970.
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
) -> None:
    """Makes the table where it is not there yet."""
    try:
        DeltaTable.create(
            store.table(name),
            schema,
            mode="ignore",
            partition_by=list(partition_by),
            configuration={**_CONFIGURATION, **(properties or {})},
            storage_options=store.options,
            raise_if_key_not_exists=False,
        )
    except CommitFailedError:
        if not exists(store, name):
            raise
        # Somebody else made it meanwhile.


def exists(store: Store, name: str) -> bool:
    """Whether there is a Delta table."""
    return DeltaTable.is_deltatable(store.table(name), store.options)


def open_table(store: Store, name: str) -> DeltaTable:
    """The table at its newest version."""
    try:
        return DeltaTable(store.table(name), storage_options=store.options)
    except (TableNotFoundError, DeltaError) as error:
        store.check_place()
        raise NotAWarehouse(
            f"{store.uri} is not a tidemark warehouse, or a damaged one: no table {name!r} "
            f"({str(error).splitlines()[0]}). Create it with warehouse.create or `tidemark create`."
        ) from error


def files(table: DeltaTable) -> list[DataFile]:
    """The files of the table's snapshot."""
    # Not by pa.table: it imports pandas, half a second and 40 MB, to see whether it was given its frame.
    found = pa.RecordBatchReader.from_stream(table.get_add_actions(flatten=True)).read_all()
    columns = {name: found.column(name).to_pylist() for name in found.column_names}
    facts = (columns[name] for name in ("path", "num_records", "size_bytes", "modification_time"))
    split = (name for name in columns if name.startswith("partition."))
    partitions = _by_file({name.removeprefix("partition."): columns[name] for name in split})
    stats = _by_file({k: v for k, v in columns.items() if k.startswith(("min.", "max."))})
    return [
        DataFile(path, -1 if rows is None else rows, size, modified, next(partitions), next(stats))
        for path, rows, size, modified in zip(*facts, strict=True)
    ]


def _by_file(columns: Mapping[str, list[Any]]) -> Iterator[dict[str, Any]]:
    """The columns' values of one file after the other; empty ones for ever where there is no column."""
    if not columns:
        return repeat({})
    return (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))


def write_file(
    store: Store,
    name: str,
    data: pa.Table,
    path: str,
    row_groups: Sequence[int] = (),
    stats: Mapping[str, Any] | None = None,
) -> AddAction:
    """Writes a Parquet file below the table and describes it for a commit.

    `row_groups` are the rows of each; one holds all where none are given.
    """
    filesystem = store.filesystem()
    full = f"{name}/{path}"
    filesystem.create_dir(full.rsplit("/", 1)[0], recursive=True)
    with pq.ParquetWriter(full, data.schema, filesystem=filesystem, compression="zstd") as writer:
        at = 0
        for rows in row_groups or [data.num_rows]:
            writer.write_table(data.slice(at, rows), row_group_size=max(1, rows))
            at += rows
    return describe(path, filesystem.get_file_info(full).size, data.num_rows, stats)


def describe(
    path: str,
    size: int,
    rows: int,
    stats: Mapping[str, Any] | None = None,
    partition: Mapping[str, str] | None = None,
    *,
    new_rows: bool = True,
) -> AddAction:
    """The add action of a written file; the partition is read off the path where it is not given.

    Without `new_rows` the file holds rows that the table has: a reader of changes looks past it.
    """
    if partition is None:
        partition = dict(part.split("=", 1) for part in path.split("/")[:-1])
    facts = {"numRecords": rows, **(stats or {})}
    # Not by escapes: delta-rs reads those of a character beyond the first 65,536 as another one.
    told = json.dumps(facts, ensure_ascii=False)
    return AddAction(path, size, partition, int(time.time() * 1000), new_rows, told)


def remove(file: DataFile, *, gone_rows: bool = True) -> RemoveAction:
    """The remove action of a file of the snapshot; without `gone_rows` the table keeps its rows."""
    return RemoveAction(file.path, gone_rows, int(time.time() * 1000), file.size, dict(file.partition))


def commit(
    table: DeltaTable,
    actions: Iterable[AddAction | RemoveAction],
    *,
    blind: bool = False,
    transaction: Transaction | None = None,
) -> None:
    """Commits on top of the table's own version, or raises `LostRace`.

    `blind` appends whatever else was committed meanwhile: for rows that nothing depends on.
    """
    properties = CommitProperties(
        max_commit_retries=100 if blind else 0, app_transactions=[transaction] if transaction else None
    )
    try:
        table.create_write_transaction(
            list(actions),
            mode="append",
            schema=table.schema(),
            partition_by=table.metadata().partition_columns,
            commit_properties=properties,
        )
    except CommitFailedError as error:
        raise LostRace(str(error)) from error


def commit_once(
    store: Store,
    name: str,
    application: str,
    version: int,
    actions: Callable[[DeltaTable], Sequence[AddAction]],
) -> bool:
    """Commits unless the table has this version of the application's, or a later one: then False.

    `actions` are asked for anew with each snapshot that the commit is tried on.
    """
    while True:
        table = open_table(store, name)
        if has_transaction(table, application, version):
            return False
        try:
            commit(table, actions(table), transaction=Transaction(application, version))
            return True
        except LostRace:
            continue


def has_transaction(table: DeltaTable, application: str, version: int) -> bool:
    """Whether the table has this version of the application's, or a later one."""
    newest = table.transaction_version(application)
    return newest is not None and newest >= version


def add_columns(table: DeltaTable, fields: Sequence[Field]) -> None:
    """Adds columns on top of the table's own version, or raises `LostRace`."""
    try:
        table.alter.add_columns(list(fields), commit_properties=CommitProperties(max_commit_retries=0))
    except CommitFailedError as error:
        raise LostRace(str(error)) from error


def append(store: Store, name: str, rows: pa.Table, *, table: DeltaTable | None = None) -> None:
    """Appends rows as one file in one commit; on `table`'s version where it is given, else blindly."""
    path = f"{new_name()}.parquet"
    action = write_file(store, name, rows, path)
    commit(table or open_table(store, name), [action], blind=table is None)


def new_name() -> str:
    """A name that no other file has."""
    return uuid.uuid4().hex


def read(store: Store, name: str, table: DeltaTable, cache: dict[str, pa.Table] | None = None) -> pa.Table:
    """All rows of a small table. `cache` keeps its files' rows by path from one call to the next."""
    known = cache if cache is not None else {}
    paths = [file.path for file in files(table)]
    for path in paths:
        if path not in known:
            known[path] = read_file(store, name, path)
    for path in set(known) - set(paths):
        del known[path]
    if not paths:
        return pa.schema(table.schema()).empty_table()
    return pa.concat_tables([known[path] for path in paths])


def read_file(store: Store, name: str, path: str, columns: Sequence[str] | None = None) -> pa.Table:
    """The rows of one file of a small table."""
    try:
        with pq.ParquetFile(f"{name}/{path}", filesystem=store.filesystem()) as file:
            return file.read(None if columns is None else list(columns))
    except (OSError, pa.ArrowException) as error:
        raise DamagedWarehouse(
            f"cannot read {name}/{path}: {error}. Restore the file, or the table."
        ) from error
