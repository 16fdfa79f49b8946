"""The checks of `verify` on history: runs are sorted, marks are exact, and runs hold the rows of their steps.

For each projection, every run and the loaded steps of `events` are read once, a block at a time. A check that
fails raises DamagedWarehouse, which `verify` reports.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np

from tidemark.warehouse.columns.tick_counts import TickCounts, sum_tick_counts, tick_counts_without
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import EVENTS, LEDGER
from tidemark.warehouse.errors import DamagedWarehouse
from tidemark.warehouse.events.reader import BatchRange, EventRowGroups, files_of_batches, read_event_rows
from tidemark.warehouse.events.steps import planned_batches
from tidemark.warehouse.ledger import ledger_table
from tidemark.warehouse.ledger.ledger_rows import RANGE_COLUMNS
from tidemark.warehouse.runs.levels import Run
from tidemark.warehouse.runs.projection import Marks, Projection
from tidemark.warehouse.runs.run_files import read_blocks
from tidemark.warehouse.runs.run_tables import net_of, runs_of
from tidemark.warehouse.verification.pinned_tables import PinnedTables


def runs_exact(pinned: PinnedTables, projection: Projection[Any]) -> str:
    """Checks that every run is sorted and matches its marks."""
    marks_of_runs = pinned.snapshot.marks(projection)
    contents = {marks.run: check_run(pinned.store, projection, marks) for marks in marks_of_runs}
    with_rows = pinned.snapshot.marks_with_rows(projection)
    pinned.contents[projection.name] = sum(contents[marks.run] for marks in with_rows)
    return f"{sum(marks.rows for marks in marks_of_runs)} rows in {len(marks_of_runs)} runs"


def check_run(store: Store, projection: Projection[Any], marks: Marks) -> int:
    """The content digest of a run; DamagedWarehouse unless it is sorted and matches its marks.

    Reads all of its rows.
    """
    filesystem, checker = store.filesystem(), projection.checker(marks)
    position, last_key, content = 0, None, 0
    for file in marks.files:
        checker.begin(file)
        if file.first != position:
            raise DamagedWarehouse(
                f"{file.path} begins at row {file.first} of its run by the marks, expected row {position}"
            )
        digest = 0
        for rows in read_blocks(filesystem, projection.runs_table, file, projection):
            first_key = rows.sort_key(0)
            equal_allowed = not projection.merges_equal
            follows = last_key is None or last_key < first_key or (last_key == first_key and equal_allowed)
            if not (follows and projection.ascends(rows)):
                row = position - file.first
                raise DamagedWarehouse(
                    f"{file.path} is not sorted, or has a row twice or a NaN, near row {row}"
                )
            checker.add(rows)
            digest += projection.digest(rows)
            content += projection.content_digest(rows)
            position, last_key = position + len(rows), rows.sort_key(len(rows) - 1)
        if (digest - file.digests.row_digest) % 2**64:
            raise DamagedWarehouse(f"{file.path} has other rows than were written there")
    if position != marks.rows:
        raise DamagedWarehouse(f"run {marks.run.name} has {position} rows, its marks say {marks.rows}")
    checker.finish()
    return content


def _content(pinned: PinnedTables, projection: Projection[Any]) -> int:
    """The sum of the content digests of the runs with rows; read if `runs_exact` did not come to its end."""
    known = pinned.contents.get(projection.name)
    if known is not None:
        return known
    with_rows = pinned.snapshot.marks_with_rows(projection)
    return sum(_content_of(pinned, projection, marks) for marks in with_rows)


def _content_of(pinned: PinnedTables, projection: Projection[Any], marks: Marks) -> int:
    filesystem = pinned.store.filesystem()
    return sum(
        projection.content_digest(rows)
        for file in marks.files
        for rows in read_blocks(filesystem, projection.runs_table, file, projection)
    )


def conserved(pinned: PinnedTables, projection: Projection[Any]) -> str:
    """Checks that no row is lost or counted twice.

    The runs, without kept rows, hold the same multiset of rows as the loaded steps have in `events`, tick by
    tick; the plans state the number of these rows, less those that removals took, and the ledger states the
    number of live rows.
    """
    marks_of_runs = pinned.snapshot.marks(projection)
    last_step = marks_of_runs[-1].run.last if marks_of_runs else -1
    plans = [plan for plan in pinned.plans if plan.step <= last_step]
    if last_step not in pinned.live:  # the same rows for each projection that has these steps
        pinned.live[last_step] = check_live_rows(pinned, projection, planned_batches(plans))
    live = pinned.live[last_step]
    in_runs = sum_tick_counts([marks.totals for marks in pinned.snapshot.marks_with_rows(projection)])
    kept = pinned.snapshot.kept(projection)
    if kept is not None:
        in_runs = tick_counts_without([in_runs], kept.totals)
    removed = pinned.removed_of(projection)
    if removed.number < pinned.removed.number:  # `events` has no files of that time any more
        if in_runs.rows != (expected := removed.rows(plans)):
            raise DamagedWarehouse(f"the plans expect {expected} rows, the runs hold {in_runs.rows}")
        return f"{in_runs.rows} rows in history, {live} live; run a load to take out removed rows"
    tick_counts, events_digest = [], 0
    for rows, counts in scan_events(pinned, projection, planned_batches(plans)):
        tick_counts.append(counts)
        events_digest += projection.content_digest(rows)
    in_events = sum_tick_counts(tick_counts)
    if not _same_counts(in_events, in_runs):
        detail = (
            "" if in_events.rows != in_runs.rows else ": their ticks, or their counts of NaN or NULL, differ"
        )
        raise DamagedWarehouse(
            f"events holds {in_events.rows} rows of the loaded steps, the runs {in_runs.rows}{detail}"
        )
    runs_digest = _content(pinned, projection)
    if kept is not None:
        runs_digest -= projection.content_digest(kept.rows)
    if (events_digest - runs_digest) % 2**64:
        raise DamagedWarehouse(f"the runs of {projection.title}: their values are not those of events")
    expected = removed.rows(plans)
    if in_events.rows != expected:
        raise DamagedWarehouse(f"the plans expect {expected} rows, events holds {in_events.rows}")
    return f"{in_runs.rows} rows in history, {live} live"


def runs_unlike_events(pinned: PinnedTables, projection: Projection[Any]) -> dict[Run, str]:
    """The runs that do not have the rows which their steps have in `events`, each with the difference.

    Runs that still have rows of a later removal are not compared: `events` has these rows no more.
    """
    table, found = pinned.snapshot.table(projection.runs_table), {}
    files = {} if table is None else runs_of(table)
    for marks in pinned.snapshot.marks(projection):
        run = marks.run
        if pinned.removed.pending(run.first, run.last, net_of(files[run][0].path)):
            continue
        batches = planned_batches(pinned.plans[run.first : run.last + 1])
        pieces, digest = [], 0
        for rows, counts in scan_events(pinned, projection, batches):
            pieces.append(counts)
            digest += projection.content_digest(rows)
        if not _same_counts(sum_tick_counts(pieces), sum_tick_counts([marks.totals])):
            found[run] = "events has other ticks, or other counts of NaN or NULL, of its steps"
        elif (digest - _content_of(pinned, projection, marks)) % 2**64:
            found[run] = "events has other values of its steps"
    return found


def check_live_rows(pinned: PinnedTables, projection: Projection[Any], loaded: Sequence[BatchRange]) -> int:
    """DamagedWarehouse unless `events` has as many rows outside the loaded batches as the ledger counts."""
    ranges_by_file = ledger_table.ranges_by_file(pinned.store, pinned.table(LEDGER))
    live = ledger_table.live_ranges(chain.from_iterable(ranges_by_file.values()), loaded)
    ledger_rows = ledger_table.read_rows(pinned.store, ranges_by_file, live, [*RANGE_COLUMNS, "rows"])
    expected = sum(ledger_table.row_counts(ledger_rows).values())
    in_events = sum_tick_counts([counts for _, counts in scan_events(pinned, projection, live)]).rows
    if in_events != expected:
        raise DamagedWarehouse(f"the ledger has {expected} live rows, events {in_events}")
    return expected


def scan_events(
    pinned: PinnedTables, projection: Projection[Any], batches: Sequence[BatchRange]
) -> Iterator[tuple[Any, TickCounts]]:
    """Yields the batches' rows in `events` in pieces: (rows decoded by the projection, all rows by tick)."""
    files = files_of_batches(pinned.table(EVENTS), batches)
    row_groups, columns = map(EventRowGroups.whole_file, files), projection.columns
    for rows in read_event_rows(pinned.store, row_groups, columns, batches, projection.texts, checksums=True):
        yield projection.decode(rows)


def _same_counts(a: TickCounts, b: TickCounts) -> bool:
    return all(
        np.array_equal(getattr(a, name), getattr(b, name)) for name in ("ticks", "counts", "nans", "nulls")
    )
