"""The target rank of a quantile, in exact arithmetic.

For phi in [0, 1] over n >= 1 elements, r = max(1, ceil(phi * n)). The exact phi-quantile is the smallest
element x with rank_le(x) >= r. A float phi means the decimal number that it prints as: in binary, 0.07 * 100
is slightly above 7 and its ceiling would be 8. O(1).
"""

from decimal import Decimal
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from tidemark.sketches.errors import EmptySketch, InvalidInput

_FITS = 2**62  # products of integers below this are computed by numpy

Phi = int | float | Decimal | Fraction | np.floating | np.integer


def target_rank(phi: Phi, n: int) -> int:
    """The rank of the phi-quantile of n elements, from 1 to n.

    >>> target_rank(0.07, 100)
    7

    Raises InvalidInput if phi is not a number in [0, 1], EmptySketch if n is 0.
    """
    numerator, denominator = _checked_ratio(phi, n)
    return max(1, -(-numerator * int(n) // denominator))  # rounded up


def target_ranks(phi: Phi, sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """`target_rank` for each of several numbers of elements, an array of any shape."""
    if not sizes.size:
        return sizes
    numerator, denominator = _checked_ratio(phi, int(sizes.min()))
    fits = max(numerator * int(sizes.max()), denominator) < _FITS
    exact = sizes if fits else sizes.astype(object)
    ranks: NDArray[np.int64] = np.maximum(1, -(-numerator * exact // denominator)).astype(np.int64)
    return ranks


def _checked_ratio(phi: Phi, n: int) -> tuple[int, int]:
    """Phi as numerator and denominator, for at least n elements."""
    numerator, denominator = _exact_ratio(phi)
    if not 0 <= numerator <= denominator:
        raise InvalidInput(f"got phi = {phi}; expected 0 <= phi <= 1; divide a percentile by 100")
    if n < 1:
        raise EmptySketch(f"got n = {n}; a quantile needs at least one element; add values first")
    return numerator, denominator


def _exact_ratio(phi: Phi) -> tuple[int, int]:
    """Phi as numerator and denominator; a float is read as the shortest decimal number that rounds to it."""
    # bool is a subclass of int, but quantile(True) is a mistake.
    if isinstance(phi, bool) or not isinstance(phi, Phi):
        raise InvalidInput(f"got phi = {phi!r}; expected a number in [0, 1], such as 0.99")
    exact = phi if isinstance(phi, int | Decimal | Fraction) else Decimal(str(phi))
    try:
        return exact.as_integer_ratio()
    except (ValueError, OverflowError) as not_finite:
        raise InvalidInput(f"got phi = {phi}; expected a finite number in [0, 1]") from not_finite
