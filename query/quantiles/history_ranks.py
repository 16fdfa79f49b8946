"""Reads history: all rows of all runs inside given intervals. The thin I/O shell around read_plan.py.

`plan_reads` gives a row range per run and interval. `read_intervals` reads each row group of these ranges
once, in a few threads. A thread keeps only the rows inside the intervals, so memory holds these rows and not
the blocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidemark.query.quantiles.read_plan import (
    BlockRows,
    Interval,
    Reading,
    RowRange,
    plan_row_range,
    row_groups_of,
    select_rows,
    with_finer_marks,
)
from tidemark.query.reading.block_reader import GROUPS_PER_TASK, BlockReader, Footer, in_parallel
from tidemark.warehouse.columns.ticks import Window
from tidemark.warehouse.projections.spans import Anchors
from tidemark.warehouse.projections.value_marks import ValueMarks
from tidemark.warehouse.runs.marks import RunFile


@dataclass(frozen=True, slots=True, eq=False)
class History:
    """The runs that have rows in a window.

    root: the folder of the runs table, relative to the warehouse.
    anchors: one per run; None where the window covers the run.
    """

    root: str
    window: Window
    dtype: np.dtype[Any]
    runs: tuple[ValueMarks, ...]
    anchors: tuple[Anchors | None, ...]


@dataclass(frozen=True, slots=True)
class PlannedRead:
    """The row range of a run for an interval; run and interval by index."""

    run: int
    interval: int
    rows: RowRange


@dataclass(frozen=True, slots=True)
class _ReadTask:
    """A few row groups of one file, read by one thread.

    edges: row group g starts at row edges[g] of the file.
    with_ticks: whether the ticks are read, to filter rows by the window.
    reads: the planned reads that use each row group, by its number.
    """

    file: RunFile
    edges: NDArray[np.int64]
    with_ticks: bool
    reads: Mapping[int, Sequence[PlannedRead]]


def planned_rows(reads: Sequence[PlannedRead]) -> int:
    """The number of rows in all row ranges."""
    return sum(read.rows.stop - read.rows.start for read in reads)


def read_intervals(
    blocks: BlockReader, history: History, intervals: Sequence[Interval], reads: Sequence[PlannedRead]
) -> tuple[list[Reading], int]:
    """One reading per interval, and the number of row groups read; each row group is read once.

    reads: what `plan_reads` returned for these intervals.

    Raises DamagedWarehouse if a file is missing or does not match its marks.
    """
    tasks = _tasks(blocks, history, [read for read in reads if read.rows.start < read.rows.stop])

    def work(task: _ReadTask) -> list[tuple[int, BlockRows]]:
        parts = []
        columns = ("value", "tick") if task.with_ticks else ("value",)
        decoded = blocks.read(history.root, task.file, list(task.reads), columns)
        for (group, using), block in zip(task.reads.items(), decoded, strict=True):
            first = task.file.first + int(task.edges[group])
            for read in using:
                interval, values, ticks = intervals[read.interval], block["value"], block.get("tick")
                part = select_rows(first, values, ticks, read.rows, interval, history.window)
                parts.append((read.interval, part))
        return parts

    parts = [part for task_parts in in_parallel(work, tasks, blocks.threads) for part in task_parts]
    below = [0] * len(intervals)
    inside: list[list[NDArray[Any]]] = [[np.empty(0, dtype=history.dtype)] for _ in intervals]
    for read in reads:
        below[read.interval] += read.rows.count
    for i, part in parts:
        below[i] += part.below - part.before
        inside[i].append(part.inside)
    readings = [Reading(interval, below[i], inside[i]) for i, interval in enumerate(intervals)]
    return readings, sum(len(task.reads) for task in tasks)


def with_footer_marks(
    blocks: BlockReader, history: History, intervals: Sequence[Interval], needed: Sequence[tuple[Any, Any]]
) -> History:
    """The history with the first and last row of each row group in the intervals as additional marks.

    The marks of a very large run are further apart than its row groups. The first and last value of a row
    group are statistics in the file's footer, so this reads footers and no data.

    needed: the closed intervals in which ranks will be computed.
    """

    def finer(run: ValueMarks) -> ValueMarks:
        positions: list[int] = []
        values: list[Any] = []
        for rows in (plan_row_range(run, None, interval) for interval in intervals):
            for file in _files(run, rows):
                footer = blocks.footer(history.root, file)
                for g in _row_groups(file, footer, rows):
                    positions += [
                        file.first + int(footer.edges[g]),
                        file.first + int(footer.edges[g + 1]) - 1,
                    ]
                    values += blocks.edge_values(history.root, file, g)
        # Parquet writes a minimum of zero as -0.0; runs store 0.0. Adding 0 turns the one into the other.
        numbers = np.array(values, dtype=history.dtype) + history.dtype.type(0)
        return with_finer_marks(run, needed, np.array(positions, dtype=np.int64), numbers)

    runs = tuple(in_parallel(finer, history.runs, blocks.threads))
    return History(history.root, history.window, history.dtype, runs, history.anchors)


def plan_reads(history: History, intervals: Sequence[Interval]) -> list[PlannedRead]:
    """The row ranges to read, one per run and interval."""
    return [
        PlannedRead(number, i, plan_row_range(run, anchors, interval))
        for number, (run, anchors) in enumerate(zip(history.runs, history.anchors, strict=True))
        for i, interval in enumerate(intervals)
    ]


def _tasks(blocks: BlockReader, history: History, reads: Sequence[PlannedRead]) -> list[_ReadTask]:
    """Tasks that together read every row group of the row ranges once."""
    by_file: dict[tuple[int, RunFile], list[PlannedRead]] = {}
    for read in reads:
        for file in _files(history.runs[read.run], read.rows):
            by_file.setdefault((read.run, file), []).append(read)
    blocks.fetch_footers(history.root, [file for _, file in by_file])
    tasks = []
    for (run, file), file_reads in by_file.items():
        footer = blocks.footer(history.root, file)
        by_group: dict[int, list[PlannedRead]] = {}
        for read in file_reads:
            for g in _row_groups(file, footer, read.rows):
                by_group.setdefault(g, []).append(read)
        with_ticks = history.anchors[run] is not None
        groups = sorted(by_group)
        shares = [groups[i : i + GROUPS_PER_TASK] for i in range(0, len(groups), GROUPS_PER_TASK)]
        tasks += [
            _ReadTask(file, footer.edges, with_ticks, {g: by_group[g] for g in share}) for share in shares
        ]
    return tasks


def _files(run: ValueMarks, rows: RowRange) -> list[RunFile]:
    """The files that hold rows of the range."""
    start, stop = rows.start, rows.stop
    return [file for file in run.files if start < file.first + file.rows and file.first < stop]


def _row_groups(file: RunFile, footer: Footer, rows: RowRange) -> range:
    return row_groups_of(footer.edges, rows.start - file.first, rows.stop - file.first)
