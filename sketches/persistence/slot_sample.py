"""The number of different slots of an item: a mergeable sample of them, exact below its size.

Model. Each slot of an item has a hash in (0, 1), see pair_hashes.py. For a fixed window a sample of size s
keeps the s slots with the smallest hashes. For a sliding window it keeps every slot that fewer than s newer
slots with smaller hashes follow: in whichever suffix of time, the s smallest are then among the kept ones.
The sample of a union of streams is made from the union of their samples. Since slots are a set, a slot that
several sites observed counts once.

Estimate. Let D be the number of different slots of the window, and v the s-th smallest of their hashes:

    D' = D                  if fewer than s slots of the window are kept: then all of them are
    D' = (s - 1) / v        otherwise

Guarantee. For 0 < eps < 1, with x(eps) = ln(1 + eps) - eps / (1 + eps),

    D' > (1 + eps) * D      with probability at most exp(-(s - 1) * x(eps))
    D' < (1 - eps) * D      with probability at most exp(-(s - 1) * x(eps))

Proof. D' >= (1 + eps) * D means that at least s of D uniform hashes are at most (s - 1) / ((1 + eps) * D):
a binomial number of mean u = (s - 1) / (1 + eps) reaches (1 + eps) * u, for which Chernoff's bound is
exp(-u * ((1 + eps) * ln(1 + eps) - eps)). D' <= (1 - eps) * D means that one of mean u = (s - 1) / (1 - eps)
is at most (1 - eps) * u, of probability exp(-u * ((1 - eps) * ln(1 - eps) + eps)), which is smaller.

So s = 1 + ln(1 / delta) / x(eps), about 2 * ln(1 / delta) / eps**2, keeps each side to delta. The thesis
wants both sides together within delta, but each of its proofs uses one side. With s = n + 1 no window of n
slots fills a sample, and the sample is the exact set of slots.

Choice. The thesis takes the counters of Gibbons and Tirthapura (SPAA 2001 and 2002), which sample at the
rates 1, 1/2, 1/4 ... and so keep from half a sample to a whole one; the smallest hashes are always a whole
one. The thesis names this alternative itself (section 3.5). The same slots give the same estimate, however
they were divided among sites, so that one site and many sites report the same items.

Cost: a slot is added in amortised O(log s). Memory: a sample keeps s slots of a fixed window, and in
expectation s * (1 + ln(D / s)) of a sliding one; until the next compaction as many again.

Source: Bar-Yossef, Jayram, Kumar, Sivakumar and Trevisan, "Counting distinct elements in a data stream",
RANDOM 2002, algorithm 1; the estimate as Beyer, Haas, Reinwald, Sismanis and Gemulla, SIGMOD 2007.
"""

import math
from bisect import bisect_left
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidemark.sketches.errors import BrokenInvariant
from tidemark.sketches.hashing.few_smaller import few_smaller_before
from tidemark.sketches.persistence.pair_hashes import Floats, pair_hashes

Ints = NDArray[np.int64]

_LEAST_LIMIT = 16  # slots that are added before a sample is first compacted


def sample_size(eps: float, delta: float) -> int:
    """The least s of the module docstring that keeps eps with probability 1 - delta on each side."""
    return 1 + math.ceil(math.log(1 / delta) / (math.log1p(eps) - eps / (1 + eps)))


@dataclass(frozen=True, slots=True)
class Sampling:
    """Which slots are kept; all sites share it.

    size: s in the module docstring, at least 2.
    sliding: whether the window slides.
    salt: of the hash, see pair_hashes.py.
    """

    size: int
    sliding: bool
    salt: int

    def kept(self, digest: int, slots: Ints) -> Ints:
        """Those of `slots` that a sample keeps. O(slots * log(size)).

        slots: ascending, none before the window.
        """
        if len(slots) < self.size:
            return slots
        hashes = self.hashes(digest, slots)
        if not self.sliding:
            return np.sort(slots[np.argpartition(hashes, self.size - 1)[: self.size]])
        return slots[few_smaller_before(hashes[::-1], self.size)[::-1]]

    def estimate(self, digest: int, slots: Ints) -> float:
        """D': how many slots the window has of which `slots`, in any order, are kept. O(slots)."""
        if len(slots) < self.size:
            return float(len(slots))
        return (self.size - 1) / float(np.partition(self.hashes(digest, slots), self.size - 1)[self.size - 1])

    def hashes(self, digest: int, slots: Ints) -> Floats:
        """The hash of each slot of the item. O(slots)."""
        return pair_hashes(np.array([digest], np.uint64), slots, self.salt)


class SlotSample:
    """The sample of the slots of one item at one site; it grows in place."""

    __slots__ = ("_digest", "_limit", "_sampling", "_slots")

    def __init__(self, digest: int, sampling: Sampling) -> None:
        """A sample without slots, of the item `digest`."""
        self._digest, self._sampling = digest, sampling
        self._slots: list[int] = []
        self._limit = _LEAST_LIMIT

    @property
    def newest(self) -> int:
        """The newest slot, which is always kept in a sliding window; -1 without slots."""
        return self._slots[-1] if self._slots else -1

    def insert(self, slot: int, start: int) -> None:
        """Adds a slot, at least the newest one, of a window that begins with `start`. Amortised O(log s)."""
        slots = self._slots
        if not slots or slots[-1] < slot:
            slots.append(slot)
            if len(slots) > self._limit:
                self.kept(start)

    def kept(self, start: int) -> Ints:
        """The slots kept of the window that begins with `start`, ascending; all others are dropped."""
        live = np.array(self._slots[bisect_left(self._slots, start) :], np.int64)
        kept = self._sampling.kept(self._digest, live)
        self._slots = kept.tolist()
        self._limit = max(_LEAST_LIMIT, 2 * len(kept))
        return kept

    def check_invariants(self, start: int, now: int) -> None:
        """Raises BrokenInvariant unless the slots are in order, up to `now`, and as few as a sample keeps."""
        slots = np.array(self._slots, np.int64)
        if len(slots) > self._limit or np.any(np.diff(slots, append=now + 1) <= 0) or np.any(slots < 0):
            raise BrokenInvariant(
                f"got the slots {slots} of item {self._digest}; expected at most {self._limit}, ascending, "
                f"from 0 to {now}"
            )
        kept = self.kept(start)
        if len(kept) and len(self._sampling.kept(self._digest, kept)) != len(kept):
            raise BrokenInvariant(f"got a sample of item {self._digest} that compacting makes smaller again")
