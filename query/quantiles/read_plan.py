"""Which rows of which runs must be read: a pure planner over plain values.

Model. For an open interval (u, v) we want, of each run, the window's rows inside it and the exact number of
window rows <= u. The marks bound where those rows stand: after the last mark <= u, before the first mark
>= v. That is a stretch start..stop of the run.

Where the window holds only part of a run, the number of window rows before `start` is known exactly only at
anchors (the starts of spans). If no anchor lies in the stretch, the stretch grows to the nearer one. With
`count` window rows before row `anchor`, and everything in the stretch read:

    window rows <= u  =  count - (window rows in start..anchor) + (window rows in start..stop that are <= u)

because every window row before `start` is <= u.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tidemark.warehouse.columns.ticks import Window
from tidemark.warehouse.projections.value_marks import Anchors, RunMarks

Side = Literal["left", "right"]


@dataclass(frozen=True, slots=True)
class Interval:
    """The open interval (u, v) of stored values, u < v."""

    u: Any
    v: Any


@dataclass(frozen=True, slots=True)
class Stretch:
    """Rows start..stop (exclusive) of a run.

    `count` window rows stand before row `anchor`, which lies in start..stop.
    """

    start: int
    stop: int
    anchor: int
    count: int


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """What a part of a stretch holds, window rows only: before the anchor, at or below u, and inside."""

    before: int
    below: int
    inside: NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """An interval that was read: the exact number of rows <= u, and all rows inside, in sorted pieces."""

    interval: Interval
    below: int
    pieces: Sequence[NDArray[Any]]

    @property
    def inside(self) -> NDArray[Any]:
        """All rows inside, sorted."""
        # A stable sort of sorted pieces is a merge.
        return np.sort(np.concatenate(self.pieces), kind="stable")

    def rank(self, values: NDArray[Any], side: Side) -> NDArray[np.intp]:
        """rank_lt ("left") or rank_le ("right") of values inside."""
        ranks = np.full(values.shape, self.below, dtype=np.intp)
        for piece in self.pieces:
            ranks += np.searchsorted(piece, values, side)
        return ranks


def join(intervals: Iterable[tuple[Any, Any]]) -> list[Interval]:
    """The union of open intervals as disjoint ones, ascending; empty ones (u == v) vanish."""
    joined: list[Interval] = []
    for u, v in sorted(intervals):
        if u == v:
            continue
        if joined and u < joined[-1].v:
            joined[-1] = Interval(joined[-1].u, max(joined[-1].v, v))
        else:
            joined.append(Interval(u, v))
    return joined


def plan_stretch(run: RunMarks, anchors: Anchors | None, interval: Interval) -> Stretch:
    """The rows to read of a run; `anchors` is None where the window covers it."""
    i, j = _marks_around(run, interval)
    start = int(run.positions[i]) + 1 if i >= 0 else 0
    stop = int(run.positions[j]) if j < len(run.positions) else run.rows
    if anchors is None:
        return Stretch(start, stop, anchor=start, count=start)
    return _anchored(start, stop, anchors)


def _marks_around(run: RunMarks, interval: Interval) -> tuple[int, int]:
    """The last mark <= u (-1: none) and the first mark >= v (their number: none)."""
    i = int(np.searchsorted(run.values, interval.u, side="right")) - 1
    return i, int(np.searchsorted(run.values, interval.v, side="left"))


def _anchored(start: int, stop: int, anchors: Anchors) -> Stretch:
    at, counts = anchors.positions, anchors.counts
    lo, hi = anchors.before(np.array([start, stop]))
    if lo[0] == hi[1]:  # no window rows between: nothing to read
        return Stretch(start, start, anchor=start, count=int(lo[0]))
    known_start, known_stop = lo[0] == hi[0], lo[1] == hi[1]
    if known_start:  # spans without window rows need no reading, at this end and at the other
        start = max(start, int(at[np.searchsorted(counts, lo[0], side="right") - 1]))
    if known_stop:
        stop = min(stop, int(at[np.searchsorted(counts, hi[1], side="left")]))
    if known_start:
        return Stretch(start, stop, anchor=start, count=int(lo[0]))
    if known_stop:
        return Stretch(start, stop, anchor=stop, count=int(hi[1]))
    k = int(np.searchsorted(at, start, side="left"))
    if at[k] > stop:
        if start - at[k - 1] < at[k] - stop:
            k -= 1
            start = int(at[k])
        else:
            stop = int(at[k])
    return Stretch(start, stop, anchor=int(at[k]), count=int(counts[k]))


def groups_of(edges: NDArray[np.int64], start: int, stop: int) -> range:
    """The row groups that hold rows start..stop (exclusive) of a file; group g starts at row edges[g]."""
    start, stop = max(start, 0), min(stop, int(edges[-1]))
    if start >= stop:
        return range(0)
    first = int(np.searchsorted(edges, start, side="right")) - 1
    return range(first, int(np.searchsorted(edges, stop, side="left")))


def cut(
    first: int,
    values: NDArray[Any],
    ticks: NDArray[np.int64] | None,
    stretch: Stretch,
    around: Interval,
    window: Window,
) -> Piece:
    """What a block, rows first.. of the run, gives to a stretch; no `ticks`: the window covers the run."""
    lo, hi = max(stretch.start - first, 0), max(stretch.stop - first, 0)
    values, before = values[lo:hi], max(stretch.anchor - first - lo, 0)
    if ticks is None:
        before = min(before, len(values))
    else:
        held = window.holds(ticks[lo:hi])
        before, values = int(np.count_nonzero(held[:before])), values[held]
    i = int(np.searchsorted(values, around.u, side="right"))
    j = int(np.searchsorted(values, around.v, side="left"))
    return Piece(before, i, values[i:j])


def with_finer_marks(
    run: RunMarks, needed: Sequence[tuple[Any, Any]], positions: NDArray[np.int64], values: NDArray[Any]
) -> RunMarks:
    """The run with rows at `positions`, with `values`, as marks too.

    Of its own marks it keeps those that bound ranks in the `needed` closed intervals. Fewer marks are still
    true marks: elsewhere they say less.
    """
    kept = []
    for low, high in needed:
        before = int(np.searchsorted(run.values, low, side="left")) - 1
        after = int(np.searchsorted(run.values, high, side="right"))
        kept.append(np.arange(max(before, 0), min(after + 1, len(run.values))))
    indices = np.unique(np.concatenate(kept))
    all_positions, first = np.unique(np.concatenate([run.positions[indices], positions]), return_index=True)
    return replace(run, positions=all_positions, values=np.concatenate([run.values[indices], values])[first])
