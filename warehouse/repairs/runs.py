"""Repair of runs and marks: what is damaged of a projection, and how it is made again from `events`.

A run is built as a load builds it, from the batches of its steps: sorted, certified by the digests, its marks
appended, then one commit that puts it in the place of what it replaces. So a reader sees the old state or the
new one, and after a kill the next repair goes on with the runs that are left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidemark.warehouse.delta import data_files, table_open, tables
from tidemark.warehouse.delta.commits import first_line
from tidemark.warehouse.delta.data_files import DataFile
from tidemark.warehouse.delta.log_repair import remove_log, unreadable
from tidemark.warehouse.delta.races import add_files, replace_files
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import EVENTS
from tidemark.warehouse.errors import DamagedWarehouse
from tidemark.warehouse.events.removals import Removed, removed_at
from tidemark.warehouse.events.steps import StepPlan
from tidemark.warehouse.integrity.sealed_files import open_sealed
from tidemark.warehouse.loads.history import RunSource
from tidemark.warehouse.repairs.layouts import LayoutPlan, plan_layout
from tidemark.warehouse.runs import run_tables
from tidemark.warehouse.runs.levels import Run
from tidemark.warehouse.runs.projection import Projection
from tidemark.warehouse.settings.options import Options
from tidemark.warehouse.verification.file_checks import size_fault
from tidemark.warehouse.verification.run_checks import check_run
from tidemark.warehouse.work import Work


@dataclass(frozen=True, slots=True)
class RunsDamage:
    """What is wrong with the tables of a projection.

    logs      by table, why its log cannot be opened
    faults    by run, why it is not as it was written
    files     the files of each run that the table names
    plan      which runs leave and which are built
    unlisted  marks of runs that stay, which the table of marks does not name
    lost      marks that their table names, also of earlier runs, and that are missing or cut, or of a step
              without a plan
    behind    the planned steps after the last run; a load adds runs for them
    """

    projection: Projection[Any]
    logs: Mapping[str, str]
    faults: Mapping[Run, str]
    files: Mapping[Run, Sequence[DataFile]]
    plan: LayoutPlan
    unlisted: tuple[str, ...]
    lost: tuple[DataFile, ...]
    behind: range

    def __bool__(self) -> bool:
        marks = self.unlisted or self.lost
        return bool(self.logs or self.plan.leaves or self.plan.built or marks or self.behind)

    def texts(self) -> list[str]:
        """What will be done, a line each."""
        name, plan = self.projection.runs_table, self.plan
        lines = [f"{table}: its log is put right ({reason})" for table, reason in self.logs.items()]
        for run in plan.built:
            reason = f" ({self.faults[run]})" if run in self.faults else ""
            lines.append(f"{name}: run {run.name} is built from events{reason}")
        gone = [run for run in plan.leaves if run not in plan.built]
        lines += [
            f"{name}: run {run.name} leaves, no plan has it or another run has its steps" for run in gone
        ]
        if self.unlisted:
            lines.append(
                f"{self.projection.marks_table}: the marks of {len(self.unlisted)} runs are listed again"
            )
        lines += [
            f"{self.projection.marks_table}: {file.path} leaves, it is missing or cut, or no plan has it"
            for file in self.lost
        ]
        if self.behind:
            steps = f"{self.behind[0]} to {self.behind[-1]}"
            lines.append(f"{name}: steps {steps}, which it lacks, are built from events")
        return lines


def present_runs(store: Store, projection: Projection[Any]) -> dict[Run, list[DataFile]]:
    """The files of each run that the projection's table names; none if it cannot be read."""
    if _unreadable(store, projection):
        return {}
    return run_tables.runs_of(tables.open_table(store, projection.runs_table))


def _unreadable(store: Store, projection: Projection[Any]) -> dict[str, str]:
    """By table of the projection, why it cannot be read; both tables if they have another format."""
    names = (projection.runs_table, projection.marks_table)
    logs = {name: reason for name in names if (reason := unreadable(store, name)) is not None}
    marks = projection.marks_table
    if marks not in logs and (reason := run_tables.other_log(tables.open_table(store, marks))) is not None:
        logs[marks] = reason
    if projection.runs_table not in logs:
        reason = run_tables.other_format(tables.open_table(store, projection.runs_table))
        return dict.fromkeys(names, reason) if reason is not None else logs
    return logs


