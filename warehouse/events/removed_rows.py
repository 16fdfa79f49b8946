"""The file of a removal, in the table `removed`: files that are replaced, and batches that lose rows.

Each row of the table has a `part` and its `content`, a table as an Arrow stream: so columns of users, whose
names may be any, are columns of that table and of no Parquet file. docs/signed_steps.md has the columns. The
file is written and added before the record of its removal is, and is never changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import pyarrow as pa
from deltalake import DeltaTable

from tidemark.warehouse.columns.ticks import NO_TICK
from tidemark.warehouse.delta import data_files
from tidemark.warehouse.delta.data_files import NewFile
from tidemark.warehouse.delta.races import add_files
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import REMOVED
from tidemark.warehouse.errors import DamagedWarehouse
from tidemark.warehouse.events.reader import BatchRange
from tidemark.warehouse.events.removals import removed_at
from tidemark.warehouse.integrity.digests import Fingerprint
from tidemark.warehouse.integrity.sealed_files import SealedFile, open_sealed

SCHEMA = pa.schema([("part", pa.string()), ("content", pa.binary())])
OF_STEP = "of step"  # of a kept row: no column of a warehouse has a name with a space

_FILES, _BATCHES, _ROWS = "files", "batches", "rows"  # the parts, each a row group of this name
_PIECE_ROWS = 2**16
_FILES_SCHEMA = pa.schema(
    [
        ("old", pa.string()),
        ("new", pa.string()),
        ("size", pa.int64()),
        ("rows", pa.int64()),
        ("stats", pa.string()),
    ]
)
_BATCHES_SCHEMA = pa.schema(
    [
        ("source", pa.string()),
        ("batch", pa.int64()),
        ("rows", pa.int64()),
        ("digest", pa.uint64()),
        ("unloaded", pa.bool_()),
        ("latest", pa.int64()),
    ]
)


@dataclass(frozen=True, slots=True)
class ReplacedFile:
    """A file of `events` that is replaced: its path in the table; `new` is None if no row is left.

    `old` is None if the rows of `new` come by a correction.
    """

    old: str | None
    new: NewFile | None


@dataclass(frozen=True, slots=True)
class RemovedBatch:
    """A batch that loses rows or is unloaded.

    digest   of the fingerprint of its removed rows; None if they expired or were purged
    latest   the latest time of these, in microseconds since 1970; None without one or without a digest
    """

    source: str
    batch: int
    rows: int
    digest: int | None
    unloaded: bool
    latest: int | None = None


@dataclass(frozen=True, slots=True)
class LeftRows:
    """The rows of some batches that had left.

    removed   the fingerprint of those that were unloaded or deleted
    expired   how many expired
    purged    how many were purged: nothing else is known of them
    latest    the latest time of `removed`, in microseconds since 1970; NO_TICK without one
    """

    removed: Fingerprint
    expired: int
    purged: int = 0
    latest: int = NO_TICK

    @property
    def rows(self) -> int:
        """How many there are."""
        return self.removed.rows + self.expired + self.purged


@dataclass(frozen=True, slots=True, eq=False)
class RemovedFile:
    """What the file of a removal has; `rows` are the removed rows with their step, None if not kept."""

    files: Sequence[ReplacedFile]
    batches: Sequence[RemovedBatch]
    rows: pa.Table | None = None


def write_removed(store: Store, number: int, content: RemovedFile, path: str | None = None) -> str:
    """Writes the file and adds it to the table, which exists; returns its path in the table.

    `path` is the earlier path of the same file, if the file was deleted before its record was there.
    """
    path = path or f"{number}-{data_files.unique_name()}.parquet"
    parts = {
        _FILES: [_files_table(content.files)],
        _BATCHES: [_batches_table(content.batches)],
        _ROWS: [] if content.rows is None else list(_pieces(content.rows)),
    }
    groups = {
        name: pa.Table.from_pylist(
            [{"part": name, "content": _as_stream(table)} for table in tables], schema=SCHEMA
        )
        for name, tables in parts.items()
        if tables
    }
    add_files(
        store, REMOVED, [data_files.write_file(store, REMOVED, groups, path, encoding=data_files.FEW_ROWS)]
    )
    return path


def read_replaced(store: Store, path: str) -> list[ReplacedFile]:
    """The files of `events` that the removal with this file replaces. DamagedWarehouse for a damaged file."""
    return [
        ReplacedFile(
            row["old"],
            None if row["new"] is None else NewFile(row["new"], row["size"], row["rows"], row["stats"]),
        )
        for table in _read(store, path, _FILES)
        for row in table.to_pylist()
    ]


def read_batches(store: Store, path: str) -> list[RemovedBatch]:
    """The batches that lose rows by the removal with this file, or are unloaded."""
    return [RemovedBatch(**row) for table in _read(store, path, _BATCHES) for row in table.to_pylist()]


def left_rows(store: Store, events: DeltaTable, batches: BatchRange) -> LeftRows:
    """The rows of some batches that had left at this version of `events`."""
    removed, expired, purged, latest = Fingerprint(), 0, 0, NO_TICK
    for removal in removed_at(store, events).removals:
        if any(part.batches.overlaps(batches) for part in removal.parts):
            for one in read_batches(store, removal.file):
                if not batches.holds(one.source, one.batch):
                    continue
                latest = max(latest, NO_TICK if one.latest is None else one.latest)
                if one.digest is not None:
                    removed += Fingerprint(one.rows, one.digest)
                elif removal.kind == "expire":
                    expired += one.rows
                else:
                    purged += one.rows
    return LeftRows(removed, expired, purged, latest)


def read_rows(store: Store, path: str) -> pa.Table:
    """The removed rows: all columns of `events`, then OF_STEP. DamagedWarehouse for a file without rows."""
    pieces = _read(store, path, _ROWS)
    if not pieces:
        raise DamagedWarehouse(f"{REMOVED}/{path} has no rows")
    return pa.concat_tables(pieces)


def has_rows(store: Store, path: str) -> bool:
    """Whether the file has the removed rows."""
    with _opened(store, path) as file:
        return _ROWS in file.names


def _files_table(files: Iterable[ReplacedFile]) -> pa.Table:
    rows = [
        {"old": one.old}
        if one.new is None
        else {
            "old": one.old,
            "new": one.new.path,
            "size": one.new.size,
            "rows": one.new.rows,
            "stats": one.new.stats,
        }
        for one in files
    ]
    return pa.Table.from_pylist(rows, schema=_FILES_SCHEMA)


def _batches_table(batches: Iterable[RemovedBatch]) -> pa.Table:
    rows = [{name: getattr(one, name) for name in _BATCHES_SCHEMA.names} for one in batches]
    return pa.Table.from_pylist(rows, schema=_BATCHES_SCHEMA)


def _pieces(rows: pa.Table) -> Iterator[pa.Table]:
    """The rows in pieces, one at least: it has the columns."""
    for start in range(0, max(1, rows.num_rows), _PIECE_ROWS):
        yield rows.slice(start, _PIECE_ROWS)


def _as_stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _opened(store: Store, path: str) -> AbstractContextManager[SealedFile]:
    name = f"{REMOVED}/{path}"
    return open_sealed(
        store.filesystem(), name, checksums=True, display_name=f"{name} of the warehouse {store.uri}"
    )


def _read(store: Store, path: str, part: str) -> list[pa.Table]:
    with _opened(store, path) as file:
        contents = file.read(part, columns=["content"]).column("content")
        return [pa.ipc.open_stream(content.as_buffer()).read_all() for content in contents]
