"""Merge cuts: divide the merge of sorted inputs into slices, which tasks merge in parallel without a shuffle.

Model. Each row has a sort key. A cut is the sort key of a mark of one input. For every mark:

    sort keys before the mark  <=  sort key of the mark  <=  sort keys from the mark on

Rows are equal if their sort keys are. If the merge keeps equal rows as separate rows, a cut divides them by
input and then by position in the input. So a constant column is divided as evenly as any other. A cut at
position p of input c has these rows before it:

    input j < c: rows <= sort key        input c: its first p rows        input j > c: rows < sort key

If the merge sums equal rows into one, a slice must contain all of them. Then the rows of every input that are
less than the sort key lie before the cut. In such a run all rows before a mark are strictly less than it, so
in input c the cut lies exactly at position p, as without sums.

Two neighbouring cuts bound a slice. The slices are disjoint and contain every row. The marks bound the
position of a cut in each input; a task reads only the blocks that may contain rows of its slice.

Cost: a slice has at most rows / slices rows, plus the distance between two marks for each input.
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
    """A sorted input of a merge: a run or a chunk.

    `files` are in order, their paths relative to the warehouse. `rows` is the number of stored rows. Mark i
    is at row `positions[i]`; `sort_keys` are the columns of the marks' sort keys.
    """

    files: tuple[RunFile, ...]
    rows: int
    positions: NDArray[np.int64]
    sort_keys: SortColumns

    @classmethod
    def of_chunk(cls, file: MarkedFile) -> SortedInput:
        """The input that reads a sorted chunk."""
        return cls(
            (RunFile(file.path, 0, file.rows, file.digests),), file.rows, file.positions, file.sort_keys
        )

    @classmethod
    def of_run(cls, root: str, marks: Marks) -> SortedInput:
        """The input that reads a run of the table `root`."""
        files = tuple(replace(file, path=f"{root}/{file.path}") for file in marks.files)
        return cls(files, marks.rows, marks.positions, marks.sort_keys)

    @property
    def digest(self) -> int:
        """The digest of its rows, modulo 2**64."""
        return sum(file.digests.row_digest for file in self.files) % 2**64


@dataclass(frozen=True, slots=True)
class MergeCut:
    """A boundary between two slices: `sort_key` is that of the mark at `position` of the input `source`.

    With `split`, rows equal to `sort_key` are divided by input and position. Without it, all of them lie
    after the cut.
    """

    sort_key: SortKey
    source: int
    position: int
    split: bool

    def equal_before(self, source: int) -> bool:
        """For an input other than the cut's own: whether its rows equal to `sort_key` lie before the cut."""
        return self.split and source < self.source


@dataclass(frozen=True, slots=True)
class MergeSlice:
    """The rows between two cuts; None: no cut on that side. `input_ranges[j]` bounds the rows of input j."""

    lower: MergeCut | None
    upper: MergeCut | None
    input_ranges: tuple[range, ...]


def merge_cost(inputs: Sequence[SortedInput], min_block_cost: int = 0) -> int:
    """The work of a merge, in rows; from a mark to the next it is at least `min_block_cost` rows."""
    return sum(int(_block_weights(sorted_input, min_block_cost).sum()) for sorted_input in inputs)


def plan_slices(
    inputs: Sequence[SortedInput], slices: int, *, min_block_cost: int = 0, split: bool = True
) -> list[MergeSlice]:
    """Divides the merge of the inputs into at most `slices` slices of about equal cost, in order.

    If `split` is true, equal rows may lie in different slices. Without it, each mark must be greater than all
    rows before it.
    """
    cuts = [None, *_choose_cuts(inputs, slices, min_block_cost, split=split), None]
    return [
        MergeSlice(
            lower,
            upper,
            tuple(_input_range(inputs[source], source, lower, upper) for source in range(len(inputs))),
        )
        for lower, upper in pairwise(cuts)
    ]


def clip_to_slice(rows: Any, offset: int, source: int, slice_plan: MergeSlice) -> Any:
    """The part of `rows` that lies in the slice; `rows` begin at row `offset` of input `source`."""
    start = 0 if slice_plan.lower is None else _rows_before(rows, offset, source, slice_plan.lower)
    stop = len(rows) if slice_plan.upper is None else _rows_before(rows, offset, source, slice_plan.upper)
    return rows.part(start, max(start, stop))


