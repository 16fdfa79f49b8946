"""The rows of the ledger: what they hold, and how summaries become rows and rows summaries.

A row says, for the batches first..last of a source and one tick: how many rows, their time range,
for each measure its NaN and NULL counts and the GK summary of its values, and of the keys what
keysummaries.py keeps. `cells` repeat the sketch of the keys for the whole tick, so that a reader
reads the sketch itself only where a window cuts the tick.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa

from tidemark.sketches import ECM, GK, SketchError
from tidemark.warehouse.columns.keys import Names, names_from_bytes
from tidemark.warehouse.errors import DamagedWarehouse
from tidemark.warehouse.events.reader import BatchRange
from tidemark.warehouse.ledger.batch_summaries import Summary, TickSummary
from tidemark.warehouse.ledger.key_summaries import KeySummary

RANGE = ("source", "first_batch", "last_batch")  # the columns that name a batch range

_TIME = pa.timestamp("us", tz="UTC")
KEYS = pa.struct(
    [
        ("nulls", pa.int64()),
        ("floor", pa.int64()),
        ("texts", pa.list_(pa.binary())),
        ("numbers", pa.list_(pa.int64())),
        ("known", pa.list_(pa.int64())),
        ("slack", pa.list_(pa.int64())),
        ("cells", pa.list_(pa.int64())),
        ("sketch", pa.binary()),
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
        (
            "measures",
            pa.list_(
                pa.struct(
                    [
                        ("measure", pa.string()),
                        ("nans", pa.int64()),
                        ("nulls", pa.int64()),
                        ("sketch", pa.binary()),
                    ]
                )
            ),
        ),
        ("keys", KEYS),
        ("arrived", _TIME),
    ]
)


def to_arrow(batches: BatchRange, summaries: Iterable[TickSummary]) -> pa.Table:
    """The ledger rows of a batch range."""
    now = datetime.now(UTC)
    rows = [
        {
            "source": batches.source,
            "first_batch": batches.first,
            "last_batch": batches.last,
            "tick": one.tick,
            "rows": one.rows,
            "min_time": one.times[0] if one.times else None,
            "max_time": one.times[1] if one.times else None,
            "measures": [
                {"measure": m.measure, "nans": m.nans, "nulls": m.nulls, "sketch": m.sketch.to_bytes()}
                for m in one.measures
            ],
            "keys": None if one.keys is None else _keys_row(one.keys),
            "arrived": now,
        }
        for one in summaries
    ]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def _keys_row(keys: KeySummary) -> dict[str, Any]:
    is_text = not isinstance(keys.names, np.ndarray)
    return {
        "nulls": keys.nulls,
        "floor": keys.floor,
        "texts": keys.names.to_pylist() if is_text else None,
        "numbers": None if is_text else keys.names.tolist(),
        "known": keys.known.tolist(),
        "slack": keys.slack.tolist(),
        "cells": keys.sketch.bounds().cells.hi.tolist(),
        "sketch": keys.sketch.to_bytes(),
    }


def names_in(keys: Mapping[str, Any]) -> Names:
    """The names that a row lists."""
    if keys["numbers"] is None:
        return names_from_bytes(keys["texts"])
    return np.array(keys["numbers"], dtype=np.int64)


def _keys(keys: Mapping[str, Any], batches: BatchRange, tick: int) -> KeySummary:
    known, slack = (np.array(keys[name], dtype=np.int64) for name in ("known", "slack"))
    with intact("keys", batches, tick):
        sketch = ECM.from_bytes(keys["sketch"])
    return KeySummary(keys["nulls"], sketch, names_in(keys), known, slack, keys["floor"])


def from_arrow(rows: pa.Table) -> list[TickSummary]:
    """The summaries of ledger rows."""
    found = []
    for row in plain_rows(rows):
        batches = BatchRange(row["source"], row["first_batch"], row["last_batch"])
        times = None if row["min_time"] is None else (row["min_time"], row["max_time"])
        measures = tuple(
            Summary(
                one["measure"],
                one["nans"],
                one["nulls"],
                sketch_of(one["sketch"], batches, row["tick"], one["measure"]),
            )
            for one in row["measures"]
        )
        keys = None if row["keys"] is None else _keys(row["keys"], batches, row["tick"])
        found.append(TickSummary(row["tick"], row["rows"], times, measures, keys))
    return found


def plain_rows(rows: pa.Table) -> list[dict[str, Any]]:
    """The rows with times in microseconds: datetimes do not reach as far, and would import pandas."""
    for name in ("min_time", "max_time"):
        micros = rows.column(name).cast(pa.timestamp("us", "UTC")).cast(pa.int64())
        rows = rows.set_column(rows.schema.get_field_index(name), name, micros)
    found: list[dict[str, Any]] = rows.to_pylist()
    return found


def sketch_of(data: bytes, batches: BatchRange, tick: int, measure: str) -> GK:
    """The stored summary of a measure; DamagedWarehouse where it is none."""
    with intact(repr(measure), batches, tick):
        return GK.from_bytes(data)


@contextmanager
def intact(what: str, batches: BatchRange, tick: int) -> Iterator[None]:
    """A stored sketch that cannot be read is told with its place."""
    try:
        yield
    except SketchError as error:
        raise DamagedWarehouse(
            f"the ledger's summary of {what} in {batches}, tick {tick}, is damaged: {error}. "
            "Restore the ledger's file, or load the batch from a copy."
        ) from error
