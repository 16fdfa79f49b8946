"""Runs of the key: rows (key, tick, count), sorted by key then tick; the tasks that write them."""

from __future__ import annotations

from collections.abc import Sequence

from warehouse import keymarks, tasks
from warehouse.attempt import Attempt
from warehouse.errors import DamagedWarehouse
from warehouse.events import Batches, share_out
from warehouse.history import NewRun
from warehouse.keycollect import WrittenKeys
from warehouse.keycuts import SortedKeys, plan_key_slices
from warehouse.keymarks import KeyMarks
from warehouse.keys import Key
from warehouse.marks import TickCounts, add_totals
from warehouse.tables import DataFile

# Rows of a block: a quarter of a value run's, as a key has three columns and text is slow to read; no more
# than as many once a run would have more marks than these.
GROUP_ROWS = 2**12
MARKS = 2**14


def group_rows(rows: int) -> int:
    """Rows of a block of a run of so many."""
    return min(4 * GROUP_ROWS, max(GROUP_ROWS, rows // MARKS))


def sort_tasks(
    attempt: Attempt, key: Key, batches: tuple[Batches, ...], found: Sequence[DataFile]
) -> list[tasks.SortKeysTask]:
    """A task for each share of the files of `events`."""
    shares = share_out(attempt.store.filesystem(), found, tasks.SORT_ROWS)
    path = attempt.path(key, 0) if len(shares) <= 1 else None
    return [
        tasks.SortKeysTask(attempt.store, key, batches, tuple(part), path, attempt.chunk(key, i), GROUP_ROWS)
        for i, part in enumerate(shares or [[]])
    ]


def finish_sort(
    attempt: Attempt, key: Key, results: Sequence[tuple[list[WrittenKeys], TickCounts]]
) -> NewRun:
    """The run, of what the tasks returned."""
    totals = add_totals([counts for _, counts in results])
    files = [file for some, _ in results for file in some]
    if files[0].heavy_keys is None:  # a chunk
        inputs = [SortedKeys(((f.path, 0, f.rows),), f.rows, f.positions, f.keys, f.ticks) for f in files]
        files = _merge(attempt, key, inputs, totals)
        attempt.drop_chunks(key)
    return _new_run(attempt, key, files, totals)


def merge_runs(attempt: Attempt, key: Key, inputs: Sequence[KeyMarks]) -> NewRun:
    """The runs as one."""
    totals = add_totals([one.totals for one in inputs])
    sources = [
        SortedKeys(
            tuple((f"{key.runs_table}/{f.path}", f.first, f.rows) for f in one.files),
            one.rows,
            one.positions,
            one.keys,
            one.ticks,
        )
        for one in inputs
    ]
    return _new_run(attempt, key, _merge(attempt, key, sources, totals), totals)


def _new_run(attempt: Attempt, key: Key, files: Sequence[WrittenKeys], totals: TickCounts) -> NewRun:
    return NewRun(attempt.run, attempt.name, tuple(files), totals, keymarks.to_arrow(key, files, totals))


def _merge(attempt: Attempt, key: Key, inputs: Sequence[SortedKeys], totals: TickCounts) -> list[WrittenKeys]:
    """Merges sorted inputs into the files of a run: a task a file, a bounded slice at a time."""
    rows = sum(one.rows for one in inputs)
    slices = attempt.by_file(plan_key_slices(inputs, attempt.slice_rows, GROUP_ROWS), rows)
    work = [
        tasks.MergeKeysTask(
            attempt.store, key, tuple(inputs), some, attempt.path(key, number), group_rows(rows), totals
        )
        for number, some in enumerate(slices)
    ]
    files: list[WrittenKeys] = tasks.run(attempt.executor, work)
    written, expected = sum(file.count for file in files), int(totals.counts.sum())
    if written != expected:
        raise DamagedWarehouse(
            f"merging into run {attempt.run.name} of the key {key.name!r} wrote {written} of {expected} "
            "rows. Nothing was committed: run verify, it names the file whose marks are wrong."
        )
    return files
