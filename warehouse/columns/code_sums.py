"""Exact sums of numbers by code, such as of the rows of each tick or group, with numpy.

Numbers of one code follow each other. Each number of a chunk is an integer q in a unit that the chunk has
(exact_sums.py: its place), and q has three digits of base 2**24:

    q = a * 2**48 + b * 2**24 + c,    |a|, |b|, |c| <= 2**23,

which are found by rounding to the nearest, so what is left is exact. So

    q * q = a*a * 2**96 + 2*a*b * 2**72 + (2*a*c + b*b) * 2**48 + 2*b*c * 2**24 + c*c,

and none of these five numbers is greater than 3 * 2**46: those of CHUNK_ROWS rows add up to less than 2**63.
The sums of a chunk are added to those before in two halves of 32 bits, so nothing overflows in 2**31 rows.
Python's integers are made last, for each code and place.

The unit is 2**(8 p - 53) for the least number of the chunk. Doubles that are 2**18 times as great have more
than three digits; they are added apart, with a greater unit.

Cost: about 10 nanoseconds a row where a code has many rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tidemark.warehouse.columns.exact_sums import DIGITS, STEP, Sums

Ints = NDArray[np.int64]
Digits: TypeAlias = tuple[Ints, Ints | None, Ints | None]  # c, b and a; None for one that is 0 everywhere

CHUNK_ROWS = 2**13  # that are added at once, in the cache of a processor: 2**15 at most, see above
_DIGIT = 24  # binary digits
_HALF = 32
_ONE = 1022  # the stored exponent of numbers from 1/2 to 1, exclusive, whose place is 0
_FRACTION, _EXPONENTS = 52, 0x7FF  # of a double: digits stored, exponents
_ROOM = 18  # exponents from the first one of a place to the last one that fits into three digits
_ROWS, _DIGITS, _PRODUCTS = 0, slice(1, 4), 4  # where a row of sums has these
_LIMBS = 14  # how many rows; the sums of c, b, a; the upper and lower halves of the five sums of products


class CodeSums:
    """Adds numbers by code.

    codes: how many there are.
    """

    def __init__(self, codes: int) -> None:
        self._limbs: dict[int | None, Ints] = {}  # by place, for each code
        self._infinite = np.zeros((2, codes), np.int64)

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
            own = np.maximum(starts[here] - first, 0)
            if numbers.dtype.kind == "f":
                self._add_doubles(numbers[first:last], own, codes[here])
            else:
                self._add_digits(None, _digits_of_whole(numbers[first:last]), own, codes[here])

    def each(self) -> EachSums:
        """The sums of each code; those of a code without numbers are 0."""
        return EachSums(self._limbs, self._infinite)

    def _add_doubles(self, numbers: NDArray[np.float64], starts: Ints, codes: Ints) -> None:
        exponents = (numbers.view(np.int64) >> _FRACTION) & _EXPONENTS
        if not exponents.all():
            exponents[numbers == 0] = min(int(exponents.max()), _EXPONENTS - 1)  # zeros fit everywhere
            np.maximum(exponents, 1, out=exponents)  # doubles with fewer digits: the unit of the next ones
        place = _place_of(int(exponents.min()))
        if int(exponents.max()) <= min(_last_of(place), _EXPONENTS - 1):
            self._add_digits(place, _digits(numbers, place), starts, codes)
            return
        of_row = np.repeat(codes, np.diff(starts, append=len(numbers)))
        for row, sign in enumerate((-np.inf, np.inf)):
            np.add.at(self._infinite[row], of_row[numbers == sign], 1)
        left = np.flatnonzero(exponents < _EXPONENTS)
        while len(left):
            place = _place_of(int(exponents[left].min()))
            is_near = exponents[left] <= _last_of(place)
            near, left = left[is_near], left[~is_near]
            own = of_row[near]
            begins = np.flatnonzero(np.diff(own, prepend=-1))
            self._add_digits(place, _digits(numbers[near], place), begins, own[begins])

    def _add_digits(self, place: int | None, digits: Digits, starts: Ints, codes: Ints) -> None:
        """Adds integers of one place, by their digits c, b and a; None for numbers that are integers."""
        c, b, a = digits
        limbs = self._limbs.get(place)
        if limbs is None:
            limbs = self._limbs[place] = np.zeros((len(self._infinite[0]), _LIMBS), np.int64)
        found = np.zeros((len(codes), _LIMBS), np.int64)
        found[:, _ROWS] = np.diff(starts, append=len(c))
        for column, digit in enumerate(digits, _DIGITS.start):
            if digit is not None:
                found[:, column] = np.add.reduceat(digit, starts)
        middle = _product(b, b)
        if a is not None:
            middle = 2 * a * c if middle is None else middle + 2 * a * c
        products = (_product(c, c), _product(b, c), middle, _product(a, b), _product(a, a))
        for number, product in enumerate(products):
            if product is not None:
                sums = np.add.reduceat(product, starts)
                upper = _PRODUCTS + 2 * number
                found[:, upper] = sums >> _HALF
                found[:, upper + 1] = sums & ((1 << _HALF) - 1)
        limbs[codes] += found


class EachSums(Sequence[Sums]):
    """The sums of each code, made of machine integers when somebody takes them, once.

    limbs: (codes, _LIMBS) by place. infinite: (2, codes), the numbers that are minus infinity and infinity.
    """

    def __init__(self, limbs: Mapping[int | None, Ints], infinite: Ints) -> None:
        self.limbs, self.infinite = limbs, infinite
        self._found: dict[int, Sums] = {}

    @classmethod
    def joined(cls, parts: Sequence[EachSums]) -> EachSums:
        """The sums of all codes of the parts, one part after the other."""
        if len(parts) == 1:
            return parts[0]
        places = {place: None for part in parts for place in part.limbs}
        nothing = [np.zeros((len(part), _LIMBS), np.int64) for part in parts]
        limbs = {
            place: np.concatenate(
                [part.limbs.get(place, zeros) for part, zeros in zip(parts, nothing, strict=True)]
            )
            for place in places
        }
        return cls(limbs, np.concatenate([part.infinite for part in parts], axis=1))

    def __len__(self) -> int:
        return len(self.infinite[0])

    def __getitem__(self, at: Any) -> Any:
        """The sums of one code; no slices."""
        found = self._found.get(at)
        if found is None:
            negative, positive = self.infinite[:, at].tolist()
            found = Sums(negative=negative, positive=positive)
            for place, limbs in self.limbs.items():
                if limbs[at, _ROWS]:
                    found += _sums_of(place, limbs[at].tolist())
            self._found[at] = found
        return found


def _place_of(exponent: int) -> int:
    """The place whose unit is that of numbers with this stored exponent, or a lesser one."""
    return (exponent - _ONE) // STEP


def _last_of(place: int) -> int:
    """The greatest stored exponent of numbers of a place."""
    return STEP * place + _ONE + _ROOM


def _digits(numbers: NDArray[np.float64], place: int) -> Digits:
    """The digits c, b and a of the integers that finite doubles are in the unit of their place."""
    shift = DIGITS - STEP * place - 2 * _DIGIT
    rest = numbers * 2.0 ** (shift // 2)  # in two steps: the power may be greater than all doubles
    rest *= 2.0 ** (shift - shift // 2)
    a = np.rint(rest)
    rest -= a
    rest *= 2.0**_DIGIT
    b = np.rint(rest)
    rest -= b
    rest *= 2.0**_DIGIT
    return rest.astype(np.int64), b.astype(np.int64), a.astype(np.int64)


def _digits_of_whole(numbers: Ints) -> Digits:
    """The digits of integers."""
    if max(-int(numbers.min()), int(numbers.max())) <= 1 << (_DIGIT - 1):
        return numbers, None, None
    more = (numbers >> _DIGIT) + ((numbers >> (_DIGIT - 1)) & 1)  # rounded
    b, a, _ = _digits_of_whole(more)
    return numbers - (more << _DIGIT), b, a


def _product(x: Ints | None, y: Ints | None) -> Ints | None:
    return None if x is None or y is None else x * y


def _sums_of(place: int | None, limbs: Sequence[int]) -> Sums:
    """The sums of the numbers of a code and place."""
    c, b, a = limbs[_DIGITS]
    cc, bc, middle, ab, aa = ((limbs[i] << _HALF) + limbs[i + 1] for i in range(_PRODUCTS, _LIMBS, 2))
    squares = 0
    for product in (aa, 2 * ab, middle, 2 * bc, cc):
        squares = (squares << _DIGIT) + product
    return Sums.at(place, limbs[_ROWS], (((a << _DIGIT) + b) << _DIGIT) + c, squares)
