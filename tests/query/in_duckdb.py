"""A question in Python and in DuckDB's SQL: values as literals, the rows, or what a refusal says; files."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from itertools import product
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

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


def damage_for_duckdb(path: Path) -> None:
    """Turns a bit of a Parquet file that our reader passes over, and for which DuckDB refuses the file."""
    true, good = str(pq.ParquetFile(path).read().to_pylist()), path.read_bytes()
    for place, bit in product(range(len(good) - 12, 4, -7), range(8)):
        path.write_bytes(good[:place] + bytes([good[place] ^ 1 << bit]) + good[place + 1 :])
        try:
            found = pq.ParquetFile(path, page_checksum_verification=True).read().to_pylist()
            if str(found) != true:  # NaN as well
                continue
        except (pa.ArrowException, OSError, ValueError):
            continue
        try:
            duckdb.read_parquet(str(path)).fetchall()
        except duckdb.Error:
            return
    raise AssertionError("there is no such bit")
