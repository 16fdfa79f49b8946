"""Exact counts of keys in history: which blocks may hold a key, and its rows in them.

A run is sorted by (key, tick) and has one mark per block: the first (key, tick) of the block. So the rows of
a key in a window of ticks start in the last block whose mark is at or before (key, first tick), and end in
the last block whose mark is before (key, end of the window). That is one block, or as many as the key itself
fills. All keys of a question share one round of reads.

Worked example. A run has blocks with the marks (A, 1), (B, 3), (B, 9) and (C, 2). The rows of B in ticks 4 to
6 are in the block of (B, 3) alone. Its rows in all ticks are in the first three blocks: the block of (A, 1)
may end with rows of B before tick 3.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidemark.query.reading.block_reader import BlockReader, RowGroups
from tidemark.warehouse.columns.codes import Ints, expand_ranges
from tidemark.warehouse.columns.keys import (
    Key,
    Name,
    Names,
    as_names,
    count_less,
    count_tuples_less,
    find_names,
    name_at,
    name_less,
    names_from,
    no_names,
    number_names,
    take_names,
)
from tidemark.warehouse.columns.ticks import ALL_TIME, NO_TICK, Window
from tidemark.warehouse.columns.value_encoding import as_numpy
from tidemark.warehouse.integrity.digests import ColumnsByName
from tidemark.warehouse.projections.key_counts import KeyCounts
from tidemark.warehouse.projections.key_marks import KeyMarks
from tidemark.warehouse.projections.key_rows import KeyRows
from tidemark.warehouse.runs.marks import RunFile
from tidemark.warehouse.snapshots.views import KeysView

COLUMNS = ("key", "tick", "count")
COLUMNS_WITHOUT_TICKS = ("key", "count")

_SIDES: tuple[Literal["left"], Literal["right"]] = ("left", "right")
RunBlock = tuple[int, int]  # an index into `KeyHistory.shares`, and the number of a block of the run


@dataclass(frozen=True, slots=True, eq=False)
class KeyShare:
    """A run that has rows with a key in a window.

    rows: the number of these rows.
    whole: whether they are all rows of the run.
    """

    marks: KeyMarks
    rows: int
    whole: bool


class KeyHistory:
    """The history of a view in a window, and the reader of its blocks.

    rows, nulls: the window's rows with a key, and with a NULL key.
    kept: removed rows that the runs still have and that do not count; None if the window has none.
    """

    def __init__(self, blocks: BlockReader, view: KeysView, window: Window) -> None:
        self.blocks, self.view, self.window = blocks, view, window
        self.rows, _, self.nulls = view.history_counts.within(window)
        self.kept: KeyRows | None = None
        if view.kept is not None and view.has_kept(window):
            self.kept = view.kept.rows.within(window)

    @cached_property
    def shares(self) -> tuple[KeyShare, ...]:
        """The runs that have rows with a key in the window."""
        rows = [marks.totals.within(self.window)[0] for marks in self.view.runs]
        runs = zip(self.view.runs, rows, strict=True)
        return tuple(KeyShare(marks, count, count == marks.count) for marks, count in runs if count)

    @cached_property
    def gone(self) -> Names:
        """The keys of rows that left of which the window has no other row; they are looked up once."""
        if self.kept is None:
            return no_names(self.view.key)
        names = self.kept.names
        rows = count_names(self, [name_at(names, i) for i in range(len(names))])
        return take_names(names, np.flatnonzero(rows == 0))

    @cached_property
    def numbers(self) -> float:
        """About how many different keys there may be, if they are integers; else infinite.

        The marks have the first key of each block.
        """
        if not self.view.key.column_type.is_integer:
            return math.inf
        keys = [share.marks.keys for share in self.shares]
        least = min((int(own[0]) for own in keys), default=0)
        return max((int(own[-1]) for own in keys), default=0) - least + 1

    @property
    def folders(self) -> set[str]:
        """The folders on this machine of the warehouses that have these runs."""
        stores = {file.store for share in self.shares for file in share.marks.files}
        return {store.files.folder for store in stores if store and store.files.folder}


def count_names(history: KeyHistory, names: Sequence[Name]) -> NDArray[np.int64]:
    """The number of rows of each name in the window, shape (names,).

    Reads one or two blocks per name and run, and more only where a key fills more blocks in a window that
    does not cover the run. Raises DamagedWarehouse if a file cannot be read.
    """
    key, window = history.view.key, history.window
    counts = np.zeros(len(names), dtype=np.int64)
    needs: dict[RunBlock, list[int]] = {}
    for run, share in enumerate(history.shares):
        marks = share.marks
        for i, (first, last) in enumerate(block_ranges(marks, names, window)):
            blocks: Sequence[int] = range(first, last + 1)
            if share.whole and len(blocks) > 2:  # the blocks count_rows_between hold no other name
                counts[i] += marks.counts_before[last] - marks.counts_before[first + 1]
                blocks = (first, last)
            for number in blocks:
                needs.setdefault((run, number), []).append(i)

    for run_block, block in read_blocks(history, needs, without_ticks=True):
        for i, rows in _count_in_block(key, block, [(i, names[i]) for i in needs[run_block]], window):
            counts[i] += rows
    return counts if history.kept is None else counts - rows_of_each(history.kept, names_from(key, names))


def rows_of_each(rows: KeyRows, names: Names) -> Ints:
    """How many of the rows each name has; the names are distinct. Shape (names,)."""
    sums = np.add.reduceat(rows.counts, rows.starts()) if len(rows) else rows.counts
    places = find_names(rows.names, names)
    found = np.zeros(len(places), np.int64)
    found[places >= 0] = sums[places[places >= 0]]
    return found


def rows_of_names(history: KeyHistory, names: Names, wanted: Mapping[int, Ints]) -> tuple[Ints, Ints, Ints]:
    """The rows in the window of names in some runs: for each the index of its name, its tick and its count.

    Removed rows are among them.

    wanted: the indices of the wanted names by run, an index into `history.shares`; ascending.

    Reads one or two blocks per name and run, or as many as the name fills; each block once. Raises
    DamagedWarehouse if a file cannot be read.
    """
    needs: dict[RunBlock, list[int]] = {}
    for run, places in wanted.items():
        scalars = [name_at(names, i) for i in places.tolist()]
        ranges = block_ranges(history.shares[run].marks, scalars, history.window)
        for i, (first, last) in zip(places.tolist(), ranges, strict=True):
            for block in range(first, last + 1):
                needs.setdefault((run, block), []).append(i)

    found = [
        _find_in_block(history, block, names, np.array(needs[run_block], np.int64))
        for run_block, block in read_blocks(history, needs)
    ]
    index, ticks, counts = (
        np.concatenate([np.empty(0, np.int64), *(part[column] for part in found)]) for column in range(3)
    )
    return index, ticks, counts


def _find_in_block(
    history: KeyHistory, block: ColumnsByName, names: Names, wanted: Ints
) -> tuple[Ints, Ints, Ints]:
    """The rows of some names in a block, as `rows_of_names` returns them."""
    ticks, counts, first = block["tick"], block["count"], 0
    index, rows = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for in_block, codes in names_and_codes(history.view.key, block["key"]):
        places = wanted
        if codes is in_block:
            searched = take_names(names, wanted)
        else:
            in_chunk = find_names(as_names(in_block), take_names(names, wanted))
            places, searched = wanted[in_chunk >= 0], in_chunk[in_chunk >= 0]
        starts, stops = (codes.searchsorted(cast("Ints", searched), side) for side in _SIDES)
        owners, row = expand_ranges(starts, stops)
        index.append(places[owners])
        rows.append(row + first)
        first += len(codes)
    row = np.concatenate(rows)
    inside = history.window.holds(ticks[row])
    return np.concatenate(index)[inside], ticks[row[inside]], counts[row[inside]]


def count_between(history: KeyHistory, low: Name | None, high: Name | None) -> int:
    """The number of rows in the window with low <= name < high; None leaves a side open.

    Reads two blocks of a run that the window covers, else every block of the range.
    """
    if low is not None and high is not None and not name_less(low, high):
        return 0
    needs: set[RunBlock] = set()
    total = 0
    for run, share in enumerate(history.shares):
        marks = share.marks
        first = 0 if low is None else max(0, count_less(marks.keys, low) - 1)
        last = (len(marks.positions) if high is None else count_less(marks.keys, high)) - 1
        if last - first > 1 and share.whole:
            total += int(marks.counts_before[last] - marks.counts_before[first + 1])
            needs |= {(run, first), (run, last)}
        else:
            needs |= {(run, block) for block in range(first, last + 1)}
    if history.kept is not None:
        total -= count_rows_between(history.kept, history.window, low, high)
    return total + sum(
        count_rows_between(rows, history.window, low, high)
        for _, block in read_blocks(history, needs)
        for rows in KeyCounts(history.view.key).from_stored(block)
    )


def block_ranges(marks: KeyMarks, names: Sequence[Name], window: Window) -> list[tuple[int, int]]:
    """For each name the first and last block, inclusive, that may hold its rows; last < first for none."""
    if isinstance(marks.keys, np.ndarray):
        starts = marks.keys.searchsorted(names).tolist()
        stops = marks.keys.searchsorted(names, "right").tolist()
    else:
        starts = [count_less(marks.keys, name) for name in names]
        stops = [count_less(marks.keys, name, equal=True) for name in names]
    ranges = [(max(0, start - 1), stop - 1) for start, stop in zip(starts, stops, strict=True)]
    if window == ALL_TIME:
        return ranges
    return [
        (first, last) if first >= last else _narrow_to_window(marks, name, window)
        for name, (first, last) in zip(names, ranges, strict=True)
    ]


def _narrow_to_window(marks: KeyMarks, name: Name, window: Window) -> tuple[int, int]:
    """The first and last block of a name in the window; the name is the first of at least one block."""
    first = count_tuples_less((marks.keys, marks.ticks), (name, window.start), equal=True) - 1
    return max(0, first), count_tuples_less((marks.keys, marks.ticks), (name, window.stop), equal=False) - 1


def _count_in_block(
    key: Key, block: ColumnsByName, indexed_names: Sequence[tuple[int, Name]], window: Window
) -> list[tuple[int, int]]:
    """(index, rows) of the given names in a block; copies only the rows of the names out of the block.

    A block without ticks lies in the window as a whole.
    """
    keys, counts, ticks = block["key"], block["count"], block.get("tick")
    result, first = [], 0
    for names, codes in names_and_codes(key, keys):
        for i, name in indexed_names:
            code = name if codes is names else _index_of(names, name)
            if code is None:
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


def _index_of(names: Names, name: Name) -> int | None:
    """The index of a name among ascending names; None if it is not there."""
    i = count_less(names, name)
    return i if i < len(names) and name_at(names, i) == name else None


def names_and_codes(key: Key, stored: Any) -> list[tuple[Names, NDArray[Any]]]:
    """Sorted keys as (names, codes into them), without a copy.

    One pair per chunk of text keys, which have a dictionary each; numbers are their own codes.
    """
    if key.is_text:
        return [(chunk.dictionary.view(pa.binary()), as_numpy(chunk.indices)) for chunk in stored.chunks]
    numbers = number_names(key, stored)
    return [(numbers, numbers)]


def count_rows_between(rows: KeyRows, window: Window, low: Name | None, high: Name | None) -> int:
    """The number of rows in the window with low <= name < high; None leaves a side open."""
    start = 0 if low is None else rows.rows_before(low, NO_TICK)
    stop = len(rows) if high is None else rows.rows_before(high, NO_TICK)
    inside = window.holds(rows.ticks[start:stop])
    return int(rows.counts[start:stop][inside].sum())


def read_blocks(
    history: KeyHistory, needed: Iterable[RunBlock], *, without_ticks: bool = False
) -> Iterator[tuple[RunBlock, ColumnsByName]]:
    """The needed blocks, by run and number; a few blocks are in memory at once.

    without_ticks: do not read the ticks of runs that lie in the window as a whole.
    """
    root, dictionaries = history.view.root, KeyCounts(history.view.key).dictionaries
    by_file: dict[tuple[int, RunFile], dict[int, int]] = {}
    for run, block in sorted(needed):
        file, group = _locate_block(history.shares[run].marks, block)
        by_file.setdefault((run, file), {})[group] = block
    parts, run_blocks = [], []
    for (run, file), groups in by_file.items():
        columns = COLUMNS_WITHOUT_TICKS if without_ticks and history.shares[run].whole else COLUMNS
        parts.append(RowGroups(root, file, list(groups), columns, dictionaries))
        run_blocks += [(run, block) for block in groups.values()]
    yield from zip(run_blocks, history.blocks.read_each(parts), strict=True)


def _locate_block(marks: KeyMarks, block: int) -> tuple[RunFile, int]:
    """The file of a block of the run, and its row group there: each row group has one mark."""
    position = int(marks.positions[block])
    file = next(file for file in marks.files if file.first <= position < file.first + file.rows)
    return file, block - int(marks.positions.searchsorted(file.first))
