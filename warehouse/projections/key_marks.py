"""Key marks: the sparse index of a run of keys, which readers keep in memory.

Model. A run is an ascending sequence of pairs (key, tick), each with its number of rows of `events`. There
is a mark at the start of every row group. A mark is a pair s that separates the row groups:

    pairs before its position  <  s  <=  pairs from its position on

The pair s need not be in the run: of a text key it has the shortest text that separates.

So a lookup of a key in a window of ticks reads one block, or more if the key fills several. A mark also
stores the number of rows of `events` before it. So a count of a key range in all ticks reads only the blocks
at the two ends of the range.

A run's marks are one file of the table ``key_marks`` (runs/marks.py), with these row groups:

    header   position: the number of pairs of the run. count: the floor of the whole run. By tick: ticks[];
             counts[], the rows with a key; nulls[], the rows with NULL; floors[], the floor of the tick
    marks    file and position; key and tick, which are the pair s; count, the rows of `events` before it
    heavy    key, tick, count: the keys that reach their tick's floor. With a NULL tick: the keys that reach
             the floor of the run. columns/heavy_keys.py states what floors guarantee.
    distinct the numbers of distinct keys and a sample of them, see distinct_marks.py
    days, weeks  the numbers of distinct keys of each and samples of them, see key_days.py
    persistent   the rows of keys that are in many ticks, see persistent_marks.py
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidemark.warehouse.columns.heavy_keys import HeavyKeys, join_heavy_keys, no_heavy_keys
from tidemark.warehouse.columns.keys import (
    Key,
    Name,
    Names,
    join_names,
    names_from,
    names_of,
    no_names,
    stored_keys,
)
from tidemark.warehouse.columns.tick_counts import TickCounts
from tidemark.warehouse.columns.value_encoding import as_numpy
from tidemark.warehouse.errors import DamagedWarehouse
from tidemark.warehouse.integrity.sealed_files import SealedFile
from tidemark.warehouse.projections import distinct_marks, key_days, persistent_marks
from tidemark.warehouse.projections.distinct_marks import DistinctKeys, join_distinct
from tidemark.warehouse.projections.key_days import KeyDays
from tidemark.warehouse.projections.key_marks_writer import KeyFileSummary
from tidemark.warehouse.projections.persistent_marks import PersistentKeys, join_persistent
from tidemark.warehouse.runs.levels import Run
from tidemark.warehouse.runs.marks import (
    CONTENT_FIELD,
    DAYS_GROUP,
    DISTINCT_GROUP,
    HEADER_GROUP,
    HEAVY_GROUP,
    MARKS_GROUP,
    PERSISTENT_GROUP,
    WEEKS_GROUP,
    MarksFile,
    RunFile,
    files_from_marks,
    flatten,
    path_in_table,
)
from tidemark.warehouse.runs.projection import MarkedFile, SortColumns

_TICK_LISTS = ["ticks", "counts", "nulls", "floors"]


def schema(key: Key) -> pa.Schema:
    """The Arrow schema of the marks table, which is partitioned by `run`."""
    longs = pa.list_(pa.int64())
    return pa.schema(
        [
            ("run", pa.string()),
            ("file", pa.string()),
            ("position", pa.int64()),
            ("key", key.marked_type),
            ("tick", pa.int64()),
            ("count", pa.int64()),
            *((name, longs) for name in _TICK_LISTS),
        ]
    )


@dataclass(frozen=True, slots=True, eq=False)
class KeyMarks:
    """The marks of one run.

    `rows` is the number of pairs that the run stores. Mark i is the pair (keys[i], ticks[i]) at
    `positions[i]`, with `counts_before[i]` rows of `events` before it; (k,) each. `totals` are the rows by
    tick: with a key (`counts`) and with NULL (`nulls`). The listings are read from `source` on every call.
    `has_days`: whether their file has the distinct keys of days.
    """

    key: Key
    run: Run
    files: tuple[RunFile, ...]
    rows: int
    positions: NDArray[np.int64]
    keys: Names
    ticks: NDArray[np.int64]
    counts_before: NDArray[np.int64]
    totals: TickCounts
    source: MarksFile
    has_days: bool = False

    @property
    def sort_keys(self) -> SortColumns:
        """The columns of the marks' sort keys."""
        return (self.keys, self.ticks)

    @property
    def count(self) -> int:
        """The number of rows of `events` with a key."""
        return int(self.totals.counts.sum())

    def heavy(self) -> tuple[HeavyKeys, HeavyKeys]:
        """The heavy keys of the run (all in cell 0), and of each tick (cell j is tick j of `totals`)."""
        with self.source.open() as file:
            return _heavy_from_arrow(self.key, file.read(HEADER_GROUP), file.read(HEAVY_GROUP))

    def distinct(self) -> DistinctKeys:
        """The distinct keys."""
        with self.source.open() as file:
            stored = file.read(DISTINCT_GROUP, columns=["tick", "count", CONTENT_FIELD.name])
            return distinct_marks.from_arrow(stored, self.totals.ticks)

    def days(self) -> KeyDays | None:
        """The distinct keys of days and weeks; None where ticks do not divide a day, and in older marks."""
        if not self.has_days:
            return None
        with self.source.open() as file:
            days, weeks = (
                file.read(name, columns=["tick", "count", CONTENT_FIELD.name])
                for name in (DAYS_GROUP, WEEKS_GROUP)
            )
            return key_days.from_arrow(days, weeks, self.totals.ticks)

    def persistent(self) -> PersistentKeys:
        """The persistent keys."""
        with self.source.open() as file:
            stored = file.read(PERSISTENT_GROUP, columns=["key", "tick", "count"])
            return persistent_marks.from_arrow(self.key, stored, self.totals.ticks)

    def check_invariants(self) -> None:
        """Every file's first pair has a mark; positions and counts ascend; else DamagedWarehouse."""
        firsts = [file.first for file in self.files]
        ok = (
            sum(file.rows for file in self.files) == self.rows <= self.count
            and bool(np.all(np.diff(self.positions) > 0))
            and bool(np.all(np.diff(self.counts_before) > 0))
            and bool(np.all(np.isin(firsts, self.positions)))
            and bool(np.all(self.counts_before < self.count))
            and (self.rows == 0 or (self.positions[0] == 0 == self.counts_before[0]))
        )
        if not ok:
            raise DamagedWarehouse(f"the marks of run {self.run.name} do not match its {self.rows} pairs.")


