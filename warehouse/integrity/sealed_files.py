"""Sealed files: Parquet files that know what they hold, so that damage shows when they are read.

The footer of a file has, under one key, its seal: the name and the rows of each row group, and the digest
of each of its columns as they are decoded (digests.py). A read compares what it decoded with it. Whatever
lies between the disk's bytes and the decoded column is covered: pages, headers, encodings, the schema.

Row groups are found by name, and one whose name a reader does not know is not read: so later versions may
add to a file what this one has not. Files of earlier versions, and those that another tool rewrote, have no
seal: they are read as they are, their row groups by their order.

Pages have checksums as well, for every reader of Parquet. Checking them takes as long as decoding, so
`checksums` asks for it where a file is read once: in loads, merges and verify.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash
from pyarrow import fs

from tidemark.warehouse.columns.arrow_types import with_plain_types
from tidemark.warehouse.integrity.digests import column_digest
from tidemark.warehouse.os_errors import report_unreadable_file

SEAL = b"tidemark.seal"
ROWS = "rows"  # the name of row groups that are all alike
_BELOW = "\0"  # between the name of a struct and that of its field; no column has it in its name


@dataclass(frozen=True, slots=True)
class _Group:
    """What the seal says of a row group: `columns` has the digest of each column and field of a struct."""

    name: str
    rows: int
    columns: Mapping[str, str]


class SealedWriter:
    """Writes row groups, and the seal when it is closed. `how` are options of Parquet's writer."""

    def __init__(self, filesystem: fs.FileSystem, path: str, schema: pa.Schema, **how: Any) -> None:
        # What another file's footer held beside its columns is no part of this one's.
        own = schema.remove_metadata()
        self._writer = pq.ParquetWriter(path, own, filesystem=filesystem, write_page_checksum=True, **how)
        self._groups: list[dict[str, Any]] = []

    def write(self, rows: pa.Table, name: str = ROWS) -> None:
        """Writes the rows as one row group."""
        self._writer.write_table(rows.replace_schema_metadata(), row_group_size=max(1, rows.num_rows))
        columns = {path: f"{column_digest(column):016x}" for path, column in _leaves(with_plain_types(rows))}
        self._groups.append({"name": name, "rows": rows.num_rows, "columns": columns})

    def close(self) -> None:
        """Writes the footer."""
        text = json.dumps(self._groups).encode()
        self._writer.add_key_value_metadata({SEAL: xxhash.xxh3_64_hexdigest(text).encode() + text})
        self._writer.close()

    def __enter__(self) -> SealedWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class SealedFile:
    """An open file; ValueError where what is read of it is not what was written.

    `names` are those of the row groups, by their order, of a file without a seal.
    """

    def __init__(self, file: pq.ParquetFile, names: Sequence[str] = ()) -> None:
        self.metadata = file.metadata
        self._file = file
        self._seal = _seal(file.metadata)
        self.is_sealed = self._seal is not None
        self.names = tuple(names if self._seal is None else (group.name for group in self._seal))

    def read(self, *names: str, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows of the row groups of these names, in order; of all where none is given."""
        groups = range(self.metadata.num_row_groups)
        wanted = [g for g in groups if not names or self._name(g) in names]
        found = [self.read_group(g, columns) for g in wanted]
        # Without row groups it still has the columns.
        return pa.concat_tables(found) if found else self._file.read_row_groups([], _list(columns))

    def read_group(self, group: int, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows of one row group."""
        rows = self._file.read_row_group(group, columns=_list(columns), use_threads=False)
        if self._seal is not None:
            _check(rows, self._seal[group], group)
        return rows.replace_schema_metadata()

    def _name(self, group: int) -> str:
        return self.names[group] if group < len(self.names) else ROWS


@contextmanager
def open_sealed(
    filesystem: fs.FileSystem,
    path: str,
    *,
    texts: Sequence[str] = (),
    names: Sequence[str] = (),
    checksums: bool = False,
    told: str | None = None,
) -> Iterator[SealedFile]:
    """The file at the path; whatever cannot be read of it inside is DamagedWarehouse with its name.

    The columns `texts` come as dictionaries. 96-bit times, which Spark's default has, reach as far as others.
    `told` is the file's name in errors.
    """
    with (
        report_unreadable_file(told or path),
        pq.ParquetFile(
            path,
            filesystem=filesystem,
            read_dictionary=list(texts),
            coerce_int96_timestamp_unit="us",
            page_checksum_verification=checksums,
        ) as file,
    ):
        yield SealedFile(file, names)


def _list(columns: Sequence[str] | None) -> list[str] | None:
    return None if columns is None else list(columns)


def _seal(footer: pq.FileMetaData) -> list[_Group] | None:
    """The seal of a file; None where it has none. ValueError where it does not fit the file."""
    held = (footer.metadata or {}).get(SEAL)
    if held is None:
        return None
    told, text = held[:16], held[16:]
    if xxhash.xxh3_64_hexdigest(text).encode() != told:
        raise ValueError("its seal is not what was written")
    groups = [_Group(**one) for one in json.loads(text)]
    rows = [footer.row_group(g).num_rows for g in range(footer.num_row_groups)]
    if [group.rows for group in groups] != rows:
        raise ValueError("it has other row groups than its seal says")
    return groups


def _check(rows: pa.Table, group: _Group, number: int) -> None:
    for path, column in _leaves(with_plain_types(rows)):
        if group.columns.get(path) != f"{column_digest(column):016x}":
            name = path.replace(_BELOW, ".").rstrip(".")
            raise ValueError(f"the column {name!r} of row group {number} is not what was written")


def _leaves(rows: pa.Table) -> Iterator[tuple[str, pa.ChunkedArray]]:
    """The columns by name; of a struct which rows have it, and its fields, as they may be read alone."""
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        yield from _leaf(name, column)


def _leaf(path: str, column: pa.ChunkedArray) -> Iterator[tuple[str, pa.ChunkedArray]]:
    if not pa.types.is_struct(column.type):
        yield path, column
        return
    yield path + _BELOW, column.is_null()
    for field, part in zip(column.type.fields, column.flatten(), strict=True):
        yield from _leaf(path + _BELOW + field.name, part)
