"""Collects the marks of a key file while its rows are written.

There is a mark at the first row of each row group. It is a pair that separates the rows before it from the
rows after it (`separator`), so it is short even if keys are long. A file lists the heavy keys whose rows all
lie in it. Its first and last key may have rows in the neighbouring files, so they are listed separately.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidemark.warehouse.columns.heavy_keys import HeavyKeys, join_heavy_keys, no_heavy_keys
from tidemark.warehouse.columns.keys import Key, Name, Names, name_at, names_from, separator, take_names
from tidemark.warehouse.columns.tick_counts import TickCounts
from tidemark.warehouse.columns.ticks import NO_TICK
from tidemark.warehouse.integrity.digests import name_words
from tidemark.warehouse.projections.distinct_marks import DistinctCollector, DistinctKeys
from tidemark.warehouse.projections.key_days import DayCollector, DayPart
from tidemark.warehouse.projections.key_rows import KeyRows
from tidemark.warehouse.projections.key_statistics import key_statistics
from tidemark.warehouse.projections.persistent_marks import PersistentCollector, PersistentPart
from tidemark.warehouse.runs.projection import MarkedFile


@dataclass(frozen=True, slots=True, eq=False)
class KeyFileSummary:
    """The content of a key file's marks in addition to the pairs.

    `counts_before[i]` is the number of rows of `events` between the file's first row and mark i. `first` and
    `last` are the file's first and last key with their rows in the file (`last` is None if there is one key).
    `heavy_keys` and `heavy_pairs` list the heavy keys and pairs of the run; `heavy_keys` leaves out the first
    and the last key. `distinct` has the distinct keys of the file, `persistent` the persistent ones, `days`
    the distinct keys of each day. A chunk has none of the five; where ticks do not divide a day, `days` is
    None.
    """

    counts_before: NDArray[np.int64]
    first: tuple[Name, int] | None
    last: tuple[Name, int] | None
    heavy_keys: HeavyKeys | None
    heavy_pairs: HeavyKeys | None
    distinct: DistinctKeys | None
    persistent: PersistentPart | None
    days: DayPart | None


class KeyMarkCollector:
    """Collects the marks of sorted rows, which are added in pieces of any length.

    `totals` are the rows of the whole run by tick; None for a chunk, whose heavy, distinct and persistent
    keys nobody needs. `ticks_a_day` are the ticks of a day; None where they do not divide it.
    """

    def __init__(self, key: Key, totals: TickCounts | None, ticks_a_day: int | None = None) -> None:
        self.key = key
        self.rows = self.count = 0
        self.positions: list[NDArray[np.int64]] = [np.empty(0, dtype=np.int64)]
        self.counts_before: list[NDArray[np.int64]] = [np.empty(0, dtype=np.int64)]
        self.marks: list[tuple[Name, int]] = []
        self.first: tuple[Name, int] | None = None  # the file's first key, set when its last row is known
        self.current: tuple[Name, int] | None = None  # the last key, which may have more rows
        self.ranges: dict[str, tuple[int, int]] = {}  # least and greatest tick and count
        self.heavy = None if totals is None else _HeavyCollector(key, totals)
        self.distinct = None if totals is None else DistinctCollector(totals.ticks)
        self.persistent = None if totals is None else PersistentCollector(key, totals)
        self.days = None if totals is None or ticks_a_day is None else DayCollector(totals, ticks_a_day)

    def add(self, rows: KeyRows, blocks: NDArray[np.int64]) -> None:
        """Adds the next rows, at least one; `blocks` are the rows at which blocks start."""
        piece, running = rows, np.cumsum(rows.counts)
        self.positions.append(blocks + self.rows)
        self.counts_before.append(running[blocks] - piece.counts[blocks] + self.count)
        self.marks += [self._mark(piece, row) for row in blocks.tolist()]
        for name, column in (("tick", piece.ticks), ("count", piece.counts)):
            low, high = int(column.min()), int(column.max())
            known = self.ranges.get(name, (low, high))
            self.ranges[name] = min(low, known[0]), max(high, known[1])
        if self.distinct is not None and self.persistent is not None:
            cells = self.distinct.ticks.searchsorted(piece.ticks)
            words = name_words(piece.names)
            self.distinct.add(piece, cells, words)
            self.persistent.add(piece, cells)
            if self.days is not None:
                self.days.add(piece, cells, words)
        self._add_keys(piece)
        if self.heavy is not None:
            self.heavy.add_pairs(piece)
        self.rows, self.count = self.rows + len(piece), self.count + int(running[-1])

    def _mark(self, piece: KeyRows, row: int) -> tuple[Name, int]:
        """A pair that is greater than all rows before this row, and at most the row."""
        name = name_at(piece.names, int(piece.codes[row]))
        if row:
            before = name_at(piece.names, int(piece.codes[row - 1]))
        elif self.current is not None:
            before = self.current[0]
        else:
            return name, int(piece.ticks[row])
        return (name, int(piece.ticks[row])) if before == name else (separator(before, name), NO_TICK)

    def _add_keys(self, piece: KeyRows) -> None:
        """Sums the rows of each key; a key is complete when the next key starts."""
        names, sums = piece.names, np.add.reduceat(piece.counts, piece.starts())
        if self.current is not None and self.current[0] == name_at(names, 0):
            sums[0] += self.current[1]
        elif self.current is not None:
            self._complete(*self.current)
        if len(names) > 1:
            self._complete(name_at(names, 0), int(sums[0]))
            if self.heavy is not None:
                self.heavy.add_keys(names[1:-1], sums[1:-1])
        self.current = name_at(names, len(names) - 1), int(sums[-1])

    def _complete(self, name: Name, count: int) -> None:
        if self.first is None:
            self.first = name, count
        elif self.heavy is not None:
            self.heavy.add_keys(names_from(self.key, [name]), np.array([count]))

    def finish(self, path: str, size: int) -> MarkedFile:
        """The file with its marks."""
        ends = (self.first or self.current, self.current)
        names = names_from(self.key, [name for name, _ in self.marks])
        extra = KeyFileSummary(
            counts_before=np.concatenate(self.counts_before),
            first=ends[0],
            last=self.current if self.first is not None else None,
            heavy_keys=self.heavy.keys if self.heavy is not None else None,
            heavy_pairs=self.heavy.pairs if self.heavy is not None else None,
            distinct=self.distinct.finish() if self.distinct is not None else None,
            persistent=self.persistent.finish() if self.persistent is not None else None,
            days=self.days.finish(self.count) if self.days is not None else None,
        )
        return MarkedFile(
            path=path,
            rows=self.rows,
            size=size,
            count=self.count,
            positions=np.concatenate(self.positions),
            sort_keys=(names, np.array([tick for _, tick in self.marks], dtype=np.int64)),
            stats=key_statistics(self.key, ["key"], ends, self.ranges),
            extra=extra,
        )


class _HeavyCollector:
    def __init__(self, key: Key, totals: TickCounts) -> None:
        self.tick_names = totals.ticks
        self.by_tick, self.run_rows = totals.counts, totals.counts.sum(keepdims=True)
        self.keys, self.pairs = no_heavy_keys(key, self.run_rows), no_heavy_keys(key, self.by_tick)

    def add_keys(self, names: Names, sums: NDArray[np.int64]) -> None:
        """Adds keys with the number of all their rows in the run."""
        heavy = np.flatnonzero(sums >= self.keys.floors[0])
        if len(heavy):
            new = HeavyKeys(take_names(names, heavy), np.zeros_like(heavy), sums[heavy], self.keys.floors)
            self.keys = join_heavy_keys([self.keys, new], self.run_rows)

    def add_pairs(self, piece: KeyRows) -> None:
        """Adds pairs (key, tick) with the number of all their rows in the run."""
        heavy = np.flatnonzero(piece.counts >= self.pairs.floors.min())
        cells = np.searchsorted(self.tick_names, piece.ticks[heavy])
        reaches = piece.counts[heavy] >= self.pairs.floors[cells]
        heavy, cells = heavy[reaches], cells[reaches]
        if len(heavy):
            names = take_names(piece.names, piece.codes[heavy])
            new = HeavyKeys(names, cells, piece.counts[heavy], self.pairs.floors)
            self.pairs = join_heavy_keys([self.pairs, new], self.by_tick)
