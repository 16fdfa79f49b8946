"""Sliding-window counters: the number of arrivals in an interval of time, for many cells of one stream.

Model. Arrivals come in order of time; times are integers of any unit. A window of W keeps the arrivals later
than now - W, where now is the time of the last arrival of any cell; without a window nothing expires. On the
clock "count" the time of an arrival is its number in the stream, from 0.

For the kinds "EH" and "DW" of counting.py and any time t that has not expired, with x the true number of
arrivals of a cell at t or later,

    lo <= x <= hi        and        |estimate - x| <= error * x,        error = skew + eps * (1 + skew)

where skew measures how far merges have moved arrivals in time; it is 0 before the first merge. While nothing
has expired, the count from the first arrival on is exact. For "RW" (randomised waves), |estimate - x| <=
eps * x and lo <= x <= hi hold with probability 1 - delta. For "PF", lo == x == hi. For "SI", "PR" and "SP",
lo <= x <= hi always, and nothing more is proved.

A count from `since` to `until` is the difference of two such counts, and its bounds are the differences of
theirs: their width is relative to the number of arrivals since `since`, not to the count itself.

Cost: amortised O(1) an arrival for each kind but RW; a query reads the buckets of all cells, O(cells + b) for
b buckets. With a window, an update also costs O(cells + b). Memory: see the modules of the kinds.

Source: Papapetrou et al., VLDB Journal 2015, sections 3, 4.2 and 5.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tidemark.sketches.bounds.count_bounds import Counts, exact, subtract_counts
from tidemark.sketches.counters.blocks import Blocks, check_blocks
from tidemark.sketches.counters.buckets import Buckets, Ints, check_buckets
from tidemark.sketches.counters.counting import (
    BUCKET_KINDS,
    COUNT_LIMIT,
    TIME_LIMIT,
    CounterArrays,
    CounterState,
    Counting,
)
from tidemark.sketches.counters.deterministic_wave import check_ranks
from tidemark.sketches.counters.exponential_histogram import check_levels
from tidemark.sketches.counters.randomized_wave import SampledWaves, check_samples
from tidemark.sketches.counters.sub_cells import SubCells, check_sub_cells
from tidemark.sketches.errors import InvalidInput
from tidemark.sketches.hashing.row_hashes import MOST_CELLS
from tidemark.sketches.inputs import INT64, as_column, as_contiguous
from tidemark.sketches.memory_limit import require_memory


class WindowCounts:
    """Sliding-window counters of `cells` cells that share one clock. A call that raises changes nothing.

    counting: the configuration, see `Counting`.
    cells: the number of counters, from 1 to 2**22.

    >>> counter = WindowCounts(Counting("EH", eps=0.1, window=100))
    >>> counter.update(times=[1, 2, 2, 50, 120])
    >>> counter.since(50)[0]
    Estimate(estimate=2.0, lo=2, hi=2)
    """

    __slots__ = ("_counters", "_first", "_kept", "_n", "_now", "_skew", "cells", "counting")

    def __init__(self, counting: Counting, cells: int = 1) -> None:
        """Counters without arrivals.

        Raises InvalidInput unless cells is from 1 to 2**22, and if the counters could take more than 4 GiB,
        see memory_limit.py.
        """
        if isinstance(cells, bool) or not isinstance(cells, int | np.integer) or not 1 <= cells <= MOST_CELLS:
            raise InvalidInput(f"got {cells!r} cells; expected from 1 to {MOST_CELLS:,}")
        require_memory(counting.room(int(cells)), f"{cells:,} cells of {counting}")
        self._initialise(counting, int(cells), counting.none(), 0, 0, 0, 0.0)

    @classmethod
    def empty(cls, counting: Counting, cells: int) -> "WindowCounts":
        """Counters without arrivals, without the memory limit of the constructor."""
        return cls.of(counting, cells, counting.none(), n=0, first=0, now=0, skew=0.0)

    @classmethod
    def of(
        cls, counting: Counting, cells: int, kept: CounterState, *, n: int, first: int, now: int, skew: float
    ) -> "WindowCounts":
        """Counters with the state `kept`, which is not checked.

        n: the number of arrivals, expired ones included.
        first, now: the times of the first and the last arrival; 0 if n is 0.
        skew: see the property of that name.
        """
        result = cls.__new__(cls)
        result._initialise(counting, cells, kept, n, first, now, skew)  # noqa: SLF001  same class
        return result

    def _initialise(
        self, counting: Counting, cells: int, kept: CounterState, n: int, first: int, now: int, skew: float
    ) -> None:
        self.counting, self.cells = counting, cells
        self._n, self._first, self._now, self._skew = n, first, now, skew
        self._counters: CounterArrays | None = None
        self._kept: CounterState | None = kept if self.horizon is None else kept.drop_expired(self.horizon)

    @property
    def n(self) -> int:
        """The number of arrivals so far, expired ones included."""
        return self._n

    @property
    def first(self) -> int | None:
        """The time of the first arrival; None without arrivals."""
        return self._first if self._n else None

    @property
    def now(self) -> int | None:
        """The time of the last arrival; None without arrivals."""
        return self._now if self._n else None

    @property
    def horizon(self) -> int | None:
        """The latest expired time: arrivals at this time or earlier have expired; None if none has."""
        window = self.counting.window
        if window is None or self._n == 0 or self._now - window < self._first:
            return None
        return self._now - window

    @property
    def skew(self) -> float:
        """Merges moved at most skew * x arrivals across any time t, with x the arrivals at t or later."""
        return self._skew

    @property
    def error(self) -> float:
        """The largest relative error of a count up to now; for RW with probability 1 - delta.

        Infinite for SI, PR and SP, whose bounds are certain but may be far apart.
        """
        return self._skew + self.counting.error * (1 + self._skew)

    @property
    def kept(self) -> CounterState:
        """The state of the counters without expired arrivals, as an immutable value. O(cells + b)."""
        if self._kept is None and self._counters is not None:
            state = self._counters.state()
            self._kept = state if self.horizon is None else state.drop_expired(self.horizon)
        return self._kept or self.counting.none()

    def __getstate__(self) -> tuple[None, dict[str, Any]]:
        """The state for pickle, without the arrays that updates write."""
        state = {name: getattr(self, name) for name in self.__slots__}
        return None, {**state, "_kept": self.kept, "_counters": None}

    def update(
        self, times: ArrayLike | None = None, counts: ArrayLike | None = None, *, cells: Ints | None = None
    ) -> None:
        """Adds arrivals in order of time; no arrivals change nothing.

        times: shape (n,), integers from -2**62 to 2**62, never decreasing and none before `now`; None on the
            clock "count", where `cells` gives the number of arrivals.
        counts: shape (n,), how often each arrives, at least 1; None means once.
        cells: shape (rows, n), the cell of each arrival in every row, where row i owns the i-th equal part of
            the cells; None adds all arrivals to cell 0.

        Raises InvalidInput for other input. Amortised O(1) for each arrival and row; with a window, O(cells +
        b) more. For RW see randomized_wave.py.

        Example: with 6 cells and 2 rows, row 0 owns cells 0 to 2, row 1 owns 3 to 5. Two arrivals in cells 2
        and 0 of the first row and 3 and 4 of the second are cells [[2, 0], [3, 4]].
        """
        cell_array = None if cells is None else self._checked_cells(cells)
        time_array = self._checked_times(times, counts, cell_array)
        count_array = self._checked_counts(counts)
        if cell_array is None:
            cell_array = np.zeros((1, len(time_array)), np.int64)
        if cell_array.shape[1] != len(time_array) or len(count_array) not in (0, len(time_array)):
            raise InvalidInput(
                f"got {len(time_array)} times, {len(count_array)} counts and cells of shape "
                f"{cell_array.shape}; expected one of each for an arrival"
            )
        if not len(time_array):
            return
        n = self._n + (int(count_array.sum()) if len(count_array) else len(time_array))
        arrivals = (as_contiguous(cell_array), as_contiguous(time_array), as_contiguous(count_array))
        kept = None
        # With nothing to add to, no arrays are needed, which are large.
        if self._n == 0 and self.counting.kind in BUCKET_KINDS:
            kept, self._counters = self.counting.buckets_in_order(*arrivals, self.cells), None
        else:
            # Expired buckets would be merged with others, so they are dropped before anything is added.
            if self._counters is None or self.counting.window is not None:
                self._counters = self.counting.counters(self.kept, self.cells)
            self._counters.add(*arrivals)
        self._first = self._first if self._n else int(time_array[0])
        self._n, self._now = n, int(time_array[-1])
        self._kept = kept if kept is None or self.horizon is None else kept.drop_expired(self.horizon)

    def since(self, time: int | None = None) -> Counts:
        """The number of arrivals of each cell at `time` or later, with bounds. O(cells + b).

        time: inclusive; None means everything that has not expired.

        Raises InvalidInput for a time that has expired.
        """
        horizon = self.horizon
        if time is None:
            time = self._first if horizon is None else horizon + 1
        if horizon is not None and time <= horizon:
            raise InvalidInput(
                f"got the time {time}; arrivals at {horizon} or earlier have expired; "
                f"expected {horizon + 1} or later; build the sketch with a longer window to keep more"
            )
        if self._n == 0 or time > self._now:
            return exact(np.zeros(self.cells, np.int64))
        if isinstance(self.kept, Buckets) and time <= self._first:
            return exact(self.kept.totals(self.cells))
        counts = self.kept.since(time, self.cells)
        return counts if self._skew == 0 else self._widened(counts)

    def between(self, since: int | None, until: int | None) -> Counts:
        """The number of arrivals of each cell from `since` to before `until`, with bounds. O(cells + b).

        since: inclusive; None means everything that has not expired. until: exclusive; None means no end.

        Raises InvalidInput for a time that has expired, and if `until` is before `since`.
        """
        from_since = self.since(since)
        if until is None:
            return from_since
        if since is not None and until < since:
            raise InvalidInput(f"got until = {until} before since = {since}; expected since <= until")
        return subtract_counts(from_since, self.since(until))

    def check_invariants(self) -> None:
        """Raises BrokenInvariant if the state breaks the invariants of its kind. O(b) for EH and DW."""
        check_kept(self.kept, self.counting, self.cells, self._first, self._now)

    def _widened(self, counts: Counts) -> Counts:
        """Bounds of the true number x, from bounds of the number x' after merges: |x' - x| <= skew * x.

        So x' / (1 + skew) <= x <= x' / (1 - skew). Divisions are rounded outwards.
        """
        most = np.full(self.cells, self._n)
        if self.horizon is None and isinstance(self.kept, Buckets):
            most = self.kept.totals(self.cells)
        lo = np.ceil(counts.lo / (1 + self._skew) * (1 - 2**-50)).astype(np.int64)
        if self._skew < 1:
            widest = np.floor(counts.hi / (1 - self._skew) * (1 + 2**-50))
            most = np.where(widest < most, widest, most).astype(np.int64)
        return Counts(np.clip(counts.estimate, lo, most), lo, most)

    def _checked_cells(self, cells: Ints) -> Ints:
        cell_array = as_column(cells, INT64)
        if cell_array.ndim != 2 or len(cell_array) == 0 or self.cells % len(cell_array):
            raise InvalidInput(
                f"got cells of shape {cell_array.shape} for {self.cells} cells; expected two dimensions, "
                "and rows that share the cells equally"
            )
        width = self.cells // len(cell_array)
        first = np.arange(len(cell_array))[:, None] * width
        # Compiled loops do not check array bounds.
        if cell_array.size and (
            np.any(cell_array.min(axis=1, keepdims=True) < first)
            or np.any(cell_array.max(axis=1, keepdims=True) >= first + width)
        ):
            raise InvalidInput(
                f"got cells of another row; expected cells {width} * i to {width} * (i + 1) - 1 in row i"
            )
        return cell_array

    def _checked_times(
        self, times: ArrayLike | None, counts: ArrayLike | None, cells: Ints | None
    ) -> NDArray[np.int64]:
        if self.counting.clock == "count":
            if times is not None or counts is not None or cells is None:
                raise InvalidInput(
                    "got times or counts on the clock 'count'; expected cells alone, because the time of an "
                    "arrival is its number; repeat an arrival instead of counting it"
                )
            return np.arange(self._n, self._n + cells.shape[1])
        if times is None:
            raise InvalidInput(
                "got no times; expected one for each arrival, or counters on the clock 'count'"
            )
        time_array = as_column(times, INT64)
        if time_array.ndim != 1:
            raise InvalidInput(f"got times of shape {time_array.shape}; expected one dimension")
        if not len(time_array):
            return time_array
        descents = np.flatnonzero(time_array[:-1] > time_array[1:])
        if len(descents) or (self._n and time_array[0] < self._now):
            index = int(descents[0]) + 1 if len(descents) else 0
            previous = int(time_array[index - 1]) if index else self._now
            raise InvalidInput(
                f"got the time {int(time_array[index])} at index {index} after {previous}; "
                "expected times that never decrease; sort with in_time_order(), and put late arrivals into a "
                "separate sketch"
            )
        if not -TIME_LIMIT <= time_array[0] <= time_array[-1] <= TIME_LIMIT:
            raise InvalidInput(
                f"got times from {int(time_array[0])} to {int(time_array[-1])}; "
                "expected them within 2**62 of 0"
            )
        return time_array

    def _checked_counts(self, counts: ArrayLike | None) -> NDArray[np.int64]:
        if counts is None:
            return np.empty(0, np.int64)
        count_array = as_column(counts, INT64)
        if (
            count_array.ndim != 1
            or np.any(count_array < 1)
            or math.fsum(count_array) + self._n >= COUNT_LIMIT
        ):
            raise InvalidInput(
                "got counts below 1, or of 2**62 arrivals or more in total; "
                "expected how often each arrival came, in one dimension"
            )
        return count_array


def check_kept(kept: CounterState, counting: Counting, cells: int, first: int, now: int) -> None:
    """Raises BrokenInvariant if the state of `cells` counters breaks the invariants of its kind."""
    if isinstance(kept, SampledWaves):
        check_samples(kept, cells, first, now)
    elif isinstance(kept, Blocks):
        check_blocks(kept)
    elif isinstance(kept, SubCells):
        check_sub_cells(kept, counting.window or 0)
    else:
        check_buckets(kept, counting.eps)
        (check_levels if counting.kind == "EH" else check_ranks)(kept, counting.eps)
