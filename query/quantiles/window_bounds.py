"""The counts and certified ranks of a window that are known before a block is read.

A window is a range of ticks. It has n rows of history and m live rows; both count NaN, but not NULL. NaN
ranks after every number, so of the ranks 1 to N = n + m the first `stored` belong to numbers and the rest to
NaN.

The bounds of recently used windows are cached: building the staircases of many runs takes milliseconds,
answering from them takes microseconds. History's staircase has a cache of its own, so a new live batch does
not rebuild it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tidemark.query.quantiles.combined_bounds import (
    CombinedBounds,
    Ranks,
    combine_or_empty,
    combine_sides,
    part_of,
    splice,
)
from tidemark.query.quantiles.history_ranks import History
from tidemark.query.quantiles.kept_numbers import bounds_without
from tidemark.query.quantiles.likely_ranks import SketchGaps
from tidemark.query.quantiles.read_plan import Reading
from tidemark.query.reading.row_counts import RowCounts
from tidemark.sketches import RankBounds, combine
from tidemark.warehouse.columns.ticks import Window
from tidemark.warehouse.memory_cache import LRUCache
from tidemark.warehouse.projections.span_marks import SpanMarks
from tidemark.warehouse.projections.spans import Spans
from tidemark.warehouse.projections.value_marks import ValueMarks
from tidemark.warehouse.snapshots.views import GroupView, View

CACHED_VALUES = 3 * 2**17  # values of cached staircases, about 32 MB: enough for the panels of a dashboard
SPAN_CACHE_BYTES = 2**25  # counts by span and tick: about 200 KB for four million rows of 365 ticks
_MIN_WEIGHT = 2**15  # a window counts as at least this many values
MOST_READ_RANKS = 2**12  # of values, kept for a window


Counts: TypeAlias = tuple[int, int, int]  # rows that are (stored, NaN, NULL)


@dataclass(frozen=True, slots=True, eq=False)
class LiveBounds:
    """The live rows of a window: their counts, and certified ranks of disjoint parts of them.

    is_exact: whether all live rows are in memory, as rows of `History`; then there are no staircases.
    """

    counts: Counts
    staircases: Sequence[RankBounds]
    is_exact: bool


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class WindowBounds(RowCounts):
    """The counts and the certified ranks of a window of a view.

    live_stored: the m live rows without NaN.
    live_is_exact: whether the ranks of the live side are exact, so that mode exact need not read it.
    history_bounds: the staircase of history at its own values.
    combined: the staircases of both sides at all values.
    sketch_gaps: the gaps of the live sketches.
    history: the runs that have rows in the window.
    own_live: the staircase of the live rows alone, if warehouses do not answer.
    silent: the staircase of warehouses that do not answer; None if all answer. It is part of the live side of
        `combined`, because it is never read.
    read_ranks: the ranks that were read of values of answers. These are values that many rows share: the
        marks tell the value, and not its last row.
    """

    view: View | GroupView
    window: Window
    live_stored: int
    live_is_exact: bool
    history_bounds: RankBounds
    combined: CombinedBounds
    sketch_gaps: SketchGaps
    history: History
    own_live: RankBounds | None = None
    silent: RankBounds | None = None
    read_ranks: dict[Any, int] = field(default_factory=dict)

    def exact_live(self, section: CombinedBounds, readings: Sequence[Reading]) -> RankBounds:
        """The live side of a section of `combined`, with exact ranks of the live rows in the readings."""
        if self.own_live is None or self.silent is None:
            return splice(section.live, readings)
        low, high = section.values[0], section.values[-1]
        return combine([splice(part_of(self.own_live, low, high), readings), part_of(self.silent, low, high)])

    def silent_ranks(self, points: NDArray[Any]) -> tuple[Ranks, Ranks]:
        """Bounds of the ranks of points among the rows of warehouses that do not answer."""
        if self.silent is None:
            return np.zeros(len(points), np.int64), np.zeros(len(points), np.int64)
        return self.silent.rank_le(points)

    @classmethod
    def of(
        cls,
        view: View | GroupView,
        window: Window,
        history: History,
        history_bounds: RankBounds,
        counts: Counts,
        live: LiveBounds,
        silent: Sequence[WindowBounds] = (),
    ) -> WindowBounds:
        """The bounds of history with these counts, and of the live side; O(K log K) for K values in all.

        silent: those of the warehouses that do not answer.
        """
        dtype = view.measure.dtype
        (stored, nans, nulls), (live_stored, live_nans, live_nulls) = counts, live.counts
        live_bounds = combine_or_empty(live.staircases, dtype)
        own, unread = None, [one.combined.total for one in silent if one.stored]
        if unread:
            own, live_bounds = live_bounds, combine([live_bounds, *unread])
        return cls(
            view=view,
            window=window,
            n=stored + nans + sum(one.n for one in silent),
            m=live_stored + live_nans + sum(one.m for one in silent),
            nans=nans + live_nans + sum(one.nans for one in silent),
            nulls=nulls + live_nulls + sum(one.nulls for one in silent),
            live_stored=live_stored,
            live_is_exact=live.is_exact,
            history_bounds=history_bounds,
            combined=combine_sides(history_bounds, live_bounds),
            sketch_gaps=SketchGaps.of([*([] if live.is_exact else live.staircases), *unread], dtype),
            history=history,
            own_live=own,
            silent=combine(unread) if unread else None,
        )


def promised_error(eps: float, rows: int) -> int:
    """floor(eps * rows), computed exactly: the promised rank error, in rows."""
    return int(_decimal(eps) * rows)


@lru_cache
def _decimal(eps: float) -> Fraction:
    return Fraction(str(eps))


class SpanCache:
    """Caches the counts by span and tick of runs; safe to share between threads."""

    def __init__(self) -> None:
        self._spans: LRUCache[Spans] = LRUCache(SPAN_CACHE_BYTES)

    def get(self, root: str, run: SpanMarks) -> Spans:
        """The counts of a run of the table at `root`."""
        kept = self._spans.at(run.files[0].path, topic=root)
        return kept.value or kept.keep(spans := run.spans(), spans.counts.nbytes)

    def known(self, root: str, run: SpanMarks) -> Spans | None:
        """Those that are kept; None if they would have to be read."""
        return self._spans.peek(run.files[0].path, topic=root)


class WindowBoundsCache:
    """Caches the bounds of recently used windows; safe to share between threads."""

    def __init__(self, spans: SpanCache) -> None:
        self._spans = spans
        self._windows: LRUCache[WindowBounds] = LRUCache(CACHED_VALUES)
        self._histories: LRUCache[tuple[History, RankBounds]] = LRUCache(CACHED_VALUES)

    def get(self, view: View, window: Window) -> WindowBounds:
        """The bounds of a window of the view, from the cache if they are in it.

        Only the newest view of each measure stays cached: the staircases of a large warehouse take many
        megabytes. O(K log K) on a miss, for K marks and sketch values in all.
        """
        kept = self._windows.at(window, topic=view.root, sources=(view,))
        if kept.value is not None:
            return kept.value
        # The marks of a run are the same object as long as the run exists.
        of_history = self._histories.at(window, topic=view.root, sources=view.sources)
        history = of_history.value
        if history is None:
            history = of_history.keep(found := self._history(view, window), _weight(found[1]))
        bounds = self._with_live(view, window, *history)
        return kept.keep(bounds, _weight(bounds.combined.total))

    def compute(self, view: View, window: Window) -> WindowBounds:
        """The bounds of a window of the view, which are not cached: one of many windows of a question."""
        return self._with_live(view, window, *self._history(view, window))

    def _with_live(
        self, view: View, window: Window, history: History, history_bounds: RankBounds
    ) -> WindowBounds:
        counts = np.sum([one.within(window) for one in view.history_totals] or [(0, 0, 0)], axis=0)
        live = [row for row in view.live if not window.misses(row.tick, row.tick)]
        live_bounds = LiveBounds(
            counts=(
                sum(row.sketch.n for row in live),
                sum(row.nans for row in live),
                sum(row.nulls for row in live),
            ),
            staircases=[row.sketch.rank_bounds() for row in live if row.sketch.n],
            is_exact=False,
        )
        silent = [self._silent(one.view, window) for one in view.silent.values()]
        own_counts = tuple(counts.tolist())
        return WindowBounds.of(view, window, history, history_bounds, own_counts, live_bounds, silent)

    def _silent(self, view: View, window: Window) -> WindowBounds:
        """The bounds of the last known rows of a warehouse that does not answer; nothing is read."""
        dtype, empty = view.measure.dtype, np.empty(0, view.measure.dtype)
        history = History(view.root, window, dtype, (), (), in_memory=empty, kept=empty)
        runs = [self._unread(view.root, run, window) for run in view.runs if run.totals.within(window)[0]]
        bounds = bounds_without(combine_or_empty(runs, dtype), _kept_in(view, window))
        return self._with_live(view, window, history, bounds)

    def _unread(self, root: str, run: ValueMarks, window: Window) -> RankBounds:
        """The staircase of a run in a window by what is in memory.

        Without its counts by span: of the run's rows, c are in the window and d are not. A row with the rank
        r in the run has a rank from r - d to r, and at most c, in the window.
        """
        known = None if run.covered_by(window) else self._spans.known(root, run)
        bounds = run.run_values.bounds(None if known is None else known.anchors(window, run.rows))
        if known is not None or run.covered_by(window):
            return bounds
        inside = int(run.totals.within(window)[0])
        lo, hi = np.maximum(bounds.lo - (run.rows - inside), 0), np.minimum(bounds.hi, inside)
        return replace(bounds, lo=lo, hi=hi)

    def _history(self, view: View, window: Window) -> tuple[History, RankBounds]:
        marks = [run for run in view.runs if run.totals.within(window)[0]]
        runs = tuple(run.run_values for run in marks)
        anchors = tuple(
            None if run.covered_by(window) else self._spans.get(view.root, run).anchors(window, run.rows)
            for run in marks
        )
        dtype = view.measure.dtype
        nothing = np.empty(0, dtype)
        history = History(
            view.root, window, dtype, runs, anchors, in_memory=nothing, kept=_kept_in(view, window)
        )
        return history, history.staircase


def _kept_in(view: View, window: Window) -> NDArray[Any]:
    """The sorted numbers of removed rows in the window that the runs still have."""
    if view.kept is None:
        return np.empty(0, view.measure.dtype)
    rows = view.kept.rows
    inside: NDArray[Any] = rows.values[window.holds(rows.ticks)]
    return inside


def _weight(bounds: RankBounds) -> int:
    """The weight of a window in a cache: the values of its staircase."""
    return max(_MIN_WEIGHT, len(bounds.values))
