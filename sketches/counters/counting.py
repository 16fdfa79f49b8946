"""How arrivals in a window are counted: the choice of counter as a value, and what every counter can do.

Three kinds, by the paper's names: "EH" exponential histograms, "DW" deterministic waves, "RW" randomised
waves. Each has two forms. What updates write are `CounterArrays`, arrays in place. What is asked, merged and
stored is a value, `Buckets` for the two deterministic kinds and `SampledWaves` for the third.
"""

from dataclasses import dataclass
from typing import Literal, Protocol, get_args

from tidemark.sketches.counters import (
    buckets,
    deterministic_wave,
    exponential_histogram,
    randomized_wave,
    whole_streams,
)
from tidemark.sketches.counters.buckets import Buckets, Ints
from tidemark.sketches.counters.deterministic_wave import DeterministicWaves
from tidemark.sketches.counters.exponential_histogram import ExponentialHistograms
from tidemark.sketches.counters.randomized_wave import RandomizedWaves, SampledWaves
from tidemark.sketches.errors import InvalidInput

CounterKind = Literal["EH", "DW", "RW"]
Clock = Literal["time", "count"]
CounterState = Buckets | SampledWaves

# So that a difference of two times is no less exact than they are. Microseconds reach 146,000 years.
FARTHEST = 2**62

# Randomised waves are constant * log2(1 / delta) many: what stored bytes claim must not make billions.
LEAST_DELTA = 1e-13
MOST_CONSTANT = 1000


class CounterArrays(Protocol):
    """What updates write: the counters of one kind for all cells."""

    def add(self, cells: Ints, times: Ints, counts: Ints) -> None:
        """Adds arrivals in order of time, each to one cell of every row of `cells`; no counts: each one."""

    def kept(self) -> CounterState:
        """What they hold, as a value."""


@dataclass(frozen=True, slots=True)
class Counting:
    """How arrivals are counted: the kind of counter, its eps, the window (None: all) and the clock.

    delta and constant are those of randomised waves, see randomized_wave.py; site tells sketches apart that
    will be merged, so that no two of them draw the same lots.
    """

    kind: CounterKind
    eps: float
    window: int | None = None
    clock: Clock = "time"
    delta: float = 0.0
    constant: int = 36
    site: int = 0

    def __post_init__(self) -> None:
        if self.kind not in get_args(CounterKind) or self.clock not in get_args(Clock):
            raise InvalidInput(
                f"got the kind {self.kind!r} and the clock {self.clock!r}; "
                f"expected one of {get_args(CounterKind)} and one of {get_args(Clock)}"
            )
        if not 1e-6 <= self.eps < 1:
            raise InvalidInput(f"got eps = {self.eps!r} for the counters; expected 1e-6 <= eps < 1")
        whole = isinstance(self.window, int) and not isinstance(self.window, bool)
        if self.window is not None and not (whole and 1 <= self.window <= FARTHEST):
            raise InvalidInput(f"got the window {self.window!r}; expected None or an integer from 1 to 2**62")
        drawn = self.kind == "RW"
        if drawn != (self.delta != 0) or (drawn and not LEAST_DELTA <= self.delta < 1):
            raise InvalidInput(
                f"got delta = {self.delta!r} for {self.kind}; expected 1e-13 <= delta < 1 for RW, else 0"
            )
        if not (0 <= self.site < 2**64 and 1 <= self.constant <= MOST_CONSTANT):
            raise InvalidInput(
                f"got the site {self.site!r} and the constant {self.constant!r}; expected a site below 2**64 "
                f"and a constant from 1 to {MOST_CONSTANT}"
            )

    def room(self, cells: int) -> int:
        """The bytes that counters of `cells` cells take once each has filled its first level; see room.py."""
        if self.kind == "EH":
            return 8 * cells * (exponential_histogram.most_buckets(self.eps)[0] + 1)
        if self.kind == "DW":
            return 8 * cells * deterministic_wave.places(self.eps)
        waves, most = randomized_wave.sizes(self.eps, self.delta, self.constant)
        return randomized_wave.ENTRY_BYTES * cells * waves * most

    def none(self) -> CounterState:
        """What counters of no arrivals hold."""
        if self.kind == "RW":
            return randomized_wave.none(self.eps, self.delta, self.constant)
        return buckets.none()

    def buckets_of(self, cells: Ints, times: Ints, counts: Ints) -> Buckets:
        """What counters that are certain hold of these arrivals alone, given in any order."""
        ranks = deterministic_wave.kept_ranks if self.kind == "DW" else exponential_histogram.kept_ranks
        return whole_streams.buckets_of(cells, times, counts, self.eps, ranks)

    def counters(self, kept: CounterState, cells: int) -> CounterArrays:
        """CounterArrays of `cells` cells that go on from `kept`."""
        if isinstance(kept, SampledWaves):
            return RandomizedWaves(kept, self.site, cells)
        if self.kind == "DW":
            return DeterministicWaves(kept, self.eps, cells)
        return ExponentialHistograms(kept, self.eps, cells)
