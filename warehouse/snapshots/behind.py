"""Finds tables whose log lacks commits, by comparing the steps that the tables have.

A load commits the plan of a step to `steps`, then the step to one projection after the other, to its marks
before its runs. So three rules hold whenever a load was killed, if the tables are read in the order runs,
steps, marks:

    planned      no runs table has a step without a plan
    marks        if the marks of a projection have step s, its runs have all steps below s. They also have
                 step s if these marks are of a merged run, because only loaded steps are merged
    order        a load commits to the runs tables in a fixed order. If A comes before B in it, A has every
                 step of B, and B lacks at most one step of A

A table that breaks a rule has lost commits: its folder was copied while a load ran, the end of its log was
cut off, or it was replaced by an older copy. Readers would miss rows, so they refuse the table and name it.

A step has *begun* once a projection, or its marks, have it. The runs table of a dropped measure tells of
begun steps, too: it stays for the grace. A projection that lacks the newest begun step is not damaged: the
reader takes the rows of the step from `events` (snapshot_reader.py). A measure, key or group that was added
later may lack more steps. Until a load adds them, questions about the measure or key are refused, and those
about the group are scans.

Cost: a few comparisons, of numbers that are in memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deltalake import DeltaTable

from tidemark.warehouse.delta import data_files, table_open
from tidemark.warehouse.delta.data_files import DataFile
from tidemark.warehouse.delta.table_names import EVENTS, STEPS
from tidemark.warehouse.errors import DamagedWarehouse, NotBuilt
from tidemark.warehouse.runs import run_tables
from tidemark.warehouse.runs.levels import Run
from tidemark.warehouse.runs.projection import Projection
from tidemark.warehouse.snapshots.table_state import TableState

LOAD = "Run a load: it builds the missing steps again from the table events."


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a projection is; steps are -1 where there is none.

    last     the newest step of its runs table
    marked   the newest step that its marks table has
    certain  the newest step that its runs table must have, by its marks
    is_late  whether it may lack steps that were loaded before it was added
    """

    runs_table: str
    last: int
    marked: int = -1
    certain: int = -1
    is_late: bool = False

    @classmethod
    def of(
        cls, projection: Projection[Any], last: int, marks: Sequence[DataFile], built_from: Mapping[str, int]
    ) -> Progress:
        """The progress of a projection; `marks` are the files of its marks table."""
        marked = [Run.parse(file.partition["run"]) for file in marks]
        return cls(
            projection.runs_table,
            last,
            max((run.last for run in marked), default=-1),
            max((run.last if run.level else run.last - 1 for run in marked), default=-1),
            is_late=projection.runs_table in built_from,
        )


@dataclass(frozen=True, slots=True)
class StepsTold:
    """What the tables of one moment say of the steps.

    planned      the newest planned step, -1 if there is none
    projections  in the order in which a load commits to them
    dropped      the newest step in the runs tables of dropped measures. A load that read the options before
                 the drop may have committed a step only there, and readers may have seen its rows
    """

    planned: int
    projections: tuple[Progress, ...]
    dropped: int = -1

    @property
    def begun(self) -> int:
        """The newest step that a load has begun to commit; -1 if there is none."""
        return max(
            [min(self.dropped, self.planned), *(max(one.last, one.marked) for one in self.projections)]
        )

    def check(self, runs_table: str) -> None:
        """DamagedWarehouse for a projection whose rows would be too few."""
        damage = self.damage(runs_table)
        if damage is not None:
            raise behind_error(*damage)

    def damage(self, runs_table: str) -> tuple[str, str, str] | None:
        """The table that is behind, what it lacks, and the remedy; None if the projection fits the others."""
        place = next(i for i, one in enumerate(self.projections) if one.runs_table == runs_table)
        one = self.projections[place]
        newest = max(self.projections, key=lambda other: other.last)
        if newest.last > self.planned:
            return STEPS, _lacks(self.planned, newest.last, newest.runs_table), ""
        if one.last < one.certain:
            return runs_table, _lacks(one.last, one.certain, "its marks table"), LOAD
        if one.is_late:
            return None
        for number, other in enumerate(self.projections):
            allowed = 0 if number > place else 1
            if other.last > one.last + allowed:
                return runs_table, _lacks(one.last, other.last, other.runs_table), LOAD
        return None

    def behind(self) -> dict[str, int]:
        """How many planned steps each runs table lacks; tables that have all are left out."""
        return {
            one.runs_table: self.planned - one.last for one in self.projections if one.last < self.planned
        }


def behind_text(behind: Mapping[str, int]) -> str:
    """The projections that lack steps, in words; empty if there is none."""
    texts = [f"{name} is {steps} step{'' if steps == 1 else 's'} behind" for name, steps in behind.items()]
    return f"{', '.join(texts)}; run a load" if texts else ""


def behind_error(name: str, what: str, remedy: str = "") -> DamagedWarehouse:
    """The error for the log of a table that is behind the others; `what` says what it lacks."""
    return DamagedWarehouse(
        f"the log of the table {name} is behind the others: {what}. It was copied while a load ran, cut off, "
        f"or put back to an earlier version. {remedy or table_open.remedy(name)}"
    )


def _lacks(last: int, known: int, other: str) -> str:
    has = f"has the steps up to {last}" if last >= 0 else "has no step"
    return f"it {has}, but {other} has step {known}"


def check_planned(planned: int, loaded: Sequence[tuple[str, int]]) -> None:
    """DamagedWarehouse if a runs table, given with its newest step, has a step without a plan."""
    for name, last in loaded:
        if last > planned:
            raise behind_error(STEPS, _lacks(planned, last, name))


def check_marks(projection: Projection[Any], runs: DeltaTable | None, marks: DeltaTable | None) -> None:
    """DamagedWarehouse unless the marks table names the marks of all runs of the runs table.

    `marks` is opened after `runs`; None is a table that does not exist. Answers find marks by their paths,
    not by the log. But maintenance deletes files that no log names.
    """
    named = set() if marks is None else {file.path for file in data_files.list_files(marks)}
    for run, files in run_tables.runs_of(runs).items():
        path = run_tables.marks_path(projection, run, files)
        if path.removeprefix(f"{projection.marks_table}/") not in named:
            raise behind_error(projection.marks_table, f"it does not name {path}, the marks of a run")


def check_removed(state: TableState, projection: Projection[Any]) -> int:
    """The newest removal that the projection shows; an error if only some of its runs show it.

    A run shows a removal if it was built without the removed rows. DamagedWarehouse if a table is behind the
    others; NotBuilt if only some of the runs that had removed rows were built again, and no process goes on.
    """
    removed, table = state.removed, state.files[projection.runs_table]
    removed.check()
    if (shown := state.removed_of(projection.runs_table)) is not None:
        return shown
    if (newest := state.net_of(table.name)) > removed.number:
        raise behind_error(
            EVENTS, f"its newest removal is {removed.number}, but {table.name} shows removal {newest}"
        )
    lost = max(step for one in removed.removals for step in one.steps)
    if lost > table.layout.last_step:
        raise behind_error(table.name, _lacks(table.layout.last_step, lost, "the table removals"), LOAD)
    raise NotBuilt(
        f"some runs of {projection.title!r} have rows that were removed, and others do not. Run "
        "`tidemark maintain`, or a load: it writes these runs again."
    )
