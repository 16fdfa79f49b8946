"""What is known about groups in a window: counts and certified ranks, for many groups in one round of reads.

A question is about a *selection*: a set of groups whose rows are taken together, such as the routes from ATL.
Each run has a slice of each group (group_slices.py). Small slices, and all live rows, are in memory and have
exact ranks; large slices have marks, and their blocks are read as those of a measure's runs are. A selection
with large slices has a `WindowBounds`, any other one has `SortedNumbers`.

If a large slice is not much larger than the blocks that a question would read of it, it is read as a whole
and kept in memory. A question may have many windows, such as each hour of a week: slices are read once for
all.

The live rows are in memory, so accurate answers are exact. Of the numbers in memory only every `grain`-th one
is a step of the staircase, so staircases stay small; the numbers between two steps are looked at where blocks
are read. A quick answer has an error of at most these grains and the distances of marks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tidemark.query.groups.group_slices import (
    Group,
    LargeSlice,
    Slice,
    SliceReader,
    SmallSlice,
    cut_slice,
)
from tidemark.query.quantiles.history_ranks import History
from tidemark.query.quantiles.kept_numbers import numbers_without
from tidemark.query.quantiles.window_bounds import CACHED_VALUES, Counts, LiveBounds, WindowBounds
from tidemark.query.reading.live_cache import LiveCache
from tidemark.query.reading.row_counts import SortedNumbers
from tidemark.query.reading.windows import runs_within
from tidemark.warehouse.columns.tick_counts import rows_by_window
from tidemark.warehouse.columns.ticks import Window
from tidemark.warehouse.memory_cache import LRUCache
from tidemark.warehouse.projections.group_rows import NULL, NUMBER, GroupRows
from tidemark.warehouse.projections.spans import Anchors
from tidemark.warehouse.projections.value_marks import RunValues
from tidemark.warehouse.sizes import DEFAULT
from tidemark.warehouse.snapshots.sites import AnySnapshot
from tidemark.warehouse.snapshots.views import GroupView

Selection: TypeAlias = tuple[Group, ...]  # groups whose rows are taken together, each once
Bounds: TypeAlias = WindowBounds | SortedNumbers

ARRAYS = 8  # arrays of 8 bytes a value in the staircases of a window


@dataclass(slots=True)
class _Rows:
    """The rows of a selection in a window.

    `sorted_parts` are sorted numbers in memory. `runs` are read by block; `anchors` has one item per run,
    None where the window covers the run. `counts` are the (stored, NaN, NULL) rows without removed ones;
    `kept` are the numbers of removed rows, which `sorted_parts` and `runs` still have.
    """

    sorted_parts: list[NDArray[Any]] = field(default_factory=list)
    runs: list[RunValues] = field(default_factory=list)
    anchors: list[Anchors | None] = field(default_factory=list)
    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(3, np.int64))
    kept: list[NDArray[Any]] = field(default_factory=list)


class GroupBounds:
    """Finds the rows of selections in windows, and caches those of recently used windows."""

    def __init__(self, slices: SliceReader, live: LiveCache, eps: float) -> None:
        self._slices, self._live, self._eps = slices, live, eps
        self._windows: LRUCache[Bounds] = LRUCache(CACHED_VALUES)

    def get(
        self,
        snapshot: AnySnapshot,
        view: GroupView,
        selections: Sequence[Selection],
        windows: Sequence[Window],
    ) -> tuple[dict[tuple[Selection, Window], Bounds], int]:
        """The rows of each selection in each window, and how many row groups were read for all of them.

        windows: one window, or windows that ascend and do not overlap.

        Raises DamagedWarehouse if a file cannot be read, or if the live rows do not match the ledger.
        """
        known: dict[tuple[Selection, Window], Bounds] = {}
        missing: list[Selection] = []
        for selection in dict.fromkeys(selections):
            found = {
                (selection, window): self._windows.peek((selection, window), topic=view.root, sources=(view,))
                for window in windows
            }
            if None in found.values():
                missing.append(selection)
            known |= {place: bounds for place, bounds in found.items() if bounds is not None}
        blocks_read = 0
        if missing:
            history, blocks_read = self._history(view, missing, windows)
            live = self._live_rows(snapshot, view, missing, windows)
            for place, rows in history.items():
                known[place] = bounds = _bounds(view, place[1], rows, live[place], self._eps)
                self._windows.put(place, bounds, _weight(bounds), topic=view.root, sources=(view,))
        return known, blocks_read

    def _history(
        self, view: GroupView, selections: Sequence[Selection], windows: Sequence[Window]
    ) -> tuple[dict[tuple[Selection, Window], _Rows], int]:
        """History's rows of each selection in each window, and how many row groups were read."""
        projection = view.projection
        runs = runs_within(view.runs, windows)
        run_rows = [marks.totals.by_window(windows).sum(axis=1).tolist() for marks in runs]
        groups = dict.fromkeys(group for selection in selections for group in selection)
        slices, blocks_read = self._slices.slices(projection, runs, groups)
        windows_of_run = [sum(map(bool, rows)) for rows in run_rows]
        chosen = _to_read_whole(slices, windows_of_run, self._slices.budget // 2)
        whole, whole_read = self._slices.whole(projection, runs, chosen)
        slices |= whole
        cut = {
            (run, group): part
            for (run, group), part in slices.items()
            # Of several windows, which are disjoint, each has only a part of the run.
            if isinstance(part, LargeSlice) and (len(windows) > 1 or not runs[run].covered_by(windows[0]))
        }
        edge_ticks, more_read = self._slices.edge_ticks(projection, runs, cut)
        history = {(selection, window): _Rows() for selection in selections for window in windows}
        for selection in selections:
            of_windows = [history[selection, window] for window in windows]
            for run, marks in enumerate(runs):
                for group in selection:
                    part = slices[run, group]
                    if isinstance(part, SmallSlice):
                        _add_small(of_windows, part, windows)
                        continue
                    for rows, window, has_rows in zip(of_windows, windows, run_rows[run], strict=True):
                        if not has_rows:
                            continue
                        if marks.covered_by(window):
                            _add_large(rows, part, part.counts, None)
                        else:
                            spans = self._slices.spans(projection, marks)
                            _add_large(rows, part, *cut_slice(part, edge_ticks[run, group], spans, window))
            if view.kept is not None:
                _take_kept(of_windows, view.kept.rows, selection, windows)
        return history, blocks_read + whole_read + more_read

    def _live_rows(
        self,
        snapshot: AnySnapshot,
        view: GroupView,
        selections: Sequence[Selection],
        windows: Sequence[Window],
    ) -> dict[tuple[Selection, Window], _Rows]:
        """The live rows of each selection in each window."""
        live = {(selection, window): _Rows() for selection in selections for window in windows}
        for part in self._live.rows(snapshot, view.projection, view):
            for selection in selections:
                of_windows = [live[selection, window] for window in windows]
                for group in selection:
                    _add_held(of_windows, part.rows, group, windows)
        return live


def _weight(bounds: Bounds) -> int:
    """The weight in a cache, in values of a staircase; 1,024 more for the object, as many groups are tiny."""
    if isinstance(bounds, SortedNumbers):
        return len(bounds.numbers) // ARRAYS + 2**10
    return len(bounds.combined.values) + len(bounds.history.in_memory) // ARRAYS + 2**10


def _to_read_whole(
    slices: Mapping[tuple[int, Group], Slice], windows: Sequence[int], budget: int
) -> dict[tuple[int, Group], LargeSlice]:
    """The large slices of which all rows are read once, the smallest first, while `budget` bytes suffice.

    Reading a slice costs no more than reading one or two blocks of it for each window, and later questions
    find its rows in memory.

    windows: for each run the number of windows with rows of it.
    """
    chosen: dict[tuple[int, Group], LargeSlice] = {}
    large = [(place, part) for place, part in slices.items() if isinstance(part, LargeSlice)]
    for place, part in sorted(large, key=lambda item: item[1].rows):
        budget -= part.rows * SmallSlice.row_bytes
        if budget < 0:
            break
        if part.rows <= 2 * DEFAULT.block_rows * windows[place[0]]:
            chosen[place] = part
    return chosen


def _add_small(of_windows: Sequence[_Rows], part: SmallSlice, windows: Sequence[Window]) -> None:
    """Adds the rows of a small slice to the rows of each window."""
    counts, rows_of = part.totals.by_window(windows), rows_by_window(part.ticks, windows)
    for rows, own_counts, own in zip(of_windows, counts, rows_of, strict=True):
        rows.counts += own_counts
        if own_counts[0]:
            rows.sorted_parts.append(part.values[own])


def _add_large(rows: _Rows, part: LargeSlice, counts: Counts, anchors: Anchors | None) -> None:
    rows.counts += counts
    if counts[0]:
        rows.runs.append(part.numbers)
        rows.anchors.append(anchors)


def _add_held(of_windows: Sequence[_Rows], part: GroupRows, group: Group, windows: Sequence[Window]) -> None:
    """Adds the rows of a group that are in memory, such as live ones, to the rows of each window."""
    start, stop = part.range_of(group)
    if start == stop:
        return
    kinds, values = part.kinds[start:stop], part.values[start:stop]
    for rows, own in zip(of_windows, rows_by_window(part.ticks[start:stop], windows), strict=True):
        own_kinds = kinds[own]
        if len(own_kinds):
            rows.counts += np.bincount(own_kinds, minlength=NULL + 1)
            rows.sorted_parts.append(values[own][own_kinds == NUMBER])


def _take_kept(
    of_windows: Sequence[_Rows], kept: GroupRows, selection: Selection, windows: Sequence[Window]
) -> None:
    """Takes the removed rows of a selection out of the rows of each window."""
    left = [_Rows() for _ in of_windows]
    for group in selection:
        _add_held(left, kept, group, windows)
    for rows, gone in zip(of_windows, left, strict=True):
        rows.counts -= gone.counts
        rows.kept += gone.sorted_parts


def _bounds(view: GroupView, window: Window, history: _Rows, live: _Rows, eps: float) -> Bounds:
    dtype = view.measure.dtype
    counts, live_counts = _counts(history), _counts(live)
    numbers = sort_numbers([*history.sorted_parts, *live.sorted_parts], dtype)
    kept = sort_numbers(history.kept, dtype)
    if not history.runs:
        numbers = numbers_without(numbers, kept)
        return SortedNumbers(
            n=counts[0] + counts[1],
            m=live_counts[0] + live_counts[1],
            nans=counts[1] + live_counts[1],
            nulls=counts[2] + live_counts[2],
            numbers=numbers,
        )
    ranked = History(
        root=view.root,
        window=window,
        dtype=dtype,
        runs=tuple(history.runs),
        anchors=tuple(history.anchors),
        in_memory=numbers,
        grain=max(1, int(eps * len(numbers) / 4)),
        kept=kept,
    )
    live_bounds = LiveBounds(counts=live_counts, staircases=[], is_exact=True)
    return WindowBounds.of(view, window, ranked, ranked.staircase, counts, live_bounds)


def sort_numbers(parts: Sequence[NDArray[Any]], dtype: np.dtype[Any]) -> NDArray[Any]:
    """The numbers of all parts, sorted."""
    if len(parts) == 1:
        return parts[0]  # each part is sorted
    return np.sort(np.concatenate([np.empty(0, dtype), *parts]), kind="stable")


def _counts(rows: _Rows) -> Counts:
    stored, nans, nulls = rows.counts.tolist()
    return stored, nans, nulls
