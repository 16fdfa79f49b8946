"""The states of an alert and its undelivered notices on disk: one JSON file, replaced whole.

One process at a time uses a file; it holds a lock on the file with `.lock` behind its name. The file is
written before a notice is delivered and again after it, so that a notice whose delivery a crash cut short is
delivered again, with the same identifier.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from tidemark.warehouse.columns.json_values import json_text
from tidemark.warehouse.errors import InputError
from tidemark.warehouse.os_errors import in_home

if sys.platform != "win32":
    import fcntl

FORMAT = 1
CLEAR, POSSIBLE, CERTAIN, STALE = STATES = ("clear", "possible", "certain", "stale")


class StateFile:
    """A state file that this process holds; or without a place, states in memory alone."""

    def __init__(self, place: str | os.PathLike[str] | None) -> None:
        """InputError if another process holds it, or if it cannot be read."""
        self.place = None if place is None else Path(in_home(place))
        self._lock: int | None = None
        self.groups: dict[str, Any] = {}  # the states by condition and group
        self.undelivered: list[dict[str, Any]] = []  # the notices that nobody took yet, the oldest first
        if self.place is not None:
            self._hold(self.place)
            self._read(self.place)

    def write(self) -> None:
        """Replaces the file; the old one stays where that fails."""
        if self.place is None:
            return
        beside = self.place.with_name(f"{self.place.name}.new")
        with beside.open("w", encoding="utf-8") as file:
            content = {"format": FORMAT, "groups": self.groups, "undelivered": self.undelivered}
            file.write(json_text(content))
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self.place)

    def close(self) -> None:
        """Lets other processes use the file."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _hold(self, place: Path) -> None:
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(place.with_name(f"{place.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
            if sys.platform != "win32":
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise InputError(
                f"another process uses the state file {place}. End it, or give another file."
            ) from None
        except OSError as error:
            self.close()
            raise InputError(f"the state file {place} cannot be used: {error.strerror}.") from error

    def _read(self, place: Path) -> None:
        try:
            found = json.loads(place.read_text(encoding="utf-8"))
            is_ours = (
                found["format"] == FORMAT
                and all(
                    one["state"] in STATES and isinstance(one["number"], int)
                    for groups in found["groups"].values()
                    for one in groups.values()
                )
                and all(isinstance(one["id"], str) for one in found["undelivered"])
            )
        except FileNotFoundError:
            return
        except OSError as error:
            self.close()
            raise InputError(f"the state file {place} cannot be read: {error.strerror}.") from error
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            is_ours = False
        if not is_ours:
            self.close()
            raise InputError(f"{place} is no state file of alerts. Give another file, or move it away.")
        self.groups, self.undelivered = found["groups"], found["undelivered"]
