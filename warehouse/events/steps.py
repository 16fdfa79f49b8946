"""Steps: the plan of each load, written before anything is loaded.

A plan says which batches the step moves into history and how many rows they have. Two loaders
race on its commit: one wins, the other takes up the winner's plan. Loads happen in the order of
their steps, so a loader first finishes whatever an earlier one left undone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa
from deltalake import DeltaTable

from tidemark.warehouse.delta import tables
from tidemark.warehouse.delta.store import STEPS, Store
from tidemark.warehouse.events.reader import BatchRange

_FILES = 16  # of the table, at most

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
    """The batches of one step, with the rows of each range."""

    step: int
    parts: tuple[tuple[BatchRange, int], ...]

    @property
    def batches(self) -> tuple[BatchRange, ...]:
        """The batch ranges, one a source."""
        return tuple(batches for batches, _ in self.parts)

    @property
    def rows(self) -> int:
        """Rows of the step in `events`."""
        return sum(rows for _, rows in self.parts)


def read_step_plans(
    store: Store, table: DeltaTable, cache: dict[str, pa.Table] | None = None
) -> list[StepPlan]:
    """All plans, by step."""
    rows = tables.read(store, STEPS, table, cache).sort_by([("step", "ascending"), ("source", "ascending")])
    parts: dict[int, list[tuple[BatchRange, int]]] = {}
    for row in rows.select(["step", "source", "first_batch", "last_batch", "rows"]).to_pylist():
        batches = BatchRange(row["source"], row["first_batch"], row["last_batch"])
        parts.setdefault(row["step"], []).append((batches, row["rows"]))
    return [StepPlan(step, tuple(found)) for step, found in parts.items()]


def write_step_plan(store: Store, table: DeltaTable, plan: StepPlan) -> None:
    """Commits the plan on the table's version, or raises `tables.LostRace`.

    One file more; where there are `_FILES` already, all plans become one file, so that readers open few.
    """
    now = datetime.now(UTC)
    plans = [
        {
            "step": plan.step,
            "source": batches.source,
            "first_batch": batches.first,
            "last_batch": batches.last,
            "rows": count,
            "planned_at": now,
        }
        for batches, count in plan.parts
    ]
    rows, joined = pa.Table.from_pylist(plans, schema=SCHEMA), tables.list_files(table)
    if len(joined) < _FILES:
        joined = []
    else:
        rows = pa.concat_tables([tables.read(store, STEPS, table), rows])
    tables.append(store, STEPS, rows, table=table, replaces=joined)


def planned_batches(plans: Iterable[StepPlan], last_step: int | None = None) -> list[BatchRange]:
    """The batches of steps 0..last_step, or of every plan."""
    return [
        batches for plan in plans if last_step is None or plan.step <= last_step for batches in plan.batches
    ]
