"""Sealed files: Parquet files with digests of their contents in the footer, so that a read detects damage.

The footer has a seal under one metadata key: the name and row count of each row group, and the digest of each
of its columns as decoded (digests.py). A read compares the decoded columns with it. So the comparison covers
everything between the bytes on disk and the decoded column: pages, headers, encodings, the schema.

Row groups are found by name, and readers skip names that they do not know. So later versions may add row
groups to a file. The footer may have further texts, each with a checksum. Files that another tool rewrote
have no seal, and are read without comparison. Nor have files of runs, which are opened here, too: their
digests are in the marks.

Pages have checksums too, which any Parquet reader can check. Checking takes as long as decoding, so the
option `checksums` turns it on only where a file is read once: in loads, merges and verify.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash
from pyarrow import fs

from tidemark.warehouse.columns.arrow_types import with_plain_types
from tidemark.warehouse.columns.coded_texts import coded_texts
from tidemark.warehouse.integrity.digests import column_digest, text_digest
from tidemark.warehouse.integrity.parquet_writer import ParquetWriter
from tidemark.warehouse.integrity.read_ahead import Range, ReadAhead
from tidemark.warehouse.os_errors import report_unreadable_file

SEAL = b"tidemark.seal"
ROWS = "rows"  # the row groups' name in files with one kind of row group
_FIELD_SEPARATOR = "\0"  # between the name of a struct and of its field; column names do not contain it
_LEAST_TEXT_BYTES = 4  # bytes that a text takes in Parquet outside of a dictionary beside its own: its length
_CHECKSUM_BYTES = 16  # the seal, and each text, is a checksum in hexadecimal, then the text


@dataclass(frozen=True, slots=True)
class _SealedGroup:
    """A row group's entry in the seal. `columns` maps each path (see `_leaves`) to its digest."""

    name: str
    rows: int
    columns: Mapping[str, str]


class SealedWriter:
    """Writes row groups, and the seal on close. `parquet_options` are options of pyarrow's ParquetWriter."""

    def __init__(
        self, filesystem: fs.FileSystem, path: str, schema: pa.Schema, **parquet_options: Any
    ) -> None:
        self.size = 0  # of the file in bytes, once it is closed
        self._file = filesystem.open_output_stream(path)
        # Metadata of the file that the schema came from must not get into this footer.
        self._writer = ParquetWriter(
            self._file, schema.remove_metadata(), write_page_checksum=True, **parquet_options
        )
        self._groups: list[dict[str, Any]] = []
        self._texts: dict[bytes, bytes] = {}

    def add_text(self, key: str, text: str) -> None:
        """Adds a text to the footer; `SealedFile.text` has it."""
        self._texts[key.encode()] = _checked(text.encode())

    def write(self, rows: pa.Table, name: str = ROWS) -> None:
        """Writes the rows as one row group."""
        self._writer.write_table(rows.replace_schema_metadata(), row_group_size=max(1, rows.num_rows))
        self._groups.append({"name": name, "rows": rows.num_rows, "columns": dict(_digests(rows))})

    def close(self) -> None:
        """Writes the footer."""
        text = json.dumps(self._groups).encode()
        with self._file, self._writer:
            self._writer.add_key_value_metadata({SEAL: _checked(text), **self._texts})
            self._writer.close()
            self.size = self._file.tell()

    def __enter__(self) -> SealedWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self._writer.drop()
            self._file.close()


