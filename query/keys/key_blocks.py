"""History's exact counts of keys: which blocks may hold a key, and what they hold of it.

A mark separates what lies before its block from what lies in it and after, so the rows of a key in a
window of ticks lie between the last block whose mark is at or before (key, first tick) and the last one
whose mark is before (key, last tick): one block, or as many as the key itself fills. All keys of a question
share one round of reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidemark.query.reading.block_reader import GROUPS_A_TASK, BlockReader, in_parallel
from tidemark.warehouse.columns.keys import Key, Name, Names, count_less, count_tuples_less, name_at, names_of
from tidemark.warehouse.columns.measures import as_numpy
from tidemark.warehouse.columns.ticks import ALL_TIME, NO_TICK, Window
from tidemark.warehouse.integrity.digests import ColumnsByName
from tidemark.warehouse.projections.key_counts import KeyCounts
from tidemark.warehouse.projections.key_marks import KeyMarks
from tidemark.warehouse.projections.key_rows import KeyRows
from tidemark.warehouse.runs.marks import RunFile
from tidemark.warehouse.snapshots.snapshot import KeysView

COLUMNS = ("key", "tick", "count")
WITHOUT_TICKS = ("key", "count")

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class KeyShare:
    """What a run has in a window: rows with a key, and whether these are all of its keys."""

    marks: KeyMarks
    rows: int
    whole: bool


class KeyHistory:
    """What is asked: the history of a view, in a window, through the blocks' reader.

    `shares` are those of the runs that have keys in the window; `rows` and `nulls` the window's rows with a
    key and without. `live` brings rows that are counted beside it where every key is counted.
    """

    def __init__(
        self,
        blocks: BlockReader,
        view: KeysView,
        window: Window,
        live: Callable[[], Iterator[KeyRows]] | None = None,
    ) -> None:
        self.blocks, self.view, self.window, self.live = blocks, view, window, live
        found = [(marks, *marks.totals.within(window)) for marks in view.runs]
        self.shares = tuple(KeyShare(marks, rows, rows == marks.count) for marks, rows, _, _ in found if rows)
        self.rows, self.nulls = sum(one[1] for one in found), sum(one[3] for one in found)


def count_names(history: KeyHistory, names: Sequence[Name]) -> NDArray[np.int64]:
    """The rows in the window of each name."""
    key, window = history.view.key, history.window
    counts = np.zeros(len(names), dtype=np.int64)
    needs: dict[tuple[int, int], list[int]] = {}
    for at, share in enumerate(history.shares):
        marks = share.marks
        for i, (first, last) in enumerate(_blocks_of(marks, names, window)):
            blocks: Sequence[int] = range(first, last + 1)
            if share.whole and len(blocks) > 2:  # those between have no other name
                counts[i] += marks.before[last] - marks.before[first + 1]
                blocks = (first, last)
            for block in blocks:
                needs.setdefault((at, block), []).append(i)

    def count(at: tuple[int, int], block: ColumnsByName) -> list[tuple[int, int]]:
        return _count(key, block, [(i, names[i]) for i in needs[at]], window)

    for found in _read(history, list(needs), count, timeless=True):
        for i, rows in found:
            counts[i] += rows
    return counts


def count_between(history: KeyHistory, low: Name | None, high: Name | None) -> int:
    """The rows in the window whose name is at least `low` and less than `high`; None leaves a side open."""
    if low is not None and high is not None and high <= low:
        return 0
    needs: dict[tuple[int, int], None] = {}
    total = 0
    for at, share in enumerate(history.shares):
        marks = share.marks
        first = 0 if low is None else max(0, count_less(marks.keys, low) - 1)
        last = (len(marks.positions) if high is None else count_less(marks.keys, high)) - 1
        if last - first > 1 and share.whole:
            total += int(marks.before[last] - marks.before[first + 1])
            needs |= {(at, first): None, (at, last): None}
        else:
            needs |= {(at, block): None for block in range(first, last + 1)}

    def count(_: tuple[int, int], block: ColumnsByName) -> int:
        parts = KeyCounts(history.view.key).loaded(block)
        return sum(between(rows, history.window, low, high) for rows in parts)

    return total + sum(_read(history, list(needs), count))


def _blocks_of(marks: KeyMarks, names: Sequence[Name], window: Window) -> list[tuple[int, int]]:
    """For each name the first and last block that may hold rows of it in the window; none: last < first."""
    if isinstance(marks.keys, np.ndarray):
        starts = marks.keys.searchsorted(names).tolist()
        stops = marks.keys.searchsorted(names, "right").tolist()
    else:
        starts = [count_less(marks.keys, name) for name in names]
        stops = [count_less(marks.keys, name, equal=True) for name in names]
    found = [(max(0, start - 1), stop - 1) for start, stop in zip(starts, stops, strict=True)]
    if window == ALL_TIME:
        return found
    return [
        (first, last) if first >= last else _narrowed(marks, name, window)
        for name, (first, last) in zip(names, found, strict=True)
    ]


def _narrowed(marks: KeyMarks, name: Name, window: Window) -> tuple[int, int]:
    """The first and last block of a name in the window, where the name begins some block."""
    first = count_tuples_less((marks.keys, marks.ticks), (name, window.start), equal=True) - 1
    return max(0, first), count_tuples_less((marks.keys, marks.ticks), (name, window.stop), equal=False) - 1


def _count(
    key: Key, block: ColumnsByName, asked: Sequence[tuple[int, Name]], window: Window
) -> list[tuple[int, int]]:
    """The rows of some names in a block, without more of it in memory than they need.

    A block without ticks lies in the window.
    """
    keys, counts, ticks = block["key"], block["count"], block.get("tick")
    result, first = [], 0
    for names, codes in _as_stored(key, keys):
        for i, name in asked:
            code = name if codes is names else count_less(names, name)
            if codes is not names and (code == len(names) or name_at(names, code) != name):
                continue
            start, stop = (
                first + int(codes.searchsorted(code)),
                first + int(codes.searchsorted(code, "right")),
            )
            rows = counts[start:stop]
            if ticks is not None:
                rows = rows[window.holds(ticks[start:stop])]
            result.append((i, int(rows.sum())))
        first += len(codes)
    return result


def _as_stored(key: Key, stored: Any) -> list[tuple[Names, NDArray[Any]]]:
    """Sorted keys as names and codes of them, neither copied, a dictionary each; numbers are their codes."""
    if key.is_text:
        return [(chunk.dictionary.view(pa.binary()), as_numpy(chunk.indices)) for chunk in stored.chunks]
    names = names_of(key, stored)
    return [(names, names)]


def between(rows: KeyRows, window: Window, low: Name | None, high: Name | None) -> int:
    """How many of the rows are in the window and have low <= name < high; None leaves a side open."""
    start = 0 if low is None else rows.before(low, NO_TICK)
    stop = len(rows) if high is None else rows.before(high, NO_TICK)
    inside = window.holds(rows.ticks[start:stop])
    return int(rows.counts[start:stop][inside].sum())


def _read(
    history: KeyHistory,
    needed: Sequence[tuple[int, int]],
    take: Callable[[tuple[int, int], ColumnsByName], T],
    *,
    timeless: bool = False,
) -> list[T]:
    """What `take` makes of the needed blocks, (run, block) each; a few blocks a task.

    With `timeless` the ticks of runs that lie in the window are not read.
    """
    root, key = history.view.root, history.view.key
    by_file: dict[tuple[int, RunFile], dict[int, int]] = {}
    for at, block in sorted(needed):
        file, group = _place(history.shares[at].marks, block)
        by_file.setdefault((at, file), {})[group] = block
    history.blocks.fetch_footers(root, [file for _, file in by_file])
    tasks = [
        (at, file, dict(list(groups.items())[i : i + GROUPS_A_TASK]))
        for (at, file), groups in by_file.items()
        for i in range(0, len(groups), GROUPS_A_TASK)
    ]

    def work(task: tuple[int, RunFile, Mapping[int, int]]) -> list[T]:
        at, file, groups = task
        columns = WITHOUT_TICKS if timeless and history.shares[at].whole else COLUMNS
        read = history.blocks.read(root, file, list(groups), columns, KeyCounts(key).dictionaries)
        return [take((at, place), block) for place, block in zip(groups.values(), read, strict=True)]

    return [one for some in in_parallel(work, tasks, history.blocks.threads) for one in some]


def _place(marks: KeyMarks, block: int) -> tuple[RunFile, int]:
    """The file of a block of the run, and the row group there: each row group has one mark."""
    position = int(marks.positions[block])
    file = next(file for file in marks.files if file.first <= position < file.first + file.rows)
    return file, block - int(marks.positions.searchsorted(file.first))
