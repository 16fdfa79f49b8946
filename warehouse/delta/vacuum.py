"""Vacuum: deletes files of a table that are past the grace.

A file is deleted only if all of this holds: it lies in the table's folder and not behind a symbolic link; the
newest snapshot does not contain it; it was written before the grace began; and no commit within the grace
removed it. The log has all commits within the grace, because it is kept for longer than the grace
(grace.py). If the log was cleaned while the grace was shorter, and does not reach back so far, no file is
deleted. Symbolic links are never deleted; the result lists them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from pyarrow import fs

from tidemark.warehouse.delta import data_files
from tidemark.warehouse.delta.changes import NewProperties
from tidemark.warehouse.delta.fences import fence_of, read_actions
from tidemark.warehouse.delta.grace import RETENTION, expired, retention_interval, retention_us
from tidemark.warehouse.delta.log_files import commit_name
from tidemark.warehouse.delta.races import Race
from tidemark.warehouse.delta.retries import delete_file
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_open import open_directly


@dataclass(slots=True)
class VacuumResult:
    """The number of deleted files, the symbolic links found, and why nothing was deleted (else None)."""

    files: int = 0
    links: list[str] = field(default_factory=list)
    held: str | None = None


def extend_log_retention(store: Store, name: str, grace_us: int) -> str | None:
    """Sets the log retention above the grace if it is shorter; returns the new retention, else None."""
    race = Race(store, name)
    while retention_us(race.table.metadata().configuration) < grace_us:
        if race.change(NewProperties({RETENTION: retention_interval(grace_us)})):
            return retention_interval(grace_us)
    return None


def vacuum_table(
    store: Store,
    name: str,
    grace_us: int,
    wanted: Callable[[], Collection[str]] | None = None,
    *,
    removed_too: bool = False,
) -> VacuumResult:
    """Deletes the files that are past the grace, writes a checkpoint, and cleans the log.

    wanted        called after the files are listed; returns files that stay: a writer is about to commit them
    removed_too   delete also files that a commit removed within the grace: nobody has needed them for longer
    """
    result, filesystem = VacuumResult(), store.filesystem()
    listed = [
        (info.path.removeprefix(f"{name}/"), info)
        for info in filesystem.get_file_info(fs.FileSelector(name, recursive=True))
    ]
    result.links = [path for path, info in listed if info.type == fs.FileType.Unknown]
    files = [(path, info) for path, info in listed if info.type == fs.FileType.File]
    old = [path for path, info in files if expired(_modified_ms(info), grace_us)]
    # Before the snapshot: a file that is committed meanwhile is in this list or in the snapshot.
    kept = set(wanted()) if wanted else set[str]()
    table = open_directly(store, name)
    in_snapshot = {file.path for file in data_files.list_files(table)} | kept
    # Chunks of crashed sorts; Delta ignores their folder.
    to_delete = [path for path in old if path.startswith("_chunks/")]
    unreferenced = {path for path in old if path not in in_snapshot and not path.startswith(("_", "."))}
    if unreferenced:
        removed = set() if removed_too else _removed_within(store, name, table.version(), grace_us)
        if removed is None:
            result.held = "its log does not reach back over the grace"
        else:
            to_delete += sorted(unreferenced - removed)
    for path in to_delete:
        delete_file(filesystem, f"{name}/{path}")
    result.files = len(to_delete)
    table.create_checkpoint()
    table.cleanup_metadata()
    return result


def _removed_within(store: Store, name: str, version: int, grace_us: int) -> set[str] | None:
    """The files that commits within the grace removed; None if the log does not reach back so far.

    A log that a purge has cut reaches back far enough: the files that earlier commits removed were deleted
    before.
    """
    filesystem, removed, is_fence = store.filesystem(), set[str](), False
    for number in range(version, -1, -1):
        try:
            actions = read_actions(store, name, number)
        except FileNotFoundError:
            return removed if is_fence else None
        is_fence = fence_of(actions) is not None
        info = filesystem.get_file_info(f"{name}/_delta_log/{commit_name(number)}")
        times = [_modified_ms(info), *map(_action_ms, actions)]
        if expired(max(times), grace_us):
            return removed
        removed.update(action["remove"]["path"] for action in actions if "remove" in action)
    return removed


def _modified_ms(info: fs.FileInfo) -> int:
    return int(info.mtime.timestamp() * 1000)


def _action_ms(action: dict[str, Any]) -> int:
    """The time that an action of a commit states, in milliseconds since 1970; 0 if it states none."""
    times = action.get("commitInfo", {}).get("timestamp"), action.get("remove", {}).get("deletionTimestamp")
    return max((int(time_ms) for time_ms in times if time_ms is not None), default=0)
