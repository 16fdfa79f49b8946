"""Batches with the same rows as an earlier one, or nearly: most likely one file under two names.

A bulk batch is compared by a sample of its rows (integrity/row_sample.py) with those of the steps that have
one (events/step_facts.py), which were read for the plan anyway. A batch of which all rows were removed is not
named. Two loads that run at the same time do not see each other before one has its plan.
"""

from __future__ import annotations

from collections.abc import Sequence

from deltalake import DeltaTable

from tidemark.warehouse.delta import data_files
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.errors import OverlappingBatch
from tidemark.warehouse.events.reader import (
    BULK,
    BatchRange,
    EventRowGroups,
    files_of_batches,
    read_event_rows,
)
from tidemark.warehouse.events.removals import NOTHING, removed_at
from tidemark.warehouse.events.step_facts import read_facts
from tidemark.warehouse.events.steps import StepPlan
from tidemark.warehouse.ingest.event_files import sampler_of
from tidemark.warehouse.integrity.row_sample import RowSample
from tidemark.warehouse.work import Work


def overlaps(
    store: Store,
    events: DeltaTable,
    steps: DeltaTable,
    plans: Sequence[StepPlan],
    batch: BatchRange,
    sample: RowSample,
) -> list[str]:
    """A warning for each earlier batch with the same rows, or nearly, unless all of its rows were removed.

    events, steps   the tables, opened before; `plans` are those of `steps`
    """
    facts = read_facts(store, data_files.list_files(steps))
    alike = []
    for plan in plans:
        other = facts[plan.step].sample if plan.step in facts and batch not in plan.batches else None
        if other is not None and (likeness := sample.likeness(other)):
            alike.append((plan, likeness))
    removed = removed_at(store, events) if alike else NOTHING
    mine, warnings = batch.source.removeprefix(BULK), []
    for plan, likeness in alike:
        if left := removed.rows([plan]):
            of_these = f", of which {left:,} are left," if left < plan.rows else ","
            names = ", ".join(repr(one.source.removeprefix(BULK)) for one in plan.batches)
            warnings.append(
                f"batch {mine!r} with {sample.rows:,} rows has {likeness} rows as batch {names} with "
                f"{plan.rows:,} rows{of_these} which is step {plan.step}"
            )
    return warnings


def check_no_overlap(warnings: Sequence[str]) -> None:
    """OverlappingBatch if there is a warning of `overlaps`."""
    if warnings:
        raise OverlappingBatch(
            f"{'; '.join(warnings)}. Nothing was changed. If both are wanted, load it without refuse_overlap."
        )


def sample_of_batch(work: Work, events: DeltaTable, batch: BatchRange) -> RowSample:
    """The sample of a batch that is in `events`: after a crash, its rows are read once more."""
    sampler = sampler_of(work.options)
    shares = [EventRowGroups.whole_file(file) for file in files_of_batches(events, [batch])]
    for rows in read_event_rows(work.store, shares, list(sampler.names), [batch]):
        for piece in rows.select(list(sampler.names)).to_batches():
            sampler.add(piece)
    return sampler.sample
