"""How many rows may be kept for readers to subtract, instead of building runs again when rows leave."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidemark.warehouse.delta import tables
from tidemark.warehouse.events.removals import Removed, removed_at
from tidemark.warehouse.events.steps import StepPlan
from tidemark.warehouse.runs import run_tables
from tidemark.warehouse.work import Work

if TYPE_CHECKING:
    from deltalake import DeltaTable

_SHARE = 4  # at most one row is kept for so many rows that stay


@dataclass(frozen=True, slots=True)
class Room:
    """The room for rows of a removal.

    rows      that leave by it
    may_keep  whether they may be kept at all
    waiting   rows that left before, which runs still have
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


def room_for(work: Work, events: DeltaTable, plans: Sequence[StepPlan], rows: int, *, may_keep: bool) -> Room:
    """The room for so many rows, which leave history at this version of `events`; `plans` are those there.

    Beside an index there is none: where its rows stood in `events` is not kept.
    """
    removed = removed_at(work.store, events)
    left = removed.rows(plans) - rows
    limit = 0 if work.options.indexes else min(work.store.tuning.kept_rows, left // _SHARE)
    return Room(rows, may_keep, _waiting(work, removed), limit)


def _waiting(work: Work, removed: Removed) -> int:
    """How many kept rows the runs of a projection still have, at most."""
    if not any(one.kept for one in removed.removals):
        return 0
    runs_tables = tables.find_tables(work.store, *(one.runs_table for one in work.options.projections))
    waiting = {
        one.number: one.rows
        for table in runs_tables
        for run, files in run_tables.runs_of(table).items()
        for one in removed.pending(run.first, run.last, run_tables.net_of(files[0].path))
        if one.kept
    }
    return sum(waiting.values())
