"""Random columns and rows: every type that a measure or a key may have, and the values at its edges."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

Row = dict[str, Any]

FIRST = datetime(2024, 2, 25, tzinfo=UTC)  # a Sunday; the days that follow have a leap day among them
DAYS = 20
DAY = timedelta(days=1)
TYPES = {
    "double": pa.float64(),
    "float": pa.float32(),
    "int": pa.int32(),
    "long": pa.int64(),
    "decimal": pa.decimal128(9, 2),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "text": pa.string(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
}
MEASURES = ("double", "float", "int", "long", "decimal", "date", "timestamp")


def _double(chance: random.Random) -> float:
    return chance.choice(
        (0.0, -0.0, math.inf, -math.inf, math.nan, 0.1, round(chance.gauss(0, 9), 2), 5e-324)
    )


def _moment(chance: random.Random) -> datetime:
    whole = FIRST + chance.randrange(DAYS) * DAY
    inside = timedelta(seconds=chance.randrange(86_400), microseconds=chance.randrange(1_000_000))
    return whole + chance.choice((timedelta(0), inside, DAY - timedelta(microseconds=1)))


TEXTS = ("", "a", "A", "ä", "é", "z" * 40, "x y", "'", "0", "1", "2")
DRAWN: dict[str, Callable[[random.Random], Any]] = {
    "double": _double,
    "float": lambda chance: float(np.float32(_double(chance))),
    "int": lambda chance: chance.choice((-(2**31), 2**31 - 1, 0, chance.randrange(-30, 30))),
    "long": lambda chance: chance.choice((-(2**63), 2**63 - 1, 2**53 + 1, chance.randrange(-30, 30))),
    "decimal": lambda chance: chance.choice(
        (Decimal("-9999999.99"), Decimal(chance.randrange(-500, 500)) / 100)
    ),
    "date": lambda chance: chance.choice((date(1, 1, 1), date(1969, 12, 31), _moment(chance).date())),
    "timestamp": _moment,
    "text": lambda chance: chance.choice(TEXTS),
    "binary": lambda chance: chance.choice((b"", b"\x00", b"\xff", bytes([chance.randrange(4)]))),
    "boolean": lambda chance: chance.random() < 0.5,
}


def point(chance: random.Random, kind: str) -> Any:
    """A number or time to compare a measure with: one of its values, or one between two of them."""
    value = next(one for one in iter(lambda: DRAWN[kind](chance), None) if plain(one) != "NaN")
    if chance.random() < 0.7:
        return value
    if kind in {"int", "long", "decimal"}:
        return Decimal(value) + Decimal("0.125")
    return comparable(value) + timedelta(hours=7) if kind == "date" else value


def comparable(value: Any) -> Any:
    """The value; a date as the moment at which it begins, so that it can be compared with times."""
    is_date = isinstance(value, date) and not isinstance(value, datetime)
    return datetime(value.year, value.month, value.day, tzinfo=UTC) if is_date else value


def disguised(chance: random.Random, value: Any) -> Any:
    """The value as it comes from numpy or pandas, or as it is."""
    if isinstance(value, bool) or chance.random() < 0.5:
        return value
    if isinstance(value, int):
        return np.int64(value)
    if isinstance(value, float):
        return chance.choice((np.float64(value), pa.scalar(value)))
    if isinstance(value, datetime):
        return chance.choice((pd.Timestamp(value), np.datetime64(value.replace(tzinfo=None), "us")))
    return value


@dataclass(frozen=True)
class Columns:
    """The columns of a world: `time` or none, two measures, and what keys and groups are made of, by name."""

    types: dict[str, str]
    time: str | None
    tick: timedelta

    @classmethod
    def drawn(cls, chance: random.Random) -> Columns:
        keys = chance.sample([name for name in TYPES if name != "float"], 3)
        types = {"x": chance.choice(MEASURES), "y": chance.choice(MEASURES)}
        types |= dict(zip(("a", "b", "c"), keys, strict=True))
        timed = chance.random() < 0.85
        return cls(types, "t" if timed else None, chance.choice((DAY, DAY, timedelta(hours=6))))

    @property
    def schema(self) -> pa.Schema:
        fields = [(name, TYPES[kind]) for name, kind in self.types.items()]
        return pa.schema([("t", TYPES["timestamp"]), *fields] if self.time else fields)

    def rows(self, chance: random.Random, count: int) -> list[Row]:
        """Rows of which some columns have only NULL, others few."""
        shares = {name: chance.choice((0.0, 0.1, 0.1, 1.0)) for name in self.types}
        shares |= {name: min(share, 0.1) for name, share in shares.items() if name in {"x", "y"}}
        drawn = {
            name: [None if chance.random() < shares[name] else DRAWN[kind](chance) for _ in range(count)]
            for name, kind in self.types.items()
        }
        if self.time:
            drawn["t"] = [None if chance.random() < 0.03 else _moment(chance) for _ in range(count)]
        return [dict(zip(drawn, values, strict=True)) for values in zip(*drawn.values(), strict=True)]

    def table(self, rows: list[Row]) -> pa.Table:
        return pa.Table.from_pylist(rows, self.schema)


def cut(chance: random.Random, table: pa.Table) -> pa.RecordBatchReader:
    """The rows in record batches of random sizes, some of them empty."""
    edges = sorted(chance.choices(range(table.num_rows + 1), k=chance.randrange(5)))
    pieces = [
        piece
        for start, stop in zip([0, *edges], [*edges, table.num_rows], strict=True)
        for piece in table.slice(start, stop - start).combine_chunks().to_batches()
        or [pa.RecordBatch.from_pylist([], table.schema)]
    ]
    return pa.RecordBatchReader.from_batches(table.schema, pieces)


def plain(value: Any) -> Any:
    """A value that equals the same one: every NaN is one, and -0.0 is 0.0."""
    if isinstance(value, tuple):
        return tuple(map(plain, value))
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value
