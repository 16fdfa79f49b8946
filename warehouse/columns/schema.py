"""The user's columns: the types of Spark and of Arrow as `events` stores them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import Field, Schema
from deltalake.schema import ArrayType, MapType, PrimitiveType

from tidemark.warehouse.errors import InputError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType as SparkStruct

_PLAIN = {
    *("boolean", "byte", "short", "integer", "long", "float", "double"),
    *("string", "binary", "date", "timestamp"),
}
_SQL = {"integer": "int", "long": "bigint", "short": "smallint", "byte": "tinyint"}

# Unsigned numbers have the type that holds them all, as Spark reads them from Parquet.
_OF_ARROW = {
    "bool": "boolean",
    "int8": "byte",
    "int16": "short",
    "int32": "integer",
    "int64": "long",
    "uint8": "short",
    "uint16": "integer",
    "uint32": "long",
    "uint64": "decimal(20,0)",
    "float": "float",
    "double": "double",
    **dict.fromkeys(("string", "large_string", "string_view"), "string"),
    **dict.fromkeys(("binary", "large_binary", "binary_view"), "binary"),
    **dict.fromkeys(("date32[day]", "date64[ms]"), "date"),
}

_LISTS = (pa.ListType, pa.LargeListType, pa.FixedSizeListType, pa.ListViewType, pa.LargeListViewType)
_DIGITS = 38  # of a decimal at most


def delta_fields(schema: SparkStruct | pa.Schema) -> list[Field]:
    """The columns as they are stored: each may be NULL, times without a zone become UTC instants.

    `schema` is Spark's or Arrow's. Raises InputError for a name that is there twice, and for a type that
    not every reader of Delta tables knows.
    """
    if isinstance(schema, pa.Schema):
        fields = [{"name": one.name, "type": _of_arrow(one.type)} for one in schema]
    else:
        fields = json.loads(schema.json())["fields"]
    names: set[str] = set()
    for field in fields:
        if field["name"].lower() in names:
            raise InputError(
                f"the column {field['name']!r} is there twice (upper and lower case are one). Rename it."
            )
        names.add(field["name"].lower())
        if field["type"] == "timestamp_ntz":
            field["type"] = "timestamp"
    return list(Schema.from_json(json.dumps(_struct(fields))).fields)


def column_types(fields: list[Field]) -> dict[str, str]:
    """The columns' types: Delta's names of plain ones, SQL's text of nested ones."""
    return {
        field.name: field.type.type if isinstance(field.type, PrimitiveType) else _sql(field.type)
        for field in fields
    }


def _sql(kind: Any) -> str:
    if isinstance(kind, PrimitiveType):
        return _SQL.get(kind.type, kind.type)
    if isinstance(kind, ArrayType):
        return f"array<{_sql(kind.element_type)}>"
    if isinstance(kind, MapType):
        return f"map<{_sql(kind.key_type)}, {_sql(kind.value_type)}>"
    return f"struct<{', '.join(f'{quoted(one.name)}: {_sql(one.type)}' for one in kind.fields)}>"


def quoted(name: str) -> str:
    """A column's name as SQL has it, whatever is in it."""
    return "`" + name.replace("`", "``") + "`"


def ddl(columns: Iterable[tuple[str, str]]) -> str:
    """Names and types, as `column_types` has them, as a schema for Spark's readers."""
    return ", ".join(f"{quoted(name)} {_SQL.get(kind, kind)}" for name, kind in columns)


def _struct(fields: list[dict[str, Any]]) -> dict[str, Any]:
    stored = [
        {"name": one["name"], "type": _type(one["type"], one["name"]), "nullable": True, "metadata": {}}
        for one in fields
    ]
    return {"type": "struct", "fields": stored}


def _type(kind: Any, column: str) -> Any:
    if isinstance(kind, dict):
        if kind["type"] == "struct":
            return _struct(kind["fields"])
        if kind["type"] == "array":
            return {"type": "array", "elementType": _type(kind["elementType"], column), "containsNull": True}
        if kind["type"] == "map":
            ends = {end: _type(kind[end], column) for end in ("keyType", "valueType")}
            return {"type": "map", **ends, "valueContainsNull": True}
        kind = kind["type"]
    if kind in _PLAIN or kind.startswith("decimal("):
        return kind
    if kind.startswith(("char(", "varchar(")):
        return "string"
    raise InputError(
        f"the column {column!r} is of type {kind}, which cannot be stored. Cast it in the input."
    )


def _of_arrow(kind: pa.DataType) -> Any:
    """The type as the JSON of Spark's schemas says it; Arrow's own name where that has none."""
    if pa.types.is_dictionary(kind):
        return _of_arrow(kind.value_type)
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    if pa.types.is_decimal(kind) and kind.precision <= _DIGITS and kind.scale >= 0:
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_fixed_size_binary(kind):
        return "binary"
    if pa.types.is_struct(kind):
        return {"type": "struct", "fields": [{"name": f.name, "type": _of_arrow(f.type)} for f in kind]}
    if pa.types.is_map(kind):
        return {"type": "map", "keyType": _of_arrow(kind.key_type), "valueType": _of_arrow(kind.item_type)}
    if isinstance(kind, _LISTS):
        return {"type": "array", "elementType": _of_arrow(kind.value_type)}
    return _OF_ARROW.get(str(kind), str(kind))
