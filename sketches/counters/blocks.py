"""Counts of the running block and the block before it: the windowed counters SIMPLE and PROPORTIONAL.

Model. Time is cut into blocks of the length of the window, W, from the first arrival on. SIMPLE ("SI") counts
the arrivals of the running block in each cell and forgets them when the next block begins. PROPORTIONAL
("PR") also keeps the counts of the block before. With `rest` the number of times of that block that are still
in the window, the estimate of a window of W is

    SIMPLE          current
    PROPORTIONAL    current + previous * rest / W

PROPORTIONAL is known from rate limiters of web servers as the sliding window counter. It is exact at the end
of each block. A window shorter than W takes the same share of the block in which it begins.

Guarantee. current <= x <= current + previous for the true count x, and for SIMPLE current + lost, with lost
the number of arrivals of the block before in all cells of a row together; even_spread.py has the bounds of a
part of a block. Nothing bounds the error of the estimate: c arrivals of a key in the last c of W times,
and W - c other arrivals after them, leave f = c and the estimate c * c / W.

Cost: O(1) an arrival and O(cells) an update. Memory: 8 bytes a cell, 16 with the block before.

Source: Rivetti, Busnel and Mostefaoui, "Efficiently summarizing distributed data streams over sliding
windows", 2015, listings III.2 and III.3. We deviate: they subtract 1 / W of the block before at each step,
which gives the same estimates with rounding errors, in O(cells) an arrival. The bounds are ours.
"""

from dataclasses import dataclass, replace

import numpy as np

from tidemark.sketches.bounds.count_bounds import Counts, exact
from tidemark.sketches.counters.buckets import Ints
from tidemark.sketches.counters.even_spread import late_part
from tidemark.sketches.errors import BrokenInvariant


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """The counts of two blocks, as an immutable value.

    window: the length of a block, W.
    keeps_previous: True for PROPORTIONAL, False for SIMPLE.
    one_a_time: each time has at most one arrival, as on the clock "count".
    begin, now: the first time of the running block, and that of the last arrival; begin is None before the
        first arrival.
    current, previous: shape (cells,), the arrivals of the running block and of the one before; zeros for
        SIMPLE, and no entries before the first arrival.
    lost: for SIMPLE, the number of arrivals of the block before in a row.
    """

    window: int
    keeps_previous: bool
    one_a_time: bool
    begin: int | None
    now: int
    current: Ints
    previous: Ints
    lost: int

    def __len__(self) -> int:
        """The number of counts kept."""
        return len(self.current) * (1 + self.keeps_previous)

    def since(self, time: int, cells: int) -> Counts:
        """The number of arrivals at `time` or later in each of `cells` cells, with bounds. O(cells).

        time: at most `now`.
        """
        if self.begin is None:
            return exact(np.zeros(cells, np.int64))
        if time > self.begin:
            return self._part(self.current, self.now - time + 1, self.now - self.begin + 1)
        rest = min(self.begin - time, self.window)
        before = self._part(self.previous, rest, self.window)
        lost = min(self.lost, rest) if self.one_a_time or not rest else self.lost
        lo, hi = self.current + before.lo, self.current + before.hi + lost
        return Counts(self.current + before.estimate, lo, hi)

    def drop_expired(self, horizon: int) -> "Blocks":
        """Itself: a block is dropped when the next but one begins."""
        del horizon
        return self

    def _part(self, counts: Ints, later: int, length: int) -> Counts:
        steps = np.array([later], np.int64), np.array([length], np.int64)
        return late_part(counts, *steps, one_a_time=self.one_a_time, known_ends=False)


class BlockCounters:
    """The mutable counters: an update counts the arrivals of the last two blocks and skips those before."""

    def __init__(self, kept: Blocks, cells: int) -> None:
        """Starts from the state `kept`."""
        zeros = np.zeros(cells, np.int64)
        self._kept = replace(kept, current=zeros, previous=zeros) if kept.begin is None else kept
        self._cells = cells

    def add(self, cells: Ints, times: Ints, counts: Ints) -> None:
        """Adds arrivals in order of time; see CounterArrays.add. O(1) an arrival and row, plus O(cells)."""
        old, now = self._kept, int(times[-1])
        origin = int(times[0]) if old.begin is None else old.begin
        begin = origin + (now - origin) // old.window * old.window
        first = int(np.searchsorted(times, begin))
        current = self._totals(cells, counts, first, len(times))
        if begin == old.begin:
            self._kept = replace(old, now=now, current=old.current + current)
            return
        previous = self._totals(cells, counts, int(np.searchsorted(times, begin - old.window)), first)
        if old.begin == begin - old.window:
            previous += old.current
        lost = 0
        if not old.keeps_previous:
            previous, lost = np.zeros_like(previous), int(previous.sum()) // len(cells)
        self._kept = replace(old, begin=begin, now=now, current=current, previous=previous, lost=lost)

    def state(self) -> Blocks:
        """Their counts."""
        return self._kept

    def _totals(self, cells: Ints, counts: Ints, start: int, end: int) -> Ints:
        """The number of arrivals of each cell among those at indices `start` to end - 1."""
        if not len(counts):
            return np.bincount(cells[:, start:end].ravel(), minlength=self._cells)
        result = np.zeros(self._cells, np.int64)
        for row_cells in cells[:, start:end]:
            np.add.at(result, row_cells, counts[start:end])
        return result


def check_blocks(kept: Blocks) -> None:
    """Raises BrokenInvariant unless counters can have this state. O(cells)."""
    if kept.begin is None:
        return
    counts = np.concatenate([kept.current, kept.previous])
    if np.any(counts < 0) or kept.lost < 0 or not kept.begin <= kept.now < kept.begin + kept.window:
        raise BrokenInvariant(
            f"got a negative count, or the time {kept.now} in a block of {kept.window} from {kept.begin}; "
            "expected counts of at least 0 and a time inside the block"
        )
