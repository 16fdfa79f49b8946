"""Input rows without Spark: pyarrow tables and readers, or local Parquet files, in bounded batches.

A batch has at most `batch_rows` rows (see `Tuning`), and fewer where rows are wide, so memory does not grow
with the input.

`input_files.py` says which files an input names. If their columns differ, that is an InputError.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from tidemark.warehouse.columns.schema import column_types, delta_fields
from tidemark.warehouse.errors import InputError
from tidemark.warehouse.execution.input_files import input_files
from tidemark.warehouse.os_errors import as_system_refused, one_line
from tidemark.warehouse.sizes import DEFAULT, Tuning

_MAX_DETAIL_CHARS = 300  # of the decoder's message, in an error text


class ArrowRows(ABC):
    """Rows that are read in this process."""

    schema: pa.Schema

    @property
    def tokens_of(self) -> str:
        """The fingerprint of the secret that made the tokens in private columns; empty if they have none."""
        return ""

    @abstractmethod
    def read(self) -> Iterator[pa.RecordBatch]:
        """Bounded batches of the schema; each call starts a new pass."""


# The kinds of rows that a caller may pass without a Spark session: see `arrow_rows`.
LocalRows: TypeAlias = Any


def arrow_rows(given: Any, tuning: Tuning = DEFAULT) -> ArrowRows:
    """The caller's rows as `ArrowRows`.

    `given` is a pyarrow Table, RecordBatch or RecordBatchReader; an object that gives its rows as an Arrow
    stream (`__arrow_c_stream__`: a DataFrame of pandas or Polars, a relation of DuckDB); or the path of a
    Parquet file or of a folder of such files, a pattern, or a list of these. InputError for other types. A
    RecordBatchReader allows one pass; the second raises InputError.
    """
    if isinstance(given, ArrowRows):
        return given
    if isinstance(given, pa.RecordBatch):
        given = pa.Table.from_batches([given])
    if isinstance(given, pa.Table):
        return _TableRows(given.schema, given, tuning.batch_rows)
    if isinstance(given, pa.RecordBatchReader):
        return _ReaderRows(given.schema, [given], tuning.batch_rows)
    if isinstance(given, str | os.PathLike) or are_paths(given):
        return parquet_rows(input_files(given), tuning)
    if hasattr(given, "__arrow_c_stream__") and not hasattr(given, "mapInArrow"):  # Spark's may have it, too
        unread = _opened(given)
        return _StreamedRows(unread.schema, given, [unread], tuning.batch_rows)
    raise InputError(
        "without a Spark session, rows must be a pyarrow Table, RecordBatch or RecordBatchReader, a "
        "DataFrame of pandas or Polars or anything else with __arrow_c_stream__, or paths of files; got "
        f"{type(given).__module__}.{type(given).__name__}. To load a Spark DataFrame, pass its session: "
        "load(spark, ...)."
    )


def are_paths(given: Any) -> bool:
    """Whether these are several paths or patterns."""
    return (
        isinstance(given, list | tuple)
        and bool(given)
        and all(isinstance(one, str | os.PathLike) for one in given)
    )


@dataclass(frozen=True, slots=True)
class _TableRows(ArrowRows):
    schema: pa.Schema
    table: pa.Table
    batch_rows: int

    def read(self) -> Iterator[pa.RecordBatch]:
        return iter(self.table.to_batches(max_chunksize=self.batch_rows))


@dataclass(frozen=True, slots=True)
class _ReaderRows(ArrowRows):
    """The rows of a reader, `unread` until the first pass, which is the only one."""

    schema: pa.Schema
    unread: list[pa.RecordBatchReader]
    batch_rows: int

    def read(self) -> Iterator[pa.RecordBatch]:
        if not self.unread:
            raise InputError(
                "the rows of a RecordBatchReader are needed a second time, and a reader can be read once. "
                "Rows are read again if another writer committed meanwhile, and if a batch of this name was "
                "unloaded: they are compared with it first. This attempt changed nothing. Pass a Table or a "
                "path."
            )
        reader = self.unread.pop()
        yield from _bounded(reader, self.batch_rows, reader)


@dataclass(frozen=True, slots=True)
class _StreamedRows(ArrowRows):
    """The rows of an object with `__arrow_c_stream__`, which is asked for them anew in each pass.

    `unread` is the stream of the first pass, opened for its schema. `counts` has the rows of each pass.
    """

    schema: pa.Schema
    given: Any
    unread: list[pa.RecordBatchReader]
    batch_rows: int
    counts: set[int] = field(default_factory=set)

    def read(self) -> Iterator[pa.RecordBatch]:
        count, stream = 0, self.unread.pop() if self.unread else _opened(self.given)
        for batch in _bounded(stream, self.batch_rows, self.given):
            count += batch.num_rows
            yield batch
        self.counts.add(count)
        if len(self.counts) > 1:
            raise InputError(
                f"{type(self.given).__name__} gave {max(self.counts):,} rows once and {min(self.counts):,} "
                "another time. Nothing was changed. Pass a pyarrow Table."
            )


def _opened(given: Any) -> pa.RecordBatchReader:
    """The stream of the object's rows; InputError if it cannot make one: a column of mixed types, say."""
    try:
        return pa.RecordBatchReader.from_stream(given)
    except Exception as error:  # pyarrow's, or one of the library that the object is of
        raise _unreadable_rows(given, error) from error


