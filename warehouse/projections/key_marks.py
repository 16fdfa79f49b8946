"""Key marks: what memory keeps of a run of keys.

Model. A run is an ascending sequence of pairs (key, tick), each with its count of rows. A mark
stands at the start of every row group, and is a pair s with

    rows before its position  <  s  <=  rows from its position on

so a look-up of a key in a window of ticks reads one block, or as many as the key itself fills. A
mark also knows how many rows of `events` lie before it, so of a key range over the whole run only
the blocks at its two ends are read.

On disk a run's marks are one file of the table ``key_marks`` (marks.py), in three row groups:

    header   position: pairs of the run; count: the floor of its keys; ticks[], counts[], nulls[]:
             rows with a key and rows without one by tick; floors[]: the floor of each tick
    mark     file, position, key and tick: the pair s; count: rows before it
    heavy    key, tick, count: every key that reaches its tick's floor; without a tick: every key
             that reaches the floor of the run. See heavy.py for what floors promise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

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
from tidemark.warehouse.columns.measures import as_numpy
from tidemark.warehouse.columns.tick_counts import TickCounts
from tidemark.warehouse.errors import DamagedWarehouse
from tidemark.warehouse.integrity.sealed_files import SealedFile
from tidemark.warehouse.projections.key_marks_writer import KeyFileSummary
from tidemark.warehouse.runs.layout import Run
from tidemark.warehouse.runs.marks import (
    HEADER_GROUP,
    HEAVY_GROUP,
    MARKS_GROUP,
    RunFile,
    files_from_marks,
    flatten,
    path_in_table,
)
from tidemark.warehouse.runs.projection import MarkedFile, ReopenMarks, SortColumns

_LISTS = ["ticks", "counts", "nulls", "floors"]


def schema(key: Key) -> pa.Schema:
    """The Arrow schema of the marks table, `run` being its partition."""
    longs = pa.list_(pa.int64())
    return pa.schema(
        [
            ("run", pa.string()),
            ("file", pa.string()),
            ("position", pa.int64()),
            ("key", key.marked_type),
            ("tick", pa.int64()),
            ("count", pa.int64()),
            *((name, longs) for name in _LISTS),
        ]
    )


@dataclass(frozen=True, slots=True, eq=False)
class KeyMarks:
    """The marks of one run.

    `rows` are the pairs that it stores. Mark i is the pair (keys[i], ticks[i]) at `positions[i]`, with
    `counts_before[i]` rows of `events` before it; (k,) each, ascending. `totals` are rows by tick: with a key
    (`counts`) and without (`nulls`). `heavy()` reads what is heavy: in the run, which is one cell, and by
    tick, the cells being those of `totals`.
    """

    run: Run
    files: tuple[RunFile, ...]
    rows: int
    positions: NDArray[np.int64]
    keys: Names
    ticks: NDArray[np.int64]
    counts_before: NDArray[np.int64]
    totals: TickCounts
    heavy: Callable[[], tuple[HeavyKeys, HeavyKeys]]

    @property
    def sort_keys(self) -> SortColumns:
        """The marks' places in the order of rows."""
        return (self.keys, self.ticks)

    @property
    def count(self) -> int:
        """Rows of `events` that have a key."""
        return int(self.totals.counts.sum())

    def check_invariants(self) -> None:
        """The first row of every file is marked, and what is counted ascends."""
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
            raise DamagedWarehouse(f"the marks of run {self.run.name} do not describe its {self.rows} pairs.")


def to_arrow(key: Key, files: Sequence[MarkedFile], totals: TickCounts) -> dict[str, pa.Table]:
    """The rows of the marks table for a run's files: header, marks, heavy keys."""
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
    names, ticks_at = ([file.sort_keys[at] for file in filled] for at in (0, 1))
    before = [_extra(file).counts_before for file in filled]
    row, count = ([0, *np.cumsum([getattr(file, name) for file in filled])] for name in ("rows", "count"))
    marked = {
        "file": [path_in_table(file.path) for file in filled for _ in file.positions],
        "position": _joined([file.positions + first for file, first in zip(filled, row, strict=False)]),
        "key": stored_keys(key, join_names([no_names(key), *names]), marked=True),
        "tick": _joined(ticks_at),
        "count": _joined([rows + first for rows, first in zip(before, count, strict=False)]),
    }
    ticks = pa.array(np.concatenate([np.zeros_like(keys.cells), totals.ticks[pairs.cells]]))
    whole = pa.array(np.arange(len(ticks)) < len(keys.cells))
    heavy = {
        "key": stored_keys(key, join_names([keys.keys, pairs.keys]), marked=True),
        "tick": pc.if_else(whole, pa.scalar(None, pa.int64()), ticks),
        "count": _joined([keys.counts, pairs.counts]),
    }
    groups = {HEADER_GROUP: header, MARKS_GROUP: marked, HEAVY_GROUP: heavy}
    return {name: _table(key, columns) for name, columns in groups.items()}


