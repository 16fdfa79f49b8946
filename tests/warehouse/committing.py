"""Every commit that the warehouse makes, by name, and what can become of one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from deltalake import DeltaTable, Field
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.schema import PrimitiveType
from deltalake.table import TableAlterer
from deltalake.transaction import CommitProperties

from tidemark.sketches import GK
from tidemark.warehouse.columns.tick_counts import TickCounts
from tidemark.warehouse.columns.value_encoding import Measure
from tidemark.warehouse.delta import data_files, tables
from tidemark.warehouse.delta.changes import NewColumns
from tidemark.warehouse.delta.races import Race
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import LEDGER, STEPS
from tidemark.warehouse.events import steps
from tidemark.warehouse.events.reader import BatchRange
from tidemark.warehouse.events.step_facts import StepFacts
from tidemark.warehouse.events.steps import StepPlan
from tidemark.warehouse.execution.executors import LocalExecutor
from tidemark.warehouse.ledger import ledger_rows, ledger_table
from tidemark.warehouse.ledger.batch_summaries import MeasureSummary, TickSummary
from tidemark.warehouse.loads import history
from tidemark.warehouse.loads.next_step import NextStep
from tidemark.warehouse.projections.sorted_values import SortedValues, ValueRows
from tidemark.warehouse.repairs import plans
from tidemark.warehouse.runs import run_tables
from tidemark.warehouse.runs.levels import Layout, Run, plan_merge
from tidemark.warehouse.runs.projection import RunSpec
from tidemark.warehouse.runs.run_files import write_rows
from tidemark.warehouse.runs.run_tables import NewRun
from tidemark.warehouse.settings.options import Options
from tidemark.warehouse.work import Work

MEASURE = Measure("x", "double")
VALUES = SortedValues(MEASURE)
RUNS, MARKS = VALUES.runs_table, VALUES.marks_table
OPTIONS = Options(("x",), None, None, 0.1, 10, 0)
ERRORS = [
    OSError("connection reset"),
    TimeoutError("no answer in 30 s"),
    DeltaError("Generic S3 error"),
    CommitFailedError("Failed to commit transaction: 0"),
    Exception("Arrow error"),
    ValueError("told wrongly"),
]
Write = Callable[..., Any]


def instant(patch: pytest.MonkeyPatch, module: ModuleType) -> list[float]:
    """Makes the pauses of a module's PATIENCE take no time; the list gets each that was made."""
    made: list[float] = []
    patch.setattr(module, "PATIENCE", replace(module.PATIENCE, pause=made.append))
    return made


def new_store(folder: Path) -> Store:
    """A warehouse's tables but `events`, of one measure, empty."""
    store = Store.from_uri(folder)
    run_tables.create_tables(store, VALUES)
    tables.create(store, STEPS, steps.SCHEMA)
    tables.create(store, LEDGER, ledger_rows.SCHEMA)
    return store


def new_run(store: Store, run: Run, rows: int = 3) -> NewRun:
    """A written run of as many rows, each the run's first step."""
    attempt, zero = data_files.unique_name(), np.zeros(1, np.int64)
    pieces = iter([ValueRows(np.full(rows, float(run.first)), np.full(rows, run.first))])
    totals = TickCounts(np.array([run.first]), np.array([rows]), zero, zero)
    path = run_tables.run_path(VALUES, run, attempt, 0)
    file = write_rows(store.filesystem(), path, VALUES, pieces, RunSpec(rows, totals, 0.1))
    return NewRun(run, attempt, (file,), totals, VALUES.marks_tables([file], totals))


def add_step(store: Store, step: int = 0) -> bool:
    return commit_run(store, new_run(store, Run(step, step, 0)))


def commit_run(store: Store, new: NewRun) -> bool:
    """As a load commits the run of a step, without a record of what is complete."""
    work = Work(LocalExecutor(), store, OPTIONS)
    return history.StepCommits(work, new.run.last, {}, lacking=()).commit(VALUES, new)


def add_batch(store: Store, source: str = "web", batch: int = 0) -> bool:
    sketch = GK.from_sorted(np.array([1.0, 2.0]), 0.01, MEASURE.dtype)
    summary = [TickSummary(0, 2, None, (MeasureSummary(MEASURE.name, 0, 0, sketch),))]
    return ledger_table.append_batch(store, 0.1, source, batch, summary)


