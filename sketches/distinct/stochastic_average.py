"""PCSA and LogLog: k bit vectors whose bits are the times at which they were last set.

Model. A hash has a group g, one of k, and a place b from 1 on with Pr[b] = 2**-b: the place of its lowest bit
that is 1. M[g][b] is the newest time of an arrival with this group and place. A bit is live if that time is
in the window. So the live bits are those that the window's keys alone would set, and both estimates are what
the sketches of whole streams would answer for the window; see newest_times.py.

    PCSA      R[g] = (least place that is not live) - 1       D ~ 1.29281 * k * 2**mean(R)
    LogLog    r[g] = greatest live place, 0 without any       D ~ 0.39701 * k * 2**mean(r)

A window without live bits holds nothing, and both answer 0.

Guarantee, with E the estimate, for k >= 64 and 10 k <= D <= 2**20 k:

    sqrt(mean of (E / D - 1)**2)  ~  0.78 / sqrt(k) for PCSA,   1.30 / sqrt(k) for LogLog

These are standard errors, not bounds. For small D both are too large: at D = k, PCSA by four fifths and
LogLog by an eighth, and at D = 3 k PCSA by a tenth. With few groups both are too large at any D. We deviate:
there are 32 places, and the last one takes all that would come later.

Cost: O(1) an arrival; a query reads all 32 k times. Memory: 256 bytes a group.

Source: Singh, 2015, sections 2.3.1.1 and 2.3.1.4, after Flajolet and Martin, "Probabilistic counting
algorithms for data base applications", JCSS 1985; Durand and Flajolet, "Loglog counting of large
cardinalities", ESA 2003; the times as Datar, Gionis, Indyk and Motwani, SIAM J. Comput. 2002.

Errata of the thesis:
  1. PCSA is printed as 1.29281 * k * 2**(x + 1), where x is the mean index of the lowest unset bit, counted
     from 1. Flajolet and Martin's R counts from 0, so the exponent is x - 1. As printed, the estimate is 4
     times too large.
  2. LogLog is printed with the exponent mean(r) + 1. Its constant is for places counted from 1 and the
     exponent mean(r). As printed, the estimate is 2 times too large.
  3. The vector of LogLog is said to be as long as a time has bits. It has one place for each place of b.
  4. Arrivals at time 0 are lost; see newest_times.py.
  5. "HyperLogLog does not pay in windows" holds for one structure with a time for each bit, as here. It does
     not hold for a sketch of each tick, which needs no times.
"""

import math
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from tidemark.sketches.distinct.arrivals import MOST_CELLS, checked_distinct, checked_since, whole_number
from tidemark.sketches.distinct.mixing import Hashes, cell_of, level_of
from tidemark.sketches.distinct.newest_times import NewestTimes
from tidemark.sketches.errors import InvalidInput

AverageKind = Literal["PCSA", "LogLog"]

PLACES = 32  # of a bit vector: hashes below the 32 leading bits, which choose the group
FACTORS = {"PCSA": 1.29281, "LogLog": 0.39701}
ERRORS = {"PCSA": 0.78, "LogLog": 1.30}  # times 1 / sqrt(k)


class StochasticAverage(NewestTimes):
    """PCSA or LogLog over any window, a `DistinctCounter`.

    kind: "PCSA" or "LogLog".
    groups: k in the module docstring, from 1; 64 or more for the stated error.
    seed: chooses the hashes, below 2**64.

    Raises InvalidInput for other values.

    >>> import numpy as np
    >>> sketch = StochasticAverage(kind="PCSA", groups=1024)
    >>> sketch.update(np.arange(100_000, dtype=np.uint64), np.arange(100_000))
    >>> abs(sketch.distinct(since=50_000) / 50_000 - 1) < 4 * sketch.relative_error(50_000)
    True
    """

    def __init__(self, *, kind: AverageKind, groups: int, seed: int = 0) -> None:
        if kind not in get_args(AverageKind):
            raise InvalidInput(f"got the kind {kind!r}; expected one of {get_args(AverageKind)}")
        self.kind = kind
        self.groups = whole_number("groups", groups, 1, MOST_CELLS // PLACES)
        super().__init__(self.groups * PLACES, seed, lambda hashes: cells_of(hashes, self.groups))

    def distinct(self, since: int) -> float:
        """The estimate for the window; see DistinctCounter. O(groups)."""
        live = self.live(checked_since(since)).reshape(self.groups, PLACES)
        if not live.any():
            return 0.0
        ends = lowest_unset(live) if self.kind == "PCSA" else highest_set(live)
        return float(FACTORS[self.kind] * self.groups * 2.0 ** ends.mean())

    def relative_error(self, distinct: float) -> float:
        """0.78 or 1.30 divided by sqrt(groups), for D >= 10 groups; 0 for an empty window."""
        return ERRORS[self.kind] / math.sqrt(self.groups) if checked_distinct(distinct) else 0.0


def cells_of(hashes: Hashes, groups: int) -> NDArray[np.int64]:
    """The index of M[g][b] of each hash in one array of groups * PLACES."""
    return cell_of(hashes, groups) * PLACES + np.minimum(level_of(hashes), PLACES - 1)


def lowest_unset(live: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The R of each group, shape (groups,): how many places are live before the first that is not."""
    return np.where(live.all(axis=1), PLACES, live.argmin(axis=1))


def highest_set(live: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The r of each group, shape (groups,): the greatest live place, 0 without any."""
    return np.where(live.any(axis=1), PLACES - live[:, ::-1].argmax(axis=1), 0)
