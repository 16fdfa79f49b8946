"""The files of a table's log: their names, and the ones that a process remembers of logs in object stores.

The process remembers the newest checkpoint and the commits from its version on: with these it can open the
table again with one round (log_replica.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LAST_CHECKPOINT = "_last_checkpoint"
KNOWN_BYTES = 2**25  # of the logs of one warehouse


@dataclass(frozen=True, slots=True)
class CachedLog:
    """The files of a log by name, from its newest checkpoint up to a version.

    checked   when the version was the newest, in seconds of time.monotonic()
    """

    version: int
    files: Mapping[str, bytes]
    checked: float


def read_cached_log(log: Path, version: int, checked: float) -> CachedLog:
    """The log in a local folder that has its newest checkpoint and all commits from there on."""
    hint = log / LAST_CHECKPOINT
    checkpoint = checkpoint_version(hint.read_bytes()) if hint.exists() else None
    names = [] if checkpoint is None else [LAST_CHECKPOINT, checkpoint_name(checkpoint)]
    names += map(commit_name, range(checkpoint or 0, version + 1))
    return CachedLog(version, {name: (log / name).read_bytes() for name in names}, checked)


def commit_name(version: int) -> str:
    """The name of a commit's file."""
    return f"{version:020d}.json"


def actions_of(commit: bytes) -> list[Any]:
    """The actions of a commit, by the content of its file; ValueError if that is no JSON."""
    return [json.loads(line) for line in commit.splitlines() if line.strip()]


def checkpoint_name(version: int) -> str:
    """The name of a checkpoint of one file."""
    return f"{version:020d}.checkpoint.parquet"


def checkpoint_version(hint: bytes | None) -> int | None:
    """The version of the newest checkpoint, -1 if there is none; None if it is not one file.

    `hint` is the content of _last_checkpoint, None if there is no such file.
    """
    if hint is None:
        return -1
    try:
        content: Any = json.loads(hint)
        is_one_file = "version" in content and not content.get("parts") and "v2Checkpoint" not in content
        return int(content["version"]) if is_one_file else None
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None