def _extra(file: MarkedFile) -> KeyFileSummary:
    extra: KeyFileSummary = file.extra
    return extra


def _heavy_of_run(key: Key, files: Sequence[MarkedFile], totals: TickCounts) -> tuple[HeavyKeys, HeavyKeys]:
    """The listings of all files together, and the keys that lie at their ends, whole again."""
    in_all = totals.counts.sum(keepdims=True)
    ends: dict[Name, int] = {}
    extras = [_extra(file) for file in files]
    for file in extras:
        for name, count in filter(None, (file.first, file.last)):
            ends[name] = ends.get(name, 0) + count
    cells = np.zeros(len(ends), dtype=np.int64)
    keys = no_heavy_keys(key, in_all)
    at_ends = HeavyKeys(
        names_from(key, list(ends)), cells, np.array([*ends.values()], dtype=np.int64), keys.floors
    )
    inside = [file.heavy_keys for file in extras if file.heavy_keys is not None]
    pairs = [file.heavy_pairs for file in extras if file.heavy_pairs is not None]
    return (
        join_heavy_keys([keys, at_ends, *inside], in_all),
        join_heavy_keys([no_heavy_keys(key, totals.counts), *pairs], totals.counts),
    )


def _joined(parts: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    return np.concatenate([np.empty(0, dtype=np.int64), *parts])


def _table(key: Key, columns: dict[str, Any]) -> pa.Table:
    rows = len(columns["count"])
    fields = [field for field in schema(key) if field.name != "run"]
    return pa.table(
        [
            _column(columns[field.name], field.type) if field.name in columns else pa.nulls(rows, field.type)
            for field in fields
        ],
        schema=pa.schema(fields),
    )


def _column(values: Any, kind: pa.DataType) -> pa.Array:
    return values if isinstance(values, pa.Array) else pa.array(values, kind)


def read(key: Key, run: Run, file: SealedFile, later: ReopenMarks) -> KeyMarks:
    """The marks of a run from their file; what is heavy is read later."""

    def heavy() -> tuple[HeavyKeys, HeavyKeys]:
        found: tuple[HeavyKeys, HeavyKeys] = later(
            lambda again: _heavy(key, again.read(HEADER_GROUP), again.read(HEAVY_GROUP))
        )
        return found

    return _from_arrow(key, run, file.read(HEADER_GROUP), file.read(MARKS_GROUP), heavy)


def _from_arrow(
    key: Key, run: Run, header: pa.Table, marked: pa.Table, heavy: Callable[[], tuple[HeavyKeys, HeavyKeys]]
) -> KeyMarks:
    """The marks of a run from the first two row groups of its rows of the marks table."""
    if header.num_rows != 1:
        raise DamagedWarehouse(f"the marks of run {run.name} do not begin with one header.")
    ticks, counts, nulls = (flatten(header.column(name)) for name in ("ticks", "counts", "nulls"))
    rows = header.column("position")[0].as_py()
    positions = as_numpy(marked.column("position"))
    files = files_from_marks(marked.column("file"), positions, rows)
    result = KeyMarks(
        run=run,
        files=files,
        rows=rows,
        positions=positions,
        keys=_names(key, marked),
        ticks=as_numpy(marked.column("tick")),
        counts_before=as_numpy(marked.column("count")),
        totals=TickCounts(ticks, counts, np.zeros_like(counts), nulls),
        heavy=heavy,
    )
    result.check_invariants()
    return result


def _heavy(key: Key, header: pa.Table, heavy: pa.Table) -> tuple[HeavyKeys, HeavyKeys]:
    """What is heavy in the run, and in each of its ticks."""
    ticks = flatten(header.column("ticks"))
    whole = heavy.column("tick").is_null()
    keys, pairs = heavy.filter(whole), heavy.filter(pc.invert(whole))
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
