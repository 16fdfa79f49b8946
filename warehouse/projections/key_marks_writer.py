"""The marks of a key file, collected while its rows are written.

A mark stands at the first row of each row group and separates what lies before from what lies
after (see `separator`): a few bytes where keys are long. Of the keys of a run that are heavy, a
file knows those that lie inside it; its first and its last key may have more rows next door.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidemark.warehouse.columns.column_types import Storage
from tidemark.warehouse.columns.heavy_keys import HeavyKeys, join_heavy_keys, no_heavy_keys
from tidemark.warehouse.columns.keys import Key, Name, Names, name_at, names_from, separator, take_names
from tidemark.warehouse.columns.text_bounds import text_bounds
from tidemark.warehouse.columns.tick_counts import TickCounts
from tidemark.warehouse.columns.ticks import NO_TICK
from tidemark.warehouse.projections.key_rows import KeyRows
from tidemark.warehouse.runs.projection import MarkedFile


@dataclass(frozen=True, slots=True, eq=False)
class KeyFileSummary:
    """What the marks of a key file have beside the pairs.

    `counts_before[i]` is how many rows of `events` lie between the file's first row and mark i. `first` and
    `last` are the file's first and last key with their rows in the file (`last` is None if there is one key).
    `heavy_keys` and `heavy_pairs` list the heavy keys and pairs of the run; `heavy_keys` leaves out the first
    and the last key. Both are None in a chunk.
    """

    counts_before: NDArray[np.int64]
    first: tuple[Name, int] | None
    last: tuple[Name, int] | None
    heavy_keys: HeavyKeys | None
    heavy_pairs: HeavyKeys | None


class KeyMarkCollector:
    """Collects the marks of rows that arrive in order, in pieces of any length.

    `totals` are the rows by tick of the whole run; None for a chunk.
    """

    def __init__(self, key: Key, totals: TickCounts | None) -> None:
        self.key = key
        self.rows = self.count = 0
        self.positions: list[NDArray[np.int64]] = [np.empty(0, dtype=np.int64)]
        self.counts_before: list[NDArray[np.int64]] = [np.empty(0, dtype=np.int64)]
        self.marks: list[tuple[Name, int]] = []
        self.first: tuple[Name, int] | None = None  # the file's first key, once another has come
        self.newest: tuple[Name, int] | None = None  # of which more rows may come
        self.ranges: dict[str, tuple[int, int]] = {}  # of ticks and of counts
        self.heavy = None if totals is None else _HeavyCollector(key, totals)

    def add(self, rows: KeyRows, blocks: NDArray[np.int64]) -> None:
        """Takes the next rows, one at least, whose blocks start at `blocks`."""
        piece, running = rows, np.cumsum(rows.counts)
        self.positions.append(blocks + self.rows)
        self.counts_before.append(running[blocks] - piece.counts[blocks] + self.count)
        self.marks += [self._mark(piece, at) for at in blocks.tolist()]
        for name, column in (("tick", piece.ticks), ("count", piece.counts)):
            low, high = int(column.min()), int(column.max())
            known = self.ranges.get(name, (low, high))
            self.ranges[name] = min(low, known[0]), max(high, known[1])
        self._add_keys(piece)
        if self.heavy is not None:
            self.heavy.add_pairs(piece)
        self.rows, self.count = self.rows + len(piece), self.count + int(running[-1])

    def _mark(self, piece: KeyRows, at: int) -> tuple[Name, int]:
        name = name_at(piece.names, int(piece.codes[at]))
        if at:
            before = name_at(piece.names, int(piece.codes[at - 1]))
        elif self.newest is not None:
            before = self.newest[0]
        else:
            return name, int(piece.ticks[at])
        return (name, int(piece.ticks[at])) if before == name else (separator(before, name), NO_TICK)

    def _add_keys(self, piece: KeyRows) -> None:
        """The rows of each key; a key is whole once another has come."""
        names, sums = piece.names, np.add.reduceat(piece.counts, piece.starts())
        if self.newest is not None and self.newest[0] == name_at(names, 0):
            sums[0] += self.newest[1]
        elif self.newest is not None:
            self._close(*self.newest)
        if len(names) > 1:
            self._close(name_at(names, 0), int(sums[0]))
            if self.heavy is not None:
                self.heavy.add_keys(names[1:-1], sums[1:-1])
        self.newest = name_at(names, len(names) - 1), int(sums[-1])

    def _close(self, name: Name, count: int) -> None:
        if self.first is None:
            self.first = name, count
        elif self.heavy is not None:
            self.heavy.add_keys(names_from(self.key, [name]), np.array([count]))

    def finish(self, path: str, size: int) -> MarkedFile:
        """The file with its marks."""
        ends = (self.first or self.newest, self.newest)
        names = names_from(self.key, [name for name, _ in self.marks])
        extra = KeyFileSummary(
            counts_before=np.concatenate(self.counts_before),
            first=ends[0],
            last=self.newest if self.first is not None else None,
            heavy_keys=self.heavy.keys if self.heavy is not None else None,
            heavy_pairs=self.heavy.pairs if self.heavy is not None else None,
        )
        return MarkedFile(
            path=path,
            rows=self.rows,
            size=size,
            count=self.count,
            positions=np.concatenate(self.positions),
            sort_keys=(names, np.array([tick for _, tick in self.marks], dtype=np.int64)),
            stats=_stats(self.key, [end[0] for end in ends if end is not None], self.ranges),
            extra=extra,
        )


class _HeavyCollector:
    """Keeps what is heavy of a run: keys of all of it, and keys of each of its ticks."""

    def __init__(self, key: Key, totals: TickCounts) -> None:
        self.tick_names = totals.ticks
        self.by_tick, self.in_all = totals.counts, totals.counts.sum(keepdims=True)
        self.keys, self.pairs = no_heavy_keys(key, self.in_all), no_heavy_keys(key, self.by_tick)

    def add_keys(self, names: Names, sums: NDArray[np.int64]) -> None:
        """Takes keys with all their rows of the run."""
        found = np.flatnonzero(sums >= self.keys.floors[0])
        if len(found):
            new = HeavyKeys(take_names(names, found), np.zeros_like(found), sums[found], self.keys.floors)
            self.keys = join_heavy_keys([self.keys, new], self.in_all)

    def add_pairs(self, piece: KeyRows) -> None:
        """Takes rows, each with all its count of the run."""
        found = np.flatnonzero(piece.counts >= self.pairs.floors.min())
        cells = np.searchsorted(self.tick_names, piece.ticks[found])
        reach = piece.counts[found] >= self.pairs.floors[cells]
        found, cells = found[reach], cells[reach]
        if len(found):
            names = take_names(piece.names, piece.codes[found])
            new = HeavyKeys(names, cells, piece.counts[found], self.pairs.floors)
            self.pairs = join_heavy_keys([self.pairs, new], self.by_tick)


def _stats(key: Key, ends: list[Name], ranges: dict[str, tuple[int, int]]) -> dict[str, Any]:
    """Delta's statistics: exact numbers, short bounds of texts; both left out where one cannot be said."""
    nulls = {"key": 0, "tick": 0, "count": 0}
    if not ends:
        return {"nullCount": nulls}
    least: dict[str, Any] = {name: low for name, (low, _) in ranges.items()}
    most: dict[str, Any] = {name: high for name, (_, high) in ranges.items()}
    low, high = _bounds(key, *ends)
    if low is not None and high is not None:  # with one of them alone delta-rs loses rows of a filter
        least["key"], most["key"] = low, high
    return {"minValues": least, "maxValues": most, "nullCount": nulls}


def _bounds(key: Key, low: Name, high: Name) -> tuple[Any, Any]:
    if isinstance(low, bytes) and isinstance(high, bytes):
        if key.column_type.storage is not Storage.STRING:
            return None, None
        try:
            return text_bounds(low.decode(), high.decode())
        except UnicodeDecodeError:
            return None, None
    if not key.is_double:
        return low, high
    # An infinity is text in JSON, as Spark has it; with NaN as a bound delta-rs would lose rows.
    first, last = key.value_of(low), key.value_of(high)
    return (None, None) if math.isnan(last) else (_finite_or_text(first), _finite_or_text(last))


def _finite_or_text(number: float) -> float | str:
    if math.isfinite(number):
        return number
    return "Infinity" if number > 0 else "-Infinity"
