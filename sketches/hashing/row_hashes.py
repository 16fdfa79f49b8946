"""The row hashes of Count-Min: from a 64-bit digest of a key to one column in each row.

Model. A digest x is two numbers of 32 bits, its low and its high half. Row j has three random numbers of 64
bits, a, b and c, and

    v_j(x) = ((a * low(x) + b * high(x) + c) mod 2**64) >> 32          a number of 32 bits
    h_j(x) = (v_j(x) * width) >> 32                                    the column, 0 <= h_j(x) < width

v_j is strongly universal: for x != y the pair (v_j(x), v_j(y)) is uniform over the choice of a, b, c. So
two different digests share a column of a row with probability at most (1 + width / 2**32)**2 / width, and
the rows are independent. The numbers come from the seed by SplitMix64, which is integer arithmetic: the
same everywhere.

Where the keys are the integers below width themselves there is nothing to hash: `direct` takes the key for
its column, in one row, and nothing ever collides.

Source: Dietzfelbinger, "Universal hashing and k-wise independent random variables via integer arithmetic
without primes", STACS 1996, theorem 3.
"""

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from tidemark.sketches.errors import InvalidInput

Digests = NDArray[np.uint64]
CellIndices = NDArray[np.int64]

# More cells than this are asked for by mistake: an answer takes a hundred megabytes for as many.
MOST_CELLS = 2**22
MOST_ROWS = 64  # delta = 1e-27
_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)


@dataclass(frozen=True, slots=True)
class RowHashes:
    """`rows` hash functions onto columns 0 to width - 1, both at least 1, chosen by `seed` below 2**64."""

    rows: int
    width: int
    seed: int
    direct: bool = False

    @property
    def cells(self) -> int:
        """The number of cells in all rows."""
        return self.rows * self.width

    @property
    def eps(self) -> float:
        """With probability 1 - delta the least crowded row holds at most eps * (n - f(x)) of other keys."""
        return 0.0 if self.direct else math.e / self.width

    @property
    def delta(self) -> float:
        """How often the promise of eps may fail."""
        return 0.0 if self.direct else math.exp(-self.rows)

    def factors(self) -> NDArray[np.uint64]:
        """The numbers a, b and c of every row, shape (rows, 3)."""
        return _factors(self.seed, self.rows)

    def cells_of(self, digests: Digests) -> CellIndices:
        """For each digest its cell in every row, shape (rows, n): row * width + column."""
        if self.direct:
            return digests.astype(np.int64)[None, :]
        result = np.empty((self.rows, len(digests)), np.int64)
        low, high, width = digests & _LOW, digests >> _HALF, np.uint64(self.width)
        for row, (a, b, c) in enumerate(self.factors()):
            result[row] = ((a * low + b * high + c) >> _HALF) * width >> _HALF
            result[row] += row * self.width
        return result


@cache
def _factors(seed: int, rows: int) -> NDArray[np.uint64]:
    numbers = [splitmix_int(seed + (i + 1) * 0x9E3779B97F4A7C15) for i in range(3 * rows)]
    return np.array(numbers, np.uint64).reshape(rows, 3)


def splitmix_int(state: int) -> int:
    """The output function of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014) of a number, modulo 2**64."""
    return int(splitmix(np.array([state % 2**64], np.uint64))[0])


def splitmix(states: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The same of an array: a bijection of 64 bits that leaves no pattern."""
    states = (states ^ states >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    states = (states ^ states >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return states ^ states >> np.uint64(31)


def checked_hashes(hashes: RowHashes) -> RowHashes:
    """The hashes; InvalidInput unless a sketch can have them."""
    if not (1 <= hashes.rows <= MOST_ROWS and hashes.width >= 1 and hashes.cells <= MOST_CELLS):
        raise InvalidInput(
            f"got {hashes}, {hashes.cells:,} cells; expected 1 to {MOST_ROWS} rows, a column, and at most "
            f"{MOST_CELLS:,} cells; use a larger eps or delta"
        )
    if isinstance(hashes.seed, bool) or not isinstance(hashes.seed, int) or not 0 <= hashes.seed < 2**64:
        raise InvalidInput(f"got seed = {hashes.seed!r}; expected an integer from 0 to 2**64 - 1")
    return hashes
