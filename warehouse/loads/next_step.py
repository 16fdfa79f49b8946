"""Plans the next step of a load: its number and batches, and the race of loads for this number."""

from __future__ import annotations

from collections.abc import Sequence

from deltalake import DeltaTable

from tidemark.warehouse.delta.races import Race
from tidemark.warehouse.delta.table_names import STEPS
from tidemark.warehouse.events.reader import BatchRange
from tidemark.warehouse.events.step_facts import StepFacts
from tidemark.warehouse.events.steps import (
    StepPlan,
    commit_plan,
    newest_plan,
    planned_batches,
    read_step_plans,
)
from tidemark.warehouse.work import Work

Parts = Sequence[tuple[BatchRange, int]]  # ranges of batches, each with its number of rows


class NextStep:
    """The step after the last one of `plans`, which are the plans of all steps.

    table   `steps`, from which the plans were read; each further try opens the newest version
    """

    def __init__(self, work: Work, table: DeltaTable, plans: list[StepPlan]) -> None:
        self._work, self._race, self.plans = work, Race(work.store, STEPS, table), plans

    @property
    def table(self) -> DeltaTable:
        """The table `steps` with these plans."""
        return self._race.table

    @property
    def number(self) -> int:
        """The number of the step."""
        return newest_plan(self.plans) + 1

    @property
    def planned(self) -> list[BatchRange]:
        """The batches of the plans."""
        return planned_batches(self.plans)

    def step_of(self, batch: BatchRange) -> int:
        """The step of a batch that a plan has."""
        return next(plan.step for plan in self.plans if batch in plan.batches)

    def commit(self, parts: Parts, facts: StepFacts) -> bool:
        """Commits the plan. False if another load planned this step: then `plans` are the newest ones."""
        if commit_plan(self._work.store, self._race, StepPlan(self.number, tuple(parts)), facts):
            return True
        self.plans = read_step_plans(self._work.store, self.table, self._work.step_files)
        return False

    def commit_batch(self, batch: BatchRange, rows: int, facts: StepFacts) -> bool:
        """Commits a plan of one batch; False if a plan has it already."""
        while batch not in self.planned:
            if self.commit([(batch, rows)], facts):
                return True
        return False
