"""The keys of a window as far as samples tell them: which keys it has below a threshold, and how many in all.

Each source of rows that overlaps the window (a run, or a ledger row) has a sample of its keys. The sources'
samples are those of one hash, so below the least of their thresholds their union is the sample of the window
(sketches/sampling/key_sample.py). Where the window cuts a tick, a key of history may or may not have rows in
the covered part. Of the live side, first and last times decide that for most keys.

    certain    keys that certainly have rows in the window
    possible   further keys, each with the chance that it has: 1 - (1 - share) ** rows, for the share of the
               tick that is covered

Some sources are known exactly: a run that lies in the window as a whole, a tick of a run, a ledger row whose
sample has all keys. The largest of them is the `base`. Only the keys outside of it are estimated. So the
error is that of a sample of the keys that the base does not have.

Worked example. A run that lies in the window has 1,000,000 keys; its sample has those below 0.01. A live
batch has 2,000 keys below 0.01, of which 1,900 are in the run's sample. Then about 100 / 0.01 = 10,000 keys
are new, and the window has about 1,010,000.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tidemark.query.keys.key_windows import KeyWindow, PartialTick
from tidemark.sketches.hashing.row_hashes import splitmix
from tidemark.sketches.sampling import ALL, KeySample
from tidemark.sketches.sampling.key_sample import Hashes, below
from tidemark.warehouse.columns.keys import Names
from tidemark.warehouse.integrity.digests import name_words
from tidemark.warehouse.ledger.live_summaries import LiveKeys
from tidemark.warehouse.projections.distinct_keys import DistinctKeys

_NO_HASHES = np.empty(0, np.uint64)
_NO_CHANCES = np.empty(0, np.float64)
_Possible = tuple[Hashes, NDArray[np.float64]]  # hashes and their chances


@dataclass(frozen=True, slots=True, eq=False)
class RunKeys:
    """The distinct keys of a run; entries are by tick, then by hash.

    keys, by_tick: exact numbers, of the run and of each of its `ticks`.
    extent: the first and the last tick that has keys; both 0 without keys.
    threshold, hashes: the sampled keys of the run, ascending.
    detail: below it, entries have ticks. Those of ticks[i] are starts[i] to starts[i + 1] (exclusive).
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

    @classmethod
    def of(cls, ticks: NDArray[np.int64], distinct: DistinctKeys) -> RunKeys:
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
        )

    def entries(self, first: int, stop: int) -> Hashes:
        """The hashes of the entries of ticks[first] to ticks[stop] (exclusive); those of a tick ascend."""
        return self.entry_hashes[self.starts[first] : self.starts[stop]]

    @property
    def nbytes(self) -> int:
        """The memory of the arrays."""
        arrays = (self.by_tick, self.hashes, self.starts, self.entry_hashes, self.entry_counts)
        return sum(int(array.nbytes) for array in arrays)


@dataclass(frozen=True, slots=True, eq=False)
class Base:
    """A part of the rows of a window that has exactly `keys` keys; `hashes` are those below `threshold`."""

    keys: int
    hashes: Hashes
    threshold: int


NO_BASE = Base(0, _NO_HASHES, ALL)


@dataclass(frozen=True, slots=True, eq=False)
class WindowKeys:
    """The keys of a window, as its sources tell them.

    threshold: below it, `certain` and `possible` have all keys of the window; 1 to ALL, which is 2**64.
    certain: ascending hashes; also some above the threshold, which certainly have rows, too.
    possible, chances: ascending hashes that are not certain, and their chances; shape (p,).
    base: the largest part of the window whose number of keys is known.
    least, most: certain bounds of the number of keys, both inclusive.
    """

    threshold: int
    certain: Hashes
    possible: Hashes
    chances: NDArray[np.float64]
    base: Base
    least: int
    most: int

    @property
    def probability(self) -> float:
        """The probability that a key is in the sample."""
        return self.threshold / ALL

    @property
    def weight(self) -> int:
        """The number of hashes."""
        return len(self.certain) + len(self.possible) + len(self.base.hashes)


@dataclass(slots=True)
class _Sources:
    """What the sources of a window say, added up.

    complete: the keys of the sources of which all keys are known. most: the keys of all others, at most.
    """

    threshold: int = ALL
    certain: list[Hashes] = field(default_factory=list)
    possible: list[_Possible] = field(default_factory=list)
    complete: list[Hashes] = field(default_factory=list)
    most: int = 0
    base: Base = NO_BASE

    def add(
        self,
        threshold: int,
        certain: Hashes,
        possible: Sequence[_Possible] = (),
        *,
        most: int,
        bases: Sequence[Base] = (),
    ) -> None:
        """Adds a source with at most `most` keys, of which those below the threshold are known."""
        self.threshold = min(self.threshold, threshold)
        self.certain.append(certain)
        self.possible += possible
        if threshold == ALL:
            self.complete += [certain, *(hashes for hashes, _ in possible)]
        else:
            self.most += most
        self.base = max([self.base, *bases], key=lambda base: base.keys)

    def window_keys(self) -> WindowKeys:
        """All sources as one."""
        certain, base = union(self.certain), self.base
        possible, chances = _chances(self.possible, certain)
        beside = np.setdiff1d(below(certain, base.threshold), base.hashes, assume_unique=True)
        return WindowKeys(
            threshold=self.threshold,
            certain=certain,
            possible=possible,
            chances=chances,
            base=base,
            least=max(len(certain), base.keys + len(beside)),
            most=len(union(self.complete)) + self.most,
        )


