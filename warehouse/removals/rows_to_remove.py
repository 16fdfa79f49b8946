"""Which rows a removal is to take, by batches and a condition, and which parts of plans lose them."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

from tidemark.warehouse.columns.arrow_buffers import arrow_array
from tidemark.warehouse.columns.value_encoding import as_numpy, single_array
from tidemark.warehouse.delta import tables
from tidemark.warehouse.delta.table_names import EVENTS, LEDGER, STEPS
from tidemark.warehouse.events import removals
from tidemark.warehouse.events.reader import BULK, BatchRange
from tidemark.warehouse.events.removals import RemovedPart
from tidemark.warehouse.events.removed_rows import OF_STEP, RemovedBatch
from tidemark.warehouse.events.steps import StepPlan, planned_batches, read_step_plans
from tidemark.warehouse.integrity.digests import Fingerprint
from tidemark.warehouse.ledger import ledger_table
from tidemark.warehouse.removals.coming import Coming
from tidemark.warehouse.removals.conditions import RowCondition
from tidemark.warehouse.removals.rewrite import Rewritten
from tidemark.warehouse.removals.select import Selected, count_by_batch, select
from tidemark.warehouse.runs import run_tables
from tidemark.warehouse.work import Work

if TYPE_CHECKING:
    from deltalake import DeltaTable

_Places: TypeAlias = defaultdict[str, list[tuple[int, BatchRange]]]


@dataclass(frozen=True, slots=True)
class Wanted:
    """The rows to be removed.

    kind        of the removal
    batches     the batches whose rows leave; None: all batches
    condition   the condition that selects rows; None: all rows of the batches
    request     the caller's name of the call
    coming      for a correction, the rows that come in their place
    may_keep    whether few rows may be kept for readers to subtract, instead of building runs again
    """

    kind: removals.Kind
    batches: tuple[BatchRange, ...] | None
    condition: RowCondition | None
    request: str | None
    coming: Coming | None = None
    may_keep: bool = False

    def of(self, ranges: Iterable[BatchRange]) -> list[BatchRange]:
        """The batches of the ranges that may have selected rows."""
        if self.batches is None:
            return list(ranges)
        return [
            BatchRange(one.source, max(one.first, own.first), min(one.last, own.last))
            for one in ranges
            for own in self.batches
            if one.overlaps(own)
        ]


def open_complete(work: Work) -> tuple[DeltaTable, list[StepPlan]]:
    """`events`, and the plans of the steps that all projections have."""
    projections = work.options.projections
    runs = tables.find_tables(work.store, *(one.runs_table for one in projections))
    events, steps = tables.open_tables(work.store, EVENTS, STEPS)
    complete = min((-1 if one is None else run_tables.read_layout(one).last_step for one in runs), default=-1)
    plans = read_step_plans(work.store, steps, work.step_files)
    return events, [plan for plan in plans if plan.step <= complete]


def select_live(work: Work, wanted: Wanted, events: DeltaTable, plans: Sequence[StepPlan]) -> list[Selected]:
    """The wanted rows of batches that are not in history."""
    files = ledger_table.ranges_by_file(work.store, tables.open_table(work.store, LEDGER))
    known = [one for ranges in files.values() for one in ranges]
    live = ledger_table.live_ranges(known, planned_batches(plans))
    return select(work, wanted.condition, wanted.of(live), events) if live else []


def parts_of(
    wanted: Wanted, plans: Sequence[StepPlan], selected: Sequence[Selected]
) -> tuple[RemovedPart, ...]:
    """The parts of plans that lose rows; an unloaded bulk batch without rows has its part among them."""
    places = _places(plans)
    counts = Counter[tuple[int, BatchRange]]()
    for batch, rows in count_by_batch(selected).items():
        counts[_place_of(places, *batch)] += rows
    if not counts and wanted.batches is not None:
        for plan in plans:
            for part in plan.batches:
                if part in wanted.batches and part.source.startswith(BULK):
                    counts[plan.step, part] = 0
    return tuple(RemovedPart(step, part, rows) for (step, part), rows in sorted(counts.items()))


def _places(plans: Sequence[StepPlan]) -> _Places:
    """The parts of the plans, each with its step, by source in their order."""
    places: _Places = defaultdict(list)
    for plan in plans:
        for part in plan.batches:
            places[part.source].append((plan.step, part))
    for own in places.values():
        own.sort(key=_first_batch)
    return places


def _place_of(places: _Places, source: str, batch: int) -> tuple[int, BatchRange]:
    own = places[source]
    return own[bisect_right(own, batch, key=_first_batch) - 1]


def _first_batch(place: tuple[int, BatchRange]) -> int:
    return place[1].first


def rows_with_steps(plans: Sequence[StepPlan], written: Sequence[Rewritten]) -> pa.Table:
    """The rows that leave and are kept, with the step of each in the column OF_STEP."""
    rows = pa.concat_tables([one.rows for one in written if one.rows is not None])
    places, names = _places(plans), single_array(rows.column("_source")).dictionary_encode()
    sources, codes = names.dictionary.to_pylist(), as_numpy(names.indices)
    batches = as_numpy(single_array(rows.column("_batch")))
    is_new = (codes[1:] != codes[:-1]) | (batches[1:] != batches[:-1])  # rows of a batch lie together
    starts = np.concatenate([[0], np.flatnonzero(is_new) + 1])
    pairs = zip(codes[starts].tolist(), batches[starts].tolist(), strict=True)
    steps = np.array([_place_of(places, sources[code], batch)[0] for code, batch in pairs], np.int64)
    counts = np.diff(starts, append=len(codes))
    return rows.append_column(OF_STEP, arrow_array(np.repeat(steps, counts)))


def removed_batches(
    wanted: Wanted, parts: Sequence[RemovedPart], written: Sequence[Rewritten]
) -> list[RemovedBatch]:
    """The batches that lose rows, or are unloaded."""
    removed: dict[tuple[str, int], Fingerprint] = {}
    latest: dict[tuple[str, int], int] = {}
    for one in written:
        for batch, found in one.removed.items():
            removed[batch] = removed.get(batch, Fingerprint()) + found
        for batch, time in one.latest.items():
            latest[batch] = max(time, latest.get(batch, time))
    for part in parts:
        if not part.rows:
            removed[part.batches.source, part.batches.first] = Fingerprint()
    unloaded, expired = wanted.kind == "unload", wanted.kind == "expire"
    return [
        RemovedBatch(
            source,
            batch,
            found.rows,
            None if expired else found.digest,
            unloaded,
            latest.get((source, batch)),
        )
        for (source, batch), found in sorted(removed.items())
    ]
