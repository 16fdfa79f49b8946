"""The recent list: the last different keys to arrive, up to a capacity, each with its newest time.

Model. Rank the different keys by their last arrivals, the newest first. A list of capacity c holds the first
c of them. An arrival moves its key to the front; if there are then c + 1 keys, the last one is dropped, and
its time becomes the horizon. The list is cut in two where the window asked last began, so that the keys of a
window are one part.

Invariants:
  1. The entries are in order of arrival, so their times never decrease.
  2. The horizon is the newest time of the key of rank c + 1, or NEVER while there is no such key.

Proof of 2. A key is dropped when c others have arrived after it. So of two keys that are dropped one after
the other, the later one had the newer time, and horizons never decrease. If the key dropped last had come
back, another would have been dropped after it. So it has not, and no key outside the list is newer.

Hence the list has every key of a window exactly if its horizon is before the window.

Cost: O(1) an arrival. A query moves the keys between the starts of the last query's window and of its own:
O(1) an arrival, amortised, for windows that only move forward.
"""

from collections import OrderedDict
from collections.abc import Sequence
from itertools import pairwise

from tidemark.sketches.distinct.arrivals import NEVER
from tidemark.sketches.errors import BrokenInvariant


class RecentList:
    """The last `capacity` different keys to arrive; see the module docstring.

    >>> recent = RecentList(capacity=2)
    >>> recent.add([7, 8, 7, 9], [1, 2, 3, 4])
    >>> recent.entries(), recent.horizon, recent.count_since(4)
    ([(7, 3), (9, 4)], 2, 1)
    """

    __slots__ = ("_begin", "_current", "_earlier", "capacity", "horizon")

    def __init__(self, capacity: int) -> None:
        """A list without arrivals; capacity is at least 1."""
        self.capacity, self.horizon = capacity, NEVER
        # The newest time of each key, oldest first: of the keys before the last window, and of those in it.
        self._earlier: OrderedDict[int, int] = OrderedDict()
        self._current: OrderedDict[int, int] = OrderedDict()
        self._begin = NEVER

    def __len__(self) -> int:
        return len(self._earlier) + len(self._current)

    def entries(self) -> list[tuple[int, int]]:
        """The keys and their newest times, in order of arrival. O(len)."""
        return [*self._earlier.items(), *self._current.items()]

    def add(self, keys: Sequence[int], times: Sequence[int]) -> None:
        """Adds arrivals in order; equally many keys and times. O(1) an arrival."""
        if times and times[0] < self._begin:
            self._cut_at(times[0])
        earlier, current = self._earlier, self._current
        for key, time in zip(keys, times, strict=True):
            earlier.pop(key, None)
            current[key] = time
            current.move_to_end(key)
            if len(earlier) + len(current) > self.capacity:
                self.horizon = (earlier or current).popitem(last=False)[1]

    def count_since(self, since: int) -> int:
        """The number of keys whose newest time is `since` or later; see the module docstring for the cost."""
        self._cut_at(since)
        return len(self._current)

    def _cut_at(self, since: int) -> None:
        earlier, current = self._earlier, self._current
        while current and next(iter(current.values())) < since:
            key, time = current.popitem(last=False)
            earlier[key] = time
        while earlier and next(reversed(earlier.values())) >= since:
            key, time = earlier.popitem()
            current[key] = time
            current.move_to_end(key, last=False)
        self._begin = since

    def check_invariants(self, now: int) -> None:
        """Raises BrokenInvariant if the list breaks its capacity, its order or its cut. O(len).

        now: the time of the last arrival.
        """
        times = [self.horizon, *self._earlier.values(), *self._current.values(), now]
        ordered = all(before <= after for before, after in pairwise(times))
        short = self.horizon != NEVER and len(self) < self.capacity
        twice = self._earlier.keys() & self._current.keys()
        if len(self) > self.capacity or not ordered or short or twice:
            raise BrokenInvariant(
                f"got {len(self)} keys with times {times}; expected at most {self.capacity}, just that "
                "many if one was dropped, none twice, and times from the horizon to now in order"
            )
        cut = [*self._earlier.values()][-1:], [*self._current.values()][:1]
        if any(time >= self._begin for time in cut[0]) or any(time < self._begin for time in cut[1]):
            raise BrokenInvariant(
                f"got the times {cut} on both sides of the cut; expected them on their side of {self._begin}"
            )
