"""Counts of short intervals in each cell: the windowed counters SPLITTER and PERFECT.

Model. The arrivals of a cell, in order, are divided into sub-cells. For each we know the times of its first
and last arrival, `begin` and `end`, and their number, `size`. An arrival at time t, in a window of W:

    1  sub-cells that end at t - W or earlier are dropped
    2  if the newest sub-cell has begun after t - W and has fewer than `least` arrivals, it takes the arrival
    3  else, if the one before it has begun after t - W too, and the rates of both differ by at most the
       factor mu, the two become one, and the arrival begins a new sub-cell
    4  else the arrival begins a new sub-cell: a split

The rate of the newest is its size / (its end - its begin + 1), that of the one before its size / (the begin
of the newest - its own begin). "SP" (SPLITTER) has least = eps * W, tau / width in the paper. "PF" (PERFECT)
has least = mu = 0: each arrival is a sub-cell of its own, and every count is exact.

Example. W = 100, least = 2, mu = 1.5, arrivals at 1, 2, 3, 4, 50, 51: (1 to 2, size 2), then 3 begins a new
one, (3 to 4, size 2). At 50 both have the rate 1, so they become (1 to 4, size 4), and 50 begins the next.

Guarantee. A sub-cell that begins at t or later counts in full. At most one begins before t and ends at t or
later; its arrivals are taken to be spread evenly, and even_spread.py has the certain bounds of the part.
Nothing bounds the error of SPLITTER beyond that, because a merged sub-cell may be as long as the window.

Proof that expiry can wait. Steps 2 and 3 never change a sub-cell that begins at t - W or earlier, and of
those that begin later nothing has expired. So no decision depends on when the expired part is subtracted, and
the share that a query subtracts at once is the sum of the shares that the steps would subtract.

Cost: O(1) an arrival, and O(cells + b) an update for b sub-cells. Memory: 24 bytes a sub-cell. On the clock
"count" SPLITTER has at most 1 / eps + 2 * width of them in a row of `width` cells: all but the oldest and the
newest of a cell lie in the window and have eps * W arrivals or more.

Source: Rivetti, Busnel and Mostefaoui, 2015, section III.D; the error function, which the paper leaves out,
after the authors' code (WCM, TMergeError). We deviate: in the paper a sub-cell of which a part has expired
may still take arrivals; its count is then a fraction, and the number of arrivals that it ever took grows
without end if arrivals are rare. Appendix A of the paper subtracts more than a sub-cell has, and does so
after the update; both are corrected.
"""

from dataclasses import dataclass

import numpy as np

from tidemark.sketches.bounds.count_bounds import Counts, exact
from tidemark.sketches.counters.buckets import Ints
from tidemark.sketches.counters.even_spread import late_part
from tidemark.sketches.errors import BrokenInvariant

SUB_CELL_BYTES = 24


@dataclass(frozen=True, slots=True, eq=False)
class SubCells:
    """The sub-cells of many cells: grouped by cell, oldest first, in one array.

    cells: shape (k,), the cells that have sub-cells, ascending.
    starts: shape (k + 1,), the index of the first sub-cell of each of these cells, and b at the end.
    begins, ends, sizes: shape (b,), the times of the first and last arrival, and the number of arrivals.
    one_a_time: each time has at most one arrival, as on the clock "count".
    """

    cells: Ints
    starts: Ints
    begins: Ints
    ends: Ints
    sizes: Ints
    one_a_time: bool

    def __len__(self) -> int:
        return len(self.ends)

    def since(self, time: int, cells: int) -> Counts:
        """The number of arrivals at `time` or later in each of `cells` cells, with bounds. O(cells + b)."""
        result = exact(np.zeros(cells, np.int64))
        lo, hi = result.lo.copy(), result.hi.copy()
        cell = np.repeat(self.cells, np.diff(self.starts))
        is_whole, is_cut = self.begins >= time, (self.begins < time) & (self.ends >= time)
        np.add.at(lo, cell[is_whole], self.sizes[is_whole])
        hi[:] = lo
        result.estimate[:] = lo
        begins, ends = self.begins[is_cut], self.ends[is_cut]
        part = late_part(
            self.sizes[is_cut],
            ends - time + 1,
            ends - begins + 1,
            one_a_time=self.one_a_time,
            known_ends=True,
        )
        # A cell has at most one sub-cell that is cut, so no index occurs twice.
        result.estimate[cell[is_cut]] += part.estimate
        lo[cell[is_cut]] += part.lo
        hi[cell[is_cut]] += part.hi
        return Counts(result.estimate, lo, hi)

    def drop_expired(self, horizon: int) -> "SubCells":
        """The sub-cells that end after `horizon`. O(b)."""
        kept = self.ends > horizon
        if kept.all():
            return self
        counts = np.diff(np.concatenate([[0], np.cumsum(kept)])[self.starts])
        arrays = (self.begins[kept], self.ends[kept], self.sizes[kept])
        return _grouped(self.cells, counts, *arrays, self.one_a_time)


