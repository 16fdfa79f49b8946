"""Reads the live rows from `events`, for exact answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tidemark.warehouse.columns.keys import KeyColumn
from tidemark.warehouse.columns.tick_counts import TickCounts, sum_tick_counts
from tidemark.warehouse.columns.ticks import Window
from tidemark.warehouse.columns.value_encoding import epoch_micros
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.events.reader import BatchRange, EventRowGroups, read_decoded_rows, read_event_rows
from tidemark.warehouse.ledger import batch_counts
from tidemark.warehouse.projections.key_rows import KeyRows, count_pairs
from tidemark.warehouse.projections.sorted_values import SortedValues
from tidemark.warehouse.runs.projection import Projection, Rows
from tidemark.warehouse.snapshots.snapshot import Snapshot
from tidemark.warehouse.snapshots.snapshot_reader import SnapshotReader
from tidemark.warehouse.snapshots.views import KeysView, LiveCounts, View

R = TypeVar("R", bound=Rows)


def live_key_rows(
    snapshot: SnapshotReader | Snapshot,
    view: KeysView,
    window: Window,
    since: int | None,
    until: int | None,
) -> Iterator[KeyRows]:
    """The keys of the view's live batches in the window, counted, in bounded pieces.

    `since` (inclusive) and `until` (exclusive) are event times in microseconds, for a window that starts or
    ends inside a tick; None means that the window's ticks bound that side. NULL keys are left out.
    DamagedWarehouse if `events` has another number of rows in the window than the ledger.
    """
    counts = {
        (batches, tick): rows
        for (batches, tick), rows in view.live_counts.items()
        if not window.misses(tick, tick)
    }
    time = snapshot.options.time_column if since is not None or until is not None else None
    batches = sorted({batches for batches, _ in counts})
    found: Counter[int] = Counter()
    shares = map(EventRowGroups.whole_file, snapshot.event_files(batches)) if batches else ()
    for piece in read_decoded_rows(_named(snapshot), shares, [time] if time else [], batches, [view.key]):
        (keys,), inside = piece.keys, window.holds(piece.ticks)
        ticks, rows = np.unique(piece.ticks[inside], return_counts=True)
        found.update(dict(zip(ticks.tolist(), rows.tolist(), strict=True)))
        if time is not None:
            moments = epoch_micros(time, piece.columns[0].stored)
            inside &= ~piece.columns[0].null
            inside &= (moments >= since) if since is not None else True
            inside &= (moments < until) if until is not None else True
        yield count_pairs(KeyColumn(keys.names, keys.codes, keys.null | ~inside), piece.ticks)
    check_live_rows(snapshot, counts, found)


def read_projection_rows(
    snapshot: SnapshotReader | Snapshot, projection: Projection[R], batches: Sequence[BatchRange]
) -> Iterator[tuple[R, TickCounts]]:
    """The rows of a projection in the batches, as `Projection.decode` returns them, in bounded pieces."""
    if not batches:
        return
    shares = map(EventRowGroups.whole_file, snapshot.event_files(batches))
    for rows in read_event_rows(_named(snapshot), shares, projection.columns, batches, projection.texts):
        yield projection.decode(rows)


def _named(snapshot: SnapshotReader | Snapshot) -> Store:
    """The store of the snapshot, with the names of the columns as the snapshot has them."""
    return replace(snapshot.store, names=snapshot.options.names)


def check_live_rows(
    snapshot: SnapshotReader | Snapshot,
    counts: LiveCounts,
    found: Mapping[int, int],
    batches: BatchRange | None = None,
) -> None:
    """DamagedWarehouse unless as many rows were found in each tick as the ledger has.

    counts: the ledger's rows by range and tick.
    batches: the range whose rows were read; None for all ranges. The error names changed batches of all
        ranges.
    """
    expected: Counter[int] = Counter()
    by_range: Counter[BatchRange] = Counter()
    for (batch_range, tick), rows in counts.items():
        by_range[batch_range] += rows
        if batches is None or batch_range == batches:
            expected[tick] += rows
    if found != expected:
        tick = min(tick for tick in {*expected, *found} if expected[tick] != found.get(tick, 0))
        reason = (
            f"the ledger has {expected.total()} live rows, but the table events has {sum(found.values())}"
            f" (in tick {tick}: {expected[tick]} and {found.get(tick, 0)})"
        )
        raise batch_counts.changed_rows_error(snapshot.store, by_range, reason)


def live_values(snapshot: SnapshotReader | Snapshot, view: View, window: Window) -> Iterator[NDArray[Any]]:
    """The stored values of the view's live batches in the window, in bounded pieces, without NaN and NULL.

    DamagedWarehouse if `events` has another number of rows in these batches than the ledger.
    """
    batches = sorted({batches for batches, tick in view.live_counts if not window.misses(tick, tick)})
    totals = []
    for rows, by_tick in read_projection_rows(snapshot, SortedValues(view.measure), batches):
        totals.append(by_tick)
        yield rows.values[window.holds(rows.ticks)]
    counts = {place: number for place, number in view.live_counts.items() if place[0] in batches}
    check_live_rows(snapshot, counts, sum_tick_counts(totals).by_tick)
