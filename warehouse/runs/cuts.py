"""Cuts: how the merge of sorted inputs is shared out among tasks without a shuffle.

Model. Every row of every input has a place in the projection's order. A cut is a place taken at a mark:

    rows before the mark  <=  place of the mark  <=  rows from the mark on

Where equal rows may lie on either side of a cut, they are split by input, then by position in it, so a
constant column is cut as evenly as any other. A cut at input c, position p, leaves before it

    of input j < c: rows <= place        of input c: its first p rows        of input j > c: rows < place

Where equal rows become one, they must come together: the rows less than the place lie before the cut, of
whichever input. Then marks of an input separate what lies before them from what lies after (rows before the
mark < place of the mark), so its own cut is exact here too.

Two cuts bound a slice. Slices of neighbouring cuts share no row and miss none. The marks bound where a cut
falls in each input, and only the blocks that may hold rows of the slice are read.

Cost: a slice holds at most rows/slices + the sum over the inputs of the rows between two marks.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidemark.warehouse.columns.keys import count_tuples_less, name_at, unify_names
from tidemark.warehouse.runs.marks import RunFile
from tidemark.warehouse.runs.projection import MarkedFile, Marks, Rows, SortColumns, SortKey


@dataclass(frozen=True, slots=True, eq=False)
class SortedInput:
    """A sorted input of a merge: its files in order, by their paths below the warehouse, and its marks."""

    files: tuple[RunFile, ...]
    rows: int
    positions: NDArray[np.int64]
    sort_keys: SortColumns

    @classmethod
    def of_chunk(cls, file: MarkedFile) -> SortedInput:
        """A sorted chunk."""
        return cls(
            (RunFile(file.path, 0, file.rows, file.digests),), file.rows, file.positions, file.sort_keys
        )

    @classmethod
    def of_run(cls, root: str, marks: Marks) -> SortedInput:
        """A run of the table `root`."""
        files = tuple(replace(file, path=f"{root}/{file.path}") for file in marks.files)
        return cls(files, marks.rows, marks.positions, marks.sort_keys)

    @property
    def digest(self) -> int | None:
        """The digest of its rows, modulo 2**64; None where a file of an earlier version does not tell."""
        known = [file.digests.row_digest for file in self.files if file.digests is not None]
        return sum(known) % 2**64 if len(known) == len(self.files) else None

    @property
    def end_to_end(self) -> bool:
        """Whether the digest covers the rows since their ingestion."""
        return all(file.digests is not None and file.digests.end_to_end for file in self.files)


@dataclass(frozen=True, slots=True)
class MergeCut:
    """A place in the order of all rows: at `position` of the input `source`.

    Equal rows are `split` by input and position, or all come after the cut.
    """

    sort_key: SortKey
    source: int
    position: int
    split: bool

    def equal_before(self, source: int) -> bool:
        """Whether the rows of another input that are equal to the place lie before the cut."""
        return self.split and source < self.source


@dataclass(frozen=True, slots=True)
class InputRange:
    """The rows of one input that a slice may need: `start` inclusive, `stop` exclusive."""

    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class MergeSlice:
    """The rows between two cuts (None: the end of all); `input_ranges[j]` bounds them in input j."""

    lower: MergeCut | None
    upper: MergeCut | None
    input_ranges: tuple[InputRange, ...]


def merge_cost(inputs: Sequence[SortedInput], min_block_cost: int = 0) -> int:
    """The work of a merge, in rows: a block counts as no fewer than `min_block_cost`."""
    return sum(int(_weights(one, min_block_cost).sum()) for one in inputs)


def plan_slices(
    inputs: Sequence[SortedInput], slices: int, *, min_block_cost: int = 0, split: bool = True
) -> list[MergeSlice]:
    """Cuts the merge of the inputs into at most `slices` slices of about equal weight, in order.

    With `split` equal rows may lie in two slices. Where they may not, the marks of each input separate what
    lies before them from what lies after.
    """
    cuts = [None, *_cuts(inputs, slices, min_block_cost, split=split), None]
    return [
        MergeSlice(lower, upper, tuple(_input_range(one, j, lower, upper) for j, one in enumerate(inputs)))
        for lower, upper in pairwise(cuts)
    ]


def clip_to_slice(rows: Any, offset: int, source: int, piece: MergeSlice) -> Any:
    """Of rows that were read from row `offset` of input `source` on, those that lie in the slice."""
    start = 0 if piece.lower is None else _rows_before(rows, offset, source, piece.lower)
    stop = len(rows) if piece.upper is None else _rows_before(rows, offset, source, piece.upper)
    return rows.part(start, max(start, stop))


def _rows_before(rows: Rows, offset: int, source: int, cut: MergeCut) -> int:
    if source == cut.source:
        return min(max(cut.position - offset, 0), len(rows))
    find = bisect_right if cut.equal_before(source) else bisect_left
    return find(range(len(rows)), cut.sort_key, key=rows.sort_key)


def _weights(one: SortedInput, min_block_cost: int) -> NDArray[np.int64]:
    return np.maximum(np.diff(one.positions, append=one.rows), min_block_cost if one.rows else 0)


def _cuts(inputs: Sequence[SortedInput], slices: int, min_block_cost: int, *, split: bool) -> list[MergeCut]:
    filled = [(j, one) for j, one in enumerate(inputs) if one.rows]
    if slices < 2 or not filled:
        return []
    source = np.concatenate([np.full(len(one.positions), j) for j, one in filled])
    position = np.concatenate([one.positions for _, one in filled])
    places = [one.sort_keys for _, one in filled]
    order = _order(places)
    weights = np.concatenate([_weights(one, min_block_cost) for _, one in filled])[order]
    before = np.cumsum(weights) - weights
    targets = np.arange(1, slices) * (weights.sum() / slices)
    chosen = np.unique(np.searchsorted(before, targets))
    starts = np.cumsum([0, *(len(one.positions) for _, one in filled)])
    cuts: list[MergeCut] = []
    last = _sort_key_at(places, starts, int(order[0]))
    for i in order[chosen[(chosen > 0) & (chosen < len(order))]].tolist():
        place = _sort_key_at(places, starts, i)
        if split or place != last:  # one cut a place: a second one would bound an empty slice
            cuts.append(MergeCut(place, int(source[i]), int(position[i]), split))
        last = place
    return cuts


def _sort_key_at(places: Sequence[SortColumns], starts: NDArray[np.int64], i: int) -> SortKey:
    """The place of mark i of all inputs together."""
    j = int(np.searchsorted(starts, i, side="right")) - 1
    return tuple(name_at(column, i - int(starts[j])) for column in places[j])


def _order(places: Sequence[SortColumns]) -> NDArray[np.int64]:
    """The order of all marks; ties stay by input, then by position."""
    columns = []
    for parts in zip(*places, strict=True):
        numbers = isinstance(parts[0], np.ndarray)
        columns.append(np.concatenate(parts if numbers else unify_names(parts)[1]))
    order: NDArray[np.int64] = np.lexsort(columns[::-1])
    return order


def _input_range(one: SortedInput, source: int, lower: MergeCut | None, upper: MergeCut | None) -> InputRange:
    start = 0 if lower is None else _bounds(one, source, lower)[0]
    stop = one.rows if upper is None else _bounds(one, source, upper)[1]
    return InputRange(start, max(start, stop))


def _bounds(one: SortedInput, source: int, cut: MergeCut) -> tuple[int, int]:
    """The least and the greatest number of rows of input `source` that may lie before the cut."""
    if source == cut.source:
        return cut.position, cut.position
    upto = count_tuples_less(one.sort_keys, cut.sort_key, equal=cut.equal_before(source))
    # Where equal rows come together, those before a mark are less than it: an equal mark counts, too.
    low = upto if cut.split else count_tuples_less(one.sort_keys, cut.sort_key, equal=True)
    least = int(one.positions[low - 1]) if low else 0
    return least, int(one.positions[upto]) if upto < len(one.positions) else one.rows
