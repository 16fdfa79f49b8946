"""Whole numbers in as few bytes as each needs.

Seven bits a byte, the lowest first; the top bit tells that more follow. This is LEB128 for numbers below
2**64, over arrays. A number has one form: the last byte of several is not 0.
"""

import numpy as np
from numpy.typing import NDArray

from tidemark.sketches.errors import CorruptSketch

_LONGEST = 10  # bytes of a number below 2**64
_BLOCK = 2**16  # numbers that are decoded at once: what stands between bytes and numbers stays small


def encode_varints(numbers: NDArray[np.uint64]) -> bytes:
    """The bytes of the numbers, one after the other."""
    width = np.ones(len(numbers), np.int64)
    for extra in range(1, _LONGEST):
        width += numbers >= np.uint64(1 << 7 * extra)
    ends = np.cumsum(width)
    result = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
    for at in range(_LONGEST):
        some = np.flatnonzero(width > at)
        part = (numbers[some] >> np.uint64(7 * at)) & np.uint64(127)
        more = np.where(width[some] > at + 1, np.uint64(128), np.uint64(0))
        result[ends[some] - width[some] + at] = part | more
    return result.tobytes()


def decode_varints(data: bytes) -> NDArray[np.uint64]:
    """The numbers of such bytes; CorruptSketch if the last is cut, or one is not in its form.

    Takes 16 bytes of memory for each number, of which there are no more than bytes.
    """
    stored = np.frombuffer(data, np.uint8)
    if not len(stored):
        return np.empty(0, np.uint64)
    if stored[-1] >= 128:
        raise CorruptSketch("the last number is cut")
    last = np.flatnonzero(stored < 128)
    numbers = np.empty(len(last), np.uint64)
    begin = 0
    for at in range(0, len(last), _BLOCK):
        own = last[at : at + _BLOCK]
        numbers[at : at + _BLOCK] = _decoded(stored[begin : own[-1] + 1], own - begin)
        begin = own[-1] + 1
    return numbers


def _decoded(stored: NDArray[np.uint8], last: NDArray[np.intp]) -> NDArray[np.uint64]:
    """The numbers that end at the positions `last`."""
    first = np.concatenate([[0], last[:-1] + 1])
    width = last - first + 1
    tail = stored[last]
    if np.any((width > _LONGEST) | ((width > 1) & (tail == 0)) | ((width == _LONGEST) & (tail > 1))):
        raise CorruptSketch("a number takes more bytes than it needs, or more than 64 bits")
    numbers = np.zeros(len(last), np.uint64)
    for at in range(int(width.max())):
        some = np.flatnonzero(width > at)
        numbers[some] |= (stored[first[some] + at].astype(np.uint64) & np.uint64(127)) << np.uint64(7 * at)
    return numbers


def exact_sum(numbers: NDArray[np.uint64]) -> int:
    """The sum of fewer than 2**32 numbers as it is: numpy's would wrap."""
    low = numbers & np.uint64(0xFFFFFFFF)
    return (int((numbers >> np.uint64(32)).sum()) << 32) + int(low.sum())
