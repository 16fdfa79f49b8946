"""The live rows themselves, for answers with no error at all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from numpy.typing import NDArray

from warehouse import tables
from warehouse.events import Batches, event_files, read_columns, share_out
from warehouse.snapshot import Snapshot, View
from warehouse.storage import EVENTS
from warehouse.ticks import Window

_READ_ROWS = 2**20


def live_values(snapshot: Snapshot, view: View, window: Window) -> Iterator[NDArray[Any]]:
    """The stored values of the view's live batches in the window, in bounded pieces.

    NaN and NULL are left out. `events` is read at its newest version: it has every batch that
    the ledger has.
    """
    rows = [row for row in view.live if not window.misses(row.tick, row.tick)]
    batches = sorted({Batches(row.source, row.first_batch, row.last_batch) for row in rows})
    if not batches:
        return
    store = snapshot.store
    filesystem = store.filesystem()
    found = event_files(tables.open_table(store, EVENTS), batches)
    for shares in share_out(filesystem, found, _READ_ROWS):
        for piece in read_columns(filesystem, shares, [view.measure], batches):
            column = piece.columns[0]
            yield column.stored[window.holds(piece.ticks) & ~column.nan & ~column.null]
