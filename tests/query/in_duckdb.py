"""A question in Python and in DuckDB's SQL: values as literals, and the rows, or what a refusal says."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from typing import Any

from tidemark import query
from tidemark.warehouse.errors import InputError


def literal(value: Any) -> str:
    """The value in DuckDB's SQL."""
    if isinstance(value, list):
        return f"[{', '.join(map(literal, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{name!r}: {literal(item)}' for name, item in value.items())}}}"
    if isinstance(value, datetime):
        return f"TIMESTAMPTZ '{value.isoformat(sep=' ')}'"
    if isinstance(value, date):
        return f"DATE '{value.isoformat()}'"
    if isinstance(value, float):
        return f"'{value!r}'::DOUBLE"
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value)


def in_python(ask: Callable[[], Any]) -> Any:
    """What it returns, or the text of a refusal."""
    try:
        return ask()
    except InputError as refusal:
        return str(refusal)


def in_sql(wh: query.Warehouse, text: str) -> Any:
    """The rows, or the text of a refusal."""
    try:
        return wh.sql(text).fetchall()
    except InputError as refusal:
        return str(refusal)
