"""The steps of a warehouse: what each one brought, who planned it, when, and the times of its rows.

Rows of a step that were unloaded or deleted since, or expired, are counted by the records of removals
(events/removals.py). Plans last for ever, and so do the facts that are written with them
(events/step_facts.py). If an earlier version, which wrote no facts, planned a step, only its plan is known.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from tidemark.warehouse.columns.ticks import from_epoch_us
from tidemark.warehouse.delta.table_names import STEPS
from tidemark.warehouse.events.step_facts import StepFacts, read_facts
from tidemark.warehouse.events.steps import planned_times
from tidemark.warehouse.os_errors import report_os_errors
from tidemark.warehouse.snapshots.needed import ALL
from tidemark.warehouse.snapshots.past import At, opened


@dataclass(frozen=True, slots=True)
class StepRecord:
    """A step.

    step          its number, from 0
    loaded        whether every projection has it; if not, a load is at work, or was ended and the next load
                  finishes it
    rows_in       the rows that it brought
    rows_out      how many of these rows were unloaded or deleted since, or expired
    batches       (source, first batch, last batch, rows) of each range, batches inclusive; a bulk load X is
                  the source `load:X`
    first_time, last_time
                  the event times of its rows as they came, in UTC; None without times, or where that is not
                  known
    planned_at    when it was planned, by the clock of that machine, in UTC
    user, host, version
                  who planned it, on which machine, and with which version of tidemark; None if not known
    """

    step: int
    loaded: bool
    rows_in: int
    rows_out: int
    batches: tuple[tuple[str, int, int, int], ...]
    first_time: datetime | None
    last_time: datetime | None
    planned_at: datetime
    user: str | None
    host: str | None
    version: str | None

    def to_dict(self) -> dict[str, Any]:
        """The fields by name; each range of batches as an object."""
        names = ("source", "first_batch", "last_batch", "rows")
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**values, "batches": [dict(zip(names, one, strict=True)) for one in self.batches]}


def history(
    uri: str | os.PathLike[str],
    *,
    newest: int | None = None,
    storage_options: dict[str, str] | None = None,
    at: At | None = None,
) -> list[StepRecord]:
    """The steps of a warehouse, the oldest first. Reads the table `steps`, and needs no JVM.

    newest    how many of the newest steps; None: all
    storage_options
              options of the object store, as delta-rs takes them
    at        as of an earlier moment, see `query.open`

    Raises NotAWarehouse if there is no warehouse, DamagedWarehouse if a record of removed rows is missing,
    and InputError for a moment that cannot be opened.
    """
    with report_os_errors("history"):
        snapshot = opened(uri, storage_options, at=at).newest(ALL)
        state = snapshot.state
        facts = read_facts(snapshot.store, state.files[STEPS].files)
        planned, removed = planned_times(state.step_rows), state.removed.check()
        complete = min(map(state.last_step, ALL.runs_tables(snapshot.options)), default=-1)
        plans = state.plans if newest is None else state.plans[max(0, len(state.plans) - newest) :]
        found = []
        for plan in plans:
            known, came = facts.get(plan.step, StepFacts()), removed.as_came(dict(plan.parts))
            first, last = (None, None) if known.times is None else map(from_epoch_us, known.times)
            found.append(
                StepRecord(
                    plan.step,
                    plan.step <= complete,
                    sum(came.values()),
                    sum(came.values()) - removed.rows([plan]),
                    tuple((one.source, one.first, one.last, count) for one, count in came.items()),
                    first,
                    last,
                    from_epoch_us(planned[plan.step]),
                    known.user,
                    known.host,
                    known.version,
                )
            )
        return found
