"""Variable-length integers: unsigned LEB128 for arrays of numbers below 2**64.

Each byte has seven bits of the number, the lowest first; the top bit is set if more bytes follow. Only the
shortest form is accepted: the last byte of several is not 0. Example: 5 is 05, 300 is AC 02.

Cost: O(bytes), with one vectorised pass for each byte of the longest number.
"""

import numpy as np
from numpy.typing import NDArray

from tidemark.sketches.errors import CorruptSketch

_MOST_BYTES = 10  # of a number below 2**64
_NUMBERS_AT_ONCE = 2**14  # numbers processed in one step, so that temporary arrays stay in the cache


def encode_varints(numbers: NDArray[np.uint64]) -> bytes:
    """The encoded numbers, one after the other; the inverse of `decode_varints`."""
    blocks = range(0, len(numbers), _NUMBERS_AT_ONCE)
    return b"".join(_encode_block(numbers[first : first + _NUMBERS_AT_ONCE]) for first in blocks)


def _encode_block(numbers: NDArray[np.uint64]) -> bytes:
    """The encoded numbers, at least one."""
    longest = max(1, -(-int(numbers.max()).bit_length() // 7))
    stored = np.empty((len(numbers), longest), np.uint8)
    for place in range(longest):
        rest = numbers >> np.uint64(7 * place)
        # The last byte of a number is the rest itself, which is below 128. Any other rest is 128 or more, so
        # its byte with the top bit set is not above it.
        stored[:, place] = np.minimum(rest, rest & np.uint64(127) | np.uint64(128))
    used = stored != 0  # the rest is 0 after the last byte, and before it the top bit is set
    used[:, 0] = True
    return bytes(stored[used])


def decode_varints(data: bytes) -> NDArray[np.uint64]:
    """The numbers of encoded bytes; the inverse of `encode_varints`.

    Raises CorruptSketch if the last number is incomplete, if a number is not in its shortest form, or if a
    number is 2**64 or more. Memory: 16 bytes a number, and there are at most as many numbers as bytes.
    """
    stored = np.frombuffer(data, np.uint8)
    if not len(stored):
        return np.empty(0, np.uint64)
    if stored[-1] >= 128:
        raise CorruptSketch("got an incomplete last number, expected its last byte below 128")
    last = np.flatnonzero(stored < 128)
    numbers = np.empty(len(last), np.uint64)
    begin = 0
    for first_number in range(0, len(last), _NUMBERS_AT_ONCE):
        block_last = last[first_number : first_number + _NUMBERS_AT_ONCE]
        block = _decode_block(stored[begin : block_last[-1] + 1], block_last - begin)
        numbers[first_number : first_number + _NUMBERS_AT_ONCE] = block
        begin = block_last[-1] + 1
    return numbers


def _decode_block(stored: NDArray[np.uint8], last: NDArray[np.intp]) -> NDArray[np.uint64]:
    """The numbers whose last bytes are at the positions `last`."""
    first = np.concatenate([[0], last[:-1] + 1])
    width = last - first + 1
    last_bytes = stored[last]
    too_long = (width > _MOST_BYTES) | ((width == _MOST_BYTES) & (last_bytes > 1))
    if np.any(too_long | ((width > 1) & (last_bytes == 0))):
        raise CorruptSketch("got a number of more than 64 bits or not in its shortest form, expected neither")
    numbers = np.zeros(len(last), np.uint64)
    for place in range(int(width.max())):
        indices = np.flatnonzero(width > place)
        low_bits = stored[first[indices] + place].astype(np.uint64) & np.uint64(127)
        numbers[indices] |= low_bits << np.uint64(7 * place)
    return numbers


def exact_sum(numbers: NDArray[np.uint64]) -> int:
    """The exact sum of fewer than 2**32 numbers; a sum in uint64 could overflow."""
    low = numbers & np.uint64(0xFFFFFFFF)
    return (int((numbers >> np.uint64(32)).sum()) << 32) + int(low.sum())
