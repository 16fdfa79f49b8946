"""Q-digest: a mergeable quantile sketch of integers, to compare with; GK is what tidemark uses.

Model. The keys 0 to 2**bits - 1 are the leaves of a binary tree. A node has a count of values: each is the
key of some leaf below the node, and nobody knows which. Wherever a node, its sibling and their parent have at
most n / k values together, the parent takes them. So of n values

    nodes                    <=  3 k, and one for each key that has more than n / k values
    hi - lo of any rank      <=  bits * floor(n / k)

Proof. The uncertainty of a rank is the sum of the counts of the nodes above the leaf, at most `bits` nodes of
at most n / k values each, because a node above the leaves takes values only up to n / k. A node that was not
taken has, with its sibling and their parent, more than n / k values, and each node is in at most three such
sums.

Cost: an update of m values O(m log m + bits * nodes). Memory: 16 bytes a node.

Source: Shrivastava, Buragohain, Agrawal and Suri, "Medians and beyond", SenSys 2004.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tidemark.sketches.bounds.target_rank import Phi, target_rank
from tidemark.sketches.errors import EmptySketch, InvalidInput
from tidemark.sketches.inputs import INT64, sorted_column

Ints = NDArray[np.int64]
Level = tuple[Ints, Ints]
"""The numbers of the nodes of a level, ascending, and their counts."""


class QDigest:
    """Quantiles and ranks of integers from 0 to 2**bits - 1; see the module docstring.

    >>> digest = QDigest(bits=10, k=50)
    >>> digest.update(np.arange(1000))
    >>> abs(digest.quantile(0.5) - 500) <= 10 * 1000 // 50
    True

    bits: from 1 to 62. k: at least 1. Raises InvalidInput for other values.
    """

    def __init__(self, bits: int, k: int) -> None:
        if not 1 <= bits <= 62 or k < 1:
            raise InvalidInput(f"got {bits} bits and k = {k}; expected 1 to 62 bits and k of at least 1")
        self.bits, self.k, self.n = bits, k, 0
        none = np.empty(0, np.int64)
        self._levels: list[Level] = [(none, none)] * (bits + 1)

    def __len__(self) -> int:
        """The number of nodes."""
        return sum(len(numbers) for numbers, _ in self._levels)

    def update(self, array: ArrayLike) -> None:
        """Adds integers, shape (m,). Raises InvalidInput for values out of range."""
        values = sorted_column(array, INT64)
        if len(values) and not 0 <= values[0] <= values[-1] < 2**self.bits:
            raise InvalidInput(f"got {values[0]} to {values[-1]}; expected 0 to 2**{self.bits} - 1")
        numbers, counts = np.unique(values, return_counts=True)
        self._levels[0] = _sum(self._levels[0], (numbers, counts.astype(np.int64)))
        self.n += len(values)
        self._compress()

    def merge(self, other: "QDigest") -> None:
        """Adds the values of another digest. Raises InvalidInput unless both have the same bits and k."""
        if (other.bits, other.k) != (self.bits, self.k) or other is self:
            raise InvalidInput(
                f"got a digest of {other.bits} bits, k = {other.k}; expected another one like this"
            )
        others = other._levels  # noqa: SLF001  an object of this class
        self._levels = [_sum(mine, theirs) for mine, theirs in zip(self._levels, others, strict=True)]
        self.n += other.n
        self._compress()

    def rank_le(self, xs: ArrayLike) -> tuple[Ints, Ints]:
        """Certain bounds (lo, hi) of the number of values <= x, for each x, both inclusive. O(nodes)."""
        points = np.atleast_1d(np.asarray(xs, np.int64))
        lo, hi = np.zeros(len(points), np.int64), np.zeros(len(points), np.int64)
        for level, (numbers, counts) in enumerate(self._levels):
            before = np.concatenate([[0], np.cumsum(counts)])
            hi += before[np.searchsorted(numbers, points >> level, "right")]
            lo += before[np.searchsorted(numbers, (points + 1) >> level)]
        return lo, hi

    def quantile(self, phi: Phi) -> int:
        """The last key of the first node at which the nodes so far have ceil(phi * n) values. O(nodes).

        Nodes come in the order of their last keys, smaller ones first. Raises EmptySketch without values.
        """
        if not self.n:
            raise EmptySketch("got no values; a quantile needs at least one; add some first")
        lasts = np.concatenate(
            [((numbers + 1) << level) - 1 for level, (numbers, _) in enumerate(self._levels)]
        )
        levels = np.repeat(np.arange(self.bits + 1), [len(numbers) for numbers, _ in self._levels])
        order = np.lexsort((levels, lasts))
        counts = np.concatenate([counts for _, counts in self._levels])[order]
        return int(lasts[order][np.searchsorted(np.cumsum(counts), target_rank(phi, self.n))])

    def _compress(self) -> None:
        """Gives parents what they can take, from the leaves on."""
        most = self.n // self.k
        for level in range(self.bits):
            numbers, counts = self._levels[level]
            parents, starts = np.unique(numbers >> 1, return_index=True)
            if not len(parents):
                continue
            below = np.add.reduceat(counts, starts)
            above, above_counts = self._levels[level + 1]
            held = _sum((parents, np.zeros(len(parents), np.int64)), (above, above_counts))
            own = held[1][np.searchsorted(held[0], parents)]
            takes = below + own <= most
            kept = ~np.repeat(takes, np.diff(np.append(starts, len(numbers))))
            self._levels[level] = numbers[kept], counts[kept]
            self._levels[level + 1] = _sum((above, above_counts), (parents[takes], below[takes]))


def _sum(one: Level, other: Level) -> Level:
    """The nodes of both, each once."""
    numbers, places = np.unique(np.concatenate([one[0], other[0]]), return_inverse=True)
    counts = np.zeros(len(numbers), np.int64)
    np.add.at(counts, places, np.concatenate([one[1], other[1]]))
    return numbers, counts
