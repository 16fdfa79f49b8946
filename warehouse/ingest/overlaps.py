"""Batches with the same rows as an earlier one, or nearly: most likely one file under two names.

A bulk batch is compared by a sample of its rows (integrity/row_sample.py) with those of the steps that have
one (events/step_facts.py): a look at what was read for the plan. A batch that was unloaded, or lost all its
rows by deletes, is not told. Two loads that run at the same time do not see each other before one has its
plan.
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
from tidemark.warehouse.events.step_facts import StepFacts, read_facts
from tidemark.warehouse.events.steps import StepPlan
from tidemark.warehouse.ingest.event_files import sampler_of
from tidemark.warehouse.integrity.row_sample import Likeness, RowSample
from tidemark.warehouse.work import Work


def overlaps(
    store: Store,
    events: DeltaTable,
    steps: DeltaTable,
    plans: Sequence[StepPlan],
    batch: BatchRange,
    sample: RowSample,
) -> list[str]:
    """What is told of each earlier batch with the same rows, or nearly, unless all its rows have left.

    events, steps   the tables, opened before; `plans` are those of `steps`
    """
    facts = read_facts(store, data_files.list_files(steps))
    others = [plan for plan in plans if plan.step in facts and batch not in plan.batches]
    alike = [(plan, likeness) for plan in others if (likeness := _likeness(sample, facts[plan.step]))]
    removed = removed_at(store, events) if alike else NOTHING
    mine, told = batch.source.removeprefix(BULK), []
    for plan, likeness in alike:
        if left := removed.rows([plan]):
            of_these = f", of which {left:,} are left," if left < plan.rows else ","
            names = ", ".join(repr(one.source.removeprefix(BULK)) for one in plan.batches)
            told.append(
                f"batch {mine!r} with {sample.rows:,} rows has {likeness} rows as batch {names} with "
                f"{plan.rows:,} rows{of_these} which is step {plan.step}"
            )
    return told


def _likeness(sample: RowSample, facts: StepFacts) -> Likeness | None:
    return None if facts.sample is None else sample.likeness(facts.sample)


def check_no_overlap(
    store: Store,
    events: DeltaTable,
    steps: DeltaTable,
    plans: Sequence[StepPlan],
    batch: BatchRange,
    sample: RowSample,
) -> None:
    """OverlappingBatch if `overlaps` tells of an earlier batch."""
    told = overlaps(store, events, steps, plans, batch, sample)
    if told:
        raise OverlappingBatch(
            f"{'; '.join(told)}. Nothing was changed. If both are wanted, load it without refuse_overlap."
        )


def sample_of_batch(work: Work, events: DeltaTable, batch: BatchRange) -> RowSample:
    """The sample of a batch that is in `events`: after a crash, its rows are read once more."""
    sampler = sampler_of(work.options)
    shares = [EventRowGroups.whole_file(file) for file in files_of_batches(events, [batch])]
    for rows in read_event_rows(work.store.filesystem(), shares, list(sampler.names), [batch]):
        for piece in rows.select(list(sampler.names)).to_batches():
            sampler.add(piece)
    return sampler.sample
