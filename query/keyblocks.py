"""History's exact counts of keys: which blocks may hold a key, and what they hold of it.

A mark separates what lies before its block from what lies in it and after, so the rows of a key in a
window of ticks lie between the last block whose mark is at or before (key, first tick) and the last one
whose mark is before (key, last tick): one block, or as many as the key itself fills. All keys of a question
share one round of reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from query.blocks import GROUPS_A_TASK, BlockReader, in_parallel
from warehouse.keyfiles import key_rows
from warehouse.keymarks import KeyMarks
from warehouse.keyrows import KeyRows
from warehouse.keys import Name, names_of, pairs_before
from warehouse.marks import RunFile
from warehouse.measures import numbers
from warehouse.snapshot import KeysView
from warehouse.ticks import ALL_TIME, NO_TICK, Window

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class KeyHistory:
    """What is asked: the history of a view, in a window, through the blocks' reader.

    `live` brings rows that are counted beside it where every key is counted.
    """

    blocks: BlockReader
    view: KeysView
    window: Window
    live: Callable[[], Iterator[KeyRows]] | None = None

    @property
    def runs(self) -> tuple[KeyMarks, ...]:
        """The runs that have keys in the window."""
        return tuple(run for run in self.view.runs if run.totals.within(self.window)[0])


def count_names(history: KeyHistory, names: Sequence[Name]) -> NDArray[np.int64]:
    """The rows in the window of each name."""
    needs: dict[tuple[int, int], list[int]] = {}
    runs = history.runs
    for at, run in enumerate(runs):
        for i, name in enumerate(names):
            for block in _blocks_of(run, name, history.window):
                needs.setdefault((at, block), []).append(i)

    def count(at: tuple[int, int], table: pa.Table) -> list[tuple[int, int]]:
        if not history.view.key.is_text:
            return _count_numbers(history, table, [(i, names[i]) for i in needs[at]])
        return [
            (i, _count(rows, names[i], history.window))
            for rows in key_rows(history.view.key, table)
            for i in needs[at]
        ]

    counts = np.zeros(len(names), dtype=np.int64)
    for found in _read(history, runs, list(needs), count):
        for i, rows in found:
            counts[i] += rows
    return counts


def count_between(history: KeyHistory, low: Name | None, high: Name | None) -> int:
    """The rows in the window whose name is at least `low` and less than `high`; None leaves a side open."""
    if low is not None and high is not None and high <= low:
        return 0
    needs: dict[tuple[int, int], None] = {}
    runs, total = history.runs, 0
    for at, run in enumerate(runs):
        first = 0 if low is None else max(0, _last_at(run, (low, NO_TICK)))
        last = len(run.positions) - 1 if high is None else _last_at(run, (high, NO_TICK))
        if last - first > 1 and run.covered_by(history.window):
            total += int(run.before[last] - run.before[first + 1])
            needs |= {(at, first): None, (at, last): None}
        else:
            needs |= {(at, block): None for block in range(first, last + 1)}

    def count(_: tuple[int, int], table: pa.Table) -> int:
        found = 0
        for rows in key_rows(history.view.key, table):
            start = 0 if low is None else rows.before(low, NO_TICK)
            stop = len(rows) if high is None else rows.before(high, NO_TICK)
            found += _in_window(rows, start, stop, history.window)
        return found

    return total + sum(_read(history, runs, list(needs), count))


def _blocks_of(run: KeyMarks, name: Name, window: Window) -> range:
    """The blocks that may hold rows of the name in the window."""
    end = 2**63 if window == ALL_TIME else window.stop
    last = pairs_before(run.keys, run.ticks, (name, end), equal=False) - 1
    return range(max(0, _last_at(run, (name, window.start))), last + 1)


def _last_at(run: KeyMarks, pair: tuple[Name, int]) -> int:
    """The last block whose mark is at or before the pair; -1 where there is none."""
    return pairs_before(run.keys, run.ticks, pair, equal=True) - 1


def _count_numbers(
    history: KeyHistory, table: pa.Table, asked: Sequence[tuple[int, Name]]
) -> list[tuple[int, int]]:
    """The rows of some names in a block, without more of it in memory than they need."""
    found = names_of(history.view.key, table.column("key"))
    ticks, counts = numbers(table.column("tick")), numbers(table.column("count"))
    result = []
    for i, name in asked:
        start, stop = np.searchsorted(found, name, "left"), np.searchsorted(found, name, "right")
        rows = slice(int(start), int(stop))
        inside = history.window.holds(ticks[rows])
        result.append((i, int(counts[rows][inside].sum())))
    return result


def _count(rows: KeyRows, name: Name, window: Window) -> int:
    return _in_window(rows, *rows.of(name), window)


def _in_window(rows: KeyRows, start: int, stop: int, window: Window) -> int:
    inside = window.holds(rows.ticks[start:stop])
    return int(rows.counts[start:stop][inside].sum())


def _read(
    history: KeyHistory,
    runs: Sequence[KeyMarks],
    needed: Sequence[tuple[int, int]],
    take: Callable[[tuple[int, int], pa.Table], T],
) -> list[T]:
    """What `take` makes of the needed blocks, (run, block) each; a few blocks a task."""
    root, key = history.view.root, history.view.key
    by_file: dict[tuple[int, RunFile], dict[int, int]] = {}
    for at, block in sorted(needed):
        file, group = _place(runs[at], block)
        by_file.setdefault((at, file), {})[group] = block
    history.blocks.fetch_footers(root, [file for _, file in by_file])
    tasks = [
        (at, file, dict(list(groups.items())[i : i + GROUPS_A_TASK]))
        for (at, file), groups in by_file.items()
        for i in range(0, len(groups), GROUPS_A_TASK)
    ]

    def work(task: tuple[int, RunFile, Mapping[int, int]]) -> list[T]:
        at, file, groups = task
        texts = ("key",) if key.is_text else ()
        read = history.blocks.tables(root, file, list(groups), texts=texts)
        return [take((at, block), table) for block, table in zip(groups.values(), read, strict=True)]

    return [one for some in in_parallel(work, tasks, history.blocks.threads) for one in some]


def _place(run: KeyMarks, block: int) -> tuple[RunFile, int]:
    """The file of a block of the run, and the row group there: each row group has one mark."""
    position = int(run.positions[block])
    file = next(file for file in run.files if file.first <= position < file.first + file.rows)
    return file, block - int(np.searchsorted(run.positions, file.first))
