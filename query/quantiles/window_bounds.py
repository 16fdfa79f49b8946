"""What memory knows of a window: its counts and its staircases, before anything is read.

Of a window (a range of ticks): n rows of history and m live rows, NaN among them and NULL apart. NaN ranks
after every number, so of the N = n + m rows the first `stored` ranks belong to numbers and the rest to NaN.

Kept for the windows asked last: to lay out the staircases of many runs takes milliseconds, to ask them
takes microseconds. History's own staircase is kept apart, so a new live batch does not lay it out anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from tidemark.query.quantiles.combined_bounds import Grid, lay_out, union
from tidemark.query.quantiles.history_ranks import History
from tidemark.query.quantiles.likely_ranks import Gaps
from tidemark.query.reading.memory_cache import Recent
from tidemark.sketches import RankBounds
from tidemark.warehouse.columns.ticks import Window
from tidemark.warehouse.projections.value_marks import Anchors, RunMarks, Spans
from tidemark.warehouse.snapshots.snapshot import View

KEPT = 3 * 2**17  # values of the staircases that are kept, about 32 MB: a dashboard's panels
SPANS_BYTES = 2**25  # of runs' counts by span and tick, about 200 KB for four million rows of 365 ticks
_LEAST = 2**15  # what a window counts for at least


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """A window of a view.

    `n` and `m` count NaN; `stored` is the N rows without them, `live_stored` the m rows without them.
    `past` is history's staircase by itself, `gaps` are those of the live sketches.
    """

    view: View
    window: Window
    n: int
    m: int
    nans: int
    nulls: int
    live_stored: int
    past: RankBounds
    grid: Grid
    gaps: Gaps
    history: History

    @property
    def rows(self) -> int:
        """N, the rows that have a rank."""
        return self.n + self.m

    @property
    def stored(self) -> int:
        """The rows that are numbers."""
        return self.rows - self.nans


def promise(eps: float, rows: int) -> int:
    """floor(eps * rows), exactly: the rank error that is promised."""
    return int(Fraction(str(eps)) * rows)


class Memory:
    """Remembers what is known of the windows asked last; safe to share between threads."""

    def __init__(self) -> None:
        self._spans: Recent[Spans] = Recent(SPANS_BYTES, lambda spans: spans.counts.nbytes)
        self._windows: Recent[Known] = Recent(KEPT, lambda known: _weight(known.grid))
        self._histories: Recent[tuple[History, RankBounds]] = Recent(KEPT, lambda known: _weight(known[1]))

    def of(self, view: View, window: Window) -> Known:
        """What the view says of a window, from memory where it was asked before.

        Of a measure only the newest view is kept: the staircases of a large warehouse are many megabytes.
        """
        return self._windows.get(window, lambda: self._know(view, window), topic=view.root, of=(view,))

    def _know(self, view: View, window: Window) -> Known:
        # The marks of a run are the same object as long as the run lives.
        history, past = self._histories.get(
            window, lambda: self._history(view, window), topic=view.root, of=view.runs
        )
        counts = np.sum([run.totals.within(window) for run in view.runs] or [(0, 0, 0)], axis=0)
        stored, nans, nulls = (int(count) for count in counts)
        live = [row for row in view.live if not window.misses(row.tick, row.tick)]
        sketches = [row.sketch.rank_bounds() for row in live if row.sketch.n]
        return Known(
            view=view,
            window=window,
            n=stored + nans,
            m=sum(row.rows - row.nulls for row in live),
            nans=nans + sum(row.nans for row in live),
            nulls=nulls + sum(row.nulls for row in live),
            live_stored=sum(row.sketch.n for row in live),
            past=past,
            grid=lay_out(past, union(sketches, view.measure.dtype)),
            gaps=Gaps.of(sketches, view.measure.dtype),
            history=history,
        )

    def _history(self, view: View, window: Window) -> tuple[History, RankBounds]:
        runs = tuple(run for run in view.runs if run.totals.within(window)[0])
        anchors = tuple(self._anchors(view.root, run, window) for run in runs)
        history = History(view.root, window, view.measure.dtype, runs, anchors)
        return history, staircase(history)

    def _anchors(self, root: str, run: RunMarks, window: Window) -> Anchors | None:
        if run.covered_by(window):
            return None
        spans = self._spans.get(run.files[0].path, run.spans, topic=root)
        return spans.anchors(window, run.rows)


def staircase(history: History) -> RankBounds:
    """The certified ranks of history, at the marks of all its runs."""
    runs = zip(history.runs, history.anchors, strict=True)
    return union([run.bounds(anchors) for run, anchors in runs], history.dtype)


def _weight(laid_out: Grid | RankBounds) -> int:
    return max(_LEAST, len(laid_out.values))
