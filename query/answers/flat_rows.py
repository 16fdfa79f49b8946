"""Answers as flat rows of numbers, for charts and dashboards.

    time, time_end    the window, the end exclusive: milliseconds since 1970 in UTC, or numbers of steps; None
                      for an open side and for all rows
    columns of `by`   the group; one that has the name of another field is called `group_` and its name
    value, low, high  the answer and its certified bounds; for an exact one they are equal
    rows              the N rows that it is about
    further fields    phi of a quantile, x of a rank, `key` of a count, left and right of a bin ...

Numbers and times are numbers of JSON or None. If such a number cannot hold the value (a decimal, a whole
number beyond 2**53, NaN, an infinity, a time between two milliseconds), a field with `_text` behind its name
has the exact text.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import date
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

from tidemark.warehouse.columns.json_values import json_value
from tidemark.warehouse.columns.moments import exact_us

_BOUNDS = ("value", "low", "high")


def flat_rows(answers: Iterable[tuple[Any, Any]], by: Sequence[str] = ()) -> list[dict[str, Any]]:
    """A row for each answer; by: the columns of its group.

    answers: each with the object that has its window, group and N: the answer itself, or the histogram of a
        bin.
    """
    rows = [_row(answer, scope, by) for answer, scope in answers]
    texts = {name: None for row in rows for name in row if name.endswith("_text")}
    return [{**row, **{name: row.get(name) for name in texts}} for row in rows]


def _row(answer: Any, scope: Any, by: Sequence[str]) -> dict[str, Any]:
    start, end = scope.window or (None, None)
    fields = {"time": start, "time_end": end, **_own_fields(answer, scope), "rows": scope.N}
    for column in by:
        fields[f"group_{column}" if column in fields else column] = scope.group[column]
    row: dict[str, Any] = {}
    for name, value in fields.items():
        number = row[name] = _flat(value)
        if isinstance(number, _Text):
            row[name], row[f"{name}_text"] = number.number, json_value(number.value)
    return row


def _own_fields(answer: Any, scope: Any) -> dict[str, Any]:
    """The answer's columns by name: the bounds are value, low and high, what it is about is x or key."""
    interval = answer.INTERVAL
    one = interval[1] if interval else getattr(answer, "ONE", None)
    ends = [interval[0], interval[2]] if interval else [one, one]
    fields = {}
    for name in answer.COLUMNS:
        if name not in (one, *ends):
            shown = name if name != "value" else "x" if scope.SUBJECT == "measure" else "key"
            fields[shown] = getattr(answer, name)
    if one is not None:
        fields |= zip(_BOUNDS, (getattr(answer, name) for name in (one, *ends)), strict=True)
    return fields


class _Text(NamedTuple):
    """A value that no number says whole, and the number beside it, if there is one."""

    number: Any
    value: Any


def _flat(value: Any) -> Any:
    """The value as a number, a boolean, text or None; a _Text if a number does not say all."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, date):
        whole, rest = divmod(int(exact_us(value)), 1000)
        return _Text(whole, value) if rest else whole
    if isinstance(value, (int, float, Decimal, Fraction)):
        return _number(value)
    found = json_value(value)
    return ",".join(map(str, found)) if isinstance(found, list) else str(found)


def _number(value: Any) -> Any:
    shown = json_value(value)
    if not isinstance(shown, str):
        return shown
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    return _Text(number if math.isfinite(number) else None, value)
