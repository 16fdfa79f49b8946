"""Rows that left steps whose plans are lost: how the new plan counts these rows, and their records.

A plan has the rows as they came: those that `events` has, and those that its removals took. So the new plan
of batches that lost theirs counts both, and the records name the new step and its parts from then on:

    bulk batches   each that a record names is a part of the new step, also without rows in `events`
    streams        a source's batches up to the newest one that lost rows were in history, in order: they are
                   one part, whatever the ledger still has of them

The ledger's summaries of such batches have the rows as they came, so none of them may be live again. Both
commits can be repeated: records that name the new step are moved to the same parts.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from tidemark.warehouse.delta import tables
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import EVENTS, LEDGER, REMOVALS
from tidemark.warehouse.events import removals
from tidemark.warehouse.events.reader import BULK, BatchRange, rows_by_batch
from tidemark.warehouse.events.removals import Removal, RemovedPart, removed_at
from tidemark.warehouse.events.steps import StepPlan
from tidemark.warehouse.ledger import ledger_table
from tidemark.warehouse.repairs.ledger import LedgerDamage


@dataclass(frozen=True, slots=True)
class LostParts:
    """The parts of lost plans of which rows left, as the new plan has them.

    rows    of each new part, as they came
    step    the new step
    """

    rows: dict[BatchRange, int]
    step: int

    def moved(self, removal: Removal) -> Removal:
        """The record, with the new step and parts in the place of lost ones; the same if it has none."""
        counts, stays = Counter[BatchRange](), list[RemovedPart]()
        for part in removal.parts:
            if part.step < self.step:
                stays.append(part)
            else:
                counts[next(one for one in self.rows if part.batches.within(one))] += part.rows
        return replace(removal, parts=(*stays, *(RemovedPart(self.step, *one) for one in counts.items())))


def find(
    store: Store, plans: Sequence[StepPlan], lost: Iterable[BatchRange], damage: LedgerDamage
) -> LostParts | None:
    """The parts of steps from the first lost plan on, of which rows left; None if no row did.

    plans   the plans that are left
    lost    the batches of streams that neither a plan nor the ledger has
    """
    (table,) = tables.find_tables(store, REMOVALS)
    step, records = len(plans), removals.read_removals(store, table)
    ranges = {part.batches for one in records for part in one.parts if part.step >= step}
    if not ranges:
        return None
    events, rows = tables.open_table(store, EVENTS), dict[BatchRange, int]()
    gone = Counter[BatchRange]()
    for part in (part for one in removed_at(store, events).removals for part in one.parts):
        gone[part.batches] += part.rows
    for one in _parts(store, plans, ranges, lost, damage):
        took = sum(count for batches, count in gone.items() if batches in ranges and batches.within(one))
        rows[one] = rows_by_batch(store, events, one).total() + took
    return LostParts(rows, step)


def _parts(
    store: Store,
    plans: Sequence[StepPlan],
    ranges: Iterable[BatchRange],
    lost: Iterable[BatchRange],
    damage: LedgerDamage,
) -> list[BatchRange]:
    """The new parts, ascending: bulk batches as they are, of each stream one from its first lost batch on."""
    streams, parts = defaultdict[str, list[BatchRange]](list), list[BatchRange]()
    for one in ranges:
        if one.source.startswith(BULK):
            parts.append(one)
        else:
            streams[one.source].append(one)
    files = {}
    if damage.log is None:
        ledger = tables.open_table(store, LEDGER)
        files = ledger_table.ranges_by_file(store, ledger, without=set(damage.faults))
    planned = Counter[str]()
    for batches in chain.from_iterable(plan.batches for plan in plans):
        planned[batches.source] = max(planned[batches.source], batches.last + 1)
    for source, own in streams.items():
        last = max(one.last for one in own)
        known = chain(*files.values(), lost)
        others = [one for one in known if one.source == source and one.last <= last]
        first = min(one.first for one in (*own, *others))
        parts.append(BatchRange(source, max(first, planned[source]), last))
    return sorted(parts)
