"""The live rows themselves, for answers with no error at all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidemark.warehouse.columns.keys import Key, KeyColumn
from tidemark.warehouse.columns.measures import Measure, epoch_micros
from tidemark.warehouse.columns.ticks import Window
from tidemark.warehouse.delta import tables
from tidemark.warehouse.delta.store import EVENTS
from tidemark.warehouse.events.reader import (
    BatchRange,
    DecodedRows,
    EventRowGroups,
    files_of_batches,
    read_decoded_rows,
)
from tidemark.warehouse.ledger import batch_counts
from tidemark.warehouse.projections.key_rows import KeyRows, counted
from tidemark.warehouse.snapshots.snapshot import KeysView, Pinned, Snapshot, View


def live_key_rows(
    snapshot: Snapshot | Pinned,
    view: KeysView,
    window: Window,
    since: int | None = None,
    until: int | None = None,
) -> Iterator[KeyRows]:
    """The keys of the view's live batches in the window, counted, in bounded pieces.

    `since` (inclusive) and `until` are event times in microseconds where the window's ends lie inside a tick;
    None leaves the end to the ticks. NULL is left out.
    """
    live = [one for one in view.live if not window.misses(one.tick, one.tick)]
    found = 0
    time = snapshot.options.time_column if since is not None or until is not None else None
    for piece in _pieces(snapshot, sorted({one.batches for one in live}), [time] if time else [], view.key):
        keys, inside = piece.keys, window.holds(piece.ticks)
        found += int(np.count_nonzero(inside))
        if keys is None:
            continue
        if time is not None:
            moments = epoch_micros(time, piece.columns[0].stored)
            inside &= ~piece.columns[0].null
            inside &= (moments >= since) if since is not None else True
            inside &= (moments < until) if until is not None else True
        yield counted(KeyColumn(keys.names, keys.codes, keys.null | ~inside), piece.ticks)
    counts = [(one.batches, one.tick, one.rows + one.nulls) for one in view.live]
    _check(snapshot, counts, window, found)


def _pieces(
    snapshot: Snapshot | Pinned,
    batches: Sequence[BatchRange],
    measures: Sequence[Measure],
    key: Key | None = None,
) -> Iterator[DecodedRows]:
    """The batches' rows of `events`, at its newest version: it has every batch that the ledger has."""
    if not batches:
        return
    filesystem = snapshot.store.filesystem()
    found = files_of_batches(tables.open_table(snapshot.store, EVENTS), batches)
    yield from read_decoded_rows(filesystem, map(EventRowGroups.whole_file, found), measures, batches, key)


def live_values(snapshot: Snapshot | Pinned, view: View, window: Window) -> Iterator[NDArray[Any]]:
    """The stored values of the view's live batches in the window, in bounded pieces; no NaN, no NULL."""
    rows = [row for row in view.live if not window.misses(row.tick, row.tick)]
    batches = sorted({BatchRange(row.source, row.first_batch, row.last_batch) for row in rows})
    found = 0
    for piece in _pieces(snapshot, batches, [view.measure]):
        column, inside = piece.columns[0], window.holds(piece.ticks)
        found += int(np.count_nonzero(inside))
        yield column.stored[inside & ~column.nan & ~column.null]
    counts = [
        (BatchRange(row.source, row.first_batch, row.last_batch), row.tick, row.rows) for row in view.live
    ]
    _check(snapshot, counts, window, found)


def _check(
    snapshot: Snapshot | Pinned, counts: Sequence[tuple[BatchRange, int, int]], window: Window, found: int
) -> None:
    """DamagedWarehouse unless the window has as many live rows as the ledger's (range, tick, rows) say."""
    inside = [(one, rows) for one, tick, rows in counts if not window.misses(tick, tick)]
    expected = sum(rows for _, rows in inside)
    if found == expected:
        return
    came: dict[BatchRange, int] = {}
    for one, _, rows in counts:
        came[one] = came.get(one, 0) + rows
    asked = {one: came[one] for one, _ in inside}
    said = f"the ledger has {expected} live rows in the window, the table events {found}"
    raise batch_counts.not_those_that_came(snapshot.store, asked, said)
