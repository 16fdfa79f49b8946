"""Single values of Arrow, built from buffers: pa.array and pa.scalar would import pandas."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


def integer(value: int) -> pa.Scalar:
    """The int64 scalar."""
    return _one(pa.int64(), [value.to_bytes(8, "little", signed=True)])[0]


def text(value: str) -> pa.Scalar:
    """The string scalar."""
    data = value.encode()
    return _one(pa.string(), [bytes(4) + len(data).to_bytes(4, "little"), data])[0]


def zero_for_null(array: pa.Array) -> pa.Array:
    """The array of numbers with 0 for NULL."""
    return pc.fill_null(array, _ZERO.cast(array.type)[0])


def empty_for_null(array: pa.Array) -> pa.Array:
    """The array of texts or bytes with the empty one for NULL."""
    return pc.fill_null(array, _EMPTY.cast(array.type)[0])


def _one(kind: pa.DataType, buffers: list[bytes]) -> pa.Array:
    return pa.Array.from_buffers(kind, 1, [None, *map(pa.py_buffer, buffers)])


_ZERO, _EMPTY = _one(pa.int64(), [bytes(8)]), _one(pa.binary(), [bytes(8), b""])
