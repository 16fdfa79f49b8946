"""Delta tables through delta-rs: opened without a JVM, committed by compare-and-swap.

A commit names the version it was planned on and succeeds only as the very next version. So
whoever plans on a fresh snapshot and loses the race learns of it, looks again and decides anew:
that is all the locking there is. What became of a commit that raised an error, and how often a
race is run, is the matter of warehouse/delta/commits.py.
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
from deltalake import DeltaTable, Field, Schema
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, CommitProperties, RemoveAction, Transaction

from tidemark.warehouse.delta import commits
from tidemark.warehouse.delta.containment import check_paths
from tidemark.warehouse.delta.log_retention import RETENTION, retention_interval
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.errors import NotAWarehouse
from tidemark.warehouse.integrity.sealed_files import ROWS, SealedWriter, open_sealed
from tidemark.warehouse.os_errors import as_system_refused

# Whoever opens a table replays the commits since its last checkpoint: a few, not delta-rs's hundred.
_CONFIGURATION = {"delta.checkpointInterval": "20"}
_BLIND_RETRIES = 10  # that delta-rs makes at once, without a pause

LostRace = commits.LostRace  # what `commit` raises


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
    *,
    grace_us: int = 0,
) -> None:
    """Makes the table where it is not there yet; its log outlives the grace."""
    store.check_log(name)
    configuration = {**_CONFIGURATION, RETENTION: retention_interval(grace_us), **(properties or {})}

    def make(told: dict[str, str]) -> None:
        DeltaTable.create(
            store.table(name),
            schema,
            mode="ignore",
            partition_by=list(partition_by),
            configuration=configuration,
            storage_options=store.options,
            commit_properties=CommitProperties(custom_metadata=told),
            raise_if_key_not_exists=False,
        )

    commits.create_and_confirm(make, lambda: exists(store, name), name)


def exists(store: Store, name: str) -> bool:
    """Whether there is a Delta table."""
    store.check_log(name)
    return DeltaTable.is_deltatable(store.table(name), store.options)


def open_table(store: Store, name: str) -> DeltaTable:
    """The table at its newest version."""
    store.check_log(name)
    try:
        return DeltaTable(store.table(name), storage_options=store.options)
    except (TableNotFoundError, DeltaError) as error:
        store.check_place()
        if (told := as_system_refused(f"opening the table {name}", error)) is not None:
            raise told from error
        raise NotAWarehouse(
            f"{store.uri} is not a tidemark warehouse, or a damaged one: no table {name!r} "
            f"({str(error).splitlines()[0]}). Create it with warehouse.create or `tidemark create`."
        ) from error


def list_files(table: DeltaTable) -> list[DataFile]:
    """The files of the table's snapshot; DamagedWarehouse where one does not lie plainly below the table."""
    # Not by pa.table: it imports pandas, half a second and 40 MB, to see whether it was given its frame.
    found = pa.RecordBatchReader.from_stream(table.get_add_actions(flatten=True)).read_all()
    check_paths(table.table_uri, found.column("path"))
    # Times as Python's own would import it, too. No bound of a time is asked for.
    asked = (name for name in found.column_names if not pa.types.is_temporal(found.schema.field(name).type))
    columns = {name: found.column(name).to_pylist() for name in asked}
    facts = (columns[name] for name in ("path", "num_records", "size_bytes", "modification_time"))
    split = (name for name in columns if name.startswith("partition."))
    partitions = _by_file({name.removeprefix("partition."): columns[name] for name in split})
    stats = _by_file({k: v for k, v in columns.items() if k.startswith(("min.", "max."))})
    return [
        DataFile(path, -1 if rows is None else rows, size, modified, next(partitions), next(stats))
        for path, rows, size, modified in zip(*facts, strict=True)
    ]


def check_no_links(store: Store, name: str) -> None:
    """DamagedWarehouse where the table names a file that is outside of it, or behind a link."""
    for file in list_files(open_table(store, name)):
        store.check_links(f"{name}/{file.path}")


def table_without_rows(schema: pa.Schema) -> pa.Table:
    """A table of that schema without rows. Not by empty_table: it imports pandas, which no reader needs."""
    return pa.Table.from_batches([], schema)


