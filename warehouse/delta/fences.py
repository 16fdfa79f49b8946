"""Fences: a purge deletes the log before a table's fence, once readers do not need these entries any more.

Entries of a log have the statistics of files: the least and the greatest value of a column may be text of a
row that has to be forgotten. So a purge commits a fence to each table once no version from then on names such
files, and writes the checkpoint of that version, which has the statistics of the files that are left. A grace
later all entries and checkpoints before the fence are deleted. What is left opens every version from the
fence on. A fence is a commit without files; its `commitInfo` has FENCE with the id of the purge.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from pyarrow import fs

from tidemark.warehouse.delta.log_files import LAST_CHECKPOINT, actions_of, checkpoint_name, commit_name
from tidemark.warehouse.delta.races import Race
from tidemark.warehouse.delta.retries import delete_file
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_open import open_directly

FENCE = "tidemark.fence"
_NUMBERED = re.compile(r"(\d{20})\.")


def put_fence(store: Store, name: str, purge: str) -> int:
    """Commits a fence of the purge with this id to the table, and its checkpoint; returns its version."""
    race = Race(store, name)
    while not race.commit([], notes={FENCE: purge}):
        continue
    newest = open_directly(store, name).version()
    version = next(one for one in range(newest, -1, -1) if has_fence(store, name, one, purge))
    open_directly(store, name, version).create_checkpoint()
    return version


def has_fence(store: Store, name: str, version: int, purge: str) -> bool:
    """Whether the table has the fence of the purge at this version: not if its log was begun anew since."""
    try:
        return fence_of(read_actions(store, name, version)) == purge
    except FileNotFoundError:
        return False


def removed_after(store: Store, name: str, version: int, newest: int) -> set[str]:
    """The files that commits after a version, up to the newest, removed from the table."""
    removed = set[str]()
    for number in range(version + 1, newest + 1):
        try:
            actions = read_actions(store, name, number)
        except FileNotFoundError:
            continue
        removed.update(one["remove"]["path"] for one in actions if "remove" in one)
    return removed


def read_actions(store: Store, name: str, version: int) -> list[dict[str, Any]]:
    """The actions of a commit of a table; FileNotFoundError if its file is gone."""
    with store.filesystem().open_input_stream(f"{name}/_delta_log/{commit_name(version)}") as file:
        return actions_of(file.read())


def fence_of(actions: Iterable[Mapping[str, Any]]) -> str | None:
    """The id of the purge whose fence these actions of a commit are; None for any other commit."""
    found = (action["commitInfo"].get(FENCE) for action in actions if "commitInfo" in action)
    return next((str(purge) for purge in found if purge is not None), None)


def cut_log(store: Store, name: str, version: int) -> int:
    """Deletes the files of a log before a version, which must be there, and returns how many they were.

    Its checkpoint is written first if it is missing. What a crash left of unfinished commits goes, too, if it
    is older than the version. The same call goes on after a crash. Cost: one listing of the log, and one
    request for each file.
    """
    folder, filesystem = f"{name}/_delta_log", store.filesystem()
    if store.files.absent([f"{folder}/{checkpoint_name(version)}"]):
        open_directly(store, name, version).create_checkpoint()
    listed = filesystem.get_file_info(fs.FileSelector(folder))
    files = {info.base_name: info for info in listed if info.type == fs.FileType.File}
    since = files[commit_name(version)].mtime
    gone = [file for file, info in sorted(files.items()) if _is_before(file, version, info.mtime < since)]
    for file in gone:
        delete_file(filesystem, f"{folder}/{file}")
    store.files.forget()
    return len(gone)


def _is_before(file: str, version: int, is_older: bool) -> bool:
    if file == LAST_CHECKPOINT:
        return False
    numbered = _NUMBERED.match(file)
    return is_older if numbered is None else int(numbered[1]) < version
