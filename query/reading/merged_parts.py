"""Numbers of many parts that lie in ascending stretches of several arrays, such as of groups in sorted runs.

To bring the numbers of each part together takes tens of nanoseconds a number. Where stretches are long, a few
ranks of each part are found without that:

1. Every STEP-th place of each array is a sample. The samples of a part, in order, give two values between
   which its rank should lie: some samples below and above the expected one.
2. A binary search in each stretch counts the numbers of the part below the first value and up to the second.
3. Only the numbers from the first to the second are brought together (number_parts.py). With b numbers below
   the first value, rank r of the part is rank r - b of these.

The counts of step 2 are exact, so they tell where a rank is not between its two values. Then it is found
among all numbers of the part. So answers do not depend on the samples, only the cost does.

Cost, for r numbers in s stretches: O(r / STEP + s log(r / s)) for a few ranks, else that of `NumberParts`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidemark.query.reading.number_parts import FEW, NumberParts, sample_ranks
from tidemark.query.reading.sorted_parts import Ints, RankedValues
from tidemark.warehouse.columns.codes import expand_ranges, stable_order
from tidemark.warehouse.columns.exact_sums import Sums

STEP = 16  # places of an array from one sample to the next
LONG = 32  # numbers of a stretch, on average, from which on the samples are less work
MANY = 2**18  # numbers from which on it matters


@dataclass(frozen=True, slots=True, eq=False)
class Stretches:
    """Ascending numbers: those of stretch i are ``numbers[starts[i] : stops[i]]``, of the part parts[i].

    The parts of stretches ascend; a part may have several stretches. Other places of the array have anything.
    """

    numbers: NDArray[Any]
    starts: Ints
    stops: Ints
    parts: Ints

    @classmethod
    def of(cls, numbers: NDArray[Any], starts: Ints, stops: Ints, parts: Ints) -> Stretches:
        """Stretches in any order; those of a part below 0, and empty ones, are left out."""
        kept = (parts >= 0) & (stops > starts)
        if not kept.all():
            starts, stops, parts = starts[kept], stops[kept], parts[kept]
        if np.any(parts[1:] < parts[:-1]):
            order = np.argsort(parts, kind="stable")
            starts, stops, parts = starts[order], stops[order], parts[order]
        return cls(numbers, starts, stops, parts)

    @classmethod
    def of_rows(cls, numbers: NDArray[Any], parts: NDArray[np.signedinteger[Any]]) -> Stretches:
        """Numbers in any order, each with its part, cut where the part changes and where they descend."""
        if np.any(parts[1:] < parts[:-1]):
            order = stable_order(parts)
            numbers, parts = numbers[order], parts[order]
        is_first = np.ones(len(numbers), bool)
        np.not_equal(parts[1:], parts[:-1], out=is_first[1:])
        is_first[1:] |= numbers[1:] < numbers[:-1]
        starts = np.flatnonzero(is_first)
        return cls(numbers, starts, np.append(starts[1:], len(numbers)), parts[starts].astype(np.int64))

    def __len__(self) -> int:
        return len(self.parts)

    @property
    def sizes(self) -> Ints:
        """How many numbers each stretch has."""
        return self.stops - self.starts

    @property
    def are_whole(self) -> bool:
        """Whether each part has one stretch at most, and the array has nothing else, in their order."""
        if not len(self):
            return not len(self.numbers)
        meet = bool((self.starts[1:] == self.stops[:-1]).all() and (self.parts[1:] > self.parts[:-1]).all())
        return meet and self.starts[0] == 0 and self.stops[-1] == len(self.numbers)

    def samples(self) -> Stretches:
        """Every STEP-th place of the array."""
        first = STEP // 2
        starts, stops = (-((first - ends) // STEP) for ends in (self.starts, self.stops))
        return Stretches.of(self.numbers[first::STEP], starts, stops, self.parts)

    def below(self, points: NDArray[Any], *, inclusive: bool) -> Ints:
        """For each stretch the place of the first number that is not below its point, or not up to it.

        points: (stretches,). O(log n) steps for the longest stretch, each of all stretches that are left.
        """
        low, high = self.starts.copy(), self.stops.copy()
        left = np.arange(len(self))
        while len(left):
            middle = (low[left] + high[left]) >> 1
            own, wanted = self.numbers[middle], points[left]
            is_below = own <= wanted if inclusive else own < wanted
            low[left] = np.where(is_below, middle + 1, low[left])
            high[left] = np.where(is_below, high[left], middle)
            left = left[low[left] < high[left]]
        return low

    def between(self, starts: Ints, stops: Ints, parts: Ints) -> tuple[NDArray[Any], Ints]:
        """The numbers of some places of each stretch, and of each number the part that it gets."""
        owners, places = expand_ranges(starts, stops)
        return self.numbers[places], parts[owners]


class MergedParts:
    """See `NumberParts`, which has the same questions.

    stretches: of each array. sizes: (parts,) how many numbers each part has in all.
    """

    def __init__(self, stretches: Sequence[Stretches], sizes: Ints, dtype: np.dtype[Any]) -> None:
        self._stretches, self.sizes, self._dtype = stretches, sizes, dtype

    def __len__(self) -> int:
        return len(self.sizes)

    def take(self, parts: Ints) -> MergedParts:
        """Some of the parts, each once or several times, in this order."""
        if np.array_equal(parts, np.arange(len(self))):
            return self
        taken = []
        for one in self._stretches:
            firsts, ends = one.parts.searchsorted(parts), one.parts.searchsorted(parts, "right")
            owners, places = expand_ranges(firsts, ends)
            taken.append(Stretches(one.numbers, one.starts[places], one.stops[places], owners))
        return MergedParts(taken, self.sizes[parts], self._dtype)

    def same_values_at(self, ranks: Ints) -> RankedValues:
        """See `SortedParts.same_values_at`."""
        if 2 * ranks.shape[1] > FEW or not self._are_long:
            return self.together.same_values_at(ranks)
        values, ranks_le = np.zeros(ranks.shape, self._dtype), np.zeros_like(ranks)
        missed = np.zeros(len(self), bool)
        for column, wanted in enumerate(ranks.T):
            values[:, column], ranks_le[:, column], is_found = self._between_samples(wanted)
            missed |= ~is_found & (wanted >= 1) & (wanted <= self.sizes)
        places = np.flatnonzero(missed)
        if len(places):
            values[places], ranks_le[places] = self.take(places).together.same_values_at(ranks[places])
        return RankedValues(values, ranks_le)

    def values_at(self, ranks: Sequence[Ints]) -> list[RankedValues]:
        """See `SortedParts.values_at`."""
        return self.together.values_at(ranks)

    def same_ranks_at(self, points: NDArray[Any]) -> Ints:
        """See `SortedParts.same_ranks_at`."""
        return self.together.same_ranks_at(points)

    def ranks_at(self, points: Sequence[NDArray[Any]]) -> list[Ints]:
        """See `SortedParts.ranks_at`."""
        return self.together.ranks_at(points)

    def sums(self) -> list[Sums]:
        """The exact sums of the numbers of each part."""
        return self.together.sums()

    @property
    def _are_long(self) -> bool:
        numbers = int(self.sizes.sum())
        return numbers >= max(MANY, LONG * sum(map(len, self._stretches)))

    @cached_property
    def together(self) -> NumberParts:
        """The numbers of each part side by side."""
        edges = np.concatenate([[0], np.cumsum(self.sizes)])
        if len(self._stretches) == 1 and self._stretches[0].are_whole:
            return NumberParts(self._stretches[0].numbers, edges, are_sorted=True)
        parts = [one.between(one.starts, one.stops, one.parts) for one in self._stretches]
        return NumberParts(_side_by_side(parts, edges, self._dtype), edges)

    @cached_property
    def _samples(self) -> NumberParts:
        found = [one.samples() for one in self._stretches]
        sizes = sum((np.bincount(one.parts, one.sizes, len(self)) for one in found), np.zeros(len(self)))
        return MergedParts(found, sizes.astype(np.int64), self._dtype).together

    def _between_samples(self, ranks: Ints) -> tuple[NDArray[Any], Ints, NDArray[np.bool_]]:
        """The value of a rank of each part, how many numbers are <= it, and whether it was found."""
        samples = self._samples.sizes
        ends = np.stack(sample_ranks(ranks, self.sizes, samples), axis=1)
        has_end = (ends >= 1) & (ends <= samples[:, np.newaxis])
        points = self._samples.same_values_at(ends).values
        below, within = np.zeros(len(self), np.int64), np.zeros(len(self), np.int64)
        parts = []
        for one in self._stretches:
            own, there = points[one.parts], has_end[one.parts]
            starts = np.where(there[:, 0], one.below(own[:, 0], inclusive=False), one.starts)
            stops = np.where(there[:, 1], one.below(own[:, 1], inclusive=True), one.stops)
            np.add.at(below, one.parts, starts - one.starts)
            np.add.at(within, one.parts, stops - starts)
            parts.append(one.between(starts, stops, one.parts))
        edges = np.concatenate([[0], np.cumsum(within)])
        inner = ranks - below
        is_found = (inner >= 1) & (inner <= within)
        found = NumberParts(_side_by_side(parts, edges, self._dtype), edges)
        values, ranks_le = found.same_values_at(inner[:, np.newaxis])
        return values[:, 0], below + ranks_le[:, 0], is_found


def _side_by_side(
    parts: Sequence[tuple[NDArray[Any], Ints]], edges: Ints, dtype: np.dtype[Any]
) -> NDArray[Any]:
    """The numbers of all arrays by part, in each part one array after the other.

    parts: the numbers of each array, by part, and the part of each number. edges: those of the parts.
    """
    numbers, ends = np.empty(edges[-1], dtype), edges[:-1].copy()  # where the next number of a part stands
    for own, of_part in parts:
        sizes = np.bincount(of_part, minlength=len(ends))
        before = np.cumsum(sizes) - sizes
        numbers[np.arange(len(own)) + (ends - before)[of_part]] = own
        ends += sizes
    return numbers
