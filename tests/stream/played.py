"""Batches of a stream, appended in this process."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
from pyspark.sql import types as T

from tidemark import query, warehouse
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.events.reader import BatchRange
from tidemark.warehouse.execution.executors import LocalExecutor
from tidemark.warehouse.ingest.row_filter import RowFilter
from tidemark.warehouse.sizes import Tuning

append_module: Any = importlib.import_module(
    "tidemark.stream.append"
)  # the package gives its name to its function

_TIME = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema([("at", _TIME), ("value", pa.float64()), ("moment", _TIME), ("seen", _TIME)])
TOLD = pa.schema([("_position", pa.string()), ("_raw", pa.string()), ("_reason", pa.string())])
GOOD = 1_000_000_000_000_000  # a time in 2001, in microseconds

TUNING = Tuning(fan=3)  # a few batches have ranges of the cascade

Row = tuple[int | None, float | None, int | None, int | None]


def rows_of(rows: Sequence[Row], refused: Sequence[str] = ()) -> pa.Table:
    """Rows as a parser leaves them; `refused` are the reasons of records that no row was made of."""
    columns = list(zip(*[*rows, *[(None,) * len(SCHEMA)] * len(refused)], strict=True))
    arrays = [pa.array(columns[i] if columns else [], one.type) for i, one in enumerate(SCHEMA)]
    told = [pa.array([None] * len(rows) + list(refused), pa.string())] * len(TOLD)
    return pa.table([*arrays, *told], [*SCHEMA.names, *TOLD.names])


def row(value: float, at: int | None = GOOD, moment: int | None = GOOD, seen: int | None = GOOD) -> Row:
    return at, value, moment, seen


def create(uri: Path, **options: Any) -> None:
    """A warehouse with measures `value` and `moment`, the key `seen` and the time `at`."""
    kinds = {"at": T.TimestampType(), "value": T.DoubleType(), "moment": T.TimestampType()}
    schema = T.StructType(
        [T.StructField(name, kind) for name, kind in [*kinds.items(), ("seen", kinds["at"])]]
    )
    given = {"time": "at", "key": "seen", "eps": 0.1, "kappa": 2, "grace": "0 s", **options}
    warehouse.create(None, uri, ["value", "moment"], schema=schema, **given)


def append(
    uri: Path, number: int, rows: Sequence[Row], refused: Sequence[str] = (), source: str = "s"
) -> bool:
    """As `stream.append`; `refused` are the reasons of records that no row was made of."""
    batch = BatchRange(source, number, number)
    here = LocalExecutor()
    given = here.input(rows_of(rows, refused))
    store = Store.from_uri(uri, tuning=TUNING)
    done = append_module.append_batch(here, store, given, batch, row_filter=RowFilter(reasons=True))
    return done is not None


def load(uri: Path) -> Any:
    return warehouse.load(None, uri, tuning=TUNING)


def values_in(uri: Path) -> list[float]:
    """The values that a reader finds, each as often as it is there, exactly."""
    try:
        found = query.open(uri).histogram([i - 0.5 for i in range(200)], "value", mode="exact")
    except query.EmptyWindow:
        return []
    return [float(i) for i, count in enumerate(found.counts) for _ in range(count)]


class Crash(Exception):
    """What a test raises where a process would die."""


def crash(*_: Any, **__: Any) -> NoReturn:
    raise Crash
