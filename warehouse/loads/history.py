"""Commits a step of a load to every projection, and the merges that follow.

The writer of a commit checks before and after it that the files it wrote are still there (own_files.py). If
maintenance deleted a file, the run is written again, from its source; after the commit, the new run replaces
the committed one.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from tidemark.warehouse.delta import own_files, tables
from tidemark.warehouse.delta.commits import NO_NOTES
from tidemark.warehouse.delta.data_files import DataFile
from tidemark.warehouse.delta.log_versions import newest_versions
from tidemark.warehouse.delta.races import Race
from tidemark.warehouse.delta.round_trips import at_once
from tidemark.warehouse.delta.table_names import EVENTS, REMOVALS, STEPS
from tidemark.warehouse.errors import DamagedWarehouse
from tidemark.warehouse.events.completion import completion_of
from tidemark.warehouse.events.removals import (
    decided,
    is_signed,
    open_removal,
    read_removals,
    removed_at,
)
from tidemark.warehouse.events.steps import StepPlan, read_step_plans
from tidemark.warehouse.ledger import batch_counts
from tidemark.warehouse.loads import run_builder
from tidemark.warehouse.loads.run_builder import MergeInputs, RunOfSteps
from tidemark.warehouse.runs import run_tables
from tidemark.warehouse.runs.levels import Layout, Merge, Run, plan_merge
from tidemark.warehouse.runs.projection import Projection
from tidemark.warehouse.runs.run_tables import NewRun
from tidemark.warehouse.settings.options import Options, read_options
from tidemark.warehouse.work import Work

if TYPE_CHECKING:
    from deltalake import DeltaTable

_LOG = logging.getLogger("tidemark.load")

Written = Sequence[tuple[Projection[Any], NewRun]]


@dataclass(slots=True)
class LoadReport:
    """What a load did.

    outcome        'loaded', 'known' (the batch was in history already), 'empty' (there were no rows), or
                   'altered' (of `alter`, where only options changed)
    step           the newest step that it moved into history; None if it moved none
    rows           rows of the steps that it moved
    nans, nulls    how many of these are NaN and NULL, by title of the projection (measures and key)
    runs_by_level  by title of the projection, the number of runs of each level after the load
    bytes_written  bytes of the files of new runs, merges included
    seconds        time spent, by phase
    overlaps       a warning for each earlier bulk load with the same rows as the batch, or nearly the same
    added_columns  the columns that the batch brought to a warehouse that had others
    widened_columns
                   the columns that got a wider type by the batch
    """

    outcome: str = "loaded"
    step: int | None = None
    rows: int = 0
    nans: dict[str, int] = field(default_factory=dict)
    nulls: dict[str, int] = field(default_factory=dict)
    runs_by_level: dict[str, dict[int, int]] = field(default_factory=dict)
    bytes_written: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    overlaps: list[str] = field(default_factory=list)
    added_columns: list[str] = field(default_factory=list)
    widened_columns: list[str] = field(default_factory=list)

    def add_run(self, projection: Projection[Any], run: NewRun) -> None:
        """Counts a run of a step."""
        title = projection.title
        self.bytes_written += sum(file.size for file in run.files)
        self.nans[title] = self.nans.get(title, 0) + int(run.totals.nans.sum())
        self.nulls[title] = self.nulls.get(title, 0) + int(run.totals.nulls.sum())


@dataclass(frozen=True, slots=True)
class History:
    """Opened tables: `events`, `steps`, and of each projection the marks table and the runs table.

    `last_steps` are the newest steps that the runs tables have.
    """

    events: DeltaTable
    steps: DeltaTable
    projections: Sequence[tuple[DeltaTable, DeltaTable]]
    last_steps: Sequence[int]

    def versions(self, options: Options) -> dict[str, int]:
        """The version of each table, by name; `options` are those with the projections."""
        names = [(one.marks_table, one.runs_table) for one in options.projections]
        found = zip(chain(*names), chain(*self.projections), strict=True)
        return {name: table.version() for name, table in [(EVENTS, self.events), (STEPS, self.steps), *found]}


def open_history(work: Work) -> History:
    """Opens the tables at their newest versions; creates missing ones of projections."""
    projections, store = work.options.projections, work.store
    names = [EVENTS, STEPS]
    names += [name for projection in projections for name in (projection.marks_table, projection.runs_table)]
    found = tables.find_tables(store, *names)
    if any(table is None for table in found):
        at_once(partial(run_tables.create_tables, store, grace_us=work.options.grace_us), projections)
        found = [*tables.open_tables(store, *names)]
    events, steps, *others = (table for table in found if table is not None)
    last_steps = [run_tables.read_layout(runs).last_step for runs in others[1::2]]
    return History(events, steps, list(zip(others[::2], others[1::2], strict=True)), last_steps)


@dataclass(frozen=True, slots=True)
class RunSource:
    """What a run is written from, and written again from if maintenance deletes a file of it.

    source   the plans of its steps, whose rows in `events` are sorted; or the runs that are merged
    """

    work: Work
    run: Run
    source: Sequence[StepPlan] | MergeInputs

    def write(self, projections: Sequence[Projection[Any]], events: DeltaTable | None = None) -> Written:
        """Writes the run of each projection, in their order, and commits nothing.

        `events`, opened before, is read if it is given, else the newest version. DamagedWarehouse if it has
        too few or too many rows.
        """
        work, source = self.work, self.source
        if isinstance(source, MergeInputs):
            runs = [run_builder.merge_runs(work, one, source) for one in projections]
        else:
            events = events or tables.open_table(work.store, EVENTS)
            (runs,) = _sorted_runs(work, [RunOfSteps(self.run, source, projections)], events)
        return list(zip(projections, runs, strict=True))

    def kept(self, written: Written) -> Written:
        """The runs, not committed; runs that lost a file are written again."""
        looks = own_files.Looks(self.work.store, before_commit=True)
        while lost := looks.lost(_paths(written, with_marks=False)):
            written = self._written_again(written, lost)
        return written

    def replace_lost(self, committed: Written) -> None:
        """Replaces committed runs, and their marks, if a file of them was gone before the commit."""
        store = self.work.store
        looks = own_files.Looks(store)
        while lost := looks.lost(_paths(committed, with_marks=True)):
            again = self._written_again(committed, lost)
            for (projection, old), (_, new) in zip(committed, again, strict=True):
                if new is not old:
                    run_tables.append_marks(store, projection, new)
                    run_tables.replace_run(store, projection, old, new)
            committed = again

    def _written_again(self, written: Written, lost: Set[str]) -> Written:
        """The runs that were written; runs that lost a file are replaced by new ones."""
        gone = [one for one in written if not lost.isdisjoint(_paths([one], with_marks=True))]
        again = self.write([projection for projection, _ in gone])
        new = {projection.runs_table: run for projection, run in again}
        return [(projection, new.get(projection.runs_table, run)) for projection, run in written]


def rebuild(work: Work, wanted: Sequence[RunOfSteps]) -> list[list[NewRun]]:
    """Writes runs from one version of `events`, and commits nothing; DamagedWarehouse as `RunSource.write`.

    Runs that need one task each are sorted in one job, side by side. Each other run has a job of its own, so
    that the chunks of only one run are on the disk at a time.
    """
    events, most = tables.open_table(work.store, EVENTS), work.store.tuning.sort_rows
    small = [one for one in wanted if sum(plan.rows for plan in one.plans) * len(one.projections) <= most]
    jobs = [small] if small else []
    jobs += [[one] for one in wanted if one not in small]
    built = {
        one.run: runs for job in jobs for one, runs in zip(job, _sorted_runs(work, job, events), strict=True)
    }
    return [built[one.run] for one in wanted]


def _sorted_runs(work: Work, wanted: Sequence[RunOfSteps], events: DeltaTable) -> list[list[NewRun]]:
    removed = removed_at(work.store, events)
    found = run_builder.sort_runs(work, wanted, events, removed.number)
    for one, runs in zip(wanted, found, strict=True):
        expected = removed.rows(one.plans)
        for projection, run in zip(one.projections, runs, strict=True):
            if run.totals.rows != expected:
                parts = removed.parts({part: rows for plan in one.plans for part, rows in plan.parts})
                reason = (
                    f"run {run.run.name} of {projection.title!r} was not written: its steps should have "
                    f"{expected} rows, by plans and removals, but the table events has {run.totals.rows}"
                )
                raise batch_counts.changed_rows_error(work.store, parts, reason)
    return found


def load_step(work: Work, plan: StepPlan, opened: History, report: LoadReport) -> None:
    """Loads one step into every projection that does not have it, one commit per projection."""
    given = zip(work.options.projections, opened.projections, opened.last_steps, strict=True)
    behind = [(projection, *pair) for projection, pair, last_step in given if last_step < plan.step]
    projections = [projection for projection, *_ in behind]
    source = RunSource(work, Run(plan.step, plan.step, 0), [plan])
    with work.phase("sort"):
        written = source.write(projections, opened.events)
    work.reached("sorted")
    committed, commits = [], StepCommits(work, plan.step, opened.versions(work.options), projections)
    for (_, marks_table, runs_table), (projection, run) in zip(behind, source.kept(written), strict=True):
        with work.phase("commit"):
            run_tables.append_marks(work.store, projection, run, first=marks_table)
            work.reached("marked")
            if commits.commit(projection, run, runs_table):
                committed.append((projection, run))
        work.reached("committed")
        report.add_run(projection, run)
        _LOG.info("%s: step %d is in history, %d rows", projection.runs_table, plan.step, plan.rows)
    source.replace_lost(committed)


class StepCommits:
    """The commits of a step to one projection after the other.

    versions   of the tables: as they were opened, then those of runs tables that have the step
    lacking    the projections that lack the step, in the order of their commits
    """

    def __init__(
        self, work: Work, step: int, versions: Mapping[str, int], lacking: Sequence[Projection[Any]]
    ) -> None:
        self._work, self._step, self._versions, self._lacking = work, step, dict(versions), lacking

    def commit(self, projection: Projection[Any], new: NewRun, first: DeltaTable | None = None) -> bool:
        """Adds the run of the step in one commit; False if another load has done so.

        `first` is the runs table, opened before, for the first try.

        Also False if the projection was dropped since the options were read. Maintenance may have emptied its
        table, and another alter may build it anew: then the next load goes on.
        """
        name = projection.runs_table
        race = Race(self._work.store, name, first)
        while (layout := run_tables.read_layout(race.table)).last_step < new.run.last:
            if layout.add_step() != new.run:
                if self._was_dropped(name):
                    return False
                raise DamagedWarehouse(
                    f"step {new.run.first} cannot follow step {layout.last_step}: a step is missing."
                )
            version = race.table.version() + 1
            if race.commit(run_tables.add_actions(new), notes=self._notes(projection, version)):
                self._versions[name] = version
                return True
        self._versions |= newest_versions(self._work.store, {name: self._versions.get(name)})
        return False

    def _was_dropped(self, runs_table: str) -> bool:
        newest, built_from = read_options(self._work.store), self._work.options.built_from
        return runs_table in newest.dropped or newest.built_from.get(runs_table) != built_from.get(runs_table)

    def _notes(self, projection: Projection[Any], version: int) -> Mapping[str, str]:
        """The completion record, if the projection is the last that lacks the step; else nothing.

        version: that of the runs table which the commit makes.

        A step is complete without projections that were added later: their commits have no record.
        """
        built_from = self._work.options.built_from
        is_late = all(built_from.get(one.runs_table, -1) >= self._step for one in self._lacking)
        if is_late or projection is not self._lacking[-1]:
            return NO_NOTES
        known = {**self._versions, projection.runs_table: version}
        marks = [one.marks_table for one in self._work.options.projections]
        moving = {name: known.pop(name) for name in (*marks, EVENTS)}
        return completion_of(self._work.store, self._step, known, moving).notes()


def merge_levels(work: Work, projection: Projection[Any], table: DeltaTable, report: LoadReport) -> Layout:
    """Merges runs until no level holds more than kappa; returns the layout. `table` is the runs table.

    Nothing is merged while a run has removed rows that are not kept: such a run is built again first. Nor is
    anything merged while a removal is planned and not decided: after the decision, readers may take an input
    as a run without rows. If rows of an input are kept, the output is built from `events`.
    """
    while True:
        runs = run_tables.runs_of(table)
        layout = Layout.of(runs, projection.runs_table)
        merge = plan_merge(layout, work.options.kappa)
        source = None if merge is None else _merge_source(work, merge, runs)
        if merge is None or source is None:
            return layout
        with work.phase("merge"):
            written = source.write([projection])
            work.reached("merge sorted")
            ((_, merged),) = source.kept(written)
            run_tables.append_marks(work.store, projection, merged)
            work.reached("merge marked")
            olds = {run: runs[run] for run in merge.inputs}
            if run_tables.replace_if_same(work.store, projection, olds, [merged]):
                source.replace_lost([(projection, merged)])
                report.bytes_written += sum(file.size for file in merged.files)
                _LOG.info(
                    "%s: merged %d runs into %s", projection.runs_table, len(merge.inputs), merged.run.name
                )
        work.reached("merged")
        table = tables.open_table(work.store, projection.runs_table)


def _merge_source(work: Work, merge: Merge, runs: Mapping[Run, Sequence[DataFile]]) -> RunSource | None:
    """The source of the merge's output; None if the merge has to wait, see `merge_levels`.

    Runs with kept rows are not merged: the inputs may lack the rows of different removals. The output is
    built from `events` as it is now, so it lacks those of all removals so far. Inputs of which no row is left
    are left out.
    """
    events = tables.open_table(work.store, EVENTS)  # after the runs: not older
    if not is_signed(events):
        return RunSource(work, merge.output, MergeInputs(merge, runs))
    (records,) = tables.find_tables(work.store, REMOVALS)  # after `events`: an open one is not missed
    planned = open_removal(read_removals(work.store, records), decided(events))
    if planned is not None and not planned.kept:
        return None
    removed = removed_at(work.store, events)
    nets = run_tables.nets_of(runs)
    pending = {run: removed.pending(run.first, run.last, net_of) for run, net_of in nets.items()}
    if not any(pending.values()):
        return RunSource(work, merge.output, MergeInputs(merge, runs, removed.number))
    plans = read_step_plans(work.store, tables.open_table(work.store, STEPS), work.step_files)
    left = removed.rows_by_step(plans)
    emptied = removed.emptied(nets, left)
    with_rows = {run: files for run, files in runs.items() if run not in emptied}
    if any(not one.keeps(run.first, run.last) for run in with_rows for one in pending[run]):
        return None
    inputs = [run for run in merge.inputs if run in with_rows]
    if inputs and not any(pending[run] for run in inputs):
        return RunSource(work, merge.output, MergeInputs(merge, with_rows, removed.number))
    steps = merge.output.steps
    return RunSource(work, merge.output, [plan for plan in plans if plan.step in steps])


def _paths(written: Written, *, with_marks: bool) -> list[str]:
    return [path for one in written for path in run_tables.written_files(*one, with_marks=with_marks)]
