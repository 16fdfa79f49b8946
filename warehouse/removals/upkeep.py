"""What maintenance does about removals: files of a planned one stay, those of none leave the table."""

from __future__ import annotations

from tidemark.warehouse.delta import data_files, tables
from tidemark.warehouse.delta.races import Race
from tidemark.warehouse.delta.retention import expired
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import EVENTS, REMOVALS, REMOVED
from tidemark.warehouse.events import removals
from tidemark.warehouse.events.removals import Removal
from tidemark.warehouse.events.removed_rows import read_replaced


def wanted_files(store: Store) -> set[str]:
    """The files of `events` that a planned removal replaces, and their successors."""
    events = tables.open_table(store, EVENTS)
    if not removals.is_signed(events):
        return set()
    planned = removals.open_removal(_records(store), removals.decided(events))
    files = [] if planned is None else read_replaced(store, planned.file)
    olds = {one.old for one in files if one.old is not None}
    return olds | {one.new.path for one in files if one.new is not None}


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


def _records(store: Store) -> list[Removal]:
    (table,) = tables.find_tables(store, REMOVALS)
    return removals.read_removals(store, table)