def to_arrow(
    key: Key, files: Sequence[MarkedFile], totals: TickCounts, ticks_a_day: int | None = None
) -> dict[str, pa.Table]:
    """The row groups of a run's marks file by name; `files` are in order."""
    keys, pairs = _heavy_of_run(key, files, totals)
    header = {
        "file": [path_in_table(files[0].path)],
        "position": [sum(file.rows for file in files)],
        "count": keys.floors,
        "ticks": [totals.ticks.tolist()],
        "counts": [totals.counts.tolist()],
        "nulls": [totals.nulls.tolist()],
        "floors": [pairs.floors.tolist()],
    }
    filled = [file for file in files if file.rows]
    sort_keys = [names_and_ticks(file) for file in filled]
    counts_before = [_summary(file).counts_before for file in filled]
    first_pairs, first_counts = (
        [0, *np.cumsum([getattr(file, name) for file in filled])] for name in ("rows", "count")
    )
    marked = {
        "file": [path_in_table(file.path) for file in filled for _ in file.positions],
        "position": _concatenate(
            [file.positions + first for file, first in zip(filled, first_pairs, strict=False)]
        ),
        "key": stored_keys(key, join_names([no_names(key), *(names for names, _ in sort_keys)]), marked=True),
        "tick": _concatenate([mark_ticks for _, mark_ticks in sort_keys]),
        "count": _concatenate(
            [counts + first for counts, first in zip(counts_before, first_counts, strict=False)]
        ),
    }
    ticks = pa.array(np.concatenate([np.zeros_like(keys.cells), totals.ticks[pairs.cells]]))
    is_of_run = pa.array(np.arange(len(ticks)) < len(keys.cells))
    heavy = {
        "key": stored_keys(key, join_names([keys.keys, pairs.keys]), marked=True),
        "tick": pc.if_else(is_of_run, pa.scalar(None, pa.int64()), ticks),
        "count": _concatenate([keys.counts, pairs.counts]),
    }
    parts = [_summary(file).persistent for file in files]
    persistent = join_persistent(key, [part for part in parts if part is not None], totals)
    distinct = _distinct_of_run(files, totals)
    return {
        HEADER_GROUP: pa.table(header),
        MARKS_GROUP: pa.table(marked),
        HEAVY_GROUP: pa.table(heavy),
        DISTINCT_GROUP: distinct_marks.to_arrow(distinct, totals.ticks),
        PERSISTENT_GROUP: persistent_marks.to_arrow(key, persistent),
        **_days_of_run(files, totals, ticks_a_day, distinct.sample.detail),
    }


