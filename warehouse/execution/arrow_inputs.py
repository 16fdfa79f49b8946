"""Rows that are given without Spark: Arrow's own, or Parquet files on this machine, in bounded batches.

A batch has at most `batch_rows` rows (see `Tuning`), and fewer where rows are wide, so memory does not grow
with the input.
The files of a folder are read in the order of their names; names that begin with '_' or '.' are passed by, as
Spark does. What Spark would read in a way of its own (folders below, columns that differ from file to file)
is refused.
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

_REMOTE = "://"


@dataclass(frozen=True, slots=True)
class ArrowRows:
    """Rows of a schema; `read` gives them in bounded batches, anew each time that it is called."""

    schema: pa.Schema
    read: Callable[[], Iterator[pa.RecordBatch]]


# What a caller may give for rows where there is no Spark session: see `arrow_rows`.
LocalRows: TypeAlias = "pa.Table | pa.RecordBatch | pa.RecordBatchReader | str | os.PathLike[str] | ArrowRows"


def arrow_rows(given: Any, tuning: Tuning = DEFAULT) -> ArrowRows:
    """The rows that a caller gave.

    A pyarrow Table, RecordBatch or RecordBatchReader, or the path of a Parquet file or of a folder of
    them. A reader is read once; where its rows are needed again that is an InputError.
    """
    if isinstance(given, ArrowRows):
        return given
    if isinstance(given, pa.RecordBatch):
        given = pa.Table.from_batches([given])
    if isinstance(given, pa.Table):
        table = given
        return ArrowRows(table.schema, lambda: iter(table.to_batches(max_chunksize=tuning.batch_rows)))
    if isinstance(given, pa.RecordBatchReader):
        return ArrowRows(given.schema, _once(given, tuning.batch_rows))
    if isinstance(given, str | os.PathLike):
        return parquet_rows(input_files(given), tuning)
    raise InputError(
        "without a Spark session rows are a pyarrow Table, RecordBatch or RecordBatchReader, or the path of "
        f"a Parquet file or folder; got {type(given).__module__}.{type(given).__name__}. A DataFrame of "
        "Spark goes with its session: load(spark, ...)."
    )


def parquet_rows(paths: list[Path], tuning: Tuning = DEFAULT) -> ArrowRows:
    """The rows of Parquet files, one after the other; InputError where their columns differ."""
    schemas = []
    for path in paths:
        with report_unreadable_input(path), _opened(path) as file:
            schemas.append(file.schema_arrow)
    first = column_types(delta_fields(schemas[0]))
    for path, schema in zip(paths, schemas, strict=True):
        other = column_types(delta_fields(schema))
        if other != first:
            told = sorted(f"{name} {kind}" for name, kind in set(first.items()) ^ set(other.items()))
            raise InputError(
                f"the files {paths[0].name} and {path.name} of one input have other columns "
                f"({', '.join(told) or 'their order'}). Write them alike, or load each as a batch."
            )

    def read() -> Iterator[pa.RecordBatch]:
        for path in paths:
            with report_unreadable_input(path), _opened(path) as file:
                yield from file.iter_batches(_batch_rows(file.metadata, tuning))

    return ArrowRows(schemas[0], read)


def input_files(given: str | os.PathLike[str]) -> list[Path]:
    """The files of an input, by name: the file itself, or those of a folder."""
    text = os.fspath(given)
    local = text.removeprefix("file://")
    path = Path(local)
    if _REMOTE in local:
        raise InputError(f"{text} is not on this machine: without Spark an input is a local file or folder.")
    if not path.exists():
        raise InputError(f"no such input: {text}.")
    if not path.is_dir():
        return [path]
    with report_unreadable_input(path):
        found = sorted(one for one in path.iterdir() if not one.name.startswith(("_", ".")))
    folder = next((one for one in found if one.is_dir()), None)
    if (path / "_delta_log").exists():
        raise InputError(f"{text} is a Delta table, which Spark reads: load it with a Spark session.")
    if folder is not None:
        raise InputError(
            f"the input {text} holds the folder {folder.name}: without Spark an input is one folder of files."
        )
    if not found:
        raise InputError(f"the input {text} holds no files.")
    return found


@contextmanager
def report_unreadable_input(path: Path) -> Iterator[None]:
    """Says which file of the input it was, where one cannot be read."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        told = " ".join(str(error).split())[:300]
        raise as_system_refused(f"reading {path}", error) or InputError(
            f"cannot read the input {path}: {told.rstrip('.')}. Nothing was changed. Mend the file."
        ) from error


def _opened(path: Path) -> pq.ParquetFile:
    # 96-bit times reach as far as others only in microseconds.
    return pq.ParquetFile(path, coerce_int96_timestamp_unit="us")


def _batch_rows(footer: pq.FileMetaData, tuning: Tuning) -> int:
    """How many rows of the file are read at a time."""
    groups = [footer.row_group(g) for g in range(footer.num_row_groups)]
    widest = max((g.total_byte_size // max(1, g.num_rows) for g in groups), default=0)
    return max(1, min(tuning.batch_rows, tuning.batch_bytes // max(1, widest)))


def _once(reader: pa.RecordBatchReader, rows: int) -> Callable[[], Iterator[pa.RecordBatch]]:
    unread = [reader]

    def read() -> Iterator[pa.RecordBatch]:
        if not unread:
            raise InputError(
                "the rows of a RecordBatchReader are needed again, and it can be read once: somebody else "
                "committed meanwhile. Nothing was changed by this try. Run it again with a new reader, or "
                "give a Table or a path."
            )
        for batch in unread.pop():
            yield from (batch.slice(at, rows) for at in range(0, batch.num_rows, rows))

    return read
