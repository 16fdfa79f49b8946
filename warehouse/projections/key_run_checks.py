"""Checks of a run of keys: its pairs ascend, and its marks say what they are."""

from __future__ import annotations

import numpy as np

from tidemark.warehouse.columns.heavy_keys import HeavyKeys
from tidemark.warehouse.columns.keys import Key, Name, join_names, name_at, same_names, unify_names
from tidemark.warehouse.errors import DamagedWarehouse
from tidemark.warehouse.projections.key_marks import KeyMarks, names_and_ticks
from tidemark.warehouse.projections.key_marks_writer import KeyMarkCollector
from tidemark.warehouse.projections.key_rows import KeyRows
from tidemark.warehouse.runs.marks import RunFile
from tidemark.warehouse.runs.projection import MarkedFile

_NOTHING = np.zeros(1, dtype=np.int64)


def ascends(rows: KeyRows) -> bool:
    """Whether the pairs are in order and apart, each with a count."""
    steps = np.diff(rows.codes)
    (place,) = unify_names([rows.names])[1]
    return bool(
        np.all((steps == 0) | (steps == 1))
        and rows.codes[-1] == len(rows.names) - 1
        and np.all(np.diff(place) > 0)
        and np.all((rows.ticks[1:] > rows.ticks[:-1]) | (steps == 1))
        and np.all(rows.counts > 0)
    )


class KeyChecker:
    """Collects the marks of a run's rows anew, and compares them with those that it has."""

    def __init__(self, key: Key, marks: KeyMarks) -> None:
        self.key, self.marks = key, marks
        self.heavy = _Heavy(marks, *marks.heavy())
        self.files: list[MarkedFile] = []
        self.file: RunFile | None = None
        self.collector = KeyMarkCollector(key, None)

    def begin(self, file: RunFile) -> None:
        """The rows of a file come."""
        self._close()
        self.file = file

    def add(self, rows: KeyRows) -> None:
        """Takes the rows of a block."""
        self.collector.add(rows, _NOTHING)
        self.heavy.add(rows)

    def finish(self) -> None:
        """All rows have come."""
        self._close()
        if not self._same_marks():
            raise DamagedWarehouse(f"the marks of run {self.marks.run.name} do not stand where they say")
        self.heavy.check()

    def _close(self) -> None:
        if self.file is not None:
            self.files.append(self.collector.finish(self.file.path, 0))
        self.collector = KeyMarkCollector(self.key, None)

    def _same_marks(self) -> bool:
        marks, files = self.marks, self.files
        if not files:
            return len(marks.positions) == 0
        rows, counts = (np.cumsum([0, *(getattr(one, name) for one in files)]) for name in ("rows", "count"))
        found = (
            np.concatenate([one.positions + first for one, first in zip(files, rows, strict=False)]),
            np.concatenate(
                [one.extra.counts_before + first for one, first in zip(files, counts, strict=False)]
            ),
            np.concatenate([names_and_ticks(one)[1] for one in files]),
        )
        names = join_names([names_and_ticks(one)[0] for one in files])
        said = (marks.positions, marks.counts_before, marks.ticks)
        if not same_names(names, marks.keys):
            return False
        return all(np.array_equal(a, b) for a, b in zip(found, said, strict=True))


class _Heavy:
    """Adds up what is heavy in a run, by the floors that its marks have, and the rows of each tick."""

    def __init__(self, run: KeyMarks, keys: HeavyKeys, pairs: HeavyKeys) -> None:
        self.run, self.keys, self.pairs = run, keys, pairs
        self.found_keys: dict[Name, int] = {}
        self.found_pairs: dict[tuple[Name, int], int] = {}
        self.by_tick = np.zeros(len(run.totals.ticks), dtype=np.int64)
        self.newest: tuple[Name, int] | None = None

    def add(self, rows: KeyRows) -> None:
        ticks = self.run.totals.ticks
        cells = np.minimum(np.searchsorted(ticks, rows.ticks), len(ticks) - 1)
        if not np.array_equal(ticks[cells], rows.ticks):
            raise DamagedWarehouse(f"run {self.run.run.name} has a tick that its marks do not know")
        np.add.at(self.by_tick, cells, rows.counts)
        for i in np.flatnonzero(rows.counts >= self.pairs.floors[cells]).tolist():
            self.found_pairs[name_at(rows.names, int(rows.codes[i])), int(cells[i])] = int(rows.counts[i])
        sums = np.add.reduceat(rows.counts, rows.starts())
        if self.newest is not None and self.newest[0] == name_at(rows.names, 0):
            sums[0] += self.newest[1]
        for i in np.flatnonzero(sums >= self.keys.floors[0]).tolist():
            self.found_keys[name_at(rows.names, i)] = int(sums[i])
        self.newest = name_at(rows.names, len(sums) - 1), int(sums[-1])

    def check(self) -> None:
        name = self.run.run.name
        if not np.array_equal(self.by_tick, self.run.totals.counts):
            raise DamagedWarehouse(f"the counts by tick of run {name} are wrong")
        keys = {one: count for (one, _), count in _listed(self.keys).items()}
        if keys != self.found_keys or _listed(self.pairs) != self.found_pairs:
            raise DamagedWarehouse(f"the heavy keys of run {name} are not those that its marks list")


def _listed(heavy: HeavyKeys) -> dict[tuple[Name, int], int]:
    names = (name_at(heavy.keys, i) for i in range(len(heavy.cells)))
    return dict(zip(zip(names, heavy.cells.tolist(), strict=True), heavy.counts.tolist(), strict=True))
