"""Optimistic concurrency control: whether a commit that raised an error is done, and when it is retried.

An error of a commit does not tell whether the commit succeeded. delta-rs raises the same error for a lost
race and for a commit that can never succeed; and if the response of an object store is lost, the commit may
be in the log. So the `commitInfo` of every commit has an id, and the host and process that made it. After any
error the log is read:

    our id is in the log                 the commit succeeded
    newer versions of other writers      the race is lost: `LostRace`; the writer re-reads the table
    nothing newer, after several reads   the commit was refused: `CommitFailed`, with the cause

If entries of the log were cleaned meanwhile, the paths of the new files decide.

If an object store did not answer, the same commit is made again, with the same id and for the same version.
If the first one arrives late, one of the two fails, because the version exists; the log then shows the id.

A commit that lost a race is planned again after a pause that grows exponentially and is partly random
(backoff with jitter): see races.py.
"""

from __future__ import annotations

import logging
import os
import re
import socket
import uuid
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from types import MappingProxyType
from typing import Any

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyarrow import fs

from tidemark.warehouse.delta import idle_tables, retries
from tidemark.warehouse.delta.changes import Change
from tidemark.warehouse.delta.log_files import actions_of, commit_name
from tidemark.warehouse.delta.log_replica import replica_of
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.errors import CommitFailed, without_secrets
from tidemark.warehouse.os_errors import as_system_refused, is_store_failure, one_line, unreadable_file_error

_LOG = logging.getLogger("tidemark.commits")
ID, _WRITER, _HOST, _PROCESS = (f"tidemark.{name}" for name in ("commit", "writer", "host", "process"))
COMPLETES = "tidemark.completes"  # which step a commit completes: see events/completion.py
LOST = "tidemark.lost_races"  # how many tries of a commit lost the race before: see races.py
_DIGITS = 9  # digits of that number; a longer one was not written by us
NO_NOTES: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Commit:
    """A version of a table: its writer, operation and time as the log has them; None if it does not.

    completes   the note of the step that the commit completes
    lost        how many races it lost before
    """

    version: int
    id: str | None
    writer: str | None
    host: str | None
    process: str | None
    operation: str | None
    at_ms: int | None
    completes: str | None = None
    lost: int = 0

    @property
    def description(self) -> str:
        """Its writer and its operation."""
        writer = f"{self.writer or 'another program'}"
        if self.host is not None:
            writer += f", process {self.process} on {self.host}"
        return f"{writer} ({self.operation or 'operation unknown'})"


@dataclass(frozen=True, slots=True)
class LostRace:
    """Another writer committed first: plan again on a fresh snapshot.

    error     the first line of the error that the commit raised
    winners   the commits of the others, if known
    """

    error: str
    winners: tuple[Commit, ...] = ()


def commit_metadata() -> dict[str, str]:
    """The custom metadata of a commit, for its `commitInfo`: a unique id, and the process that makes it."""
    return {
        ID: uuid.uuid4().hex,
        _WRITER: writer(),
        _HOST: socket.gethostname(),
        _PROCESS: str(os.getpid()),
    }


