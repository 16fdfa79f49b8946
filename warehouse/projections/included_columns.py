"""The columns of an index: from rows of `events` to what its runs store, and back.

A column is stored as a key is, as BIGINT, DOUBLE, text or bytes, but each value stays as it was written: NULL
is NULL, and -0.0 is not 0.0. So a row is decoded as `events` has it, in the types that the columns have now.
In memory, a stored column is an Arrow array of int64, double or large binary.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidemark.warehouse.columns.arrow_buffers import arrow_array, validity, zero_for_null
from tidemark.warehouse.columns.keys import Key, as_names
from tidemark.warehouse.columns.schema import arrow_fields
from tidemark.warehouse.columns.value_encoding import as_numpy, as_numpy_bools, encode_column, single_array


def stored_column(key: Key, array: pa.Array) -> pa.Array:
    """A column of `events` as it is stored: of the key's own type, of a dictionary of it, or of type null."""
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), pa.large_binary() if key.is_text else key.stored_type)
    if key.is_text:
        return as_names(array.dictionary_decode() if pa.types.is_dictionary(array.type) else array)
    if key.is_double:
        return array.cast(pa.float64())
    column = encode_column(key.column_type, array)
    return arrow_array(column.stored, column.null)


def stored_numbers(key: Key, array: pa.Array) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """A column of numbers as it is stored, and which are NULL; these are undefined. All NaN are one."""
    if not key.is_double or pa.types.is_null(array.type):
        column = encode_column(key.column_type, array)
        return column.stored, column.null
    doubles: NDArray[np.float64] = as_numpy(zero_for_null(array.cast(pa.float64())))
    nan = np.isnan(doubles)
    return np.where(nan, np.nan, doubles) if nan.any() else doubles, as_numpy_bools(array.is_null())


def read_column(key: Key, stored: Any) -> pa.Array:
    """A stored column of a file, as `columns_by_name` returns it, in the form that it has in memory."""
    if isinstance(stored, np.ndarray):
        return arrow_array(stored)
    array = single_array(stored)
    if not key.is_text:
        return array
    return as_names(array.dictionary_decode() if pa.types.is_dictionary(array.type) else array)


def decoded_column(key: Key, stored: pa.Array) -> pa.Array:
    """A stored column in memory as `events` has it."""
    kind = _type_in_events(key.type)
    if key.is_text:
        return stored.view(pa.large_string()) if kind == pa.string() else stored
    if pa.types.is_decimal(kind):
        numbers = as_numpy(zero_for_null(stored))
        words = np.ascontiguousarray(np.stack([numbers, numbers >> 63], axis=1))  # the low and the high word
        null = as_numpy_bools(stored.is_null()) if stored.null_count else None
        return pa.Array.from_buffers(kind, len(stored), [validity(null), pa.py_buffer(words)])
    if pa.types.is_date32(kind):
        return stored.cast(pa.int32()).view(kind)
    return stored.view(kind) if pa.types.is_timestamp(kind) else stored.cast(kind)


@cache
def _type_in_events(type_name: str) -> pa.DataType:
    (field,) = arrow_fields({"column": type_name})
    return field.type
