"""Rows for warehouses in the store, and what a warehouse must answer about them."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from tidemark import query

SCHEMA = pa.schema([("at", pa.timestamp("us", "UTC")), ("page", pa.string()), ("ms", pa.float64())])
START = datetime(2026, 11, 1, tzinfo=UTC)
HOW: dict[str, Any] = {"key": "page", "time": "at", "eps": 0.05, "kappa": 2, "schema": SCHEMA}


def rows(seed: int, count: int = 200) -> pa.Table:
    """Rows of ten days, with equal values."""
    r = random.Random(seed)
    at = [START + timedelta(minutes=r.randrange(14_400)) for _ in range(count)]
    page = [f"/{r.randrange(5)}" for _ in range(count)]
    ms = [round(r.lognormvariate(3, 1), 1) for _ in range(count)]
    return pa.table([at, page, ms], SCHEMA)


def check(wh: query.Warehouse, tables: Iterable[pa.Table]) -> None:
    """AssertionError unless the warehouse has exactly these rows, by its exact answers."""
    whole = pa.concat_tables(tables)
    ms = sorted(whole.column("ms").to_pylist())
    for phi in (0.01, 0.5, 0.99):
        answer = wh.quantile(phi, mode="exact")
        assert (answer.N, answer.value) == (len(ms), ms[math.ceil(phi * len(ms)) - 1])
    for page, count in Counter(whole.column("page").to_pylist()).items():
        assert wh.frequency(page, mode="exact").count == count
