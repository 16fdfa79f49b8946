"""Repair of the table `steps`: which plans are left, and a new plan for batches whose plans were lost.

Plans count from 0 without a gap, so those after the first one that is missing say nothing any more. The
batches that `events` has, but neither a plan that is left nor the ledger, become one new step.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise

import pyarrow as pa

from tidemark.warehouse.delta import data_files, table_open, tables
from tidemark.warehouse.delta.commits import first_line
from tidemark.warehouse.delta.data_files import DataFile
from tidemark.warehouse.delta.log_repair import remove_log, unreadable
from tidemark.warehouse.delta.races import Race
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import STEPS
from tidemark.warehouse.errors import DamagedWarehouse
from tidemark.warehouse.events import steps
from tidemark.warehouse.events.reader import BatchRange
from tidemark.warehouse.events.step_facts import StepFacts, read_facts, text_of
from tidemark.warehouse.events.steps import StepPlan, plans_of_rows


@dataclass(frozen=True, slots=True)
class PlansDamage:
    """The plans that are left, in order, and why others are lost; `log` is why the log cannot be opened."""

    plans: tuple[StepPlan, ...]
    faults: tuple[str, ...]
    log: str | None
    paths: tuple[str, ...] = field(default=(), repr=False)

    def __bool__(self) -> bool:
        return bool(self.faults) or self.log is not None


def find_damage(store: Store, last_run_step: int) -> PlansDamage:
    """What is wrong with the plans; `last_run_step` is the newest step of any run, -1 if there is none."""
    reason = unreadable(store, STEPS)
    if reason is not None:
        return PlansDamage((), (), reason)
    files = data_files.list_files(tables.open_table(store, STEPS))
    read, faults = [data_files.table_without_rows(steps.SCHEMA)], []
    for file in files:
        try:
            read.append(data_files.read_file(store, STEPS, file.path))
        except (DamagedWarehouse, FileNotFoundError) as error:
            faults.append(first_line(error))
    rows = pa.concat_tables(read, promote_options="default")
    once = rows.group_by([name for name in rows.column_names if name != "planned_at"]).aggregate([])
    if once.num_rows < rows.num_rows:
        faults.append("a plan is there twice")
    found = plans_of_rows(once)
    left = tuple(plan for number, plan in enumerate(found) if plan.step == number)
    if len(left) < len(found) and not faults:
        faults.append(f"the plan of step {len(left)} is missing")
    if (step := _shared_batch(left)) is not None:
        faults.append(f"the plan of step {step} has a batch of an earlier one")
        left = left[:step]
    if last_run_step >= len(left) and not faults:
        faults.append(f"runs have step {last_run_step}, the newest plan is that of step {len(left) - 1}")
    return PlansDamage(left, tuple(faults), None, tuple(file.path for file in files))


def _shared_batch(plans: Sequence[StepPlan]) -> int | None:
    """The first step with a batch that an earlier step has, too; None without one."""
    ranges = sorted((batches, plan.step) for plan in plans for batches in plan.batches)
    shared = [max(a[1], b[1]) for a, b in pairwise(ranges) if a[0].overlaps(b[0])]
    return min(shared, default=None)


def put_right(store: Store, grace_us: int) -> None:
    """Makes a table anew whose log cannot be opened, with the plans that are left."""
    if table_open.exists(store, STEPS):
        remove_log(store, STEPS)
    tables.create(store, STEPS, steps.SCHEMA, grace_us=grace_us)


def rewrite(store: Store, damage: PlansDamage) -> None:
    """Makes the plans that are left the content of the table."""
    race = Race(store, STEPS)
    while True:
        files = data_files.list_files(race.table)
        if {file.path for file in files} != set(damage.paths):  # another writer came: look again
            return
        rows, known = steps.rows_of_plans(damage.plans), _facts(store, files)
        kept = {plan.step: known[plan.step] for plan in damage.plans if plan.step in known}
        if race.commit(data_files.append_actions(store, STEPS, rows, files, text_of(kept))):
            return


def _facts(store: Store, files: Sequence[DataFile]) -> dict[int, StepFacts]:
    found: dict[int, StepFacts] = {}
    for file in files:
        with suppress(DamagedWarehouse, FileNotFoundError):
            found |= read_facts(store, [file])
    return found


def write_plan(store: Store, rows: dict[BatchRange, int], step: int) -> None:
    """Commits the plan of these batches as the step, if it is the next one."""
    race = Race(store, STEPS)
    while len(steps.read_step_plans(store, race.table)) == step:
        if steps.commit_plan(store, race, StepPlan(step, tuple(rows.items()))):
            return


def joined(rows: dict[BatchRange, int], others: Sequence[BatchRange]) -> dict[BatchRange, int]:
    """Single batches as ranges, ascending, that hold none of the other ranges' batches."""
    whole: dict[BatchRange, int] = {}
    last: BatchRange | None = None
    for batch, count in sorted(rows.items()):
        wide = BatchRange(batch.source, last.first, batch.last) if last else batch
        if last is None or last.source != batch.source or any(map(wide.overlaps, others)):
            last, whole[batch] = batch, count
        else:
            whole[wide] = whole.pop(last) + count
            last = wide
    return whole
