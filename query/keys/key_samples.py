"""The keys of a window by samples: its keys below a threshold, and the estimated number of all its keys.

Each source of rows that overlaps the window (a run, or a ledger row) has a sample of its keys. All samples
use one hash, so below the least of their thresholds their union is the sample of the window
(sketches/sampling/key_sample.py). Where the window cuts a tick, a key of history may or may not have rows in
the covered part. For the live side, first and last times decide that for most keys.

    certain    keys that certainly have rows in the window
    possible   further keys, each with the chance that it has: 1 - (1 - share) ** rows, for the share of the
               tick that is covered

Some sources are known exactly: a run that lies in the window as a whole, a tick, day or week of a run, a
ledger row whose sample has all keys. The largest of them is the `base`. Only the keys outside of it are
estimated. So only the keys that the base lacks add to the error. The `second` is the next largest source: of
its keys only the share that the base lacks is estimated.

Worked example. A run that lies in the window has 1,000,000 keys; its sample has those below 0.01. A live
batch has 2,000 keys below 0.01, of which 1,900 are in the run's sample. Then about 100 / 0.01 = 10,000 keys
are new, and the window has about 1,010,000.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tidemark.query.keys.key_windows import KeyWindow, PartialTick
from tidemark.query.keys.run_keys import NO_HASHES, Base, RunKeys, covers, union
from tidemark.sketches.hashing.row_hashes import splitmix
from tidemark.sketches.sampling import ALL, KeySample
from tidemark.sketches.sampling.key_sample import Hashes, below
from tidemark.warehouse.columns.keys import Names
from tidemark.warehouse.integrity.digests import name_words
from tidemark.warehouse.ledger.live_summaries import LiveKeys

_Possible = tuple[Hashes, NDArray[np.float64]]  # hashes and their chances
SampledRow: TypeAlias = tuple[LiveKeys, PartialTick | None, KeySample]  # its tick, if the window cuts it

NO_BASE = Base(0, NO_HASHES, ALL)


@dataclass(frozen=True, slots=True, eq=False)
class WindowKeys:
    """The keys of a window, as its sources tell them.

    threshold: below it, `certain` and `possible` have all keys of the window; 1 to ALL, which is 2**64.
    certain: ascending hashes; also some above the threshold, which certainly have rows, too.
    possible, chances: ascending hashes that are not certain, and their chances; shape (p,).
    base: the largest part of the window whose number of keys is known.
    exact: the two largest sources of which the number of keys is known, most keys first.
    sources: the number of sources that have keys.
    least, most: certain bounds of the number of keys, both inclusive.
    """

    threshold: int
    certain: Hashes
    possible: Hashes
    chances: NDArray[np.float64]
    base: Base
    least: int
    most: int
    exact: tuple[Base, ...] = ()
    sources: int = 0

    @property
    def probability(self) -> float:
        """The probability that a key is in the sample."""
        return self.threshold / ALL

    @property
    def second(self) -> Base | None:
        """The largest source, other than the base, of which the number of keys is known."""
        return next((source for source in self.exact if source is not self.base), None)

    @property
    def has_others(self) -> bool:
        """Whether there are more sources than the base and the second."""
        return self.sources > (self.base in self.exact) + (self.second is not None)

    @property
    def weight(self) -> int:
        """The number of hashes, and 256 more for all else."""
        of_base = 0 if self.base.hashes is self.certain else len(self.base.hashes)
        return len(self.certain) + len(self.possible) + of_base + 2**8


@dataclass(slots=True)
class _Sources:
    """The facts that the sources of a window give, added up.

    complete: the keys of the sources of which all keys are known. most: the most keys of all others.
    """

    threshold: int = ALL
    certain: list[Hashes] = field(default_factory=list)
    possible: list[_Possible] = field(default_factory=list)
    complete: list[Hashes] = field(default_factory=list)
    most: int = 0
    base: Base = NO_BASE
    exact: list[Base] = field(default_factory=list)
    count: int = 0

    def add(
        self,
        threshold: int,
        certain: Hashes,
        possible: Sequence[_Possible] = (),
        *,
        most: int,
        bases: Sequence[Base] = (),
        exact: Sequence[Base] = (),
        count: int = 1,
    ) -> None:
        """Adds a source with at most `most` keys, of which those below the threshold are known.

        exact: the source itself if its number of keys is known; several if it is `count` sources.
        """
        if not most:
            return
        self.threshold = min(self.threshold, threshold)
        self.certain.append(certain)
        self.possible += possible
        if threshold == ALL:
            self.complete += [certain, *(hashes for hashes, _ in possible)]
        else:
            self.most += most
        self.base = max([self.base, *bases, *exact], key=lambda base: base.keys)
        self.exact += exact
        self.count += count

    def window_keys(self) -> WindowKeys:
        """All sources as one."""
        certain, base = self.certain[0] if len(self.certain) == 1 else union(self.certain), self.base
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
            exact=tuple(sorted(self.exact, key=lambda source: -source.keys)[:2]),
            sources=self.count,
        )


def name_hashes(names: Names) -> Hashes:
    """The hashes by which samples know keys, shape (names,)."""
    return splitmix(name_words(names)) if len(names) else NO_HASHES


def _chances(parts: Sequence[_Possible], certain: Hashes) -> tuple[Hashes, NDArray[np.float64]]:
    """The possible keys that are not certain, and the chance that at least one of their sources has them."""
    if not parts:
        return NO_HASHES, np.empty(0)
    hashes, places = np.unique(np.concatenate([part for part, _ in parts]), return_inverse=True)
    misses = np.ones(len(hashes))
    np.multiply.at(misses, places, 1 - np.concatenate([chances for _, chances in parts]))
    new = ~np.isin(hashes, certain, assume_unique=True)
    return hashes[new], 1 - misses[new]


def combine(
    runs: Sequence[RunKeys],
    live: Sequence[SampledRow],
    window: KeyWindow,
    *,
    together: WindowKeys | None = None,
    unread: int = 0,
) -> WindowKeys:
    """The keys of a window.

    runs: the runs with rows in the window. live: the ledger rows that overlap it, with their samples.
    together: the keys of further runs. unread: the number of rows of which no key is known.
    """
    sources = _Sources()
    if together is not None:
        known = together.threshold, together.certain
        sources.add(
            *known,
            most=together.most,
            bases=[together.base],
            exact=together.exact,
            count=together.sources,
        )
    for run in runs:
        _add_run(sources, run, window)
    for row in live:
        _add_live(sources, *row)
    sources.add(0, NO_HASHES, most=unread)
    return sources.window_keys()


def _add_run(sources: _Sources, run: RunKeys, window: KeyWindow) -> None:
    """Adds the rows of a run that are in the window."""
    if covers(window, run):
        base = Base(run.keys, run.hashes, run.threshold)
        sources.add(run.threshold, run.hashes, most=run.keys, exact=[base])
        return
    inside = slice(0, 0) if window.whole is None else window.whole.slice_of(run.ticks)
    part = run.within(inside.start, inside.stop)
    threshold, most, exact = part.threshold, part.most, part.exact
    possible: list[_Possible] = []
    for partial in window.partial_ticks:
        place = int(run.ticks.searchsorted(partial.tick))
        if place < len(run.ticks) and run.ticks[place] == partial.tick:
            counts = run.entry_counts[run.starts[place] : run.starts[place + 1]]
            chances: NDArray[np.float64] = 1 - (1 - partial.share) ** counts.astype(np.float64)
            possible.append((run.entries(place, place + 1), chances))
            threshold, most, exact = min(threshold, run.detail), most + int(run.by_tick[place]), ()
    sources.add(threshold, part.hashes, possible, most=min(most, run.keys), bases=part.bases, exact=exact)


def _add_live(sources: _Sources, row: LiveKeys, partial: PartialTick | None, sample: KeySample) -> None:
    """Adds the rows of a ledger row that are in the window; `partial` is its tick, if partial."""
    if partial is None or sample.times is None:
        known = [Base(sample.keys, sample.hashes, ALL)] if sample.threshold == ALL else []
        sources.add(sample.threshold, sample.hashes, most=row.rows, exact=known)
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
