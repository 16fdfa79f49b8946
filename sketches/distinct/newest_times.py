"""The newest time of each cell: the state of the sketches that were bit vectors before they had windows.

Model. Where a sketch of a whole stream sets a bit, its window form writes the time of the arrival. The cells
with a time in the window are then exactly those whose bits the window's keys alone would have set. Cells
without any arrival have a time that no arrival has: NEVER.

Erratum of the thesis: it marks these cells by 0 and allows arrivals at time 0, which are then lost.

Cost: O(1) an arrival; a query reads all cells. Memory: 8 bytes a cell.

Source: Datar, Gionis, Indyk and Motwani, "Maintaining stream statistics over sliding windows", SIAM J.
Comput. 2002, as in Singh, 2015, section 2.3.1.1.
"""

import numpy as np
from numpy.typing import NDArray

from tidemark.sketches.distinct.arrivals import NEVER, Ints
from tidemark.sketches.errors import BrokenInvariant


class NewestTimes:
    """The newest time of each of `cells` cells. times: shape (cells,), int64."""

    __slots__ = ("times",)

    def __init__(self, cells: int) -> None:
        """Cells without arrivals."""
        self.times = np.full(cells, NEVER, np.int64)

    def add(self, cells: Ints, times: Ints) -> None:
        """Adds arrivals, of which several may reach one cell. O(n)."""
        np.maximum.at(self.times, cells, times)

    def live(self, since: int) -> NDArray[np.bool_]:
        """Whether each cell has an arrival at `since` or later, shape (cells,). O(cells)."""
        result: NDArray[np.bool_] = self.times >= since
        return result

    def check_invariants(self, now: int) -> None:
        """Raises BrokenInvariant unless the newest time of all cells is `now`, that of the last arrival."""
        if self.times.max() != now:
            raise BrokenInvariant(
                f"got the newest time {self.times.max()}; expected the last arrival's, {now}"
            )
