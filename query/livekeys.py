"""The live side of frequencies: what the ledger's sketches and listings say of keys in a window.

Each ledger row is a cell of its own, a tick of a range of batches. Of a row whose tick the window has whole,
the sketch is a plain Count-Min; of one that is cut, its counters give the part. All of them share the row
hashes, so they add to the Count-Min of the window, and its lower bound fails with probability delta in all.

    certain   least <= count <= most: listings, and cells, which never count too little
    likely    likely <= count, with probability 1 - delta
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from query.keywindows import Cut, KeyWindow
from sketches import ECM, FrequencyBounds, combine_frequencies
from sketches.counts import exact
from warehouse.events import Batches
from warehouse.keys import Names
from warehouse.keysummaries import KeyPromise, digests, most_of
from warehouse.liverows import LiveKeys, read_sketch
from warehouse.storage import Store

KEPT = 2**22  # buckets of sketches that are kept, of 16 bytes each

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class LiveCounts:
    """Of names (k,): the estimate, certain bounds, and the likely lower bound."""

    estimate: NDArray[np.float64]
    least: Ints
    most: Ints
    likely: Ints


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """What the window has of one ledger row: its counts, and whether that is all of the row."""

    live: LiveKeys
    bounds: FrequencyBounds
    whole: bool

    @property
    def rows(self) -> float:
        """The rows with a key, about."""
        return self.live.rows if self.whole else float(self.bounds.total().estimate)


def parts_of(
    live: Sequence[LiveKeys], window: KeyWindow, promise: KeyPromise, sketch: Callable[[LiveKeys], ECM]
) -> list[Part]:
    """The window's part of each ledger row that has some; `sketch` reads that of a row that is cut."""
    cuts = {cut.tick: cut for cut in window.cuts}
    hashes = promise.hashes
    found = []
    for one in live:
        cut = cuts.get(one.tick)
        if cut is None:
            inside = window.whole is not None and not window.whole.misses(one.tick, one.tick)
        else:
            inside = one.times is not None and one.times[0] < cut.until and one.times[1] >= cut.since
        if not inside:
            continue
        if cut is None or _holds(cut, one):
            found.append(Part(one, FrequencyBounds(hashes, exact(one.cells)), whole=True))
        else:
            found.append(Part(one, sketch(one).bounds(cut.since, cut.until), whole=False))
    return found


def _holds(cut: Cut, one: LiveKeys) -> bool:
    return one.times is not None and cut.since <= one.times[0] and one.times[1] < cut.until


def count(parts: Sequence[Part], names: Names) -> LiveCounts:
    """What the parts say of names, ascending."""
    zero = np.zeros(len(names), np.int64)
    if not parts or not len(names):
        return LiveCounts(zero.astype(np.float64), zero, zero, zero)
    asked = digests(names)
    least, most = zero, zero
    for part in parts:
        known, listed = most_of(part.live, names)
        hi = part.bounds.points(asked).hi
        most = most + np.minimum(hi, listed)
        least = least + (known if part.whole else 0)
    together = combine_frequencies([part.bounds for part in parts]).points(asked)
    likely = np.clip(together.lo, least, most)
    return LiveCounts(np.clip(together.estimate, least, most), least, most, likely)


def listed(parts: Sequence[Part]) -> tuple[list[Names], int]:
    """The names that the parts list, and how many rows a name may have that none of them lists."""
    return [part.live.names for part in parts], sum(part.live.floor - 1 for part in parts)


class Sketches:
    """The sketches of ledger rows that a window cuts, read when first asked for; the newest are kept."""

    def __init__(self, store: Store) -> None:
        self._store, self._lock = store, threading.Lock()
        self._kept: OrderedDict[tuple[Batches, int], ECM] = OrderedDict()

    def of(self, live: LiveKeys) -> ECM:
        """The sketch of the row."""
        name = (live.batches, live.tick)
        with self._lock:
            if name in self._kept:
                self._kept.move_to_end(name)
                return self._kept[name]
        found = read_sketch(self._store, live)
        with self._lock:
            self._kept[name] = found
            while len(self._kept) > 1 and sum(len(one.counts.kept) for one in self._kept.values()) > KEPT:
                self._kept.popitem(last=False)
        return found
