"""The rows of the kept warehouses, by arithmetic alone: any version of Python makes the same ones.

Three warehouses are kept. `timed` has a time column, a text key, three measures, history of two levels, live
batches with a range of the cascade among them, and rejected records. `plain` has neither a time nor a schema
of its own making, an integer key, and went through maintenance. `wide` has a key of two columns, a group and
a companion.
"""

from __future__ import annotations

import hashlib
import math
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAY_US = 86_400_000_000

TIMED = pa.schema(
    [
        ("t", pa.timestamp("us", "UTC")),
        ("k", pa.string()),
        ("x", pa.float64()),
        ("n", pa.int64()),
        ("d", pa.decimal128(9, 2)),
        ("note", pa.string()),
    ]
)
PLAIN = pa.schema([("n", pa.int32()), ("k", pa.int64())])

BULK = ("night-0", "night-1", "night-2", "night-3")  # with kappa = 2: a merged run and one more
LOADED = range(4)  # batches of `web` that a load has moved into history
LIVE = range(4, 18)  # those that it has not; 5 to 9 and 10 to 14 have a range of the cascade
PARTNER = range(2)  # live batches of another source
PLAIN_BULK = ("a", "b", "c", "d")
PLAIN_LIVE = range(3)
WIDE_BULK = ("a", "b")
WIDE_KEYS = ("k", ("n", "k"))


def table(batch: list[tuple[Any, ...]], schema: pa.Schema) -> pa.Table:
    """The rows as a table, also if there are none."""
    columns = zip(*batch, strict=True) if batch else ([] for _ in schema)
    return pa.table([pa.array(one, kind) for one, kind in zip(columns, schema.types, strict=True)], schema)


def _draws(name: str) -> Any:
    """Whole numbers of 32 bits without end, that are always the same for a name."""
    count = 0
    while True:
        block = hashlib.sha256(f"{name}/{count}".encode()).digest()
        yield from (int.from_bytes(block[i : i + 4], "big") for i in range(0, 32, 4))
        count += 1


def timed_rows(name: str, rows: int) -> list[tuple[Any, ...]]:
    """Rows over six days round 1970: duplicates, both zeroes, infinities, NaN and NULL in every column."""
    draw = _draws(name)
    found: list[tuple[Any, ...]] = []
    for i in range(rows):
        x: Any = (next(draw) % 2001 - 1000) / 8
        x = {3: None, 4: math.nan, 5: math.inf, 6: -math.inf, 7: -0.0}.get(i, x)
        n: Any = {8: None, 9: 2**63 - 1, 10: -(2**63), 11: 2**53 + 1}.get(i, next(draw) % 11 - 5)
        d: Any = None if i == 2 else Decimal(next(draw) % 1000 - 500).scaleb(-2)
        moment = EPOCH + timedelta(microseconds=(next(draw) * 2**20 + next(draw)) % (6 * DAY_US) - 3 * DAY_US)
        t = None if i == 1 else moment
        letter = next(draw)
        k = None if i == 0 else f"k{min(letter % 40, letter // 7 % 40)}" + "é" * (letter % 3 == 0)
        found.append((t, k, x, n, d, f"{name}:{i}"))
    return found


def plain_rows(name: str, rows: int) -> list[tuple[Any, ...]]:
    """Integers with many duplicates."""
    draw = _draws(name)
    return [(next(draw) % 50 if i else None, next(draw) % 30 - 15) for i in range(rows)]


def timed_batches() -> dict[tuple[str, Any], list[tuple[Any, ...]]]:
    """Every batch of `timed` by its source and its name or number."""
    batches: dict[tuple[str, Any], list[tuple[Any, ...]]] = {
        ("bulk", name): timed_rows(name, 150) for name in BULK
    }
    for source, numbers in (("web", [*LOADED, *LIVE]), ("partner", PARTNER)):
        for number in numbers:
            # One batch is empty: it has a ledger row and no rows.
            rows = 0 if (source, number) == ("web", 11) else 20 + number % 3
            batches[source, number] = timed_rows(f"{source}-{number}", rows)
    return batches


def plain_batches() -> dict[tuple[str, Any], list[tuple[Any, ...]]]:
    """Every batch of `plain` by its source and its name or number."""
    bulk = {("bulk", name): plain_rows(name, 200) for name in PLAIN_BULK}
    return {**bulk, **{("s", number): plain_rows(f"s-{number}", 40) for number in PLAIN_LIVE}}


def wide_batches() -> dict[tuple[str, Any], list[tuple[Any, ...]]]:
    """Every batch of `wide` by its source and its name or number."""
    bulk = {("bulk", name): plain_rows(f"wide-{name}", 60) for name in WIDE_BULK}
    return {**bulk, ("s", 0): plain_rows("wide-s", 20)}
