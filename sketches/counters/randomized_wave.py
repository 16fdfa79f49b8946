"""Randomised waves: counters that keep samples of the most recent arrivals at rates 1, 1/2, 1/4 ...

Model. Every arrival draws a random level: l or more with probability 2**-l. A wave keeps, for every l, the
last m = ceil(c / eps**2) arrivals of level l or more. To count the arrivals since t, it takes the least l
for which it holds fewer than m arrivals since t, so that no such arrival is missing; the estimate is their
number times 2**l. A counter is ceil(c * log2(1 / delta)) independent waves, and its estimate is their median:

    |estimate - x| <= eps * x        with probability at least 1 - delta, and exact while x < m.

c is 36 by worst-case analysis. The paper measures with 6: a sixth of the waves of a sixth of the size. In
practice that is no less accurate, but nothing is proved for it.

An arrival is stored once, with its level, while fewer than m later arrivals have that level or more. The
random draw of an arrival is a hash of (site, wave, cell, number of the arrival), so equal input leaves equal
waves. Merging concatenates the samples of each wave, sorts them by time, and prunes. It adds no error,
provided that the sites drew independent levels.

Cost: an update of n arrivals writes the samples of every wave anew, so it should have thousands of them.
Memory: ENTRY_BYTES for each arrival kept, at most m for each level, wave and cell.

Source: Gibbons and Tirthapura, SPAA 2002; merging as Papapetrou et al., section 5.2. We deviate: the number
of levels is not limited in advance, so all waves have the same levels and a merge draws no level again.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidemark.sketches.bounds.count_bounds import Counts, exact
from tidemark.sketches.counters.buckets import Ints
from tidemark.sketches.errors import BrokenInvariant, InvalidInput
from tidemark.sketches.hashing.row_hashes import splitmix, splitmix_int

MOST_DRAWS = 2**24  # random draws in one update with counts
ENTRY_BYTES = 17  # memory of one arrival in a wave: cell, time and level


@dataclass(frozen=True, slots=True, eq=False)
class WaveSample:
    """One wave of every cell: an entry for each arrival kept, sorted by cell, then in order of arrival.

    cells, times: int64, the cell and the time of each arrival.
    levels: uint8, the level that each arrival drew.
    """

    cells: Ints
    times: Ints
    levels: NDArray[np.uint8]


@dataclass(frozen=True, slots=True, eq=False)
class SampledWaves:
    """The state of randomised waves: the samples of all waves, as an immutable value.

    waves: the independent waves, at least one.
    eps: the relative error of an estimate.
    most: m in the module docstring, the number of arrivals that a wave keeps for each level and cell.
    drawn: the number of arrivals so far; it numbers the random draws.
    """

    waves: tuple[WaveSample, ...]
    eps: float
    most: int
    drawn: int

    def __len__(self) -> int:
        return sum(len(wave.cells) for wave in self.waves)

    def since(self, time: int, cells: int) -> Counts:
        """The number of arrivals at `time` or later in each of `cells` cells.

        lo and hi hold with probability 1 - delta. O(entries * levels) time.
        """
        if not len(self):
            return exact(np.zeros(cells, np.int64))
        # Every wave keeps the last arrival of each cell, so all waves have the same cells.
        occupied = np.unique(self.waves[0].cells)
        wave_estimates = np.stack([self._wave_estimates(wave, time, occupied) for wave in self.waves])
        estimate = np.zeros(cells)
        estimate[occupied] = np.median(wave_estimates, axis=0)
        is_exact = estimate < self.most
        lo = np.where(is_exact, estimate, np.maximum(self.most, np.ceil(estimate / (1 + self.eps))))
        hi = np.where(is_exact, estimate, np.floor(estimate / (1 - self.eps)))
        return Counts(estimate, lo.astype(np.int64), np.minimum(hi, 2.0**62).astype(np.int64))

    def drop_expired(self, horizon: int) -> "SampledWaves":
        """The samples of arrivals after `horizon`. O(entries)."""
        kept = [(wave, wave.times > horizon) for wave in self.waves]
        waves = tuple(WaveSample(one.cells[at], one.times[at], one.levels[at]) for one, at in kept)
        return SampledWaves(waves, self.eps, self.most, self.drawn)

    def _wave_estimates(self, wave: WaveSample, time: int, cells: Ints) -> NDArray[np.float64]:
        """The estimate of one wave for each of `cells`, which are the cells that it holds."""
        recent = wave.times >= time
        # The wave has all of these cells in this order, so a running count gives the index of each.
        cell_indices = np.cumsum(np.diff(wave.cells, prepend=cells[:1]) > 0)[recent]
        levels = wave.levels[recent]
        estimates = np.zeros(len(cells))
        unresolved = np.ones(len(cells), bool)
        level = 0
        while unresolved.any():
            sampled = np.bincount(cell_indices[levels >= level], minlength=len(cells))
            complete = unresolved & (sampled < self.most)
            estimates[complete] = sampled[complete] * 2.0**level
            unresolved &= ~complete
            level += 1
        return estimates


def no_samples(eps: float, delta: float, constant: int) -> SampledWaves:
    """The state of randomised waves without arrivals; see `sizes` for the number of waves."""
    no_entries = np.empty(0, np.int64)
    wave = WaveSample(no_entries, no_entries, np.empty(0, np.uint8))
    count, most = sizes(eps, delta, constant)
    return SampledWaves((wave,) * count, eps, most, 0)


def sizes(eps: float, delta: float, constant: int) -> tuple[int, int]:
    """(waves, m): the number of waves of a counter, and how many arrivals each wave keeps for a level."""
    return math.ceil(constant * math.log2(1 / delta)), math.ceil(constant / eps**2)


def merge_samples(parts: Sequence[SampledWaves]) -> SampledWaves:
    """The state of the union of disjoint streams. O(entries * log(entries)).

    parts: at least one, all with the same eps and number of waves, from different sites.
    """
    first = parts[0]
    waves = tuple(
        _merge_waves([part.waves[i] for part in parts], first.most) for i in range(len(first.waves))
    )
    return SampledWaves(waves, first.eps, first.most, sum(part.drawn for part in parts))


class RandomizedWaves:
    """The mutable counters: each update sorts its arrivals into the samples."""

    def __init__(self, kept: SampledWaves, site: int, cells: int) -> None:
        """Starts from the state `kept`; `site` is an integer below 2**64."""
        self._samples, self._site, self._cells = kept, site, cells

    def add(self, cells: Ints, times: Ints, counts: Ints) -> None:
        """Adds arrivals in order of time; see CounterArrays.add.

        An arrival of count c costs as much as c arrivals. Raises InvalidInput if the counts of one update sum
        to more than 2**24. O(e + cells) expected time in each wave, for e arrivals and entries together.
        """
        from tidemark.sketches.compiled.kernels import group_by_cell

        if len(counts):
            if counts.sum() > MOST_DRAWS:
                raise InvalidInput(
                    f"got {counts.sum()} arrivals in one update; expected at most 2**24, "
                    "because each draws a random level; use EH"
                )
            times, cells = np.repeat(times, counts), np.repeat(cells, counts, axis=1)
        samples, width = self._samples, self._cells // len(cells)
        numbers = np.arange(samples.drawn, samples.drawn + len(times), dtype=np.uint64)
        draws = splitmix(np.uint64(splitmix_int(self._site)) + numbers).view(np.int64)
        rows = [group_by_cell(row, i * width, width, times, draws) for i, row in enumerate(cells)]
        grouped_times, grouped_draws = (np.concatenate([row[part] for row in rows]) for part in (0, 1))
        ends = np.concatenate([row[2][1:] + i * len(times) for i, row in enumerate(rows)])
        arrivals = (grouped_times, grouped_draws, np.concatenate([[0], ends]))
        waves = tuple(
            _with_arrivals(wave, arrivals, splitmix_int(i + 1), samples.most)
            for i, wave in enumerate(samples.waves)
        )
        self._samples = SampledWaves(waves, samples.eps, samples.most, samples.drawn + len(times))

    def state(self) -> SampledWaves:
        """Their samples."""
        return self._samples


def _with_arrivals(wave: WaveSample, arrivals: tuple[Ints, Ints, Ints], salt: int, most: int) -> WaveSample:
    """The wave with grouped arrivals; see add_to_samples of the compiled loops."""
    from tidemark.sketches.compiled.samples import add_to_samples

    return WaveSample(
        *add_to_samples((wave.cells, wave.times, wave.levels), *arrivals, np.uint64(salt), most)
    )


def _merge_waves(parts: Sequence[WaveSample], most: int) -> WaveSample:
    cells, times = np.concatenate([p.cells for p in parts]), np.concatenate([p.times for p in parts])
    levels = np.concatenate([p.levels for p in parts])
    order = np.lexsort((times, cells))  # stable: for equal times the earlier part comes first
    none = np.empty(0, np.int64)
    starts = np.zeros(int(cells.max(initial=-1)) + 2, np.int64)
    return _with_arrivals(
        WaveSample(cells[order], times[order], levels[order]), (none, none, starts), 0, most
    )


def check_samples(samples: SampledWaves, cells: int, first: int, now: int) -> None:
    """Raises BrokenInvariant unless the samples are a state that waves can have. O(entries * log(entries)).

    cells: the number of cells. first, now: the times of the first and the last arrival, inclusive.
    """
    waves = samples.waves
    cell, times = np.concatenate([w.cells for w in waves]), np.concatenate([w.times for w in waves])
    out_of_range = (cell < 0) | (cell >= cells) | (times < first) | (times > now)
    # One number for each pair of wave and cell, so that all waves are checked together.
    wave_cell = cell + np.repeat(np.arange(len(waves)), [len(w.cells) for w in waves]) * cells
    steps = np.diff(wave_cell, prepend=-1)
    falls = np.diff(times, prepend=first) < 0
    if np.any(out_of_range | (steps < 0) | (falls & (steps == 0))):
        raise BrokenInvariant(
            f"got a wave out of order or range; expected cells from 0 to {cells - 1} in order and, in each, "
            f"times from {first} to {now} in order"
        )
    begins = np.flatnonzero(steps)
    # The last arrival of a cell is never pruned, so every wave has it, and all waves have the same cells.
    last = np.append(begins[1:], len(wave_cell)) - 1 if len(wave_cell) else begins
    cells_per_wave = len(begins) // len(waves)
    alike = cells_per_wave * len(waves) == len(begins)
    for last_values in (cell[last], times[last]):
        alike = alike and bool(np.all(last_values.reshape(len(waves), -1) == last_values[:cells_per_wave]))
    if not alike:
        raise BrokenInvariant(
            "got waves with different cells or last arrivals; expected the same in all waves"
        )
    levels = np.concatenate([w.levels for w in waves])
    if _is_overfull(levels, begins, samples.most):
        raise BrokenInvariant(
            f"got a wave with too many arrivals of a level; expected at most {samples.most} in each cell"
        )


def _is_overfull(levels: NDArray[np.uint8], begins: NDArray[np.intp], most: int) -> bool:
    """Whether an arrival is kept although `most` later ones of its wave and cell have its level or more.

    begins: the index of the first arrival of each wave and cell. Of the arrivals of one level, the oldest has
        the most arrivals after it, so only that one is checked.
    """
    lengths = np.diff(begins, append=len(levels))
    owners = np.repeat(np.arange(len(begins)), lengths)
    for level in np.flatnonzero(np.bincount(levels)):
        at_least = levels >= level
        levels, owners = levels[at_least], owners[at_least]
        of_level = np.flatnonzero(levels == level)
        oldest = of_level[np.flatnonzero(np.diff(owners[of_level], prepend=-1))]
        if np.any(np.searchsorted(owners, owners[oldest], side="right") - 1 - oldest >= most):
            return True
    return False
