"""The columns that an index includes: from rows of `events` to names of keys, and back.

Names have no NULL, and one zero for 0.0 and -0.0 (columns/keys.py). The *traits* of a row tell them apart:
bit 0 is set if the value of the indexed column is -0.0, and of the i-th included column, counted from 1,

    bit 2i - 1   if the value is NULL; its name is then 0, or the empty text
    bit 2i       if the value is -0.0

So a row is decoded as it was written, in the types that the columns have now.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidemark.warehouse.columns.arrow_buffers import arrow_array, binary_array, zero_for_null
from tidemark.warehouse.columns.keys import (
    Key,
    Names,
    encode_keys,
    join_names,
    stored_keys,
    take_names,
)
from tidemark.warehouse.columns.schema import arrow_fields
from tidemark.warehouse.columns.value_encoding import as_numpy, single_array

TRAITS = Key("traits of row", "long")  # Delta refuses such a name for a column

Ints = NDArray[np.int64]


def encode_included(keys: Sequence[Key], events: pa.Table, kept: Ints) -> list[Names]:
    """The names of the included columns of the kept rows, and their traits.

    keys: the indexed column, and the included ones.
    """
    traits = _negative_zero(keys[0], single_array(events.column(keys[0].name)), kept)
    found: list[Names] = []
    for number, key in enumerate(keys[1:], 1):
        array = single_array(events.column(key.name))
        column = encode_keys(key, array)
        null = column.null[kept]
        traits |= null.astype(np.int64) << (2 * number - 1)
        traits |= _negative_zero(key, array, kept) << (2 * number)
        rows = kept if column.codes is None else column.codes[kept]
        if isinstance(column.names, np.ndarray):
            found.append(np.where(null, 0, column.names[rows]))
        else:
            names = join_names([column.names, binary_array([b""])])
            found.append(take_names(names, np.where(null, len(names) - 1, rows)))
    return [*found, traits]


def decode_included(number: int, key: Key, names: Names, traits: Ints) -> pa.Array:
    """A column of rows as `events` has it.

    number: 0 for the indexed column, that of an included one. names, traits: those of each row.
    """
    (field,) = arrow_fields({key.name: key.type})
    values = _decoded(key, names, traits >> (2 * number) & 1, field.type)
    null = (traits >> (2 * number - 1) & 1).astype(bool) if number else np.zeros(len(traits), bool)
    if not null.any():
        return values
    mask = arrow_array(null.astype(np.uint8)).cast(pa.bool_())
    return pc.if_else(mask, pa.nulls(len(traits), values.type), values)


def _negative_zero(key: Key, array: pa.Array, kept: Ints) -> Ints:
    """1 for each kept row whose value is -0.0."""
    if not key.is_double or pa.types.is_null(array.type):
        return np.zeros(len(kept), np.int64)
    values: NDArray[np.float64] = as_numpy(zero_for_null(array))[kept]
    found: Ints = ((values == 0) & np.signbit(values)).astype(np.int64)
    return found


def _decoded(key: Key, names: Names, negative: Ints, kind: pa.DataType) -> pa.Array:
    """Names as an Arrow array of the type."""
    if not isinstance(names, np.ndarray):
        texts: pa.Array = names
        return texts.view(pa.large_string() if kind == pa.string() else pa.large_binary())
    if key.is_double:
        values = as_numpy(stored_keys(key, names))
        return arrow_array(np.where(negative == 1, -0.0, values)).cast(kind)
    if pa.types.is_decimal(kind):
        words = np.stack([names, names >> 63], axis=1)  # the low and the high word of each
        return pa.Array.from_buffers(kind, len(names), [None, pa.py_buffer(np.ascontiguousarray(words))])
    numbers = arrow_array(names)
    if pa.types.is_date32(kind):
        return numbers.cast(pa.int32()).view(kind)
    return numbers.view(kind) if pa.types.is_timestamp(kind) else numbers.cast(kind)
