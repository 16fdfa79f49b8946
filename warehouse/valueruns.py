"""Runs of a measure: rows (value, tick), sorted by value; the tasks that write them, and their marks."""

from __future__ import annotations

from collections.abc import Sequence

from warehouse import marks, tasks
from warehouse.attempt import Attempt
from warehouse.cuts import SortedInput, plan_slices
from warehouse.errors import DamagedWarehouse
from warehouse.events import Batches, Share
from warehouse.history import NewRun
from warehouse.marks import RunMarks, TickCounts, add_totals
from warehouse.measures import Measure
from warehouse.runfiles import WrittenFile


def sort_tasks(
    attempt: Attempt, measures: Sequence[Measure], batches: tuple[Batches, ...], shares: list[list[Share]]
) -> list[tasks.SortTask]:
    """A task for each list of shares; it sorts all measures."""
    whole = len(shares) <= 1

    def paths(number: int) -> tuple[str, ...]:
        where = attempt.path if whole else attempt.chunk
        return tuple(where(measure, number) for measure in measures)

    return [
        tasks.SortTask(
            attempt.store, tuple(measures), batches, tuple(part), paths(i), attempt.eps if whole else None
        )
        for i, part in enumerate(shares or [[]])
    ]


def finish_sort(
    attempt: Attempt, measures: Sequence[Measure], results: Sequence[list[tuple[WrittenFile, TickCounts]]]
) -> list[NewRun]:
    """The run of each measure, of what the tasks returned."""
    runs = []
    for i, measure in enumerate(measures):
        totals = add_totals([task[i][1] for task in results])
        files = [task[i][0] for task in results]
        if len(results) > 1:
            inputs = [SortedInput(((f.path, 0, f.rows),), f.rows, f.positions, f.values) for f in files]
            files = _merge(attempt, measure, inputs, totals)
            attempt.drop_chunks(measure)
        runs.append(new_run(attempt, measure, files, totals))
    return runs


def merge_runs(attempt: Attempt, measure: Measure, inputs: Sequence[RunMarks]) -> NewRun:
    """The runs as one."""
    totals = add_totals([one.totals for one in inputs])
    root = measure.runs_table
    sources = [
        SortedInput(
            tuple((f"{root}/{f.path}", f.first, f.rows) for f in one.files),
            one.rows,
            one.positions,
            one.values,
        )
        for one in inputs
    ]
    return new_run(attempt, measure, _merge(attempt, measure, sources, totals), totals)


def new_run(attempt: Attempt, measure: Measure, files: Sequence[WrittenFile], totals: TickCounts) -> NewRun:
    """The run of these files, with its marks."""
    return NewRun(attempt.run, attempt.name, tuple(files), totals, marks.to_arrow(measure, files, totals))


def _merge(
    attempt: Attempt, measure: Measure, inputs: Sequence[SortedInput], totals: TickCounts
) -> list[WrittenFile]:
    """Merges sorted inputs into the files of a run: a task a file, a bounded slice at a time."""
    rows = sum(one.rows for one in inputs)
    grain = marks.grain(rows, attempt.eps)
    span = marks.span(rows, grain, len(totals.ticks))
    slices = attempt.by_file(plan_slices(inputs, -(-rows // attempt.slice_rows)), rows)
    work = [
        tasks.MergeTask(
            attempt.store,
            measure.arrow_type,
            tuple(inputs),
            some,
            attempt.path(measure, number),
            grain,
            span,
        )
        for number, some in enumerate(slices)
    ]
    files: list[WrittenFile] = tasks.run(attempt.executor, work)
    written = sum(file.rows for file in files)
    if written != rows:
        raise DamagedWarehouse(
            f"merging into run {attempt.run.name} of {measure.name!r} wrote {written} of {rows} values. "
            "Nothing was committed: run verify, it names the file whose marks are wrong."
        )
    return files
