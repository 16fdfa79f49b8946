"""Checks of a run of keys: its pairs ascend, and its marks match its rows."""

from __future__ import annotations

import numpy as np

from tidemark.warehouse.columns.heavy_keys import HeavyKeys
from tidemark.warehouse.columns.keys import Key, Name, join_names, name_at, same_names, unify_names
from tidemark.warehouse.errors import DamagedWarehouse
from tidemark.warehouse.integrity.digests import name_words
from tidemark.warehouse.projections.distinct_marks import DistinctCollector, DistinctKeys
from tidemark.warehouse.projections.key_days import DayCollector, join_days
from tidemark.warehouse.projections.key_marks import KeyMarks, names_and_ticks
from tidemark.warehouse.projections.key_marks_writer import KeyMarkCollector
from tidemark.warehouse.projections.key_rows import KeyRows
from tidemark.warehouse.projections.persistent_marks import (
    PersistentCollector,
    PersistentKeys,
    join_persistent,
)
from tidemark.warehouse.runs.marks import RunFile
from tidemark.warehouse.runs.projection import MarkedFile

_FIRST_ROW = np.zeros(1, dtype=np.int64)


def ascends(rows: KeyRows) -> bool:
    """Whether the pairs are distinct and ascend, the names are valid, and all counts are positive."""
    steps = np.diff(rows.codes)
    (name_order,) = unify_names([rows.names])[1]
    return bool(
        np.all((steps == 0) | (steps == 1))
        and rows.codes[-1] == len(rows.names) - 1
        and np.all(np.diff(name_order) > 0)
        and np.all((rows.ticks[1:] > rows.ticks[:-1]) | (steps == 1))
        and np.all(rows.counts > 0)
    )


class KeyChecker:
    """Computes the marks of a run again from its rows and compares them with the stored marks."""

    def __init__(self, key: Key, marks: KeyMarks, ticks_a_day: int | None) -> None:
        self.key, self.marks, self.ticks_a_day = key, marks, ticks_a_day
        self.heavy = _HeavyChecker(marks, *marks.heavy())
        self.distinct = DistinctCollector(marks.totals.ticks)
        self.persistent = PersistentCollector(key, marks.totals)
        self.days = None if ticks_a_day is None else DayCollector(marks.totals, ticks_a_day)
        self.files: list[MarkedFile] = []
        self.file: RunFile | None = None
        self.collector = KeyMarkCollector(key, None)

    def begin(self, file: RunFile) -> None:
        """Starts a file."""
        self._end_file()
        self.file = file

    def add(self, rows: KeyRows) -> None:
        """Adds the rows of the next block."""
        self.collector.add(rows, _FIRST_ROW)
        self.heavy.add(rows)
        cells, words = self.marks.totals.ticks.searchsorted(rows.ticks), name_words(rows.names)
        self.distinct.add(rows, cells, words)
        self.persistent.add(rows, cells)
        if self.days is not None:
            self.days.add(rows, cells, words)

    def finish(self) -> None:
        """Compares the marks, the heavy, distinct and persistent keys; DamagedWarehouse if they differ."""
        self._end_file()
        if not self._same_marks():
            raise DamagedWarehouse(f"the marks of run {self.marks.run.name} do not match its rows")
        self.heavy.check()
        stored, found = self.marks.distinct(), self.distinct.finish()
        if not _same_distinct(stored, found):
            raise DamagedWarehouse(
                f"the distinct keys of run {self.marks.run.name} are not those that its marks list"
            )
        self._check_days(found.sample.detail)
        listed = self.marks.persistent()
        rows = join_persistent(self.key, [self.persistent.finish()], self.marks.totals)
        if not _same_persistent(listed, rows):
            raise DamagedWarehouse(
                f"the persistent keys of run {self.marks.run.name} are not those that its marks list"
            )

    def _check_days(self, detail: int) -> None:
        stored = self.marks.days()
        if self.days is None or self.ticks_a_day is None or stored is None:
            return
        part = self.days.finish(self.marks.count)
        if not stored.has_only(join_days([part], self.marks.totals.ticks, self.ticks_a_day, detail)):
            raise DamagedWarehouse(
                f"the distinct keys by day of run {self.marks.run.name} are not those that its marks list"
            )

    def _end_file(self) -> None:
        if self.file is not None:
            self.files.append(self.collector.finish(self.file.path, 0))
        self.collector = KeyMarkCollector(self.key, None)

    def _same_marks(self) -> bool:
        marks, files = self.marks, self.files
        if not files:
            return len(marks.positions) == 0
        rows, counts = (
            np.cumsum([0, *(getattr(file, name) for file in files)]) for name in ("rows", "count")
        )
        computed = (
            np.concatenate([file.positions + first for file, first in zip(files, rows, strict=False)]),
            np.concatenate(
                [file.extra.counts_before + first for file, first in zip(files, counts, strict=False)]
            ),
            np.concatenate([names_and_ticks(file)[1] for file in files]),
        )
        names = join_names([names_and_ticks(file)[0] for file in files])
        stored = (marks.positions, marks.counts_before, marks.ticks)
        if not same_names(names, marks.keys):
            return False
        return all(np.array_equal(*pair) for pair in zip(computed, stored, strict=True))