@cache
def writer() -> str:
    """The name and version of this program, as commits have them."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return f"tidemark {version('tidemark')}"
    except PackageNotFoundError:  # from the zip for clusters
        return "tidemark"


def commit_change(table: DeltaTable, change: Change, notes: Mapping[str, str] = NO_NOTES) -> LostRace | None:
    """Commits a change on top of the table's version; None once it is certainly in the log.

    notes   what the commit says in its `commitInfo`, beside who made it

    Returns what won if another writer committed first; then nothing was changed. After an error, and after a
    lost race, the table must not be used any more. Raises CommitFailed if the commit was refused.
    """
    kept = idle_tables.withdrawn(table)
    lost = _commit(table, change, {**commit_metadata(), **notes})
    if kept is not None and lost is None and change.is_taken_up:
        kept.committed()
    return lost


def _commit(table: DeltaTable, change: Change, metadata: Mapping[str, str]) -> LostRace | None:
    """Commits to the table, or to the copy of its log, until the log shows that it succeeded or cannot."""
    planned, copy, log = table.version(), replica_of(table), _Log(table)
    operation, tries = f"the commit to {log.place}", retries.PATIENCE.begin(retries.PATIENCE.store_tries)
    while True:
        try:
            if copy is None:
                change.apply(table, metadata, cleans=True)
            else:
                copy.commit(table, planned, change, metadata)
            return None
        except Exception as error:  # noqa: BLE001  of any type: only the log shows whether it succeeded
            found = log.has(planned, metadata[ID], change.added, error)
            if found is True:
                _LOG.warning("%s: a commit raised %s, but it is in the log", log.place, type(error).__name__)
                return None
            if found:
                return found
            remedy = log.remedy(planned, error)
            wait_or_fail(tries, error, operation, f"{operation} was refused", remedy)


def wait_or_fail(tries: retries.Tries, error: Exception, operation: str, failed: str, remedy: str) -> None:
    """Waits if a store did not answer: then a write that raised this error, and is not there, is made again.

    tries      of the write
    operation  names the write where the operating system refused it
    failed, remedy   the beginning and the end of the message of CommitFailed, where the write was refused

    Raises CommitFailed, or the error of the operating system, if the write is not made again.
    """
    if not is_store_failure(error):
        if as_system_refused(operation, error):
            raise error  # the caller converts it, see os_errors.py
        raise CommitFailed(f"{failed}: {first_line(error)}. {remedy}") from error
    if not tries.again():
        raise CommitFailed(
            f"the store did not confirm {operation}: {first_line(error)}. It is not there so far, but a "
            "request that was sent may still arrive. Run the same again: nothing is done twice."
        ) from error


class _Log:
    """The log of a table, read entry by entry."""

    def __init__(self, table: DeltaTable) -> None:
        copy = replica_of(table)
        self._options = table._storage_options if copy is None else copy.store.options  # noqa: SLF001  the only way
        self._uri = table.table_uri if copy is None else copy.store.table(copy.name)
        self.place = without_secrets(self._uri.rstrip("/"))

    @cached_property
    def _files(self) -> fs.FileSystem:
        return Store.from_uri(self._uri, self._options).filesystem()

    def has(self, planned: int, commit_id: str, added: Collection[str], error: Exception) -> LostRace | bool:
        """Whether the commit is in the log, after several looks; False if the log has no newer commit.

        A lost race if all newer commits are of other writers. Raises CommitFailed if the log is unreadable.
        """
        for is_last in retries.PATIENCE.look():
            try:
                if found := self._has(planned, commit_id, added, error):
                    return found
            except (OSError, DeltaError) as unread:
                if is_last:
                    raise CommitFailed(
                        f"it is not known whether the commit to {self.place} succeeded: it raised "
                        f"{first_line(error)}, and the log cannot be read: {first_line(unread)}. Run the "
                        "same again: nothing is done twice."
                    ) from error
        return False

    def _has(self, planned: int, commit_id: str, added: Collection[str], error: Exception) -> LostRace | bool:
        newer: list[Commit] = []
        for commit in self._since(planned + 1):
            if commit.id == commit_id:
                return True
            newer.append(commit)
        if not newer:
            table = DeltaTable(self._uri, storage_options=self._options)
            if table.version() <= planned:
                return False
            # The table is newer than the missing entry: a checkpoint replaced entries, and they were removed.
            versions = range(planned + 1, table.version() + 1)
            newer = [entry for version in versions if (entry := self._entry(version)) is not None]
            if any(commit.id == commit_id for commit in newer) or _all_in(added, table.file_uris()):
                return True
        return LostRace(first_line(error), tuple(newer))

    def _since(self, version: int) -> Iterator[Commit]:
        while (commit := self._entry(version)) is not None:
            yield commit
            version += 1

    def remedy(self, planned: int, error: Exception) -> str:
        """What to do after this error, where the commit after the version `planned` was refused."""
        is_whole = True
        if not is_store_failure(error):
            with suppress(OSError):  # then the error is that of the commit
                is_whole = self.has_entry(planned)
        if is_whole:
            return (
                f"Its log has nothing newer than version {planned}: nothing was changed. Remove the cause "
                "(a permission, a property or a feature of the table) and run the same again."
            )
        return (
            f"Its log has a checkpoint of version {planned} and not the commit, so no other can follow: "
            "nothing was changed. Run `tidemark repair`, which puts that right."
        )

    def has_entry(self, version: int) -> bool:
        path = f"_delta_log/{commit_name(version)}"
        return bool(self._files.get_file_info(path).type != fs.FileType.NotFound)

    def _entry(self, version: int) -> Commit | None:
        """The commit of a version, None if there is none; its entry may be looked at while it is written."""
        path = f"_delta_log/{commit_name(version)}"
        for is_last in retries.PATIENCE.look() if self.has_entry(version) else ():
            with self._files.open_input_stream(path) as stream:
                text = stream.read()
            try:
                return parse(version, text)
            except (ValueError, TypeError, RecursionError) as error:
                if is_last:
                    raise unreadable_file_error(f"{self.place}/{path}", error) from error
        return None


def parse(version: int, content: bytes) -> Commit:
    """A commit from its entry in the log; ValueError or TypeError if that is damaged."""
    actions = actions_of(content)
    infos = (action["commitInfo"] for action in actions if "commitInfo" in action)
    info: dict[str, Any] = dict(next(infos, None) or {})

    def text(*names: str) -> str | None:
        return next((str(info[name]) for name in names if info.get(name) is not None), None)

    timestamp, lost = info.get("timestamp"), text(LOST) or ""
    return Commit(
        version,
        text(ID),
        text(_WRITER, "engineInfo"),
        text(_HOST),
        text(_PROCESS),
        text("operation"),
        timestamp if isinstance(timestamp, int) else None,
        text(COMPLETES),
        int(lost) if re.fullmatch(f"[0-9]{{1,{_DIGITS}}}", lost) else 0,
    )


def _all_in(added: Collection[str], files: Collection[str]) -> bool:
    names = {uri.rsplit("/", 1)[-1] for uri in files}
    return bool(added) and all(path.rsplit("/", 1)[-1] in names for path in added)


def first_line(error: Exception) -> str:
    """The first line of an error's text, or all lines of a store's; without secrets in addresses."""
    text = str(error)
    if is_store_failure(error):
        return one_line(text)
    return without_secrets(text.splitlines()[0]) if text else type(error).__name__