class SealedFile:
    """An open file. Reads raise ValueError where the rows differ from the rows that were written.

    `remote` reads the file's bytes if it is in an object store. `coded` are columns that are read as
    dictionaries.
    """

    def __init__(
        self, file: pq.ParquetFile, remote: ReadAhead | None = None, coded: Sequence[str] = ()
    ) -> None:
        self.metadata, self.coded = file.metadata, tuple(coded)
        self._file, self._remote = file, remote
        self._seal = _read_seal(file.metadata)
        self.is_sealed = self._seal is not None
        self.names = tuple(group.name for group in self._seal or ())

    def read(self, *names: str, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows of the row groups with these names, in file order; of all row groups without names."""
        numbers = range(self.metadata.num_row_groups)
        tables = [self.read_group(i, columns) for i in numbers if not names or self._name(i) in names]
        # Without row groups the result still has the columns.
        return pa.concat_tables(tables) if tables else self._file.read_row_groups([], columns)

    def text(self, key: str) -> str | None:
        """A text of the footer, None if it has none of this key; ValueError if it is damaged."""
        stored = (self.metadata.metadata or {}).get(key.encode())
        return None if stored is None else _unchecked(stored, f"its text {key}").decode()

    def digests(self, without: str) -> tuple[str, ...]:
        """The digests of the columns of each row group as they were written, without this one column's.

        Empty for a file without a seal. Nothing but the footer is read.
        """
        return tuple(
            f"{group.rows} {path} {digest}"
            for group in self._seal or ()
            for path, digest in sorted(group.columns.items())
            if path != without
        )

    def expect(self, first: int, stop: int) -> None:
        """Says that all columns of the row groups from first to stop (exclusive) will be read, in order.

        The columns of an object are then read in few requests.
        """
        if self._remote is not None and first < stop:
            ends = [_chunks(self.metadata.row_group(group), None) for group in (first, stop - 1)]
            self._remote.expect(min(start for start, _ in ends[0]), max(end for _, end in ends[1]))

    def read_group(
        self, group: int, columns: Sequence[str] | None = None, *, in_threads: bool = False
    ) -> pa.Table:
        """The rows of the row group with this number, counted from 0.

        in_threads   whether the columns of a file on a disk are decoded at the same time
        """
        if self._remote is not None and not self._remote.is_whole:
            self._remote.read_at_once(_joined(_chunks(self.metadata.row_group(group), columns)))
        rows = self._file.read_row_group(
            group, columns=columns, use_threads=in_threads and self._remote is None
        )
        if self._seal is not None:
            _check_digests(rows, self._seal[group], group, columns)
        return rows.replace_schema_metadata()

    def _name(self, group: int) -> str:
        return self.names[group] if group < len(self.names) else ROWS


@contextmanager
def open_sealed(
    filesystem: fs.FileSystem,
    path: str,
    *,
    texts: Sequence[str] = (),
    repeated: bool = False,
    checksums: bool = False,
    display_name: str | None = None,
) -> Iterator[SealedFile]:
    """Opens the file at the path; errors while it is read inside become DamagedWarehouse with its name.

    The columns `texts`, as far as the file has them, are read as dictionaries; with `repeated` also all other
    text columns that the file stores so. INT96 timestamps, Spark's default, are read as microseconds:
    in nanoseconds they cover only the years 1677 to 2262. `display_name` replaces the path in errors.
    """
    with report_unreadable_file(display_name or path), ExitStack() as opened:
        remote = None
        if isinstance(filesystem, fs.PyFileSystem):  # it is far
            remote = opened.enter_context(ReadAhead(filesystem, path))
        options = {
            "source": path if remote is None else remote,
            "filesystem": filesystem if remote is None else None,
            "coerce_int96_timestamp_unit": "us",
            "page_checksum_verification": checksums,
        }
        file = opened.enter_context(pq.ParquetFile(**options))
        there = set(file.schema_arrow.names) if texts else ()
        coded = [name for name in texts if name in there]
        coded += [name for name in (_repeated_texts(file.metadata) if repeated else ()) if name not in coded]
        if coded:
            file = pq.ParquetFile(**options, metadata=file.metadata, read_dictionary=coded)
        yield SealedFile(opened.enter_context(file), remote, coded)


def _repeated_texts(footer: pq.FileMetaData) -> list[str]:
    """The columns of text or bytes most of whose values are in dictionaries, as their size shows."""
    groups = [footer.row_group(group) for group in range(footer.num_row_groups)]
    names = []
    for place in range(footer.num_columns):
        column = footer.schema.column(place)
        is_text = column.physical_type == "BYTE_ARRAY" and column.logical_type.type in {"STRING", "NONE"}
        if is_text and not column.max_repetition_level and "." not in column.path:
            chunks = [group.column(place) for group in groups]
            size = sum(chunk.total_uncompressed_size for chunk in chunks)
            if size < _LEAST_TEXT_BYTES * sum(chunk.num_values for chunk in chunks):
                names.append(column.path)
    return names


def _chunks(group: pq.RowGroupMetaData, columns: Sequence[str] | None) -> list[Range]:
    """The bytes of these columns of a row group, one range for each of their leaves; None: of all columns."""
    chunks = [group.column(i) for i in range(group.num_columns)]
    if columns is not None:
        chunks = [chunk for chunk in chunks if chunk.path_in_schema.split(".")[0] in columns]
    return [bytes_of_chunk(chunk) for chunk in chunks]


def bytes_of_chunk(chunk: pq.ColumnChunkMetaData) -> Range:
    """The bytes of a column chunk of a row group."""
    # Without a dictionary page its offset is None, or 0 in files of some writers.
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    return start, start + chunk.total_compressed_size


def _joined(ranges: Sequence[Range]) -> list[Range]:
    joined: list[Range] = []
    for start, stop in sorted(ranges):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], stop)
        else:
            joined.append((start, stop))
    return joined


def _read_seal(footer: pq.FileMetaData) -> list[_SealedGroup] | None:
    """The seal of a file, None if it has none. ValueError if it is damaged or does not match the file."""
    seal = (footer.metadata or {}).get(SEAL)
    if seal is None:
        return None
    groups = [_SealedGroup(**entry) for entry in json.loads(_unchecked(seal, "its seal"))]
    sealed_rows = [group.rows for group in groups]
    rows = [footer.row_group(i).num_rows for i in range(footer.num_row_groups)]
    if rows != sealed_rows:
        raise ValueError("its row groups do not match its seal")
    return groups


def _checked(text: bytes) -> bytes:
    return xxhash.xxh3_64_hexdigest(text).encode() + text


def _unchecked(stored: bytes, name: str) -> bytes:
    checksum, text = stored[:_CHECKSUM_BYTES], stored[_CHECKSUM_BYTES:]
    if xxhash.xxh3_64_hexdigest(text).encode() != checksum:
        raise ValueError(f"{name} is not what was written")
    return text


def _check_digests(rows: pa.Table, group: _SealedGroup, number: int, columns: Sequence[str] | None) -> None:
    """ValueError if one of `columns` differs, or if one that was written is not there."""
    written = {path.split(_FIELD_SEPARATOR)[0] for path in group.columns}
    for name in written if columns is None else written.intersection(columns):
        if name not in rows.column_names:
            raise ValueError(f"the column {name!r} of row group {number} is not there any more")
    for path, digest in _digests(rows):
        if group.columns.get(path) != digest:
            name = path.replace(_FIELD_SEPARATOR, ".").rstrip(".")
            raise ValueError(f"the column {name!r} of row group {number} is not what was written")


def _digests(rows: pa.Table) -> Iterator[tuple[str, str]]:
    """The digest of each column by path, the same for a text and for a dictionary of texts."""
    coded = coded_texts(rows.schema)
    for path, column in _leaves(with_plain_types(rows, coded)):
        yield path, f"{text_digest(column) if path in coded else column_digest(column):016x}"


def _leaves(rows: pa.Table) -> Iterator[tuple[str, pa.ChunkedArray]]:
    """The columns by path. A struct yields its NULL mask and then its fields, as fields may be read alone.

    With / for the separator, a long `n` and a struct `s` of `a` and `b` yield the paths n, s/, s/a and s/b.
    """
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        yield from _column_leaves(name, column)


def _column_leaves(path: str, column: pa.ChunkedArray) -> Iterator[tuple[str, pa.ChunkedArray]]:
    if not pa.types.is_struct(column.type):
        yield path, column
        return
    yield path + _FIELD_SEPARATOR, column.is_null()
    for field, field_column in zip(column.type.fields, column.flatten(), strict=True):
        yield from _column_leaves(path + _FIELD_SEPARATOR + field.name, field_column)
