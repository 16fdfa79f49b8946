"""What memory knows of a window: its counts and its staircases, before anything is read.

Of a window (a range of ticks): n rows of history and m live rows, NaN among them and NULL apart. NaN ranks
after every number, so of the N = n + m rows the first `stored` ranks belong to numbers and the rest to NaN.

Kept for the windows asked last: to lay out the staircases of many runs takes milliseconds, to ask them
takes microseconds. History's own staircase is kept apart, so a new live batch does not lay it out anew.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from query.grid import Grid, lay_out, union
from query.history import History
from query.likely import Gaps
from sketches import RankBounds
from warehouse.snapshot import View
from warehouse.ticks import NO_TICK, Window

KEPT = 2**19  # values of the staircases that are kept, about 40 MB: a dashboard's panels
_LEAST = 2**15  # what a window counts for at least

T = TypeVar("T")


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
        self._windows: _Recent[Known] = _Recent(lambda known: len(known.grid.values))
        self._histories: _Recent[tuple[History, RankBounds]] = _Recent(lambda known: len(known[1].values))

    def of(self, view: View, window: Window) -> Known:
        """What the view says of a window, from memory where it was asked before.

        Of a measure only the newest view is kept: the staircases of a large warehouse are many megabytes.
        """
        self._windows.drop(lambda old, _: old[0].root == view.root and old[0] is not view)
        self._histories.drop(lambda old, known: known[0].root == view.root and not _same(old, view.runs))
        return self._windows.get((id(view), window), (view,), lambda: self._know(view, window))

    def _know(self, view: View, window: Window) -> Known:
        # The marks of a run are the same object as long as the run lives.
        key = (view.root, tuple(map(id, view.runs)), window)
        history, past = self._histories.get(key, view.runs, lambda: _history(view, window))
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


def _history(view: View, window: Window) -> tuple[History, RankBounds]:
    runs = tuple(run for run in view.runs if run.totals.within(window)[0])
    history = History(view.root, window, view.measure.dtype, runs, tuple(run.anchors(window) for run in runs))
    return history, staircase(history)


def staircase(history: History) -> RankBounds:
    """The certified ranks of history, at the marks of all its runs."""
    return union([run.bounds(history.window) for run in history.runs], history.dtype)


def tick_range(view: View) -> tuple[int, int] | None:
    """The first and the last tick that has rows, rows without a time aside; None where there are none."""
    ends = [tick for run in view.runs for tick in _ends(run.totals.ticks[run.totals.ticks != NO_TICK])]
    ends += [row.tick for row in view.live if row.tick != NO_TICK]
    return (min(ends), max(ends)) if ends else None


def _same(some: tuple[Any, ...], others: tuple[Any, ...]) -> bool:
    return list(map(id, some)) == list(map(id, others))


def _ends(ascending: NDArray[np.int64]) -> list[int]:
    return [int(ascending[0]), int(ascending[-1])] if len(ascending) else []


class _Recent(Generic[T]):
    """The values made last, by key, as many as `KEPT` allows and one at least.

    `alive` are the objects whose ids the key has: while they are held, no other object gets their id. `size`
    tells the values of a staircase.
    """

    def __init__(self, size: Callable[[T], int]) -> None:
        self._size = size
        self._values: OrderedDict[Hashable, tuple[tuple[Any, ...], T]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, alive: tuple[Any, ...], make: Callable[[], T]) -> T:
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key][1]
        value = make()
        with self._lock:
            self._values[key] = (alive, value)
            while len(self._values) > 1 and self._weight() > KEPT:
                self._values.popitem(last=False)
        return value

    def _weight(self) -> int:
        return sum(max(_LEAST, self._size(value)) for _, value in self._values.values())

    def drop(self, is_old: Callable[[tuple[Any, ...], T], bool]) -> None:
        with self._lock:
            for key in [key for key, (alive, value) in self._values.items() if is_old(alive, value)]:
                del self._values[key]
