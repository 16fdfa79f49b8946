"""Sorted numbers of many parts (such as groups in windows) in one array: values at ranks, and ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from tidemark.warehouse.columns.exact_sums import Sums

Ints = NDArray[np.int64]

SUM_WEIGHT = 4  # how many times as long as to go through a number it takes to add it exactly


class RankedValues(NamedTuple):
    """Values of ranks, in their order, and the number of rows <= each of them."""

    values: NDArray[Any]
    ranks_le: Ints


class Numbers(Protocol):
    """The numbers of parts, such as groups in windows."""

    def values_at(self, ranks: Sequence[Ints]) -> list[RankedValues]:
        """The values of ranks of each part, which has them, and how many of its numbers are <= each."""

    def same_values_at(self, ranks: Ints) -> RankedValues:
        """The same for ranks (parts, k); undefined where the part has no number of the rank."""

    def ranks_at(self, points: Sequence[NDArray[Any]]) -> list[Ints]:
        """How many numbers of each part are <= stored values of that part."""

    def sums(self) -> Sequence[Sums]:
        """The exact sums of the numbers of each part."""

    def ends(self) -> NDArray[Any]:
        """(parts, 2): the least and the greatest number of each part, 0 for a part without numbers."""


@dataclass(frozen=True, slots=True, eq=False)
class SortedParts:
    """The numbers of part i are ``numbers[edges[i] : edges[i + 1]]``, sorted."""

    numbers: NDArray[Any]
    edges: Ints

    def __len__(self) -> int:
        return len(self.edges) - 1

    def part(self, at: int) -> NDArray[Any]:
        """The numbers of one part."""
        return self.numbers[self.edges[at] : self.edges[at + 1]]

    def same_values_at(self, ranks: Ints) -> RankedValues:
        """For (parts, k) ranks their values, and how many numbers of the part are <= each.

        Both are undefined where a part has no number of the rank.
        """
        starts, stops = self.edges[:-1, np.newaxis], self.edges[1:, np.newaxis]
        if not len(self.numbers):
            return RankedValues(np.zeros(ranks.shape, self.numbers.dtype), np.zeros_like(ranks))
        places = np.where((ranks >= 1) & (ranks <= stops - starts), starts + ranks - 1, 0)
        is_last = np.ones(len(self.numbers), bool)  # of equal numbers of a part
        np.not_equal(self.numbers[1:], self.numbers[:-1], out=is_last[:-1])
        inner = self.edges[1:-1]
        is_last[inner[inner > 0] - 1] = True
        lasts = np.flatnonzero(is_last)
        return RankedValues(self.numbers[places], lasts[lasts.searchsorted(places)] + 1 - starts)

    def values_at(self, ranks: Sequence[Ints]) -> list[RankedValues]:
        """The same for ranks of each part, which has them. O(log rows) per rank."""
        found = []
        for at, wanted in enumerate(ranks):
            values = self.part(at)[wanted - 1]
            found.append(RankedValues(values, self._ranks_le(at, values)))
        return found

    def same_ranks_at(self, points: NDArray[Any]) -> Ints:
        """(parts, points): how many numbers of each part are <= each point."""
        if len(points) * len(self.numbers) <= 2**9 * len(self):  # a search takes as long as 512 comparisons
            return counts_below(self.numbers, self.edges, points)
        found = self.ranks_at([points] * len(self))
        return np.array(found, np.int64).reshape(len(self), len(points))

    def ranks_at(self, points: Sequence[NDArray[Any]]) -> list[Ints]:
        """How many numbers of each part are <= points of that part. O(log rows) per point."""
        return [self._ranks_le(at, own) for at, own in enumerate(points)]

    def _ranks_le(self, at: int, points: NDArray[Any]) -> Ints:
        return self.part(at).searchsorted(points, "right").astype(np.int64)


def counts_below(numbers: NDArray[Any], edges: Ints, points: NDArray[Any]) -> Ints:
    """(parts, points): how many numbers of each part, in any order, are <= each point."""
    ranks = np.zeros((len(edges) - 1, len(points)), np.int64)
    below = np.zeros(len(numbers) + 1, np.int64)
    for place, point in enumerate(points):
        np.cumsum(numbers <= point, out=below[1:])
        ranks[:, place] = np.diff(below[edges])
    return ranks


def no_ends(parts: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """(parts, 2): the greatest and the least number that there is, the ends of parts without numbers."""
    limits = np.iinfo(dtype) if dtype.kind == "i" else None
    least, most = (-np.inf, np.inf) if limits is None else (limits.min, limits.max)
    found = np.empty((parts, 2), dtype)
    found[:] = most, least
    return found
