"""The rows of the ledger: their schema, and the conversion from summaries to rows and back.

A row stands for the batches first_batch..last_batch (inclusive) of a source in one tick. It has

    rows, times   the number of rows, and their first and last time
    measures      for each measure the counts of NaN and NULL, and the GK summary of the other values
    keys          a field for each key with the summary of key_summaries.py; a ledger without keys lacks it.
                  Its `cells` are the upper bounds of the sketch's counters for the whole tick. The sketch has
                  the same numbers; a reader needs it only for a window that starts or ends inside the tick
    companions    the cells of the warehouse's companions by name, as bytes (companions/cells.py)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, cast

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable
from deltalake.schema import StructType

from tidemark.sketches import ECM, GK, SketchError
from tidemark.sketches.sampling import KeySample
from tidemark.warehouse.columns.arrow_buffers import binary_array
from tidemark.warehouse.columns.keys import Names
from tidemark.warehouse.columns.value_encoding import as_numpy
from tidemark.warehouse.companions.cells import Cell
from tidemark.warehouse.delta.table_names import KEYS
from tidemark.warehouse.errors import DamagedWarehouse
from tidemark.warehouse.events.reader import BatchRange
from tidemark.warehouse.ledger.batch_summaries import MeasureSummary, TickSummary
from tidemark.warehouse.ledger.key_summaries import KeySummary

REMEDY = "Run `tidemark repair`: it makes rows of the ledger again from the table events."
COMPANIONS = "companions"
RANGE_COLUMNS = ("source", "first_batch", "last_batch")  # they identify a range of batches
TIME_COLUMNS = ("min_time", "max_time")

_TIME = pa.timestamp("us", tz="UTC")
_MEASURE = pa.struct(
    [("measure", pa.string()), ("nans", pa.int64()), ("nulls", pa.int64()), ("sketch", pa.binary())]
)
KEYS_TYPE = pa.struct(
    [
        ("nulls", pa.int64()),
        ("floor", pa.int64()),
        ("texts", pa.list_(pa.binary())),
        ("numbers", pa.list_(pa.int64())),
        ("known", pa.list_(pa.int64())),
        ("slack", pa.list_(pa.int64())),
        ("cells", pa.list_(pa.int64())),
        ("sketch", pa.binary()),
        ("sample", pa.binary()),
    ]
)
SCHEMA = pa.schema(
    [
        ("source", pa.string()),
        ("first_batch", pa.int64()),
        ("last_batch", pa.int64()),
        ("tick", pa.int64()),
        ("rows", pa.int64()),
        ("min_time", _TIME),
        ("max_time", _TIME),
        ("measures", pa.list_(_MEASURE)),
        ("arrived", _TIME),
        (COMPANIONS, pa.map_(pa.string(), pa.binary())),
    ]
)


def schema(key_fields: Sequence[str]) -> pa.Schema:
    """The columns of a ledger; `key_fields` are the fields of `keys`, one for each key of the warehouse."""
    if not key_fields:
        return SCHEMA
    return SCHEMA.append(pa.field(KEYS, pa.struct([(name, KEYS_TYPE) for name in key_fields])))


def key_fields_of(ledger: DeltaTable) -> list[str]:
    """The fields of the column `keys` of the table; empty without that column."""
    fields = [field for field in ledger.schema().fields if field.name == KEYS]
    return [key.name for field in fields for key in cast("StructType", field.type).fields]


def times_of(rows: pa.Table) -> tuple[int, int] | None:
    """The first and the last time of ledger rows, in microseconds since 1970; None if none has a time."""
    first, last = (as_numpy(rows.column(name).drop_null().cast(pa.int64())) for name in TIME_COLUMNS)
    return (int(first.min()), int(last.max())) if len(first) and len(last) else None


def to_arrow(
    batches: BatchRange, summaries: Iterable[TickSummary], key_fields: Sequence[str] = ()
) -> pa.Table:
    """The ledger rows of a range of batches, one per summary; `key_fields` as in `schema`."""
    now = datetime.now(UTC)
    rows = [
        {
            "source": batches.source,
            "first_batch": batches.first,
            "last_batch": batches.last,
            "tick": summary.tick,
            "rows": summary.rows,
            "min_time": summary.times[0] if summary.times else None,
            "max_time": summary.times[1] if summary.times else None,
            "measures": [
                {"measure": m.measure, "nans": m.nans, "nulls": m.nulls, "sketch": m.sketch.to_bytes()}
                for m in summary.measures
            ],
            "arrived": now,
            COMPANIONS: [(name, cell.to_bytes()) for name, cell in summary.companions.items()],
            KEYS: {field: _keys_row(summary.keys.get(field)) for field in key_fields},
        }
        for summary in summaries
    ]
    return pa.Table.from_pylist(rows, schema=schema(key_fields))


def cells_in(row: Mapping[str, Any], batches: BatchRange) -> dict[str, Cell]:
    """The cells of the companions in a row of the ledger, by name; DamagedWarehouse if one cannot be read."""
    cells = {}
    for name, stored in row[COMPANIONS] or ():
        with report_damaged_summary(f"the companion {name!r}", batches, row["tick"]):
            cells[name] = Cell.from_bytes(stored)
        cell = cells[name]
        if (cell.first, cell.last, cell.rows) != (row["tick"], row["tick"], row["rows"]):
            raise DamagedWarehouse(
                f"the companion {name!r} of {batches.text}, tick {row['tick']}, has {cell.rows} rows of the "
                f"ticks {cell.first} to {cell.last}, expected {row['rows']} of this tick. {REMEDY}"
            )
    return cells


def _keys_row(keys: KeySummary | None) -> dict[str, Any] | None:
    if keys is None:
        return None
    names = keys.names
    return {
        "nulls": keys.nulls,
        "floor": keys.floor,
        "texts": None if isinstance(names, np.ndarray) else names.to_pylist(),
        "numbers": names.tolist() if isinstance(names, np.ndarray) else None,
        "known": keys.known.tolist(),
        "slack": keys.slack.tolist(),
        "cells": keys.sketch.bounds().cells.hi.tolist(),
        "sketch": keys.sketch.to_bytes(),
        "sample": keys.sample.to_bytes(),
    }


def names_in(keys: Mapping[str, Any]) -> Names:
    """The listed keys in one field of a row's column `keys`."""
    if keys["numbers"] is None:
        return binary_array(keys["texts"])
    return np.array(keys["numbers"], dtype=np.int64)


