"""The table `rejected`: records of a stream that could not be taken, with their text and the reason.

To add a column that describes a record: add it to RECORD, and to the records that jobs/stream_events.py
reads, from Kafka and from files; it may be NULL. The parser (stream/records.py) passes it on as ``_<name>``,
the filter keeps it with its type. Only new warehouses get the column: `create` makes the table.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from tidemark.warehouse.delta import data_files, tables
from tidemark.warehouse.delta.data_files import NewFile
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import REJECTED
from tidemark.warehouse.errors import DamagedWarehouse
from tidemark.warehouse.events.reader import BatchRange

# These columns describe a refused record: its place in the source, the record, and why it was refused.
RECORD = pa.schema([("position", pa.string()), ("raw", pa.string()), ("reason", pa.string())])
RECORD_COLUMNS = tuple(f"_{name}" for name in RECORD.names)  # the columns that a parser adds to its rows
SCHEMA = pa.schema(
    [("source", pa.string()), ("batch", pa.int64()), *RECORD, ("rejected_at", pa.timestamp("us", tz="UTC"))]
)


def write_rejected(store: Store, batch: BatchRange, records: Sequence[Mapping[str, Any]]) -> NewFile:
    """Writes the refused records of a batch, each with the columns of RECORD, into one new file."""
    common = {"source": batch.source, "batch": batch.first, "rejected_at": datetime.now(UTC)}
    rows = pa.Table.from_pylist([{**common, **record} for record in records], SCHEMA)
    return write_rows(store, batch.source, batch.first, rows)


def write_rows(store: Store, source: str, batch: int, rows: pa.Table) -> NewFile:
    """Writes rows of the table, of one batch, into one new file."""
    written = data_files.write_file(store, REJECTED, rows, f"{data_files.unique_name()}.parquet")
    bound = {"source": source, "batch": batch}
    stats = {"minValues": bound, "maxValues": bound, "nullCount": dict.fromkeys(bound, 0)}
    return NewFile(written.path, written.size, rows.num_rows, json.dumps(stats))


def read(store: Store, table: DeltaTable) -> pa.Table:
    """All records; DamagedWarehouse if one has no reason."""
    rows = data_files.read(store, REJECTED, table)
    if without := rows.column("reason").null_count:
        raise DamagedWarehouse(f"{without} rejected records have no reason.")
    return rows


def has_rejected(table: DeltaTable, batch: BatchRange) -> bool:
    """Whether `rejected` has records of the batch."""
    return bool(_files_of(table, batch))


def rejected_texts(store: Store, batch: BatchRange) -> list[str | None]:
    """The records of the batch in `rejected`: the text of each, in any order."""
    paths = _files_of(tables.open_table(store, REJECTED), batch)
    rows = [data_files.read_file(store, REJECTED, path, ["raw"]) for path in paths]
    return [text for part in rows for text in part.column("raw").to_pylist()]


def _files_of(table: DeltaTable, batch: BatchRange) -> list[str]:
    return [
        file.path
        for file in data_files.list_files(table)
        if file.stats["min.source"] == batch.source and file.stats["min.batch"] == batch.first
    ]
