"""The distinct keys of a run, and of its ticks inside a window, by its marks.

A run knows exactly how many keys it has in all, in each tick and, where ticks divide a day, in each day and
week. It also knows the keys whose hashes are below a threshold: `threshold` for the run, `detail` by tick,
and for each day a threshold above `detail`. So the keys of some ticks are known best if these ticks are whole
days: then the least of the thresholds of these days counts, else `detail`.

    bases   parts of the ticks with an exact number of keys: the largest week, day or tick
    exact   the base that has all keys of the ticks, if there is one
    most    the sum of the numbers of weeks, days and ticks that make up the ticks
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidemark.query.keys.key_windows import KeyWindow
from tidemark.sketches.sampling import ALL
from tidemark.sketches.sampling.key_sample import Hashes
from tidemark.warehouse.projections.distinct_marks import DistinctKeys
from tidemark.warehouse.projections.key_days import KeyDays, Periods

NO_HASHES = np.empty(0, np.uint64)
MOST_DAYS = 32  # days whose samples are united: a quarter of a million hashes, which take 10 milliseconds


def union(parts: Sequence[Hashes]) -> Hashes:
    """The different hashes of all parts, ascending; fast where the parts ascend."""
    hashes = np.concatenate([NO_HASHES, *parts])
    hashes.sort(kind="stable")  # it merges the parts, which ascend; np.unique would not
    new = np.ones(len(hashes), bool)
    np.not_equal(hashes[1:], hashes[:-1], out=new[1:])
    return hashes[new]


@dataclass(frozen=True, slots=True, eq=False)
class Base:
    """A part of the rows of a window that has exactly `keys` keys; `hashes` are those below `threshold`."""

    keys: int
    hashes: Hashes
    threshold: int


@dataclass(frozen=True, slots=True, eq=False)
class TickKeys:
    """The keys of some ticks of a run.

    threshold, hashes: below the threshold, all keys; also some above it. bases, exact, most: see the module.
    """

    threshold: int
    hashes: Hashes
    bases: Sequence[Base]
    most: int

    @property
    def exact(self) -> Sequence[Base]:
        """The base that has all keys, if one has."""
        return [base for base in self.bases if base.keys == self.most]


@dataclass(frozen=True, slots=True, eq=False)
class RunKeys:
    """The distinct keys of a run; entries are by tick, then by hash.

    keys, by_tick: exact numbers, of the run and of each of its `ticks`.
    extent: the first and the last tick that has keys; both 0 without keys.
    threshold, hashes: the sampled keys of the run, ascending.
    detail: below it, entries have ticks. The entries of ticks[i] are starts[i] to starts[i + 1] (exclusive).
    days: the numbers and samples of days and weeks, if they are known.
    """

    ticks: NDArray[np.int64]
    keys: int
    by_tick: NDArray[np.int64]
    extent: tuple[int, int]
    threshold: int
    hashes: Hashes
    detail: int
    starts: NDArray[np.int64]
    entry_hashes: Hashes
    entry_counts: NDArray[np.int64]
    days: KeyDays | None = None

    @classmethod
    def of(cls, ticks: NDArray[np.int64], distinct: DistinctKeys, days: KeyDays | None = None) -> RunKeys:
        """The keys of a run with these ticks."""
        sample = distinct.sample
        order = np.argsort(sample.ticks, kind="stable")
        by_tick = sample.ticks[order]
        used = ticks[distinct.by_tick > 0]
        return cls(
            ticks,
            distinct.keys,
            distinct.by_tick,
            (int(used[0]), int(used[-1])) if len(used) else (0, 0),
            sample.threshold,
            sample.hashes,
            sample.detail,
            np.append(by_tick.searchsorted(ticks), len(order)),
            sample.entry_hashes[order],
            sample.counts[order],
            days,
        )

    def entries(self, first: int, stop: int) -> Hashes:
        """The hashes of the entries of ticks[first] to ticks[stop] (exclusive); those of a tick ascend."""
        return self.entry_hashes[self.starts[first] : self.starts[stop]]

    def within(self, first: int, stop: int) -> TickKeys:
        """The keys of ticks[first] to ticks[stop] (exclusive)."""
        if self.days is None or first >= stop:
            return self._by_ticks(first, stop)
        whole = self.days.days.inside(first, stop, len(self.ticks))
        if whole.start >= whole.stop:
            return self._by_ticks(first, stop)
        return self._by_days(self.days, first, stop, whole)

    def _by_ticks(self, first: int, stop: int) -> TickKeys:
        """The keys of some ticks, of which none needs to be a whole day."""
        if first >= stop:
            return TickKeys(ALL, NO_HASHES, [Base(0, NO_HASHES, ALL)], 0)
        largest = first + int(self.by_tick[first:stop].argmax())
        base = Base(int(self.by_tick[largest]), self.entries(largest, largest + 1), self.detail)
        return TickKeys(self.detail, self._united(first, stop), [base], int(self.by_tick[first:stop].sum()))

    def _by_days(self, days: KeyDays, first: int, stop: int, whole: slice) -> TickKeys:
        """The keys of some ticks, of which some are the days `whole`."""
        size = len(self.ticks)
        start, end = int(days.days.firsts[whole.start]), _end(days.days, whole.stop, size)
        rest = int(self.by_tick[first:start].sum() + self.by_tick[end:stop].sum())
        sampled = not rest and whole.stop - whole.start <= MOST_DAYS and all(days.thresholds[whole])
        keys, most = days.days.keys, rest + int(days.days.keys[whole].sum())
        largest = whole.start + int(keys[whole].argmax())
        base_keys, base_days = int(keys[largest]), slice(largest, largest + 1)
        weeks = days.weeks.inside(first, stop, size)
        for week in range(weeks.start, weeks.stop):
            edges = int(days.weeks.firsts[week]), _end(days.weeks, week + 1, size)
            inside = slice(*(int(place) for place in days.days.firsts.searchsorted(edges)))
            most += int(days.weeks.keys[week]) - int(keys[inside].sum())
            if days.weeks.keys[week] > base_keys:
                base_keys, base_days = int(days.weeks.keys[week]), inside
        if sampled:
            threshold = min(days.thresholds[whole])
            hashes = _joined(days.samples[whole])
            of_base = hashes if base_days == whole else _joined(days.samples[base_days])
            return TickKeys(
                threshold, hashes, [Base(base_keys, of_base, min(days.thresholds[base_days]))], most
            )
        edges = int(days.days.firsts[base_days.start]), _end(days.days, base_days.stop, size)
        base = Base(base_keys, self._united(*edges), self.detail)
        return TickKeys(self.detail, self._united(first, stop), [base], most)

    def _united(self, first: int, stop: int) -> Hashes:
        """The hashes below `detail` of some ticks, at least one."""
        return _joined([self.entries(tick, tick + 1) for tick in range(first, stop)])

    @property
    def nbytes(self) -> int:
        """The memory of the arrays."""
        arrays = (self.by_tick, self.hashes, self.starts, self.entry_hashes, self.entry_counts)
        return sum(int(array.nbytes) for array in arrays)


def _joined(parts: Sequence[Hashes]) -> Hashes:
    """The different hashes of at least one part; of one part, the part itself."""
    return parts[0] if len(parts) == 1 else union(parts)


def _end(periods: Periods, number: int, ticks: int) -> int:
    """Where the ticks of all periods before this number end, of so many ticks of the run."""
    return int(periods.firsts[number]) if number < len(periods.firsts) else ticks


def covers(window: KeyWindow, run: RunKeys) -> bool:
    """Whether all rows of the run that have a key lie in whole ticks of the window."""
    return window.whole is not None and (not run.keys or window.whole.covers(*run.extent))
