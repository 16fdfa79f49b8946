"""Exact sums of numbers by code, such as of the rows of each tick or group, with numpy.

Numbers of one code follow each other. Each number of a chunk is an integer q in a unit that the chunk has,
and q has at most four digits of base 2**21, as many as the chunk needs:

    q = a * 2**63 + b * 2**42 + c * 2**21 + d,    |b|, |c|, |d| <= 2**20,

which are found by rounding to the nearest, so what is left is exact. The square of q has seven digits, each a
sum of products of these. The products of BLOCK_ROWS rows add up to at most 2**53, so doubles hold all digits,
products and sums of a block without error, in any order of addition; sums of blocks are 64-bit integers. For
the last digits the bound follows from that of a digit. The first one, such as a, may be greater: a chunk has
so many digits that the squares of the first one add up to at most 2**53 in each block. So do the products of
two digits, by the inequality of Cauchy and Schwarz.

The products of a long stretch are summed as those of vectors. All calls are about many rows: numpy lets other
threads run meanwhile, and after a short call threads wait for each other longer than it takes.

The sums of a chunk are added to those before in two halves of 32 bits, so nothing overflows in 2**31 rows.
Python's integers are made last, for each code and unit.

The unit of doubles is a power of two, of which the least number of the chunk is a multiple, and so all are.
Doubles that are 2**28 times as great may have more than four digits; they are added apart, with a greater
unit.

Cost: about 3 nanoseconds a row where a code has many rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tidemark.warehouse.columns.exact_sums import DIGITS, STEP, UNIT_BITS, Sums

if TYPE_CHECKING:
    from tidemark.warehouse.columns.looped_sums import LoopedSums

Ints = NDArray[np.int64]
Bits: TypeAlias = tuple[Ints, Ints]  # (bits, integers): a part of sums, integers times 2**bits
Digits: TypeAlias = NDArray[np.float64]  # (digits, rows): the last one first

# Rows of a product of vectors; see above. For more than 10,000 OpenBLAS would start threads.
BLOCK_ROWS = 2**13
CHUNK_ROWS = 2**16  # more need no fewer calls that matter, and more room
LONG = 2**12  # rows of a stretch from which products of vectors take less than one by number
_DIGIT, _DIGITS_OF = 21, 4  # binary digits of a digit, and digits of an integer
_SQUARES = 51  # binary digits of the sum of squares that first digits may have before they are rounded
_HALF = 32
_LEAST = -1021  # the exponent of the least double that has all its digits; those below have its unit
_ROOM = 28  # exponents from the first one of a unit to the last one that certainly fits into four digits
_ROWS, _DIGITS, _PRODUCTS = 0, slice(1, 5), 5  # where a row of sums has these
_LIMBS = 19  # how many rows; the sums of d, c, b, a; the upper and lower halves of the digits of squares


class CodeSums:
    """Adds numbers by code.

    codes: how many there are. looped: adds what it can in place of numpy.
    """

    def __init__(self, codes: int, looped: LoopedSums | None = None) -> None:
        self._looped = looped
        self._limbs: dict[int, Ints] = {}  # for each code, by the exponent of a unit; -UNIT_BITS for integers
        self._infinite = np.zeros((2, codes), np.int64)
        # Of a chunk a row of ones, the digits, and a product: to allocate them for each takes longer than all
        # else.
        self._room = np.empty((_DIGITS_OF + 2, 0))

    def add(self, numbers: NDArray[Any], starts: Ints, codes: Ints) -> None:
        """Adds stored numbers of one measure, without NaN.

        starts: where the numbers of each stretch begin; the first one is 0, and no stretch is empty.
        codes: the code of each stretch, ascending.
        """
        is_new = np.flatnonzero(np.diff(codes, prepend=-1))
        starts, codes = starts[is_new], codes[is_new]
        most = min(len(numbers), CHUNK_ROWS)
        if self._room.shape[1] < most:
            self._room = np.empty((_DIGITS_OF + 2, most))
            self._room[0] = 1
        for first in range(0, len(numbers), CHUNK_ROWS):
            last = min(first + CHUNK_ROWS, len(numbers))
            begin, end = starts.searchsorted([first, last - 1], "right").tolist()
            here = slice(begin - 1, end)
            edges = np.append(starts[here] - first, last - first)
            edges[0] = 0
            self._add_chunk(numbers[first:last], edges, codes[here])

    def each(self) -> EachSums:
        """The sums of each code; those of a code without numbers are 0."""
        found = EachSums(self._limbs, self._infinite)
        return found if self._looped is None else EachSums.added([found, self._looped.each()])

    def _add_chunk(self, numbers: NDArray[Any], edges: Ints, codes: Ints) -> None:
        if self._looped is not None:
            done = self._looped.add(numbers, np.repeat(codes, np.diff(edges)))
            begins = np.flatnonzero(edges[1:] > done)
            if not len(begins):
                return
            numbers, codes = numbers[done:], codes[begins]
            edges = np.append(np.maximum(edges[begins] - done, 0), len(numbers))
        if numbers.dtype.kind == "f":
            self._add_doubles(numbers, edges, codes)
        else:
            self._add_digits(-UNIT_BITS, self._digits_of_whole(numbers), edges, codes)

    def _add_doubles(self, numbers: NDArray[np.float64], edges: Ints, codes: Ints) -> None:
        sizes = np.abs(numbers, out=self._room[1, : len(numbers)])
        least, most = float(sizes.min()), float(sizes.max())
        if least == 0.0:
            least = float(sizes.min(where=sizes > 0, initial=most or 1.0))
        first, last = _exponent(least), _exponent(most)
        if most < np.inf:
            shares = np.multiply(numbers, 2.0**-last, out=sizes)  # exactly; from -1 to 1
            above = last - (_SQUARES - math.frexp(_most_squares(shares))[1]) // 2
            unit = self._unit_of(first - DIGITS, above)
            if unit is not None:
                digits = self._digits(last - unit, _digits_for(above - unit), len(numbers))
                self._add_digits(unit, digits, edges, codes)
                return
        sizes = np.abs(numbers)
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

    def _unit_of(self, greatest: int, above: int) -> int | None:
        """The exponent of a unit that fits: one in use, or else a new one. None if no unit fits.

        greatest: the numbers are multiples of it. above: the first digit holds what is above 2**above.
        """
        least = above - (_DIGITS_OF - 1) * _DIGIT
        known = max((unit for unit in self._limbs if least <= unit <= greatest), default=None)
        if known is not None or least > greatest:
            return known
        # Somewhat less, so that it fits others, too, if that takes no more digits.
        return max(greatest - STEP, above - (_digits_for(above - greatest) - 1) * _DIGIT)

    def _digits(self, length: int, count: int, rows: int) -> Digits:
        """So many digits of the shares in the room, which are integers times 2**-length."""
        rest, *others = digits = self._room[1 : count + 1, :rows]
        rest *= 2.0 ** (length - (count - 1) * _DIGIT)
        for digit in reversed(others):
            np.rint(rest, out=digit)
            rest -= digit
            rest *= 2.0**_DIGIT
        return digits

    def _digits_of_whole(self, numbers: Ints) -> Digits:
        digits = self._room[1 : _DIGITS_OF + 1, : len(numbers)]
        for count, digit in enumerate(digits, 1):
            if max(-int(numbers.min()), int(numbers.max())) <= 1 << (_DIGIT - 1):
                digit[:] = numbers
                return digits[:count]
            more = (numbers >> _DIGIT) + ((numbers >> (_DIGIT - 1)) & 1)  # rounded
            digit[:] = numbers - (more << _DIGIT)
            numbers = more
        return digits

    def _add_digits(self, unit: int, digits: Digits, edges: Ints, codes: Ints) -> None:
        """Adds integers of a unit; those from one edge to the next are of a code."""
        limbs = self._limbs.get(unit)
        if limbs is None:
            limbs = self._limbs[unit] = np.zeros((len(self._infinite[0]), _LIMBS), np.int64)
        found = np.zeros((_LIMBS, len(codes)), np.int64)
        found[_ROWS] = edges[1:] - edges[:-1]
        products = self._products(digits, edges)
        found[_DIGITS][: len(digits)] = products[1:, 0]
        squares = np.zeros((2 * len(digits) - 1, len(codes)), np.int64)
        for i, row in enumerate(products[1:]):
            squares[i : 2 * i] += 2 * row[1 : i + 1]
            squares[2 * i] += row[i + 1]
        halves = found[_PRODUCTS : _PRODUCTS + 2 * len(squares)]
        halves[::2] = squares >> _HALF
        halves[1::2] = squares & ((1 << _HALF) - 1)
        limbs[codes] += found.T

    def _products(self, digits: Digits, edges: Ints) -> Ints:
        """(digits + 1, digits + 1, stretches): sums of row i times row j, for j <= i; row 0 is of ones."""
        width, count = len(digits), digits.shape[1]
        rows, product = self._room[: width + 1, :count], self._room[-1, :count]
        found = np.zeros((width + 1, width + 1, len(edges) - 1), np.int64)
        sizes = edges[1:] - edges[:-1]
        has_short = count < LONG * len(sizes)
        if has_short:
            for i, one in enumerate(digits, 1):
                found[i, 0] = np.add.reduceat(one, edges[:-1])
                for j, other in enumerate(digits[:i], 1):
                    np.multiply(one, other, out=product)
                    found[i, j] = np.add.reduceat(product, edges[:-1])
        for at in np.flatnonzero(sizes > (BLOCK_ROWS if has_short else 0)).tolist():
            own = rows[:, edges[at] : edges[at + 1]]
            found[..., at] = 0
            for block in _blocks(own):
                for i in range(1, width + 1):
                    found[i, : i + 1, at] += np.vecdot(block[i], block[: i + 1]).astype(np.int64).sum(axis=1)
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


def limbs_of(codes: int, code_of: Ints, rows: Ints, total: Iterable[Bits], squares: Iterable[Bits]) -> Ints:
    """(codes, _LIMBS) from parts of the sums of some cells.

    code_of, rows: the code of each cell, and how many numbers it has. total, squares: parts of the sums of
        the numbers and of their squares, which fit into these digits.
    """
    limbs = np.zeros((codes, _LIMBS), np.int64)
    np.add.at(limbs[:, _ROWS], code_of, rows)
    for first, step, parts in ((_DIGITS.start, 1, total), (_PRODUCTS + 1, 2, squares)):
        for bits, integers in parts:
            for digit in range(3):
                own = integers >> (digit * _DIGIT)
                if digit < 2:
                    own &= (1 << _DIGIT) - 1
                place, left = np.divmod(bits + digit * _DIGIT, _DIGIT)
                np.add.at(limbs, (code_of, first + step * place), own << left)
    return limbs


def _blocks(rows: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    """Numbers along the last axis in blocks: (..., blocks, rows of a block)."""
    whole = rows.shape[-1] // BLOCK_ROWS * BLOCK_ROWS
    parts = [rows[..., :whole].reshape(*rows.shape[:-1], -1, BLOCK_ROWS), rows[..., np.newaxis, whole:]]
    return [part for part in parts if part.size]


def _most_squares(numbers: NDArray[np.float64]) -> float:
    return max(float(np.vecdot(block, block).max()) for block in _blocks(numbers))


def _digits_for(length: int) -> int:
    """How many digits there are if the first one leaves so many binary digits to the others."""
    return 1 - min(0, -length // _DIGIT)


def _exponent(number: float) -> int:
    """The exponent of the least power of two above a number that is not 0, but at least _LEAST."""
    return max(math.frexp(number)[1], _LEAST)


def _sums_of(unit: int, limbs: Sequence[int]) -> Sums:
    total = squares = 0
    for digit in reversed(limbs[_DIGITS]):
        total = (total << _DIGIT) + digit
    for i in range(_LIMBS - 2, _PRODUCTS - 1, -2):
        squares = (squares << _DIGIT) + (limbs[i] << _HALF) + limbs[i + 1]
    return Sums.of_unit(unit, limbs[_ROWS], total, squares)
