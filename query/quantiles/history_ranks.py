"""History's exact ranks: reads the rows of all runs in given intervals. The thin shell round plan.py.

One call plans all stretches, reads each row group once in a few threads, cuts it there into what the
stretches need, and adds up. So memory holds the rows inside the intervals, not the blocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidemark.query.quantiles.read_plan import (
    Interval,
    Piece,
    Reading,
    Stretch,
    cut,
    groups_of,
    plan_stretch,
    with_finer_marks,
)
from tidemark.query.reading.block_reader import GROUPS_A_TASK, BlockReader, Footer, in_parallel
from tidemark.warehouse.columns.ticks import Window
from tidemark.warehouse.projections.value_marks import Anchors, RunMarks
from tidemark.warehouse.runs.marks import RunFile


@dataclass(frozen=True, slots=True, eq=False)
class History:
    """The runs that have rows in a window.

    `anchors[i]` is None where the window covers runs[i]; `root` is the runs table's folder.
    """

    root: str
    window: Window
    dtype: np.dtype[Any]
    runs: tuple[RunMarks, ...]
    anchors: tuple[Anchors | None, ...]


@dataclass(frozen=True, slots=True)
class Need:
    """One stretch of one run for one interval, by index."""

    run: int
    interval: int
    stretch: Stretch


@dataclass(frozen=True, slots=True)
class _Task:
    """A few row groups of one file, where row group g begins (`edges[g]`), and who needs each of them."""

    file: RunFile
    edges: NDArray[np.int64]
    ticks: bool
    needs: Mapping[int, Sequence[Need]]


def planned_rows(needs: Sequence[Need]) -> int:
    """How many rows the stretches span."""
    return sum(need.stretch.stop - need.stretch.start for need in needs)


def read_intervals(
    blocks: BlockReader, history: History, intervals: Sequence[Interval], needs: Sequence[Need]
) -> tuple[list[Reading], int]:
    """A reading of each interval, and how many row groups were read, each of them once.

    `needs` are what `plan` says of them.
    """
    tasks = _tasks(blocks, history, [need for need in needs if need.stretch.start < need.stretch.stop])

    def work(task: _Task) -> list[tuple[int, Piece]]:
        pieces = []
        columns = ("value", "tick") if task.ticks else ("value",)
        read = blocks.read(history.root, task.file, list(task.needs), columns)
        for (group, needed), block in zip(task.needs.items(), read, strict=True):
            first = task.file.first + int(task.edges[group])
            for need in needed:
                around = intervals[need.interval]
                piece = cut(first, block["value"], block.get("tick"), need.stretch, around, history.window)
                pieces.append((need.interval, piece))
        return pieces

    found = [pair for pairs in in_parallel(work, tasks, blocks.threads) for pair in pairs]
    below = [0] * len(intervals)
    inside: list[list[NDArray[Any]]] = [[np.empty(0, dtype=history.dtype)] for _ in intervals]
    for need in needs:
        below[need.interval] += need.stretch.count
    for at, piece in found:
        below[at] += piece.below - piece.before
        inside[at].append(piece.inside)
    readings = [Reading(interval, below[at], inside[at]) for at, interval in enumerate(intervals)]
    return readings, sum(len(task.needs) for task in tasks)


def with_footers(
    blocks: BlockReader, history: History, intervals: Sequence[Interval], needed: Sequence[tuple[Any, Any]]
) -> History:
    """The same history with the ends of its row groups inside the intervals as further marks.

    A very large run has marks further apart than its row groups, whose first and last values stand in the
    footers. So this costs no read of data. `needed` are the closed intervals in which ranks will be asked.
    """

    def finer(run: RunMarks) -> RunMarks:
        positions: list[int] = []
        values: list[Any] = []
        for stretch in (plan_stretch(run, None, interval) for interval in intervals):
            for file in _files(run, stretch):
                footer = blocks.footer(history.root, file)
                for g in _groups(file, footer, stretch):
                    positions += [
                        file.first + int(footer.edges[g]),
                        file.first + int(footer.edges[g + 1]) - 1,
                    ]
                    values += blocks.edge_values(history.root, file, g)
        # Adding 0 makes -0.0, which is how Parquet writes a least value of zero, the 0.0 that is stored.
        numbers = np.array(values, dtype=history.dtype) + history.dtype.type(0)
        return with_finer_marks(run, needed, np.array(positions, dtype=np.int64), numbers)

    runs = tuple(in_parallel(finer, history.runs, blocks.threads))
    return History(history.root, history.window, history.dtype, runs, history.anchors)


def plan(history: History, intervals: Sequence[Interval]) -> list[Need]:
    """The stretches of all runs that the intervals need."""
    return [
        Need(at, i, plan_stretch(run, anchors, interval))
        for at, (run, anchors) in enumerate(zip(history.runs, history.anchors, strict=True))
        for i, interval in enumerate(intervals)
    ]


def _tasks(blocks: BlockReader, history: History, needs: Sequence[Need]) -> list[_Task]:
    """Every row group that some stretch needs, once."""
    by_file: dict[tuple[int, RunFile], list[Need]] = {}
    for need in needs:
        for file in _files(history.runs[need.run], need.stretch):
            by_file.setdefault((need.run, file), []).append(need)
    blocks.fetch_footers(history.root, [file for _, file in by_file])
    tasks = []
    for (run, file), wanting in by_file.items():
        footer = blocks.footer(history.root, file)
        by_group: dict[int, list[Need]] = {}
        for need in wanting:
            for g in _groups(file, footer, need.stretch):
                by_group.setdefault(g, []).append(need)
        with_ticks = history.anchors[run] is not None
        groups = sorted(by_group)
        shares = [groups[at : at + GROUPS_A_TASK] for at in range(0, len(groups), GROUPS_A_TASK)]
        tasks += [_Task(file, footer.edges, with_ticks, {g: by_group[g] for g in share}) for share in shares]
    return tasks


def _files(run: RunMarks, stretch: Stretch) -> list[RunFile]:
    """The files that hold rows of the stretch."""
    start, stop = stretch.start, stretch.stop
    return [file for file in run.files if start < file.first + file.rows and file.first < stop]


def _groups(file: RunFile, footer: Footer, stretch: Stretch) -> range:
    return groups_of(footer.edges, stretch.start - file.first, stretch.stop - file.first)
