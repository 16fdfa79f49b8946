"""A Count-Min sketch whose cells have bounds: the frequencies in one window of an ECM-sketch.

Model. Every arrival of a window is counted in one cell of each row, the one that its key hashes to. f(x) is
the number of arrivals of x, R_j(x) that of all keys in x's cell of row j: f(x) and those of the others. Each
cell has bounds lo <= R <= hi.

Guarantee, with n the number of arrivals in the window, and eps, delta those of the row hashes:

    f(x) <= min over j of hi_j(x)                                        always
    f(x) >= (min over j of lo_j(x) - eps * n) / (1 - eps)                with probability 1 - delta

Proof. R_j(x) >= f(x) in every row. In the row with the smallest R, keys other than x add at most
eps * (n - f(x)) with probability 1 - delta (Markov's inequality for each row, rows are independent), so
min R <= f + eps * (n - f), and min lo <= min R. Solve for f. For inner products the proof is the same with
the sum over a row of R_a * R_b, which is the true inner product plus collisions.

Example. eps = 0.01, n = 1000 and two rows: x's cells have lo 20, hi 22 and lo 25, hi 25. Then f(x) <= 22,
and with probability 1 - delta f(x) >= (20 - 10) / 0.99, so at least 11.

The sketches of disjoint streams with the same row hashes add, cell by cell. The sum is the Count-Min sketch
of all streams together, so its lower bound fails with probability delta in total, not delta for each stream.

Source: Papapetrou et al., VLDB Journal 2015, section 4.1 and lemmas 3 and 4; Cormode and Muthukrishnan, J.
Algorithms 2005. The bounds are ours.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from tidemark.sketches.bounds.count_bounds import Counts, Estimate, add_counts
from tidemark.sketches.counters.buckets import Ints
from tidemark.sketches.errors import InvalidInput
from tidemark.sketches.hashing.row_hashes import Digests, RowHashes
from tidemark.sketches.inputs import checked_digests


@dataclass(frozen=True, slots=True, eq=False)
class FrequencyBounds:
    """The frequencies of keys in one window, as a Count-Min sketch with bounds.

    cells: rows * width counts; the cell of row i and column j has index i * width + j.
    """

    hashes: RowHashes
    cells: Counts

    def total(self) -> Estimate:
        """The number of arrivals in the window, with bounds. O(cells).

        Every row counts all arrivals, so lo is the largest and hi the smallest sum of a row.
        """
        shape = (self.hashes.rows, self.hashes.width)
        lo = int(self.cells.lo.reshape(shape).sum(axis=1).max())
        hi = int(self.cells.hi.reshape(shape).sum(axis=1).min())
        mean = float(self.cells.estimate.sum()) / self.hashes.rows
        return Estimate(min(max(mean, lo), hi), lo, hi)

    def points(self, digests: Digests) -> Counts:
        """How often each key arrived, with bounds; the result has the shape of `digests`. O(rows) a key.

        The estimate f' has |f' - f| <= eps * n with probability 1 - delta, see ecm.py.
        """
        cells = self.hashes.cells_of(digests_below(digests, self.hashes))
        hi = self.cells.hi[cells].min(axis=0)
        estimate = self.cells.estimate[cells].min(axis=0)
        smallest_lo = self.cells.lo[cells].min(axis=0)
        return Counts(np.minimum(estimate, hi), *self._without_collisions(smallest_lo, hi))

    def inner_product(self, other: "FrequencyBounds") -> Estimate:
        """The sum over all keys of their frequency here times that in `other`: the size of their join.

        Raises InvalidInput unless both have the same row hashes. O(cells).
        """
        require_same_hashes([self.hashes, other.hashes])
        shape = (self.hashes.rows, self.hashes.width)
        a, b = self.cells, other.cells
        lo, hi, estimate = (
            (x.astype(np.float64) * y.astype(np.float64)).reshape(shape).sum(axis=1).min()
            for x, y in ((a.lo, b.lo), (a.hi, b.hi), (a.estimate, b.estimate))
        )
        # Sums of products exceed 2**53, so the bounds are widened by the possible rounding error.
        slack = self.hashes.width * 2.0**-52
        eps = self.hashes.eps
        collisions = eps * self.total().hi * other.total().hi
        lower = (lo * (1 - slack) - collisions * (1 + slack)) / (1 - eps) if eps < 1 else 0.0
        upper = max(0, math.floor(hi * (1 + slack)))
        lower = min(max(0, math.ceil(lower * (1 - slack))), upper)
        return Estimate(min(max(float(estimate), lower), upper), lower, upper)

    def self_join(self) -> Estimate:
        """F2, the sum of f(x)**2 over all keys, with bounds. O(cells).

        Frequencies are integers, so f(x)**2 >= f(x), and F2 is at least n.
        """
        product = self.inner_product(self)
        lo = max(product.lo, self.total().lo)
        return Estimate(max(product.estimate, lo), lo, max(product.hi, lo))

    def _without_collisions(self, smallest_lo: Ints, hi: Ints) -> tuple[Ints, Ints]:
        """(lo, hi) of f(x), from min lo_j(x) and min hi_j(x) over the rows."""
        eps = self.hashes.eps
        if eps >= 1:
            return np.zeros_like(hi), hi
        # The factor and the offset round the lower bound down.
        lo = np.ceil((smallest_lo - eps * self.total().hi) / (1 - eps) * (1 - 2**-40) - 2**-20)
        return np.clip(lo, 0, hi).astype(np.int64), hi


def combine(bounds: Sequence[FrequencyBounds]) -> FrequencyBounds:
    """The frequencies of the union of disjoint streams: the sum cell by cell. O(len(bounds) * cells).

    Raises InvalidInput for no streams and for different row hashes.
    """
    if not bounds:
        raise InvalidInput("got no frequencies to combine; expected at least one")
    require_same_hashes([b.hashes for b in bounds])
    return FrequencyBounds(bounds[0].hashes, reduce(add_counts, (b.cells for b in bounds)))


def require_same_hashes(hashes: Sequence[RowHashes]) -> None:
    """Raises InvalidInput unless all row hashes are equal."""
    for other in hashes[1:]:
        if other != hashes[0]:
            raise InvalidInput(
                f"got sketches of {hashes[0]} and {other}; expected the same rows, width and seed; "
                "build them with one eps, delta and seed"
            )


def digests_below(digests: Digests, hashes: RowHashes) -> Digests:
    """Checked digests; for direct hashes, where a key is its own column, they must be below the width."""
    checked_digests(digests)
    if hashes.direct and len(digests) and int(digests.max()) >= hashes.width:
        raise InvalidInput(f"got the key {int(digests.max())}; expected keys below {hashes.width}")
    return digests