class _HeavyChecker:
    """Counts the heavy keys of a run by the floors of its marks, and its rows by tick."""

    def __init__(self, marks: KeyMarks, keys: HeavyKeys, pairs: HeavyKeys) -> None:
        self.marks, self.keys, self.pairs = marks, keys, pairs
        self.found_keys: dict[Name, int] = {}
        self.found_pairs: dict[tuple[Name, int], int] = {}
        self.by_tick = np.zeros(len(marks.totals.ticks), dtype=np.int64)
        self.current: tuple[Name, int] | None = None

    def add(self, rows: KeyRows) -> None:
        ticks = self.marks.totals.ticks
        cells = np.minimum(np.searchsorted(ticks, rows.ticks), len(ticks) - 1)
        if not np.array_equal(ticks[cells], rows.ticks):
            raise DamagedWarehouse(f"run {self.marks.run.name} has a tick that its marks do not list")
        np.add.at(self.by_tick, cells, rows.counts)
        for i in np.flatnonzero(rows.counts >= self.pairs.floors[cells]).tolist():
            self.found_pairs[name_at(rows.names, int(rows.codes[i])), int(cells[i])] = int(rows.counts[i])
        sums = np.add.reduceat(rows.counts, rows.starts())
        if self.current is not None and self.current[0] == name_at(rows.names, 0):
            sums[0] += self.current[1]
        for i in np.flatnonzero(sums >= self.keys.floors[0]).tolist():
            self.found_keys[name_at(rows.names, i)] = int(sums[i])
        self.current = name_at(rows.names, len(sums) - 1), int(sums[-1])

    def check(self) -> None:
        name = self.marks.run.name
        if not np.array_equal(self.by_tick, self.marks.totals.counts):
            raise DamagedWarehouse(f"the counts by tick of run {name} do not match its rows")
        keys = {key: count for (key, _), count in _counts_by_key_and_cell(self.keys).items()}
        if keys != self.found_keys or _counts_by_key_and_cell(self.pairs) != self.found_pairs:
            raise DamagedWarehouse(f"the heavy keys of run {name} are not those that its marks list")


def _same_distinct(stored: DistinctKeys, found: DistinctKeys) -> bool:
    same_numbers = stored.keys == found.keys and np.array_equal(stored.by_tick, found.by_tick)
    return same_numbers and stored.sample.to_bytes() == found.sample.to_bytes()


def _same_persistent(stored: PersistentKeys, found: PersistentKeys) -> bool:
    return (
        stored.floor == found.floor
        and np.array_equal(stored.complete, found.complete)
        and same_names(stored.rows.names, found.rows.names)
        and all(
            np.array_equal(getattr(stored.rows, name), getattr(found.rows, name))
            for name in ("codes", "ticks", "counts")
        )
    )


def _counts_by_key_and_cell(heavy: HeavyKeys) -> dict[tuple[Name, int], int]:
    names = (name_at(heavy.keys, i) for i in range(len(heavy.cells)))
    return dict(zip(zip(names, heavy.cells.tolist(), strict=True), heavy.counts.tolist(), strict=True))
