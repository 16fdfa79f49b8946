"""Ticks of keys that are known before a block is read: from listings of runs, and from rows read earlier.

A `Source` is a run, or rows that were read. It has all rows of some keys, and a part of the rows of other
keys. Such another key is in at most `slack` further slots of the window. So

    listed slots  <=  slots of the key  <=  listed slots + the slack of the sources that do not have all its
    rows

and a key that no source lists has at most the sum of all slacks.

Worked example. Two runs of ten ticks each have the floors 4 and 3. The first lists A with 9 ticks. So A is in
9 to 9 + 2 slots. A key that neither lists is in at most 3 + 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidemark.query.keys.key_blocks import KeyShare
from tidemark.query.keys.slots import Slots
from tidemark.warehouse.columns.codes import Ints, expand_ranges
from tidemark.warehouse.columns.keys import Names, find_names, take_names, unify_names
from tidemark.warehouse.columns.ticks import Window
from tidemark.warehouse.projections.key_rows import KeyRows
from tidemark.warehouse.projections.persistent_marks import PersistentKeys


@dataclass(frozen=True, slots=True, eq=False)
class RunListing:
    """The persistent keys of a run.

    starts: shape (names + 1,), where the rows of each name start.
    """

    listed: PersistentKeys
    starts: Ints

    @property
    def nbytes(self) -> int:
        """The memory of the arrays."""
        return self.listed.nbytes + self.starts.nbytes


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """Rows of a window that are known in memory.

    rows: some rows, also of other ticks. starts: where the rows of each name start, shape (names + 1,).
    whole: for each name, whether these are all of its rows in the source.
    slack: the most further slots of any other name in the source.
    timed: whether rows of a tick that the window cuts certainly lie in the window.
    share: the index of the run in the shares of the history; None for rows that were read.
    """

    rows: KeyRows
    starts: Ints
    whole: NDArray[np.bool_]
    slack: int
    timed: bool
    share: int | None

    @classmethod
    def read(cls, rows: KeyRows, *, timed: bool) -> Source:
        """All rows of the keys in question."""
        return cls(rows, starts_of(rows), np.ones(len(rows.names), bool), 0, timed, None)

    @classmethod
    def of_run(
        cls, number: int, share: KeyShare, listing: RunListing, window: Window, slots: Slots
    ) -> Source:
        """A run with its listing."""
        listed, totals = listing.listed, share.marks.totals
        inside = window.holds(totals.ticks) & (totals.counts > 0)
        unlisted = np.setdiff1d(totals.ticks[inside], listed.complete, assume_unique=True)
        slack = min(listed.floor - 1, len(np.unique(slots.of(unlisted))))
        whole = np.diff(listing.starts) >= listed.floor
        return cls(listed.rows, listing.starts, whole, slack, timed=False, share=number)

    def rows_of(self, names: Names, window: Window) -> tuple[Ints, Ints, Ints, NDArray[np.bool_]]:
        """The rows of ascending names in a window: for each the index of its name, its tick and count.

        The last array, shape (names,), says for which names these are all rows of the source.
        """
        places = find_names(self.rows.names, names)
        known = np.flatnonzero(places >= 0)
        owners, row = expand_ranges(self.starts[places[known]], self.starts[places[known] + 1])
        index = known[owners]
        inside = window.holds(self.rows.ticks[row])
        whole = np.full(len(names), self.slack == 0)
        whole[known] |= self.whole[places[known]]
        return index[inside], self.rows.ticks[row[inside]], self.rows.counts[row[inside]], whole


def starts_of(rows: KeyRows) -> Ints:
    """Where the rows of each name start, and the number of rows; shape (names + 1,)."""
    return np.append(rows.starts(), len(rows)).astype(np.int64)


def possible_names(sources: Sequence[Source], others: Names, window: Window) -> tuple[Names, Ints]:
    """The names with listed rows in the window and `others`, ascending, and the most slots of each.

    Any other name is in at most the sum of the slacks.
    """
    slack = sum(source.slack for source in sources)
    parts, counts, excluded = [others], [np.zeros(len(others), np.int64)], [np.zeros(len(others), np.int64)]
    for source in sources:
        codes = source.rows.codes[window.holds(source.rows.ticks)]
        ticks = np.bincount(codes, minlength=len(source.whole))
        there = np.flatnonzero(ticks)
        parts.append(take_names(source.rows.names, there))
        counts.append(ticks[there])
        excluded.append(np.where(source.whole[there], source.slack, 0))
    names, places = unify_names(parts)
    code = np.concatenate(places)
    most = np.full(len(names), slack)
    np.add.at(most, code, np.concatenate(counts) - np.concatenate(excluded))
    used = np.zeros(len(names), bool)  # `unify_names` may add numbers between the names
    used[code] = True
    kept = np.flatnonzero(used)
    return take_names(names, kept), most[kept]