def _key_summary(keys: Mapping[str, Any], batches: BatchRange, tick: int) -> KeySummary:
    known, slack = (np.array(keys[name], dtype=np.int64) for name in ("known", "slack"))
    with report_damaged_summary("keys", batches, tick):
        sketch, sample = ECM.from_bytes(keys["sketch"]), KeySample.from_bytes(keys["sample"])
    return KeySummary(keys["nulls"], sketch, names_in(keys), known, slack, keys["floor"], sample)


def from_arrow(rows: pa.Table) -> list[TickSummary]:
    """The summaries in ledger rows, in the rows' order; DamagedWarehouse if a sketch cannot be read."""
    summaries = []
    for row in plain_rows(rows):
        batches = BatchRange(row["source"], row["first_batch"], row["last_batch"])
        times = None if row["min_time"] is None else (row["min_time"], row["max_time"])
        measures = tuple(
            measure_summary(stored, batches, row["tick"], row["rows"]) for stored in row["measures"]
        )
        keys = {
            field: _key_summary(keys, batches, row["tick"])
            for field, keys in (row.get(KEYS) or {}).items()
            if keys is not None
        }
        cells = cells_in(row, batches)
        summaries.append(TickSummary(row["tick"], row["rows"], times, measures, keys, cells))
    return summaries


def plain_rows(rows: pa.Table) -> list[dict[str, Any]]:
    """The rows as dicts, with times as microseconds.

    A Python datetime has a smaller range, and pyarrow would import pandas to make it.
    """
    for name in ("min_time", "max_time"):
        micros = rows.column(name).cast(pa.timestamp("us", "UTC")).cast(pa.int64())
        rows = rows.set_column(rows.schema.get_field_index(name), name, micros)
    dicts: list[dict[str, Any]] = rows.to_pylist()
    return dicts


def measure_summary(stored: Mapping[str, Any], batches: BatchRange, tick: int, rows: int) -> MeasureSummary:
    """A stored summary of a measure in a tick with so many rows.

    DamagedWarehouse if its bytes cannot be read, or if it has another number of values than the row says.
    """
    measure, nans, nulls = stored["measure"], stored["nans"], stored["nulls"]
    with report_damaged_summary(repr(measure), batches, tick):
        sketch = GK.from_bytes(stored["sketch"])
    expected = rows - nans - nulls
    if sketch.n != expected:
        raise DamagedWarehouse(
            f"the ledger's summary of {measure!r} in {batches.text}, tick {tick}, holds {sketch.n} values, "
            f"expected {expected}: {rows} rows without {nans} NaN and {nulls} NULL. {REMEDY}"
        )
    return MeasureSummary(measure, nans, nulls, sketch)


@contextmanager
def report_damaged_summary(name: str, batches: BatchRange, tick: int) -> Iterator[None]:
    """Turns a SketchError into DamagedWarehouse; the error text has the name, the range and the tick."""
    try:
        yield
    except SketchError as error:
        raise DamagedWarehouse(
            f"the ledger's summary of {name} in {batches.text}, tick {tick}, is damaged: {error}. {REMEDY}"
        ) from error
