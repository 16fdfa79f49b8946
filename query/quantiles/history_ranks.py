"""Reads history: all rows of all runs inside given intervals. The thin I/O shell around read_plan.py.

`plan_reads` gives a row range per run and interval. `read_intervals` reads each row group of these ranges
once and keeps only the rows inside the intervals, so memory holds these rows and not the blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidemark.query.quantiles.kept_numbers import bounds_without, numbers_without
from tidemark.query.quantiles.read_plan import (
    Interval,
    Reading,
    RowRange,
    plan_row_range,
    select_rows,
    with_finer_marks,
)
from tidemark.query.reading.block_reader import BlockReader
from tidemark.query.reading.row_ranges import RowsWanted, files_with_rows, read_row_ranges, row_groups
from tidemark.sketches import RankBounds, combine
from tidemark.warehouse.columns.ticks import Window
from tidemark.warehouse.projections.spans import Anchors
from tidemark.warehouse.projections.value_marks import RunValues


@dataclass(frozen=True, slots=True, eq=False)
class History:
    """The numbers in a window of which the ranks can be read: runs, by block, and rows in memory.

    root: the folder of the runs table, relative to the warehouse.
    anchors: one per run; None where the window covers the run.
    in_memory: the sorted numbers of all other rows, live ones among them.
    kept: sorted, the removed ones among these numbers, which do not count.
    grain: until `in_memory` is searched, the ranks of its numbers are known to within this many rows.
    """

    root: str
    window: Window
    dtype: np.dtype[Any]
    runs: tuple[RunValues, ...]
    anchors: tuple[Anchors | None, ...]
    in_memory: NDArray[Any]
    kept: NDArray[Any]
    grain: int = 1

    @property
    def staircase(self) -> RankBounds:
        """The certified ranks at the marks of all runs, at the numbers in memory, and at the kept ones."""
        runs = zip(self.runs, self.anchors, strict=True)
        bounds = [run.bounds(anchors) for run, anchors in runs]
        whole = combine([*bounds, RankBounds.from_sorted(self.in_memory, self.dtype, grain=self.grain)])
        return bounds_without(whole, self.kept)


@dataclass(frozen=True, slots=True)
class PlannedRead:
    """The row range of a run for an interval; run and interval by index."""

    run: int
    interval: int
    rows: RowRange


def read_intervals(
    blocks: BlockReader, history: History, intervals: Sequence[Interval], reads: Sequence[PlannedRead]
) -> tuple[list[Reading], int]:
    """One reading per interval, and the number of row groups read; each row group is read once.

    reads: the result of `plan_reads` for these intervals.

    Raises DamagedWarehouse if a file is missing or does not match its marks.
    """
    planned = [read for read in reads if read.rows.start < read.rows.stop]
    columns = [("value",) if anchors is None else ("value", "tick") for anchors in history.anchors]
    wanted = [
        RowsWanted(history.runs[read.run].files, read.rows.start, read.rows.stop, columns[read.run])
        for read in planned
    ]
    numbers = history.in_memory
    below = [int(numbers.searchsorted(interval.lower, side="right")) for interval in intervals]
    inside = [
        [numbers[start : int(numbers.searchsorted(interval.upper, side="left"))]]
        for start, interval in zip(below, intervals, strict=True)
    ]
    for read in reads:
        below[read.interval] += read.rows.count
    blocks_read = 0
    for block, first, ranges in read_row_ranges(blocks, history.root, wanted, copy=False):
        blocks_read += 1
        values, ticks = block["value"], block.get("tick")
        for i, rows in ((planned[k].interval, planned[k].rows) for k in ranges):
            more, own = select_rows(first, values, ticks, rows, intervals[i], history.window)
            below[i] += more
            inside[i].append(own)
    readings = [Reading(interval, below[i], inside[i]) for i, interval in enumerate(intervals)]
    return [_without_kept(reading, history.kept) for reading in readings], blocks_read


def _without_kept(reading: Reading, kept: NDArray[Any]) -> Reading:
    if not len(kept):
        return reading
    start = int(kept.searchsorted(reading.interval.lower, "right"))
    gone = kept[start : int(kept.searchsorted(reading.interval.upper))]
    pieces = reading.pieces if not len(gone) else [numbers_without(reading.inside, gone)]
    return replace(reading, below=reading.below - start, pieces=pieces)


def with_footer_marks(
    blocks: BlockReader, history: History, intervals: Sequence[Interval], needed: Sequence[tuple[Any, Any]]
) -> History:
    """The history with the first and last row of each row group in the intervals as additional marks.

    The marks of a very large run are further apart than its row groups. The first and last value of a row
    group are statistics in the file's footer, so this reads footers and no data.

    needed: the closed intervals in which ranks will be computed.
    """
    finer = []
    for run in history.runs:
        positions, values = _footer_marks(blocks, history, run, intervals)
        finer.append(with_finer_marks(run, needed, positions, values))
    return replace(history, runs=tuple(finer))


def _footer_marks(
    blocks: BlockReader, history: History, run: RunValues, intervals: Sequence[Interval]
) -> tuple[NDArray[np.int64], NDArray[Any]]:
    positions: list[int] = []
    values: list[Any] = []
    for rows in (plan_row_range(run, None, interval) for interval in intervals):
        for file in files_with_rows(run.files, rows.start, rows.stop):
            footer = blocks.footer(history.root, file)
            for g in row_groups(file, footer, rows.start, rows.stop):
                ends = footer.edges[g : g + 2] - [0, 1]
                positions += (file.first + ends).tolist()
                values += blocks.edge_values(history.root, file, g)
    # Parquet writes a minimum of zero as -0.0; runs store 0.0. Adding 0 turns the one into the other.
    numbers = np.array(values, dtype=history.dtype) + history.dtype.type(0)
    return np.array(positions, dtype=np.int64), numbers


def plan_reads(history: History, intervals: Sequence[Interval]) -> list[PlannedRead]:
    """The row ranges to read, one per run and interval."""
    return [
        PlannedRead(number, i, plan_row_range(run, anchors, interval))
        for number, (run, anchors) in enumerate(zip(history.runs, history.anchors, strict=True))
        for i, interval in enumerate(intervals)
    ]
