"""The persistent keys of a run: a listing of the keys in many of the run's ticks, with all their rows.

Model. The listing is a part of the run's rows (key, tick, count). It has

    all rows of each key that has rows in at least `floor` ticks
    all rows of each tick in `complete`, which are ticks of few rows

So a key whose rows the listing does not have as a whole is in at most floor - 1 ticks of the run. Its rows in
complete ticks are listed, so its missing rows lie in other ticks. Rows without a time (NO_TICK) are not
listed.

The floor is the least one whose keys fit into BYTES. Complete ticks are those with the fewest rows, as many
as fit into COMPLETE_ROWS and COMPLETE_BYTES together: late rows are spread over many ticks, a few in each,
and would otherwise leave the presence of every key open there. Both rules depend on the rows of the run
alone, and each part of a run lists no less than the whole run does. So loads and merges list the same for the
same rows.

Worked example. With the floor 3, a key with rows in the ticks 4, 5 and 9 is listed. A key that is not listed
has rows in two ticks at most. If tick 9 is complete and lists no row of the key, neither of them is tick 9.

The listing is the row group ``persistent`` of the run's key marks: key, tick and count. It begins with a row
without a key and a tick, whose count is the floor, and a row without a key for each complete tick.

Cost: one pass over the sorted rows, O(rows). Chapter 3 of Singh's thesis (2015) estimates what is exact here:
the number of slots of a key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidemark.warehouse.columns.keys import Key, name_sizes, names_of, no_names, stored_keys, take_names
from tidemark.warehouse.columns.tick_counts import TickCounts
from tidemark.warehouse.columns.ticks import NO_TICK
from tidemark.warehouse.columns.value_encoding import as_numpy
from tidemark.warehouse.errors import DamagedWarehouse
from tidemark.warehouse.projections.key_rows import KeyRows, no_rows, sorted_rows, sum_counts

# Each of the two lists takes half a megabyte of marks at most.
BYTES = 2**19
ROW_BYTES = 3  # a tick and a count, as they are stored
COMPLETE_ROWS = 2**16
COMPLETE_BYTES = 2**19


@dataclass(frozen=True, slots=True, eq=False)
class PersistentKeys:
    """The listing of a run.

    rows: the listed rows. floor: at least 1; a key with that many listed ticks is listed as a whole.
    complete: shape (c,), the ticks of which all rows are listed, ascending.
    """

    rows: KeyRows
    floor: int
    complete: NDArray[np.int64]

    @property
    def nbytes(self) -> int:
        """The memory of the arrays."""
        return self.rows.nbytes + self.complete.nbytes


@dataclass(frozen=True, slots=True, eq=False)
class PersistentPart:
    """What a part of a run, such as a file, adds to the listing.

    edges: the rows of keys that may have more rows in other parts. inside: the listed rows of the other keys.
    floor: keys of `inside` are listed from this floor on. complete: the number of complete ticks.
    """

    edges: KeyRows
    inside: KeyRows
    floor: int
    complete: int


class PersistentCollector:
    """Lists the keys of sorted rows, which are added in pieces of any length.

    totals: the rows of the whole run by tick.
    """

    def __init__(self, key: Key, totals: TickCounts) -> None:
        self._fewest, self._totals = _FewestFirst.of(totals), totals
        self._edges: list[KeyRows] = [no_rows(key)]
        self._inside: list[KeyRows] = [no_rows(key)]
        self._costs = np.zeros(len(totals.ticks) + 1, np.int64)
        self._bytes, self._complete = np.zeros(self._fewest.many, np.int64), self._fewest.many
        self._floor = 1

    def add(self, rows: KeyRows, cells: NDArray[np.int64]) -> None:
        """Adds the next rows, at least one.

        cells: the index of each row's tick among those of `totals`.
        """
        if self._totals.ticks[0] == NO_TICK:
            timed = rows.ticks != NO_TICK
            rows, cells = rows.where(timed), cells[timed]
        lengths = _lengths(rows)
        if not len(lengths):
            return
        first, last = int(lengths[0]), len(rows) - int(lengths[-1])
        self._edges += [rows.part(0, first), rows.part(max(first, last), len(rows))]
        if first < last:
            self._add_inside(rows.part(first, last), lengths[1:-1], self._fewest.ranks[cells[first:last]])

    def _add_inside(self, rows: KeyRows, lengths: NDArray[np.int64], ranks: NDArray[np.int64]) -> None:
        """Adds all rows of some keys; `lengths` are the numbers of their rows."""
        self._costs += _costs(rows, lengths, len(self._costs))
        self._floor = _fitting_floor(self._costs, self._floor)
        self._bytes += self._fewest.bytes_of(rows, ranks)
        self._complete = _fitting_ticks(self._bytes[: self._complete])
        self._inside.append(rows.where(np.repeat(lengths >= self._floor, lengths) | (ranks < self._complete)))
        if sum(len(part) for part in self._inside[1:]) > 4 * BYTES // ROW_BYTES:
            self._prune()

    def _prune(self) -> None:
        complete = self._fewest.first(self._complete)
        self._inside = [_listed(sum_counts(self._inside), self._floor, complete)]

    def finish(self) -> PersistentPart:
        """The part of the run's listing that the added rows make."""
        self._prune()
        return PersistentPart(sum_counts(self._edges), self._inside[0], self._floor, self._complete)


