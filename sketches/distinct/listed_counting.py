"""LC2: linear counting with its cells listed by time, so that a query does not read all cells.

Model. As in linear_counting.py, but the cells are in a recent list, see recent_list.py, in order of their
newest times. The cells of a window are then the front of the list, and the list knows their number: z is the
number of cells less that. Answers and guarantee are those of LC with as many cells and the same seed.

Cost: O(1) an arrival, besides sorting the batch, and O(1) a query, amortised, for windows that only move
forward: each arrival leaves the window once. Memory: 16 bytes a cell: a time, and the two neighbours of the
cell in the list as 32-bit numbers.

Source: Singh, 2015, section 2.3.1.2. We deviate: cells before the window stay in the list, so any window can
be asked for. The thesis keeps a list of times and cells, linked both ways, beside the vector of times and
pointers into the list: three times as much as 16 bytes.
"""

from numpy.typing import ArrayLike

from tidemark.sketches.distinct.arrivals import (
    MOST_CELLS,
    Arrivals,
    checked_since,
    last_arrivals,
    whole_number,
)
from tidemark.sketches.distinct.linear_counting import linear_error, linear_estimate
from tidemark.sketches.distinct.mixing import cell_of
from tidemark.sketches.distinct.recent_list import RecentList
from tidemark.sketches.errors import BrokenInvariant
from tidemark.sketches.hashing.row_hashes import Digests

CELL_BYTES = 16  # a time, and the neighbours before and after in the list


class ListedCounting:
    """Linear counting over any window with fast queries, a `DistinctCounter`.

    cells: n of linear_counting.py, from 1. seed: chooses the hashes, below 2**64.

    Raises InvalidInput for other values.

    >>> import numpy as np
    >>> from tidemark.sketches.distinct.linear_counting import LinearCounting
    >>> plain, listed = LinearCounting(cells=500), ListedCounting(cells=500)
    >>> for sketch in (plain, listed):
    ...     sketch.update(np.arange(1000, dtype=np.uint64), np.arange(1000))
    >>> plain.distinct(since=300) == listed.distinct(since=300)
    True
    """

    def __init__(self, *, cells: int, seed: int = 0) -> None:
        self.cells = whole_number("cells", cells, 1, MOST_CELLS)
        self._arrivals = Arrivals(seed)
        self._newest = RecentList(self.cells)

    @property
    def nbytes(self) -> int:
        """16 bytes a cell, whether or not an arrival has reached it."""
        return CELL_BYTES * self.cells

    def update(self, digests: Digests, times: ArrayLike) -> None:
        """Adds arrivals; see DistinctCounter. O(n log n) for n arrivals."""
        hashes, time_array = self._arrivals.take(digests, times)
        cells, newest = last_arrivals(cell_of(hashes, self.cells), time_array)
        self._newest.add(cells.tolist(), newest.tolist())

    def distinct(self, since: int) -> float:
        """The estimate; see DistinctCounter. Amortised O(1). Raises Saturated if no cell is unset."""
        return linear_estimate(self.cells - self._newest.count_since(checked_since(since)), self.cells)

    def relative_error(self, distinct: float) -> float:
        """The standard error of linear_counting.py; 0 for an empty window."""
        return linear_error(distinct, self.cells)

    def check_invariants(self) -> None:
        """Raises BrokenInvariant unless the list has cells in order of their times. O(cells)."""
        self._newest.check_invariants(self._arrivals.now)
        if not all(0 <= cell < self.cells for cell, _ in self._newest.entries()):
            raise BrokenInvariant(f"got a cell out of range; expected cells from 0 to {self.cells - 1}")
