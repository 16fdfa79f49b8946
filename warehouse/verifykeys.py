"""Verify, the key's part: its runs are sorted, summed and marked exactly, and hold the rows of their steps.

Each run and the loaded steps of `events` are read once, a row group at a time. What does not hold raises
DamagedWarehouse, which `verify` tells as a check that failed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from sketches import FrequencyBounds
from sketches.counts import exact
from warehouse.errors import DamagedWarehouse
from warehouse.events import Batches, event_files, read_keys, share_out
from warehouse.heavy import Heavy
from warehouse.keycollect import KeyCollector, WrittenKeys
from warehouse.keyfiles import key_rows
from warehouse.keymarks import KeyMarks
from warehouse.keyrows import KeyRows, counted, no_rows, summed, tick_totals
from warehouse.keys import Name, Names, join_names, name_at, take, unify
from warehouse.keysummaries import digests, most_of
from warehouse.liverows import LiveKeys
from warehouse.marks import RunFile, TickCounts, add_totals
from warehouse.moment import Moment
from warehouse.snapshot import KeysView
from warehouse.steps import covered
from warehouse.storage import EVENTS, Store

_READ_ROWS = 2**20
_PRIME = np.uint64(0x9E3779B97F4A7C15)


def runs_exact(moment: Moment) -> str:
    """Every run ascends, has each (key, tick) once, and is what its marks say."""
    view = moment.snapshot.keys_view()
    for run in view.runs:
        _run_exact(moment.store, view, run)
    return f"{sum(run.rows for run in view.runs)} pairs in {len(view.runs)} runs"


def _run_exact(store: Store, view: KeysView, run: KeyMarks) -> None:
    keys, pairs = run.heavy()
    heavy = _Heavy(run, keys, pairs)
    files: list[WrittenKeys] = []
    last: tuple[Name, int] | None = None
    for file in run.files:
        collector = KeyCollector(view.key, None)
        for rows in _file_rows(store, view, file):
            first, newest = _ends(rows)
            if not _ascends(rows) or (last is not None and last >= first):
                raise DamagedWarehouse(
                    f"{file.path} is not sorted, or has a pair twice, near row {collector.rows}"
                )
            collector.add(rows, np.zeros(1, dtype=np.int64))
            heavy.add(rows)
            last = newest
        files.append(collector.finish(file.path, 0))
        if files[-1].rows != file.rows:
            raise DamagedWarehouse(f"{file.path} has {files[-1].rows} rows, its marks say {file.rows}")
    if not _same_marks(run, files):
        raise DamagedWarehouse(f"the marks of run {run.run.name} do not stand where they say")
    heavy.check()


def _file_rows(store: Store, view: KeysView, file: RunFile) -> Iterator[KeyRows]:
    texts = ["key"] if view.key.is_text else []
    path, filesystem = f"{view.root}/{file.path}", store.filesystem()
    with pq.ParquetFile(path, filesystem=filesystem, read_dictionary=texts) as parquet:
        for group in range(parquet.num_row_groups):
            yield from key_rows(view.key, parquet.read_row_group(group))


def _ascends(rows: KeyRows) -> bool:
    """Whether the rows are in order and apart, each with a count."""
    steps = np.diff(rows.codes)
    (place,) = unify([rows.names])[1]
    return bool(
        np.all((steps == 0) | (steps == 1))
        and rows.codes[-1] == len(rows.names) - 1
        and np.all(np.diff(place) > 0)
        and np.all((rows.ticks[1:] > rows.ticks[:-1]) | (steps == 1))
        and np.all(rows.counts > 0)
    )


def _ends(rows: KeyRows) -> tuple[tuple[Name, int], tuple[Name, int]]:
    """The first and the last pair."""
    first, last = name_at(rows.names, 0), name_at(rows.names, len(rows.names) - 1)
    return (first, int(rows.ticks[0])), (last, int(rows.ticks[-1]))


def _same_marks(run: KeyMarks, files: list[WrittenKeys]) -> bool:
    if not files:
        return len(run.positions) == 0
    rows, counts = (np.cumsum([0, *(getattr(one, name) for one in files)]) for name in ("rows", "count"))
    found = (
        np.concatenate([one.positions + first for one, first in zip(files, rows, strict=False)]),
        np.concatenate([one.before + first for one, first in zip(files, counts, strict=False)]),
        np.concatenate([one.ticks for one in files]),
    )
    marked = join_names([one.keys for one in files])
    same = np.array_equal(marked, run.keys) if isinstance(marked, np.ndarray) else marked.equals(run.keys)
    said = (run.positions, run.before, run.ticks)
    return bool(same) and all(np.array_equal(a, b) for a, b in zip(found, said, strict=True))


class _Heavy:
    """Adds up what is heavy in a run, by the floors that its marks have, and the rows of each tick."""

    def __init__(self, run: KeyMarks, keys: Heavy, pairs: Heavy) -> None:
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


def _listed(heavy: Heavy) -> dict[tuple[Name, int], int]:
    names = (name_at(heavy.keys, i) for i in range(len(heavy.cells)))
    return dict(zip(zip(names, heavy.cells.tolist(), strict=True), heavy.counts.tolist(), strict=True))


def conserved(moment: Moment) -> str:
    """The rows of the steps in `events` and those of the runs are the same multiset, tick by tick."""
    view, store = moment.snapshot.keys_view(), moment.store
    last = view.runs[-1].run.last if view.runs else -1
    plans = [plan for plan in moment.plans() if plan.step <= last]
    batches = covered(plans)
    totals: list[TickCounts] = []
    ingested = stored = 0
    found = event_files(moment.table(EVENTS), batches)
    for shares in share_out(store.filesystem(), found, _READ_ROWS):
        for ticks, column in read_keys(store.filesystem(), shares, view.key, batches):
            totals.append(tick_totals(column, ticks))
            ingested += _digest(counted(column, ticks))
    for run in view.runs:
        for file in run.files:
            stored += sum(_digest(rows) for rows in _file_rows(store, view, file))
    said, told = add_totals([run.totals for run in view.runs]), add_totals(totals)
    for name in ("ticks", "counts", "nulls"):
        if not np.array_equal(getattr(said, name), getattr(told, name)):
            raise DamagedWarehouse(
                f"events holds {_rows(told)} rows of the loaded steps, the runs {_rows(said)}"
            )
    if (ingested - stored) % 2**64:
        raise DamagedWarehouse("the keys of the runs are not those of events")
    expected = sum(plan.rows for plan in plans)
    if _rows(told) != expected:
        raise DamagedWarehouse(f"the plans expect {expected} rows, events holds {_rows(told)}")
    return f"{_rows(said)} rows in history"


def live_hold(moment: Moment) -> str:
    """Cells count no key too low, listings bound every count, and both know all the rows."""
    view, store = moment.snapshot.keys_view(), moment.store
    hashes = moment.snapshot.options.key_promise.hashes
    by_range: dict[Batches, list[LiveKeys]] = {}
    for live in view.live:
        by_range.setdefault(live.batches, []).append(live)
    for batches, lives in by_range.items():
        found = event_files(moment.table(EVENTS), [batches])
        rows, nulls = [no_rows(view.key)], []
        for shares in share_out(store.filesystem(), found, _READ_ROWS):
            for ticks, column in read_keys(store.filesystem(), shares, view.key, [batches]):
                rows.append(counted(column, ticks))
                nulls.append(ticks[column.null])
        every, empty = summed(rows), np.concatenate([np.empty(0, np.int64), *nulls])
        for live in lives:
            here = np.flatnonzero(every.ticks == live.tick)
            names, counts = take(every.names, every.codes[here]), every.counts[here]
            cells = FrequencyBounds(hashes, exact(live.cells)).points(digests(names)).hi
            least, most = most_of(live, names)
            if (live.rows, live.nulls) != (int(counts.sum()), int(np.count_nonzero(empty == live.tick))):
                raise DamagedWarehouse(f"tick {live.tick} of {batches.text} has other rows in events")
            if np.any(counts > np.minimum(cells, most)) or np.any(counts < least):
                raise DamagedWarehouse(
                    f"the counts of keys of tick {live.tick} in {batches.text} are no bounds"
                )
    return f"{len(view.live)} ledger rows"


def _rows(totals: TickCounts) -> int:
    return int(totals.counts.sum() + totals.nulls.sum())


def _digest(rows: KeyRows) -> int:
    """A sum over the rows of mixed bits, the same in any order (the finaliser of splitmix64)."""
    with np.errstate(over="ignore"):
        mixed = _hashes(rows.names)[rows.codes] + rows.ticks.view(np.uint64) * _PRIME
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed = (mixed ^ (mixed >> np.uint64(31))) * rows.counts.astype(np.uint64)
        return int(mixed.sum(dtype=np.uint64))


def _hashes(names: Names) -> NDArray[np.uint64]:
    """A number for each name: itself, or a polynomial of its bytes, one longer than they are."""
    if isinstance(names, np.ndarray):
        return names.view(np.uint64)
    offsets = np.frombuffer(names.buffers()[1], dtype=np.int64)[names.offset : names.offset + len(names) + 1]
    data: Any = names.buffers()[2] if names.buffers()[2] is not None else pa.py_buffer(b"")
    text = np.frombuffer(data, dtype=np.uint8)[offsets[0] : offsets[-1]].astype(np.uint64)
    lengths = np.diff(offsets)
    place = np.arange(len(text)) - np.repeat(offsets[:-1] - offsets[0], lengths)
    powers = np.cumprod(np.full(int(lengths.max(initial=0)) + 1, _PRIME, dtype=np.uint64), dtype=np.uint64)
    ends = offsets - offsets[0]
    with np.errstate(over="ignore"):
        parts = (text + np.uint64(1)) * powers[place]
        running = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(parts, dtype=np.uint64)])
        hashes: NDArray[np.uint64] = running[ends[1:]] - running[ends[:-1]] + powers[lengths]
    return hashes
