"""Reads a batch without Spark: files of Parquet, CSV or JSON lines, on this machine or in an object store.

Parquet files have their own types. CSV and JSON are read with the types of the warehouse's columns; the first
batch of a warehouse gives them (`warehouse/text/guessed_types.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidemark.jobs.inputs.spark_inputs import Times, check_in_range
from tidemark.jobs.inputs.store_places import StorePlaces
from tidemark.warehouse.columns.ticks import DAY_US, FIRST_US, LAST_US
from tidemark.warehouse.columns.value_encoding import as_numpy, as_numpy_bools
from tidemark.warehouse.delta import tables
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import EVENTS
from tidemark.warehouse.errors import InputError
from tidemark.warehouse.execution.arrow_inputs import ArrowRows, parquet_rows
from tidemark.warehouse.execution.input_files import find_inputs, format_of
from tidemark.warehouse.ingest.private_rows import text_columns
from tidemark.warehouse.text.guessed_types import ANY_TYPES, Wanted, guess_types
from tidemark.warehouse.text.rows import text_rows

if TYPE_CHECKING:
    from tidemark.warehouse.settings.options import Options

_UTC = pa.timestamp("us", tz="UTC")


class LocalInputs:
    """Reads batches in this process.

    guessed  whether the types of all columns that were read last are guessed from text
    """

    def __init__(self, warehouse: str, storage_options: dict[str, str] | None = None) -> None:
        self._store = Store.from_uri(warehouse, storage_options)
        self._places = StorePlaces(storage_options)
        self.guessed = False

    def read(
        self,
        given: str | Sequence[str],
        kind: str | None,
        options: Options | None,
        *,
        cut: bool = False,
        wanted: Wanted = ANY_TYPES,
        evolve: bool = False,
    ) -> ArrowRows:
        """The rows of one or several paths and patterns, see `find_inputs`.

        kind: the format, None to derive it from the file names. options: the warehouse's, None if the input
        creates the warehouse. cut: whether the rows will be cut into batches. If `options` is None or `cut`
        is set, the rows are read to their end once, and InputError is raised for rows that do not parse.
        wanted: the wanted types of text, if the warehouse has no columns yet. evolve: whether columns that it
        lacks get a type in the same way.
        """
        several = [given] if isinstance(given, str) else given
        found = find_inputs(several, self._places)
        file_format = format_of(several, found, kind)
        if file_format == "delta":
            raise InputError(f"{found.paths[0]} is a Delta table, which Spark alone reads: --engine spark.")
        paths = self._places.on_this_machine(found.paths)
        if file_format == "parquet":
            rows = parquet_rows(paths)
        else:
            columns = dict(options.columns) if options else {}
            self.guessed = not columns
            types = self._types(options) if options else pa.schema([])
            if evolve or not columns:
                types = guess_types(paths, file_format, wanted, types)
            rows = text_rows(paths, file_format, types)
        if options is None or cut:
            for _ in rows.read():
                pass
        return rows

    def check(self) -> None:
        """InputError for the first record of text that is refused, in the order of the files.

        To be called where a load of the rows failed: the task that failed first may have had a later record.
        Here rows are read in order.
        """

    def _types(self, options: Options) -> pa.Schema:
        """The Arrow types of the columns of the warehouse, as text is read by them."""
        stored = text_columns(tables.open_table(self._store, EVENTS), options)
        return pa.schema([stored.field(name) for name, _ in options.columns])

    def check_times(self, rows: ArrowRows, names: Iterable[str]) -> None:
        """InputError if a time or date in these columns is outside the years 1 to 9999.

        A load refuses such rows itself. This check is for rows that create a warehouse or are cut into
        batches: it runs before anything is written.
        """
        present = set(rows.schema.names)
        temporal = [
            name
            for name in dict.fromkeys(names)
            if name in present and pa.types.is_temporal(rows.schema.field(name).type)
        ]
        counts = dict.fromkeys(temporal, 0)
        for batch in rows.read() if temporal else ():
            for name in temporal:
                micros, null = _micros(batch, name)
                counts[name] += int(np.count_nonzero(((micros < FIRST_US) | (micros > LAST_US)) & ~null))
        check_in_range(counts)

    def times(self, rows: ArrowRows, name: str) -> Times:
        """The first and last time of the rows in the column `name`, and the number of rows without a time."""
        times = Times(None, None, 0)
        for batch in rows.read():
            micros, null = _micros(batch, name)
            if (present := micros[~null]).size:
                first, last = int(present.min()), int(present.max())
                times = Times(
                    first if times.first is None else min(times.first, first),
                    last if times.last is None else max(times.last, last),
                    times.without,
                )
            times = times._replace(without=times.without + int(np.count_nonzero(null)))
        return times

    def starts(self, rows: ArrowRows, name: str, first: int, span: int) -> list[int]:
        """The starts of the spans that have rows, ascending: spans of `span` microseconds from `first` on."""
        found: set[int] = set()
        for batch in rows.read():
            micros, null = _micros(batch, name)
            found.update(np.unique((micros[~null] - first) // span).tolist())
        return [first + number * span for number in sorted(found)]

    def between(self, rows: ArrowRows, name: str, start: int, stop: int) -> ArrowRows:
        """The rows whose time is in [start, stop), in microseconds since 1970."""
        return _RowsInside(rows.schema, rows, name, (start, stop))

    def without(self, rows: ArrowRows, name: str) -> ArrowRows:
        """The rows whose time is NULL."""
        return _RowsInside(rows.schema, rows, name, None)


@dataclass(frozen=True, slots=True)
class _RowsInside(ArrowRows):
    """The rows with a time, in the column `name`, in `ends` (start, stop); for None those without a time."""

    schema: pa.Schema
    rows: ArrowRows
    name: str
    ends: tuple[int, int] | None

    def read(self) -> Iterator[pa.RecordBatch]:
        for batch in self.rows.read():
            micros, null = _micros(batch, self.name)
            kept = null
            if self.ends is not None:
                kept = ~null & (micros >= self.ends[0]) & (micros < self.ends[1])
            if (part := batch.filter(pa.array(kept))).num_rows:
                yield part


def _micros(batch: pa.RecordBatch, name: str) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """A column of times or dates in microseconds since 1970, and the mask of its NULLs.

    Dates outside the years 1 to 9999 are clipped to a day outside, so that they fit into 64 bits.
    """
    column = batch.column(name)
    null: NDArray[np.bool_] = as_numpy_bools(column.is_null())
    days = pa.types.is_date(column.type)
    ordered = column.cast(pa.date32()).cast(pa.int32()) if days else column.cast(_UTC)
    micros: NDArray[np.int64] = as_numpy(pc.fill_null(ordered.cast(pa.int64()), 0))
    if days:
        farthest = LAST_US // DAY_US + 1
        micros = np.clip(micros, -farthest, farthest) * DAY_US
    return micros, null
