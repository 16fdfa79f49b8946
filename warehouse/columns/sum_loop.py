"""The loop that adds numbers by code, compiled by numba; looped_sums.py has the model and imports it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tidemark.sketches.compiled.jit import compiled

Index = int | np.int64
Ints = NDArray[np.int64]
Words = NDArray[np.uint64]
Bools = NDArray[np.bool_]

# Plain numbers in the loop: its arithmetic is that of 64 bits, without a sign.
EXPONENTS = 2048  # of doubles, as their bits have them; the last one is that of infinities and NaN
TOGETHER = 512  # numbers of a cell whose sums fit into 64 bits
FRACTION = np.uint64(52)  # bits of a double behind its exponent
LOW = np.uint64(27)  # bits of the lower part of an integer of 53 bits
HALF = np.uint64(32)
MOST = 1 << 53  # integers as great as this are not added
GREATEST = (1 << 63) - 1


class Places(NamedTuple):
    """Where the loop adds.

    cell_of: (codes, EXPONENTS), the cell of each, counted from 1; 0 for none.
    code_of: (cells,) code * EXPONENTS + exponent of each cell that is used. used: (1,) how many these are.
    words: (cells, 5) sums that fit into 64 bits: 1, the number q, h * h, h * l, l * l.
    sums: (cells, 9) of those before: the first of them, and the upper and lower halves of the others.
    counts: (codes, 4) rows that are numbers, live rows that are not NULL, rows that are NaN, and NULL.
    infinite: (2, codes) rows that are minus infinity, and infinity.
    ends: (codes, 2) the least and the greatest number; doubles as integers in the same order.
    """

    cell_of: NDArray[np.int32]
    code_of: Ints
    used: Ints
    words: Words
    sums: Ints
    counts: Ints
    infinite: Ints
    ends: Ints


@compiled
def empty_cell(cell: Index, words: Words, sums: Ints) -> None:
    """Moves the words of a cell to its sums."""
    sums[cell, 0] += np.int64(words[cell, 0])
    signed = np.int64(words[cell, 1])
    sums[cell, 1] += signed >> 32
    sums[cell, 2] += signed & 0xFFFFFFFF
    for i in range(2, 5):
        sums[cell, 2 * i - 1] += np.int64(words[cell, i] >> HALF)
        sums[cell, 2 * i] += np.int64(words[cell, i] & np.uint64(0xFFFFFFFF))
    words[cell, :] = np.uint64(0)


@compiled
def parts_of(number: int, is_double: bool) -> tuple[Index, np.uint64]:
    """The exponent of a number, and the integer of 53 bits without its sign; of more bits the exponent -1."""
    if not is_double:
        return (1 if -MOST < number < MOST else -1), np.uint64(abs(number))
    bits = np.uint64(number)
    exponent = np.int64((bits >> FRACTION) & np.uint64(EXPONENTS - 1))
    q = bits & np.uint64((1 << 52) - 1)
    if 0 < exponent < EXPONENTS - 1:
        q |= np.uint64(1 << 52)
    return exponent, q


@compiled
def taken_cell(code: Index, exponent: Index, cell_of: NDArray[np.int32], code_of: Ints, used: Ints) -> Index:
    """A cell that is free until now; -1 if none is."""
    cell: Index = used[0]
    if cell == len(code_of):
        return -1
    used[0] = cell + 1
    cell_of[code, exponent] = cell + 1
    code_of[cell] = code * EXPONENTS + exponent
    return cell


# In one function, and with each array by itself: to hand over all of them takes ten times as long as to add.
@compiled
def add_rows(  # noqa: C901  see above
    numbers: Ints, codes: Ints, is_null: Bools, is_live: Bools, scale: tuple[int, bool], to: Places
) -> int:
    """Adds rows up to the first one that does not fit, and returns how many were added.

    numbers: integers, or the bits of doubles. codes: of each row. is_null, is_live: empty if none is.
    scale: what is taken off each code, and whether numbers are doubles.

    A row does not fit if its code is not among those of the places, if no cell is free for it, or if it is an
    integer of more than 53 bits.
    """
    least, is_double = scale
    cell_of, code_of, used, words, sums, counts, infinite, ends = to
    for i in range(len(numbers)):
        code, number = codes[i] - least, numbers[i]
        if not 0 <= code < len(counts):
            return i
        if len(is_null) > 0 and is_null[i]:
            counts[code, 3] += 1
            continue
        exponent, q = parts_of(number, is_double)
        if exponent < EXPONENTS - 1:
            if exponent < 0:
                return i
            cell: Index = np.int64(cell_of[code, exponent]) - 1
            if cell < 0:
                cell = taken_cell(code, exponent, cell_of, code_of, used)
                if cell < 0:
                    return i
            h, l = q >> LOW, q & np.uint64((1 << 27) - 1)  # noqa: E741  as in the model
            words[cell, 0] += np.uint64(1)
            words[cell, 1] += np.uint64(0) - q if number < 0 else q
            words[cell, 2] += h * h
            words[cell, 3] += h * l
            words[cell, 4] += l * l
            if words[cell, 0] == np.uint64(TOGETHER):
                empty_cell(cell, words, sums)
        elif q == np.uint64(0):
            infinite[0 if number < 0 else 1, code] += 1
        if len(is_live) > 0 and is_live[i]:
            counts[code, 1] += 1
        if exponent == EXPONENTS - 1 and q > np.uint64(0):
            counts[code, 2] += 1
            continue
        if is_double:
            number ^= (number >> 63) & GREATEST
        counts[code, 0] += 1
        ends[code, 0] = min(ends[code, 0], number)
        ends[code, 1] = max(ends[code, 1], number)
    return len(numbers)
