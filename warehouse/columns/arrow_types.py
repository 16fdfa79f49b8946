"""One Arrow type for each of Delta's types, whatever Arrow types a writer left in a Parquet file.

A writer may store its Arrow schema in the file, and pyarrow then returns columns of those types: delta-rs
leaves views of text where it rewrites files, other writers large text or dictionaries. Few of Arrow's compute
functions accept views. So columns read from `events` are cast to one plain type:

    string      from string, large_string, string_view and dictionaries of them
    binary      from binary, large_binary, binary_view and dictionaries of them
    timestamp   to microseconds in UTC, from any unit, with or without a zone

Lists, structs and maps of these types are cast likewise. Other types stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Protocol, overload

import pyarrow as pa

_UTC = pa.timestamp("us", tz="UTC")
_PLAIN = {kind.id for kind in (pa.int32(), pa.int64(), pa.float32(), pa.float64())}  # of most columns


class TextNames(Protocol):
    """The used part of an Arrow array of binary or large binary without NULL; pyarrow itself has no types."""

    def __len__(self) -> int: ...

    @overload
    def __getitem__(self, key: int) -> pa.Scalar: ...

    @overload
    def __getitem__(self, key: slice) -> TextNames: ...

    @property
    def nbytes(self) -> int:
        """The bytes of its memory."""

    def take(self, indices: pa.Array) -> TextNames:
        """The items at the indices."""

    def cast(self, target_type: pa.DataType) -> pa.Array:
        """The items as another type."""

    def equals(self, other: TextNames) -> bool:
        """Whether both have the same type and the same items."""

    def dictionary_encode(self) -> pa.DictionaryArray:
        """The distinct items in the order in which they first appear, and for each item its index."""

    def to_pylist(self) -> list[bytes]:
        """The items as Python's bytes."""


@cache
def plain_type(kind: pa.DataType) -> pa.DataType:
    """The plain type of a column of this type."""
    if pa.types.is_dictionary(kind):
        return plain_type(kind.value_type)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_timestamp(kind):
        return _UTC
    if pa.types.is_struct(kind):
        return pa.struct([_plain_field(field) for field in kind.fields])
    if pa.types.is_map(kind):
        return pa.map_(_plain_field(kind.key_field), _plain_field(kind.item_field))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or _is_list_view(kind):
        return pa.list_(_plain_field(kind.value_field))
    return kind


def with_plain_types(rows: pa.Table, coded: Sequence[str] = ()) -> pa.Table:
    """The rows with columns of plain types. The columns named in `coded` become dictionaries of these.

    A column of Arrow's type null keeps this type.
    """
    for i, field in enumerate(rows.schema):
        if field.type.id in _PLAIN and field.name not in coded:
            continue
        kind = plain_type(field.type)
        column = rows.column(i)
        if pa.types.is_null(kind):
            continue
        if field.name in coded:
            if field.type == pa.dictionary(pa.int32(), kind):
                continue
            column = _decoded(column, kind).dictionary_encode()
        elif field.type != kind:
            column = _decoded(column, kind)
        else:
            continue
        rows = rows.set_column(i, field.name, column)
    return rows


def with_columns_of(schema: pa.Schema, rows: pa.Table, coded: Sequence[str] = ()) -> pa.Table:
    """The columns of the schema, in its types; missing columns are NULL. Other columns are left out.

    Those named in `coded` stay as they are.
    """
    columns = [rows.column(field.name) if field.name in coded else column_of(field, rows) for field in schema]
    fields = [field.with_type(column.type) for field, column in zip(schema, columns, strict=True)]
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def column_of(field: pa.Field, rows: pa.Table) -> pa.ChunkedArray:
    """The column with the field's name, in the field's type; NULL if the rows lack it."""
    if field.name not in rows.column_names:
        return null_column(rows.num_rows, field.type)
    return typed(rows.column(field.name), field.type)


def null_column(rows: int, kind: pa.DataType) -> pa.ChunkedArray:
    """A column of so many NULL."""
    return pa.chunked_array([pa.nulls(rows, kind)])


def typed(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """The column cast to a type, also one of Arrow's type null, which Arrow itself casts to few types."""
    return null_column(len(column), kind) if pa.types.is_null(column.type) else column.cast(kind)


def _decoded(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if not pa.types.is_dictionary(column.type):
        return column.cast(kind)
    # Arrow has no cast from a dictionary of views.
    parts = [chunk.dictionary.cast(kind).take(chunk.indices) for chunk in column.chunks]
    return pa.chunked_array(parts, kind)


def _is_list_view(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind))


def _plain_field(field: pa.Field) -> pa.Field:
    return field.with_type(plain_type(field.type))
