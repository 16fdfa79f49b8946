"""Randomised waves: samples of the arrivals at halving rates, as many of the last as each rate may keep.

Model. Every arrival draws a level: l or more with probability 2**-l. A wave keeps, for every l, the last m
= ceil(c / eps**2) arrivals of level l or more. Asked for the arrivals since t, it takes the least l of
which it holds fewer than m since t, so that none of those is missing, and answers their number times 2**l.
A counter is ceil(c * log2(1 / delta)) independent waves, its answer their median:

    |estimate - x| <= eps * x        with probability at least 1 - delta, and exact while x < m.

c is 36 by worst-case analysis. The paper measures with 6: a sixth of the waves of a sixth of the size, no
less accurate in practice, and nothing proved.

An arrival is kept once, with its level, while fewer than m later ones have that level or more. The lot of
an arrival is a hash of (site, wave, cell, number of the arrival), so equal input leaves equal waves.
Merging joins the samples of each wave, in order of time, and prunes: no error is added, provided that sites
drew different lots.

Source: Gibbons and Tirthapura, SPAA 2002; merging as Papapetrou et al., section 5.2. We deviate: levels are
not limited beforehand, so that no wave has fewer than another and nothing is drawn again at a merge.
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

MOST_DRAWS = 2**24  # of one update with counts
ENTRY_BYTES = 17  # of an arrival in a wave: cell, time and level


@dataclass(frozen=True, slots=True, eq=False)
class WaveSample:
    """One wave of every cell, one entry an arrival: sorted by cell, then in order of arrival.

    cells, times: int64; levels: uint8, the level that each drew.
    """

    cells: Ints
    times: Ints
    levels: NDArray[np.uint8]


@dataclass(frozen=True, slots=True, eq=False)
class SampledWaves:
    """The waves of all cells. most: m; drawn: how many arrivals have drawn lots so far."""

    waves: tuple[WaveSample, ...]
    eps: float
    most: int
    drawn: int

    def __len__(self) -> int:
        return sum(len(wave.cells) for wave in self.waves)

    def since(self, time: int, cells: int) -> Counts:
        """The arrivals at `time` or later, for each of `cells` cells."""
        if not len(self):
            return exact(np.zeros(cells, np.int64))
        # Every wave keeps the last arrival of a cell, so all hold the same cells.
        held = np.unique(self.waves[0].cells)
        answers = np.stack([self._answers(wave, time, held) for wave in self.waves])
        estimate = np.zeros(cells)
        estimate[held] = np.median(answers, axis=0)
        known = estimate < self.most
        lo = np.where(known, estimate, np.maximum(self.most, np.ceil(estimate / (1 + self.eps))))
        hi = np.where(known, estimate, np.floor(estimate / (1 - self.eps)))
        return Counts(estimate, lo.astype(np.int64), np.minimum(hi, 2.0**62).astype(np.int64))

    def after(self, time: int) -> "SampledWaves":
        """What arrived after `time`."""
        kept = [wave.times > time for wave in self.waves]
        waves = tuple(_take(wave, rows) for wave, rows in zip(self.waves, kept, strict=True))
        return SampledWaves(waves, self.eps, self.most, self.drawn)

    def _answers(self, wave: WaveSample, time: int, cells: Ints) -> NDArray[np.float64]:
        recent = wave.times >= time
        # Every wave holds all of these cells, so theirs are counted through.
        cell, level = np.cumsum(np.diff(wave.cells, prepend=cells[:1]) > 0)[recent], wave.levels[recent]
        answers = np.zeros(len(cells))
        open_ = np.ones(len(cells), bool)
        at = 0
        while open_.any():
            held = np.bincount(cell[level >= at], minlength=len(cells))
            found = open_ & (held < self.most)
            answers[found] = held[found] * 2.0**at
            open_ &= ~found
            at += 1
        return answers


def none(eps: float, delta: float, constant: int) -> SampledWaves:
    """DeterministicWaves of no arrivals, as many as eps and delta ask for."""
    nothing = np.empty(0, np.int64)
    wave = WaveSample(nothing, nothing, np.empty(0, np.uint8))
    count, most = sizes(eps, delta, constant)
    return SampledWaves((wave,) * count, eps, most, 0)


def sizes(eps: float, delta: float, constant: int) -> tuple[int, int]:
    """How many waves a counter has, and m, how many arrivals each keeps of a level."""
    return math.ceil(constant * math.log2(1 / delta)), math.ceil(constant / eps**2)


def join(parts: Sequence[SampledWaves]) -> SampledWaves:
    """The waves of the union of disjoint streams; all parts have one eps and one number of waves."""
    first = parts[0]
    waves = tuple(_joined([part.waves[i] for part in parts], first.most) for i in range(len(first.waves)))
    return SampledWaves(waves, first.eps, first.most, sum(part.drawn for part in parts))


class RandomizedWaves:
    """DeterministicWaves that updates add to. Each update sorts what it brings into what is held."""

    __slots__ = ("_cells", "_samples", "_site")

    def __init__(self, kept: SampledWaves, site: int, cells: int) -> None:
        """Takes up `kept`; `site` is below 2**64."""
        self._samples, self._site, self._cells = kept, site, cells

    def add(self, cells: Ints, times: Ints, counts: Ints) -> None:
        """Adds arrivals in order of time: each to one cell of every row of `cells`; no counts: each one.

        An arrival of count c draws c lots, at the cost of c arrivals.
        """
        if len(counts):
            if counts.sum() > MOST_DRAWS:
                raise InvalidInput(
                    f"got {counts.sum()} arrivals at once; expected at most 2**24: each draws a lot; use EH"
                )
            times, cells = np.repeat(times, counts), np.repeat(cells, counts, axis=1)
        held = self._samples
        numbers = np.arange(held.drawn, held.drawn + len(times), dtype=np.uint64)
        lots = splitmix(np.uint64(splitmix_int(self._site)) + numbers)
        waves = []
        for i, wave in enumerate(held.waves):
            rows = [WaveSample(own, times, _levels(lots, own, splitmix_int(i + 1))) for own in cells]
            waves.append(_joined([wave, *rows], held.most))
        self._samples = SampledWaves(tuple(waves), held.eps, held.most, held.drawn + len(times))

    def kept(self) -> SampledWaves:
        """What they hold."""
        return self._samples


def _levels(lots: NDArray[np.uint64], cells: Ints, salt: int) -> NDArray[np.uint8]:
    """The number of zeros at the end of a hash of each lot: at least l in 2**-l of all."""
    own = splitmix(cells.astype(np.uint64) + np.uint64(salt))
    drawn = splitmix(lots ^ own)
    lowest = drawn & (~drawn + np.uint64(1))
    # A power of two is exact as a double, and 0 comes once in 2**64.
    return np.where(lowest == 0, 64, np.frexp(lowest.astype(np.float64))[1] - 1).astype(np.uint8)


def _joined(parts: Sequence[WaveSample], most: int) -> WaveSample:
    cells, times = np.concatenate([p.cells for p in parts]), np.concatenate([p.times for p in parts])
    levels = np.concatenate([p.levels for p in parts])
    order = np.lexsort((times, cells))  # stable: of equal times the earlier part comes first
    return _pruned(WaveSample(cells[order], times[order], levels[order]), most)


def _pruned(wave: WaveSample, most: int) -> WaveSample:
    """Keeps an arrival while fewer than `most` later ones of its cell have its level or more."""
    kept = np.ones(len(wave.cells), bool)
    for level in range(int(wave.levels.max(initial=0)) + 1):
        at = np.flatnonzero(wave.levels >= level)
        cell = wave.cells[at]
        later = np.searchsorted(cell, cell, side="right") - 1 - np.arange(len(at))
        kept[at[(later >= most) & (wave.levels[at] == level)]] = False
    return wave if kept.all() else _take(wave, kept)


def _take(wave: WaveSample, rows: NDArray[np.bool_]) -> WaveSample:
    return WaveSample(wave.cells[rows], wave.times[rows], wave.levels[rows])


def check_samples(samples: SampledWaves, cells: int, first: int, now: int) -> None:
    """Raises BrokenInvariant unless waves of `cells` cells can hold this, from `first` to `now`."""
    waves = samples.waves
    cell, times = np.concatenate([w.cells for w in waves]), np.concatenate([w.times for w in waves])
    out_of_range = (cell < 0) | (cell >= cells) | (times < first) | (times > now)
    # One number for a wave and a cell of it, so that all waves are looked at together.
    own = cell + np.repeat(np.arange(len(waves)), [len(w.cells) for w in waves]) * cells
    steps = np.diff(own, prepend=-1)
    falls = np.diff(times, prepend=first) < 0
    if np.any(out_of_range | (steps < 0) | (falls & (steps == 0))):
        raise BrokenInvariant("a wave must be in order of cell and time, within its range, and is not")
    begins = np.flatnonzero(steps)
    # No later arrival drives out the last one of a cell, so all waves have that, and the same cells.
    last = np.append(begins[1:], len(own)) - 1 if len(own) else begins
    in_each = len(begins) // len(waves)
    alike = in_each * len(waves) == len(begins)
    for at_last in (cell[last], times[last]):
        alike = alike and bool(np.all(at_last.reshape(len(waves), -1) == at_last[:in_each]))
    if not alike:
        raise BrokenInvariant("every wave must hold the last arrival of the same cells, and does not")
    levels = np.concatenate([w.levels for w in waves])
    if _overfull(levels, begins, samples.most):
        raise BrokenInvariant(f"a wave must keep at most {samples.most} arrivals of a level, and does not")


def _overfull(levels: NDArray[np.uint8], begins: NDArray[np.intp], most: int) -> bool:
    """Whether an arrival is kept although `most` later ones of its wave and cell have its level or more.

    begins: where the arrivals of each wave and cell begin. Of one level's the oldest has most behind it.
    """
    held = np.diff(begins, append=len(levels))
    owner = np.repeat(np.arange(len(begins)), held)
    for level in np.flatnonzero(np.bincount(levels)):
        some = levels >= level
        levels, owner = levels[some], owner[some]
        at = np.flatnonzero(levels == level)
        at = at[np.flatnonzero(np.diff(owner[at], prepend=-1))]
        if np.any(np.searchsorted(owner, owner[at], side="right") - 1 - at >= most):
            return True
    return False