def merge_steps(store: Store) -> bool:
    runs = run_tables.runs_of(tables.open_table(store, RUNS))
    merge = plan_merge(Layout.of(runs), 2)
    assert merge is not None
    olds = {run: runs[run] for run in merge.inputs}
    return run_tables.replace_if_same(store, VALUES, olds, [new_run(store, merge.output)])


def a_plan(step: int) -> StepPlan:
    return StepPlan(step, ((BatchRange("load:b", step, step), 1),))


def plan_step(store: Store) -> int | None:
    work = Work(LocalExecutor(), store, OPTIONS)
    table = tables.open_table(store, STEPS)
    step = NextStep(work, table, steps.read_step_plans(store, table))
    return step.number if step.commit_batch(BatchRange("load:a", 0, 0), 1, StepFacts()) else None


def add_column(store: Store) -> None:
    Race(store, STEPS).change(NewColumns([Field("more", PrimitiveType("long"))]))


def layout(store: Store) -> Layout:
    return run_tables.read_layout(tables.open_table(store, RUNS))


def write_sixteen_plans(store: Store) -> None:
    for number in range(16):
        steps.commit_plan(store, Race(store, STEPS), a_plan(number))


def keep_first_plan(store: Store) -> None:
    files = data_files.list_files(tables.open_table(store, STEPS))
    plans.rewrite(store, plans.PlansDamage((a_plan(0),), (), None, tuple(file.path for file in files)))


# What commits: what is done before, the commit, and what it returns.
COMMITS: dict[str, tuple[Callable[[Store], object], Callable[[Store], object], object]] = {
    "a step": (lambda _: None, add_step, True),
    "a merge": (lambda s: [add_step(s, n) for n in range(3)], merge_steps, True),
    "marks": (lambda _: None, lambda s: run_tables.append_marks(s, VALUES, new_run(s, Run(0, 0, 0))), None),
    "a plan": (lambda _: None, plan_step, 0),
    "a batch": (lambda _: None, add_batch, True),
    "columns": (lambda _: None, add_column, None),
    "steps in one file": (
        write_sixteen_plans,
        plan_step,
        16,
    ),
    "a plan of a repair": (
        lambda _: None,
        lambda s: plans.write_plan(s, {BatchRange("w", 0, 0): 1}, 0),
        None,
    ),
    "plans that are left": (write_sixteen_plans, keep_first_plan, None),
}


def state(store: Store) -> dict[str, tuple[int, dict[str, int], list[str]]]:
    """Each table's version, files with their rows, and columns."""
    found = {}
    for name in (RUNS, MARKS, STEPS, LEDGER):
        table = tables.open_table(store, name)
        columns = [field.name for field in table.schema().fields]
        found[name] = (
            table.version(),
            {file.path: file.rows for file in data_files.list_files(table)},
            columns,
        )
    return found


def shape(store: Store) -> dict[str, tuple[int, list[int], list[str]]]:
    """As `state`, without the names of files, which are new each time."""
    return {name: (at, sorted(held.values()), columns) for name, (at, held, columns) in state(store).items()}


class Broken:
    """What stands in for delta-rs's two ways to commit, and for the creation of tables."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.patch = patch
        self.calls = 0

    def commits(self, act: Callable[[Write], Any]) -> None:
        """Each commit goes through `act`, which gets the true one to call or not."""

        def through(true: Write) -> Write:
            def call(*args: Any, **options: Any) -> Any:
                self.calls += 1
                return act(lambda: true(*args, **options))

            return call

        self.patch.setattr(
            DeltaTable, "create_write_transaction", through(DeltaTable.create_write_transaction)
        )
        self.patch.setattr(TableAlterer, "add_columns", through(TableAlterer.add_columns))


def raising(error: Exception, *, done: bool) -> Callable[[Write], None]:
    """Commits that raise, once they are `done` or before."""

    def act(commit: Write) -> None:
        if done:
            commit()
        raise error

    return act


def kinds(one: Exception | str) -> str:
    return one if isinstance(one, str) else type(one).__name__


def a_rival(store: Store, name: str) -> None:
    """A commit of somebody else's: it changes nothing, and takes a version."""
    table = DeltaTable(store.table(name))
    properties = CommitProperties(custom_metadata={"tidemark.host": "elsewhere", "tidemark.process": "7"})
    table.alter.set_table_properties({"delta.appendOnly": "false"}, commit_properties=properties)
