"""Numbers of many parts (such as groups in windows) in one array, in any order within a part.

A few ranks of each part are found without a sort of all numbers:

    the greatest    of all parts are found together, if enough numbers are in parts where it is asked
    small parts     parts of about equal size are sorted together, as rows of a matrix. So a part costs some
                    nanoseconds, and not the microseconds of a call
    medium parts    are partitioned at the ranks
    large parts     are partitioned only between two samples, if exact counts show that the rank lies there

More ranks, and different points for each part, need all parts sorted, once.

Cost, for r numbers in p parts: O(r) for a few ranks or points, else O(r log r).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidemark.query.reading.shares import each_share, equal_shares, shares_of
from tidemark.query.reading.sorted_parts import SUM_WEIGHT, Ints, RankedValues, SortedParts, counts_below
from tidemark.warehouse.columns.code_sums import CodeSums, EachSums
from tidemark.warehouse.columns.exact_sums import Sums
from tidemark.warehouse.columns.looped_sums import LoopedSums, loading

FEW = 8  # ranks or points that are found without a sort
SMALL = 2**8  # numbers of a part that is sorted with others
LARGE = 2**16  # numbers of a part from which samples are taken
CHEAP = 16  # times as long takes a part's rank by a sort as its greatest number
STEP = 64  # places from one of these samples to the next, at least
MOST_SAMPLES = 2**16  # about so many leave few numbers between two of them
SPREAD = 3.0  # standard deviations of a rank among samples, on either side
Part = tuple[int, int, int]  # its number, and where it starts and ends


class NumberParts:
    """The numbers of part i are ``numbers[edges[i] : edges[i + 1]]``, without NaN."""

    def __init__(self, numbers: NDArray[Any], edges: Ints, *, are_sorted: bool = False) -> None:
        """are_sorted: whether the numbers of each part ascend."""
        self.numbers, self.edges = numbers, edges
        self._sorted = SortedParts(numbers, edges) if are_sorted else None

    def __len__(self) -> int:
        return len(self.edges) - 1

    @property
    def sizes(self) -> Ints:
        """(parts,) how many numbers each part has."""
        return np.diff(self.edges)

    def same_values_at(self, ranks: Ints) -> RankedValues:
        """See `SortedParts.same_values_at`."""
        if self._sorted is None and ranks.shape[1] <= FEW:
            return _selected(self.numbers, self.edges, ranks)
        return self._in_order.same_values_at(ranks)

    def values_at(self, ranks: Sequence[Ints]) -> list[RankedValues]:
        """See `SortedParts.values_at`."""
        return self._in_order.values_at(ranks)

    def same_ranks_at(self, points: NDArray[Any]) -> Ints:
        """See `SortedParts.same_ranks_at`."""
        if self._sorted is None and len(points) <= FEW:
            return counts_below(self.numbers, self.edges, points)
        return self._in_order.same_ranks_at(points)

    def ranks_at(self, points: Sequence[NDArray[Any]]) -> list[Ints]:
        """See `SortedParts.ranks_at`."""
        first = points[0] if points else np.empty(0)
        if len(first) <= FEW and all(own is first or np.array_equal(own, first) for own in points):
            return list(self.same_ranks_at(first))
        return self._in_order.ranks_at(points)

    def sums(self) -> Sequence[Sums]:
        """The exact sums of the numbers of each part."""

        def share(first: int, last: int) -> EachSums:
            own, summer = self.edges[first : last + 1], CodeSums(last - first, LoopedSums.of(last - first))
            filled = np.flatnonzero(np.diff(own))
            summer.add(self.numbers[own[0] : own[-1]], own[filled] - own[0], filled)
            return summer.each()

        found = EachSums.joined(each_share(share, shares_of(self.sizes, SUM_WEIGHT)))
        loading().added(len(self.numbers))
        return found

    def ends(self) -> NDArray[Any]:
        """(parts, 2): the least and the greatest number of each part, 0 for a part without numbers."""
        filled = np.flatnonzero(self.sizes)
        found = np.zeros((len(self), 2), self.numbers.dtype)
        if len(filled):
            found[filled, 0] = np.minimum.reduceat(self.numbers, self.edges[filled])
            found[filled, 1] = np.maximum.reduceat(self.numbers, self.edges[filled])
        return found

    @property
    def _in_order(self) -> SortedParts:
        if self._sorted is None:
            self.numbers = _sort(self.numbers, self.edges)
            self._sorted = SortedParts(self.numbers, self.edges)
        return self._sorted


def _selected(numbers: NDArray[Any], edges: Ints, ranks: Ints) -> RankedValues:
    """`SortedParts.same_values_at` of numbers in any order."""
    values, ranks_le = np.zeros(ranks.shape, numbers.dtype), np.zeros_like(ranks)
    if not ranks.size:
        return RankedValues(values, ranks_le)
    sizes = np.diff(edges)[:, np.newaxis]
    asked: NDArray[np.bool_] = np.any((ranks >= 1) & (ranks <= sizes), axis=1)
    greatest = asked & np.all(ranks == sizes, axis=1)
    if CHEAP * sizes[greatest].sum() >= len(numbers):  # as a high quantile of small parts
        filled = np.flatnonzero(sizes[:, 0])
        values[filled] = np.maximum.reduceat(numbers, edges[filled])[:, np.newaxis]
        ranks_le[greatest], asked = sizes[greatest], asked & ~greatest
    places = np.clip(ranks - 1, 0, np.maximum(sizes - 1, 0))
    for parts, rows, _ in _small_parts(numbers, edges, asked):
        rows.sort(axis=1)
        values[parts] = found = np.take_along_axis(rows, places[parts], axis=1)
        for column, wanted in enumerate(found.T):
            counts = np.count_nonzero(rows <= wanted[:, np.newaxis], axis=1)
            ranks_le[parts, column] = np.minimum(counts, sizes[parts, 0])  # without the filling

    def select(parts: Sequence[Part]) -> None:
        for part, start, stop in parts:
            values[part], ranks_le[part] = _of_one(numbers[start:stop], places[part] + 1)

    large = _large_parts(edges, asked)
    divided = [one for one in large if len(equal_shares(one[2] - one[1])) > 1]
    whole = [one for one in large if one not in divided]
    select(divided)  # threads share the numbers of each; of the others, the parts
    shares = shares_of(np.array([stop - start for _, start, stop in whole], np.int64))
    each_share(lambda first, last: select(whole[first:last]), shares)
    return RankedValues(values, ranks_le)


def sample_ranks(ranks: Ints, sizes: Ints, samples: Ints) -> tuple[Ints, Ints]:
    """Two ranks among some samples of so many numbers, between which a rank of the numbers should lie.

    A rank below 1, or above the samples, has no sample: there are no numbers beyond.
    """
    share = ranks / np.maximum(sizes, 1)
    spread = 2 + SPREAD * np.sqrt(np.maximum(samples * share * (1 - share), 0))
    low, high = samples * share - spread, samples * share + spread + 1
    return low.astype(np.int64), high.astype(np.int64)


def _of_one(numbers: NDArray[Any], ranks: Ints) -> RankedValues:
    """The values of ranks that the numbers have, and how many numbers are <= each."""
    if len(numbers) >= LARGE:
        step = max(STEP, len(numbers) // MOST_SAMPLES)
        samples, sizes = np.sort(numbers[::step]), np.full(len(ranks), len(numbers))
        ends = zip(*sample_ranks(ranks, sizes, np.full(len(ranks), len(samples))), strict=True)
        near = [_between(numbers, samples, rank, *own) for rank, own in zip(ranks, ends, strict=True)]
        found = [one for one in near if one is not None]
        if len(found) == len(ranks):
            values = np.array([value for value, _ in found], numbers.dtype)
            return RankedValues(values, np.array([count for _, count in found], np.int64))
    own = numbers.copy()
    own.partition(ranks - 1)
    values = own[ranks - 1]
    after = [
        np.count_nonzero(own[rank:] == value) for rank, value in zip(ranks.tolist(), values, strict=True)
    ]
    return RankedValues(values, ranks + after)


def _between(
    numbers: NDArray[Any], samples: NDArray[Any], rank: int, low: int, high: int
) -> tuple[Any, int] | None:
    """The value of a rank and how many numbers are <= it; None if it is not between these two samples."""

    def near_of(first: int, last: int) -> tuple[NDArray[Any], int]:
        """The numbers of a share that are between the two samples, and how many are below."""
        own, is_near, below = numbers[first:last], np.ones(last - first, bool), 0
        if 1 <= low <= len(samples):
            is_near = own >= samples[low - 1]
            below = len(own) - int(np.count_nonzero(is_near))
        if 1 <= high <= len(samples):
            is_near &= own <= samples[high - 1]
        return own[is_near], below

    parts, counts = zip(*each_share(near_of, equal_shares(len(numbers))), strict=True)
    near, below = np.concatenate(parts), sum(counts)
    inner = rank - below
    if not 1 <= inner <= len(near):
        return None
    near.partition(inner - 1)
    value = near[inner - 1]
    return value, below + int(np.count_nonzero(near <= value))


def _sort(numbers: NDArray[Any], edges: Ints) -> NDArray[Any]:
    found, every = numbers.copy(), np.ones(len(edges) - 1, bool)
    for _, rows, places in _small_parts(numbers, edges, every):
        rows.sort(axis=1)
        is_own = places >= 0
        found[places[is_own]] = rows[is_own]
    for _, start, stop in _large_parts(edges, every):
        found[start:stop].sort()
    return found


def _small_parts(
    numbers: NDArray[Any], edges: Ints, asked: NDArray[np.bool_]
) -> Iterator[tuple[Ints, NDArray[Any], Ints]]:
    """The asked parts with 1 to SMALL numbers, those of about equal size together.

    Yields their numbers as parts; the numbers of each as a row, filled with the greatest number of the type;
    and the place of each number in `numbers`, -1 where it fills a row.
    """
    sizes = np.diff(edges)
    small = np.flatnonzero(asked & (sizes > 0) & (sizes <= SMALL))
    if not len(small):
        return
    _, powers = np.frexp(sizes[small] - 1)  # parts of a power p: 2**(p - 1) < numbers <= 2**p
    order = np.argsort(powers, kind="stable")
    cuts = np.flatnonzero(np.diff(powers[order])) + 1
    most = np.iinfo(numbers.dtype).max if numbers.dtype.kind == "i" else np.inf
    for parts in np.split(small[order], cuts):
        own = sizes[parts][:, np.newaxis]
        column = np.arange(own.max())
        places = np.where(column < own, edges[parts][:, np.newaxis] + column, -1)
        rows = numbers[places]
        rows[places < 0] = most
        yield parts, rows, places


def _large_parts(edges: Ints, asked: NDArray[np.bool_]) -> list[Part]:
    """The asked parts with more than SMALL numbers, each with where it starts and ends."""
    parts = np.flatnonzero(asked & (np.diff(edges) > SMALL))
    return list(zip(parts.tolist(), edges[parts].tolist(), edges[parts + 1].tolist(), strict=True))
