"""The live side of frequencies: what the ledger's sketches and listings say of keys in a window.

Each ledger row is a cell of its own, a tick of a range of batches. Of a row whose tick the window has whole,
the sketch is a plain Count-Min; of one that is cut, its counters give the part. All of them share the row
hashes, so they add to the Count-Min of the window, and its lower bound fails with probability delta in all.

    certain   least <= count <= most: listings, and cells, which never count too little
    likely    likely <= count, with probability 1 - delta
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidemark.query.keys.key_windows import Cut, KeyWindow
from tidemark.sketches import ECM, FrequencyBounds, combine_frequencies
from tidemark.sketches.bounds.count_bounds import exact
from tidemark.warehouse.columns.keys import Key, Names, find_names, no_names, unify_names
from tidemark.warehouse.ledger.key_summaries import KeyPromise, digests
from tidemark.warehouse.ledger.live_summaries import LiveKeys

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
    """What the window has of one ledger row: its counts, whether that is all of the row, what they keep."""

    live: LiveKeys
    bounds: FrequencyBounds
    whole: bool
    eps: float

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
            bounds = FrequencyBounds(hashes, exact(one.cells))
            found.append(Part(one, bounds, whole=True, eps=hashes.eps))
        else:
            over_time = sketch(one)
            bounds = over_time.bounds(cut.since, cut.until)
            found.append(Part(one, bounds, whole=False, eps=over_time.point_eps))
    return found


def _holds(cut: Cut, one: LiveKeys) -> bool:
    return one.times is not None and cut.since <= one.times[0] and one.times[1] < cut.until


@dataclass(frozen=True, slots=True, eq=False)
class LiveSide:
    """The window's parts of the live side, laid out once for many questions.

    highest: (parts, cells), upper bounds of each part's cells; `together` is the Count-Min of all parts, None
    where there is none. names: ascending, all that some part lists; name i has the entries starts[i] to
    starts[i + 1] of owners (the part), known and most. floors: (parts,). rows: with a
    key, about; nulls: without one, of parts that the window has whole.
    """

    parts: tuple[Part, ...]
    highest: Ints
    together: FrequencyBounds | None
    names: Names
    starts: Ints
    owners: Ints
    known: Ints
    most: Ints
    floors: Ints
    rows: int
    nulls: int

    @classmethod
    def of(cls, parts: Sequence[Part], key: Key) -> LiveSide:
        """The parts laid out."""
        names, places = unify_names([no_names(key), *(part.live.names for part in parts)])
        code = np.concatenate(places)
        order = np.argsort(code, kind="stable")
        none = [np.empty(0, np.int64)]
        known = np.concatenate([*none, *(part.live.known for part in parts)])[order]
        slack = np.concatenate([*none, *(part.live.slack for part in parts)])[order]
        owners = np.repeat(np.arange(len(parts)), [len(part.live.known) for part in parts])[order]
        whole = np.array([part.whole for part in parts], dtype=bool)
        return cls(
            parts=tuple(parts),
            highest=np.array([part.bounds.cells.hi for part in parts]),
            together=combine_frequencies([part.bounds for part in parts]) if parts else None,
            names=names,
            starts=np.searchsorted(code[order], np.arange(len(names) + 1)),
            owners=owners,
            known=np.where(whole[owners], known, 0) if len(parts) else known,
            most=known + slack,
            floors=np.array([part.live.floor for part in parts], dtype=np.int64),
            rows=round(sum(part.rows for part in parts)),
            nulls=sum(part.live.nulls for part in parts if part.whole),
        )

    @property
    def eps(self) -> float:
        """What the estimates keep, as the sketches say it of themselves."""
        return max((part.eps for part in self.parts), default=0.0)

    @property
    def unseen(self) -> int:
        """How many rows a name may have that no part lists."""
        return int((self.floors - 1).sum())

    def row_bounds(self) -> tuple[int, int]:
        """The rows with a key, certainly and at most."""
        totals = [part.bounds.total() for part in self.parts]
        return sum(one.lo for one in totals), sum(one.hi for one in totals)

    def count(self, names: Names) -> LiveCounts:
        """What is known of the rows of names, ascending."""
        zero = np.zeros(len(names), np.int64)
        if self.together is None or not len(names):
            return LiveCounts(zero.astype(np.float64), zero, zero, zero)
        asked = digests(names)
        cells = self.together.hashes.cells_of(asked)
        highest = self.highest[:, cells].min(axis=1)  # (parts, names)
        most, least = np.minimum(highest, (self.floors - 1)[:, None]), np.zeros_like(highest)
        entries, column = self._entries(names)
        owners = self.owners[entries]
        most[owners, column] = np.minimum(highest[owners, column], self.most[entries])
        least[owners, column] = self.known[entries]
        low, high = least.sum(axis=0), most.sum(axis=0)
        found = self.together.points(asked)
        return LiveCounts(np.clip(found.estimate, low, high), low, high, np.clip(found.lo, low, high))

    def _entries(self, names: Names) -> tuple[Ints, Ints]:
        """All entries of the names, and of which name each is."""
        at = find_names(self.names, names)
        listed = np.flatnonzero(at >= 0)
        first, last = self.starts[at[listed]], self.starts[at[listed] + 1]
        lengths = last - first
        within = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        return np.repeat(first, lengths) + within, np.repeat(listed, lengths)
