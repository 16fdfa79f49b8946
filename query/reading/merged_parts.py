"""Ranks in many parts whose numbers are spread over several arrays.

A *part* is a set of numbers, such as those of one group. Each array, such as a sorted run, has the numbers of
a part in *stretches*: ranges of places in which the numbers ascend.

Copying all numbers of each part to one place takes tens of nanoseconds a number. If stretches are long, a few
ranks of each part are found with fewer copies:

1. Every STEP-th place of each array is a sample. The rank is estimated among the sorted samples of the part.
   A sample some places below the estimate and one some places above it are the two limits.
2. A binary search in each stretch counts the numbers of the part that are below the lower limit, and those up
   to the upper limit.
3. Only the numbers between the limits are copied (number_parts.py). With b numbers below the lower limit,
   rank r of the part is rank r - b of these.

The counts of step 2 are exact. If they show that a rank is not between its limits, it is found among all
numbers of the part. So the samples affect the cost, and never the answers.

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
from tidemark.query.reading.shares import each_share, shares_of
from tidemark.query.reading.sorted_parts import SUM_WEIGHT, Ints, RankedValues, no_ends
from tidemark.warehouse.columns.code_sums import CodeSums, EachSums
from tidemark.warehouse.columns.codes import expand_ranges, stable_order
from tidemark.warehouse.columns.exact_sums import Sums
from tidemark.warehouse.columns.looped_sums import LoopedSums, loading

STEP = 16  # places of an array from one sample to the next
LONG = 32  # samples are used if stretches have at least so many numbers on average
MANY = 2**18  # and if there are at least so many numbers in all


@dataclass(frozen=True, slots=True, eq=False)
class Stretches:
    """Ascending numbers: stretch i is ``numbers[starts[i] : stops[i]]``, of the part parts[i].

    The parts of stretches ascend; a part may have several stretches. Places of the array outside the
    stretches are not read.
    """

    numbers: NDArray[Any]
    starts: Ints
    stops: Ints
    parts: Ints

    @classmethod
    def of(cls, numbers: NDArray[Any], starts: Ints, stops: Ints, parts: Ints) -> Stretches:
        """From stretches in any order. Empty ones, and those whose part is negative, are left out."""
        kept = (parts >= 0) & (stops > starts)
        if not kept.all():
            starts, stops, parts = starts[kept], stops[kept], parts[kept]
        if np.any(parts[1:] < parts[:-1]):
            order = np.argsort(parts, kind="stable")
            starts, stops, parts = starts[order], stops[order], parts[order]
        return cls(numbers, starts, stops, parts)

    @classmethod
    def of_rows(cls, numbers: NDArray[Any], parts: NDArray[np.signedinteger[Any]]) -> Stretches:
        """From numbers in any order, each with its part; cut where the part changes or numbers descend."""
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
        """Whether the array is exactly the stretches in their order, and no part has two of them."""
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
        """For each stretch the place of its first number >= its point; with `inclusive`, > its point.

        points: (stretches,), the point of each. If no number is so great: the end of the stretch.
        Cost: O(log n) steps, for n numbers in the longest stretch; a step handles all unfinished stretches.
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

    def between(self, starts: Ints, stops: Ints) -> tuple[NDArray[Any], Ints]:
        """The numbers at places starts..stops (exclusive) of each stretch, and the part of each number."""
        owners, places = expand_ranges(starts, stops)
        return self.numbers[places], self.parts[owners]

    def adjacent(self) -> tuple[NDArray[Any], Ints, Ints]:
        """The numbers of all stretches, where each stretch begins, and the parts; not copied if adjacent."""
        if len(self) and bool((self.starts[1:] == self.stops[:-1]).all()):
            first = self.starts[0]
            return self.numbers[first : self.stops[-1]], self.starts - first, self.parts
        numbers, _ = self.between(self.starts, self.stops)
        return numbers, np.cumsum(self.sizes) - self.sizes, self.parts


class MergedParts:
    """Answers the same questions as `NumberParts`, about parts that are spread over several arrays.

    stretches: one item for each array. sizes: (parts,) how many numbers each part has in all arrays.
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
        found = each_share(
            lambda first, last: self._part(first, last).by_samples(ranks[first:last]), shares_of(self.sizes)
        )
        return RankedValues(*map(np.concatenate, zip(*found, strict=True)))

    def _part(self, first: int, last: int) -> MergedParts:
        """The parts with numbers from first to last, exclusive."""
        if (first, last) == (0, len(self)):
            return self
        taken = []
        for one in self._stretches:
            here = slice(*one.parts.searchsorted([first, last]).tolist())
            taken.append(Stretches(one.numbers, one.starts[here], one.stops[here], one.parts[here] - first))
        return MergedParts(taken, self.sizes[first:last], self._dtype)

    def by_samples(self, ranks: Ints) -> RankedValues:
        """The values of a few ranks of parts with long stretches."""
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

    def sums(self) -> Sequence[Sums]:
        """The exact sums of the numbers of each part."""

        def share(first: int, last: int) -> EachSums:
            summer = CodeSums(last - first, LoopedSums.of(last - first))
            for one in self._part(first, last)._stretches:  # noqa: SLF001
                summer.add(*one.adjacent())
            return summer.each()

        found = EachSums.joined(each_share(share, shares_of(self.sizes, SUM_WEIGHT)))
        loading().added(int(self.sizes.sum()))
        return found

    def ends(self) -> NDArray[Any]:
        """(parts, 2): the least and the greatest number of each part, 0 for a part without numbers."""
        found = no_ends(len(self), self._dtype)
        for one in self._stretches:
            np.minimum.at(found[:, 0], one.parts, one.numbers[one.starts])
            np.maximum.at(found[:, 1], one.parts, one.numbers[one.stops - 1])
        found[self.sizes == 0] = 0
        return found

    @property
    def _are_long(self) -> bool:
        numbers = int(self.sizes.sum())
        return numbers >= max(MANY, LONG * sum(map(len, self._stretches)))

    @cached_property
    def together(self) -> NumberParts:
        """All numbers, copied so that those of a part are adjacent."""
        edges = np.concatenate([[0], np.cumsum(self.sizes)])
        if len(self._stretches) == 1 and self._stretches[0].are_whole:
            return NumberParts(self._stretches[0].numbers, edges, are_sorted=True)
        parts = [one.between(one.starts, one.stops) for one in self._stretches]
        return NumberParts(_side_by_side(parts, edges, self._dtype), edges)

    @cached_property
    def _samples(self) -> NumberParts:
        found = [one.samples() for one in self._stretches]
        sizes = sum((np.bincount(one.parts, one.sizes, len(self)) for one in found), np.zeros(len(self)))
        return MergedParts(found, sizes.astype(np.int64), self._dtype).together

    def _between_samples(self, ranks: Ints) -> tuple[NDArray[Any], Ints, NDArray[np.bool_]]:
        """For a rank of each part its value, how many numbers are <= that, and whether it was found."""
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
            parts.append(one.between(starts, stops))
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