def _bounded(reader: pa.RecordBatchReader, batch_rows: int, given: Any) -> Iterator[pa.RecordBatch]:
    """The reader's batches, cut to `batch_rows` rows; InputError where one fails, or has other columns."""
    try:
        for batch in reader:
            if batch.schema != reader.schema:  # pyarrow does not compare them
                raise InputError(
                    f"a batch has the columns {_shown(batch.schema)}, its reader {_shown(reader.schema)}. "
                    "Nothing was changed. Give both the same."
                )
            yield from (batch.slice(start, batch_rows) for start in range(0, batch.num_rows, batch_rows))
    except pa.ArrowException as error:
        raise _unreadable_rows(given, error) from error


def _shown(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)


def _unreadable_rows(given: Any, error: Exception) -> InputError:
    kind, detail = type(given), one_line(str(error))[:_MAX_DETAIL_CHARS]
    return InputError(
        f"cannot read the rows of the {kind.__module__}.{kind.__name__}: {detail.rstrip('.')}. Nothing was "
        "changed. Correct them, or pass a pyarrow Table."
    )


def parquet_rows(paths: list[Path], tuning: Tuning = DEFAULT) -> ArrowRows:
    """The rows of Parquet files, in the order of `paths` (not empty); InputError if columns differ."""
    schemas = {}
    for path in paths:
        with report_unreadable_input(path), _open_parquet(path) as file:
            schemas[str(path)] = file.schema_arrow
    check_same_columns({path: column_types(delta_fields(schema)) for path, schema in schemas.items()})
    return _ParquetRows(next(iter(schemas.values())), paths, tuning)


@dataclass(frozen=True, slots=True)
class _ParquetRows(ArrowRows):
    schema: pa.Schema
    paths: list[Path]
    tuning: Tuning

    def read(self) -> Iterator[pa.RecordBatch]:
        for path in self.paths:
            with report_unreadable_input(path), _open_parquet(path) as file:
                yield from file.iter_batches(_rows_per_batch(file.metadata, self.tuning))


def check_same_columns(types: Mapping[str, Mapping[str, str]]) -> None:
    """InputError unless all files have the same columns; `types` are their types by the path of the file."""
    first, of_first = next(iter(types.items()))
    for path, of_path in types.items():
        if of_path != of_first:
            differences = sorted(
                f"{name} {kind}" for name, kind in set(of_first.items()) ^ set(of_path.items())
            )
            raise InputError(
                f"the files {first} and {path} of one input have different columns "
                f"({', '.join(differences)}). Write them with the same columns, or load each alone."
            )


@contextmanager
def report_unreadable_input(path: Path) -> Iterator[None]:
    """SystemRefused or InputError, which names the input file, where reading it fails inside."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        detail = " ".join(str(error).split())[:_MAX_DETAIL_CHARS]
        raise as_system_refused(f"reading {path}", error) or InputError(
            f"cannot read the input {path}: {detail.rstrip('.')}. Nothing was changed. "
            "Repair or replace the file."
        ) from error


def _open_parquet(path: Path) -> pq.ParquetFile:
    # In nanoseconds, the default, INT96 timestamps cover only the years 1677 to 2262.
    return pq.ParquetFile(path, coerce_int96_timestamp_unit="us")


def _rows_per_batch(footer: pq.FileMetaData, tuning: Tuning) -> int:
    """The batch size in rows: `batch_rows`, or fewer if the widest row group would exceed `batch_bytes`."""
    groups = [footer.row_group(i) for i in range(footer.num_row_groups)]
    widest_row = max((group.total_byte_size // max(1, group.num_rows) for group in groups), default=0)
    return max(1, min(tuning.batch_rows, tuning.batch_bytes // max(1, widest_row)))
