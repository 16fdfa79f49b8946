"""Codes: small integers in place of ticks, names or windows, and the order of rows by these codes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[np.int64]

_MAX_CODES = 2**60  # codes times kinds fit into 64 bits


def unique_codes(numbers: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Ascending numbers that include all of `numbers`, and for each number its index among them.

    If the numbers lie close together, every number of their range is included, which takes O(n) and no sort:
    (5, 9, 5, 6, 7) has the numbers (5, 6, 7, 8, 9) and the indices (0, 4, 0, 1, 2). Otherwise O(n log n).
    """
    if not len(numbers):
        return numbers, numbers
    low, high = int(numbers.min()), int(numbers.max())
    if high - low <= len(numbers):
        return low + np.arange(high - low + 1), numbers - low  # arange(low, high + 1) might overflow int64
    unique, codes = np.unique(numbers, return_inverse=True)
    return unique, codes


def expand_ranges(
    starts: NDArray[np.integer[Any]], stops: NDArray[np.integer[Any]]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """All indices of several ranges: for each the number of its range, and the index itself.

    starts, stops: where each range starts and ends, the end exclusive. The ranges (3, 5) and (7, 8) have the
    numbers (0, 0, 1) and the indices (3, 4, 7).
    """
    lengths = stops - starts
    owners = np.repeat(np.arange(len(lengths)), lengths)
    return owners, np.arange(len(owners)) + np.repeat(starts - np.cumsum(lengths) + lengths, lengths)


def places_among(known: NDArray[Any], wanted: NDArray[Any]) -> NDArray[np.int64]:
    """The index of each wanted number among the known ones, which ascend; -1 for one that is not there."""
    if not len(known):
        return np.full(len(wanted), -1, np.int64)
    places = np.minimum(known.searchsorted(wanted), len(known) - 1)
    return np.where(known[places] == wanted, places, -1)


def stable_order(codes: NDArray[np.integer[Any]]) -> NDArray[np.intp]:
    """The indices that sort the codes, which are at least 0; of equal codes the earlier index comes first.

    A radix sort by digits of 16 bits, or 8 if these suffice: O(n) for each digit of the greatest code.
    """
    bits = int(codes.max(initial=0)).bit_length()
    order = np.argsort(codes.astype(np.uint8 if bits <= 8 else np.uint16), kind="stable")
    for shift in range(16, bits, 16):
        digits = (codes[order] >> shift).astype(np.uint16)
        order = order[np.argsort(digits, kind="stable")]
    return order


def occurrences(codes: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    """For each code, how many of those before it are equal to it. O(n log n)."""
    order = np.argsort(codes, kind="stable")
    ordered, found = codes[order], np.empty(len(codes), np.int64)
    found[order] = np.arange(len(codes)) - ordered.searchsorted(ordered)
    return found


def combine_codes(codes: Sequence[NDArray[np.int64]], sizes: Sequence[int]) -> NDArray[np.int64]:
    """Integers that order as the tuples of codes do; column c has codes from 0 to sizes[c] (exclusive)."""
    combined, bound = codes[0], sizes[0]
    for column, size in zip(codes[1:], sizes[1:], strict=True):
        if bound * size >= _MAX_CODES:
            unique, combined = np.unique(combined, return_inverse=True)
            bound = len(unique)
        combined, bound = combined * size + column, bound * size
    return combined
