"""Step plans: the batches of each load and their numbers of rows, committed before any row is loaded.

A plan lists the batches that the step moves into history, and their row counts. Its commit is a
compare-and-swap: of two concurrent loaders one wins, and the other continues with the winner's plan. Steps
are loaded in order, so a loader first completes the steps that earlier loaders did not finish.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.transaction import AddAction, RemoveAction

from tidemark.warehouse.delta import data_files, tables
from tidemark.warehouse.delta.races import Race
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_facts import facts_of
from tidemark.warehouse.delta.table_names import STEPS
from tidemark.warehouse.events import step_facts
from tidemark.warehouse.events.reader import BatchRange
from tidemark.warehouse.events.step_facts import StepFacts

SCHEMA = pa.schema(
    [
        ("step", pa.int64()),
        ("source", pa.string()),
        ("first_batch", pa.int64()),
        ("last_batch", pa.int64()),
        ("rows", pa.int64()),
        ("planned_at", pa.timestamp("us", tz="UTC")),
    ]
)


@dataclass(frozen=True, slots=True)
class StepPlan:
    """The plan of one step. `parts` are its batch ranges, one per source, each with its row count."""

    step: int
    parts: tuple[tuple[BatchRange, int], ...]

    @property
    def batches(self) -> tuple[BatchRange, ...]:
        """The batch ranges, one per source."""
        return tuple(batches for batches, _ in self.parts)

    @property
    def rows(self) -> int:
        """The number of rows of the step in `events`."""
        return sum(rows for _, rows in self.parts)


def read_step_plans(
    store: Store, table: DeltaTable, cache: dict[str, pa.Table] | None = None
) -> list[StepPlan]:
    """All plans, in the order of their steps; they are read once for a version of the table.

    `cache` is that of `data_files.read`.
    """
    made = facts_of(table).made
    if "plans" not in made:
        made["plans"] = plans_of_rows(data_files.read(store, STEPS, table, cache))
    return [*made["plans"]]


def plans_of_rows(rows: pa.Table) -> list[StepPlan]:
    """The plans that rows of the table `steps` have, in the order of their steps."""
    rows = rows.sort_by([("step", "ascending"), ("source", "ascending")])
    parts: dict[int, list[tuple[BatchRange, int]]] = {}
    for row in rows.select(["step", "source", "first_batch", "last_batch", "rows"]).to_pylist():
        batches = BatchRange(row["source"], row["first_batch"], row["last_batch"])
        parts.setdefault(row["step"], []).append((batches, row["rows"]))
    return [StepPlan(step, tuple(step_parts)) for step, step_parts in parts.items()]


def planned_times(rows: pa.Table) -> dict[int, int]:
    """When each step was planned, in microseconds since 1970, by rows of the table `steps`."""
    at = rows.column("planned_at").cast(pa.int64())
    return dict(zip(rows.column("step").to_pylist(), at.to_pylist(), strict=True))


def read_planned_times(store: Store) -> dict[int, int]:
    """`planned_times` of all steps."""
    return planned_times(data_files.read(store, STEPS, tables.open_table(store, STEPS)))


def newest_step(store: Store) -> int:
    """The number of the newest planned step; -1 if there is none."""
    return newest_plan(read_step_plans(store, tables.open_table(store, STEPS)))


def newest_plan(plans: Sequence[StepPlan]) -> int:
    """The number of the newest of these plans; -1 if there is none."""
    return plans[-1].step if plans else -1


def commit_plan(store: Store, race: Race, plan: StepPlan, facts: StepFacts | None = None) -> bool:
    """Commits the plan, and facts of the step, on top of the version of the race; whether it won."""
    return race.commit(_actions(store, race.table, plan, facts))


def _actions(
    store: Store, table: DeltaTable, plan: StepPlan, facts: StepFacts | None
) -> list[AddAction | RemoveAction]:
    """Writes the plan as a new file, which may replace others, see `rows_and_replaced`."""
    rows, replaced = data_files.rows_and_replaced(store, STEPS, table, rows_of_plans([plan]))
    known = step_facts.read_facts(store, replaced) | ({plan.step: facts} if facts is not None else {})
    return data_files.append_actions(store, STEPS, rows, replaced, step_facts.text_of(known))


def rows_of_plans(plans: Iterable[StepPlan]) -> pa.Table:
    """The rows of the table `steps` for these plans, planned now."""
    now = datetime.now(UTC)
    plan_rows = [
        {
            "step": plan.step,
            "source": batches.source,
            "first_batch": batches.first,
            "last_batch": batches.last,
            "rows": count,
            "planned_at": now,
        }
        for plan in plans
        for batches, count in plan.parts
    ]
    return pa.Table.from_pylist(plan_rows, schema=SCHEMA)


def planned_batches(plans: Iterable[StepPlan], last_step: int | None = None) -> list[BatchRange]:
    """The batches of the plans up to `last_step` (inclusive), or of all plans for None."""
    return [
        batches for plan in plans if last_step is None or plan.step <= last_step for batches in plan.batches
    ]
