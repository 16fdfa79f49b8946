"""Sweeping a table: what left it, or never entered it, longer ago than the grace is deleted.

A file is deleted only if all of this holds: it lies below the table, not behind a symbolic link; the newest
snapshot does not name it; it was written before the grace began; and no commit since then took it out. The
last is asked of the log, whose commits outlive the grace (see `retention`). Where the log does not reach back
so far, because it was cleaned when the grace was shorter, nothing is swept. A link is nobody's of ours: it
stays, and is told.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import Any

from pyarrow import fs

from tidemark.warehouse.delta import tables
from tidemark.warehouse.delta.commits import retry_lost_races
from tidemark.warehouse.delta.log_retention import RETENTION, retention_interval, retention_us
from tidemark.warehouse.delta.store import Store


@dataclass(slots=True)
class VacuumResult:
    """What a sweep did: files deleted, the links that it left, and why it deleted nothing, if so."""

    files: int = 0
    links: list[str] = field(default_factory=list)
    held: str | None = None


def expired(since_ms: int, grace_us: int) -> bool:
    """Whether the grace has passed since then (milliseconds since 1970)."""
    return since_ms * 1000 + grace_us <= time.time() * 1e6


def extend_log_retention(store: Store, name: str, grace_us: int) -> str | None:
    """Has the table keep its log for longer than the grace; the new retention where it was shorter."""

    def attempt() -> str | None:
        table = tables.open_table(store, name)
        if retention_us(table.metadata().configuration) >= grace_us:
            return None
        tables.set_properties(table, {RETENTION: retention_interval(grace_us)})
        return retention_interval(grace_us)

    return retry_lost_races(name, attempt)


def vacuum_table(store: Store, name: str, grace_us: int) -> VacuumResult:
    """Deletes what left the table, or never entered it, longer ago than the grace; cleans its log."""
    found, filesystem = VacuumResult(), store.filesystem()
    listed = [
        (info.path.removeprefix(f"{name}/"), info)
        for info in filesystem.get_file_info(fs.FileSelector(name, recursive=True))
    ]
    found.links = [path for path, info in listed if info.type == fs.FileType.Unknown]
    old = [path for path, info in listed if info.type == fs.FileType.File and _is_old(info, grace_us)]
    table = tables.open_table(store, name)
    named = {file.path for file in tables.list_files(table)}
    # Chunks of sorts that never came to their merge lie where Delta does not look.
    gone = [path for path in old if path.startswith("_chunks/")]
    unnamed = {path for path in old if path not in named and not path.startswith(("_", "."))}
    if unnamed:
        left = _left_within(store, name, table.version(), grace_us)
        if left is None:
            found.held = "its log does not reach back over the grace"
        else:
            gone += sorted(unnamed - left)
    for path in gone:
        filesystem.delete_file(f"{name}/{path}")
    found.files = len(gone)
    table.create_checkpoint()
    table.cleanup_metadata()
    return found


def _is_old(info: fs.FileInfo, grace_us: int) -> bool:
    return expired(int(info.mtime.timestamp() * 1000), grace_us)


def _left_within(store: Store, name: str, version: int, grace_us: int) -> set[str] | None:
    """The files that commits within the grace took out; None where the log does not reach back so far."""
    filesystem, left = store.filesystem(), set[str]()
    for number in range(version, -1, -1):
        path = f"{name}/_delta_log/{number:020d}.json"
        try:
            with filesystem.open_input_file(path) as file:
                actions = [json.loads(line) for line in file.read().splitlines() if line.strip()]
        except FileNotFoundError:
            return None
        removed = [action["remove"] for action in actions if "remove" in action]
        times = [_moment(filesystem.get_file_info(path)), *map(_committed, actions)]
        if expired(max(times), grace_us):
            return left
        left.update(one["path"] for one in removed)
    return left


def _moment(info: fs.FileInfo) -> int:
    return int(info.mtime.timestamp() * 1000)


def _committed(action: dict[str, Any]) -> int:
    """When an action of a commit was, in milliseconds since 1970, as far as it says."""
    told = action.get("commitInfo", {}).get("timestamp"), action.get("remove", {}).get("deletionTimestamp")
    return max((int(one) for one in told if one is not None), default=0)
