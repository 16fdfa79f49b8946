"""Makes cells of companions from rows of `events`: where a window cuts a stored cell, and to check cells."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from tidemark.warehouse.columns.tick_counts import window_codes
from tidemark.warehouse.columns.ticks import Window
from tidemark.warehouse.columns.value_encoding import as_numpy
from tidemark.warehouse.companions.cells import Cell
from tidemark.warehouse.companions.declared import CellCollector, Companions
from tidemark.warehouse.delta.data_files import DataFile
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.events.reader import BatchRange, EventRowGroups, files_with, read_event_rows


def cells_of_rows(
    store: Store,
    events: Sequence[DataFile],
    companions: Companions,
    batches: Sequence[BatchRange],
    windows: Sequence[Window],
) -> dict[str, list[Cell]]:
    """The cells of the batches' rows in some windows: one for each companion and tick, ascending.

    events: the files of `events` that are looked at.
    windows: ascending, without overlap. Files without rows of the batches or the windows are not opened.
    InputError if a kind is not registered.
    """
    collector = CellCollector(companions)
    if not windows:
        return collector.finish()
    whole = Window(windows[0].start, windows[-1].stop)
    for file in files_with(events, batches):
        first, last = file.stats.get("min._tick"), file.stats.get("max._tick")
        if first is not None and last is not None and whole.misses(first, last):
            continue
        shares = [EventRowGroups.whole_file(file)]
        for rows in read_event_rows(store, shares, companions.columns, batches, checksums=True):
            inside = window_codes(as_numpy(rows.column("_tick")), windows) >= 0
            if inside.any():
                collector.add(rows if inside.all() else rows.take(pa.array(np.flatnonzero(inside))))
    return collector.finish()
