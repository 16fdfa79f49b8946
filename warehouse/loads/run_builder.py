"""Building runs: a step's rows are sorted, runs are merged, in tasks; nothing is committed here.

A step is sorted in one job for all its projections. Where a projection's rows are more than a task
holds, they become sorted chunks, and a second job merges these as it would merge runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tidemark.warehouse.columns.tick_counts import TickCounts, sum_tick_counts
from tidemark.warehouse.delta import tables
from tidemark.warehouse.delta.store import EVENTS, Store
from tidemark.warehouse.delta.tables import DataFile
from tidemark.warehouse.errors import DamagedWarehouse
from tidemark.warehouse.events.reader import files_of_batches, split_row_groups
from tidemark.warehouse.events.steps import StepPlan
from tidemark.warehouse.loads import tasks
from tidemark.warehouse.loads.attempt import Attempt
from tidemark.warehouse.runs import run_tables
from tidemark.warehouse.runs.cuts import SortedInput, merge_cost, plan_slices
from tidemark.warehouse.runs.levels import Merge, Run
from tidemark.warehouse.runs.projection import MarkedFile, Projection, RunSpec
from tidemark.warehouse.runs.run_tables import NewRun

if TYPE_CHECKING:
    from tidemark.warehouse.execution.executors import Executor


def sort_step(
    executor: Executor, store: Store, eps: float, projections: Sequence[Projection[Any]], plan: StepPlan
) -> list[NewRun]:
    """The step's run of each projection, written and not committed."""
    attempt = Attempt(executor, store, eps, Run(plan.step, plan.step, 0), tables.unique_name())
    found = files_of_batches(tables.open_table(store, EVENTS), plan.batches)
    groups = _groups(projections)
    work = [_sort_tasks(attempt, group, plan, found) for group in groups]
    results = iter(executor.run([task for some in work for task in some]))
    runs: dict[str, NewRun] = {}
    for group, some in zip(groups, work, strict=True):
        done = [next(results) for _ in some]
        for i, projection in enumerate(group):
            runs[projection.runs_table] = _finish_sort(attempt, projection, [parts[i] for parts in done])
    return [runs[projection.runs_table] for projection in projections]


def merge_runs(
    executor: Executor,
    store: Store,
    eps: float,
    projection: Projection[Any],
    merge: Merge,
    found: Mapping[Run, Sequence[DataFile]],
) -> NewRun:
    """The merge's output, written and not committed; `found` are the files of the inputs."""
    attempt = Attempt(executor, store, eps, merge.output, tables.unique_name())
    marks = [run_tables.read_marks(store, projection, run, found[run]) for run in merge.inputs]
    inputs = [SortedInput.of_run(projection.runs_table, one) for one in marks]
    totals = sum_tick_counts([one.totals for one in marks])
    return _new_run(attempt, projection, _merge(attempt, projection, inputs, totals), totals)


def _groups(projections: Sequence[Projection[Any]]) -> list[list[Projection[Any]]]:
    """Those that a task sorts together.

    Where equal rows become one, a task holds as many as are apart, and takes a larger share of the rows: such
    a projection has tasks of its own.
    """
    together = [one for one in projections if not one.merges_equal]
    return [*([together] if together else []), *([one] for one in projections if one.merges_equal)]


def _sort_tasks(
    attempt: Attempt, projections: Sequence[Projection[Any]], plan: StepPlan, found: Sequence[DataFile]
) -> list[tasks.SortTask]:
    """A task for each share of the files of `events`."""
    shares = split_row_groups(
        attempt.store.filesystem(), found, attempt.store.tuning.sort_rows // len(projections)
    )
    whole = len(shares) <= 1

    def output(projection: Projection[Any], i: int) -> tasks.Output:
        run = attempt.path(projection, 0) if whole else None
        return tasks.Output(projection, attempt.chunk(projection, i), run)

    return [
        tasks.SortTask(
            attempt.store,
            plan.batches,
            tuple(part),
            tuple(output(one, i) for one in projections),
            attempt.eps,
        )
        for i, part in enumerate(shares or [[]])
    ]


def _finish_sort(attempt: Attempt, projection: Projection[Any], parts: Sequence[tasks.Sorted]) -> NewRun:
    """The run, of what the tasks sorted."""
    totals = sum_tick_counts([part.totals for part in parts])
    files = [file for part in parts for file in part.files]
    _check_conserved(attempt, projection, sum(part.digest for part in parts), files)
    if not all(part.whole for part in parts):
        files = _merge(attempt, projection, [SortedInput.of_chunk(file) for file in files], totals)
        attempt.drop_chunks(projection)
    return _new_run(attempt, projection, files, totals)


def _new_run(
    attempt: Attempt, projection: Projection[Any], files: Sequence[MarkedFile], totals: TickCounts
) -> NewRun:
    """The run of these files, with its marks."""
    return NewRun(attempt.run, attempt.name, tuple(files), totals, projection.marks_tables(files, totals))


def _merge(
    attempt: Attempt, projection: Projection[Any], inputs: Sequence[SortedInput], totals: TickCounts
) -> list[MarkedFile]:
    """Merges sorted inputs into the files of a run: a task a file, a bounded slice at a time."""
    rows, least = sum(one.rows for one in inputs), projection.min_block_cost
    slices = plan_slices(
        inputs,
        -(-merge_cost(inputs, least) // attempt.slice_rows),
        min_block_cost=least,
        split=not projection.merges_equal,
    )
    shape = RunSpec(rows, totals, attempt.eps)
    work = [
        tasks.MergeTask(
            attempt.store, projection, tuple(inputs), some, attempt.path(projection, number), shape
        )
        for number, some in enumerate(attempt.by_file(slices, rows))
    ]
    done: list[tasks.Merged] = attempt.executor.run(work)
    files = [one.file for one in done]
    written, expected = sum(file.count for file in files), int(totals.counts.sum())
    if written != expected:
        raise DamagedWarehouse(
            f"merging into run {attempt.run.name} of {projection.title!r} wrote {written} of {expected} "
            "rows. Nothing was committed: run verify, it names the file whose marks are wrong."
        )
    read = [sum(one.read[j] for one in done) % 2**64 for j in range(len(inputs))]
    for one, digest in zip(inputs, read, strict=True):
        if one.digest is not None and one.digest != digest:
            raise DamagedWarehouse(
                f"the rows of {', '.join(file.path for file in one.files)} are not those that were written "
                f"there, so run {attempt.run.name} of {projection.title!r} was not made, and nothing was "
                "committed. Restore the files from a copy."
            )
    _check_conserved(attempt, projection, sum(read), files)
    end_to_end = all(one.end_to_end for one in inputs)
    return [replace(file, digests=replace(file.digests, end_to_end=end_to_end)) for file in files]


def _check_conserved(
    attempt: Attempt, projection: Projection[Any], read: int, files: Sequence[MarkedFile]
) -> None:
    """DamagedWarehouse unless the files hold the rows that were read, by their digest."""
    written = sum(file.digests.row_digest for file in files)
    if (written - read) % 2**64:
        raise DamagedWarehouse(
            f"run {attempt.run.name} of {projection.title!r} was written with other rows than were read. "
            "Nothing was committed: run it again. If it happens again, have the machine's memory checked."
        )