def _days_of_run(
    files: Sequence[MarkedFile], totals: TickCounts, ticks_a_day: int | None, detail: int
) -> dict[str, pa.Table]:
    if ticks_a_day is None:
        return {}
    parts = [part for file in files if (part := _summary(file).days) is not None]
    return key_days.to_arrow(key_days.join_days(parts, totals.ticks, ticks_a_day, detail), totals.ticks)


def _distinct_of_run(files: Sequence[MarkedFile], totals: TickCounts) -> DistinctKeys:
    """The distinct keys of the run; the last key of a file may be the first of the next one, too."""
    summaries = [_summary(file) for file in files if file.rows]
    lasts = [summary.last or summary.first for summary in summaries]
    shared = sum(
        last is not None and summary.first is not None and last[0] == summary.first[0]
        for last, summary in zip(lasts, summaries[1:], strict=False)
    )
    parts = [summary.distinct for summary in summaries if summary.distinct is not None]
    return join_distinct(parts, shared, len(totals.ticks))


def names_and_ticks(file: MarkedFile) -> tuple[Names, NDArray[np.int64]]:
    """The sort columns of a file of keys at its marks."""
    names, ticks = file.sort_keys
    return cast("Names", names), cast("NDArray[np.int64]", ticks)


def _summary(file: MarkedFile) -> KeyFileSummary:
    summary: KeyFileSummary = file.extra
    return summary


def _heavy_of_run(key: Key, files: Sequence[MarkedFile], totals: TickCounts) -> tuple[HeavyKeys, HeavyKeys]:
    """The heavy keys of the run and of each tick.

    Each file lists its heavy keys except its first and last key, whose rows may continue in the neighbouring
    files. The counts of these keys are summed here.
    """
    run_rows = totals.counts.sum(keepdims=True)
    ends: dict[Name, int] = {}
    summaries = [_summary(file) for file in files]
    for summary in summaries:
        for name, count in filter(None, (summary.first, summary.last)):
            ends[name] = ends.get(name, 0) + count
    cells = np.zeros(len(ends), dtype=np.int64)
    keys = no_heavy_keys(key, run_rows)
    at_ends = HeavyKeys(
        names_from(key, list(ends)), cells, np.array([*ends.values()], dtype=np.int64), keys.floors
    )
    inside = [summary.heavy_keys for summary in summaries if summary.heavy_keys is not None]
    pairs = [summary.heavy_pairs for summary in summaries if summary.heavy_pairs is not None]
    return (
        join_heavy_keys([keys, at_ends, *inside], run_rows),
        join_heavy_keys([no_heavy_keys(key, totals.counts), *pairs], totals.counts),
    )


def _concatenate(parts: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    return np.concatenate([np.empty(0, dtype=np.int64), *parts])


def read(key: Key, run: Run, file: SealedFile, source: MarksFile) -> KeyMarks:
    """Reads the marks of a run from their opened file; their listings are read from `source` on demand."""
    header, marked = file.read(HEADER_GROUP), file.read(MARKS_GROUP)
    if header.num_rows != 1:
        raise DamagedWarehouse(f"the marks of run {run.name} have {header.num_rows} headers; expected one.")
    ticks, counts, nulls = (flatten(header.column(name)) for name in ("ticks", "counts", "nulls"))
    rows = header.column("position")[0].as_py()
    positions = as_numpy(marked.column("position"))
    files = files_from_marks(marked.column("file"), positions, rows)
    result = KeyMarks(
        key=key,
        run=run,
        files=files,
        rows=rows,
        positions=positions,
        keys=_names(key, marked),
        ticks=as_numpy(marked.column("tick")),
        counts_before=as_numpy(marked.column("count")),
        totals=TickCounts(ticks, counts, np.zeros_like(counts), nulls),
        source=source,
        has_days=DAYS_GROUP in file.names,
    )
    result.check_invariants()
    return result


def _heavy_from_arrow(key: Key, header: pa.Table, heavy: pa.Table) -> tuple[HeavyKeys, HeavyKeys]:
    ticks = flatten(header.column("ticks"))
    is_of_run = heavy.column("tick").is_null()
    keys, pairs = heavy.filter(is_of_run), heavy.filter(pc.invert(is_of_run))
    return (
        HeavyKeys(
            _names(key, keys),
            np.zeros(keys.num_rows, dtype=np.int64),
            as_numpy(keys.column("count")),
            as_numpy(header.column("count")),
        ),
        HeavyKeys(
            _names(key, pairs),
            np.searchsorted(ticks, as_numpy(pairs.column("tick"))),
            as_numpy(pairs.column("count")),
            flatten(header.column("floors")),
        ),
    )


def _names(key: Key, table: pa.Table) -> Names:
    return names_of(key, table.column("key").combine_chunks())
