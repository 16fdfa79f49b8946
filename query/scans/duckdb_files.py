"""The files of `events` that DuckDB reads by itself: local ones that are as tidemark wrote them.

Each column is first compared with its digests, once in a process (reading/checked_files.py). These files and
columns DuckDB does not read; they come through warehouse/events/reader.py:

* files of an object store, and those that another tool rewrote: they have no digests, and statistics of
  floats in them may leave out NaN, by which DuckDB would skip rows;
* columns that DuckDB cannot hold as they are: text that is not UTF-8, times outside the years 1 to 9999,
  which may be its infinities, and columns of a type that is not the one of the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tidemark.query.reading.checked_files import checked_file, duckdb_reads, is_utf8
from tidemark.warehouse.columns.arrow_types import plain_type
from tidemark.warehouse.columns.column_types import ColumnType, column_type
from tidemark.warehouse.columns.schema import arrow_fields
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import EVENTS
from tidemark.warehouse.integrity.sealed_files import ROWS, SealedFile, open_sealed
from tidemark.warehouse.os_errors import report_unreadable_file


@dataclass(frozen=True)
class ScannedColumns:
    """Columns of the table `events`, of which DuckDB reads some by itself.

    types: Delta's type of each, none of them nested, by the names of the columns.
    """

    store: Store
    types: Mapping[str, str]

    @cached_property
    def _stored(self) -> Mapping[str, str]:
        """The types by stored names."""
        return {self.store.column_names.stored(name): kind for name, kind in self.types.items()}

    @cached_property
    def _arrow(self) -> Mapping[str, pa.DataType]:
        return {field.name: field.type for field in arrow_fields(self._stored)}

    def path_of(self, file: str, names: Sequence[str]) -> tuple[str, int] | None:
        """The path by which DuckDB reads these columns of a file, and their bytes; None if it must not.

        file: its path, relative to the table.

        Reads the columns that this process has not compared yet. DamagedWarehouse if the file is missing, or
        not what was written.
        """
        folder, names = self.store.files.folder, self.store.column_names.stored_of(names)
        if folder is None:
            return None
        path = self.store.table(f"{EVENTS}/{file}")

        with report_unreadable_file(path):
            known = checked_file(path)
            if missing := known.missing(names):
                fits = self._checked(file, missing)
                read = [name for name in missing if fits[name] is not None]
                if read and not duckdb_reads(folder, path, read):
                    fits |= {name: None for name in read if not duckdb_reads(folder, path, [name])}
                known.keep(fits)
        sizes = [known.facts[name] for name in names]
        return None if None in sizes else (path, sum(sizes))

    def _checked(self, file: str, names: Sequence[str]) -> dict[str, int | None]:
        """The bytes of each column that DuckDB reads as it is, else None; all are compared with digests."""
        kinds = {name: column_type(self._stored[name]) for name in names}
        texts = [name for name, kind in kinds.items() if kind.is_text]
        with open_sealed(self.store.filesystem(), f"{EVENTS}/{file}", texts=texts) as opened:
            if not opened.is_sealed or set(opened.names) - {ROWS}:
                return dict.fromkeys(names)
            schema = opened.metadata.schema.to_arrow_schema()
            there = [name for name in names if name in schema.names]
            fits = {
                name: name in there
                and _is_of_type(schema.field(name).type, self._arrow[name])
                and _has_plain_statistics(opened.metadata, name, kinds[name])
                for name in names
            }
            for group in range(opened.metadata.num_row_groups):
                self._compare(opened, group, there, fits)
            sizes = _sizes(opened.metadata)
        return {name: sizes[name] if fits[name] else None for name in names}

    def _compare(self, opened: SealedFile, group: int, names: Sequence[str], fits: dict[str, bool]) -> None:
        rows = opened.read_group(group, names)
        for name in names:
            if fits[name] and self._arrow[name] == pa.string():
                texts = rows.column(name).chunks
                if pa.types.is_dictionary(rows.column(name).type):
                    texts = [text.dictionary for text in texts]
                fits[name] = all(map(is_utf8, texts))


def _sizes(footer: pq.FileMetaData) -> dict[str, int]:
    """The bytes of each column."""
    groups = [footer.row_group(i) for i in range(footer.num_row_groups)]
    return {
        footer.schema.column(i).path: sum(group.column(i).total_compressed_size for group in groups)
        for i in range(footer.num_columns)
    }


def _is_of_type(found: pa.DataType, wanted: pa.DataType) -> bool:
    return found == wanted or (not pa.types.is_timestamp(found) and plain_type(found) == wanted)


def _has_plain_statistics(footer: pq.FileMetaData, name: str, kind: ColumnType) -> bool:
    """Whether floats have no statistics, and times are known to lie within their limits."""
    if not kind.is_double and kind.limits is None:
        return True
    place = next(i for i in range(footer.num_columns) if footer.schema.column(i).path == name)
    for group in range(footer.num_row_groups):
        statistics: Any = footer.row_group(group).column(place).statistics
        has_ends = statistics is not None and statistics.has_min_max
        if kind.is_double and has_ends:
            return False
        if kind.limits is None:
            continue
        if not has_ends and (statistics is None or statistics.num_values):
            return False
        least, greatest = kind.limits.least, kind.limits.greatest
        if has_ends and not least <= statistics.min_raw <= statistics.max_raw <= greatest:
            return False
    return True
