"""Calls from DuckDB: DuckDB's values as Python's, and rows of answers for DuckDB, both by JSON.

DuckDB passes the arguments of a call as one struct: its JSON text, and the text of its type. JSON alone does
not tell a decimal from a double, or a time from text. Times without a zone are UTC whatever the time zone of
the connection; those with one carry their offset.

A row of an answer is a JSON object. Numbers that JSON does not have, times and bytes are text in it, which
DuckDB casts to the type of the column. NaN stays NaN; only None is NULL.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from tidemark.query.sql.duckdb_types import Kind, parse_kind
from tidemark.query.sql.shown_types import Given
from tidemark.query.sql.sql_types import duckdb_type
from tidemark.warehouse.columns.column_types import ColumnType, Storage, sql_column_type
from tidemark.warehouse.columns.ticks import DAY_US
from tidemark.warehouse.errors import InputError, shortened

REFUSED = "!"  # the first character of a refusal, which takes the place of the first row

# DuckDB's types by the SQL name of the type that holds them; others keep their own name.
_SQL_NAMES = {
    "tinyint": "tinyint",
    "smallint": "smallint",
    "utinyint": "smallint",
    "integer": "int",
    "usmallint": "int",
    "bigint": "bigint",
    "uinteger": "bigint",
    "varchar": "string",
    "blob": "binary",
    "timestamp with time zone": "timestamp",
    "timestamp_s": "timestamp",
    "timestamp_ms": "timestamp",
}
_STRUCTS = {"window": ("start", "end"), "as_of": ("runs", "steps", "ledger")}


def read_arguments(values: str, kinds: str, *, bytes_as_text: bool) -> dict[str, Any]:
    r"""The arguments of a call by name.

    values, kinds: the struct of them as JSON, and its type.
    bytes_as_text: whether text is the text of bytes, as in DuckDB's `'\xAA'::BLOB`.
    """
    given: dict[str, Any] = json.loads(values, parse_float=Decimal)
    fields = dict(parse_kind(kinds).parts)
    return {name: _read(value, fields[name], bytes_as_text=bytes_as_text) for name, value in given.items()}


def given_points(kinds: str, subject: str) -> Given:
    """The type of the points or edges in the field `subject` of the struct of arguments."""
    kind = dict(parse_kind(kinds).parts).get(subject, Kind(None))  # while a macro is made there is no struct
    several = kind.name == "list"
    name = kind.parts[0][1].name if several else kind.name
    return Given(None if name is None else _SQL_NAMES.get(name, name), several)


def structure(columns: Sequence[tuple[str, str]]) -> str:
    """The columns as DuckDB's from_json takes them: bytes are text, which `unhex` reads."""
    return json.dumps({name: "VARCHAR" if kind == "binary" else duckdb_type(kind) for name, kind in columns})


def row_text(names: Sequence[str], row: Sequence[Any]) -> str:
    """A row as the text of a JSON object."""
    return json.dumps({name: _cell(name, value) for name, value in zip(names, row, strict=True)})


def _read(value: Any, kind: Kind, *, bytes_as_text: bool) -> Any:
    """A value in JSON, of a type of DuckDB, as Python has it."""
    if value is None or kind.name is None:
        return value
    if kind.name == "list":
        return [_read(item, kind.parts[0][1], bytes_as_text=bytes_as_text) for item in value]
    if kind.name in {"map", "struct"}:
        parts = dict(kind.parts) if kind.name == "struct" else dict.fromkeys(value, kind.parts[1][1])
        return {key: _read(item, parts[key], bytes_as_text=bytes_as_text) for key, item in value.items()}
    column = sql_column_type(_SQL_NAMES.get(kind.name, kind.name))
    if column is None:
        return value
    if column.is_text:
        return _bytes(value) if column.storage is Storage.BINARY or bytes_as_text else value
    return column.convert(value) if column.is_number else _moment(value, column)


def _bytes(text: str) -> bytes:
    r"""The bytes of DuckDB's text of a BLOB, in which \xAA is the byte AA."""
    if not text.isascii() or re.search(r"\\(?!x[0-9a-fA-F]{2})", text):
        raise InputError(f"not bytes: {shortened(text)}. Write bytes beyond ASCII as \\xAA, or give a BLOB.")
    plain = re.sub(r"\\x(..)", lambda found: chr(int(found[1], 16)), text)
    return plain.encode("latin-1")


def _moment(value: Any, column: ColumnType) -> Any:
    """A date or a time in UTC; the text of one beyond the years 1 to 9999, and a boolean, as they are."""
    if not isinstance(value, str):
        return value
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return value
    if column.unit_us == DAY_US:
        return moment.date()
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


def _cell(name: str, value: Any) -> Any:
    """A value of a column for JSON."""
    if name in _STRUCTS and isinstance(value, Mapping):  # of several warehouses
        return {site: _cell(name, of_site) for site, of_site in value.items()}
    if name in _STRUCTS and value is not None:
        return dict(zip(_STRUCTS[name], map(_plain, value), strict=True))
    return _plain(value)


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(sep=" ")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, str):  # bytes that are not UTF-8 have no text in DuckDB
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    if isinstance(value, Mapping):
        return {_plain(key): _plain(item) for key, item in value.items()}
    return str(value) if isinstance(value, int) and abs(value) >= 2**63 else value
