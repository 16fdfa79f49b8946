"""Column types of SQL functions: the measure's own type, or one that all measures widen to.

Type names are Spark's. The rules are those of Spark for the columns of a UNION: integers widen to the widest
one, integers or decimals with floating-point numbers to double, decimals to one that holds both, a date with
a timestamp to timestamp. Types without a common type become string.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

from tidemark.warehouse.columns.column_types import (
    DECIMAL_DIGITS,
    SQL_OF_TOKENS,
    ColumnType,
    column_type,
    decimal_type,
    sql_column_type,
)


def common_type(kinds: Sequence[str]) -> str:
    """The SQL type that all these Delta types widen to; at least one."""
    return reduce(_wider, map(column_type, kinds)).sql


def total_type(kind: str) -> str:
    """The SQL type of the sums of values of a SQL type; of times, which have no sum, it is double."""
    found = sql_column_type(kind)
    if found is not None and found.digits:
        return decimal_type(DECIMAL_DIGITS, found.scale).sql
    return kind if found is not None and found.is_text else "double"


def mean_type(kind: str) -> str:
    """The SQL type of the means of values of a SQL type."""
    found = sql_column_type(kind)
    return kind if found is not None and not found.is_number else "double"


def _wider(a: ColumnType, b: ColumnType) -> ColumnType:
    if a.name == b.name:
        return a
    if a.is_integer and b.is_integer:
        return max(a, b, key=lambda kind: kind.digits)
    if (a.is_double or b.is_double) and all(kind.is_double or kind.digits for kind in (a, b)):
        return column_type("double")
    if a.digits and b.digits:
        whole, scale = max(a.digits - a.scale, b.digits - b.scale), max(a.scale, b.scale)
        return decimal_type(min(DECIMAL_DIGITS, whole + scale), scale)
    if a.unit_us and b.unit_us:
        return min(a, b, key=lambda kind: kind.unit_us or 0)
    return column_type("string")


def converter(kind: str) -> Callable[[Any], Any]:
    """A function that converts a value of a measure or key to the SQL type; None stays None."""
    if kind == SQL_OF_TOKENS:
        return lambda value: None if value is None else {"token": str(value)}
    found = sql_column_type(kind)
    return lambda value: value if value is None or found is None else found.convert(value)


def duckdb_type(kind: str) -> str:
    """The DuckDB name of a SQL type: also of maps, and of structs, whose fields are written `name: type`."""
    if parts := _parts(kind, "map"):
        return f"MAP({', '.join(map(duckdb_type, parts))})"
    if parts := _parts(kind, "struct"):
        fields = (field.replace("`", '"').split(": ", 1) for field in parts)
        return "STRUCT(" + ", ".join(f"{name} {duckdb_type(inner)}" for name, inner in fields) + ")"
    found = sql_column_type(kind)
    return found.duckdb if found is not None and found.duckdb else kind.upper()


def spark_type(kind: str) -> Any:
    """The SQL type in the JSON form of Spark's schemas: also of maps and structs, as of `duckdb_type`."""
    if parts := _parts(kind, "map"):
        key, value = map(spark_type, parts)
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
    if parts := _parts(kind, "struct"):
        fields = [field.replace("`", "").split(": ", 1) for field in parts]
        return {"type": "struct", "fields": [spark_field(name, inner) for name, inner in fields]}
    found = sql_column_type(kind)
    return kind if found is None else found.name


def spark_field(name: str, kind: str) -> dict[str, Any]:
    """A column in the JSON form of Spark's schemas."""
    return {"name": name, "type": spark_type(kind), "nullable": True, "metadata": {}}


def _parts(kind: str, name: str) -> list[str]:
    """What stands in the angle brackets of a nested type with this name; empty for other types."""
    parts, depth = [""], 0
    for letter in kind[len(name) + 1 : -1] if kind.startswith(f"{name}<") else "":
        depth += (letter in "<(") - (letter in ">)")
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts if part]
