"""Data files of Delta tables: listed, written and read, and the actions that add or remove them."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.transaction import AddAction, RemoveAction

from tidemark.warehouse.delta.containment import check_paths
from tidemark.warehouse.delta.round_trips import ByteRange
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_facts import facts_of
from tidemark.warehouse.integrity.sealed_files import ROWS, SealedWriter, open_sealed

_STATISTICS = ("min.", "max.", "null_count.")  # prefixes of the columns that list statistics
# Of files with few rows: dictionaries, statistics and Arrow's schema take more bytes than the rows.
FEW_ROWS = {"use_dictionary": False, "write_statistics": False, "store_schema": False}
MOST_FILES = 4  # files of a small table that grows by a file with each commit


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


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file that was written and is not committed: its path relative to its table, and its size in bytes.

    `stats` are Delta's statistics, as JSON. `nulls` is a JSON object: by column, how many rows are NULL
    there; columns without NULL are left out.
    """

    path: str
    size: int
    rows: int
    stats: str
    nulls: str = "{}"

    def action(self, *, new_rows: bool = True) -> AddAction:
        """The add action of the file; `new_rows` is False if its rows are in the table already."""
        return add_action(self.path, self.size, self.rows, json.loads(self.stats), {}, new_rows=new_rows)


def list_files(table: DeltaTable) -> list[DataFile]:
    """The files of the table's snapshot; DamagedWarehouse if a path could leave the table's folder.

    They are listed once for a version of the table.
    """
    facts = facts_of(table)
    if facts.files is None:
        facts.files = tuple(_listed(table))
    return list(facts.files)


def _listed(table: DeltaTable) -> list[DataFile]:
    # Not pa.table: it imports pandas (half a second, 40 MB) to check for a DataFrame.
    actions = pa.RecordBatchReader.from_stream(table.get_add_actions(flatten=True)).read_all()
    check_paths(table.table_uri, actions.column("path"))
    # Converting times to Python imports pandas, too; no statistics of a time are needed.
    fields = (field for field in actions.schema if not pa.types.is_temporal(field.type))
    columns = {field.name: actions.column(field.name).to_pylist() for field in fields}
    facts = (columns[name] for name in ("path", "num_records", "size_bytes", "modification_time"))
    prefix = "partition."
    partitions = _by_file({k.removeprefix(prefix): v for k, v in columns.items() if k.startswith(prefix)})
    stats = _by_file({k: v for k, v in columns.items() if k.startswith(_STATISTICS)})
    return [
        DataFile(path, -1 if rows is None else rows, size, modified, next(partitions), next(stats))
        for path, rows, size, modified in zip(*facts, strict=True)
    ]


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
    texts: Mapping[str, str] | None = None,
    encoding: Mapping[str, Any] | None = None,
) -> AddAction:
    """Writes a sealed Parquet file into the table's folder; returns its add action.

    data    rows for one row group, or rows by the name of their row group
    path    relative to the table; `key=value` folders are its partition
    texts   for the footer
    encoding
            options of pyarrow's writer; zstd by default
    """
    filesystem = store.filesystem()
    full = f"{name}/{path}"
    filesystem.create_dir(full.rsplit("/", 1)[0], recursive=True)
    parts = {ROWS: data} if isinstance(data, pa.Table) else data
    schema = next(iter(parts.values())).schema
    with SealedWriter(filesystem, full, schema, **{"compression": "zstd", **(encoding or {})}) as writer:
        for group, rows in parts.items():
            writer.write(rows, group)
        for key, text in (texts or {}).items():
            writer.add_text(key, text)
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


def append_actions(
    store: Store,
    name: str,
    rows: pa.Table,
    replaces: Sequence[DataFile],
    texts: Mapping[str, str] | None = None,
    encoding: Mapping[str, Any] | None = None,
) -> list[AddAction | RemoveAction]:
    """Writes rows as one file, see `write_file`; the actions that `append` commits."""
    added = write_file(store, name, rows, f"{unique_name()}.parquet", texts=texts, encoding=encoding)
    return [*map(remove_action, replaces), added]


def rows_and_replaced(
    store: Store, name: str, table: DeltaTable, rows: pa.Table
) -> tuple[pa.Table, list[DataFile]]:
    """What a commit adds to a small table for these rows, and the files that it replaces.

    That is the rows alone and no file; or, if the table has MOST_FILES, all rows in place of all files. So
    readers open few files.
    """
    files = list_files(table)
    if len(files) < MOST_FILES:
        return rows, []
    return pa.concat_tables([read(store, name, table), rows]), files


def unique_name() -> str:
    """A name for a file, unique among all files."""
    return uuid.uuid4().hex


def read(store: Store, name: str, table: DeltaTable, cache: dict[str, pa.Table] | None = None) -> pa.Table:
    """All rows of a small table. `cache` keeps the rows of its files by path between calls."""
    return read_files(store, name, list_files(table), pa.schema(table.schema()), cache)


def read_files(
    store: Store,
    name: str,
    files: Sequence[DataFile],
    schema: pa.Schema,
    cache: dict[str, pa.Table] | None,
) -> pa.Table:
    """As `read`, of a table with these files; without files, no rows of the schema."""
    known, paths = cache if cache is not None else {}, [file.path for file in files]
    store.files.fetch(ByteRange(f"{name}/{path}") for path in paths if path not in known)
    for path in paths:
        if path not in known:
            known[path] = read_file(store, name, path)
    for path in set(known) - set(paths):
        del known[path]
    if not paths:
        return table_without_rows(schema)
    # A file from before a column was added has NULL there.
    return pa.concat_tables([known[path] for path in paths], promote_options="default")


def read_file(store: Store, name: str, path: str, columns: Sequence[str] | None = None) -> pa.Table:
    """The rows of one file of a small table."""
    path = f"{name}/{path}"
    with open_sealed(store.filesystem(), path, display_name=f"{path} of the warehouse {store.uri}") as file:
        return file.read(ROWS, columns=columns)


def read_text(store: Store, name: str, path: str, key: str) -> str | None:
    """A text in the footer of a file of a small table; None if it has none."""
    path = f"{name}/{path}"
    with open_sealed(store.filesystem(), path, display_name=f"{path} of the warehouse {store.uri}") as file:
        return file.text(key)


def table_without_rows(schema: pa.Schema) -> pa.Table:
    """A table of that schema without rows. Not `empty_table`: it imports pandas, which no reader needs."""
    return pa.Table.from_batches([], schema)
