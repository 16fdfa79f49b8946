"""Input validation: arrays of callers become float64 or int64 without changing any value.

float64 represents integers exactly only up to 2**53, so an int64 column is never converted to float64 on the
way. Sketches store float64 without NaN and without -0.0, or int64, both in native byte order.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from tidemark.sketches.errors import InvalidInput

ValueArray = NDArray[Any]
"""An array of the values of a column: float64 or int64."""

FLOAT64 = np.dtype(np.float64)
INT64 = np.dtype(np.int64)

# The range in which each dtype represents every integer exactly, both ends inclusive.
_EXACT_INTEGERS = {FLOAT64: (-(2**53), 2**53), INT64: (-(2**63), 2**63 - 1)}


def checked_digests(digests: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """`digests`; InvalidInput unless they are a one-dimensional array of uint64."""
    if not isinstance(digests, np.ndarray) or digests.dtype != np.uint64 or digests.ndim != 1:
        type_name = getattr(digests, "dtype", type(digests).__name__)
        raise InvalidInput(
            f"got digests of {type_name}, shape {np.shape(digests)}; "
            "expected a one-dimensional array of uint64; use digest(keys)"
        )
    return digests


def column_dtype(dtype: DTypeLike) -> np.dtype[Any]:
    """`dtype` as a numpy dtype; InvalidInput unless it is float64 or int64."""
    try:
        result = np.dtype(dtype)
    except TypeError:
        result = np.dtype(object)
    if result not in _EXACT_INTEGERS:
        raise InvalidInput(f"got dtype {dtype!r}; expected float64 or int64; cast the column")
    return result


def as_column(array: ArrayLike, dtype: np.dtype[Any]) -> ValueArray:
    """`array`, of any shape, as `dtype` with every value unchanged; NaN and -0.0 are kept.

    float64 accepts floats of at most 64 bits, and integers from -2**53 to 2**53. int64 accepts integers that
    fit. Both accept empty arrays of any dtype. Raises InvalidInput for everything else: booleans, objects,
    masked arrays, and floats for int64. Copies only if the dtype changes.
    """
    if isinstance(array, np.ma.MaskedArray):
        raise InvalidInput("got a masked array; expected values only; pass array.compressed()")
    values = np.asarray(array)
    if values.dtype == dtype or values.size == 0:
        return values.astype(dtype, copy=False)
    if values.dtype.kind == "f" and values.dtype.itemsize <= 8 and dtype == FLOAT64:
        return values.astype(dtype)
    if values.dtype.kind not in "iu":
        raise InvalidInput(
            f"got values of dtype {values.dtype}; expected values that {dtype} holds exactly; cast them"
        )
    low, high = _EXACT_INTEGERS[dtype]
    limits = np.iinfo(values.dtype)
    if limits.min < low or limits.max > high:
        smallest, largest = int(values.min()), int(values.max())
        if smallest < low or largest > high:
            raise InvalidInput(
                f"got integers from {smallest} to {largest}; {dtype} holds exactly {low} to {high}"
            )
    return values.astype(dtype)


def sorted_column(array: ArrayLike, dtype: np.dtype[Any]) -> ValueArray:
    """A one-dimensional `array` as a sorted copy of `dtype`; InvalidInput for NaN. O(n log n)."""
    values = as_column(_one_dimensional(array), dtype)
    return _without_nan(np.sort(values))


def checked_sorted(array: ArrayLike, dtype: DTypeLike | None) -> ValueArray:
    """A one-dimensional sorted `array` as `dtype`; InvalidInput if it is not sorted, or for NaN. O(n).

    dtype: None means int64 for integers and float64 for everything else.
    """
    if dtype is None:
        dtype = INT64 if np.asarray(array).dtype.kind in "iu" else FLOAT64
    values = _without_nan(as_column(_one_dimensional(array), column_dtype(dtype)))
    descents = np.flatnonzero(~(values[:-1] <= values[1:]))
    if descents.size:
        i = int(descents[0])
        raise InvalidInput(
            f"got {values[i]} before {values[i + 1]} at index {i}; expected a sorted array; sort it first"
        )
    return values


def positive_zeros(values: ValueArray) -> ValueArray:
    """A copy of `values` with -0.0 replaced by 0.0. The two are equal, but their bytes differ."""
    positive: ValueArray = values + values.dtype.type(0)
    return positive


def as_contiguous(array: ValueArray) -> ValueArray:
    """`array` if it is contiguous and writable, else a copy: compiled loops accept no other arrays."""
    contiguous: ValueArray = np.require(array, requirements=("C", "W"))
    return contiguous


def _one_dimensional(array: ArrayLike) -> ArrayLike:
    if np.ndim(array) != 1:
        raise InvalidInput(f"got an array of shape {np.shape(array)}; expected one dimension; ravel it")
    return array


def _without_nan(values: ValueArray) -> ValueArray:
    """`values`, which are sorted, with NaN last; InvalidInput if there is NaN."""
    if values.size and np.isnan(values[-1]):
        raise InvalidInput(
            f"got {int(np.isnan(values).sum())} NaN among {values.size} values; expected none; "
            "the caller counts NaN apart: filter NaN out, because it has no rank among numbers"
        )
    return values
