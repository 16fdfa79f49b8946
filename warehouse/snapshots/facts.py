"""Facts about the tables of a warehouse, for `info()`."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from tidemark.warehouse.delta.table_names import LEDGER, REJECTED, STEPS
from tidemark.warehouse.projections.sorted_values import SortedValues
from tidemark.warehouse.runs.projection import Projection
from tidemark.warehouse.snapshots.behind import StepsTold, behind_text
from tidemark.warehouse.snapshots.needed import ALL
from tidemark.warehouse.snapshots.system_tables import rejected_counts
from tidemark.warehouse.snapshots.table_state import TableState
from tidemark.warehouse.snapshots.views import View


def facts_of(state: TableState, told: StepsTold | None, view: View | None) -> dict[str, Any]:
    """The facts by name.

    told   what the tables say of the steps, if one lacks steps
    view   the view of the measure with the newest step; None without columns
    """
    options = state.options
    names = [*ALL.runs_tables(options), STEPS, LEDGER]
    facts: dict[str, Any] = {
        "warehouse": state.store.uri,
        "eps": options.eps,
        "kappa": options.kappa,
        "steps": state.planned + 1,
        "live_batches": sum(batches.last - batches.first + 1 for batches in view.batches) if view else 0,
        "live_rows": sum(row.rows for row in view.live) if view else 0,
        "rejected": rejected_counts(state.store, state.files.get(REJECTED)),
        "measures": {one.name: _runs_facts(state, SortedValues(one)) for one in options.measures},
    }
    if options.key_counts:
        facts["keys"] = {one.key.name: _runs_facts(state, one) for one in options.key_counts}
    if options.sorted_groups:
        facts["groups"] = {one.name: _runs_facts(state, one) for one in options.sorted_groups}
    if options.retention_us is not None:
        facts["retention"] = str(timedelta(microseconds=options.retention_us))
    if options.expired_before is not None:
        facts["expired_before"] = options.expired_before
    facts["behind"] = "" if told is None else behind_text(told.behind())
    return {**facts, "versions": {name: state.files[name].version for name in names}}


def _runs_facts(state: TableState, projection: Projection[Any]) -> dict[str, Any]:
    table = state.files[projection.runs_table]
    return {
        "type": projection.type,
        "rows": sum(file.rows for file in table.files),
        "bytes": sum(file.size for file in table.files),
        "files": len(table.files),
        "runs_by_level": table.layout.levels(),
    }
