"""Finishes removals. A removal is *planned*, then *decided* (effective or void), then *applied* to the runs.

    decide    one commit to `events` replaces the files and sets the transaction `tidemark.removed` to the
              number of the removal. If one of the files has changed since the plan, the commit replaces
              nothing and marks the removal as void
    apply     each run that still has removed rows is built again from `events`, unless they are kept, or all
              of its rows have left: then readers take it as a run without rows. Later, neighbours that lost
              all of their rows become one run. One commit for each projection replaces all of its runs, if
              the runs table still lists exactly the files that were looked at

Several processes may do this at once: each commit succeeds once, and a process that loses the race reads the
tables again. docs/signed_steps.md defines the words, and says who calls this and what becomes of merges.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from deltalake.transaction import AddAction, RemoveAction, Transaction

from tidemark.warehouse.delta import data_files, tables
from tidemark.warehouse.delta.data_files import DataFile, NewFile
from tidemark.warehouse.delta.races import Race, add_files, replace_files
from tidemark.warehouse.delta.round_trips import at_once
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import EVENTS, REMOVALS, REMOVED, STEPS
from tidemark.warehouse.errors import DamagedWarehouse
from tidemark.warehouse.events import removals
from tidemark.warehouse.events.removals import NOTHING, TRANSACTION, VOIDED, Removal, Removed, removed_at
from tidemark.warehouse.events.removed_rows import ReplacedFile
from tidemark.warehouse.events.steps import StepPlan, read_step_plans
from tidemark.warehouse.integrity.sealed_files import open_sealed
from tidemark.warehouse.loads import history
from tidemark.warehouse.loads.run_builder import RunOfSteps
from tidemark.warehouse.removals.upkeep import replaced_files
from tidemark.warehouse.runs import run_tables
from tidemark.warehouse.runs.levels import Layout, Run, merging_runs
from tidemark.warehouse.runs.projection import MarkedFile, Projection
from tidemark.warehouse.runs.run_tables import NewRun
from tidemark.warehouse.settings.features import SIGNED
from tidemark.warehouse.settings.options import read_options
from tidemark.warehouse.work import Work

if TYPE_CHECKING:
    from deltalake import DeltaTable

_LOG = logging.getLogger("tidemark.remove")


@dataclass(frozen=True, slots=True)
class Finished:
    """The state after all removals are finished.

    table     the table `removals`, at a version whose removals are all finished; None if there is no such
              table. A new removal is planned by a commit that must be the next version: then no other process
              planned one meanwhile
    removed   the removals that happened
    runs, bytes_written
              how many runs were replaced, by title of the projection; the bytes of the files in their place.
              Those that got other files before a decision, so that no merge reads them, are not counted
    """

    table: DeltaTable | None = None
    removed: Removed = NOTHING
    runs: Counter[str] = field(default_factory=Counter)
    bytes_written: int = 0


def finish_open(work: Work, *, with_kept: bool = False) -> Finished:
    """Decides and applies removals until all are finished. Does nothing if rows were never removed.

    with_kept   runs are built again, too, if their removed rows are kept, and if no row of them is left

    The options of `work` must be current: a feature in them says that rows were removed. DamagedWarehouse if
    a record of a removal is missing, or if `events` has another number of rows than was planned and not
    removed.
    """
    runs, size = Counter[str](), 0
    while SIGNED in work.options.features:
        table, *_ = tables.find_tables(work.store, REMOVALS)
        if table is None:
            removed_at(work.store, tables.open_table(work.store, EVENTS))  # raises if the records are lost
            break
        removed = _decided(work, table)
        if removed is None:
            del table
            continue
        built = _apply(work, removed, with_kept=with_kept)
        if built is None:
            return Finished(table, removed, runs, size)
        runs += Counter({projection.title: count for projection, count, _ in built})
        size += sum(new.size for _, _, news in built for new in news)
    return Finished(None, NOTHING, runs, size)


def _decided(work: Work, table: DeltaTable) -> Removed | None:
    """The removals in `table` that took effect. None if this call or another process changed one of them."""
    store = work.store
    events = tables.open_table(store, EVENTS)
    records = removals.read_removals(store, table)
    number, voided = removals.decided(events), removals.voided(events)
    planned = removals.open_removal(records, number)
    if planned is not None:
        del events  # a table that nobody uses is opened again sooner
        decide(work, planned)
        return None
    void = {one.file for one in records if one.number == voided}
    if void:
        removals.replace_records(store, lambda one: None if one.number == voided else one)
        replace_files(store, REMOVED, void)  # it may be gone, or damaged
        return None
    try:
        return Removed.of(records, number, voided)
    except DamagedWarehouse:
        if tables.open_table(store, REMOVALS).version() == table.version():
            raise
        return None  # another process planned and decided a removal since


def decide(work: Work, removal: Removal) -> bool:
    """Decides the removal if that is not done yet. True if it took effect, False if it is void.

    It takes effect if its own file can be read, if `events` still names all the files that it replaces, and
    if the new files are there. If it is void, nobody has seen any of it, and the caller selects again.
    """
    store = work.store
    if not removal.kept:
        _keep_from_merges(work, removal)
    race = Race(store, EVENTS)
    while removals.decided(race.table) < removal.number:
        files = replaced_files(store, removal)
        actions = None if files is None else _actions(store, race.table, files)
        numbers = [Transaction(TRANSACTION, removal.number)]
        if actions is None:
            numbers.append(Transaction(VOIDED, removal.number))
        if race.commit(actions or [], transactions=numbers):
            break
    race = Race(store, EVENTS)
    happened = removals.voided(race.table) != removal.number
    work.reached("decided")
    _LOG.info("%s: removal %d %s", EVENTS, removal.number, "is decided" if happened else "is void")
    return happened


def _keep_from_merges(work: Work, removal: Removal) -> None:
    """Gives runs that the removal empties other files, if a merge of an earlier plan may be reading them."""
    store, events = work.store, tables.open_table(work.store, EVENTS)
    work = replace(work, options=read_options(store, events))
    if removals.decided(events) >= removal.number:
        return
    projections = work.options.projections
    names = [one.runs_table for one in projections]
    found = {
        name: run_tables.runs_of(table)
        for name, table in zip(names, tables.find_tables(store, *names), strict=True)
    }
    kappa = work.options.smallest_kappa
    merging = {name: merging_runs(Layout.of(runs), kappa) for name, runs in found.items()}
    lose = {run for runs in merging.values() for run in runs if removal.steps.intersection(run.steps)}
    if not lose:
        return
    plans = read_step_plans(store, tables.open_table(store, STEPS), work.step_files)
    happened = (*removed_at(store, events).removals, removal)
    left = Removed(removal.number, happened).rows_by_step(plans)
    emptied = {run for run in lose if not any(left[step] for step in run.steps)}
    waiting: dict[str, _Waiting] = {
        name: {run: {run: found[name][run]} for run in sorted(emptied.intersection(runs))}
        for name, runs in merging.items()
    }
    built = _build(work, projections, plans, waiting)
    if any(run_tables.net_of(new.attempt) >= removal.number for _, new in built.values()):
        return  # another process has decided it, and has built some of these runs without its rows
    for projection in projections:
        _put(work, projection, waiting[projection.runs_table], built)


def _actions(
    store: Store, events: DeltaTable, files: Sequence[ReplacedFile]
) -> list[AddAction | RemoveAction] | None:
    """The actions that replace the files; None if one of them, or of their successors, is not there."""
    named = {file.path: file for file in data_files.list_files(events)}
    new = [one.new for one in files if one.new is not None]
    olds = [one.old for one in files if one.old is not None]
    if any(old not in named for old in olds):
        return None
    if store.files.absent([f"{EVENTS}/{one.path}" for one in new]):
        return None
    if not _fit(store, events, [one.new for one in files if one.new is not None and one.old is None]):
        return None
    removed = [data_files.remove_action(named[old]) for old in olds]
    return [*removed, *(one.action() for one in new)]


def _fit(store: Store, events: DeltaTable, files: Sequence[NewFile]) -> bool:
    """Whether files of rows that come have the table's private columns: the secret may have been rotated."""
    private = read_options(store, events).names.private if files else frozenset[str]()
    for one in files if private else ():
        with open_sealed(store.filesystem(), f"{EVENTS}/{one.path}") as opened:
            if not private <= {*opened.metadata.schema.to_arrow_schema().names}:
                return False
    return True