def _by_file(columns: Mapping[str, list[Any]]) -> Iterator[dict[str, Any]]:
    """The columns' values of one file after the other; empty ones for ever where there is no column."""
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
    """Writes a sealed Parquet file below the table and describes it for a commit.

    Its rows are one row group, or one by each name.
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
    return add_action(path, filesystem.get_file_info(full).size, count, stats)


def add_action(
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


def remove_action(file: DataFile, *, gone_rows: bool = True) -> RemoveAction:
    """The remove action of a file of the snapshot; without `gone_rows` the table keeps its rows."""
    return RemoveAction(file.path, gone_rows, int(time.time() * 1000), file.size, dict(file.partition))


def commit(
    table: DeltaTable,
    actions: Iterable[AddAction | RemoveAction],
    *,
    blind: bool = False,
    transaction: Transaction | None = None,
) -> None:
    """Commits on top of the table's own version, or raises `LostRace`; `CommitFailed` where that is in vain.

    `blind` appends whatever else was committed meanwhile: for rows that nothing depends on.
    """
    made = list(actions)

    def write(told: dict[str, str]) -> None:
        table.create_write_transaction(
            made,
            mode="append",
            schema=table.schema(),
            partition_by=table.metadata().partition_columns,
            commit_properties=CommitProperties(
                custom_metadata=told,
                max_commit_retries=_BLIND_RETRIES if blind else 0,
                app_transactions=[transaction] if transaction else None,
            ),
        )

    commits.commit_and_confirm(table, write, [one.path for one in made if isinstance(one, AddAction)])


def commit_once(
    store: Store,
    name: str,
    application: str,
    version: int,
    actions: Callable[[DeltaTable], Sequence[AddAction]],
    *,
    known: Callable[[DeltaTable], bool] = lambda _: True,
) -> bool:
    """Commits unless the table has this version of the application's: then False.

    Where it has a later one, `known` says whether it has this one, too. `actions` are asked for anew with
    each snapshot that the commit is tried on.
    """

    def attempt() -> bool:
        table = open_table(store, name)
        if has_transaction(table, application, version) and known(table):
            return False
        newest = max(version, newest_transaction(table, application))
        commit(table, actions(table), transaction=Transaction(application, newest))
        return True

    return commits.retry_lost_races(name, attempt)


def has_transaction(table: DeltaTable, application: str, version: int) -> bool:
    """Whether the table has this version of the application's, or a later one."""
    return newest_transaction(table, application) >= version


def newest_transaction(table: DeltaTable, application: str) -> int:
    """The newest version of the application's that the table has; -1 where there is none."""
    newest = table.transaction_version(application)
    return -1 if newest is None else newest


def add_columns(table: DeltaTable, fields: Sequence[Field]) -> None:
    """Adds columns on top of the table's own version, or raises `LostRace` or `CommitFailed` as `commit`."""

    def write(told: dict[str, str]) -> None:
        properties = CommitProperties(custom_metadata=told, max_commit_retries=0)
        table.alter.add_columns(list(fields), commit_properties=properties)

    commits.commit_and_confirm(table, write)


def set_properties(table: DeltaTable, properties: Mapping[str, str]) -> None:
    """Sets properties on top of the table's version, or raises `LostRace` or `CommitFailed` as `commit`."""

    def write(told: dict[str, str]) -> None:
        named = CommitProperties(custom_metadata=told, max_commit_retries=0)
        table.alter.set_table_properties(dict(properties), commit_properties=named)

    commits.commit_and_confirm(table, write)


def append(
    store: Store,
    name: str,
    rows: pa.Table,
    *,
    table: DeltaTable | None = None,
    replaces: Sequence[DataFile] = (),
) -> None:
    """Appends rows as one file in one commit; on `table`'s version where it is given, else blindly.

    `replaces` are files whose rows are among these: they leave the table in the same commit.
    """
    added = write_file(store, name, rows, f"{unique_name()}.parquet")
    commit(table or open_table(store, name), [*map(remove_action, replaces), added], blind=table is None)


def unique_name() -> str:
    """A name that no other file has."""
    return uuid.uuid4().hex


def read(store: Store, name: str, table: DeltaTable, cache: dict[str, pa.Table] | None = None) -> pa.Table:
    """All rows of a small table. `cache` keeps its files' rows by path from one call to the next."""
    known = cache if cache is not None else {}
    paths = [file.path for file in list_files(table)]
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
