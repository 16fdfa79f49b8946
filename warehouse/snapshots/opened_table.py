"""A table that a snapshot reader keeps open and brings up to date."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from tidemark.warehouse.delta import table_open, tables
from tidemark.warehouse.delta.log_files import commit_name
from tidemark.warehouse.delta.log_replica import AHEAD, LogReplica
from tidemark.warehouse.delta.round_trips import Rounds
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import EVENTS, LEDGER, STEPS
from tidemark.warehouse.errors import DamagedWarehouse

_LISTING_SECONDS = 60.0  # log cleanup can delete the commit that we look for: list the log this often


@dataclass(slots=True)
class OpenedTable:
    """A table of the warehouse at the version of the last update.

    `table` is None while the table does not exist. `cache` holds rows of its files, by path. `listed` is
    when its log was last listed, and `checked` when the last update began, in seconds of time.monotonic().
    `ahead` is that of `LogReplica`.
    """

    store: Store
    name: str
    table: DeltaTable | None = None
    cache: dict[str, pa.Table] = field(default_factory=dict)
    listed: float = 0.0
    checked: float = float("-inf")
    ahead: int = AHEAD
    _copy: LogReplica | None = None
    _entry: tuple[int, int, int] | None = None

    @property
    def version(self) -> int:
        """The version of the table; -1 if it does not exist."""
        return self.table.version() if self.table is not None else -1

    @property
    def existing(self) -> DeltaTable:
        """The table; DamagedWarehouse if it does not exist."""
        if self.table is None:
            raise DamagedWarehouse(f"the table {self.name} is missing. {table_open.remedy(self.name)}")
        return self.table

    def update(self) -> bool:
        """Moves to the newest version, on a local disk; returns whether the version changed."""
        self.checked, before, known = time.monotonic(), self.version, self.table
        if self.table is None or self._entry != self._newest_entry():  # none, or its log was begun anew
            self.table = tables.open_table(self.store, self.name) if self._exists() else None
        elif self._may_be_newer(before + 1):
            try:
                table_open.update(self.store, self.name, self.table)
            except DeltaError:
                self.table = table_open.open_directly(
                    self.store, self.name
                )  # raises the error, if it is read
            self.listed = self.checked
        changed = self.table is not known or self.version != before
        if changed:
            self._entry = self._newest_entry()
        return changed

    def _newest_entry(self) -> tuple[int, int, int] | None:
        """What tells the file of the newest entry from another one of its version; None without a file."""
        try:
            found = os.stat(self._commit(self.version))  # noqa: PTH116  pathlib's stat takes longer
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size

    def catch_up(self) -> Rounds[bool]:
        """Moves to the newest version, in an object store; returns whether the version changed."""
        copy = self._log_replica()
        changed = yield from copy.catch_up()
        self.table, self.checked = copy.table, copy.checked
        if self.table is None and self.name in _ALWAYS_THERE:
            table_open.open_directly(self.store, self.name)  # raises the error
        return changed

    def prepare(self) -> Rounds[None]:
        """Reads ahead for the first `catch_up`."""
        yield from self._log_replica().prepare()

    def _log_replica(self) -> LogReplica:
        if self._copy is None:
            self._copy = LogReplica(self.store, self.name, self.ahead)
        return self._copy

    def _exists(self) -> bool:
        # A warehouse that was created without a schema gets its runs tables with the first batch.
        return self.name in _ALWAYS_THERE or table_open.exists(self.store, self.name)

    def _may_be_newer(self, version: int) -> bool:
        """Whether there may be a newer version, `version` or a later one.

        This looks only for the file of the next commit, which is far cheaper than listing the log. The log is
        listed once _LISTING_SECONDS have passed since the last time.
        """
        if self.checked - self.listed > _LISTING_SECONDS:
            return True
        return os.path.exists(self._commit(version))  # noqa: PTH110  pathlib's takes longer than a refresh

    def _commit(self, version: int) -> str:
        return f"{self.store.table(self.name)}/_delta_log/{commit_name(version)}"


_ALWAYS_THERE = (EVENTS, STEPS, LEDGER)
