"""How many races the writers of a warehouse lost, as the logs of its tables tell.

A commit notes how many of its tries lost the race to others (races.py). The sum over the logs is the number
of races that all writers lost, wherever they run. It lacks the races of commits that were given up, or that
were no longer needed because another writer had made the change. Old entries of a log are cleaned, so a sum
over the remaining entries could fall. This sum counts each entry that comes after the first look, once.

Cost: a look reads the new entries, in one round of requests for each table that has some.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidemark.warehouse.delta.commits import parse
from tidemark.warehouse.delta.log_files import commit_name
from tidemark.warehouse.delta.log_versions import newest_versions
from tidemark.warehouse.delta.round_trips import ByteRange
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import EVENTS


@dataclass(slots=True)
class LostRaces:
    """The lost races of one warehouse since the first look. It is not safe to share between threads."""

    store: Store
    number: int = 0
    _seen: dict[str, int] = field(default_factory=dict)  # the newest version of each table that is counted

    def look(self, versions: Mapping[str, int]) -> int:
        """The number, with the entries up to these versions of tables, and of `events` up to the newest."""
        events = newest_versions(self.store, {EVENTS: self._seen.get(EVENTS)})
        for name, newest in {**versions, **events}.items():
            entries = range(self._seen.get(name, newest) + 1, newest + 1)
            self.number += sum(self._lost(name, entries))
            self._seen[name] = max(newest, self._seen.get(name, newest))
        return self.number

    def _lost(self, name: str, entries: range) -> list[int]:
        """The lost races that the entries note; 0 for missing or damaged entries, which readers report."""
        if not entries:
            return []
        paths = [f"{name}/_delta_log/{commit_name(version)}" for version in entries]
        contents = self.store.files.get([ByteRange(path, 0, None) for path in paths])
        return [_number(content) for content in contents if content is not None]


def _number(content: bytes) -> int:
    try:
        return parse(-1, content).lost
    except (ValueError, TypeError, RecursionError):
        return 0
