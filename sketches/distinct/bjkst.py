"""BJKST: from any window, the theta smallest hashes of its keys.

Model. Hashes are uniform in (0, 1). The theta-th smallest hash v of D keys is about theta / D, and

    D ~ (theta - 1) / v        exactly the number of hashes if the window has fewer than theta

State: hashes with their newest times. An arrival adds its hash as the newest, in place of its own older
entry.

    An entry is dropped once theta newer entries have smaller hashes.

Every window that has the dropped entry also has these theta, so it is not among the theta smallest of any
window, nor will be until it arrives again. A window's theta smallest hashes, or all if they are fewer, are
therefore always kept.

Guarantee, with E the estimate and D >= theta >= 3, where v has a beta distribution (theta, D - theta + 1):

    mean of E  =  D        mean of (E / D - 1)**2  =  (D - theta + 1) / (D * (theta - 2))  <=  1 / (theta - 2)

Size: the r-th newest key is kept if its hash is one of the theta smallest among r, with probability min(1,
theta / r). The mean number of entries is at most theta * (1 + ln(D / theta)), for all D keys so far.

Cost: the rule is applied once the entries have grown by a quarter, for O(log theta) an arrival, amortised. So
there are at most a quarter and theta / 4 more than the rule leaves. An update also sorts its batch. A query
reads all entries. Memory: 16 bytes an entry.

Source: Singh, 2015, section 2.3.1.3, after the first algorithm of Bar-Yossef, Jayram, Kumar, Sivakumar and
Trevisan, "Counting distinct elements in a data stream", RANDOM 2002; theta - 1 after Beyer, Haas, Reinwald,
Sismanis and Gemulla, "On synopses for distinct-value estimation under multiset operations", SIGMOD 2007.

Errata of the thesis:
  1. An arrival is said to delete all entries with larger hashes. That leaves successive minima: about ln D
     entries, 10 for 20,000 keys, and never theta. The rule above alone gives the size that the thesis states.
  2. With fewer than theta entries the thesis estimates tau / v for the tau entries there are. They are all
     keys of the window, so tau itself is the exact number.
  3. The thesis estimates theta / v, which is too large by a factor of theta / (theta - 1) in the mean.
"""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tidemark.sketches.distinct.arrivals import (
    MOST_CELLS,
    Arrivals,
    checked_distinct,
    checked_since,
    last_arrivals,
    whole_number,
)
from tidemark.sketches.distinct.mixing import Hashes
from tidemark.sketches.errors import BrokenInvariant
from tidemark.sketches.hashing.few_smaller import few_smaller_before
from tidemark.sketches.hashing.row_hashes import Digests

ENTRY_BYTES = 16  # a hash and a time


class BJKST:
    """The smallest hashes of any window, a `DistinctCounter`.

    theta: the number of hashes that an estimate is made of, from 3. seed: chooses the hashes, below 2**64.

    Raises InvalidInput for other values. len() is the number of entries.

    >>> import numpy as np
    >>> sketch = BJKST(theta=400)
    >>> sketch.update(np.arange(100_000, dtype=np.uint64), np.arange(100_000))
    >>> abs(sketch.distinct(since=50_000) / 50_000 - 1) < 4 * sketch.relative_error(50_000)
    True
    >>> sketch.distinct(since=99_990)
    10.0
    """

    def __init__(self, *, theta: int, seed: int = 0) -> None:
        self.theta = whole_number("theta", theta, 3, MOST_CELLS)
        self._arrivals = Arrivals(seed)
        self._newest: dict[int, int] = {}  # the newest time of each hash, oldest first
        self._most = self.theta  # the rule is applied if there are more entries than this

    def __len__(self) -> int:
        return len(self._newest)

    @property
    def nbytes(self) -> int:
        """16 bytes an entry, for those held now."""
        return ENTRY_BYTES * len(self)

    def update(self, digests: Digests, times: ArrayLike) -> None:
        """Adds arrivals; see DistinctCounter. Amortised O(log n + log theta) an arrival, for n at once."""
        hashes, time_array = last_arrivals(*self._arrivals.take(digests, times))
        # What the rule would drop within the batch is left out. If there is an older entry of the same hash,
        # theta smaller hashes now follow it, so no answer depends on it.
        kept = few_smaller_before(hashes[::-1], self.theta)[::-1]
        newest = self._newest
        for key, time in zip(hashes[kept].tolist(), time_array[kept].tolist(), strict=True):
            newest.pop(key, None)  # an entry is moved to the end, not changed in its place
            newest[key] = time
        if len(newest) > self._most:
            self._apply_rule()

    def distinct(self, since: int) -> float:
        """The estimate for the window; see DistinctCounter. O(entries)."""
        hashes, times = self._entries()
        live = hashes[times >= checked_since(since)]
        if len(live) < self.theta:
            return float(len(live))
        smallest = int(np.partition(live, self.theta - 1)[self.theta - 1])
        return (self.theta - 1) / ((smallest + 0.5) / 2.0**64)

    def relative_error(self, distinct: float) -> float:
        """1 / sqrt(theta - 2), an upper bound; 0 below theta."""
        if checked_distinct(distinct) < self.theta:
            return 0.0
        return 1 / math.sqrt(self.theta - 2)

    def check_invariants(self) -> None:
        """Raises BrokenInvariant if entries are out of order or too many. O(entries * log(theta))."""
        _, times = self._entries()
        if np.any(np.diff(times) < 0) or (len(times) and times[-1] != self._arrivals.now):
            raise BrokenInvariant(
                f"got entries with times {times}; expected them in order up to the last arrival, "
                f"{self._arrivals.now}"
            )
        if len(self) > self._most:
            raise BrokenInvariant(f"got {len(self)} entries; expected {self._most} at most")

    def _entries(self) -> tuple[Hashes, NDArray[np.int64]]:
        """The hashes and times, oldest first."""
        hashes = np.fromiter(self._newest.keys(), np.uint64, len(self))
        return hashes, np.fromiter(self._newest.values(), np.int64, len(self))

    def _apply_rule(self) -> None:
        hashes, times = self._entries()
        kept = few_smaller_before(hashes[::-1], self.theta)[::-1]
        self._newest = dict(zip(hashes[kept].tolist(), times[kept].tolist(), strict=True))
        self._most = (5 * len(self) + self.theta) // 4
