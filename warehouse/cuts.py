"""Cuts: how the merge of sorted inputs is shared out among tasks without a shuffle.

Model. Every row of every input has a place in one total order: by value, then by input, then by
position in the input. A cut is such a place, taken at a mark, so its own input is cut at an
exact position, and each other input where its rows equal to the value all go to one side:

    cut (value v, input c, position p); rows of input j before it:
        j < c: rank_le(v)        j = c: p        j > c: rank_lt(v)

Two cuts bound a slice. Slices of neighbouring cuts share no row and miss none, whatever the
duplicates, so a constant column is cut as evenly as any other. The marks bound where a cut
falls in each input, and only the row groups that may hold slice rows are read.

Cost: a slice holds at most rows/slices + the sum of the inputs' grains.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class SortedInput:
    """A sorted input of a merge: its files in order, (path, first row, rows), and its marks."""

    files: tuple[tuple[str, int, int], ...]
    rows: int
    positions: NDArray[np.int64]
    values: NDArray[Any]


@dataclass(frozen=True, slots=True)
class Cut:
    """A place in the total order: before the row at `position` of `source`, whose value is `value`."""

    value: Any
    source: int
    position: int


@dataclass(frozen=True, slots=True)
class Reach:
    """The rows of one input that a slice may need: `start` inclusive, `stop` exclusive."""

    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Slice:
    """The rows between two cuts (None: the end of all); `reaches[j]` bounds them in input j."""

    lower: Cut | None
    upper: Cut | None
    reaches: tuple[Reach, ...]


def plan_slices(inputs: Sequence[SortedInput], slices: int) -> list[Slice]:
    """Cuts the merge of the inputs into about `slices` slices of about equal size, in order."""
    cuts = [None, *_cuts(inputs, slices), None]
    return [
        Slice(lower, upper, tuple(_reach(one, j, lower, upper) for j, one in enumerate(inputs)))
        for lower, upper in pairwise(cuts)
    ]


def trim(values: NDArray[Any], offset: int, source: int, piece: Slice) -> tuple[int, int]:
    """Where the slice's rows of input `source` start and stop in `values`, read from row `offset` on."""
    start = 0 if piece.lower is None else _rows_before(values, offset, source, piece.lower)
    stop = len(values) if piece.upper is None else _rows_before(values, offset, source, piece.upper)
    return start, max(start, stop)


def _rows_before(values: NDArray[Any], offset: int, source: int, cut: Cut) -> int:
    if source == cut.source:
        return min(max(cut.position - offset, 0), len(values))
    return int(np.searchsorted(values, cut.value, side="right" if source < cut.source else "left"))


def _cuts(inputs: Sequence[SortedInput], slices: int) -> list[Cut]:
    filled = [(j, one) for j, one in enumerate(inputs) if one.rows]
    if slices < 2 or not filled:
        return []
    values = np.concatenate([one.values for _, one in filled])
    source = np.concatenate([np.full(len(one.values), j) for j, one in filled])
    position = np.concatenate([one.positions for _, one in filled])
    weight = np.concatenate([np.diff(one.positions, append=one.rows) for _, one in filled])
    order = np.argsort(values, kind="stable")  # ties stay by input, then by position
    before = np.cumsum(weight[order]) - weight[order]
    total = sum(one.rows for one in inputs)
    targets = np.arange(1, slices) * (total / slices)
    chosen = np.unique(np.searchsorted(before, targets))
    chosen = chosen[(chosen > 0) & (chosen < len(order))]
    return [Cut(values[i].item(), int(source[i]), int(position[i])) for i in order[chosen]]


def _reach(one: SortedInput, source: int, lower: Cut | None, upper: Cut | None) -> Reach:
    start = 0 if lower is None else _bounds(one, source, lower)[0]
    stop = one.rows if upper is None else _bounds(one, source, upper)[1]
    return Reach(start, max(start, stop))


def _bounds(one: SortedInput, source: int, cut: Cut) -> tuple[int, int]:
    """The least and the greatest number of rows of input `source` that may lie before the cut."""
    if source == cut.source:
        return cut.position, cut.position
    j = int(np.searchsorted(one.values, cut.value, side="right" if source < cut.source else "left"))
    least = int(one.positions[j - 1]) + 1 if j else 0
    return least, int(one.positions[j]) if j < len(one.positions) else one.rows
