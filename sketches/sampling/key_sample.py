"""A coordinated sample of keys: all keys whose hash is below a threshold, with their ticks and counts.

Model. Each key has a hash, a 64-bit number that depends on the key alone. Hashes of different keys are as
good as independent and uniform. A sample of a set of rows has

    hashes     of every key of the rows whose hash is below `threshold`
    entries    (tick, count) of each of these keys whose hash is below `detail` <= `threshold`: the number of
               its rows in each tick; or also the first and the last time of these rows

A sample is limited in keys and in entries (`SampleSize`). Hashes are taken in ascending order while they fit;
the threshold is the first hash that does not fit, or ALL. The same holds for the entries. So a sample is a
function of the set of rows: however rows are divided and in whatever order the parts are merged, the same
bytes result. For if a hash does not fit into the sample of a part, it does not fit into the sample of the
whole.

Estimates. Of the D keys of any subset of the rows, such as those of a window, the sample knows the S keys
below its threshold x (or below `detail`, where ticks are needed). With p = x / 2**64, S / p estimates D
without bias, and S is as good as binomial with D trials of probability p (trials.py). Hashes are those of
keys alone. So below the least of the thresholds of several samples, their union is the sample of the union of
their rows.

Source: P. Gibbons, "Distinct sampling for highly-accurate answers to distinct values queries and event
reports", VLDB 2001; Beyer, Haas, Reinwald, Sismanis and Gemulla, SIGMOD 2007, for the threshold that is the
first hash outside. The sample does what the randomised wave and BJKST of Singh's thesis (2015, chapter 2) do,
in any window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidemark.sketches.errors import BrokenInvariant, InvalidInput
from tidemark.sketches.hashing.row_hashes import Digests, splitmix
from tidemark.sketches.sampling import key_sample_bytes

ALL = 2**64  # the threshold of a sample that has all keys

Hashes = NDArray[np.uint64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SampleSize:
    """How many keys, and how many entries of keys, a sample may have."""

    keys: int
    entries: int


@dataclass(frozen=True, slots=True, eq=False)
class KeySample:
    """The sampled keys of some rows.

    threshold, detail: from 0 to ALL = 2**64; detail <= threshold.
    hashes: shape (k,), ascending; those of all keys of the rows that are below `threshold`.
    starts: shape (d + 1,). The entries of hash i are starts[i] to starts[i + 1] (exclusive), at least one;
        the first d hashes have entries, which are those below `detail`.
    ticks, counts: shape (e,). The ticks of a key ascend; counts are rows, at least 1.
    times: shape (e, 2), the first and the last time of the entry's rows, in microseconds; None if the
        sample keeps none.
    """

    threshold: int
    detail: int
    hashes: Hashes
    starts: Ints
    ticks: Ints
    counts: Ints
    times: Ints | None = None

    @classmethod
    def empty(cls, *, timed: bool = False) -> KeySample:
        """The sample of no rows."""
        none = np.empty(0, np.int64)
        times = np.empty((0, 2), np.int64) if timed else None
        return cls(ALL, ALL, np.empty(0, np.uint64), np.zeros(1, np.int64), none, none, times)

    @classmethod
    def of(
        cls, size: SampleSize, digests: Digests, ticks: Ints, counts: Ints, times: Ints | None = None
    ) -> KeySample:
        """The sample of rows: entry i stands for `counts[i]` rows of a key in a tick.

        digests: shape (e,), equal for equal keys and different for different ones; they need not be uniform.
        The entries may be in any order, and several may have one key and tick. O(e log e).
        """
        builder = SampleBuilder(size, timed=times is not None)
        names, codes = np.unique(digests, return_inverse=True)
        builder.add(names, codes, ticks, counts, times)
        return builder.finish()

    @property
    def keys(self) -> int:
        """The number of sampled keys."""
        return len(self.hashes)

    @property
    def has_all(self) -> bool:
        """Whether the sample has all keys and all of their entries."""
        return self.detail == ALL

    @property
    def detailed(self) -> Hashes:
        """The hashes that have entries."""
        return self.hashes[: len(self.starts) - 1]

    @property
    def entry_hashes(self) -> Hashes:
        """The hash of each entry, shape (e,)."""
        return np.repeat(self.detailed, np.diff(self.starts))

    @property
    def nbytes(self) -> int:
        """The memory of the arrays."""
        arrays = (self.hashes, self.starts, self.ticks, self.counts)
        return sum(array.nbytes for array in arrays) + (0 if self.times is None else self.times.nbytes)

    def check_invariants(self) -> None:
        """Raises BrokenInvariant unless the sample is what the module defines."""
        d, lengths = len(self.starts) - 1, np.diff(self.starts)
        next_detail = int(self.hashes[d]) if d < len(self.hashes) else ALL
        ok = (
            0 <= self.detail <= self.threshold <= ALL
            and bool(np.all(self.hashes[1:] > self.hashes[:-1]))
            and (not len(self.hashes) or int(self.hashes[-1]) < self.threshold)
            and (not d or int(self.hashes[d - 1]) < self.detail)
            and next_detail >= self.detail
            and self.starts[0] == 0
            and self.starts[-1] == len(self.ticks) == len(self.counts)
            and bool(np.all(lengths > 0))
            and bool(np.all(self.counts > 0))
        )
        if ok and len(self.ticks):
            rises = self.ticks[1:] > self.ticks[:-1]
            rises[self.starts[1:-1] - 1] = True
            ok = bool(np.all(rises))
        if ok and self.times is not None:
            ok = self.times.shape == (len(self.ticks), 2) and bool(
                np.all(self.times[:, 0] <= self.times[:, 1])
            )
        if not ok:
            raise BrokenInvariant("got a key sample whose hashes, thresholds and entries do not fit together")

    def to_bytes(self) -> bytes:
        """The stored form, see key_sample_bytes.py. Equal samples have equal bytes. O(k + e)."""
        return key_sample_bytes.encode(self)

    @classmethod
    def from_bytes(cls, data: bytes) -> KeySample:
        """The sample of stored bytes; CorruptSketch for damaged ones. O(len(data))."""
        sample = cls(*key_sample_bytes.decode(data))
        key_sample_bytes.checked(sample.check_invariants)
        return sample


class SampleBuilder:
    """Samples rows that are added in pieces of any length.

    It holds at most about twice the entries of `size` and the entries of one piece.
    """

    def __init__(self, size: SampleSize, *, timed: bool = False) -> None:
        if size.keys < 1 or size.entries < 1:
            raise InvalidInput(
                f"got a sample of {size.keys} keys and {size.entries} entries, expected 1 or more"
            )
        self._size, self._sample = size, KeySample.empty(timed=timed)
        self._waiting: list[KeySample] = []
        self._threshold = ALL

    def add(
        self, digests: Digests, codes: Ints, ticks: Ints, counts: Ints, times: Ints | None = None
    ) -> None:
        """Adds entries: entry i stands for `counts[i]` rows in `ticks[i]` of the key digests[codes[i]].

        digests: of different keys, shape (names,), each with at least one entry. The other parameters are
            those of `KeySample.of`.
        """
        hashes = splitmix(digests)
        self._threshold = _threshold_of(hashes, self._threshold, self._size.keys)
        if self._threshold < ALL:
            rows = np.flatnonzero((hashes < np.uint64(self._threshold))[codes])
            codes, ticks, counts = codes[rows], ticks[rows], counts[rows]
            times = None if times is None else times[rows]
        self._waiting.append(_sample_of(self._threshold, hashes[codes], ticks, counts, times))
        if sum(len(part.ticks) for part in self._waiting) > 2 * max(self._size.keys, self._size.entries):
            self._prune()

    def finish(self) -> KeySample:
        """The sample of all rows added so far."""
        self._prune()
        return self._sample

    def _prune(self) -> None:
        if self._waiting:
            self._sample = merge_samples([self._sample, *self._waiting], self._size)
            self._waiting = []
            self._threshold = self._sample.threshold


def merge_samples(samples: Sequence[KeySample], size: SampleSize) -> KeySample:
    """The sample of all rows of several samples of disjoint rows, at least one; all with times, or none.

    It is the sample of the rows if each input has at least the size of the result, and else the most that can
    be known. Counts of the same key and tick are added. O(n log n) for n hashes and entries.
    """
    if len({sample.times is None for sample in samples}) != 1:
        raise InvalidInput("got key samples with and without times, expected at least one sample, all alike")
    filled = [sample for sample in samples if len(sample.hashes) or sample.threshold < ALL] or samples[:1]
    if len(filled) == 1 and len(filled[0].hashes) <= size.keys and len(filled[0].ticks) <= size.entries:
        return filled[0]
    threshold = min(sample.threshold for sample in samples)
    detail = min(threshold, *(sample.detail for sample in samples))
    hashes = np.unique(np.concatenate([below(sample.hashes, threshold) for sample in samples]))
    parts = [_entries_below(sample, detail) for sample in samples]
    times = [part[3] for part in parts if part[3] is not None]
    merged = _summed(
        np.concatenate([part[0] for part in parts]),
        np.concatenate([part[1] for part in parts]),
        np.concatenate([part[2] for part in parts]),
        np.concatenate(times) if times else None,
    )
    return _pruned(threshold, detail, hashes, merged, size)


def below(hashes: Hashes, threshold: int) -> Hashes:
    """Those of ascending hashes that are less than a threshold of 0 to ALL."""
    if threshold >= ALL:
        return hashes
    return hashes[: int(hashes.searchsorted(np.uint64(threshold)))]


_Entries = tuple[Hashes, Ints, Ints, Ints | None]  # the hash, tick, count and times of each entry


def _entries_below(sample: KeySample, detail: int) -> _Entries:
    hashes = below(sample.detailed, detail)
    end = int(sample.starts[len(hashes)])
    times = None if sample.times is None else sample.times[:end]
    return (
        np.repeat(hashes, np.diff(sample.starts[: len(hashes) + 1])),
        sample.ticks[:end],
        sample.counts[:end],
        times,
    )


def _summed(hashes: Hashes, ticks: Ints, counts: Ints, times: Ints | None) -> _Entries:
    """The entries by hash and tick, ascending; those of one hash and tick are added up."""
    order = np.lexsort([ticks, hashes])
    hashes, ticks, counts = hashes[order], ticks[order], counts[order]
    new = np.ones(len(order), bool)
    new[1:] = (hashes[1:] != hashes[:-1]) | (ticks[1:] != ticks[:-1])
    times = None if times is None else times[order]
    if new.all():
        return hashes, ticks, counts, times
    first = np.flatnonzero(new)
    if times is not None:
        ends = np.minimum.reduceat(times[:, 0], first), np.maximum.reduceat(times[:, 1], first)
        times = np.stack(ends, axis=1)
    return hashes[first], ticks[first], np.add.reduceat(counts, first), times


def _threshold_of(hashes: Hashes, threshold: int, keys: int) -> int:
    """The threshold of different hashes, of which those below `threshold` count."""
    if threshold < ALL:
        hashes = hashes[hashes < np.uint64(threshold)]
    return threshold if len(hashes) <= keys else int(np.partition(hashes, keys)[keys])


def _sample_of(threshold: int, hashes: Hashes, ticks: Ints, counts: Ints, times: Ints | None) -> KeySample:
    """The sample that has all of these entries, whose hashes are below the threshold."""
    hashes, ticks, counts, times = _summed(hashes, ticks, counts, times)
    names, starts = np.unique(hashes, return_index=True)
    starts = np.append(starts, len(ticks)).astype(np.int64)
    return KeySample(threshold, threshold, names, starts, ticks, counts, times)


def _pruned(threshold: int, detail: int, hashes: Hashes, entries: _Entries, size: SampleSize) -> KeySample:
    """The sample with the hashes, and the entries of those below `detail`, that fit into the size."""
    if len(hashes) > size.keys:
        threshold = int(hashes[size.keys])
        hashes = hashes[: size.keys]
    detail = min(detail, threshold)
    entry_hashes, ticks, counts, times = entries
    detailed = below(hashes, detail)
    stops = entry_hashes.searchsorted(detailed, "right")
    fits = int(stops.searchsorted(size.entries, "right"))
    if fits < len(detailed):
        detail, stops = int(detailed[fits]), stops[:fits]
    end = int(stops[-1]) if len(stops) else 0
    starts = np.concatenate([np.zeros(1, np.int64), stops])
    return KeySample(
        threshold,
        detail,
        hashes,
        starts,
        ticks[:end],
        counts[:end],
        None if times is None else times[:end],
    )