# The runs of a projection that are to be written, each with the runs that it replaces and their files.
_Waiting = Mapping[Run, Mapping[Run, Sequence[DataFile]]]


def _apply(work: Work, removed: Removed, *, with_kept: bool) -> list[_Replaced] | None:
    """Builds again each run that still has rows of decided removals, and replaces the old run.

    Returns the replaced runs, by projection; None if there was nothing to do.
    """
    work = replace(work, options=read_options(work.store))  # the names of columns in both are of one moment
    store, projections = work.store, work.options.projections
    found = _runs_to_build(work, removed, with_kept=with_kept)
    if not any(found.values()):
        return None
    plans = read_step_plans(store, tables.open_table(store, STEPS), work.step_files)
    left = removed.rows_by_step(plans)
    if not with_kept:
        for runs in found.values():
            for run in removed.emptied(run_tables.nets_of(runs), left):
                del runs[run]
        if not any(found.values()):
            return None
    with work.phase("remove"):
        waiting = {name: joined_runs(runs, left) for name, runs in found.items()}
        built = _build(work, projections, plans, waiting)
        work.reached("removal sorted")
        put = [_put(work, projection, waiting[projection.runs_table], built) for projection in projections]
        return [one for one in put if one is not None]


def _runs_to_build(work: Work, removed: Removed, *, with_kept: bool) -> dict[str, dict[Run, list[DataFile]]]:
    names = [one.runs_table for one in work.options.projections]
    return {
        name: {
            run: files
            for run, files in run_tables.runs_of(table).items()
            if any(
                with_kept or not one.keeps(run.first, run.last)
                for one in removed.pending(run.first, run.last, run_tables.net_of(files[0].path))
            )
        }
        for name, table in zip(names, tables.find_tables(work.store, *names), strict=True)
    }


