"""Arrow tables, arrays and scalars from buffers: pa.table, pa.array and pa.scalar would import pandas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidemark.warehouse.columns.arrow_types import TextNames


def arrow_array(numbers: NDArray[Any], null: NDArray[np.bool_] | None = None) -> pa.Array:
    """The numbers as an Arrow array, NULL where `null` is set; without a copy if they are contiguous."""
    contiguous = np.ascontiguousarray(numbers)
    kind = pa.from_numpy_dtype(contiguous.dtype)
    return pa.Array.from_buffers(kind, len(contiguous), [validity(null), pa.py_buffer(contiguous)])


def arrow_bools(bools: NDArray[np.bool_]) -> pa.Array:
    """The booleans as an Arrow array, such as a filter of rows."""
    packed = np.packbits(bools, bitorder="little")
    return pa.Array.from_buffers(pa.bool_(), len(bools), [None, pa.py_buffer(packed)])


def validity(null: NDArray[np.bool_] | None) -> pa.Buffer | None:
    """The buffer of an Arrow array that says which of its items are NULL; None if none is."""
    if null is None or not null.any():
        return None
    return pa.py_buffer(np.packbits(~null, bitorder="little"))


def arrow_table(columns: Mapping[str, NDArray[Any] | pa.Array]) -> pa.Table:
    """A table of columns of one length: numbers, or Arrow arrays."""
    arrays = [arrow_array(one) if isinstance(one, np.ndarray) else one for one in columns.values()]
    return pa.Table.from_arrays(arrays, list(columns))


def binary_array(texts: Sequence[bytes]) -> TextNames:
    """The texts as an array of large binary."""
    ends = np.cumsum([0, *map(len, texts)], dtype=np.int64)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(texts))]
    array: TextNames = pa.Array.from_buffers(pa.large_binary(), len(texts), buffers)
    return array


def integer(value: int) -> pa.Scalar:
    """The int64 scalar."""
    return arrow_array(np.array([value]))[0]


def text(value: str) -> pa.Scalar:
    """The string scalar."""
    return binary_array([value.encode()])[0].cast(pa.string())


def zero_for_null(array: pa.Array) -> pa.Array:
    """The array of numbers with 0 for NULL."""
    return pc.call_function("coalesce", [array, _zero(array.type)]) if array.null_count else array


def empty_for_null(array: pa.Array) -> pa.Array:
    """The array of texts or bytes with the empty one for NULL."""
    return pc.call_function("coalesce", [array, _empty(array.type)]) if array.null_count else array


@cache
def _zero(kind: pa.DataType) -> pa.Scalar:
    return integer(0).cast(kind)


@cache
def _empty(kind: pa.DataType) -> pa.Scalar:
    return binary_array([b""])[0].cast(kind)
