"""What is known about a window before anything is read: its counts, and its certified ranks.

A window is a range of ticks. It has n rows of history and m live rows, with NaN and without NULL. NaN ranks
after every number, so of the ranks 1 to N = n + m the first `stored` belong to numbers and the rest to NaN.

The bounds of recently used windows are cached: building the staircases of many runs takes milliseconds,
answering from them takes microseconds. History's staircase has a cache of its own, so a new live batch does
not rebuild it.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from tidemark.query.quantiles.combined_bounds import CombinedBounds, combine_or_empty, combine_sides
from tidemark.query.quantiles.history_ranks import History
from tidemark.query.quantiles.likely_ranks import SketchGaps
from tidemark.query.reading.memory_cache import LRUCache
from tidemark.sketches import RankBounds
from tidemark.warehouse.columns.ticks import Window
from tidemark.warehouse.projections.spans import Anchors, Spans
from tidemark.warehouse.projections.value_marks import ValueMarks
from tidemark.warehouse.snapshots.snapshot import View

CACHED_VALUES = 3 * 2**17  # values of cached staircases, about 32 MB: enough for the panels of a dashboard
SPAN_CACHE_BYTES = 2**25  # counts by span and tick: about 200 KB for four million rows of 365 ticks
_MIN_WEIGHT = 2**15  # a window counts as at least this many values


@dataclass(frozen=True, slots=True, eq=False)
class WindowBounds:
    """The counts and the certified ranks of a window of a view.

    n, m: rows of history and live rows, with NaN and without NULL.
    nans, nulls: rows of both sides that are NaN, and that are NULL.
    live_stored: the m live rows without NaN.
    history_bounds: the staircase of history at its own values.
    combined: the staircases of both sides at all values.
    sketch_gaps: the gaps of the live sketches.
    history: the runs that have rows in the window.
    """

    view: View
    window: Window
    n: int
    m: int
    nans: int
    nulls: int
    live_stored: int
    history_bounds: RankBounds
    combined: CombinedBounds
    sketch_gaps: SketchGaps
    history: History

    @property
    def rows(self) -> int:
        """N, the rows that have a rank."""
        return self.n + self.m

    @property
    def stored(self) -> int:
        """The rows that are numbers: N without NaN."""
        return self.rows - self.nans


def promised_error(eps: float, rows: int) -> int:
    """floor(eps * rows), computed exactly: the promised rank error, in rows."""
    return int(Fraction(str(eps)) * rows)


class WindowBoundsCache:
    """Caches the bounds of recently used windows; safe to share between threads."""

    def __init__(self) -> None:
        self._spans: LRUCache[Spans] = LRUCache(SPAN_CACHE_BYTES, lambda spans: spans.counts.nbytes)
        self._windows: LRUCache[WindowBounds] = LRUCache(
            CACHED_VALUES, lambda bounds: _weight(bounds.combined)
        )
        self._histories: LRUCache[tuple[History, RankBounds]] = LRUCache(
            CACHED_VALUES, lambda history_and_bounds: _weight(history_and_bounds[1])
        )

    def get(self, view: View, window: Window) -> WindowBounds:
        """The bounds of a window of the view, from the cache if they are in it.

        Only the newest view of each measure stays cached: the staircases of a large warehouse take many
        megabytes. O(K log K) on a miss, for K marks and sketch values in all.
        """
        return self._windows.get(
            window, lambda: self._compute(view, window), topic=view.root, sources=(view,)
        )

    def _compute(self, view: View, window: Window) -> WindowBounds:
        # The marks of a run are the same object as long as the run exists.
        history, history_bounds = self._histories.get(
            window, lambda: self._history(view, window), topic=view.root, sources=view.runs
        )
        counts = np.sum([run.totals.within(window) for run in view.runs] or [(0, 0, 0)], axis=0)
        stored, nans, nulls = (int(count) for count in counts)
        live = [row for row in view.live if not window.misses(row.tick, row.tick)]
        sketches = [row.sketch.rank_bounds() for row in live if row.sketch.n]
        dtype = view.measure.dtype
        return WindowBounds(
            view=view,
            window=window,
            n=stored + nans,
            m=sum(row.rows - row.nulls for row in live),
            nans=nans + sum(row.nans for row in live),
            nulls=nulls + sum(row.nulls for row in live),
            live_stored=sum(row.sketch.n for row in live),
            history_bounds=history_bounds,
            combined=combine_sides(history_bounds, combine_or_empty(sketches, dtype)),
            sketch_gaps=SketchGaps.of(sketches, dtype),
            history=history,
        )

    def _history(self, view: View, window: Window) -> tuple[History, RankBounds]:
        runs = tuple(run for run in view.runs if run.totals.within(window)[0])
        anchors = tuple(self._anchors(view.root, run, window) for run in runs)
        history = History(view.root, window, view.measure.dtype, runs, anchors)
        return history, history_staircase(history)

    def _anchors(self, root: str, run: ValueMarks, window: Window) -> Anchors | None:
        if run.covered_by(window):
            return None
        spans = self._spans.get(run.files[0].path, run.spans, topic=root)
        return spans.anchors(window, run.rows)


def history_staircase(history: History) -> RankBounds:
    """The certified ranks of history at the marks of all its runs."""
    runs = zip(history.runs, history.anchors, strict=True)
    return combine_or_empty([run.bounds(anchors) for run, anchors in runs], history.dtype)


def _weight(bounds: CombinedBounds | RankBounds) -> int:
    return max(_MIN_WEIGHT, len(bounds.values))
