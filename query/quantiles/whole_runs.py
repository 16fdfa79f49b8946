"""Whole runs in memory, for questions about many groups, windows or ranks: what they cost, and their reads.

To find a group in a run, or the bounds of a window, takes a tenth of a millisecond or more; to go once
through a run that is in memory takes some nanoseconds a row. So with enough cells it is less work to select
the rows of all of them together (cells.py). A run that was read whole is kept, and serves the next question.

Of a run with rows that left and that it still has (snapshots/kept_rows.py), the rows without these are kept.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidemark.query.quantiles.cells import KINDS, PackedRows, pack, stretches
from tidemark.query.quantiles.kept_cells import rows_without
from tidemark.query.reading.block_reader import BlockReader
from tidemark.query.reading.costs import Costs
from tidemark.query.reading.row_ranges import RowsWanted, read_row_ranges
from tidemark.query.reading.windows import runs_within
from tidemark.warehouse.columns.keys import Names, join_names
from tidemark.warehouse.columns.ticks import Window
from tidemark.warehouse.memory_cache import LRUCache
from tidemark.warehouse.projections.sorted_groups import SortedGroups
from tidemark.warehouse.projections.sorted_values import SortedValues
from tidemark.warehouse.projections.span_marks import SpanMarks
from tidemark.warehouse.snapshots.kept_rows import KeptRows
from tidemark.warehouse.snapshots.views import GroupView, View

Ints = NDArray[np.int64]


class WholeRuns:
    """Reads whole runs and keeps them in a cache of decoded data whose weights are bytes."""

    def __init__(self, blocks: BlockReader, memory: LRUCache[Any], costs: Costs) -> None:
        self._blocks, self._memory, self._costs = blocks, memory, costs

    def cost(self, view: View | GroupView, windows: Sequence[Window]) -> float | None:
        """The estimated microseconds of an answer from the runs with rows in the windows.

        None if they take too much memory.
        """
        runs = _runs_within(view, windows)
        rows = sum(marks.rows for marks, _ in runs)
        if sum(_packed_bytes(marks) for marks, _ in runs) > self._memory.budget // 2:
            return None
        unknown = sum(
            marks.rows
            for marks, kept in runs
            if all(self._memory.peek(key) is None for key in _keys(view.root, marks, kept))
        )
        return self._costs.whole_runs(rows, unknown)

    def rows(self, view: View | GroupView, windows: Sequence[Window]) -> tuple[list[PackedRows], int]:
        """All rows of each run with rows in the windows, and how many row groups were read.

        The runs are those of `runs_within`, in its order.

        Raises DamagedWarehouse if a file cannot be read.
        """
        found, blocks_read = [], 0
        for marks, kept in _runs_within(view, windows):
            whole, key = _keys(view.root, marks, kept)
            rows = self._memory.peek(key)
            if rows is None:
                rows = self._memory.peek(whole)
                if rows is None:
                    rows, count = self._read(view.projection, marks)
                    blocks_read += count
                if kept is not None:
                    rows = rows_without(rows, pack(kept.rows_of(marks.run)))
                    self._memory.drop(whole)
                self._memory.put(key, rows)
            found.append(rows)
        return found, blocks_read

    def _read(self, projection: SortedValues | SortedGroups, marks: SpanMarks) -> tuple[PackedRows, int]:
        columns = tuple(name for name in projection.runs_schema.names if name != "run")
        wanted = [RowsWanted(marks.files, 0, marks.rows, columns)]
        ticks = marks.totals.ticks
        values, codes = (
            np.empty(marks.rows, projection.measure.dtype),
            np.empty(marks.rows, _code_type(marks)),
        )
        parts: list[tuple[int, tuple[Names, ...], Ints]] = []
        blocks_read = 0
        for block, position, _ in read_row_ranges(
            self._blocks, projection.runs_table, wanted, projection.dictionaries, copy=False
        ):
            blocks_read, first = blocks_read + 1, position
            for rows in projection.from_stored(block):
                here = slice(first, first + len(rows))
                values[here], codes[here] = rows.values, _codes_of(rows.ticks, ticks)
                parts.append((first, *stretches(rows)))
                first += len(rows)
        parts.sort(key=lambda part: part[0])
        sizes = np.concatenate([np.empty((0, KINDS), np.int64), *(sizes for _, _, sizes in parts)])
        if isinstance(projection, SortedValues):
            sizes = sizes.sum(axis=0, keepdims=True)
        groups = tuple(map(join_names, zip(*(names for _, names, _ in parts), strict=True)))
        return PackedRows(groups, sizes, values, ticks, codes), blocks_read


def _runs_within(
    view: View | GroupView, windows: Sequence[Window]
) -> list[tuple[SpanMarks, KeptRows[Any] | None]]:
    """The runs with rows in the windows; those with rows that left with all of these of their warehouse."""
    return [
        (marks, site.kept if site.kept is not None and site.kept.waiting_in(marks.run) else None)
        for site in view.sites
        for marks in runs_within(site.runs, windows)
    ]


def _keys(root: str, marks: SpanMarks, kept: KeptRows[Any] | None) -> tuple[Hashable, Hashable]:
    """The keys of the run's rows in memory: of all, and of those without the ones that left."""
    path = marks.files[0].path
    return ("rows", root, path), ("rows", root, path, *(() if kept is None else [kept.waiting_in(marks.run)]))


def _code_type(marks: SpanMarks) -> np.dtype[Any]:
    return np.min_scalar_type(len(marks.totals.ticks))


def _packed_bytes(marks: SpanMarks) -> int:
    return marks.rows * (8 + _code_type(marks).itemsize)


def _codes_of(ticks: Ints, names: Ints) -> Ints:
    """The index of each tick among the ascending names, which have all of them."""
    first, last = int(names[0]), int(names[-1])
    if last - first + 1 == len(names):
        return ticks - first
    return names.searchsorted(ticks)
