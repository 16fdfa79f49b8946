"""What is known about groups in a window: counts and certified ranks, for many groups in one round of reads.

A question is about a *selection*: a set of groups whose rows are taken together, such as the routes from ATL.
Each run has a slice of each group (group_slices.py). Small slices, and all live rows, are in memory and have
exact ranks; large slices have marks, and their blocks are read as those of a measure's runs are. So the
result is a `WindowBounds`, and all questions about measures are answered from it unchanged.

The live side is exact, so accurate answers are exact, and quick ones err only by the marks of large slices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tidemark.query.groups.group_slices import Group, LargeSlice, Slice, SliceReader, cut_slice
from tidemark.query.quantiles.history_ranks import History
from tidemark.query.quantiles.window_bounds import CACHED_VALUES, Counts, LiveBounds, WindowBounds
from tidemark.query.reading.live_cache import LiveCache
from tidemark.query.reading.memory_cache import LRUCache
from tidemark.sketches import RankBounds
from tidemark.warehouse.columns.ticks import Window
from tidemark.warehouse.projections.group_rows import NULL, NUMBER, GroupRows
from tidemark.warehouse.projections.spans import Anchors
from tidemark.warehouse.projections.value_marks import RunValues
from tidemark.warehouse.snapshots.snapshot import GroupView, Snapshot
from tidemark.warehouse.snapshots.snapshot_reader import SnapshotReader

Selection: TypeAlias = tuple[Group, ...]  # groups whose rows are taken together, each once


@dataclass(slots=True)
class _Rows:
    """The rows of a selection in a window.

    `sorted_parts` are sorted numbers in memory. `runs` are read by block; `anchors` has one item per run,
    None where the window covers the run. `counts` are the (stored, NaN, NULL) rows of all of them.
    """

    sorted_parts: list[NDArray[Any]] = field(default_factory=list)
    runs: list[RunValues] = field(default_factory=list)
    anchors: list[Anchors | None] = field(default_factory=list)
    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(3, np.int64))

    def numbers(self, dtype: np.dtype[Any]) -> NDArray[Any]:
        """The numbers in memory, sorted."""
        return np.sort(np.concatenate([np.empty(0, dtype), *self.sorted_parts]), kind="stable")


class GroupBounds:
    """Computes the bounds of selections, and caches those of recently used windows."""

    def __init__(self, slices: SliceReader, live: LiveCache) -> None:
        self._slices, self._live = slices, live
        self._windows: LRUCache[WindowBounds] = LRUCache(CACHED_VALUES, _weight)

    def get(
        self,
        snapshot: SnapshotReader | Snapshot,
        view: GroupView,
        selections: Sequence[Selection],
        window: Window,
    ) -> tuple[list[WindowBounds], int]:
        """The bounds of each selection in a window, and how many row groups were read for all of them.

        Raises DamagedWarehouse if a file cannot be read, or if the live rows do not match the ledger.
        """
        known: dict[Selection, WindowBounds] = {}
        for selection in selections:
            cached = self._windows.peek((selection, window), topic=view.root, sources=(view,))
            if cached is not None:
                known[selection] = cached
        missing = [selection for selection in dict.fromkeys(selections) if selection not in known]
        blocks_read = 0
        if missing:
            history, blocks_read = self._history(view, missing, window)
            live = self._live_rows(snapshot, view, missing, window)
            for selection in missing:
                bounds = _bounds(view, window, history[selection], live[selection])
                key = selection, window
                self._windows.put(key, bounds, topic=view.root, sources=(view,))
                known[selection] = bounds
        return [known[selection] for selection in selections], blocks_read

    def _history(
        self, view: GroupView, selections: Sequence[Selection], window: Window
    ) -> tuple[dict[Selection, _Rows], int]:
        """History's rows of each selection in the window, and how many row groups were read."""
        projection = view.projection
        runs = [marks for marks in view.runs if marks.totals.within(window)[0]]
        groups = dict.fromkeys(group for selection in selections for group in selection)
        slices, blocks_read = self._slices.slices(projection, runs, groups)
        cut = {
            (run, group): part
            for (run, group), part in slices.items()
            if isinstance(part, LargeSlice) and not runs[run].covered_by(window)
        }
        edge_ticks, more_read = self._slices.edge_ticks(projection, runs, cut)
        history = {}
        for selection in selections:
            rows = history[selection] = _Rows()
            for run, marks in enumerate(runs):
                for group in selection:
                    part = slices[run, group]
                    if (run, group) in cut and isinstance(part, LargeSlice):
                        spans = self._slices.spans(projection, marks)
                        _add_large(rows, part, *cut_slice(part, edge_ticks[run, group], spans, window))
                    else:
                        _add_slice(rows, part, window)
        return history, blocks_read + more_read

    def _live_rows(
        self,
        snapshot: SnapshotReader | Snapshot,
        view: GroupView,
        selections: Sequence[Selection],
        window: Window,
    ) -> dict[Selection, _Rows]:
        """The live rows of each selection in the window."""
        live = {selection: _Rows() for selection in selections}
        for part in self._live.rows(snapshot, view.projection, view.batches, view.live_counts):
            for selection, rows in live.items():
                for group in selection:
                    _add_live(rows, part.rows, group, window)
        return live


def _weight(bounds: WindowBounds) -> int:
    """The weight in a cache, in values; groups are small, and there may be many."""
    return len(bounds.combined.values) + 2**10


def _add_slice(rows: _Rows, part: Slice, window: Window) -> None:
    """Adds a slice of a run that the window covers, or a small slice of any run."""
    if isinstance(part, LargeSlice):
        _add_large(rows, part, part.counts, None)
        return
    rows.counts += part.totals.within(window)
    inside = window.holds(part.ticks)
    rows.sorted_parts.append(part.values if inside.all() else part.values[inside])


def _add_large(rows: _Rows, part: LargeSlice, counts: Counts, anchors: Anchors | None) -> None:
    rows.counts += counts
    if counts[0]:
        rows.runs.append(part.numbers)
        rows.anchors.append(anchors)


def _add_live(rows: _Rows, part: GroupRows, group: Group, window: Window) -> None:
    """Adds the rows of a group that lie in the window."""
    start, stop = part.range_of(group)
    inside = start + np.flatnonzero(window.holds(part.ticks[start:stop]))
    kinds = part.kinds[inside]
    rows.counts += np.bincount(kinds, minlength=NULL + 1)
    rows.sorted_parts.append(part.values[inside[kinds == NUMBER]])


def _bounds(view: GroupView, window: Window, history: _Rows, live: _Rows) -> WindowBounds:
    dtype = view.measure.dtype
    ranked = History(
        root=view.root,
        window=window,
        dtype=dtype,
        runs=tuple(history.runs),
        anchors=tuple(history.anchors),
        in_memory=history.numbers(dtype),
    )
    live_bounds = LiveBounds(
        counts=_counts(live), staircases=[RankBounds.from_sorted(live.numbers(dtype), dtype)], is_exact=True
    )
    return WindowBounds.of(view, window, ranked, ranked.staircase, _counts(history), live_bounds)


def _counts(rows: _Rows) -> Counts:
    stored, nans, nulls = rows.counts.tolist()
    return stored, nans, nulls
