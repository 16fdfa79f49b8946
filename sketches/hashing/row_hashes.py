"""The row hashes of Count-Min: they map the 64-bit digest of a key to one column in each row.

Model. A digest x consists of two 32-bit numbers, low(x) and high(x). Row j has three random 64-bit numbers
a, b and c, and

    v_j(x) = ((a * low(x) + b * high(x) + c) mod 2**64) >> 32          a number of 32 bits
    h_j(x) = (v_j(x) * width) >> 32                                    the column, 0 <= h_j(x) < width

v_j is strongly universal: for x != y the pair (v_j(x), v_j(y)) is uniform over the choice of a, b, c. So
two different digests share a column of a row with probability at most (1 + width / 2**32)**2 / width, and
the rows are independent. The random numbers are derived from the seed by SplitMix64, which is integer
arithmetic and gives the same numbers on every machine.

If the keys are integers below width, no hash is needed: with `direct`, a key is its own column, in one row,
and no keys collide.

Cost: O(rows) a digest.

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

# A query of this many cells takes about 100 MB; more cells are most likely a mistake.
MOST_CELLS = 2**22
MOST_ROWS = 64  # enough for delta = 1e-27
GOLDEN = 0x9E3779B97F4A7C15  # the odd integer next to 2**64 divided by the golden ratio
_LOW_MASK, _HALF_BITS = np.uint64(0xFFFFFFFF), np.uint64(32)


@dataclass(frozen=True, slots=True)
class RowHashes:
    """`rows` independent hash functions from digests to columns.

    rows, width: the numbers of rows and of columns of a row, at least 1.
    seed: an integer below 2**64 that determines the hash functions.
    direct: a digest is its own column; it must then be below width, and rows is 1.
    """

    rows: int
    width: int
    seed: int
    direct: bool = False

    @property
    def cells(self) -> int:
        """The number of cells: rows * width."""
        return self.rows * self.width

    @property
    def eps(self) -> float:
        """The collision error: with probability 1 - delta some row adds at most eps * (n - f(x)) to f(x)."""
        return 0.0 if self.direct else math.e / self.width

    @property
    def delta(self) -> float:
        """The probability that collisions exceed `eps` in every row."""
        return 0.0 if self.direct else math.exp(-self.rows)

    def factors(self) -> NDArray[np.uint64]:
        """The random numbers a, b and c of every row, shape (rows, 3). Computed once for a seed."""
        return _factors(self.seed, self.rows)

    def cells_of(self, digests: Digests) -> CellIndices:
        """The cell of each digest in every row, shape (rows, n): row * width + column. O(rows * n)."""
        if self.direct:
            return digests.astype(np.int64)[None, :]
        result = np.empty((self.rows, len(digests)), np.int64)
        low, high, width = digests & _LOW_MASK, digests >> _HALF_BITS, np.uint64(self.width)
        for row, (a, b, c) in enumerate(self.factors()):
            result[row] = ((a * low + b * high + c) >> _HALF_BITS) * width >> _HALF_BITS
            result[row] += row * self.width
        return result


@cache
def _factors(seed: int, rows: int) -> NDArray[np.uint64]:
    numbers = [splitmix_int(seed + (i + 1) * GOLDEN) for i in range(3 * rows)]
    return np.array(numbers, np.uint64).reshape(rows, 3)


def splitmix_int(state: int) -> int:
    """`splitmix` of one number, taken modulo 2**64."""
    return int(splitmix(np.array([state % 2**64], np.uint64))[0])


def splitmix(states: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The output function of SplitMix64 of each state: a bijection of 64-bit numbers that mixes all bits.

    Source: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
    """
    mixed = states >> np.uint64(30)
    mixed ^= states  # in place: new arrays take longer than the arithmetic
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return mixed


def checked_hashes(hashes: RowHashes) -> RowHashes:
    """`hashes`; InvalidInput unless their sizes and seed are within the limits."""
    if not (1 <= hashes.rows <= MOST_ROWS and hashes.width >= 1 and hashes.cells <= MOST_CELLS):
        raise InvalidInput(
            f"got {hashes}, {hashes.cells:,} cells; expected 1 to {MOST_ROWS} rows, at least one column, and "
            f"at most {MOST_CELLS:,} cells; use a larger eps or delta"
        )
    if isinstance(hashes.seed, bool) or not isinstance(hashes.seed, int) or not 0 <= hashes.seed < 2**64:
        raise InvalidInput(f"got seed = {hashes.seed!r}; expected an integer from 0 to 2**64 - 1")
    return hashes
