"""Column types of SQL functions: the measure's own type, or one that all measures widen to.

Type names are Spark's. The rules are those of Spark for the columns of a UNION: integers widen to the widest
one, integers or decimals with floating-point numbers to double, decimals to one that holds both, a date with
a timestamp to timestamp. Types without a common type become string.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import reduce
from typing import Any

_NAMES = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint"}
_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}  # digits as a decimal, as Spark defines them
_FLOATING = {"float", "double"}
_DECIMAL = re.compile(r"decimal\((\d+), ?(-?\d+)\)")
_DUCKDB = {"string": "VARCHAR", "binary": "BLOB", "timestamp": "TIMESTAMPTZ"}


def sql_type(kind: str) -> str:
    """The SQL name of a Delta type."""
    return _NAMES.get(kind, kind)


def common_type(kinds: Sequence[str]) -> str:
    """The SQL type that all these Delta types widen to; at least one."""
    return reduce(_wider, map(sql_type, kinds))


def _wider(a: str, b: str) -> str:
    if a == b:
        return a
    both = {a, b}
    if both <= _DIGITS.keys():
        return max(both, key=_DIGITS.__getitem__)
    if both & _FLOATING and all(kind in _FLOATING or _decimal_digits(kind) for kind in both):
        return "double"
    first, second = _decimal_digits(a), _decimal_digits(b)
    if first and second:
        whole, scale = max(first[0], second[0]), max(first[1], second[1])
        return f"decimal({min(38, whole + scale)},{scale})"
    return "timestamp" if both == {"date", "timestamp"} else "string"


def _decimal_digits(kind: str) -> tuple[int, int] | None:
    """Digits before and after the decimal point of an integer or decimal type; None for other types."""
    if kind in _DIGITS:
        return _DIGITS[kind], 0
    match = _DECIMAL.fullmatch(kind)
    return (int(match[1]) - int(match[2]), int(match[2])) if match else None


def converter(kind: str) -> Callable[[Any], Any]:
    """A function that converts a value of a measure or key to the SQL type; None stays None."""
    convert: Callable[[Any], Any] = _CONVERT.get(kind, Decimal if kind.startswith("decimal") else _same)
    return lambda value: None if value is None else convert(value)


def _same(value: Any) -> Any:
    return value


def _to_text(value: Any) -> str:
    if isinstance(value, datetime):
        return value.astimezone(UTC).replace(tzinfo=None).isoformat(sep=" ")
    return str(value)


def _to_timestamp(value: Any) -> datetime:
    if isinstance(value, datetime):
        return value
    return datetime.combine(value if isinstance(value, date) else date.fromisoformat(value), time(), UTC)


_CONVERT: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(_DIGITS, int),
    **dict.fromkeys(_FLOATING, float),
    "string": _to_text,
    "timestamp": _to_timestamp,
}


def duckdb_type(kind: str) -> str:
    """The DuckDB name of a SQL type; the fields of a struct are written as `name: type`."""
    if kind.startswith("struct<"):
        fields = (field.split(": ") for field in kind[len("struct<") : -1].replace("`", '"').split(", "))
        return "STRUCT(" + ", ".join(f"{name} {duckdb_type(inner)}" for name, inner in fields) + ")"
    return _DUCKDB.get(kind, kind.upper())
