"""Maintenance of removals: takes out files of no removal, and kept rows that no run has any more."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from tidemark.warehouse.delta import data_files, table_open, tables
from tidemark.warehouse.delta.grace import expired
from tidemark.warehouse.delta.races import Race, replace_files
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import EVENTS, REMOVALS, REMOVED
from tidemark.warehouse.errors import DamagedWarehouse
from tidemark.warehouse.events import removals
from tidemark.warehouse.events.removals import Removal, Removed
from tidemark.warehouse.events.removed_rows import (
    RemovedFile,
    ReplacedFile,
    has_rows,
    read_batches,
    read_replaced,
    write_removed,
)
from tidemark.warehouse.runs import run_tables
from tidemark.warehouse.runs.levels import Run
from tidemark.warehouse.runs.projection import Projection
from tidemark.warehouse.runs.run_tables import net_of


def wanted_files(store: Store) -> set[str]:
    """The files of `events` that a planned removal replaces, and their successors."""
    events = tables.open_table(store, EVENTS)
    if not removals.is_signed(events):
        return set()
    planned = removals.open_removal(_records(store), removals.decided(events))
    files = [] if planned is None else replaced_files(store, planned) or []
    olds = {one.old for one in files if one.old is not None}
    return olds | {one.new.path for one in files if one.new is not None}


def replaced_files(store: Store, removal: Removal) -> list[ReplacedFile] | None:
    """The files that a removal, which is not decided, replaces; None if its own file is gone or damaged."""
    if store.files.absent([f"{REMOVED}/{removal.file}"]):
        return None
    try:
        return read_replaced(store, removal.file)
    except DamagedWarehouse:
        return None


def expire_removed(store: Store, grace_us: int) -> None:
    """Takes files of removals that never happened, as a crash leaves them, out of their table.

    Only files older than the grace: a record that names a younger one may still come.
    """
    race = Race(store, REMOVED)
    while True:
        files = data_files.list_files(race.table)
        named = {one.file for one in _records(store)}
        gone = [one for one in files if one.path not in named and expired(one.modified, grace_us)]
        if not gone or race.commit(map(data_files.remove_action, gone)):
            return


def forget_kept(store: Store, projections: Iterable[Projection[Any]]) -> None:
    """Takes kept rows that no run has any more out of the files of their removals.

    A reader that saw older runs finds the old file for the grace, or looks again. A file that cannot be read
    stays as it is, and `verify` reports it: no run has its rows any more, so maintenance goes on.
    """
    events = tables.open_table(store, EVENTS)
    removed = removals.removed_at(store, events)
    runs_tables = tables.find_tables(store, *(one.runs_table for one in projections))
    wanted = {
        one.number
        for table in runs_tables
        for run, files in run_tables.runs_of(table).items()
        for one in removed.pending(run.first, run.last, net_of(files[0].path))
    }
    done = (one for one in removed.removals if one.kept and one.number not in wanted)
    bare = ((one, _without_rows(store, one.file)) for one in done)
    put_files(store, {one: content for one, content in bare if content is not None})


def _without_rows(store: Store, file: str) -> RemovedFile | None:
    """The content of a removal's file without its rows; None if it has no rows, or cannot be read."""
    try:
        if not has_rows(store, file):
            return None
        return RemovedFile(read_replaced(store, file), read_batches(store, file))
    except DamagedWarehouse:
        return None


def put_files(store: Store, contents: Mapping[Removal, RemovedFile]) -> None:
    """Replaces the files of removals, and lets the records of these removals name the new files."""
    new = {one.file: write_removed(store, one.number, content) for one, content in contents.items()}
    if new:
        removals.replace_records(store, lambda one: replace(one, file=new.get(one.file, one.file)))
        replace_files(store, REMOVED, new)


def take_marks(store: Store, projection: Projection[Any], removed: Removed) -> None:
    """Removes marks of attempts whose runs have removed rows: no commit can name such a run any more."""
    if not table_open.exists(store, projection.marks_table):
        return
    race = Race(store, projection.marks_table)
    while True:
        gone = []
        for file in data_files.list_files(race.table):
            run = Run.parse(file.partition["run"])
            if removed.pending(run.first, run.last, net_of(file.path)):
                gone.append(data_files.remove_action(file))
        if not gone or race.commit(gone, blind=True):
            return


def _records(store: Store) -> list[Removal]:
    (table,) = tables.find_tables(store, REMOVALS)
    return removals.read_removals(store, table)
