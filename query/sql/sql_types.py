"""Types of what SQL functions return: the measure's own, or one that all measures widen to.

Names are Spark's. The rules are those by which Spark brings the columns of a UNION together: integers to
the widest, whole and floating numbers to double, decimals to one that holds both, a date and a timestamp to a
timestamp. What has no common type becomes text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import reduce
from typing import Any

_NAMES = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint"}
_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}  # as a decimal, by Spark's book
_FLOATING = {"float", "double"}
_DECIMAL = re.compile(r"decimal\((\d+), ?(-?\d+)\)")
_DUCKDB = {"string": "VARCHAR", "binary": "BLOB", "timestamp": "TIMESTAMPTZ"}


def sql_type(kind: str) -> str:
    """A type by Delta's name as SQL has it."""
    return _NAMES.get(kind, kind)


def common_type(kinds: Sequence[str]) -> str:
    """The type that all of these widen to, by SQL's names."""
    return reduce(_wider, map(sql_type, kinds))


def _wider(a: str, b: str) -> str:
    if a == b:
        return a
    both = {a, b}
    if both <= _DIGITS.keys():
        return max(both, key=_DIGITS.__getitem__)
    if both & _FLOATING and all(one in _FLOATING or _places(one) for one in both):
        return "double"
    first, second = _places(a), _places(b)
    if first and second:
        whole, scale = max(first[0], second[0]), max(first[1], second[1])
        return f"decimal({min(38, whole + scale)},{scale})"
    return "timestamp" if both == {"date", "timestamp"} else "string"


def _places(kind: str) -> tuple[int, int] | None:
    """Digits before and after the point of a whole or decimal number."""
    if kind in _DIGITS:
        return _DIGITS[kind], 0
    found = _DECIMAL.fullmatch(kind)
    return (int(found[1]) - int(found[2]), int(found[2])) if found else None


def converter(kind: str) -> Callable[[Any], Any]:
    """What makes a value of a measure or key one of the type; None stays None."""
    convert: Callable[[Any], Any] = _CONVERT.get(kind, Decimal if kind.startswith("decimal") else _same)
    return lambda value: None if value is None else convert(value)


def _same(value: Any) -> Any:
    return value


def _text(value: Any) -> str:
    if isinstance(value, datetime):
        return value.astimezone(UTC).replace(tzinfo=None).isoformat(sep=" ")
    return str(value)


def _moment(value: Any) -> datetime:
    if isinstance(value, datetime):
        return value
    return datetime.combine(value if isinstance(value, date) else date.fromisoformat(value), time(), UTC)


_CONVERT: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(_DIGITS, int),
    **dict.fromkeys(_FLOATING, float),
    "string": _text,
    "timestamp": _moment,
}


def duckdb_type(kind: str) -> str:
    """The type as DuckDB has it; fields of a struct are told as `name: type`."""
    if kind.startswith("struct<"):
        fields = (one.split(": ") for one in kind[len("struct<") : -1].replace("`", '"').split(", "))
        return "STRUCT(" + ", ".join(f"{name} {duckdb_type(inner)}" for name, inner in fields) + ")"
    return _DUCKDB.get(kind, kind.upper())
