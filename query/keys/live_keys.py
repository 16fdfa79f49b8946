"""Counts of keys on the live side, from the ledger's sketches and listings.

A ledger row is a tick of a range of batches. If the window covers the tick as a whole, the row gives a plain
Count-Min. If it covers only a part of the tick, the sliding-window counters of the row's ECM sketch give that
part. All rows of one key_eps share the row hashes, so they add up to one Count-Min of the window (O.
Papapetrou et al., VLDB Journal 2015, see DESIGN.md). Its lower bound fails with probability delta in all, not
once per row. Where `alter` changed key_eps while rows were live there are several such sums: their bounds
add, and one of them fails with probability delta times their number at most.

    certain   least <= count <= most, from listings and from cells, which never count too little
    likely    likely <= count, with probability 1 - delta, or 1 - delta times the number of sums

Worked example. Two ledger rows cover the window. The cells of the first give at most 9 rows of key A, and its
listing says known = 6 and slack = 1. The cells of the second give at most 5, and A is not in its listing,
whose floor is 4. So least = 6 + 0 and most = min(9, 6 + 1) + min(5, 4 - 1) = 10.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidemark.query.keys.key_windows import PartialTick
from tidemark.sketches import ECM, FrequencyBounds, combine_frequencies
from tidemark.sketches.bounds.count_bounds import Counts, exact
from tidemark.sketches.hashing.row_hashes import RowHashes
from tidemark.warehouse.columns.codes import Ints, expand_ranges
from tidemark.warehouse.columns.keys import Key, Names, find_names, no_names, unify_names
from tidemark.warehouse.ledger.key_summaries import KeyPromise, digests
from tidemark.warehouse.ledger.live_summaries import LiveKeys


@dataclass(frozen=True, slots=True, eq=False)
class LiveCounts:
    """Live rows of names, arrays of shape (k,).

    estimate: the sketches' estimate, within the certain bounds.
    least, most: certain bounds, both inclusive.
    likely: a lower bound with probability 1 - delta.
    """

    estimate: NDArray[np.float64]
    least: Ints
    most: Ints
    likely: Ints

    @classmethod
    def exact(cls, rows: Ints) -> LiveCounts:
        """Rows that were counted."""
        return cls(rows.astype(np.float64), rows, rows, rows)

    def __add__(self, other: LiveCounts) -> LiveCounts:
        """The rows in disjoint parts."""
        return LiveCounts(
            self.estimate + other.estimate,
            self.least + other.least,
            self.most + other.most,
            self.likely + other.likely,
        )


@dataclass(frozen=True, slots=True, eq=False)
class LivePart:
    """The part of a ledger row that lies in the window.

    bounds: its Count-Min cells with certified bounds.
    whole: whether all rows of the ledger row lie in the window.
    eps: the error of a point query, as a fraction of the rows that are counted for it.
    counted: the number of these rows: the window's, unless rows come after it. Then the sketch counts the
        rows from each end of the window on, and the count of the window is the difference.
    """

    live: LiveKeys
    bounds: FrequencyBounds
    whole: bool
    eps: float
    counted: float

    @property
    def rows(self) -> float:
        """The rows with a key; an estimate unless `whole`."""
        return self.live.rows if self.whole else float(self.bounds.total().estimate)

    @classmethod
    def entire(cls, row: LiveKeys, promise: KeyPromise) -> LivePart:
        """A ledger row whose rows all lie in the window."""
        hashes = promise.hashes_of(len(row.cells))
        return cls(row, FrequencyBounds(hashes, exact(row.cells)), True, hashes.eps, row.rows)

    @classmethod
    def cut(cls, row: LiveKeys, partial: PartialTick, sketch: ECM) -> LivePart:
        """The part of a ledger row that lies in the covered part of its tick."""
        ends = partial.since, partial.until
        counted = sum(sketch.total(end).estimate for end in ends if row.times and end <= row.times[1])
        return cls(row, sketch.bounds(*ends), False, sketch.point_eps, counted)

    @classmethod
    def unread(cls, row: LiveKeys, partial: PartialTick, promise: KeyPromise) -> LivePart:
        """As `cut`, if the sketch was not read: from none to all rows of the ledger row."""
        hashes = promise.hashes_of(len(row.cells))
        estimate = (row.cells * partial.share).astype(np.float64)
        cells = Counts(estimate, np.zeros_like(row.cells), row.cells)
        return cls(row, FrequencyBounds(hashes, cells), False, hashes.eps, row.rows)


def is_cut(row: LiveKeys, partial: PartialTick) -> bool:
    """Whether the covered part of the tick may lack rows of a ledger row."""
    return row.times is None or row.times[0] < partial.since or row.times[1] >= partial.until


@dataclass(frozen=True, slots=True)
class LiveTotals:
    """How many live rows a window has.

    rows: rows with a key; an estimate where a part is not whole.
    nulls: rows with a NULL key, of parts that are whole.
    eps: the error of a point query, as a fraction of the rows; 0 without parts.
    sums: how many sums of sketches there are, see the module.
    """

    rows: int
    nulls: int
    eps: float
    sums: int

    @classmethod
    def of(cls, parts: Sequence[LivePart]) -> LiveTotals:
        """The totals of these parts."""
        rows, eps = sum(part.rows for part in parts), max((part.eps for part in parts), default=0.0)
        others = sum(part.eps * (part.counted - part.rows) for part in parts)  # rows after the window
        return cls(
            rows=round(rows),
            nulls=sum(part.live.nulls for part in parts if part.whole),
            eps=eps + others / max(rows, 1.0),
            sums=len({part.bounds.hashes for part in parts}),
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Sum:
    """The parts of one key_eps.

    places: the indices of the parts, ascending.
    highest: shape (parts, cells), upper bounds of each part's cells.
    combined: the Count-Min of these parts.
    """

    places: Ints
    highest: Ints
    combined: FrequencyBounds

    @classmethod
    def all_of(cls, parts: Sequence[LivePart]) -> tuple[_Sum, ...]:
        places: dict[RowHashes, list[int]] = {}
        for place, part in enumerate(parts):
            places.setdefault(part.bounds.hashes, []).append(place)
        return tuple(
            cls(
                np.array(own),
                np.array([parts[place].bounds.cells.hi for place in own]),
                combine_frequencies([parts[place].bounds for place in own]),
            )
            for own in places.values()
        )


@dataclass(frozen=True, slots=True, eq=False)
class LiveSide:
    """The live side of a window as arrays, computed once for many questions.

    sums: the sums of the parts' sketches; none without parts.
    names: ascending, every name that at least one part lists. The listing entries of name i are the indices
        starts[i] to starts[i + 1], the end exclusive, of `owners`, `known` and `most`.
    owners: the part of each entry.
    known, most: certain bounds of the name's rows in that part.
    floors: shape (parts,). A name that a part does not list has at most floor - 1 rows in it.
    """

    parts: tuple[LivePart, ...]
    sums: tuple[_Sum, ...]
    names: Names
    starts: Ints
    owners: Ints
    known: Ints
    most: Ints
    floors: Ints

    @classmethod
    def of(cls, parts: Sequence[LivePart], key: Key) -> LiveSide:
        """The live side made of these parts."""
        names, places = unify_names([no_names(key), *(part.live.names for part in parts)])
        code = np.concatenate(places)
        order = np.argsort(code, kind="stable")
        empty = [np.empty(0, np.int64)]
        known = np.concatenate([*empty, *(part.live.known for part in parts)])[order]
        slack = np.concatenate([*empty, *(part.live.slack for part in parts)])[order]
        owners = np.repeat(np.arange(len(parts)), [len(part.live.known) for part in parts])[order]
        whole = np.array([part.whole for part in parts], dtype=bool)
        return cls(
            parts=tuple(parts),
            sums=_Sum.all_of(parts),
            names=names,
            starts=np.searchsorted(code[order], np.arange(len(names) + 1)),
            owners=owners,
            known=np.where(whole[owners], known, 0) if len(parts) else known,
            most=known + slack,
            floors=np.array([part.live.floor for part in parts], dtype=np.int64),
        )

    @property
    def unlisted_max(self) -> int:
        """The most rows that a name can have that no part lists."""
        return int((self.floors - 1).sum())

    @property
    def most_known(self) -> int:
        """The most rows that a name certainly has by the listings."""
        return int(np.add.reduceat(self.known, self.starts[:-1]).max()) if len(self.names) else 0

    def row_bounds(self) -> tuple[int, int]:
        """Certain bounds (least, most) of the number of rows with a key."""
        totals = [part.bounds.total() for part in self.parts]
        return sum(total.lo for total in totals), sum(total.hi for total in totals)

    def listed(self, names: Names) -> tuple[Ints, Ints]:
        """Certain bounds (least, most) of the live rows of ascending names, by the listings alone.

        O(names + listed keys); `count` is narrower.
        """
        entries, column = self._entries_of(names)
        least, most = np.zeros(len(names), np.int64), np.full(len(names), self.unlisted_max)
        np.add.at(least, column, self.known[entries])
        np.add.at(most, column, self.most[entries] - (self.floors[self.owners[entries]] - 1))
        return least, most

    def count(self, names: Names) -> LiveCounts:
        """The live counts of ascending names.

        O(parts * names), plus the hashes of the names.
        """
        zero = np.zeros(len(names), np.int64)
        if not self.sums or not len(names):
            return LiveCounts.exact(zero)
        hashed = digests(names)
        least, most = self.by_part(names, hashed)
        low, high = least.sum(axis=0), most.sum(axis=0)
        sketched = [one.combined.points(hashed) for one in self.sums]
        estimate, likely = sum(one.estimate for one in sketched), sum(one.lo for one in sketched)
        return LiveCounts(np.clip(estimate, low, high), low, high, np.clip(likely, low, high))

    def by_part(
        self, names: Names, hashed: NDArray[np.uint64], parts: Ints | None = None
    ) -> tuple[Ints, Ints]:
        """Certain bounds (least, most) of the rows of ascending names, in each part: (parts, names).

        hashed: the digests of the names. parts: the parts in question, ascending; None for all.
        """
        chosen = np.arange(len(self.parts)) if parts is None else parts
        if not len(chosen):
            none = np.zeros((0, len(names)), np.int64)
            return none, none
        highest = np.zeros((len(chosen), len(names)), np.int64)
        for one in self.sums:
            own = np.flatnonzero(np.isin(chosen, one.places, assume_unique=True))
            rows = np.searchsorted(one.places, chosen[own])
            cells = one.combined.hashes.cells_of(hashed)
            highest[own] = one.highest[rows[:, None, None], cells].min(axis=1)
        most, least = np.minimum(highest, (self.floors[chosen] - 1)[:, None]), np.zeros_like(highest)
        entries, column = self._entries_of(names)
        place = np.full(len(self.parts), -1)
        place[chosen] = np.arange(len(chosen))
        owners = place[self.owners[entries]]
        entries, column, owners = entries[owners >= 0], column[owners >= 0], owners[owners >= 0]
        most[owners, column] = np.minimum(highest[owners, column], self.most[entries])
        least[owners, column] = self.known[entries]
        return least, most

    def _entries_of(self, names: Names) -> tuple[Ints, Ints]:
        """The indices of all listing entries of the names, and the index of the name of each entry."""
        places = find_names(self.names, names)
        listed = np.flatnonzero(places >= 0)
        owners, entries = expand_ranges(self.starts[places[listed]], self.starts[places[listed] + 1])
        return entries, listed[owners]
