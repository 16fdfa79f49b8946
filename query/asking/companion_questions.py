"""Questions about companions: the cells of a window, joined.

A cell serves if all of its ticks are in the window. In history a cell may have several ticks (companions/
declared.py), so the window may cut a cell. The rows of the part inside the window are then read from
`events`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidemark.query.answers.companion_answer import CompanionAnswer
from tidemark.query.answers.rendering import window_text
from tidemark.query.asking.session import Session
from tidemark.query.reading.asked_window import AskedWindow
from tidemark.query.reading.shared_fields import shared_fields
from tidemark.query.reading.windows import choose_window, shown_window, widened_text
from tidemark.warehouse.columns.ticks import Window
from tidemark.warehouse.companions.cells import Cell, joined_summary
from tidemark.warehouse.companions.declared import Companion, Companions
from tidemark.warehouse.companions.kinds import kind_named
from tidemark.warehouse.errors import DamagedWarehouse, EmptyWindow
from tidemark.warehouse.events.reader import BatchRange
from tidemark.warehouse.ledger.live_summaries import LiveCell, live_cells
from tidemark.warehouse.projections.companion_cells import CellMarks
from tidemark.warehouse.snapshots.companion_rows import cells_of_rows
from tidemark.warehouse.snapshots.system_tables import AnyContents, Contents
from tidemark.warehouse.snapshots.views import CellsView


@dataclass(frozen=True, slots=True)
class _Kept:
    """Cells that are kept in the reader's memory."""

    cells: Sequence[Any]  # of a run Cell, of a live range LiveCell

    @property
    def nbytes(self) -> int:
        cells = [cell.cell if isinstance(cell, LiveCell) else cell for cell in self.cells]
        return 100 + sum(100 if cell is None else cell.nbytes for cell in cells)


@dataclass(frozen=True, slots=True)
class CompanionRequest:
    """The question about the companion with this name in a window; see `Reader.companion`."""

    name: str
    window: AskedWindow

    def plan(self, session: Session) -> _InWindow:
        """How it is answered."""
        session.options.companions.named(self.name)
        session.check_windows(self.window, None)
        return _InWindow(session, self)


@dataclass(frozen=True, slots=True)
class _InWindow:
    """The question about a companion; a `Plan`."""

    session: Session
    request: CompanionRequest
    topic: Hashable = None

    def newest(self) -> tuple[CellsView, AnyContents]:
        return self.session.newest_cells()

    def answer(self, newest: tuple[CellsView, AnyContents]) -> CompanionAnswer:
        (view, contents), options, asked = newest, self.session.options, self.request.window
        companion = options.companions.named(self.request.name)
        kind_named(companion.kind)  # before anything is read
        shared = shared_fields(view, widened_text(view, asked, options.grid), options.grid)
        window = choose_window(view, asked, options.grid)
        history, live, scanned = list[Cell](), list[Cell](), 0
        for site, own in zip(view.sites, contents.sites, strict=True):
            scan = _Scan(self.session, own, companion)
            for marks in site.runs:
                history += _of_run(site, marks, window, scan)
            live += _of_live(site, window, scan)
            scanned += scan.rows
        used = [*history, *live]
        shown = shown_window(window, options.grid)
        if any(cell.kind != companion.kind for cell in live):
            raise DamagedWarehouse(
                f"the ledger has cells of the companion {companion.name!r} that are not of its kind "
                f"{companion.kind!r}. Another tool has changed the ledger: put back its version before that."
            )
        if not any(cell.data for cell in used):
            rows = sum(cell.rows for cell in used)
            reason = f"its {rows:,} rows are all NULL in {companion.column!r}" if rows else "no rows"
            raise EmptyWindow(
                f"empty window: {reason}, {window_text(shown)}, so the companion {companion.name!r} is empty."
            )
        return CompanionAnswer(
            companion=companion.name,
            kind=companion.kind,
            column=companion.column,
            summary=joined_summary(used),
            n=sum(cell.rows - cell.nulls for cell in history),
            m=sum(cell.rows - cell.nulls for cell in live),
            nulls=sum(cell.nulls for cell in used),
            window=shown,
            rows_scanned=scanned,
            **shared,
        )


