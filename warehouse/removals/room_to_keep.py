"""How many rows may be kept for readers to subtract, instead of building runs again when rows leave."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidemark.warehouse.delta import tables
from tidemark.warehouse.events.removals import RemovedPart, removed_at
from tidemark.warehouse.events.steps import StepPlan
from tidemark.warehouse.runs import run_tables
from tidemark.warehouse.work import Work

if TYPE_CHECKING:
    from deltalake import DeltaTable

_SHARE = 4  # at most one row is kept for so many rows that stay


@dataclass(frozen=True, slots=True)
class Room:
    """The room for rows of a removal.

    rows      the rows that leave by the removal
    may_keep  whether they may be kept at all
    waiting   rows that left before, which runs still have of which a row is left once these rows have left
    limit     the rows that may be kept once these rows have left
    """

    rows: int
    may_keep: bool
    waiting: int
    limit: int

    @property
    def fits(self) -> bool:
        """Whether the rows are kept."""
        return self.may_keep and self.rows > 0 and self.rows + self.waiting <= self.limit

    @property
    def is_full(self) -> bool:
        """Whether runs are to lose the rows that wait, too: there would be too many of them."""
        return self.waiting > self.limit or (self.may_keep and not self.fits and 0 < self.rows <= self.limit)


def room_for(
    work: Work,
    events: DeltaTable,
    plans: Sequence[StepPlan],
    parts: Sequence[RemovedPart],
    *,
    may_keep: bool,
) -> Room:
    """The room for the rows of these parts, which leave at this version of `events`; `plans` are all there.

    There is no room beside an index, because kept rows do not say where they stood in `events`. And none is
    needed for runs that lose all of their rows: they count as empty, and nothing is subtracted from them.
    """
    rows, removed = sum(part.rows for part in parts), removed_at(work.store, events)
    leaving, staying = Counter[int](), removed.rows_by_step(plans)
    for part in parts:
        leaving[part.step] += part.rows
    staying.subtract(leaving)
    runs_tables = tables.find_tables(work.store, *(one.runs_table for one in work.options.projections))
    runs = [run_tables.runs_of(table) for table in runs_tables]
    may_keep = may_keep and any(
        any(leaving[step] for step in run.steps) and any(staying[step] for step in run.steps)
        for own in runs
        for run in own
    )
    waiting = {
        one.number: one.rows
        for own in runs
        for run, files in own.items()
        if any(staying[step] for step in run.steps)
        for one in removed.pending(run.first, run.last, run_tables.net_of(files[0].path))
        if one.kept
    }
    limit = min(work.store.tuning.kept_rows, staying.total() // _SHARE)
    return Room(rows, may_keep, sum(waiting.values()), 0 if work.options.indexes else limit)
