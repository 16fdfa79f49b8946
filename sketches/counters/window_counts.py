"""Sliding-window counters: how many arrivals there were in a stretch of time, for many cells of one stream.

Model. Arrivals come in order of time; times are integers of any unit. A window of W keeps what is later than
now - W, with now the time of the last arrival of any cell; without a window nothing ever expires. On the
clock "count" the time of an arrival is its number in the stream, from 0.

For the deterministic kinds of counting.py and any time t that is kept, with x
the true number of arrivals of a cell at t or later,

    lo <= x <= hi        and        |estimate - x| <= error * x,        error = skew + eps * (1 + skew)

where skew is what merges have done to the times, 0 before the first. Nothing is lost where a window takes
all: from the first arrival on, counts are exact. "RW" (randomised waves) keeps |estimate - x| <= eps * x
with probability 1 - delta, and lo and hi are no more certain than that.

A count from `since` to `until` is the difference of two such counts, and so are its bounds: their width is
relative to what arrived since `since`, not to the count itself.

Source: Papapetrou et al., VLDB Journal 2015, sections 3, 4.2 and 5.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tidemark.sketches.bounds.count_bounds import Counts, exact, subtract_counts
from tidemark.sketches.counters.buckets import Buckets, Ints, check
from tidemark.sketches.counters.counting import FARTHEST, CounterArrays, CounterState, Counting
from tidemark.sketches.counters.deterministic_wave import check_ranks
from tidemark.sketches.counters.exponential_histogram import check_levels
from tidemark.sketches.counters.randomized_wave import SampledWaves, check_samples
from tidemark.sketches.errors import InvalidInput
from tidemark.sketches.hashing.row_hashes import MOST_CELLS
from tidemark.sketches.inputs import INT64, as_column, as_contiguous
from tidemark.sketches.memory_limit import require_memory


class WindowCounts:
    """The counters of `cells` cells, which share one clock. A refused input changes nothing.

    >>> counter = WindowCounts(Counting("EH", eps=0.1, window=100))
    >>> counter.update(times=[1, 2, 2, 50, 120])
    >>> counter.since(50)[0]
    Estimate(estimate=2.0, lo=2, hi=2)
    """

    __slots__ = ("_counters", "_first", "_kept", "_n", "_now", "_skew", "cells", "counting")

    def __init__(self, counting: Counting, cells: int = 1) -> None:
        """CounterArrays without an arrival.

        InvalidInput unless cells is from 1 to 2**22, and where the counters would take more than 4 GiB once
        they are full, see room.py.
        """
        if isinstance(cells, bool) or not isinstance(cells, int | np.integer) or not 1 <= cells <= MOST_CELLS:
            raise InvalidInput(f"got {cells!r} cells; expected from 1 to {MOST_CELLS:,}")
        require_memory(counting.room(int(cells)), f"{cells:,} cells of {counting}")
        self._hold(counting, int(cells), counting.none(), 0, 0, 0, 0.0)

    @classmethod
    def empty(cls, counting: Counting, cells: int) -> "WindowCounts":
        """CounterArrays without an arrival, however much they would take once they are full."""
        return cls.of(counting, cells, counting.none(), n=0, first=0, now=0, skew=0.0)

    @classmethod
    def of(
        cls, counting: Counting, cells: int, kept: CounterState, *, n: int, first: int, now: int, skew: float
    ) -> "WindowCounts":
        """CounterArrays that hold `kept`: n arrivals from the time `first` to `now`, with this skew."""
        result = cls.__new__(cls)
        result._hold(counting, cells, kept, n, first, now, skew)  # noqa: SLF001  made here
        return result

    def _hold(
        self, counting: Counting, cells: int, kept: CounterState, n: int, first: int, now: int, skew: float
    ) -> None:
        self.counting, self.cells = counting, cells
        self._n, self._first, self._now, self._skew = n, first, now, skew
        self._counters: CounterArrays | None = None
        self._kept: CounterState | None = kept if self.horizon is None else kept.after(self.horizon)

    @property
    def n(self) -> int:
        """The number of arrivals so far, expired ones too."""
        return self._n

    @property
    def first(self) -> int | None:
        """The time of the first arrival; None before it."""
        return self._first if self._n else None

    @property
    def now(self) -> int | None:
        """The time of the last arrival; None before it."""
        return self._now if self._n else None

    @property
    def horizon(self) -> int | None:
        """What arrived at this time or earlier has expired; None while nothing has."""
        window = self.counting.window
        if window is None or self._n == 0 or self._now - window < self._first:
            return None
        return self._now - window

    @property
    def skew(self) -> float:
        """Merges moved at most skew * x arrivals across any time with x arrivals at or after it."""
        return self._skew

    @property
    def error(self) -> float:
        """The relative error of a count up to now; for RW with probability 1 - delta."""
        return self._skew + self.counting.eps * (1 + self._skew)

    @property
    def kept(self) -> CounterState:
        """What is held, as a value; what has expired is left out."""
        if self._kept is None and self._counters is not None:
            kept = self._counters.kept()
            self._kept = kept if self.horizon is None else kept.after(self.horizon)
        return self._kept or self.counting.none()

    def settle(self) -> None:
        """Lets go of the arrays that updates write, many times what is held; the next one makes them anew."""
        self._kept, self._counters = self.kept, None

    def __getstate__(self) -> tuple[None, dict[str, Any]]:
        """What pickle takes: what is held, without the arrays that updates write."""
        state = {name: getattr(self, name) for name in self.__slots__}
        return None, {**state, "_kept": self.kept, "_counters": None}

    def update(
        self, times: ArrayLike | None = None, counts: ArrayLike | None = None, *, cells: Ints | None = None
    ) -> None:
        """Adds arrivals in order of time.

        times: integers within 2**62 of 0, none before `now` or before the one ahead of it; on the clock
        "count" there are none, and `cells` tells how many arrive. counts: how often each arrives, from 1;
        once without. cells: shape (rows, n), a cell for each arrival in every row, where row i owns the
        i-th equal part of the cells; without it all go to the only cell.
        """
        where = None if cells is None else self._checked_cells(cells)
        given, often = self._checked_times(times, counts, where), self._checked_counts(counts)
        if where is None:
            where = np.zeros((1, len(given)), np.int64)
        if where.shape[1] != len(given) or len(often) not in (0, len(given)):
            raise InvalidInput(
                f"got {len(given)} times, {len(often)} counts and cells of shape {where.shape}; "
                "expected one of each an arrival"
            )
        if not len(given):
            return
        n = self._n + (int(often.sum()) if len(often) else len(given))
        # Expired buckets would take part in merges: they are left behind before anything is added.
        if self._counters is None or self.counting.window is not None:
            self._counters = self.counting.counters(self.kept, self.cells)
        self._counters.add(as_contiguous(where), as_contiguous(given), as_contiguous(often))
        self._kept = None
        self._first = self._first if self._n else int(given[0])
        self._n, self._now = n, int(given[-1])

    def since(self, time: int | None = None) -> Counts:
        """The arrivals of each cell at `time` or later; all that the window keeps without a time.

        InvalidInput for a time that has expired.
        """
        horizon = self.horizon
        if time is None:
            time = self._first if horizon is None else horizon + 1
        if horizon is not None and time <= horizon:
            raise InvalidInput(
                f"got the time {time}; what arrived at {horizon} or earlier has expired; "
                f"ask from {horizon + 1}, or build the sketch with a longer window"
            )
        if self._n == 0 or time > self._now:
            return exact(np.zeros(self.cells, np.int64))
        if isinstance(self.kept, Buckets) and time <= self._first:
            return exact(self.kept.totals(self.cells))
        counts = self.kept.since(time, self.cells)
        return counts if self._skew == 0 else self._widened(counts)

    def between(self, since: int | None, until: int | None) -> Counts:
        """The arrivals of each cell at `since` or later and before `until`; None stands for the window's end.

        InvalidInput for a time that has expired, or where `until` is before `since`.
        """
        whole = self.since(since)
        if until is None:
            return whole
        if since is not None and until < since:
            raise InvalidInput(f"got until = {until} before since = {since}; expected since <= until")
        return subtract_counts(whole, self.since(until))

    def check_invariants(self) -> None:
        """Raises BrokenInvariant if what is held breaks what buckets.py or randomized_wave.py promise."""
        kept, eps = self.kept, self.counting.eps
        if isinstance(kept, SampledWaves):
            check_samples(kept, self.cells, self._first, self._now)
            return
        check(kept, eps)
        if self.counting.kind == "EH":
            check_levels(kept, eps)
        else:
            check_ranks(kept, eps)

    def _widened(self, counts: Counts) -> Counts:
        """Bounds of x from those of the x' arrivals that merges left behind: |x' - x| <= skew * x.

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
        given = as_column(cells, INT64)
        if given.ndim != 2 or len(given) == 0 or self.cells % len(given):
            raise InvalidInput(
                f"got cells of shape {given.shape} for {self.cells} cells; expected two dimensions, "
                "and rows that share the cells equally"
            )
        width = self.cells // len(given)
        first = np.arange(len(given))[:, None] * width
        # Compiled loops write where they are told.
        if given.size and (
            np.any(given.min(axis=1, keepdims=True) < first)
            or np.any(given.max(axis=1, keepdims=True) >= first + width)
        ):
            raise InvalidInput(f"got cells of another row; expected {width} to each row of {self.cells}")
        return given

    def _checked_times(
        self, times: ArrayLike | None, counts: ArrayLike | None, cells: Ints | None
    ) -> NDArray[np.int64]:
        if self.counting.clock == "count":
            if times is not None or counts is not None or cells is None:
                raise InvalidInput(
                    "got times or counts for counters of the last arrivals; expected cells alone: "
                    "an arrival's time is its number; repeat what arrives more than once"
                )
            return np.arange(self._n, self._n + cells.shape[1])
        if times is None:
            raise InvalidInput("got no times; expected one an arrival, or counters on the clock 'count'")
        given = as_column(times, INT64)
        if given.ndim != 1:
            raise InvalidInput(f"got times of shape {given.shape}; expected one dimension, one an arrival")
        if not len(given):
            return given
        falls = np.flatnonzero(given[:-1] > given[1:])
        if len(falls) or (self._n and given[0] < self._now):
            at = int(falls[0]) + 1 if len(falls) else 0
            ahead = int(given[at - 1]) if at else self._now
            raise InvalidInput(
                f"got the time {int(given[at])} at index {at} after {ahead}; expected times that never "
                "decrease; sort with in_time_order(), and give late arrivals a sketch of their own"
            )
        if not -FARTHEST <= given[0] <= given[-1] <= FARTHEST:
            raise InvalidInput(
                f"got times from {int(given[0])} to {int(given[-1])}; expected them within 2**62 of 0"
            )
        return given

    def _checked_counts(self, counts: ArrayLike | None) -> NDArray[np.int64]:
        if counts is None:
            return np.empty(0, np.int64)
        given = as_column(counts, INT64)
        if given.ndim != 1 or np.any(given < 1) or math.fsum(given) + self._n >= FARTHEST:
            raise InvalidInput(
                "got counts below 1, or more than 2**62 arrivals; expected how often each arrival came"
            )
        return given
