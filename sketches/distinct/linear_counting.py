"""LC, linear counting: n cells, each with the time of its last arrival.

Model. A hash has one of n cells, all equally likely. M[cell] is the newest time of an arrival there. A cell
is unset if that time is before the window. With z unset cells,

    D ~ n * ln(n / z)

because D keys leave a cell unset with probability (1 - 1/n)**D ~ e**(-D/n). Where z = 0 there is no estimate:
`distinct` raises Saturated.

Guarantee, with E the estimate and the load p = D / n <= 12:

    sqrt(mean of (E / D - 1)**2)  ~  sqrt(n * (e**p - p - 1)) / D

It is a standard error, and holds only as long as cells are left: about n * e**-p are, so a load of 12 takes
millions of cells, and a thousand cells are used up at a load of 5.

Cost: O(1) an arrival; a query reads all n times. Memory: 8 bytes a cell.

Source: Singh, 2015, section 2.3.1.2, after Whang, Vander-Zanden and Taylor, "A linear-time probabilistic
counting algorithm for database applications", TODS 1990.

Errata of the thesis:
  1. The estimate is printed as m * ln(n / m), with m unset bits. It is n * ln(n / m). For n = 1000 cells the
     printed formula answers 368 for D = 1000, and 146 for D = 3000.
  2. Arrivals at time 0 are lost; see newest_times.py.
"""

import math

from tidemark.sketches.distinct.arrivals import MOST_CELLS, checked_distinct, checked_since, whole_number
from tidemark.sketches.distinct.mixing import cell_of
from tidemark.sketches.distinct.newest_times import NewestTimes
from tidemark.sketches.errors import Saturated


class LinearCounting(NewestTimes):
    """Linear counting over any window, a `DistinctCounter`.

    cells: n in the module docstring, from 1. seed: chooses the hashes, below 2**64.

    Raises InvalidInput for other values.

    >>> import numpy as np
    >>> sketch = LinearCounting(cells=10_000)
    >>> sketch.update(np.arange(20_000, dtype=np.uint64), np.arange(20_000))
    >>> abs(sketch.distinct(since=10_000) / 10_000 - 1) < 4 * sketch.relative_error(10_000)
    True
    """

    def __init__(self, *, cells: int, seed: int = 0) -> None:
        self.cells = whole_number("cells", cells, 1, MOST_CELLS)
        super().__init__(self.cells, seed, lambda hashes: cell_of(hashes, self.cells))

    def distinct(self, since: int) -> float:
        """The estimate; see DistinctCounter. O(cells). Raises Saturated if no cell is unset."""
        live = self.live(checked_since(since))
        return linear_estimate(self.cells - int(live.sum()), self.cells)

    def relative_error(self, distinct: float) -> float:
        """The standard error of the module docstring; 0 for an empty window."""
        return linear_error(distinct, self.cells)


def linear_estimate(unset: int, cells: int) -> float:
    """The estimate n * ln(n / z) for z unset cells of n; Saturated if z is 0."""
    if not unset:
        raise Saturated(
            f"got arrivals in all {cells:,} cells; expected one at least without; use more cells, "
            "at least a twelfth of the distinct keys, or a shorter window"
        )
    return cells * math.log(cells / unset)


def linear_error(distinct: float, cells: int) -> float:
    """The standard error sqrt(n * (e**p - p - 1)) / D with the load p = D / n; 0 for D = 0."""
    if not checked_distinct(distinct):
        return 0.0
    load = distinct / cells
    return math.sqrt(cells * (math.expm1(load) - load)) / distinct if load < 700 else math.inf