def name_hashes(names: Names) -> Hashes:
    """The hashes by which samples know keys, shape (names,)."""
    return splitmix(name_words(names)) if len(names) else _NO_HASHES


def union(parts: Sequence[Hashes]) -> Hashes:
    """The different hashes of all parts, ascending; fast where the parts ascend."""
    hashes = np.concatenate([_NO_HASHES, *parts])
    hashes.sort(kind="stable")  # it merges the parts, which ascend; np.unique would not
    new = np.ones(len(hashes), bool)
    np.not_equal(hashes[1:], hashes[:-1], out=new[1:])
    return hashes[new]


def _chances(parts: Sequence[_Possible], certain: Hashes) -> tuple[Hashes, NDArray[np.float64]]:
    """The possible keys that are not certain, and the chance that at least one of their sources has them."""
    if not parts:
        return _NO_HASHES, _NO_CHANCES
    hashes, places = np.unique(np.concatenate([part for part, _ in parts]), return_inverse=True)
    misses = np.ones(len(hashes))
    np.multiply.at(misses, places, 1 - np.concatenate([chances for _, chances in parts]))
    new = ~np.isin(hashes, certain, assume_unique=True)
    return hashes[new], 1 - misses[new]


def combine(
    runs: Sequence[RunKeys],
    live: Sequence[tuple[LiveKeys, PartialTick | None]],
    samples: Sequence[KeySample],
    window: KeyWindow,
    *,
    together: WindowKeys | None = None,
) -> WindowKeys:
    """The keys of a window.

    runs: those with rows in the window. live: the ledger rows that overlap it, see `overlapping_rows`.
    samples: the sample of each.
    together: the keys of further runs.
    """
    sources = _Sources()
    if together is not None:
        known = together.threshold, together.certain
        sources.add(*known, most=together.most, bases=[together.base])
    for run in runs:
        _add_run(sources, run, window)
    for (row, partial), sample in zip(live, samples, strict=True):
        _add_live(sources, row, sample, partial)
    return sources.window_keys()


def covers(window: KeyWindow, run: RunKeys) -> bool:
    """Whether all rows of the run that have a key lie in whole ticks of the window."""
    return window.whole is not None and (not run.keys or window.whole.covers(*run.extent))


def _add_run(sources: _Sources, run: RunKeys, window: KeyWindow) -> None:
    """Adds the rows of a run that are in the window."""
    whole = window.whole
    if covers(window, run):
        base = Base(run.keys, run.hashes, run.threshold)
        sources.add(run.threshold, run.hashes, most=run.keys, bases=[base])
        return
    certain, bases, most = _NO_HASHES, [], 0
    if whole is not None:
        inside = whole.slice_of(run.ticks)
        first, stop = inside.start, inside.stop
        parts = [run.entries(tick, tick + 1) for tick in range(first, stop)]
        certain = parts[0] if len(parts) == 1 else union(parts)
        most = int(run.by_tick[first:stop].sum())
        if first < stop:
            largest = first + int(run.by_tick[first:stop].argmax())
            in_tick = run.entries(largest, largest + 1)
            bases = [Base(int(run.by_tick[largest]), in_tick, run.detail)]
    possible: list[_Possible] = []
    for partial in window.partial_ticks:
        place = int(run.ticks.searchsorted(partial.tick))
        if place < len(run.ticks) and run.ticks[place] == partial.tick:
            counts = run.entry_counts[run.starts[place] : run.starts[place + 1]]
            chances: NDArray[np.float64] = 1 - (1 - partial.share) ** counts.astype(np.float64)
            possible.append((run.entries(place, place + 1), chances))
            most += int(run.by_tick[place])
    sources.add(run.detail, certain, possible, most=min(most, run.keys), bases=bases)


def _add_live(sources: _Sources, row: LiveKeys, sample: KeySample, partial: PartialTick | None) -> None:
    """Adds the rows of a ledger row that are in the window; `partial` is its tick, if partial."""
    if partial is None or sample.times is None:
        known = [Base(sample.keys, sample.hashes, ALL)] if sample.threshold == ALL else []
        sources.add(sample.threshold, sample.hashes, most=row.rows, bases=known)
        return
    inside, between = entries_within(sample, sample.times, partial)
    hashes = sample.entry_hashes
    chances: NDArray[np.float64] = 1 - (1 - partial.share) ** (sample.counts[between] - 2).astype(np.float64)
    sources.add(sample.detail, hashes[inside], [(hashes[between], chances)], most=row.rows)


def entries_within(
    sample: KeySample, times: NDArray[np.int64], partial: PartialTick
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which entries certainly have rows in the covered part of their tick, and which others may have some.

    times: the first and the last time of each entry, shape (e, 2).
    """
    first, last = times.T
    inside = partial.holds(first) | partial.holds(last)
    # Of the rows of a key, the first one is before the part of the tick and the last one after it.
    return inside, (first < partial.since) & (last >= partial.until) & (sample.counts > 2)
