"""A warehouse of every type: each column is a key, and a measure if it can be; half of its rows are live."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa

from tests.query.given_forms import MEASURES, STORED, exact_of
from tidemark import stream, warehouse

ROWS = 60  # of a part
GROUPS = ["day", "i32"]


def make(folder: Path) -> str:
    """Makes the warehouse in a new folder; returns its address."""
    uri = str(folder / "w")
    schema = pa.schema([(name, kind) for name, (kind, _) in STORED.items()])
    warehouse.create(None, uri, MEASURES, keys=list(STORED), groups=GROUPS, schema=schema)
    warehouse.load(None, uri, pa.table(rows(0), schema=schema), "a")
    stream.append(None, uri, pa.table(rows(1), schema=schema), source="s", batch=0)
    return uri


def rows(part: int) -> dict[str, list[Any]]:
    """The rows of a part: each column has its stored values in another order."""
    random = Random(part)
    return {name: random.choices(stored, k=ROWS) for name, (_, stored) in STORED.items()}


def exact_rows(name: str) -> list[Any]:
    """What the values of a column are exactly, in the order of the rows."""
    return [exact_of(value) for part in (0, 1) for value in rows(part)[name]]
