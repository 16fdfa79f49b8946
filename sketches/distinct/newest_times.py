"""The newest time of each cell: the state of the sketches that were bit vectors before they had windows.

Model. Where a sketch of a whole stream sets a bit, its window form writes the time of the arrival. The cells
with a time in the window are then exactly those whose bits the window's keys alone would have set. Cells
without any arrival have a time that no arrival has: NEVER.

Erratum of the thesis: it marks these cells by 0 and allows arrivals at time 0, which are then lost.

Cost: O(1) an arrival; a query reads all cells. Memory: 8 bytes a cell.

Source: Datar, Gionis, Indyk and Motwani, "Maintaining stream statistics over sliding windows", SIAM J.
Comput. 2002, as in Singh, 2015, section 2.3.1.1.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tidemark.sketches.distinct.arrivals import NEVER, Arrivals, Ints
from tidemark.sketches.distinct.mixing import Hashes
from tidemark.sketches.errors import BrokenInvariant
from tidemark.sketches.hashing.row_hashes import Digests


class NewestTimes:
    """The newest time of each cell: all of a `DistinctCounter` but its estimate.

    times: shape (cells,), int64.
    """

    def __init__(self, cells: int, seed: int, cells_of: Callable[[Hashes], Ints]) -> None:
        """Cells without arrivals. cells_of: the cell of each hash."""
        self._arrivals, self._cells_of = Arrivals(seed), cells_of
        self.times = np.full(cells, NEVER, np.int64)

    @property
    def nbytes(self) -> int:
        """The size of the times, 8 bytes a cell."""
        return self.times.nbytes

    def update(self, digests: Digests, times: ArrayLike) -> None:
        """Adds arrivals; see DistinctCounter. O(1) an arrival."""
        hashes, time_array = self._arrivals.take(digests, times)
        np.maximum.at(self.times, self._cells_of(hashes), time_array)

    def live(self, since: int) -> NDArray[np.bool_]:
        """Whether each cell has an arrival at `since` or later, shape (cells,). O(cells)."""
        result: NDArray[np.bool_] = self.times >= since
        return result

    def check_invariants(self) -> None:
        """Raises BrokenInvariant unless the newest time of all cells is that of the last arrival."""
        if self.times.max() != self._arrivals.now:
            raise BrokenInvariant(
                f"got the newest time {self.times.max()}; expected the last arrival's, {self._arrivals.now}"
            )
