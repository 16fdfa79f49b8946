"""A batch from files without Spark: Parquet, CSV and JSON lines on this machine; a folder or one file.

Parquet brings its own types. Text has the warehouse's, which must be there: Spark alone finds types in text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidemark.jobs.inputs.csv_files import csv_rows
from tidemark.jobs.inputs.json_files import json_rows
from tidemark.jobs.inputs.spark_inputs import Times, guessed, outside_the_years
from tidemark.warehouse.columns.measures import as_numpy, as_numpy_bools
from tidemark.warehouse.columns.ticks import DAY_US, FIRST_US, LAST_US
from tidemark.warehouse.delta import tables
from tidemark.warehouse.delta.store import EVENTS, Store
from tidemark.warehouse.errors import InputError
from tidemark.warehouse.execution.arrow_inputs import ArrowRows, input_files, parquet_rows

if TYPE_CHECKING:
    from tidemark.warehouse.settings.options import Options

_UTC = pa.timestamp("us", tz="UTC")


class LocalInputs:
    """Reads batches in this process; the same calls as `inputs.SparkInputs`."""

    def __init__(self, warehouse: str) -> None:
        self._warehouse = warehouse

    def read(self, path: str, kind: str | None, options: Options | None, *, cut: bool = False) -> ArrowRows:
        """The rows at `path`, read to their end once where they make a warehouse or are `cut`."""
        paths = input_files(path)
        chosen = kind or guessed(path, [one.name for one in paths])
        if chosen == "delta":
            raise InputError(
                f"{path} is to be read as a Delta table, which Spark does. Leave out --engine local."
            )
        if chosen == "parquet":
            rows = parquet_rows(paths)
        elif options is None or not options.columns:
            raise InputError(
                f"the types of {path} are not known: text has those of the warehouse's columns, and there "
                "are none yet. Make the warehouse with them (tidemark create --schema), load a first batch "
                "of Parquet, or leave out --engine local."
            )
        else:
            said = dict(options.columns)
            types = self._types(said)
            if chosen == "json":
                rows = json_rows(paths, types, said)
            else:
                rows = csv_rows(paths, "\t" if chosen == "tsv" else ",", types)
        if options is None or cut:
            for _ in rows.read():
                pass
        return rows

    def _types(self, names: Iterable[str]) -> pa.Schema:
        """The types of the warehouse's columns."""
        stored = pa.schema(tables.open_table(Store.from_uri(self._warehouse), EVENTS).schema())
        return pa.schema([stored.field(name) for name in names])

    def check_times(self, rows: ArrowRows, names: Iterable[str]) -> None:
        """InputError where one of the columns has a time or a date outside the years 1 to 9999."""
        present = set(rows.schema.names)
        temporal = [
            name
            for name in dict.fromkeys(names)
            if name in present and pa.types.is_temporal(rows.schema.field(name).type)
        ]
        counts = dict.fromkeys(temporal, 0)
        for batch in rows.read() if temporal else ():
            for name in temporal:
                at, null = _micros(batch, name)
                counts[name] += int(np.count_nonzero(((at < FIRST_US) | (at > LAST_US)) & ~null))
        outside_the_years(counts)

    def times(self, rows: ArrowRows, name: str) -> Times:
        """The least and the greatest time of the rows, and how many have none."""
        found = Times(None, None, 0)
        for batch in rows.read():
            at, null = _micros(batch, name)
            if (filled := at[~null]).size:
                least, most = int(filled.min()), int(filled.max())
                found = Times(
                    least if found.first is None else min(found.first, least),
                    most if found.last is None else max(found.last, most),
                    found.without,
                )
            found = found._replace(without=found.without + int(np.count_nonzero(null)))
        return found

    def between(self, rows: ArrowRows, name: str, start: int, stop: int) -> ArrowRows:
        """The rows whose time is in [start, stop), in microseconds since 1970."""

        def chosen(batch: pa.RecordBatch) -> NDArray[np.bool_]:
            at, null = _micros(batch, name)
            return ~null & (at >= start) & (at < stop)

        return _where(rows, chosen)

    def without(self, rows: ArrowRows, name: str) -> ArrowRows:
        """The rows without a time."""
        return _where(rows, lambda batch: _micros(batch, name)[1])


def _where(rows: ArrowRows, chosen: Callable[[pa.RecordBatch], NDArray[np.bool_]]) -> ArrowRows:
    def read() -> Iterator[pa.RecordBatch]:
        for batch in rows.read():
            if (found := batch.filter(pa.array(chosen(batch)))).num_rows:
                yield found

    return ArrowRows(rows.schema, read)


def _micros(batch: pa.RecordBatch, name: str) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """A column of times or dates in microseconds since 1970, and where it is NULL.

    A date so far away that its microseconds do not fit into 64 bits is as far outside as fits.
    """
    column = batch.column(name)
    null: NDArray[np.bool_] = as_numpy_bools(column.is_null())
    days = pa.types.is_date(column.type)
    plain = column.cast(pa.date32()).cast(pa.int32()) if days else column.cast(_UTC)
    at: NDArray[np.int64] = as_numpy(pc.fill_null(plain.cast(pa.int64()), 0))
    if days:
        farthest = LAST_US // DAY_US + 1
        at = np.clip(at, -farthest, farthest) * DAY_US
    return at, null