def joined_runs(runs: Mapping[Run, Sequence[DataFile]], left: Mapping[int, int]) -> _Waiting:
    """The runs to write in the place of these; neighbours of one level without any row left become one run.

    left   how many rows each step has
    """
    joined: dict[Run, dict[Run, Sequence[DataFile]]] = {}
    before: Run | None = None  # the last of `joined`, if it has no row
    for run in sorted(runs):
        new, olds = run, {run: runs[run]}
        is_empty = not any(left[step] for step in run.steps)
        if before and is_empty and (before.last + 1, before.level) == (run.first, run.level):
            new, olds = Run(before.first, run.last, run.level), {**joined.pop(before), **olds}
        joined[new] = olds
        before = new if is_empty else None
    return joined


_Built = dict[tuple[str, Run], tuple[history.RunSource, NewRun]]  # by runs table and run


def _build(
    work: Work,
    projections: Sequence[Projection[Any]],
    plans: Sequence[StepPlan],
    waiting: Mapping[str, _Waiting],
) -> _Built:
    """The new runs, not committed."""
    wanted = [
        RunOfSteps(
            run,
            [plan for plan in plans if plan.step in run.steps],
            [one for one in projections if run in waiting[one.runs_table]],
        )
        for run in sorted({run for runs in waiting.values() for run in runs})
    ]
    built: _Built = {}
    for one, runs in zip(wanted, history.rebuild(work, wanted), strict=True):
        source = history.RunSource(work, one.run, one.plans)
        written = source.kept(list(zip(one.projections, runs, strict=True)))
        built |= {(projection.runs_table, one.run): (source, new) for projection, new in written}
    return built


# A projection, how many of its runs were replaced, and the files of those in their place.
_Replaced = tuple[Projection[Any], int, Sequence[MarkedFile]]


def _put(work: Work, projection: Projection[Any], waiting: _Waiting, built: _Built) -> _Replaced | None:
    """Replaces the runs of the projection in one commit; none of them if one has changed."""
    if not waiting:
        return None
    news = [built[projection.runs_table, run] for run in waiting]
    olds = {run: files for replaced in waiting.values() for run, files in replaced.items()}
    marks = at_once(partial(run_tables.marks_file, work.store, projection), [new for _, new in news])
    add_files(work.store, projection.marks_table, marks)
    work.reached("removal marked")
    if not run_tables.replace_if_same(work.store, projection, olds, [new for _, new in news]):
        return None
    for source, new in news:
        source.replace_lost([(projection, new)])
    work.reached("removal applied")
    _LOG.info("%s: %d runs were written again", projection.runs_table, len(olds))
    return projection, len(olds), [file for _, new in news for file in new.files]
