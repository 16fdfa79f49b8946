"""The configuration of sliding-window counters (`Counting`), and the interface of every kind of counter.

Three kinds keep a relative error, by the paper's names: "EH" exponential histograms, "DW" deterministic
waves, "RW" randomised waves. Four have certain bounds in a window of fixed length, but no proven error: "PF"
PERFECT, "SI" SIMPLE, "PR" PROPORTIONAL, "SP" SPLITTER. PERFECT is exact, and as large as the window.

Each kind has two representations. Updates write into `CounterArrays`, which are mutable. Queries, merges and
storage use a `CounterState`, an immutable value: `Buckets` for EH and DW, `SampledWaves` for RW, `SubCells`
for PF and SP, `Blocks` for SI and PR.
"""

import math
from dataclasses import dataclass
from typing import Literal, Protocol, get_args

import numpy as np

from tidemark.sketches.counters import (
    buckets,
    deterministic_wave,
    exponential_histogram,
    randomized_wave,
    sub_cells,
    whole_streams,
)
from tidemark.sketches.counters.blocks import BlockCounters, Blocks
from tidemark.sketches.counters.buckets import Buckets, Ints
from tidemark.sketches.counters.deterministic_wave import DeterministicWaves
from tidemark.sketches.counters.exponential_histogram import ExponentialHistograms
from tidemark.sketches.counters.randomized_wave import RandomizedWaves, SampledWaves
from tidemark.sketches.counters.sub_cells import SubCellCounters, SubCells
from tidemark.sketches.errors import InvalidInput

CounterKind = Literal["EH", "DW", "RW", "PF", "SI", "PR", "SP"]
Clock = Literal["time", "count"]
CounterState = Buckets | SampledWaves | SubCells | Blocks

BUCKET_KINDS = ("EH", "DW")
PROVEN_KINDS = (*BUCKET_KINDS, "RW")  # their states are stored and merged

# Times are from -TIME_LIMIT to TIME_LIMIT, so that the difference of two fits int64. In microseconds this is
# 146,000 years. The number of arrivals is below COUNT_LIMIT.
TIME_LIMIT = 2**62
COUNT_LIMIT = 2**62

# A counter has constant * log2(1 / delta) randomised waves. These limits keep forged bytes from claiming
# billions of waves.
LEAST_DELTA = 1e-13
MOST_CONSTANT = 1000


class CounterArrays(Protocol):
    """The counters of one kind for all cells, which updates change."""

    def add(self, cells: Ints, times: Ints, counts: Ints) -> None:
        """Adds arrivals in order of time.

        cells: shape (rows, n), the cell of each arrival in each row.
        times: shape (n,), never decreasing.
        counts: shape (n,), at least 1 each; empty means 1 each.
        """

    def state(self) -> CounterState:
        """Their content as an immutable value."""


