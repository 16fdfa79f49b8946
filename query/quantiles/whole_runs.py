"""Whole runs in memory, for questions about many groups, windows or ranks: what they cost, and their reads.

To find a group in a run, or the bounds of a window, takes a tenth of a millisecond or more; to go once
through a run that is in memory takes some nanoseconds a row. So with enough cells it is less work to select
the rows of all of them together (cells.py). A run that was read whole is kept, and serves the next question.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidemark.query.quantiles.cells import KINDS, PackedRows, stretches
from tidemark.query.reading.block_reader import BlockReader
from tidemark.query.reading.costs import Costs
from tidemark.query.reading.row_ranges import RowsWanted, read_row_ranges
from tidemark.warehouse.columns.keys import Names, join_names
from tidemark.warehouse.memory_cache import LRUCache
from tidemark.warehouse.projections.sorted_groups import SortedGroups
from tidemark.warehouse.projections.sorted_values import SortedValues
from tidemark.warehouse.projections.span_marks import SpanMarks

Ints = NDArray[np.int64]


class WholeRuns:
    """Reads whole runs and keeps them in a cache of decoded data whose weights are bytes."""

    def __init__(self, blocks: BlockReader, memory: LRUCache[Any], costs: Costs) -> None:
        self._blocks, self._memory, self._costs = blocks, memory, costs

    def cost(self, runs: Sequence[SpanMarks], root: str) -> float | None:
        """The estimated microseconds of an answer from these runs; None if they take too much memory."""
        rows = sum(marks.rows for marks in runs)
        if sum(map(_packed_bytes, runs)) > self._memory.budget // 2:
            return None
        unknown = sum(marks.rows for marks in runs if self._memory.peek(_key(root, marks)) is None)
        return self._costs.whole_runs(rows, unknown)

    def rows(
        self, projection: SortedValues | SortedGroups, runs: Sequence[SpanMarks]
    ) -> tuple[list[PackedRows], int]:
        """All rows of each run, and how many row groups were read.

        Raises DamagedWarehouse if a file cannot be read.
        """
        found, blocks_read = [], 0
        for marks in runs:
            key = _key(projection.runs_table, marks)
            rows = self._memory.peek(key)
            if rows is None:
                rows, count = self._read(projection, marks)
                blocks_read += count
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


def _key(root: str, marks: SpanMarks) -> tuple[str, str, str]:
    return "rows", root, marks.files[0].path


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
