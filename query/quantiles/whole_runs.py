"""Whole runs in memory, for questions about many groups, windows or ranks: their cost and their reads.

Finding a group in a run, or the bounds of a window, takes a tenth of a millisecond or more; one pass over a
run in memory takes some nanoseconds a row. So with enough cells it is less work to select the rows of all
cells together (cells.py). A run that was read whole is kept, and serves the next question.

If a run still has removed rows (snapshots/kept_rows.py), it is kept in memory without these.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidemark.query.quantiles.cells import KINDS, PackedRows, pack, stretches
from tidemark.query.quantiles.kept_cells import rows_without
from tidemark.query.reading.block_reader import BlockReader
from tidemark.query.reading.costs import Costs, Reading
from tidemark.query.reading.row_ranges import RowsWanted, read_row_ranges
from tidemark.query.reading.shares import each_share, shares_of
from tidemark.query.reading.windows import runs_within
from tidemark.warehouse.columns.keys import Names, join_names
from tidemark.warehouse.columns.tick_counts import joined_windows
from tidemark.warehouse.columns.ticks import Window
from tidemark.warehouse.memory_cache import LRUCache
from tidemark.warehouse.projections.sorted_groups import SortedGroups
from tidemark.warehouse.projections.sorted_values import SortedValues
from tidemark.warehouse.projections.span_marks import SpanMarks
from tidemark.warehouse.snapshots.kept_rows import KeptRows
from tidemark.warehouse.snapshots.views import GroupView, View

Ints = NDArray[np.int64]

PAID_RUNS = 2**12  # runs whose payments for their reading are remembered
READ_WEIGHT = 8  # reading a row takes so many times as long as passing over it in memory


class WholeRuns:
    """Reads whole runs and keeps them in a cache of decoded data whose weights are bytes."""

    def __init__(self, blocks: BlockReader, memory: LRUCache[Any], costs: Costs) -> None:
        self._blocks, self._memory, self._costs = blocks, memory, costs
        self._paid: LRUCache[float] = LRUCache(PAID_RUNS)  # for the reading of runs: costs.py

    def cost(
        self,
        view: View | GroupView,
        windows: Sequence[Window],
        groups: int,
        targets: int,
        *,
        adds: bool = False,
    ) -> float | None:
        """The estimated microseconds of an answer from the runs with rows in the windows.

        None if they take too much memory. targets: how many ranks or points are looked for in each group and
        window. adds: whether the rows are added, too.
        """
        runs = _runs_within(view, windows)
        needed = sum(marks.rows * (8 + _code_type(marks).itemsize) for marks, _ in runs)
        if needed > self._memory.budget // 2:
            return None
        rows = sum(marks.rows for marks, _ in runs)
        once = joined_windows(windows)
        chosen = sum(int(marks.totals.by_window(once).sum()) for marks, _ in runs)
        known = self._costs.whole_runs(rows, chosen, len(windows), groups * len(windows), targets)
        added = self._costs.sums(chosen) if adds else 0.0
        return known + added + self.reading(view, windows).cost

    def reading(self, view: View | GroupView, windows: Sequence[Window]) -> Reading:
        """What it costs to read those of these runs that are not in memory, and what was paid for them."""
        unread = {
            (view.root, marks.files[0].path): self._costs.read_runs(marks.rows)
            for marks, kept in _runs_within(view, windows)
            if all(self._memory.peek(key) is None for key in _keys(view.root, marks, kept))
        }
        return Reading(unread, self._paid)

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
                    self._paid.drop((view.root, marks.files[0].path))
                    blocks_read += count
                if kept is not None:
                    rows = rows_without(rows, pack(kept.rows_of(marks.run)))
                    self._memory.drop(whole)
                self._memory.put(key, rows, rows.nbytes)
            found.append(rows)
        return found, blocks_read

    def _read(self, projection: SortedValues | SortedGroups, marks: SpanMarks) -> tuple[PackedRows, int]:
        columns = tuple(name for name in projection.runs_schema.names if name != "run")
        ticks = marks.totals.ticks
        values, codes = (
            np.empty(marks.rows, projection.measure.dtype),
            np.empty(marks.rows, _code_type(marks)),
        )
        edges = self._row_groups(projection, marks)

        def share(begin: int, end: int) -> tuple[list[tuple[int, tuple[Names, ...], Ints]], int]:
            parts, blocks_read = [], 0
            wanted = [RowsWanted(marks.files, int(edges[begin]), int(edges[end]), columns)]
            for block, position, _ in read_row_ranges(
                self._blocks, projection.runs_table, wanted, projection.dictionaries, copy=False
            ):
                blocks_read, first = blocks_read + 1, position
                for rows in projection.from_stored(block):
                    here = slice(first, first + len(rows))
                    values[here], codes[here] = rows.values, _codes_of(rows.ticks, ticks)
                    parts.append((first, *stretches(rows)))
                    first += len(rows)
            return parts, blocks_read

        found = each_share(share, shares_of(np.diff(edges), READ_WEIGHT))
        parts = [part for parts, _ in found for part in parts]
        blocks_read = sum(blocks for _, blocks in found)
        parts.sort(key=lambda part: part[0])
        sizes = np.concatenate([np.empty((0, KINDS), np.int64), *(sizes for _, _, sizes in parts)])
        if isinstance(projection, SortedValues):
            sizes = sizes.sum(axis=0, keepdims=True)
        groups = tuple(map(join_names, zip(*(names for _, names, _ in parts), strict=True)))
        return PackedRows(groups, sizes, values, ticks, codes), blocks_read

    def _row_groups(self, projection: SortedValues | SortedGroups, marks: SpanMarks) -> Ints:
        """Where the row groups of a run begin, and its end; in an object store one round reads the run."""
        if any(file.store is None or file.store.files.takes_rounds for file in marks.files):
            return np.array([0, marks.rows])
        edges = [file.first + self._blocks.footer(projection.runs_table, file).edges for file in marks.files]
        return np.unique(np.concatenate(edges))


def _runs_within(
    view: View | GroupView, windows: Sequence[Window]
) -> list[tuple[SpanMarks, KeptRows[Any] | None]]:
    """The runs with rows in the windows, each with the rows that left its warehouse, if the run has some."""
    return [
        (marks, site.kept if site.kept is not None and site.kept.waiting_in(marks.run) else None)
        for site in view.sites
        for marks in runs_within(site.runs, windows)
    ]


def _keys(root: str, marks: SpanMarks, kept: KeptRows[Any] | None) -> tuple[Hashable, Hashable]:
    """The keys by which memory keeps the run's rows: all of them, and all without removed rows."""
    path = marks.files[0].path
    return ("rows", root, path), ("rows", root, path, *(() if kept is None else [kept.waiting_in(marks.run)]))


def _code_type(marks: SpanMarks) -> np.dtype[Any]:
    return np.min_scalar_type(len(marks.totals.ticks))


def _codes_of(ticks: Ints, names: Ints) -> Ints:
    """The index of each tick among the ascending names, which have all of them."""
    first, last = int(names[0]), int(names[-1])
    if last - first + 1 == len(names):
        return ticks - first
    return names.searchsorted(ticks)
