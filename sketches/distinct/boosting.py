"""Several sketches as one: the median of their answers, or the sum over parts of the keys.

    MedianOf    every part gets all arrivals; the parts have different seeds; the answer is their median
    SplitSum    every part gets the keys of one of k equal shares of the hashes; the answer is the sum

Guarantee, for k parts of standard error s(D):

    MedianOf    if each part is within eps with probability above 2/3, the median of c' * log2(1 / delta) is
                within eps with probability 1 - delta; its standard error is about s(D) * sqrt(pi / (2 k))
    SplitSum    its standard error is s(D / k) / sqrt(k), because the parts are independent

Cost: MedianOf costs k times one part, SplitSum as much as one. Memory: that of the parts together.

At equal memory neither is better than one sketch with all of it, which is what the thesis found: a part of a
k-th of the memory has an error about sqrt(k) times as large. LC is worse off: its parts saturate.

Source: Singh, 2015, sections 2.3.2 and 2.4.4. The third method, stochastic averaging, is what PCSA and LogLog
are made of; see stochastic_average.py.
"""

import math
from collections.abc import Sequence
from statistics import median

import numpy as np
from numpy.typing import ArrayLike

from tidemark.sketches.distinct.arrivals import Arrivals
from tidemark.sketches.distinct.distinct_counter import DistinctCounter
from tidemark.sketches.distinct.mixing import cell_of, mix
from tidemark.sketches.errors import InvalidInput
from tidemark.sketches.hashing.row_hashes import Digests


class _Parts:
    """Sketches that are used as one; InvalidInput for none, and for one that is given twice."""

    def __init__(self, parts: Sequence[DistinctCounter]) -> None:
        """The parts become this sketch's own: they are updated through it alone."""
        if not parts or len({id(part) for part in parts}) < len(parts):
            raise InvalidInput(f"got {len(parts)} parts; expected at least one, and each of them once")
        self.parts = tuple(parts)

    @property
    def nbytes(self) -> int:
        """The size of all parts."""
        return sum(part.nbytes for part in self.parts)

    def check_invariants(self) -> None:
        """Raises BrokenInvariant if a part breaks its invariants."""
        for part in self.parts:
            part.check_invariants()


class MedianOf(_Parts):
    """The median of the answers of sketches that all get the same arrivals, a `DistinctCounter`.

    parts: at least one sketch without arrivals, alike but for their seeds. Raises InvalidInput for none.
    """

    def update(self, digests: Digests, times: ArrayLike) -> None:
        """Adds arrivals to every part; see DistinctCounter."""
        # A batch that the first part refuses is refused by all, so none has changed.
        for part in self.parts:
            part.update(digests, times)

    def distinct(self, since: int) -> float:
        """The median of the parts' estimates; see DistinctCounter."""
        return float(median(part.distinct(since) for part in self.parts))

    def relative_error(self, distinct: float) -> float:
        """That of a part if there is one, else times sqrt(pi / (2 k)), as for many normal errors."""
        k = len(self.parts)
        return self.parts[0].relative_error(distinct) * (math.sqrt(math.pi / (2 * k)) if k > 1 else 1)


class SplitSum(_Parts):
    """The sum of the answers of sketches that share the keys between them, a `DistinctCounter`.

    parts: at least one sketch without arrivals, of equal configuration. Raises InvalidInput for none.
    """

    def __init__(self, parts: Sequence[DistinctCounter]) -> None:
        super().__init__(parts)
        self._arrivals = Arrivals(0)

    def update(self, digests: Digests, times: ArrayLike) -> None:
        """Adds arrivals, each to the part that owns its key; see DistinctCounter."""
        hashes, time_array = self._arrivals.take(digests, times)
        # Mixed twice: a share that the part's own hash decided would leave most of its cells without keys.
        shares = cell_of(mix(hashes, len(self.parts)), len(self.parts))
        order = np.argsort(shares, kind="stable")
        ends = np.cumsum(np.bincount(shares, minlength=len(self.parts)))
        for part, rows in zip(self.parts, np.split(order, ends[:-1]), strict=True):
            part.update(digests[rows], time_array[rows])

    def distinct(self, since: int) -> float:
        """The sum of the parts' estimates; see DistinctCounter."""
        return math.fsum(part.distinct(since) for part in self.parts)

    def relative_error(self, distinct: float) -> float:
        """That of a part for a k-th of the keys, divided by sqrt(k)."""
        k = len(self.parts)
        return self.parts[0].relative_error(distinct / k) / math.sqrt(k)
