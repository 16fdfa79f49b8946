"""The keys of warehouses that do not answer, from what this process read of them last; nothing is read.

History. The rows of a name in a run are bounded by data in memory. If the run's lists of heavy keys are in
memory, listed_keys.py has the bounds. Else the marks give bounds. Block b begins at the mark keys[b] and has
the rows from counts_before[b] to counts_before[b + 1]. Let a name be in the blocks first..last at most. Then

    rows of the blocks first + 1 .. last - 1  <=  rows of the name  <=  rows of the blocks first .. last

A name that is the key of two marks or more is *listed*. Any other name has rows in two neighbouring blocks at
most, so no more than the greatest sum of two of them. A mark of text may be a shortened name. But if two
marks are equal, the name between them is not shorter, so they are that name.

If a window covers a part of a run, the lower bound is 0, and the upper one is at most the number of the run's
rows in the window. Removed rows that runs still have are known by name, and are subtracted.

The live side comes from the ledger rows. If the window cuts a tick whose sketch was not read, between none
and all of the tick's rows are in the window.

Worked example. A run has blocks with the marks A, B, B and C, and 10 rows in each. B is listed: the block of
its first mark has only rows of B, the blocks of A and of its last mark may have some. So B has 10 to 30 rows.
C has at most 20, and so has any other name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tidemark.query.keys.key_blocks import KeyHistory, KeyShare, block_ranges, rows_of_each
from tidemark.query.keys.listed_keys import ListedKeys
from tidemark.query.keys.live_keys import LiveCounts, LiveSide, LiveTotals
from tidemark.warehouse.columns.codes import Ints
from tidemark.warehouse.columns.keys import Key, Names, find_names, name_at, no_names, take_names, unify_names
from tidemark.warehouse.columns.ticks import ALL_TIME


def joined_names(parts: Sequence[Names]) -> Names:
    """The names of all parts, ascending, and no others."""
    names, codes = unify_names(parts)
    return take_names(names, np.unique(np.concatenate(codes)))


@dataclass(frozen=True, slots=True, eq=False)
class UnreadRun:
    """A run of a window. lists: its listed keys in the window; None if these were not read."""

    share: KeyShare
    lists: ListedKeys | None

    @property
    def names(self) -> Names:
        """The listed names, ascending."""
        if self.lists is not None:
            return self.lists.names
        keys = self.share.marks.keys
        _, (codes,) = unify_names([keys])
        begins = np.append(True, np.diff(codes) > 0)
        again = np.append(np.diff(codes) == 0, False)
        return take_names(keys, np.flatnonzero(begins & again)) if len(keys) else keys

    @property
    def unlisted_max(self) -> int:
        """The most rows of a name that is not listed."""
        if self.lists is not None:
            return self.lists.unlisted_max
        rows = np.diff(self._edges)
        return min(self.share.rows, int((rows[:-1] + rows[1:]).max(initial=int(rows.max(initial=0)))))

    def bounds(self, names: Names) -> tuple[Ints, Ints]:
        """Certain bounds (least, most) of the rows of names in the window, both of shape (names,)."""
        least, most = np.zeros(len(names), np.int64), np.full(len(names), self.unlisted_max, np.int64)
        if self.lists is not None:
            places = find_names(self.lists.names, names)
            entries = places[places >= 0]
            least[places >= 0] = self.lists.rows[entries]
            most[places >= 0] = self.lists.rows[entries] + self.lists.slack[entries]
            return least, most
        edges, whole = self._edges, self.share.whole
        scalars = [name_at(names, i) for i in range(len(names))]
        for i, (first, last) in enumerate(block_ranges(self.share.marks, scalars, ALL_TIME)):
            most[i] = min(self.share.rows, edges[last + 1] - edges[first]) if last >= first else 0
            if whole and last > first:
                least[i] = edges[last] - edges[first + 1]
        return least, most

    @property
    def _edges(self) -> Ints:
        """The rows before each block, and all rows."""
        marks = self.share.marks
        return np.append(marks.counts_before, marks.count)


@dataclass(frozen=True, slots=True, eq=False)
class UnreadHistory:
    """The history of a warehouse in a window. history: the facts in the marks; its blocks are not read."""

    history: KeyHistory
    runs: tuple[UnreadRun, ...]

    def bounds(self, names: Names) -> tuple[Ints, Ints]:
        """Certain bounds (least, most) of the rows of ascending names."""
        found = [run.bounds(names) for run in self.runs]
        zeros = np.zeros(len(names), np.int64)
        least, most = (sum((one[end] for one in found), zeros) for end in (0, 1))
        kept = self.history.kept
        gone = zeros if kept is None else rows_of_each(kept, names)
        return np.maximum(least - gone, 0), np.maximum(most - gone, 0)


@dataclass(frozen=True, eq=False)
class SilentKeys:
    """The known facts about the keys of a window in the warehouses that do not answer.

    sites: their names. key: the key. live: their live side. totals: how many live rows they have.
    whole: the history of the window's whole ticks, of each warehouse.
    partial: the history of each partial tick, with the share of it that the window covers.
    """

    sites: tuple[str, ...]
    key: Key
    live: LiveSide
    totals: LiveTotals
    whole: Sequence[UnreadHistory]
    partial: Sequence[tuple[UnreadHistory, float]]

    @property
    def told(self) -> str:
        """Which warehouses do not answer, in words."""
        return (
            f"the {'warehouse' if len(self.sites) == 1 else 'warehouses'} {', '.join(map(repr, self.sites))} "
            + ("does not answer" if len(self.sites) == 1 else "do not answer")
        )

    @property
    def _histories(self) -> list[UnreadHistory]:
        return [*self.whole, *(one for one, _ in self.partial)]

    @cached_property
    def names(self) -> Names:
        """The names that a run or a ledger row lists, ascending."""
        listed = [run.names for one in self._histories for run in one.runs]
        return joined_names([no_names(self.key), self.live.names, *listed])

    @cached_property
    def unlisted_max(self) -> int:
        """The most rows of a name that is not among `names`."""
        runs = (run.unlisted_max for one in self._histories for run in one.runs)
        return sum(runs) + self.live.unlisted_max

    def listed(self, names: Names) -> tuple[Ints, Ints]:
        """Certain bounds (least, most) of the rows of ascending names; `counts` is narrower."""
        (least, most), (live_least, live_most) = self._in_history(names), self.live.listed(names)
        return least + live_least, most + live_most

    def counts(self, names: Names, *, exact: bool) -> LiveCounts:
        """The rows of ascending names; exact: the likely lower bound is the certain one."""
        (least, most), live = self._in_history(names), self.live.count(names)
        likely = live.least if exact else live.likely
        return LiveCounts(
            (least + most) / 2 + live.estimate, least + live.least, most + live.most, least + likely
        )

    def row_bounds(self) -> tuple[int, int]:
        """Certain bounds (least, most) of the window's rows that have a key."""
        least = sum(one.history.rows for one in self.whole)
        most = least + sum(one.history.rows for one, _ in self.partial)
        live_least, live_most = self.live.row_bounds()
        return least + live_least, most + live_most

    @property
    def n(self) -> int:
        """The rows of history with a key; an estimate where the window covers a part of a tick."""
        rows = sum(one.history.rows for one in self.whole)
        return rows + sum(round(share * one.history.rows) for one, share in self.partial)

    @property
    def nulls(self) -> int:
        """The rows with a NULL key."""
        return sum(one.history.nulls for one in self.whole) + self.totals.nulls

    def _in_history(self, names: Names) -> tuple[Ints, Ints]:
        least, most = np.zeros(len(names), np.int64), np.zeros(len(names), np.int64)
        for one in self.whole:
            low, high = one.bounds(names)
            least, most = least + low, most + high
        for one, _ in self.partial:
            most = most + one.bounds(names)[1]
        return least, most