class SubCellCounters:
    """The mutable counters: each update writes the sub-cells of all cells anew."""

    def __init__(self, kept: SubCells, cells: int, window: int, least: float, mu: float) -> None:
        """Starts from the state `kept`. least, mu: see the module docstring; 0 and 0 for PERFECT."""
        self._kept, self._cells = kept, cells
        self._limits = (window, least, mu)

    def add(self, cells: Ints, times: Ints, counts: Ints) -> None:
        """Adds arrivals in order of time; see CounterArrays.add. O(1) an arrival and row, plus O(cells + b).

        An arrival with a count is added whole to one sub-cell.
        """
        from tidemark.sketches.compiled.kernels import group_by_cell
        from tidemark.sketches.compiled.sub_cells import add_to_sub_cells

        old, width = self._kept, self._cells // len(cells)
        old_counts = np.zeros(self._cells, np.int64)
        old_counts[old.cells] = np.diff(old.starts)
        starts = np.concatenate([[0], np.cumsum(old_counts)])
        parts = []
        for row, row_cells in enumerate(cells):
            arrivals = group_by_cell(row_cells, row * width, width, times, counts)
            row_starts = starts[row * width : (row + 1) * width + 1]
            at = slice(row_starts[0], row_starts[-1])
            before = (old.begins[at], old.ends[at], old.sizes[at], row_starts - row_starts[0])
            parts.append(add_to_sub_cells(before, *arrivals, self._limits))
        counted, begins, ends, sizes = (np.concatenate(part) for part in zip(*parts, strict=True))
        self._kept = _grouped(np.arange(self._cells), counted, begins, ends, sizes, old.one_a_time)

    def state(self) -> SubCells:
        """Their sub-cells."""
        return self._kept


def _grouped(cells: Ints, counts: Ints, begins: Ints, ends: Ints, sizes: Ints, one_a_time: bool) -> SubCells:
    """Sub-cells of which cells[i] has counts[i], in this order; cells without any are left out."""
    occupied = counts > 0
    starts = np.concatenate([[0], np.cumsum(counts[occupied])])
    return SubCells(cells[occupied], starts, begins, ends, sizes, one_a_time)


def check_sub_cells(kept: SubCells, window: int) -> None:
    """Raises BrokenInvariant if sub-cells overlap, or are longer than a window, or have no arrivals. O(b)."""
    inner = np.ones(len(kept), bool)
    inner[kept.starts[:-1]] = False
    gaps = (kept.begins - np.concatenate([kept.begins[:1], kept.ends[:-1]]))[inner]
    spans = kept.ends - kept.begins
    fits = kept.sizes <= spans + 1 if kept.one_a_time else kept.sizes >= 1
    rules = {
        "cells ascend and each has a sub-cell": bool(
            np.all(np.diff(kept.cells) > 0) and np.all(np.diff(kept.starts) > 0)
        ),
        "a sub-cell begins after the one before it": bool(np.all(gaps >= int(kept.one_a_time))),
        "it is shorter than the window": bool(np.all((spans >= 0) & (spans < window))),
        "it has arrivals, and not more than fit": bool(np.all((kept.sizes >= 1) & fits)),
    }
    for rule, holds in rules.items():
        if not holds:
            raise BrokenInvariant(f"sub-cells in a window of {window} break this invariant: {rule}")
