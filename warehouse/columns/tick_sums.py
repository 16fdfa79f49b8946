"""The exact sums of numbers by tick, of a run or of some live rows: those of any window are a difference.

`TickSums` keeps the sums of all ticks before each tick, so a window of whole ticks takes two of them, however
many ticks and rows it has. `TickSummer` makes them from rows, with numpy: each number is an integer
q = h * 2**32 + l and a place (exact_sums.py), and h, l and the halves of h * h, h * l and l * l are summed by
tick in int64. Halves have 32 bits, so nothing is rounded in 2**20 rows (numpy adds weights as doubles), and
nothing overflows in 2**31. Python's integers are made last, for each tick and place.

Cost: about 50 nanoseconds a row, 30 where the rows of a tick follow each other; 0.6 KB of memory a tick, and
about 60 bytes where it is stored.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidemark.warehouse.columns.codes import unique_codes
from tidemark.warehouse.columns.exact_sums import DIGITS, STEP, Sums
from tidemark.warehouse.columns.ticks import Window

MOST_TICKS = 2**16  # of a run: it has no sums by tick if it has more, and a question about it is a scan
CHUNK_ROWS = 2**16  # that are summed at once, in the cache of a processor: 2**20 at most, see above
_HALF = 32  # binary digits
_BYTES_A_TICK = 600  # in memory: two Python integers, of 1,074 and 2,148 digits or a few more
_SIZES = struct.Struct("<5Q")  # ticks; the digits that a total is shifted by and its bytes; those of squares
_UPPER = int(sys.byteorder == "little")  # where the upper half of an integer is
_FRACTION, _EXPONENTS, _BIAS = 52, 0x7FF, 1023  # of a double: digits stored, exponents, that of 1
_LIMBS = 9  # rows; h, l; and the halves of h * h, h * l and l * l


@dataclass(frozen=True, slots=True, eq=False)
class TickSums:
    """The sums of each of some ticks.

    ticks: (k,) ascending, without repetition.
    before: the sums of all ticks before each of them, and of all; k + 1.
    """

    ticks: NDArray[np.int64]
    before: tuple[Sums, ...]

    @classmethod
    def of(cls, ticks: NDArray[np.int64], sums: Sequence[Sums]) -> TickSums:
        """From the sums of each tick; the ticks ascend."""
        return cls(ticks, tuple(accumulate(sums, initial=Sums())))

    @classmethod
    def joined(cls, parts: Sequence[TickSums]) -> TickSums:
        """The sums of the rows of all parts."""
        found: dict[int, Sums] = {}
        for part in parts:
            for tick, sums in part.by_tick.items():
                found[tick] = found.get(tick, Sums()) + sums
        return cls.of(np.array(sorted(found), np.int64), [found[tick] for tick in sorted(found)])

    @property
    def by_tick(self) -> dict[int, Sums]:
        """The sums of each tick."""
        sums = [after - before for before, after in pairwise(self.before)]
        return dict(zip(self.ticks.tolist(), sums, strict=True))

    @property
    def nbytes(self) -> int:
        """About the memory that it takes."""
        return _BYTES_A_TICK * len(self.before)

    def within(self, window: Window) -> Sums:
        """The sums of the ticks in the window. O(log ticks)."""
        inside = window.slice_of(self.ticks)
        found: Sums = self.before[inside.stop] - self.before[inside.start]
        return found

    def to_bytes(self) -> bytes:
        """The stored form: sizes, then ticks and numbers of rows as int64, then totals and squares.

        Totals and squares lose the zeros that all of them end with, and have as many bytes as the longest.
        """
        sums = list(self.by_tick.values())
        counts = [[one.count for one in sums], [one.negative for one in sums], [one.positive for one in sums]]
        totals = _packed([one.total for one in sums])
        squares = _packed([one.squares for one in sums])
        sizes = _SIZES.pack(len(sums), *totals[:2], *squares[:2])
        numbers = np.array([self.ticks.tolist(), *counts], "<i8").tobytes()
        return b"".join([sizes, numbers, totals[2], squares[2]])

    @classmethod
    def from_bytes(cls, data: bytes) -> TickSums:
        """Decodes `to_bytes`; ValueError, TypeError or struct.error if malformed."""
        ticks, total_shift, total_bytes, square_shift, square_bytes = _SIZES.unpack_from(data)
        numbers = np.frombuffer(data, "<i8", 4 * ticks, _SIZES.size).reshape(4, ticks)
        start = _SIZES.size + numbers.nbytes
        middle = start + ticks * total_bytes
        if len(data) != middle + ticks * square_bytes:
            raise ValueError(f"sums of {ticks} ticks have {len(data)} bytes")
        totals = _unpacked(data[start:middle], total_shift, total_bytes)
        squares = _unpacked(data[middle:], square_shift, square_bytes)
        counts, negative, positive = numbers[1:].tolist()
        sums = map(Sums, counts, totals, squares, negative, positive)
        return cls.of(numbers[0], list(sums))


def _packed(numbers: Sequence[int]) -> tuple[int, int, bytes]:
    """The zeros that all the numbers end with, the bytes of each without them, and the bytes of all."""
    shift = min(((one & -one).bit_length() - 1 for one in numbers if one), default=0)
    width = max((one.bit_length() - shift for one in numbers), default=0) // 8 + 1
    return shift, width, b"".join((one >> shift).to_bytes(width, "little", signed=True) for one in numbers)


def _unpacked(data: bytes, shift: int, width: int) -> list[int]:
    return [
        int.from_bytes(data[i : i + width], "little", signed=True) << shift
        for i in range(0, len(data), width)
    ]


class TickSummer:
    """Sums rows by tick, in any order and any pieces.

    ticks: all that the rows can have, ascending; any number of them may have no rows.
    """

    def __init__(self, ticks: NDArray[np.int64]) -> None:
        self._ticks = ticks
        self._limbs: dict[int | None, NDArray[np.int64]] = {}  # by place, for each tick
        self._infinite = np.zeros((2, len(ticks)), np.int64)
        self._waiting: list[tuple[NDArray[Any], NDArray[np.int64]]] = []
        self._rows = 0

    def add(self, values: NDArray[Any], ticks: NDArray[np.int64]) -> None:
        """Adds rows: stored numbers of one measure, without NaN, and the tick of each."""
        self._waiting.append((values, ticks))
        self._rows += len(values)
        if self._rows >= CHUNK_ROWS:
            self._add_waiting()

    def finish(self) -> TickSums:
        """The sums of all rows that were added."""
        found = list(self.each())
        used = [code for code, sums in enumerate(found) if sums != Sums()]
        return TickSums.of(self._ticks[used], [found[code] for code in used])

    def each(self) -> Sequence[Sums]:
        """The sums of the rows of each tick that were added; those of a tick without rows are 0."""
        self._add_waiting()
        return EachSums(self._limbs, self._infinite)

    def _add_waiting(self) -> None:
        if not self._rows:
            return
        values, ticks = (np.concatenate(column) for column in zip(*self._waiting, strict=True))
        self._waiting, self._rows = [], 0
        names, codes = unique_codes(ticks)
        codes = self._ticks.searchsorted(names)[codes[:1] if len(names) == 1 else codes]
        for start in range(0, len(values), CHUNK_ROWS):
            part = slice(start, start + CHUNK_ROWS)
            own = _codes_of(codes, part)
            if values.dtype.kind == "f":
                self._add_doubles(values[part], own)
            else:
                self._add_whole(None, values[part], own)

    # `codes` are the places of the rows' ticks; a single one if all rows have one tick.

    def _add_doubles(self, values: NDArray[np.float64], codes: NDArray[np.intp]) -> None:
        finite = np.isfinite(values)
        if not finite.all():
            for row, sign in enumerate((-np.inf, np.inf)):
                self._infinite[row] += self._by_tick(codes, values == sign)
            values, codes = values[finite], _codes_of(codes, finite)
        places, whole = _whole(values)
        least = int(places.min(initial=0))
        for place in (np.flatnonzero(np.bincount(places - least)) + least).tolist():
            chosen = np.flatnonzero(places == place)
            self._add_whole(place, whole[chosen], _codes_of(codes, chosen))

    def _add_whole(self, place: int | None, numbers: NDArray[np.int64], codes: NDArray[np.intp]) -> None:
        """Adds integers of one place; None for numbers that are integers."""
        high, low = (half.astype(np.int64) for half in _halves(numbers))
        with np.errstate(over="ignore"):
            squared = low.view(np.uint64) * low.view(np.uint64)
        ones = np.broadcast_to(np.int64(1), numbers.shape)
        parts = [ones, high, low, *_halves(high * high), *_halves(high * low), *_halves(squared)]
        limbs = self._limbs.setdefault(place, np.zeros((_LIMBS, len(self._ticks)), np.int64))
        starts = _starts(codes)
        for row, part in enumerate(parts):
            if starts is None:
                limbs[row] += self._by_tick(codes, part)
            else:
                limbs[row, codes[starts]] += np.add.reduceat(part.astype(np.int64), starts)

    def _by_tick(self, codes: NDArray[np.intp], numbers: NDArray[Any]) -> NDArray[np.int64]:
        """The sums by tick of numbers, which are less than 2**53 together."""
        if len(codes) != 1:
            return np.bincount(codes, numbers, len(self._ticks)).astype(np.int64)
        sums = np.zeros(len(self._ticks), np.int64)
        sums[codes[0]] = numbers.sum()
        return sums


class EachSums(Sequence[Sums]):
    """The sums of each tick, made of machine integers when somebody takes them, once.

    limbs: (_LIMBS, ticks) by place. infinite: (2, ticks), the numbers that are minus infinity and infinity.
    """

    def __init__(self, limbs: Mapping[int | None, NDArray[np.int64]], infinite: NDArray[np.int64]) -> None:
        self._limbs, self._infinite = limbs, infinite
        self._found: dict[int, Sums] = {}

    def __len__(self) -> int:
        return len(self._infinite[0])

    def __getitem__(self, at: Any) -> Any:
        """The sums of one tick; no slices."""
        found = self._found.get(at)
        if found is None:
            negative, positive = self._infinite[:, at].tolist()
            found = Sums(negative=negative, positive=positive)
            for place, limbs in self._limbs.items():
                if limbs[0, at]:
                    found += _sums_of(place, limbs[:, at].tolist())
            self._found[at] = found
        return found


def _codes_of(codes: NDArray[np.intp], rows: slice | NDArray[Any]) -> NDArray[np.intp]:
    """Those of some rows."""
    return codes if len(codes) == 1 else codes[rows]


def _starts(codes: NDArray[np.intp]) -> NDArray[np.intp] | None:
    """Where the rows of each tick start, if those of a tick follow each other; None if not, or for one."""
    steps = np.diff(codes, prepend=-1)
    return np.flatnonzero(steps) if len(codes) > 1 and bool((steps >= 0).all()) else None


def _whole(values: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The place of each finite double, and its integer q (exact_sums.py), by the bits of the double."""
    bits = np.ascontiguousarray(values).view(np.int64)
    exponents = (bits >> _FRACTION) & _EXPONENTS
    if not exponents.all():  # zeros, and doubles that have fewer digits
        places = (np.frexp(values)[1] - 1) // STEP
        return places, np.ldexp(values, DIGITS - STEP * places).astype(np.int64)
    exponents -= _BIAS
    whole = (bits & ((1 << _FRACTION) - 1)) | (1 << _FRACTION)
    whole <<= (exponents & (STEP - 1)) + 1
    np.negative(whole, out=whole, where=bits < 0)
    return exponents >> (STEP.bit_length() - 1), whole


def _halves(numbers: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """The numbers as upper * 2**32 + lower with 0 <= lower < 2**32: their halves in memory, not copied."""
    halves = np.ascontiguousarray(numbers).view(np.uint32).reshape(-1, 2)
    upper, lower = halves[:, _UPPER], halves[:, 1 - _UPPER]
    return (upper.view(np.int32) if numbers.dtype.kind == "i" else upper), lower


def _sums_of(place: int | None, limbs: Sequence[int]) -> Sums:
    """The sums of the rows of a tick and place."""
    rows, high, low, *products = limbs
    hh, hl, ll = ((products[i] << _HALF) + products[i + 1] for i in (0, 2, 4))
    squares = (hh << 2 * _HALF) + (hl << _HALF + 1) + ll
    return Sums.at(place, rows, (high << _HALF) + low, squares)
