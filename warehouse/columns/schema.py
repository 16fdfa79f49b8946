"""Schemas of the user's columns: from Spark's or Arrow's types to the types that `events` stores."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import Field, Schema
from deltalake.schema import ArrayType, MapType, PrimitiveType

from tidemark.warehouse.columns.arrow_types import plain_type
from tidemark.warehouse.columns.column_types import arrow_column_type, column_type, find_column_type, sql_name
from tidemark.warehouse.errors import InputError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType as SparkStruct

_LISTS = (pa.ListType, pa.LargeListType, pa.FixedSizeListType, pa.ListViewType, pa.LargeListViewType)
_COLLATIONS = "__COLLATIONS"  # Spark's metadata of a field that has some
_NO_ZONE = "timestamp_ntz"  # Spark's type of timestamps without a zone


def delta_fields(schema: SparkStruct | pa.Schema) -> list[Field]:
    """The fields of `events` for a schema of Spark or Arrow.

    Every field may be NULL. Timestamps without a zone become UTC instants. InputError for a name that occurs
    twice, in any case, for a type that not every reader of Delta tables knows, and for text with a collation
    of Spark, which makes different texts equal: keys and conditions compare the bytes.
    """
    if isinstance(schema, pa.Schema):
        fields = [{"name": field.name, "type": _of_arrow(field.type)} for field in schema]
    else:
        fields = json.loads(schema.json())["fields"]
    names: set[str] = set()
    for field in fields:
        if field["name"].lower() in names:
            raise InputError(
                f"the column {field['name']!r} is there twice (upper and lower case are one). Rename it."
            )
        names.add(field["name"].lower())
        if field["type"] == _NO_ZONE:
            field["type"] = "timestamp"
    return list(Schema.from_json(json.dumps(_struct(fields))).fields)


def column_types(fields: list[Field]) -> dict[str, str]:
    """The types of the columns by name: Delta's names of plain types, SQL's text of nested types."""
    return {
        field.name: field.type.type if isinstance(field.type, PrimitiveType) else _sql(field.type)
        for field in fields
    }


def _sql(kind: Any) -> str:
    if isinstance(kind, PrimitiveType):
        return sql_name(kind.type)
    if isinstance(kind, ArrayType):
        return f"array<{_sql(kind.element_type)}>"
    if isinstance(kind, MapType):
        return f"map<{_sql(kind.key_type)}, {_sql(kind.value_type)}>"
    return f"struct<{', '.join(f'{quoted(field.name)}: {_sql(field.type)}' for field in kind.fields)}>"


def arrow_fields(types: Mapping[str, str]) -> list[pa.Field]:
    """The fields of columns, given by name and plain type of Delta, as Arrow reads them from `events`."""
    kinds = [Field(name, PrimitiveType(column_type(kind).delta)) for name, kind in types.items()]
    return [pa.field(one.name, plain_type(one.type)) for one in pa.schema(Schema(kinds))]


def arrow_schema_of(spark: SparkSession, columns: Iterable[tuple[str, str]]) -> pa.Schema:
    """The Arrow schema of names and types as `column_types` returns them; Spark parses nested types."""
    return pa.schema(Schema(delta_fields(spark.createDataFrame([], ddl(columns)).schema)))


def quoted(name: str) -> str:
    """The name of a column quoted for Spark's SQL, whatever characters it has."""
    return "`" + name.replace("`", "``") + "`"


def ddl(columns: Iterable[tuple[str, str]]) -> str:
    """A schema for Spark's readers, from names and types as `column_types` returns them."""
    return ", ".join(f"{quoted(name)} {sql_name(kind)}" for name, kind in columns)


def _struct(fields: list[dict[str, Any]]) -> dict[str, Any]:
    for field in fields:
        if collations := field.get("metadata", {}).get(_COLLATIONS):
            found, name = ", ".join(sorted(set(collations.values()))), field["name"]
            raise InputError(
                f"the column {name!r} has the collation {found}. tidemark compares text byte by byte: give "
                f"COLLATE({quoted(name)}, 'UTF8_BINARY'), or LOWER of that to ignore case."
            )
    nullable = [
        {"name": name, "type": _stored_type(kind, name), "nullable": True, "metadata": {}}
        for name, kind in ((field["name"], field["type"]) for field in fields)
    ]
    return {"type": "struct", "fields": nullable}


def _stored_type(kind: Any, column: str) -> Any:
    """The type that `events` stores, as JSON of Delta's schemas; `kind` is JSON of Spark's schemas."""
    if isinstance(kind, dict):
        if kind["type"] == "struct":
            return _struct(kind["fields"])
        if kind["type"] == "array":
            elements = _stored_type(kind["elementType"], column)
            return {"type": "array", "elementType": elements, "containsNull": True}
        if kind["type"] == "map":
            ends = {end: _stored_type(kind[end], column) for end in ("keyType", "valueType")}
            return {"type": "map", **ends, "valueContainsNull": True}
        kind = kind["type"]
    if find_column_type(kind) is not None:
        return kind
    if kind.startswith(("char(", "varchar(")):
        return "string"
    raise InputError(
        f"the column {column!r} is of type {kind}, which cannot be stored. Cast it in the input."
    )


def _of_arrow(kind: pa.DataType) -> Any:
    """The type as JSON of Spark's schemas; Arrow's own name of a type that Spark does not have."""
    if pa.types.is_dictionary(kind):
        return _of_arrow(kind.value_type)
    if pa.types.is_timestamp(kind) and not kind.tz:
        return _NO_ZONE
    if pa.types.is_struct(kind):
        return {"type": "struct", "fields": [{"name": f.name, "type": _of_arrow(f.type)} for f in kind]}
    if pa.types.is_map(kind):
        return {"type": "map", "keyType": _of_arrow(kind.key_type), "valueType": _of_arrow(kind.item_type)}
    if isinstance(kind, _LISTS):
        return {"type": "array", "elementType": _of_arrow(kind.value_type)}
    found = arrow_column_type(kind)
    return str(kind) if found is None else found.name
