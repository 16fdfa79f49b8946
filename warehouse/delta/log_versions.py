"""The versions of tables, newest or at a moment, from the logs alone, without opening the tables.

The time of a commit is from the clock of the machine that made it. So the version of a moment is only as
exact as these clocks are.

Cost: the newest versions of tables that were opened before take one round of requests if nothing was
committed since. The version of a moment takes the binary logarithm of the number of entries of the log.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from functools import cached_property

from tidemark.warehouse.delta.commits import Commit, parse
from tidemark.warehouse.delta.log_files import LAST_CHECKPOINT, checkpoint_version, commit_name
from tidemark.warehouse.delta.round_trips import ByteRange
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_open import open_directly
from tidemark.warehouse.os_errors import unreadable_file_error

_AHEAD = 12  # commits of a store that are asked for at once


def newest_versions(store: Store, known: Mapping[str, int | None]) -> dict[str, int]:
    """The newest version of each table that exists.

    known   by table, a version that it has; None if none is known
    """
    found = {
        name: _checkpoint(store, name) if version is None else version for name, version in known.items()
    }
    ahead = _AHEAD if store.files.takes_rounds else 1
    growing = set(found)
    while growing:
        paths = {
            f"{name}/_delta_log/{commit_name(found[name] + 1 + i)}": name
            for name in growing
            for i in range(ahead)
        }
        absent = set(store.files.absent(list(paths)))
        for name in list(growing):
            mine = [path for path, owner in paths.items() if owner == name]
            there = next((i for i, path in enumerate(mine) if path in absent), ahead)
            found[name] += there
            if there < ahead:
                growing.remove(name)
    return {name: version for name, version in found.items() if version >= 0}


def _checkpoint(store: Store, name: str) -> int:
    """The version of a table's newest checkpoint; -1 if it has none."""
    (hint,) = store.files.get([ByteRange(f"{name}/_delta_log/{LAST_CHECKPOINT}")])
    version = checkpoint_version(hint)
    return open_directly(store, name).version() if version is None else version  # one of several files


class LogOfTable:
    """The entries of a table's log, each read once."""

    def __init__(self, store: Store, name: str) -> None:
        self._store, self.name = store, name
        self._read: dict[int, Commit] = {}

    @cached_property
    def versions(self) -> range:
        """The versions whose entries are left, without a gap up to the newest one; empty without a table."""
        suffix = ".json"
        names = (name for name in self._store.files.log_names(self.name) if name.endswith(suffix))
        found = {int(name.removesuffix(suffix)) for name in names if name.removesuffix(suffix).isdecimal()}
        newest = first = max(found, default=-1)
        while first - 1 in found:
            first -= 1
        return range(first, newest + 1) if found else range(0)

    def commit(self, version: int) -> Commit:
        """A commit; DamagedWarehouse if its entry cannot be read."""
        if version not in self._read:
            path = f"{self.name}/_delta_log/{commit_name(version)}"
            with self._store.filesystem().open_input_stream(path) as file:
                content = file.read()
            try:
                self._read[version] = parse(version, content)
            except (ValueError, TypeError, RecursionError) as error:
                raise unreadable_file_error(f"{self._store.uri}/{path}", error) from error
        return self._read[version]

    def time_us(self, version: int) -> int:
        """When a version was committed, in microseconds since 1970; 0 if its entry does not say."""
        return (self.commit(version).at_ms or 0) * 1000

    def version_at(self, moment_us: int) -> int:
        """The newest version that was committed by then; else one less than the first version left."""
        return self.versions.start - 1 + bisect_right(self.versions, moment_us, key=self.time_us)
