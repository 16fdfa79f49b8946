"""Random questions in SQL: the same rows as the answers in Python, or the same refusal."""

from __future__ import annotations

import math
import random
from datetime import UTC, datetime
from typing import Any

from tests.query.in_duckdb import in_python, in_sql, literal
from tests.worlds.rows import DRAWN, Row, comparable, plain, point
from tests.worlds.windows import Asked
from tests.worlds.world import World


def ask(world: World, chance: random.Random, wh: Any, history: list[Row], live: list[Row]) -> None:
    """A random call of a function in DuckDB, and the same question to a pinned reader."""
    pinned = wh.pinned()
    measure, window = chance.choice(world.measures), Asked.drawn(chance, world.columns, history + live)
    if window.options == {"between": (None, None)}:
        return  # in SQL a window without ends is no window
    given: dict[str, Any] = {"measure": measure, "mode": chance.choice(("quick", "accurate", "exact"))}
    named = [f"{name} := {literal(value)}" for name, value in given.items()]
    if "between" in window.options:
        ends = (("since", window.start), ("until", window.stop))
        named += [f"{name} := {literal(edge)}" for name, edge in ends if edge is not None]
    named += [f"last := {literal(window.options['last'])}"] if "last" in window.options else []
    kind = world.columns.types[measure]
    edges = sorted({DRAWN[kind](chance) for _ in range(3)}, key=plain_place)
    name, subject, shown = chance.choice(
        [
            ("quantile", chance.choice((0.0, 0.5, 0.99)), ("value", "low", "high", "error_bound")),
            ("rank", point(chance, kind), ("value", "rank", "rank_lo", "rank_hi")),
            (
                "histogram",
                edges,
                ("left", "right", "lo", "hi"),
            ),
        ]
    )
    call = f"{name}({literal(subject)}, {', '.join(named)})"
    columns = ", ".join(f'"{one}"' for one in shown)
    text = f"SELECT {columns} FROM {call}"
    function = getattr(pinned, name)
    expected = in_python(lambda: _rows(function(subject, **given, **window.options), shown))
    found = in_sql(pinned, text)
    assert _same(found, expected), (text, found, expected)


def plain_place(value: Any) -> Any:
    return (isinstance(value, float) and math.isnan(value), 0 if value != value else value)  # noqa: PLR0124  NaN


def _rows(found: Any, shown: tuple[str, ...]) -> list[tuple[Any, ...]]:
    answers = found if hasattr(found, "__len__") else [found]
    return [tuple(getattr(answer, name) for name in shown) for answer in answers]


def _same(found: list[tuple[Any, ...]] | str, expected: list[tuple[Any, ...]] | str) -> bool:
    if isinstance(found, str) or isinstance(expected, str):
        return found == expected
    return len(found) == len(expected) and all(
        all(map(_is_cell, row, wanted)) for row, wanted in zip(found, expected, strict=True)
    )


def _is_cell(found: Any, expected: Any) -> bool:
    """Whether a cell shows the value: converted where measures have several types, as sql.md says."""
    if isinstance(found, float):
        expected = float(expected)
    found, expected = comparable(found), comparable(expected)
    if isinstance(found, str) and isinstance(expected, datetime):
        found = datetime.fromisoformat(found)
        found = found if found.tzinfo else found.replace(tzinfo=UTC)
    elif isinstance(found, str):
        found = type(expected)(found)
    return bool(plain(found) == plain(expected))
