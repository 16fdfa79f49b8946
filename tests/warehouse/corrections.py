"""Warehouses whose rows are corrected, with a list of all rows: each row has a number of its own."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.query.groupworld import HOUR, ONE, SCHEMA, START, TINY, GroupWorld, Row
from tidemark import warehouse

NAMES = SCHEMA.names


def rows(batch: int, count: int = 30) -> list[Row]:
    """Rows with numbers from 100 * batch on, with NULL, NaN and equal values."""
    return [
        (
            None if i % 11 == 5 else START + ((batch * 7 + i) % 40) * HOUR,
            ["a", "b", "é", None][(i + batch) % 4],
            batch * 100 + i,
            math.nan if i % 13 == 0 else float(i % 7),
            None if i % 3 == 0 else Decimal(i) / 4,
        )
        for i in range(count)
    ]


def table_of(given: Iterable[Row]) -> pa.Table:
    given = list(given)
    columns = {name: pa.array([row[i] for row in given], SCHEMA.types[i]) for i, name in enumerate(NAMES)}
    return pa.table(columns, schema=SCHEMA)


def changed(row: Row, by: float = 1000.0) -> Row:
    """The row with another origin, value and price, and the same number and time."""
    time, origin, number, value, price = row
    value = by if value is None or math.isnan(value) else value + by
    return (time, {"a": "b", "b": "é"}.get(origin or "", "a"), number, value, (price or 0) + Decimal("0.25"))


def numbered(world: GroupWorld, numbers: Iterable[int]) -> list[Row]:
    """The rows of the list with these numbers."""
    wanted = set(numbers)
    return [row for row in world.rows if row[2] in wanted]


def create(folder: Path) -> GroupWorld:
    """Four steps in history, of which three are one run, and a live batch."""
    world = GroupWorld.create(folder, ONE, groups=["origin"])
    for batch in range(5):
        world.add(rows(batch), load=batch < 4)
    return world


def correct(world: GroupWorld, batch: str, new: Sequence[Row] | None, **how: Any) -> warehouse.RemovalReport:
    """Corrects the warehouse alone; `before` may be rows."""
    if isinstance(how.get("before"), list):
        how["before"] = table_of(how["before"])
    given = None if new is None else table_of(new)
    return warehouse.correct(None, world.path, given, batch=batch, **{"tuning": TINY, **how})


def swap(world: GroupWorld, old: Iterable[Row], new: Iterable[Row]) -> None:
    """The same in the list."""
    for row in old:
        place = next(i for i, one in enumerate(world.rows) if repr(one) == repr(row))
        del world.rows[place]
    world.rows += new
    world._truths.clear()
