"""Verify, the part of history: runs are sorted and marked exactly, and hold the rows of their steps.

Each run and the loaded steps of `events` are read once a projection, a block at a time. What does not hold
raises DamagedWarehouse, which `verify` tells as a check that failed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np

from tidemark.warehouse.columns.tick_counts import TickCounts, sum_tick_counts
from tidemark.warehouse.delta.store import EVENTS, LEDGER, Store
from tidemark.warehouse.errors import DamagedWarehouse
from tidemark.warehouse.events.reader import BatchRange, EventRowGroups, files_of_batches, read_event_rows
from tidemark.warehouse.events.steps import planned_batches
from tidemark.warehouse.ledger import ledger_table
from tidemark.warehouse.ledger.ledger_rows import RANGE_COLUMNS
from tidemark.warehouse.runs.projection import Marks, Projection
from tidemark.warehouse.runs.run_files import read_blocks
from tidemark.warehouse.verification.pinned_tables import PinnedTables


def runs_exact(moment: PinnedTables, projection: Projection[Any]) -> str:
    """Every run ascends and is what its marks say."""
    runs = moment.snapshot.marks(projection)
    for marks in runs:
        _run_exact(moment.store, projection, marks)
    said = f"{sum(marks.rows for marks in runs)} rows in {len(runs)} runs"
    old = sum(
        any(file.digests is None or not file.digests.end_to_end for file in marks.files) for marks in runs
    )
    return said if not old else f"{said}, {old} of them from before runs had digests"


def _run_exact(store: Store, projection: Projection[Any], marks: Marks) -> None:
    filesystem, checker = store.filesystem(), projection.checker(marks)
    at, last = 0, None
    for file in marks.files:
        checker.begin(file)
        if file.first != at:
            raise DamagedWarehouse(f"{file.path} begins at row {file.first} of its run, its marks say {at}")
        digest = 0
        for rows in read_blocks(filesystem, projection.runs_table, file, projection):
            first = rows.sort_key(0)
            follows = last is None or last < first or (last == first and not projection.merges_equal)
            if not (follows and projection.ascends(rows)):
                raise DamagedWarehouse(
                    f"{file.path} is not sorted, or has a row twice or a NaN, near row {at - file.first}"
                )
            checker.add(rows)
            digest += projection.digest(rows)
            at, last = at + len(rows), rows.sort_key(len(rows) - 1)
        if file.digests is not None and (digest - file.digests.row_digest) % 2**64:
            raise DamagedWarehouse(f"{file.path} has other rows than were written there")
    if at != marks.rows:
        raise DamagedWarehouse(f"run {marks.run.name} has {at} rows, its marks say {marks.rows}")
    checker.finish()


def conserved(moment: PinnedTables, projection: Projection[Any]) -> str:
    """The rows of the steps in `events` and those of the runs are the same multiset, tick by tick.

    And as many rows are live as the ledger says.
    """
    runs, filesystem = moment.snapshot.marks(projection), moment.store.filesystem()
    last = runs[-1].run.last if runs else -1
    plans = [plan for plan in moment.plans() if plan.step <= last]
    totals, ingested = [], 0
    for rows, counts in scan_events(moment, projection, planned_batches(plans)):
        totals.append(counts)
        ingested += projection.digest(rows)
    told, said = sum_tick_counts(totals), sum_tick_counts([marks.totals for marks in runs])
    if not _same(told, said):
        differ = "" if told.rows != said.rows else ": other ticks, or other rows are NaN or NULL"
        raise DamagedWarehouse(
            f"events holds {told.rows} rows of the loaded steps, the runs {said.rows}{differ}"
        )
    stored = sum(
        projection.digest(rows)
        for marks in runs
        for file in marks.files
        for rows in read_blocks(filesystem, projection.runs_table, file, projection)
    )
    if (ingested - stored) % 2**64:
        raise DamagedWarehouse(f"the runs of {projection.title}: their values are not those of events")
    expected = sum(plan.rows for plan in plans)
    if told.rows != expected:
        raise DamagedWarehouse(f"the plans expect {expected} rows, events holds {told.rows}")
    held = ledger_table.ranges_by_file(moment.store, moment.table(LEDGER))
    ranges = ledger_table.live_ranges(chain.from_iterable(held.values()), planned_batches(plans))
    live = sum(
        ledger_table.row_counts(
            ledger_table.read_rows(moment.store, held, ranges, [*RANGE_COLUMNS, "rows"])
        ).values()
    )
    found = sum_tick_counts([counts for _, counts in scan_events(moment, projection, ranges)]).rows
    if found != live:
        raise DamagedWarehouse(f"the ledger has {live} live rows, events {found}")
    return f"{said.rows} rows in history, {live} live"


def scan_events(
    moment: PinnedTables, projection: Projection[Any], batches: Sequence[BatchRange]
) -> Iterator[tuple[Any, TickCounts]]:
    """The batches' rows in `events` as the projection decodes them, in pieces, with all rows by tick."""
    filesystem = moment.store.filesystem()
    found = files_of_batches(moment.table(EVENTS), batches)
    shares, names = map(EventRowGroups.whole_file, found), projection.columns
    for rows in read_event_rows(filesystem, shares, names, batches, projection.texts, checksums=True):
        yield projection.decode(rows)


def _same(a: TickCounts, b: TickCounts) -> bool:
    return all(
        np.array_equal(getattr(a, name), getattr(b, name)) for name in ("ticks", "counts", "nans", "nulls")
    )
