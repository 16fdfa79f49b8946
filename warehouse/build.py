"""Building runs: a step's rows are sorted, runs are merged, in tasks; nothing is committed here.

A step is sorted in one job for all its projections. Where a projection's rows are more than a task
holds, they become sorted chunks, and a second job merges these as it would merge runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from warehouse import history, keyruns, tables, tasks, valueruns
from warehouse.attempt import Attempt
from warehouse.events import event_files, share_out
from warehouse.history import NewRun, Projection
from warehouse.keys import Key
from warehouse.layout import Merge, Run
from warehouse.measures import Measure
from warehouse.steps import Plan
from warehouse.storage import EVENTS, Store
from warehouse.tables import DataFile

if TYPE_CHECKING:
    from warehouse.executors import Executor


def sort_step(
    executor: Executor, store: Store, eps: float, projections: Sequence[Projection], plan: Plan
) -> list[NewRun]:
    """The step's run of each projection, written and not committed."""
    attempt = Attempt(executor, store, eps, Run(plan.step, plan.step, 0), tables.new_name())
    measures = [one for one in projections if isinstance(one, Measure)]
    keys = [one for one in projections if isinstance(one, Key)]
    found = event_files(tables.open_table(store, EVENTS), plan.batches)
    shares = share_out(store.filesystem(), found, tasks.SORT_ROWS // max(1, len(measures)))
    values = valueruns.sort_tasks(attempt, measures, plan.batches, shares) if measures else []
    counts = [keyruns.sort_tasks(attempt, key, plan.batches, found) for key in keys]
    results = iter(executor.run([*values, *(task for some in counts for task in some)]))
    runs = valueruns.finish_sort(attempt, measures, [next(results) for _ in values])
    runs += [
        keyruns.finish_sort(attempt, key, [next(results) for _ in some])
        for key, some in zip(keys, counts, strict=True)
    ]
    return runs


def merge_runs(
    executor: Executor,
    store: Store,
    eps: float,
    projection: Projection,
    merge: Merge,
    found: Mapping[Run, Sequence[DataFile]],
) -> NewRun:
    """The merge's output, written and not committed; `found` are the files of the inputs."""
    attempt = Attempt(executor, store, eps, merge.output, tables.new_name())
    if isinstance(projection, Key):
        keys = [history.read_key_marks(store, projection, run, found[run]) for run in merge.inputs]
        return keyruns.merge_runs(attempt, projection, keys)
    values = [history.read_marks(store, projection, run, found[run]) for run in merge.inputs]
    return valueruns.merge_runs(attempt, projection, values)
