"""Builds runs in tasks: sorts the rows of steps, and merges runs. Nothing is committed here.

A load sorts one step for all projections in one job; a repair sorts the steps of a run that is damaged. If a
projection has more rows than one task holds, the tasks write sorted chunks, and a second job merges these as
runs are merged.

Every attempt has a unique name, which is part of the paths of its files. So two loads that write the same run
never write the same file. Maintenance deletes the files of attempts that were never committed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import chain
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeVar

from tidemark.warehouse.columns.tick_counts import TickCounts, sum_tick_counts
from tidemark.warehouse.companions.declared import Cells
from tidemark.warehouse.delta.data_files import DataFile
from tidemark.warehouse.delta.retries import delete_folder
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.errors import DamagedWarehouse
from tidemark.warehouse.events.reader import BatchRange, files_of_batches, split_row_groups
from tidemark.warehouse.events.removals import NONE
from tidemark.warehouse.events.steps import StepPlan, planned_batches
from tidemark.warehouse.loads import tasks
from tidemark.warehouse.runs import companion_marks, run_tables
from tidemark.warehouse.runs.cuts import SortedInput, merge_cost, plan_slices
from tidemark.warehouse.runs.levels import Merge, Run
from tidemark.warehouse.runs.marks import COMPANIONS_GROUP
from tidemark.warehouse.runs.projection import MarkedFile, Projection, RunSpec
from tidemark.warehouse.runs.run_tables import NewRun
from tidemark.warehouse.temporary_folders import process_folder
from tidemark.warehouse.work import Work

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from tidemark.warehouse.execution.executors import Executor

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt to write `run`; `name` is unique.

    `chunk_store` is where sorted chunks are written; a merge of runs writes none.
    """

    work: Work
    run: Run
    name: str
    chunk_store: Store

    def file_path(self, projection: Projection[Any], number: int) -> str:
        """The path of the run's file with this number."""
        return run_tables.run_path(projection, self.run, self.name, number)

    def chunks_folder(self, projection: Projection[Any]) -> str:
        """The folder of sorted chunks, which a merge will read. Delta ignores names that start with '_'."""
        return f"{projection.runs_table}/_chunks/{self.name}"

    def group_by_file(self, slices: Sequence[T], rows: int) -> list[tuple[T, ...]]:
        """Groups the slices of a merge of `rows` rows: each group is one file, written by one task.

        A file gets an equal share of the rows per core, within the limits of `Tuning.file_rows`.
        """
        least, most = self.work.store.tuning.file_rows
        file_rows = min(most, max(least, rows // self.work.executor.cores))
        per_file = max(1, file_rows // self.work.store.tuning.slice_rows)
        return [tuple(slices[start : start + per_file]) for start in range(0, len(slices), per_file)]


@dataclass(frozen=True, slots=True, eq=False)
class RunOfSteps:
    """A run that is to be sorted from `events` for some projections; `plans` are those of its steps."""

    run: Run
    plans: Sequence[StepPlan]
    projections: Sequence[Projection[Any]]


def sort_runs(
    work: Work, wanted: Sequence[RunOfSteps], events: DeltaTable, net_of: int
) -> list[list[NewRun]]:
    """Writes each run of each of its projections from `events`, in one job; commits nothing.

    events   the table, opened after the plans were committed
    net_of   the newest removal that is decided at this version of `events`: the runs have none of its rows

    The chunks of all of the runs are there at the same time.
    """
    with _chunk_store(work.executor, work.store) as chunk_store:
        sorts = []
        for one in wanted:
            attempt = Attempt(work, one.run, run_tables.new_attempt(net_of), chunk_store)
            batches = tuple(planned_batches(one.plans))
            files = files_of_batches(events, batches)
            sorts.append(_Sort(attempt, one.projections, batches, files, reads_once=len(wanted) > 1))
        job = [task for one in sorts for task in one.tasks]
        if len(job) > len(sorts):  # chunks may be merged, in tasks, when no others are running
            results = iter(work.executor.run(job))
            return [one.finish(results) for one in sorts]
        with closing(work.executor.each(job)) as each:
            return [one.finish(each) for one in sorts]


@contextmanager
def _chunk_store(executor: Executor, store: Store) -> Iterator[Store]:
    """Where sorted chunks are written: the store, or a folder of this machine if all tasks run here."""
    if not (store.files.takes_rounds and executor.in_process):
        yield store
        return
    with TemporaryDirectory(prefix="chunks-", dir=process_folder()) as folder:
        yield Store(folder, tuning=store.tuning)


class _Sort:
    """The tasks that sort a run for projections, in an attempt; `finish` takes their results.

    reads_once: whether one task is to sort few rows for all projections but indexes: they are read once, and
        there are other runs for other tasks.
    """

    def __init__(
        self,
        attempt: Attempt,
        projections: Sequence[Projection[Any]],
        batches: tuple[BatchRange, ...],
        event_files: Sequence[DataFile],
        *,
        reads_once: bool,
    ) -> None:
        self._attempt, self._projections = attempt, projections
        rows, most = sum(file.rows for file in event_files), attempt.work.store.tuning.sort_rows
        is_small = rows * len(projections) <= most and all(file.rows >= 0 for file in event_files)
        self._groups = _task_groups(projections, read_once=reads_once and is_small)
        self._of_groups = [_sort_tasks(attempt, group, batches, event_files) for group in self._groups]
        self.tasks = [*chain.from_iterable(self._of_groups)]

    def finish(self, results: Iterator[list[tasks.SortResult]]) -> list[NewRun]:
        """The run of each projection, by the results of the tasks in their order; merges their chunks."""
        runs: dict[str, NewRun] = {}
        for group, group_tasks in zip(self._groups, self._of_groups, strict=True):
            group_results = [next(results) for _ in group_tasks]
            for i, projection in enumerate(group):
                parts = [task_results[i] for task_results in group_results]
                runs[projection.runs_table] = _finish_sort(self._attempt, projection, parts)
        return [runs[projection.runs_table] for projection in self._projections]


@dataclass(frozen=True, slots=True)
class MergeInputs:
    """The files of the input runs of a merge, those with rows; none has a row of the removals to `net_of`."""

    merge: Merge
    files: Mapping[Run, Sequence[DataFile]]
    net_of: int = NONE


def merge_runs(work: Work, projection: Projection[Any], given: MergeInputs) -> NewRun:
    """Writes the output run of the merge and commits nothing."""
    store, files = work.store, given.files
    inputs_with_rows = [run for run in given.merge.inputs if run in files]
    attempt = Attempt(work, given.merge.output, run_tables.new_attempt(given.net_of), store)
    marks_of_inputs = [run_tables.read_marks(store, projection, run, files[run]) for run in inputs_with_rows]
    inputs = [SortedInput.of_run(projection.runs_table, marks) for marks in marks_of_inputs]
    totals = sum_tick_counts([marks.totals for marks in marks_of_inputs])
    cells = [marks.cells() for marks in marks_of_inputs] if projection.companions else []
    return _new_run(attempt, projection, _merge(attempt, projection, inputs, totals, store), totals, cells)


def _task_groups(projections: Sequence[Projection[Any]], *, read_once: bool) -> list[list[Projection[Any]]]:
    """The projections in groups; one task sorts its share of the rows for all projections of a group.

    A projection that merges equal rows is a group of its own, unless few rows are read once. Its tasks hold
    only distinct rows in memory, so they take larger shares. An index is a group of its own, too: it has few
    columns in common with others, so sharing tasks gains nothing, and tasks of more projections take fewer
    rows each, which makes chunks and a merge necessary.
    """
    single = [one for one in projections if one.sorts_alone and not (read_once and one.merges_equal)]
    shared = [one for one in projections if one not in single]
    return [*([shared] if shared else []), *([one] for one in single)]


def _sort_tasks(
    attempt: Attempt,
    projections: Sequence[Projection[Any]],
    batches: tuple[BatchRange, ...],
    event_files: Sequence[DataFile],
) -> list[tasks.SortTask]:
    """One task for each share of the row groups of `events`; at least one task."""
    share_rows = attempt.work.store.tuning.sort_rows // len(projections)
    shares = split_row_groups(attempt.work.store.filesystem(), event_files, share_rows)
    return [
        tasks.SortTask(
            attempt.work.store,
            batches,
            tuple(share),
            tuple(
                tasks.SortOutput(
                    one,
                    f"{attempt.chunks_folder(one)}/{number:05d}.parquet",
                    attempt.file_path(one, 0) if len(shares) <= 1 else None,
                )
                for one in projections
            ),
            attempt.work.options.eps,
            attempt.chunk_store,
        )
        for number, share in enumerate(shares or [[]])
    ]


def _finish_sort(attempt: Attempt, projection: Projection[Any], parts: Sequence[tasks.SortResult]) -> NewRun:
    """The run of the rows that the tasks sorted; merges their chunks if there are any."""
    totals = sum_tick_counts([part.totals for part in parts])
    files = [file for part in parts for file in part.files]
    _check_conserved(attempt, projection, sum(part.digest for part in parts), files)
    if not all(part.is_run for part in parts):
        chunks = [SortedInput.of_chunk(file) for file in files]
        files = _merge(attempt, projection, chunks, totals, attempt.chunk_store)
        delete_folder(attempt.chunk_store.filesystem(), attempt.chunks_folder(projection))
    return _new_run(attempt, projection, files, totals, [part.cells for part in parts])


def _new_run(
    attempt: Attempt,
    projection: Projection[Any],
    files: Sequence[MarkedFile],
    totals: TickCounts,
    cells: Sequence[Cells],
) -> NewRun:
    """The run that consists of these files, with its marks; `cells` are those of its tasks or inputs."""
    marks = projection.marks_tables(files, totals)
    if projection.companions:
        marks = {**marks, COMPANIONS_GROUP: companion_marks.to_arrow(projection.companions, cells, totals)}
    return NewRun(attempt.run, attempt.name, tuple(files), totals, marks)


def _merge(
    attempt: Attempt,
    projection: Projection[Any],
    inputs: Sequence[SortedInput],
    totals: TickCounts,
    input_store: Store,
) -> list[MarkedFile]:
    """Merges sorted inputs into the files of a run: one task per file, one bounded slice at a time.

    The inputs are in `input_store`.
    """
    rows, min_block_cost = sum(source.rows for source in inputs), projection.min_block_cost
    slices = plan_slices(
        inputs,
        -(-merge_cost(inputs, min_block_cost) // attempt.work.store.tuning.slice_rows),
        min_block_cost=min_block_cost,
        split=not projection.merges_equal,
    )
    spec = RunSpec(rows, totals, attempt.work.options.eps)
    merge_tasks = [
        tasks.MergeTask(
            attempt.work.store,
            input_store,
            projection,
            tuple(inputs),
            file_slices,
            attempt.file_path(projection, number),
            spec,
        )
        for number, file_slices in enumerate(attempt.group_by_file(slices, rows))
    ]
    results: list[tuple[MarkedFile, list[int]]] = attempt.work.executor.run(merge_tasks)
    files = [file for file, _ in results]
    written, expected = sum(file.count for file in files), int(totals.counts.sum())
    if written != expected:
        raise DamagedWarehouse(
            f"merging into run {attempt.run.name} of {projection.title!r} wrote {written} of {expected} "
            "rows. Nothing was committed. Run verify: it names the file whose marks are wrong."
        )
    digests = [sum(of_input) % 2**64 for of_input in zip(*(read for _, read in results), strict=True)]
    for source, digest in zip(inputs, digests, strict=True):
        if source.digest != digest:
            raise DamagedWarehouse(
                f"the rows of {', '.join(file.path for file in source.files)} differ from those that were "
                f"written there, so run {attempt.run.name} of {projection.title!r} was not written. Nothing "
                "was committed. Run repair: it makes the files again from events."
            )
    _check_conserved(attempt, projection, sum(digests), files)
    return files


def _check_conserved(
    attempt: Attempt, projection: Projection[Any], digest_read: int, files: Sequence[MarkedFile]
) -> None:
    """DamagedWarehouse unless the files hold the rows that were read, compared by digest."""
    digest_written = sum(file.digests.row_digest for file in files)
    if (digest_written - digest_read) % 2**64:
        raise DamagedWarehouse(
            f"run {attempt.run.name} of {projection.title!r} was written with other rows than were read. "
            "Nothing was committed. Run it again; if that fails too, have the machine's memory checked."
        )
