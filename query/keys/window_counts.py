"""The rows of each key in each of several windows: what is asked about them, and answers from arrays.

Cost: O(p log p) for p pairs of a window and a key that has rows in it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from tidemark.query.keys.key_scan import sum_of_squares
from tidemark.warehouse.columns.codes import Ints
from tidemark.warehouse.columns.keys import Names


class KeysInWindows(NamedTuple):
    """Some keys of windows, ordered by window; arrays of shape (keys,).

    part: the number of the window. history, live: the rows of the key there.
    """

    part: Ints
    names: Names
    history: Ints
    live: Ints


class WindowCounts(Protocol):
    """The rows of each key in each window that has some. Numbers by window leave out those that are 0."""

    def most(self, k: int, *, by_name: bool = False) -> KeysInWindows:
        """The k keys with the most rows of each window, of equal ones the first.

        The keys of a window are in this order, or ascend by name.
        """

    def names_with(self, part: int, least: int) -> KeysInWindows:
        """The keys with at least `least` rows in the window with this number; they ascend."""

    def second_moments(self) -> dict[int, int]:
        """The sum over all keys of the square of their rows, by window."""

    def keys(self) -> dict[int, int]:
        """The number of keys, by window."""

    def new_keys(self) -> dict[int, int]:
        """The number of keys that no window before has, by window."""


@dataclass(frozen=True, slots=True, eq=False)
class PairCounts:
    """As `WindowCounts`; arrays of shape (pairs,), ascending by window, then key.

    part: the number of the window. code: of the key; codes ascend as keys do.
    history, live: the rows of the key there.
    names_of: gives the names of codes. windows: how many there are.
    """

    part: Ints
    code: Ints
    history: Ints
    live: Ints
    names_of: Callable[[Ints], Names]
    windows: int

    def most(self, k: int, *, by_name: bool = False) -> KeysInWindows:
        """See `WindowCounts.most`."""
        rows, edges = self._rows, self._edges
        more = int(rows.max(initial=0)) + 1  # than any key has
        ordered = np.sort(self.part * more + rows)
        filled = np.flatnonzero(np.diff(edges))
        least = np.zeros(self.windows, np.int64)  # the k-th greatest number of rows
        least[filled] = ordered[np.maximum(edges[1:] - k, edges[:-1])[filled]] - filled * more
        high = np.flatnonzero(rows >= least[self.part])
        high = high[np.lexsort([-rows[high], self.part[high]])]  # of equal ones the first stays first
        place = np.arange(len(high)) - self.part[high].searchsorted(self.part[high])
        kept = high[place < k]
        return self._at(np.sort(kept) if by_name else kept)

    def names_with(self, part: int, least: int) -> KeysInWindows:
        """See `WindowCounts.names_with`."""
        first, stop = self._edges[part : part + 2]
        return self._at(np.flatnonzero(self._rows[first:stop] >= least) + int(first))

    def second_moments(self) -> dict[int, int]:
        """See `WindowCounts.second_moments`."""
        rows, edges = self._rows, self._edges
        filled = np.unique(self.part).tolist()
        return {part: sum_of_squares(rows[edges[part] : edges[part + 1]]) for part in filled}

    def keys(self) -> dict[int, int]:
        """See `WindowCounts.keys`."""
        return self._numbers(self.part)

    def new_keys(self) -> dict[int, int]:
        """See `WindowCounts.new_keys`."""
        _, first = np.unique(self.code, return_index=True)
        return self._numbers(self.part[first])

    def _numbers(self, parts: Ints) -> dict[int, int]:
        numbers = np.bincount(parts, minlength=self.windows).tolist()
        return {part: number for part, number in enumerate(numbers) if number}

    @property
    def _rows(self) -> Ints:
        return self.history + self.live

    @property
    def _edges(self) -> NDArray[np.intp]:
        """The first pair of each window, and the end."""
        return self.part.searchsorted(np.arange(self.windows + 1))

    def _at(self, places: NDArray[np.intp]) -> KeysInWindows:
        names = self.names_of(self.code[places])
        return KeysInWindows(self.part[places], names, self.history[places], self.live[places])
