"""Input rows without Spark: pyarrow tables and readers, or local Parquet files, in bounded batches.

A batch has at most `batch_rows` rows (see `Tuning`), and fewer where rows are wide, so memory does not grow
with the input.

The files of a folder are read in the order of their names. Names that begin with '_' or '.' are skipped, as
in Spark. Layouts that Spark would interpret in its own way (nested folders, columns that differ between
files) raise InputError.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from tidemark.warehouse.columns.schema import column_types, delta_fields
from tidemark.warehouse.errors import InputError
from tidemark.warehouse.os_errors import as_system_refused
from tidemark.warehouse.sizes import DEFAULT, Tuning

_URL_MARK = "://"
_MAX_DETAIL_CHARS = 300  # of the decoder's message, in an error text


@dataclass(frozen=True, slots=True)
class ArrowRows:
    """Rows of a schema. Each call of `read` starts a new pass and yields bounded batches."""

    schema: pa.Schema
    read: Callable[[], Iterator[pa.RecordBatch]]


# The kinds of rows that a caller may pass without a Spark session: see `arrow_rows`.
LocalRows: TypeAlias = "pa.Table | pa.RecordBatch | pa.RecordBatchReader | str | os.PathLike[str] | ArrowRows"


def arrow_rows(given: Any, tuning: Tuning = DEFAULT) -> ArrowRows:
    """The caller's rows as `ArrowRows`.

    `given` is a pyarrow Table, RecordBatch or RecordBatchReader, or the path of a Parquet file or of a folder
    of Parquet files. InputError for other types. A RecordBatchReader allows one pass; the second raises
    InputError.
    """
    if isinstance(given, ArrowRows):
        return given
    if isinstance(given, pa.RecordBatch):
        given = pa.Table.from_batches([given])
    if isinstance(given, pa.Table):
        table = given
        return ArrowRows(table.schema, lambda: iter(table.to_batches(max_chunksize=tuning.batch_rows)))
    if isinstance(given, pa.RecordBatchReader):
        return ArrowRows(given.schema, _single_pass(given, tuning.batch_rows))
    if isinstance(given, str | os.PathLike):
        return parquet_rows(input_files(given), tuning)
    raise InputError(
        "without a Spark session, rows must be a pyarrow Table, RecordBatch or RecordBatchReader, or the "
        f"path of a Parquet file or folder; got {type(given).__module__}.{type(given).__name__}. To load a "
        "Spark DataFrame, pass its session: load(spark, ...)."
    )


def parquet_rows(paths: list[Path], tuning: Tuning = DEFAULT) -> ArrowRows:
    """The rows of Parquet files, in the order of `paths` (not empty); InputError if columns differ."""
    schemas = []
    for path in paths:
        with report_unreadable_input(path), _open_parquet(path) as file:
            schemas.append(file.schema_arrow)
    first_types = column_types(delta_fields(schemas[0]))
    for path, schema in zip(paths, schemas, strict=True):
        types = column_types(delta_fields(schema))
        if types != first_types:
            differences = sorted(
                f"{name} {kind}" for name, kind in set(first_types.items()) ^ set(types.items())
            )
            raise InputError(
                f"the files {paths[0].name} and {path.name} of one input have different columns "
                f"({', '.join(differences) or 'their order'}). Write them with the same columns, or load "
                "each file as its own batch."
            )

    def read() -> Iterator[pa.RecordBatch]:
        for path in paths:
            with report_unreadable_input(path), _open_parquet(path) as file:
                yield from file.iter_batches(_rows_per_batch(file.metadata, tuning))

    return ArrowRows(schemas[0], read)


def input_files(given: str | os.PathLike[str]) -> list[Path]:
    """The files of an input: the file itself, or the files of a folder, sorted by name.

    InputError for a path that does not exist or is remote, for a Delta table, and for a folder that is empty
    or contains folders.
    """
    text = os.fspath(given)
    local = text.removeprefix("file://")
    path = Path(local)
    if _URL_MARK in local:
        raise InputError(f"{text} is not on this machine: without Spark an input is a local file or folder.")
    if not path.exists():
        raise InputError(f"no such input: {text}.")
    if not path.is_dir():
        return [path]
    with report_unreadable_input(path):
        entries = sorted(entry for entry in path.iterdir() if not entry.name.startswith(("_", ".")))
    folder = next((entry for entry in entries if entry.is_dir()), None)
    if (path / "_delta_log").exists():
        raise InputError(f"{text} is a Delta table, which only Spark can read: load it with a Spark session.")
    if folder is not None:
        raise InputError(
            f"the input {text} contains the folder {folder.name}: without Spark an input is one folder "
            "of files."
        )
    if not entries:
        raise InputError(f"the input {text} contains no files.")
    return entries


@contextmanager
def report_unreadable_input(path: Path) -> Iterator[None]:
    """Raises an error that names the input file, where reading it fails inside.

    SystemRefused if the operating system refused, InputError otherwise.
    """
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        detail = " ".join(str(error).split())[:_MAX_DETAIL_CHARS]
        raise as_system_refused(f"reading {path}", error) or InputError(
            f"cannot read the input {path}: {detail.rstrip('.')}. Nothing was changed. "
            "Repair or replace the file."
        ) from error


def _open_parquet(path: Path) -> pq.ParquetFile:
    # INT96 timestamps cover the years of other timestamps only in microseconds.
    return pq.ParquetFile(path, coerce_int96_timestamp_unit="us")


def _rows_per_batch(footer: pq.FileMetaData, tuning: Tuning) -> int:
    """The batch size in rows: `batch_rows`, or fewer if the widest row group would exceed `batch_bytes`."""
    groups = [footer.row_group(i) for i in range(footer.num_row_groups)]
    widest_row = max((group.total_byte_size // max(1, group.num_rows) for group in groups), default=0)
    return max(1, min(tuning.batch_rows, tuning.batch_bytes // max(1, widest_row)))


def _single_pass(reader: pa.RecordBatchReader, batch_rows: int) -> Callable[[], Iterator[pa.RecordBatch]]:
    """A `read` function over the reader; its second call raises InputError."""
    unread = [reader]

    def read() -> Iterator[pa.RecordBatch]:
        if not unread:
            raise InputError(
                "the rows of a RecordBatchReader are needed a second time because another writer committed "
                "meanwhile, and a reader can be read once. This attempt changed nothing. Run it again with a "
                "new reader, or pass a Table or a path."
            )
        for batch in unread.pop():
            yield from (batch.slice(start, batch_rows) for start in range(0, batch.num_rows, batch_rows))

    return read
