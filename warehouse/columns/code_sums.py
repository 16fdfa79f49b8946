"""Exact sums of numbers by code, such as of the rows of each tick or group, with numpy.

Numbers of one code follow each other. Each number of a chunk is an integer q in a unit that the chunk has,
and q has four digits of base 2**18:

    q = a * 2**54 + b * 2**36 + c * 2**18 + d,    |a|, |b|, |c|, |d| <= 2**17,

which are found by rounding to the nearest, so what is left is exact. The square of q has seven digits, each a
sum of products of these; none is greater than 4 * 2**34. So those of CHUNK_ROWS rows add up to at most 2**49,
and doubles hold all digits, products and sums of a chunk without error, in any order of addition. The
products of a long stretch are summed as those of vectors.

The sums of a chunk are added to those before in two halves of 32 bits, so nothing overflows in 2**31 rows.
Python's integers are made last, for each code and unit.

The unit of doubles is a power of two, of which the least number of the chunk is a multiple, and so all are.
Doubles that are 2**18 times as great have more than four digits; they are added apart, with a greater unit.

Cost: about 6 nanoseconds a row where a code has many rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tidemark.warehouse.columns.exact_sums import DIGITS, STEP, UNIT_BITS, Sums

Ints = NDArray[np.int64]
Digits: TypeAlias = NDArray[np.float64]  # (digits, rows): d, c, b and a, or fewer if the last ones are 0

# Rows that are added at once, in the cache of a processor: 2**17 at most, see above. For more than 10,000
# OpenBLAS would start threads.
CHUNK_ROWS = 2**13
LONG = 2**9  # rows of a stretch from which products of vectors take less than one by number
LONGER = 2**10  # and from which they are taken one by one
_DIGIT, _DIGITS_OF = 18, 4  # binary digits of a digit, and digits of an integer
_HALF = 32
_LEAST = -1021  # the exponent of the least double that has all its digits; those below have its unit
_ROOM = 18  # exponents from the first one of a unit to the last one that fits into four digits
_ROWS, _DIGITS, _PRODUCTS = 0, slice(1, 5), 5  # where a row of sums has these
_LIMBS = 19  # how many rows; the sums of d, c, b, a; the upper and lower halves of the digits of squares


class CodeSums:
    """Adds numbers by code.

    codes: how many there are.
    """

    def __init__(self, codes: int) -> None:
        self._limbs: dict[int, Ints] = {}  # for each code, by the exponent of a unit; -UNIT_BITS for integers
        self._infinite = np.zeros((2, codes), np.int64)
        # Of a chunk the digits and a row of ones: to allocate them for each takes longer than all else.
        self._room = np.empty((_DIGITS_OF + 1, CHUNK_ROWS))
        self._room[-1] = 1

    def add(self, numbers: NDArray[Any], starts: Ints, codes: Ints) -> None:
        """Adds stored numbers of one measure, without NaN.

        starts: where the numbers of each stretch begin; the first one is 0, and no stretch is empty.
        codes: the code of each stretch, ascending.
        """
        is_new = np.flatnonzero(np.diff(codes, prepend=-1))
        starts, codes = starts[is_new], codes[is_new]
        for first in range(0, len(numbers), CHUNK_ROWS):
            last = min(first + CHUNK_ROWS, len(numbers))
            begin, end = starts.searchsorted([first, last - 1], "right").tolist()
            here = slice(begin - 1, end)
            edges = np.append(starts[here] - first, last - first)
            edges[0] = 0
            if numbers.dtype.kind == "f":
                self._add_doubles(numbers[first:last], edges, codes[here])
            else:
                self._add_digits(-UNIT_BITS, self._digits_of_whole(numbers[first:last]), edges, codes[here])

    def each(self) -> EachSums:
        """The sums of each code; those of a code without numbers are 0."""
        return EachSums(self._limbs, self._infinite)

    def _add_doubles(self, numbers: NDArray[np.float64], edges: Ints, codes: Ints) -> None:
        sizes = np.abs(numbers, out=self._room[0, : len(numbers)])
        least, most = float(sizes.min()), float(sizes.max())
        if least == 0.0:
            least = float(sizes.min(where=sizes > 0, initial=most or 1.0))
        first, last = _exponent(least), _exponent(most)
        if most < np.inf and last <= first + _ROOM:
            unit = self._unit_of(first, last)
            self._add_digits(unit, self._digits(numbers, unit), edges, codes)
            return
        is_near = sizes < 2.0 ** min(first + _ROOM, 1023)
        is_far = ~is_near & (sizes < np.inf)
        of_row = np.repeat(codes, edges[1:] - edges[:-1])
        for row, sign in enumerate((-np.inf, np.inf)):
            np.add.at(self._infinite[row], of_row[numbers == sign], 1)
        for chosen in (is_near, is_far):
            own = of_row[chosen]
            if len(own):
                begins = np.flatnonzero(np.diff(own, prepend=-1))
                self._add_doubles(numbers[chosen], np.append(begins, len(own)), own[begins])

    def _unit_of(self, first: int, last: int) -> int:
        """The unit of numbers with exponents from the first to the last: one that others have, if it fits."""
        greatest, least = first - DIGITS, last - DIGITS - _ROOM
        fits = (unit for unit in self._limbs if least <= unit <= greatest)
        return next(fits, max(least, greatest // STEP * STEP))

    def _digits(self, numbers: NDArray[np.float64], unit: int) -> Digits:
        """The digits of the integers that finite doubles are in a unit that fits."""
        shift = -unit - (_DIGITS_OF - 1) * _DIGIT
        digits = self._room[:_DIGITS_OF, : len(numbers)]
        rest, *others = digits
        # In two steps: the power may be above all doubles.
        np.multiply(numbers, 2.0 ** (shift // 2), out=rest)
        rest *= 2.0 ** (shift - shift // 2)
        for digit in reversed(others):
            np.rint(rest, out=digit)
            rest -= digit
            rest *= 2.0**_DIGIT
        return digits

    def _digits_of_whole(self, numbers: Ints) -> Digits:
        """The digits of integers."""
        digits = self._room[:_DIGITS_OF, : len(numbers)]
        for number, digit in enumerate(digits, 1):
            if max(-int(numbers.min()), int(numbers.max())) <= 1 << (_DIGIT - 1):
                digit[:] = numbers
                return digits[:number]
            more = (numbers >> _DIGIT) + ((numbers >> (_DIGIT - 1)) & 1)  # rounded
            digit[:] = numbers - (more << _DIGIT)
            numbers = more
        return digits

    def _add_digits(self, unit: int, digits: Digits, edges: Ints, codes: Ints) -> None:
        """Adds integers of a unit; those from one edge to the next are of a code."""
        limbs = self._limbs.get(unit)
        if limbs is None:
            limbs = self._limbs[unit] = np.zeros((len(self._infinite[0]), _LIMBS), np.int64)
        width = len(digits)
        found = np.zeros((len(codes), _LIMBS), np.int64)
        found[:, _ROWS] = edges[1:] - edges[:-1]
        products = self._products(digits, edges)
        found[:, _DIGITS][:, :width] = products[:, -1]
        sums = (products[:, :-1].reshape(len(codes), -1) @ _digits_of_squares(width)).astype(np.int64)
        squares = found[:, _PRODUCTS : _PRODUCTS + 2 * sums.shape[1]]
        squares[:, ::2] = sums >> _HALF
        squares[:, 1::2] = sums & ((1 << _HALF) - 1)
        limbs[codes] += found

    def _products(self, digits: Digits, edges: Ints) -> NDArray[np.float64]:
        """(stretches, digits + 1, digits): sums of digit i times digit j, for j <= i; last, of digits."""
        rows = [*digits, self._room[-1, : digits.shape[1]]]
        found = np.zeros((len(edges) - 1, len(rows), len(digits)))
        if digits.shape[1] < LONG * len(found):
            for i, one in enumerate(rows):
                for j, other in enumerate(digits[: i + 1]):
                    product = other if one is rows[-1] else one * other
                    found[:, i, j] = np.add.reduceat(product, edges[:-1])
            return found
        for at, (start, stop) in enumerate(pairwise(edges.tolist())):
            if stop - start < LONGER:
                found[at, :-1] = digits[:, start:stop] @ digits[:, start:stop].T
                found[at, -1] = digits[:, start:stop].sum(axis=1)
                continue
            own = [row[start:stop] for row in rows]
            for i, one in enumerate(own):
                for j, other in enumerate(own[: min(i + 1, len(digits))]):
                    found[at, i, j] = one.dot(other)
        return found


class EachSums(Sequence[Sums]):
    """The sums of each code, made of machine integers when somebody takes them, once.

    limbs: (codes, _LIMBS) by unit. infinite: (2, codes), the numbers that are minus infinity and infinity.
    """

    def __init__(self, limbs: Mapping[int, Ints], infinite: Ints) -> None:
        self.limbs, self.infinite = limbs, infinite
        self._found: dict[int, Sums] = {}

    @classmethod
    def joined(cls, parts: Sequence[EachSums]) -> EachSums:
        """The sums of all codes of the parts, one part after the other."""
        if len(parts) == 1:
            return parts[0]
        units = {unit: None for part in parts for unit in part.limbs}
        nothing = [np.zeros((len(part), _LIMBS), np.int64) for part in parts]
        limbs = {
            unit: np.concatenate(
                [part.limbs.get(unit, zeros) for part, zeros in zip(parts, nothing, strict=True)]
            )
            for unit in units
        }
        return cls(limbs, np.concatenate([part.infinite for part in parts], axis=1))

    @classmethod
    def added(cls, parts: Sequence[EachSums]) -> EachSums:
        """The sums of each code in all parts, at least one, which have the same codes."""
        limbs: dict[int, Ints] = {}
        for part in parts:
            for unit, own in part.limbs.items():
                limbs[unit] = limbs[unit] + own if unit in limbs else own
        return cls(limbs, np.sum([part.infinite for part in parts], axis=0))

    def __len__(self) -> int:
        return len(self.infinite[0])

    def __getitem__(self, at: Any) -> Any:
        """The sums of one code; no slices."""
        found = self._found.get(at)
        if found is None:
            negative, positive = self.infinite[:, at].tolist()
            found = Sums(negative=negative, positive=positive)
            for unit, limbs in self.limbs.items():
                if limbs[at, _ROWS]:
                    found += _sums_of(unit, limbs[at].tolist())
            self._found[at] = found
        return found


@cache
def _digits_of_squares(width: int) -> NDArray[np.float64]:
    """(pairs of digits, digits of squares): how many times a product of digits i and j <= i is in a digit."""
    found = np.zeros((width, width, 2 * width - 1))
    for i in range(width):
        for j in range(i + 1):
            found[i, j, i + j] = 1 if i == j else 2
    return found.reshape(width * width, -1)


def _exponent(number: float) -> int:
    """That of the least power of two above a number that is not 0, but at least _LEAST."""
    return max(math.frexp(number)[1], _LEAST)


def _sums_of(unit: int, limbs: Sequence[int]) -> Sums:
    """The sums of the numbers of a code and unit."""
    total = squares = 0
    for digit in reversed(limbs[_DIGITS]):
        total = (total << _DIGIT) + digit
    for i in range(_LIMBS - 2, _PRODUCTS - 1, -2):
        squares = (squares << _DIGIT) + (limbs[i] << _HALF) + limbs[i + 1]
    return Sums.of_unit(unit, limbs[_ROWS], total, squares)