@dataclass(frozen=True, slots=True)
class Counting:
    """The configuration of a counter: its kind, error, window and clock.

    kind: see the module docstring.
    eps: the relative error of a count, 1e-6 <= eps < 1. For SP, the share of `window` that a sub-cell has in
        arrivals before it may be merged or followed by another; see sub_cells.py. PF, SI, PR do not use it.
    window: how far back from the last arrival counts reach, from 1 to 2**62; None keeps everything, for
        EH, DW and RW only.
    clock: "time", or "count" if the time of an arrival is its number in the stream.
    delta, constant: of randomised waves, see randomized_wave.py; delta is 0 for EH and DW.
    site: an integer below 2**64. Randomised waves that will be merged need different sites, so that they draw
        independent random levels.
    mu: of SP, the factor by which the rates of two sub-cells that become one may differ, at least 1.

    Raises InvalidInput for values outside these ranges.
    """

    kind: CounterKind
    eps: float
    window: int | None = None
    clock: Clock = "time"
    delta: float = 0.0
    constant: int = 36
    site: int = 0
    mu: float = 1.5

    def __post_init__(self) -> None:
        if self.kind not in get_args(CounterKind) or self.clock not in get_args(Clock):
            raise InvalidInput(
                f"got the kind {self.kind!r} and the clock {self.clock!r}; "
                f"expected one of {get_args(CounterKind)} and one of {get_args(Clock)}"
            )
        if not 1e-6 <= self.eps < 1:
            raise InvalidInput(f"got eps = {self.eps!r} for the counters; expected 1e-6 <= eps < 1")
        is_integer = isinstance(self.window, int) and not isinstance(self.window, bool)
        if self.window is not None and not (is_integer and 1 <= self.window <= TIME_LIMIT):
            raise InvalidInput(f"got the window {self.window!r}; expected None or an integer from 1 to 2**62")
        if self.window is None and self.kind not in PROVEN_KINDS:
            raise InvalidInput(f"got no window for {self.kind}; expected one, or a kind of {PROVEN_KINDS}")
        if not 1 <= self.mu < math.inf:
            raise InvalidInput(f"got mu = {self.mu!r}; expected a factor of at least 1")
        randomised = self.kind == "RW"
        if randomised != (self.delta != 0) or (randomised and not LEAST_DELTA <= self.delta < 1):
            raise InvalidInput(
                f"got delta = {self.delta!r} for {self.kind}; expected 1e-13 <= delta < 1 for RW, else 0"
            )
        if not (0 <= self.site < 2**64 and 1 <= self.constant <= MOST_CONSTANT):
            raise InvalidInput(
                f"got the site {self.site!r} and the constant {self.constant!r}; expected a site below 2**64 "
                f"and a constant from 1 to {MOST_CONSTANT}"
            )

    def room(self, cells: int) -> int:
        """The memory in bytes of `cells` counters whose first level is full; see memory_limit.py. O(1)."""
        if self.kind == "EH":
            return 8 * cells * (exponential_histogram.most_buckets(self.eps)[0] + 1)
        if self.kind == "DW":
            return 8 * cells * deterministic_wave.slots_per_level(self.eps)
        if self.kind in ("SI", "PR"):
            return 8 * cells * (2 if self.kind == "PR" else 1)
        if self.kind != "RW":
            return sub_cells.SUB_CELL_BYTES * cells
        waves, most = randomized_wave.sizes(self.eps, self.delta, self.constant)
        return randomized_wave.ENTRY_BYTES * cells * waves * most

    @property
    def error(self) -> float:
        """The proven relative error of a count: eps for EH, DW and RW, 0 for PF, infinite for the others."""
        if self.kind in PROVEN_KINDS:
            return self.eps
        return 0.0 if self.kind == "PF" else math.inf

    def none(self) -> CounterState:
        """The state of counters without arrivals."""
        one_a_time, none = self.clock == "count", np.empty(0, np.int64)
        if self.kind == "RW":
            return randomized_wave.no_samples(self.eps, self.delta, self.constant)
        if self.kind in ("SI", "PR"):
            return Blocks(self.window or 0, self.kind == "PR", one_a_time, None, 0, none, none, 0)
        if self.kind in ("PF", "SP"):
            return SubCells(none, np.zeros(1, np.int64), none, none, none, one_a_time)
        return buckets.no_buckets()

    def buckets_of(self, cells: Ints, times: Ints, counts: Ints) -> Buckets:
        """The buckets of exactly these arrivals in new EH or DW counters; see whole_streams.py.

        cells, times, counts: shape (n,), in any order. O(n log n) time.
        """
        return whole_streams.buckets_of(cells, times, counts, self.eps, self.kind)

    def buckets_in_order(self, cells: Ints, times: Ints, counts: Ints, all_cells: int) -> Buckets:
        """The buckets of exactly these arrivals, at least one, in `all_cells` new EH or DW counters.

        cells, times, counts: as for CounterArrays.add. O(rows * n) time.
        """
        return whole_streams.buckets_in_order(cells, times, counts, all_cells, self.eps, self.kind)

    def counters(self, kept: CounterState, cells: int) -> CounterArrays:
        """Mutable counters of `cells` cells that start from the state `kept`."""
        if isinstance(kept, SampledWaves):
            return RandomizedWaves(kept, self.site, cells)
        if isinstance(kept, Blocks):
            return BlockCounters(kept, cells)
        if isinstance(kept, SubCells):
            window = self.window or 0
            least, mu = (self.eps * window, self.mu) if self.kind == "SP" else (0.0, 0.0)
            return SubCellCounters(kept, cells, window, least, mu)
        if self.kind == "DW":
            return DeterministicWaves(kept, self.eps, cells)
        return ExponentialHistograms(kept, self.eps, cells)