@dataclass(slots=True)
class _Scan:
    """Makes cells of a companion from rows of `events`, and counts the rows that it read."""

    session: Session
    contents: Contents
    companion: Companion
    rows: int = 0

    def cells(
        self, batches: Sequence[BatchRange], windows: Sequence[Window], rows: int, removed: int
    ) -> list[Cell]:
        """The cells of the batches' rows in the windows, one a tick; DamagedWarehouse if not so many rows.

        removed: the newest removal whose rows are not read.
        """
        only = Companions.of([self.companion], self.session.options.time_column)
        store, events = self.contents.store, self.contents.events.list_events(removed)
        cells = cells_of_rows(store, events, only, batches, windows)[self.companion.name]
        read = sum(cell.rows for cell in cells)
        if read != rows:
            raise DamagedWarehouse(
                f"events has {read} rows where {rows} came, in {', '.join(part.text for part in batches)}. "
                "Run verify."
            )
        self.rows += read
        return cells


def _of_run(view: CellsView, marks: CellMarks, window: Window, scan: _Scan) -> list[Cell]:
    """The cells of a run in the window; cut cells, and cells with removed rows, are made from `events`."""
    ticks = marks.totals.ticks
    if not window.holds(ticks).any():
        return []
    cells = _cells_of_run(scan, view, marks)
    gone = np.sort(view.kept.ticks_of(marks.run)) if view.kept is not None else ticks[:0]
    is_taken = [
        window.covers(cell.first, cell.last) and not _rows_within(gone, Window(cell.first, cell.last + 1))
        for cell in cells
    ]
    taken = [cell for cell, taken in zip(cells, is_taken, strict=True) if taken]
    cut = [
        Window(max(cell.first, window.start), min(cell.last + 1, window.stop))
        for cell, taken in zip(cells, is_taken, strict=True)
        if not taken and not window.misses(cell.first, cell.last)
    ]
    missing = [part for part in cut if part.holds(ticks).any()]
    if missing:
        rows = sum(sum(marks.totals.within(part)) - _rows_within(gone, part) for part in missing)
        taken += scan.cells(_batches_of_run(scan.contents, marks), missing, rows, view.removed)
    return taken


def _rows_within(ticks: NDArray[np.int64], window: Window) -> int:
    """How many of the rows, given by their ascending ticks, lie in the window."""
    start, stop = ticks.searchsorted([window.start, window.stop]).tolist()
    return int(stop - start)


def _cells_of_run(scan: _Scan, view: CellsView, marks: CellMarks) -> Sequence[Cell]:
    session, companion, place = scan.session, scan.companion, scan.contents.store.uri
    key = ("companion", companion.name, place, view.root, marks.source.path)  # of one attempt at the run
    kept = session.memory.at(key)
    cells: _Kept = kept.value or kept.keep(new := _Kept(tuple(marks.cells_of(companion))), new.nbytes)
    return cells.cells


def _of_live(view: CellsView, window: Window, scan: _Scan) -> list[Cell]:
    session, companion = scan.session, scan.companion
    store = scan.contents.store
    keys = {batches: ("companion", companion.name, store.uri, view.root, batches) for batches in view.batches}
    known = {batches: session.memory.peek(key) for batches, key in keys.items()}
    new: dict[BatchRange, list[LiveCell]] = {batches: [] for batches, kept in known.items() if kept is None}
    for row in live_cells(store, view.ledger, new, companion.name) if new else ():
        new[row.batches].append(row)
    recorded = set(chain.from_iterable(view.ledger.values()))
    for (late, tick), rows_of_tick in view.live_counts.items():
        if late in new and late not in recorded:  # of a bulk load that is not in these runs yet
            new[late].append(LiveCell(late, tick, rows_of_tick, None))
    for batches, rows in new.items():
        known[batches] = read = _Kept(tuple(rows))
        session.memory.put(keys[batches], read, read.nbytes)
    taken: list[Cell] = []
    for batches, kept in known.items():
        cells = [] if kept is None else [one for one in kept.cells if window.covers(one.tick, one.tick)]
        taken += [one.cell for one in cells if one.cell is not None]
        missing = {one.tick: one.rows for one in cells if one.cell is None}
        if missing:
            ticks = [Window(tick, tick + 1) for tick in sorted(missing)]
            taken += scan.cells([batches], ticks, sum(missing.values()), scan.contents.removed)
    return taken


def _batches_of_run(contents: Contents, marks: CellMarks) -> list[BatchRange]:
    return [
        BatchRange(source, first, last)
        for step, source, first, last, *_ in contents.step_rows()
        if marks.run.first <= step <= marks.run.last
    ]
