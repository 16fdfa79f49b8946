"""The check of `verify` on companions: stored cells are those of the rows in `events`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tidemark.warehouse.columns.ticks import ALL_TIME
from tidemark.warehouse.companions.cells import Cell, join_cells, joined_summary
from tidemark.warehouse.companions.declared import Companion, Companions
from tidemark.warehouse.companions.kinds import is_registered, kind_named
from tidemark.warehouse.delta import data_files
from tidemark.warehouse.delta.data_files import DataFile
from tidemark.warehouse.delta.table_names import EVENTS
from tidemark.warehouse.errors import DamagedWarehouse
from tidemark.warehouse.events.reader import BatchRange
from tidemark.warehouse.ledger.live_summaries import LiveCell, live_cells
from tidemark.warehouse.snapshots.companion_rows import cells_of_rows
from tidemark.warehouse.verification.pinned_tables import PinnedTables


def cells_hold(pinned: PinnedTables, companion: Companion) -> str:
    """Checks the cells of every run and every live range against the rows of `events`.

    Their ticks and their numbers of rows and NULLs must be equal, and each summary must open. If the kind is
    deterministic, the bytes must be equal, too. Without the kind only the numbers of rows are checked: the
    detail says so. Only these are checked, too, where rows left that the cells still have.
    """
    if not pinned.snapshot.options.columns:
        return "no rows yet"
    is_after = pinned.snapshot.cells_view().removed == pinned.removed.number
    checked = run_cells_hold(pinned, companion) + live_cells_hold(pinned, companion)
    if not is_registered(companion.kind):
        return f"{checked} cells, only their rows: the kind {companion.kind!r} is not registered here"
    return f"{checked} cells{'' if is_after else '; run a load to take out removed rows'}"


def run_cells_hold(pinned: PinnedTables, companion: Companion) -> int:
    """Checks the cells of every run; returns how many there are, 0 while runs have removed rows."""
    view, plans, checked = pinned.snapshot.cells_view(), pinned.plans, 0
    events = data_files.list_files(pinned.table(EVENTS))
    for marks in view.runs if view.removed == pinned.removed.number else ():
        cells = marks.cells_of(companion)
        of_run = [plan for plan in plans if marks.run.first <= plan.step <= marks.run.last]
        batches = [batches for plan in of_run for batches in plan.batches]
        gone = np.empty(0, np.int64) if view.kept is None else view.kept.ticks_of(marks.run)
        checked += _check(pinned, companion, cells, batches, f"run {marks.run.name}", events, gone)
    return checked


def live_cells_hold(pinned: PinnedTables, companion: Companion) -> int:
    """Checks the cells of every live range; returns how many there are."""
    view, checked = pinned.snapshot.cells_view(), 0
    events = data_files.list_files(pinned.table(EVENTS))
    live: dict[BatchRange, list[LiveCell]] = {batches: [] for batches in view.batches}
    for row in live_cells(pinned.store, view.ledger, view.batches, companion.name):
        live[row.batches].append(row)
    for live_range, rows in live.items():
        cells = [row.cell for row in rows if row.cell is not None]
        if len(cells) < len(rows):
            raise DamagedWarehouse(f"{live_range.text} has no cell of the companion {companion.name!r}")
        nothing = np.empty(0, np.int64)
        checked += _check(pinned, companion, cells, [live_range], live_range.text, events, nothing)
    return checked


def _check(
    pinned: PinnedTables,
    companion: Companion,
    stored: Sequence[Cell],
    batches: Sequence[BatchRange],
    place: str,
    events: Sequence[DataFile],
    gone: NDArray[np.int64],
) -> int:
    """DamagedWarehouse unless the cells are those of the batches' rows; returns how many there are.

    gone   the ticks of rows that left, and that the cells still have
    """
    if not is_registered(companion.kind):
        return len(stored)
    kind, time = kind_named(companion.kind), pinned.snapshot.options.time_column
    only = Companions.of([companion], time)
    expected = cells_of_rows(pinned.store, events, only, batches, [ALL_TIME])[companion.name]
    for cell in stored:
        inside = [part for part in expected if cell.first <= part.first <= cell.last]
        whole = join_cells(inside) if inside else None
        if left := int(((gone >= cell.first) & (gone <= cell.last)).sum()):
            if left + (0 if whole is None else whole.rows) == cell.rows and cell.kind == companion.kind:
                continue
            whole = None
        same = whole is not None and (whole.rows, whole.nulls) == (cell.rows, cell.nulls)
        if same and whole is not None and getattr(kind, "deterministic", False):
            same = whole.data == cell.data
        if not same or cell.kind != companion.kind:
            raise DamagedWarehouse(
                f"the companion {companion.name!r} of {place}, ticks {cell.first} to {cell.last}, is not the "
                "summary of the rows in events"
            )
        if cell.data:
            joined_summary([cell])  # it must open
    if sum(cell.rows for cell in stored) != sum(part.rows for part in expected) + len(gone):
        raise DamagedWarehouse(f"the companion {companion.name!r} of {place} lacks rows of events")
    return len(stored)