def find_damage(
    store: Store,
    options: Options,
    projection: Projection[Any],
    plans: Sequence[StepPlan],
    unlike: Mapping[Run, str] | None = None,
) -> RunsDamage:
    """What is wrong with the projection's tables, if `plans` are the steps. Reads every run once.

    unlike: runs that are as they were written, but have other rows than `events`, and the difference
    """
    logs, runs = _unreadable(store, projection), present_runs(store, projection)
    removed = removed_at(store, tables.open_table(store, EVENTS))
    found = {run: _fault(store, projection, run, runs[run], plans, removed) for run in runs}
    faults = {run: fault for run, fault in found.items() if fault is not None} | dict(unlike or {})
    plan = plan_layout(runs, runs.keys() - faults.keys(), len(plans) - 1, options.kappa)
    marks: list[DataFile] = []
    if projection.marks_table not in logs:
        marks = data_files.list_files(tables.open_table(store, projection.marks_table))
    listed = {file.path for file in marks}
    lost = tuple(
        file
        for file in marks
        if Run.parse(file.partition["run"]).last >= len(plans)
        or size_fault(store, projection.marks_table, file)
    )
    wanted = [
        run_tables.marks_path(projection, run, runs[run]).removeprefix(f"{projection.marks_table}/")
        for run in runs
        if run not in plan.leaves
    ]
    unlisted = tuple(path for path in wanted if path not in listed)
    last = max(
        (run.last for run in {*runs, *plan.built} if run not in plan.leaves or run in plan.built), default=-1
    )
    return RunsDamage(projection, logs, faults, runs, plan, unlisted, lost, range(last + 1, len(plans)))


def _fault(
    store: Store,
    projection: Projection[Any],
    run: Run,
    files: Sequence[DataFile],
    plans: Sequence[StepPlan],
    removed: Removed,
) -> str | None:
    """What is wrong with the files of a run; None if all are as they were written."""
    if run.last >= len(plans):
        return None  # it leaves
    filesystem = store.filesystem()
    for file in files:
        if (fault := size_fault(store, projection.runs_table, file)) is not None:
            return fault
    try:
        marks = run_tables.read_marks(store, projection, run, files)
        with open_sealed(filesystem, run_tables.marks_path(projection, run, files), checksums=True) as sealed:
            for group in range(sealed.metadata.num_row_groups):
                sealed.read_group(group)
        check_run(store, projection, marks)
        for companion in projection.companions.declared:
            marks.cells_of(companion)
    except (DamagedWarehouse, FileNotFoundError, pa.ArrowException) as error:
        return first_line(error)
    net_of = run_tables.net_of(files[0].path)
    rows = removed.up_to(net_of).rows(plans[run.first : run.last + 1])
    return None if marks.totals.rows == rows else f"it has {marks.totals.rows} rows, its plans {rows}"


def mend(work: Work, damage: RunsDamage, plans: Sequence[StepPlan]) -> None:
    """Does what the damage needs."""
    projection, store, options = damage.projection, work.store, work.options
    if damage.logs:
        for name in damage.logs:
            if table_open.exists(store, name):
                remove_log(store, name, whole=unreadable(store, name) is None)  # it has another format
        run_tables.create_tables(store, projection, options.grace_us)
        damage = find_damage(store, options, projection, plans)
    if damage.unlisted:
        _list_marks(store, projection, damage.unlisted)
    leaves = {run: damage.files[run] for run in damage.plan.leaves}
    for run in damage.plan.built:
        gone = [one for one in leaves if one.first <= run.last and run.first <= one.last]
        replaced = {one: leaves.pop(one) for one in gone}
        _build(work, projection, run, plans, replaced)
    if leaves:
        run_tables.replace_runs(store, projection, leaves)
    if damage.lost:
        replace_files(store, projection.marks_table, {file.path for file in damage.lost})


def _build(
    work: Work,
    projection: Projection[Any],
    run: Run,
    plans: Sequence[StepPlan],
    replaced: Mapping[Run, Sequence[DataFile]],
) -> None:
    """Builds the run from `events`, and puts it in the place of the runs `replaced`."""
    ((_, new),) = RunSource(work, run, plans[run.first : run.last + 1]).write([projection])
    run_tables.append_marks(work.store, projection, new)
    run_tables.replace_runs(work.store, projection, replaced, new)


def _list_marks(store: Store, projection: Projection[Any], paths: Sequence[str]) -> None:
    filesystem, actions = store.filesystem(), []
    for path in paths:
        whole = f"{projection.marks_table}/{path}"
        with open_sealed(filesystem, whole) as sealed:
            rows = sealed.metadata.num_rows
        size = filesystem.get_file_info(whole).size
        actions.append(data_files.add_action(path, size, rows))
    add_files(store, projection.marks_table, actions)