def _rows_before(rows: Rows, offset: int, source: int, cut: MergeCut) -> int:
    if source == cut.source:
        return min(max(cut.position - offset, 0), len(rows))
    bisect = bisect_right if cut.equal_before(source) else bisect_left
    return bisect(range(len(rows)), cut.sort_key, key=rows.sort_key)


def _block_weights(sorted_input: SortedInput, min_block_cost: int) -> NDArray[np.int64]:
    """The cost of the rows from each mark to the next."""
    distances = np.diff(sorted_input.positions, append=sorted_input.rows)
    return np.maximum(distances, min_block_cost if sorted_input.rows else 0)


def _choose_cuts(
    inputs: Sequence[SortedInput], slices: int, min_block_cost: int, *, split: bool
) -> list[MergeCut]:
    """At most slices - 1 cuts, at marks that divide the cost evenly."""
    filled = [(j, sorted_input) for j, sorted_input in enumerate(inputs) if sorted_input.rows]
    if slices < 2 or not filled:
        return []
    sources = np.concatenate([np.full(len(sorted_input.positions), j) for j, sorted_input in filled])
    positions = np.concatenate([sorted_input.positions for _, sorted_input in filled])
    sort_keys = [sorted_input.sort_keys for _, sorted_input in filled]
    order = _mark_order(sort_keys)
    weights = [_block_weights(sorted_input, min_block_cost) for _, sorted_input in filled]
    ordered_weights = np.concatenate(weights)[order]
    weight_before = np.cumsum(ordered_weights) - ordered_weights
    targets = np.arange(1, slices) * (ordered_weights.sum() / slices)
    chosen = np.unique(np.searchsorted(weight_before, targets))
    starts = np.cumsum([0, *(len(sorted_input.positions) for _, sorted_input in filled)])
    cuts: list[MergeCut] = []
    previous = _sort_key_at(sort_keys, starts, int(order[0]))
    for i in order[chosen[(chosen > 0) & (chosen < len(order))]].tolist():
        sort_key = _sort_key_at(sort_keys, starts, i)
        if split or sort_key != previous:  # without split, two cuts at one sort key bound an empty slice
            cuts.append(MergeCut(sort_key, int(sources[i]), int(positions[i]), split))
        previous = sort_key
    return cuts


def _sort_key_at(sort_keys: Sequence[SortColumns], starts: NDArray[np.int64], i: int) -> SortKey:
    """The sort key of mark i. Marks are numbered over all inputs; those of input j start at `starts[j]`."""
    j = int(np.searchsorted(starts, i, side="right")) - 1
    return tuple(name_at(column, i - int(starts[j])) for column in sort_keys[j])


def _mark_order(sort_keys: Sequence[SortColumns]) -> NDArray[np.int64]:
    """The permutation that sorts the marks of all inputs; equal marks stay in order of input and position."""
    columns = []
    for parts in zip(*sort_keys, strict=True):
        is_numeric = isinstance(parts[0], np.ndarray)
        columns.append(np.concatenate(parts if is_numeric else unify_names(parts)[1]))
    order: NDArray[np.int64] = np.lexsort(columns[::-1])
    return order


def _input_range(
    sorted_input: SortedInput, source: int, lower: MergeCut | None, upper: MergeCut | None
) -> range:
    start = 0 if lower is None else _rows_before_bounds(sorted_input, source, lower)[0]
    stop = sorted_input.rows if upper is None else _rows_before_bounds(sorted_input, source, upper)[1]
    return range(start, max(start, stop))


def _rows_before_bounds(sorted_input: SortedInput, source: int, cut: MergeCut) -> tuple[int, int]:
    """Lower and upper bound of the number of rows of input `source` before the cut."""
    if source == cut.source:
        return cut.position, cut.position
    sort_keys, positions = sorted_input.sort_keys, sorted_input.positions
    marks_before = count_tuples_less(sort_keys, cut.sort_key, equal=cut.equal_before(source))
    # Without split, all rows before a mark that equals the cut are less than the cut. So the position of
    # such a mark is a lower bound, too.
    certain = marks_before if cut.split else count_tuples_less(sort_keys, cut.sort_key, equal=True)
    lower = int(positions[certain - 1]) if certain else 0
    upper = int(positions[marks_before]) if marks_before < len(positions) else sorted_input.rows
    return lower, upper
