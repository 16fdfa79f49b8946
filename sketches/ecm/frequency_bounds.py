"""A Count-Min whose cells have bounds: what an ECM-sketch knows of one window; in this form sketches add.

Model. Every arrival of a window is in one cell of each row, the one that its key hashes to. R_j(x), the
number in x's cell of row j, is f(x), the arrivals of x, and those of other keys. What is known of a cell is
lo <= R <= hi.

Guarantee, with n the arrivals in the window, and eps, delta those of the row hashes:

    f(x) <= min over j of hi_j(x)                                        always
    f(x) >= (min over j of lo_j(x) - eps * n) / (1 - eps)                with probability 1 - delta

Proof. R_j(x) >= f(x) in every row. Others than x add to the least crowded row at most eps * (n - f(x)) with
probability 1 - delta (Markov, each row on its own), so min R <= f + eps * (n - f), and min lo <= min R.
Solve for f. Inner products: the same with the sum over a row of R_a * R_b, which holds ab and what
collides.

Disjoint streams with the same row hashes add, cell by cell. The sum is the Count-Min of all of them, so its
lower bound fails with probability delta in all, and not with delta for each.

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


@dataclass(frozen=True, slots=True, eq=False)
class FrequencyBounds:
    """The cells of one window: `cells` has rows * width counts, row after row."""

    hashes: RowHashes
    cells: Counts

    def total(self) -> Estimate:
        """n: every row holds all arrivals, so the narrowest of each bound is taken."""
        shape = (self.hashes.rows, self.hashes.width)
        lo = int(self.cells.lo.reshape(shape).sum(axis=1).max())
        hi = int(self.cells.hi.reshape(shape).sum(axis=1).min())
        mean = float(self.cells.estimate.sum()) / self.hashes.rows
        return Estimate(min(max(mean, lo), hi), lo, hi)

    def points(self, digests: Digests) -> Counts:
        """How often each key arrived: the estimate |f' - f| <= eps * n, and bounds. Shapes as `digests`."""
        cells = self.hashes.cells_of(checked_digests(digests, self.hashes))
        hi = self.cells.hi[cells].min(axis=0)
        estimate = self.cells.estimate[cells].min(axis=0)
        least = self.cells.lo[cells].min(axis=0)
        return Counts(np.minimum(estimate, hi), *self._without_collisions(least, hi))

    def inner_product(self, other: "FrequencyBounds") -> Estimate:
        """The sum over all keys of f(x) here times f(x) there: the size of their join.

        InvalidInput unless both have the same row hashes.
        """
        require_same_hashes([self.hashes, other.hashes])
        shape = (self.hashes.rows, self.hashes.width)
        a, b = self.cells, other.cells
        lo, hi, estimate = (
            (x.astype(np.float64) * y.astype(np.float64)).reshape(shape).sum(axis=1).min()
            for x, y in ((a.lo, b.lo), (a.hi, b.hi), (a.estimate, b.estimate))
        )
        # Sums of products pass 2**53: what rounding may have done is given to the bounds.
        slack = self.hashes.width * 2.0**-52
        eps = self.hashes.eps
        collided = eps * self.total().hi * other.total().hi
        least = (lo * (1 - slack) - collided * (1 + slack)) / (1 - eps) if eps < 1 else 0.0
        most = max(0, math.floor(hi * (1 + slack)))
        least = min(max(0, math.ceil(least * (1 - slack))), most)
        return Estimate(min(max(float(estimate), least), most), least, most)

    def self_join(self) -> Estimate:
        """F2, the sum of f(x)**2 over all keys. Every key counts at least once, so it is at least n."""
        found = self.inner_product(self)
        lo = max(found.lo, self.total().lo)
        return Estimate(max(found.estimate, lo), lo, max(found.hi, lo))

    def _without_collisions(self, least: Ints, hi: Ints) -> tuple[Ints, Ints]:
        eps = self.hashes.eps
        if eps >= 1:
            return np.zeros_like(hi), hi
        lo = np.ceil((least - eps * self.total().hi) / (1 - eps) * (1 - 2**-40) - 2**-20)
        return np.clip(lo, 0, hi).astype(np.int64), hi


def combine(bounds: Sequence[FrequencyBounds]) -> FrequencyBounds:
    """The Count-Min of disjoint streams together; InvalidInput for none, or for unlike row hashes."""
    if not bounds:
        raise InvalidInput("got no frequencies to combine; expected at least one")
    require_same_hashes([b.hashes for b in bounds])
    return FrequencyBounds(bounds[0].hashes, reduce(add_counts, (b.cells for b in bounds)))


def require_same_hashes(hashes: Sequence[RowHashes]) -> None:
    """InvalidInput unless all are the same."""
    for other in hashes[1:]:
        if other != hashes[0]:
            raise InvalidInput(
                f"got sketches of {hashes[0]} and {other}; expected the same rows, width and seed; "
                "build them with one eps, delta and seed"
            )


def checked_digests(digests: Digests, hashes: RowHashes) -> Digests:
    """`digests` if they are an array of uint64, and below the width where they are columns themselves."""
    if not isinstance(digests, np.ndarray) or digests.dtype != np.uint64 or digests.ndim != 1:
        kind = getattr(digests, "dtype", type(digests).__name__)
        raise InvalidInput(
            f"got keys of {kind}, shape {np.shape(digests)}; expected a one-dimensional array of uint64; "
            "use digest(keys)"
        )
    if hashes.direct and len(digests) and int(digests.max()) >= hashes.width:
        raise InvalidInput(f"got the key {int(digests.max())}; expected keys below {hashes.width}")
    return digests
