"""The edge of the package: arrays from outside become float64 or int64 without any value changing.

A double holds integers up to 2**53 only, and an int64 column must never pass through one. What a sketch
keeps is native float64 without NaN and without -0.0, or native int64.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from tidemark.sketches.errors import InvalidInput

ValueArray = NDArray[Any]
"""An array of float64 or of int64."""

FLOAT64 = np.dtype(np.float64)
INT64 = np.dtype(np.int64)

# The integers that each dtype holds without a gap, both ends inclusive.
_EXACT_INTEGERS = {FLOAT64: (-(2**53), 2**53), INT64: (-(2**63), 2**63 - 1)}


def column_dtype(dtype: DTypeLike) -> np.dtype[Any]:
    """float64 or int64 as a numpy dtype; InvalidInput for all others."""
    try:
        result = np.dtype(dtype)
    except TypeError:
        result = np.dtype(object)
    if result not in _EXACT_INTEGERS:
        raise InvalidInput(f"got dtype {dtype!r}; expected float64 or int64; cast the column")
    return result


def as_column(array: ArrayLike, dtype: np.dtype[Any]) -> ValueArray:
    """`array`, of any shape, as `dtype` with every value unchanged; NaN and -0.0 stay as they are.

    Taken by float64: floats up to 64 bits, and integers within +-2**53. Taken by int64: integers that fit. An
    empty array of any dtype. Raises InvalidInput for everything else: booleans, objects, masked arrays,
    floats for int64.
    """
    if isinstance(array, np.ma.MaskedArray):
        raise InvalidInput("got a masked array; expected values only; pass array.compressed()")
    given = np.asarray(array)
    if given.dtype == dtype or given.size == 0:
        return given.astype(dtype, copy=False)
    if given.dtype.kind == "f" and given.dtype.itemsize <= 8 and dtype == FLOAT64:
        return given.astype(dtype)
    if given.dtype.kind not in "iu":
        raise InvalidInput(
            f"got values of dtype {given.dtype}; expected what {dtype} holds exactly; cast them"
        )
    low, high = _EXACT_INTEGERS[dtype]
    limits = np.iinfo(given.dtype)
    if limits.min < low or limits.max > high:
        smallest, largest = int(given.min()), int(given.max())
        if smallest < low or largest > high:
            raise InvalidInput(
                f"got integers from {smallest} to {largest}; {dtype} holds exactly {low} to {high}"
            )
    return given.astype(dtype)


def sorted_column(array: ArrayLike, dtype: np.dtype[Any]) -> ValueArray:
    """A one-dimensional `array` as a sorted copy of `dtype`; InvalidInput for NaN."""
    given = as_column(_one_dimensional(array), dtype)
    # numpy sorts NaN to the end, so one look is enough.
    return _without_nan(np.sort(given))


def checked_sorted(array: ArrayLike, dtype: DTypeLike | None) -> ValueArray:
    """A one-dimensional `array` that should be sorted, as `dtype`; InvalidInput if it is not, or for NaN.

    Without a dtype, integers become int64 and all else float64.
    """
    if dtype is None:
        dtype = INT64 if np.asarray(array).dtype.kind in "iu" else FLOAT64
    given = _without_nan(as_column(_one_dimensional(array), column_dtype(dtype)))
    descents = np.flatnonzero(~(given[:-1] <= given[1:]))
    if descents.size:
        at = int(descents[0])
        raise InvalidInput(
            f"got {given[at]} before {given[at + 1]} at index {at}; expected a sorted array; sort it first"
        )
    return given


def positive_zeros(values: ValueArray) -> ValueArray:
    """A copy of `values` in which -0.0 is 0.0. The two are equal, but their bytes differ."""
    positive: ValueArray = values + values.dtype.type(0)
    return positive


def as_contiguous(array: ValueArray) -> ValueArray:
    """`array` itself if it is contiguous and may be written, else a copy: what loops are compiled for."""
    plain: ValueArray = np.require(array, requirements=("C", "W"))
    return plain


def _one_dimensional(array: ArrayLike) -> ArrayLike:
    if np.ndim(array) != 1:
        raise InvalidInput(f"got an array of shape {np.shape(array)}; expected one dimension; ravel it")
    return array


def _without_nan(values: ValueArray) -> ValueArray:
    if values.size and np.isnan(values[-1]):
        raise InvalidInput(
            f"got {int(np.isnan(values).sum())} NaN among {values.size} values; expected none; "
            "the caller counts NaN apart, because NaN ranks after every number"
        )
    return values