def join_persistent(key: Key, parts: Sequence[PersistentPart], totals: TickCounts) -> PersistentKeys:
    """The listing of a run from those of its consecutive parts."""
    rows = sum_counts([no_rows(key), *(rows for part in parts for rows in (part.edges, part.inside))])
    fewest = _FewestFirst.of(totals)
    few = min([fewest.many, *(part.complete for part in parts)])
    ranks = fewest.ranks[fewest.ticks.searchsorted(rows.ticks)]
    complete = fewest.first(_fitting_ticks(fewest.bytes_of(rows, ranks)[:few]))
    floor = max([1, *(part.floor for part in parts)])
    floor = _fitting_floor(_costs(rows, _lengths(rows), len(totals.ticks) + 1), floor)
    return PersistentKeys(_listed(rows, floor, complete), floor, complete)


@dataclass(frozen=True, slots=True, eq=False)
class _FewestFirst:
    """The ticks of a run by their numbers of rows.

    ticks: all ticks, ascending. many: how many ticks, those with the fewest rows first, have at most
    COMPLETE_ROWS together. ranks: the place of each of these ticks in that order, from 0 on; `many` for all
    other ticks.
    """

    ticks: NDArray[np.int64]
    ranks: NDArray[np.int64]
    many: int

    @classmethod
    def of(cls, totals: TickCounts) -> _FewestFirst:
        """The order of the ticks of a run; rows without a time are not among the fewest."""
        timed = np.flatnonzero(totals.ticks != NO_TICK)
        order = timed[np.argsort(totals.counts[timed], kind="stable")]
        many = int(np.cumsum(totals.counts[order]).searchsorted(COMPLETE_ROWS, "right"))
        ranks = np.full(len(totals.ticks), many, np.int64)
        ranks[order[:many]] = np.arange(many)
        return cls(totals.ticks, ranks, many)

    def first(self, number: int) -> NDArray[np.int64]:
        """The `number` ticks with the fewest rows, at most `many`, ascending."""
        return self.ticks[self.ranks < min(number, self.many)]

    def bytes_of(self, rows: KeyRows, ranks: NDArray[np.int64]) -> NDArray[np.int64]:
        """The bytes of the rows of each tick, by rank, shape (many,); each row counts its key, too."""
        there = np.flatnonzero(ranks < self.many)
        sizes = name_sizes(rows.names)[rows.codes[there]] + ROW_BYTES
        return np.bincount(ranks[there], weights=sizes, minlength=self.many).astype(np.int64)


def _fitting_ticks(sizes: NDArray[np.int64]) -> int:
    """How many ticks from the first one on fit into COMPLETE_BYTES."""
    return int(np.cumsum(sizes).searchsorted(COMPLETE_BYTES, "right"))


def _lengths(rows: KeyRows) -> NDArray[np.int64]:
    """The number of rows of each name, which is the number of its ticks."""
    return np.bincount(rows.codes, minlength=len(rows.names)).astype(np.int64)


def _listed(rows: KeyRows, floor: int, complete: NDArray[np.int64]) -> KeyRows:
    lengths = _lengths(rows)
    return rows.where(np.repeat(lengths >= floor, lengths) | np.isin(rows.ticks, complete))


def _costs(rows: KeyRows, lengths: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """The bytes of all keys with each number of ticks, shape (size,)."""
    costs = name_sizes(rows.names) + ROW_BYTES * lengths
    return np.bincount(lengths, weights=costs, minlength=size).astype(np.int64)


def _fitting_floor(costs: NDArray[np.int64], floor: int) -> int:
    """The least floor from `floor` on whose keys fit into BYTES."""
    from_each = np.cumsum(costs[::-1])[::-1]  # the bytes of the keys with at least that many ticks
    return max(floor, int((from_each > BYTES).sum()))


def to_arrow(key: Key, persistent: PersistentKeys) -> pa.Table:
    """The row group ``persistent``."""
    rows, complete = persistent.rows, persistent.complete
    head = pa.table(
        {
            "key": pa.nulls(1 + len(complete), key.marked_type),
            "tick": pa.array([None, *complete.tolist()], pa.int64()),
            "count": pa.array([persistent.floor, *[None] * len(complete)], pa.int64()),
        }
    )
    keys = stored_keys(key, take_names(rows.names, rows.codes), marked=True)
    body = pa.table([keys, pa.array(rows.ticks), pa.array(rows.counts)], names=["key", "tick", "count"])
    return pa.concat_tables([head, body])


def from_arrow(key: Key, stored: pa.Table, ticks: NDArray[np.int64]) -> PersistentKeys:
    """The listing of a row group ``persistent``; DamagedWarehouse for a wrong floor or other ticks."""
    is_head = stored.column("key").is_null()
    head, body = stored.filter(is_head), stored.filter(pc.invert(is_head)).combine_chunks()
    floors = head.column("count").drop_null().to_pylist()
    complete = as_numpy(head.column("tick").drop_null())
    names = names_of(key, body.column("key").combine_chunks()) if len(body) else no_names(key)
    rows = sorted_rows(names, as_numpy(body.column("tick")), as_numpy(body.column("count")))
    known = np.isin(complete, ticks).all() and np.isin(rows.ticks, ticks).all()
    if len(floors) != 1 or floors[0] < 1 or not known:
        raise DamagedWarehouse("the persistent keys have ticks that the run lacks, or not one floor")
    return PersistentKeys(rows, int(floors[0]), complete)
