"""The counts of a key of any columns, from the rows of a `GroupWorld`: the oracle of questions about keys."""

from __future__ import annotations

import math
from collections import Counter
from datetime import datetime
from typing import Any

from tests.query.groupworld import SCHEMA, GroupWorld
from tidemark import query

Window = tuple[datetime, datetime] | None


def counts(world: GroupWorld, key: str | list[str], window: Window) -> tuple[Counter[Any], int]:
    """The rows of each value, and how many rows have a NULL."""
    columns = [key] if isinstance(key, str) else key
    places = [SCHEMA.names.index(name) for name in columns]
    found: Counter[Any] = Counter()
    for row in world.rows:
        if window is None or (row[0] is not None and window[0] <= row[0] < window[1]):
            value = tuple(plain(row[place]) for place in places)
            found[None if None in value else value if len(columns) > 1 else value[0]] += 1
    nulls = found.pop(None, 0)
    return found, nulls


def plain(value: Any) -> Any:
    """A value that equals the same one: every NaN is one, and -0.0 is 0.0."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value


def shown(value: Any) -> Any:
    return tuple(map(plain, value)) if isinstance(value, tuple) else plain(value)


def check_key(
    world: GroupWorld, key: str | list[str], window: Window, wh: query.Warehouse | None = None
) -> None:
    """Asks a reader, by default one that is opened now."""
    wh, (true, nulls) = wh or world.open(), counts(world, key, window)
    asked = [
        tuple(math.nan if v == "NaN" else v for v in value) if isinstance(value, tuple) else value
        for value in true
    ]
    for mode in ("exact", "approximate"):
        options: dict[str, Any] = {"key": key, "between": window, "mode": mode}
        for value, answer in zip(true, wh.frequency(asked, **options), strict=True):
            assert answer.hi >= true[value]
            assert (answer.N, answer.nulls) == (sum(true.values()), nulls)
            assert mode != "exact" or (answer.lo, answer.count, answer.hi) == (true[value],) * 3
        top = wh.top(3, **options)
        assert all(answer.lo <= true[shown(answer.value)] <= answer.hi for answer in top)
        if mode == "exact":
            assert [answer.count for answer in top] == [rows for _, rows in true.most_common(3)]
        hitters = {shown(answer.value) for answer in wh.heavy_hitters(0.2, **options)}
        assert {value for value in true if true[value] >= 0.2 * sum(true.values())} <= hitters
        assert wh.self_join(**options).count == sum(rows**2 for rows in true.values())
        assert wh.key_range(None, None, **options).count == sum(true.values())
