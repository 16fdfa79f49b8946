"""Arrivals on their way into a sketch of distinct keys: checked, mixed, and only the last of each key."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tidemark.sketches.distinct.mixing import Hashes, mix, salt_of
from tidemark.sketches.errors import InvalidInput
from tidemark.sketches.hashing.row_hashes import Digests
from tidemark.sketches.inputs import INT64, as_column, checked_digests

Ints = NDArray[np.int64]

NEVER = -(2**63)  # the time of a cell that nothing has reached; no arrival has this time
MOST_CELLS = 2**28  # 2 GiB of times; more are most likely a mistake


class Arrivals:
    """The arrivals of one sketch: `take` checks each batch against the last arrival and mixes it.

    seed: chooses the hashes, an integer below 2**64. Raises InvalidInput for another seed.
    now: the time of the last arrival, NEVER before the first.
    """

    __slots__ = ("_salt", "now")

    def __init__(self, seed: int) -> None:
        self._salt = salt_of(whole_number("seed", seed, 0, 2**64 - 1))
        self.now = NEVER

    def take(self, digests: Digests, times: ArrayLike) -> tuple[Hashes, Ints]:
        """(hashes, times) of a batch, and `now` becomes the time of its last arrival. O(n).

        Raises InvalidInput for input that DistinctCounter.update refuses; `now` is then unchanged.
        """
        checked_digests(digests)
        time_array = as_column(times, INT64)
        if time_array.shape != digests.shape:
            raise InvalidInput(
                f"got times of shape {time_array.shape} for {len(digests)} digests; expected one for each"
            )
        if len(time_array):
            previous = np.concatenate([[max(self.now, NEVER + 1)], time_array[:-1]])
            descents = np.flatnonzero(time_array < previous)
            if len(descents):
                index = int(descents[0])
                raise InvalidInput(
                    f"got the time {int(time_array[index])} at index {index} after {int(previous[index])}; "
                    "expected times that never decrease, above -2**63; sort with in_time_order()"
                )
            self.now = int(time_array[-1])
        return mix(digests, self._salt), time_array


def last_arrivals(keys: NDArray[Any], times: Ints) -> tuple[NDArray[Any], Ints]:
    """The last arrival of each different key, in order of arrival. O(n log n).

    Example: keys [5, 7, 5], times [1, 2, 3] gives keys [7, 5], times [2, 3].
    """
    backwards = np.unique(keys[::-1], return_index=True)[1]
    last = np.sort(len(keys) - 1 - backwards)
    return keys[last], times[last]


def checked_since(since: int) -> int:
    """`since` as an int; InvalidInput unless it is an integer that a time can be."""
    return whole_number("since", since, NEVER + 1, 2**63 - 1)


def checked_distinct(distinct: float) -> float:
    """`distinct`; InvalidInput unless it is a number of keys."""
    if not distinct >= 0:
        raise InvalidInput(f"got distinct = {distinct!r}; expected a number of keys, 0 or more")
    return distinct


def whole_number(name: str, value: object, least: int, most: int) -> int:
    """`value` as an int; InvalidInput unless it is an integer from `least` to `most`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not least <= value <= most:
        raise InvalidInput(f"got {name} = {value!r}; expected an integer from {least:,} to {most:,}")
    return int(value)
