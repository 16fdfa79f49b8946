"""RW, randomised waves of keys: the last c different keys at the sampling rates 1, 1/2, 1/4 ...

Model. A hash has a level, its number of trailing zero bits: l or more with probability 2**-l. Recent lists,
see recent_list.py, hold the last c different keys of some levels. There are two forms:

    nested      list l has the keys of level l or more: a key is in all lists up to its level
    disjoint    list l has the keys of level l alone: a key is in one list

A list has every key of its levels in a window if its horizon is before the window. The query takes the least
level l at which that holds for all keys of level l or more, and

    D ~ 2**l * (the keys of level l or more in the window)

In the nested form these are the keys of list l. In the disjoint form they are those of all lists from l on,
and every one of these lists must have its horizon before the window.

Guarantee, with E the estimate: E = D if D <= c. Otherwise, if c >= 36 / eps**2,

    |E - D| <= eps * D        with probability above 2/3

and with probability 1 - delta for the median of ceil(c' * log2(1 / delta)) sketches with different seeds and
a constant c' (MedianOf). The standard error is about 1 / sqrt(m), with m the entries that count: c/2 to c in
the nested form, and c to 2 c in the disjoint one, whose list l has half the keys of a nested list l.

Cost: an arrival changes 2 lists on average in the nested form, 1 in the disjoint one. An update also sorts
its batch. A query reads the lists that it counts. Memory: 16 bytes for each entry of each list, and 8 a list;
at most c entries in each of log2(D) lists or so. The hash tables that find a key in its list are not counted.

Source: Singh, 2015, section 2.3.1.5, after Gibbons and Tirthapura, "Distributed streams algorithms for
sliding windows", SPAA 2002. We deviate: the lists do not drop what is older than one fixed window, so any
window can be asked for, and levels are added as they occur.

Errata of the thesis:
  1. In the disjoint form, the query is said to need the levels 0 to l. It needs the levels from l on: the
     lower lists are full, whatever the window holds, and are no sample at the rate 2**-l.
  2. The thesis does not say how to see that a level has the whole window. In the disjoint form, list l
     may have all its keys of the window while a higher list, by chance, has not: all horizons from l on
     count.
"""

import math
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from tidemark.sketches.distinct.arrivals import (
    MOST_CELLS,
    Arrivals,
    checked_distinct,
    checked_since,
    last_arrivals,
    whole_number,
)
from tidemark.sketches.distinct.mixing import level_of
from tidemark.sketches.distinct.recent_list import RecentList
from tidemark.sketches.errors import BrokenInvariant, InvalidInput
from tidemark.sketches.hashing.row_hashes import Digests

WaveLists = Literal["nested", "disjoint"]

ENTRY_BYTES, LIST_BYTES = 16, 8  # a hash and a time; a horizon


class RandomizedWave:
    """A randomised wave of keys over any window, a `DistinctCounter`.

    capacity: c in the module docstring, from 1. lists: "nested" or "disjoint".
    seed: chooses the hashes, below 2**64.

    Raises InvalidInput for other values. len() is the number of entries in all lists.

    >>> import numpy as np
    >>> sketch = RandomizedWave(capacity=400)
    >>> sketch.update(np.arange(100_000, dtype=np.uint64), np.arange(100_000))
    >>> abs(sketch.distinct(since=50_000) / 50_000 - 1) < 4 * sketch.relative_error(50_000)
    True
    >>> sketch.distinct(since=99_600)
    400.0
    """

    def __init__(self, *, capacity: int, lists: WaveLists = "nested", seed: int = 0) -> None:
        if lists not in get_args(WaveLists):
            raise InvalidInput(f"got the lists {lists!r}; expected one of {get_args(WaveLists)}")
        self.capacity, self.lists = whole_number("capacity", capacity, 1, MOST_CELLS), lists
        self._arrivals = Arrivals(seed)
        self._lists: list[RecentList] = []

    def __len__(self) -> int:
        return sum(len(recent) for recent in self._lists)

    @property
    def nbytes(self) -> int:
        """16 bytes an entry and 8 a list, for those held now."""
        return ENTRY_BYTES * len(self) + LIST_BYTES * len(self._lists)

    def update(self, digests: Digests, times: ArrayLike) -> None:
        """Adds arrivals; see DistinctCounter. O(n log n) for n arrivals."""
        hashes, time_array = last_arrivals(*self._arrivals.take(digests, times))
        levels = level_of(hashes)
        rows, level = np.arange(len(hashes)), 0  # rows: the arrivals of this level or more
        while len(rows):
            if level == len(self._lists):
                self._lists.append(RecentList(self.capacity))
            higher = levels[rows] > level
            own = rows if self.lists == "nested" else rows[~higher]
            # The last c + 1 different keys determine the entries and the horizon.
            last = own[-self.capacity - 1 :]
            self._lists[level].add(hashes[last].tolist(), time_array[last].tolist())
            rows, level = rows[higher], level + 1

    def distinct(self, since: int) -> float:
        """The estimate for the window; see DistinctCounter. O(entries of the lists that count)."""
        begin = checked_since(since)
        level = len(self._lists)
        while level and self._lists[level - 1].horizon < begin:
            level -= 1
        # If even the last list is incomplete, the sample is that of the level after it, which has no key.
        counted = self._lists[level : level + 1] if self.lists == "nested" else self._lists[level:]
        return 2.0**level * sum(recent.count_since(begin) for recent in counted)

    def relative_error(self, distinct: float) -> float:
        """1 / sqrt(entries) at the level that D is expected to take, about; 0 while D <= capacity."""
        if checked_distinct(distinct) <= self.capacity:
            return 0.0
        most = self.capacity if self.lists == "nested" else 2 * self.capacity
        level = max(0, math.ceil(math.log2(distinct / most)))
        return math.sqrt(2.0**level / distinct)

    def check_invariants(self) -> None:
        """Raises BrokenInvariant if a list breaks its invariants or has keys of other levels. O(entries)."""
        above = RecentList(self.capacity)
        for level, recent in reversed(list(enumerate(self._lists))):
            recent.check_invariants(self._arrivals.now)
            entries = recent.entries()
            levels = level_of(np.array([key for key, _ in entries], np.uint64))
            if np.any(levels < level if self.lists == "nested" else levels != level):
                raise BrokenInvariant(
                    f"got keys of other levels in list {level}; expected {self.lists} lists"
                )
            # Nested lists hold the newest of their keys, so those that the list above takes are its newest.
            shared = [entry for entry, higher in zip(entries, levels > level, strict=True) if higher]
            newest = above.entries()[len(above) - len(shared) :]
            if self.lists == "nested" and (shared != newest or above.horizon > recent.horizon):
                raise BrokenInvariant(
                    f"got other newest keys in list {level} than in list {level + 1}; expected the same"
                )
            above = recent
