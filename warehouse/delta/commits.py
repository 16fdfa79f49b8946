"""Optimistic concurrency control: whether a commit succeeded that raised an error, and when it is retried.

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

A lost race is run again after a pause that grows exponentially and is partly random (backoff with jitter):
see races.py.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import uuid
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyarrow import fs

from tidemark.warehouse.delta import retries
from tidemark.warehouse.delta.log_files import commit_name
from tidemark.warehouse.delta.log_replica import replica_of
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.errors import CommitFailed, DamagedWarehouse, without_secrets
from tidemark.warehouse.os_errors import as_system_refused, is_store_failure, one_line, unreadable_file_error

Write = Callable[[DeltaTable, dict[str, str]], object]  # commits to a table with the custom metadata

_LOG = logging.getLogger("tidemark.commits")
ID, _WRITER, _HOST, _PROCESS = (f"tidemark.{name}" for name in ("commit", "writer", "host", "process"))
_MAY_ARRIVE = (
    "It is not there so far, but a request that was sent may still arrive. Run the same again: nothing is "
    "done twice."
)


@dataclass(frozen=True, slots=True)
class Commit:
    """A version of a table: its writer, operation and time as the log has them; None if it does not."""

    version: int
    id: str | None = None
    writer: str | None = None
    host: str | None = None
    process: str | None = None
    operation: str | None = None
    at_ms: int | None = None

    @property
    def description(self) -> str:
        """Its writer and its operation."""
        writer = f"{self.writer or 'another program'}"
        if self.host is not None:
            writer += f", process {self.process} on {self.host}"
        return f"{writer} ({self.operation or 'operation unknown'})"


class LostRace(Exception):
    """Another writer committed first: plan again on a fresh snapshot. `winners` are its commits, if known."""

    def __init__(self, message: str, winners: tuple[Commit, ...] = ()) -> None:
        super().__init__(message)
        self.winners = winners


def commit_metadata() -> dict[str, str]:
    """The custom metadata of a commit, for its `commitInfo`: a unique id, and the process that makes it."""
    return {
        ID: uuid.uuid4().hex,
        _WRITER: _writer(),
        _HOST: socket.gethostname(),
        _PROCESS: str(os.getpid()),
    }


@cache
def _writer() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return f"tidemark {version('tidemark')}"
    except PackageNotFoundError:  # from the zip for clusters
        return "tidemark"


def commit_and_confirm(table: DeltaTable, write: Write, added: Collection[str] = ()) -> None:
    """Commits by `write` on top of the table's version; returns only if the commit is certainly in the log.

    write   commits to a table at that version, with the custom metadata that it is given
    added   the paths of new files; they identify the commit if its log entry was removed already

    After an error the table must not be used any more.

    Raises LostRace if another writer committed first, and CommitFailed if the commit was refused.
    """
    planned, metadata, log = table.version(), commit_metadata(), _Log(table)

    def commit() -> None:
        copy = replica_of(table)
        if copy is None:
            write(table, metadata)
        else:
            copy.commit(table, planned, lambda target: write(target, metadata))

    def is_there(error: Exception) -> bool:
        known = log.has(planned, metadata[ID], added, error)
        if known:
            _LOG.warning("%s: a commit raised %s, but it is in the log", log.place, type(error).__name__)
        return known

    _write_and_confirm(
        commit,
        is_there,
        operation=f"the commit to {log.place}",
        failed=f"the commit to {log.place} was refused",
        remedy=f"Its log has nothing newer than version {planned}: nothing was changed. Remove the cause (a "
        "permission, a property or a feature of the table) and run the same again.",
        unanswered=f"the store did not confirm the commit to {log.place}",
    )


def _write_and_confirm(
    write: Callable[[], object],
    is_there: Callable[[Exception], bool],
    *,
    operation: str,
    failed: str,
    remedy: str,
    unanswered: str,
) -> None:
    """Writes; returns only if the write is certainly there, also where its answer was lost.

    is_there   looks for the write after an error
    operation   names the write where the operating system refused it
    failed, remedy   the beginning and the end of the message of CommitFailed
    unanswered   the beginning where the store did not confirm the write, which may still arrive

    A write that is not there is made again a few times while an object store does not answer.
    """
    pauses = retries.PATIENCE.store_pauses()
    while True:
        try:
            write()
        except Exception as error:  # of any type: only a look can tell
            if is_there(error):
                return
            pause = next(pauses, None) if is_store_failure(error) else None
            if pause is None:
                if not is_store_failure(error) and as_system_refused(operation, error):
                    raise  # the caller converts it, see os_errors.py
                if is_store_failure(error):
                    failed, remedy = unanswered, _MAY_ARRIVE
                raise CommitFailed(f"{failed}: {first_line(error)}. {remedy}") from error
            retries.PATIENCE.pause(pause)
        else:
            return


def _becomes_true(condition: Callable[[], bool]) -> bool:
    """Evaluates the condition several times, with pauses: a store may show a write late.

    Raises the error of the last evaluation.
    """
    pauses = iter(retries.PATIENCE.log_read_pauses)
    while True:
        pause = next(pauses, None)
        try:
            is_true = condition()
        except (OSError, DeltaError, DamagedWarehouse):
            if pause is None:
                raise
            is_true = False
        if is_true or pause is None:
            return is_true
        retries.PATIENCE.pause(pause)


def create_and_confirm(
    make: Callable[[dict[str, str]], object], exists: Callable[[], bool], name: str
) -> None:
    """Creates a table by `make`; returns if the table exists, also if another process created it.

    Raises CommitFailed if it does not exist.
    """

    def is_there(_: Exception) -> bool:
        with suppress(OSError, DeltaError):  # the table cannot be read either
            return _becomes_true(exists)
        return False

    _write_and_confirm(
        lambda: make(commit_metadata()),
        is_there,
        operation=f"the creation of the table {name}",
        failed=f"the table {name} could not be created",
        remedy="Nothing was changed. Remove the cause and run the same again.",
        unanswered=f"the store did not confirm the creation of the table {name}",
    )


class _Log:
    """The log of a table, read entry by entry."""

    def __init__(self, table: DeltaTable) -> None:
        copy = replica_of(table)
        self._options = table._storage_options if copy is None else copy.options  # noqa: SLF001  the only way
        self._uri = table.table_uri if copy is None else copy.uri
        self.place = without_secrets(self._uri.rstrip("/"))

    @cached_property
    def _files(self) -> fs.FileSystem:
        return Store.from_uri(self._uri, self._options).filesystem()

    def has(self, planned: int, commit_id: str, added: Collection[str], error: Exception) -> bool:
        """Whether the commit is in the log; False if the log has no newer commit.

        Raises LostRace if all newer commits are of other writers, and CommitFailed if the log is unreadable.
        """
        try:
            return _becomes_true(lambda: self._has(planned, commit_id, added, error))
        except (OSError, DeltaError) as unread:
            raise CommitFailed(
                f"it is not known whether the commit to {self.place} succeeded: it raised "
                f"{first_line(error)}, and the log cannot be read: {first_line(unread)}. Run the same again: "
                "nothing is done twice."
            ) from error

    def _has(self, planned: int, commit_id: str, added: Collection[str], error: Exception) -> bool:
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
        raise LostRace(first_line(error), tuple(newer)) from error

    def _since(self, version: int) -> Iterator[Commit]:
        while (commit := self._entry(version)) is not None:
            yield commit
            version += 1

    def _entry(self, version: int) -> Commit | None:
        path = f"_delta_log/{commit_name(version)}"
        if self._files.get_file_info(path).type == fs.FileType.NotFound:
            return None
        with self._files.open_input_stream(path) as stream:
            text = stream.read()
        try:
            return parse(version, text)
        except (ValueError, TypeError, RecursionError) as error:
            raise unreadable_file_error(f"{self.place}/{path}", error) from error


def parse(version: int, content: bytes) -> Commit:
    """A commit from its entry in the log; ValueError or TypeError if that is damaged."""
    actions = [json.loads(line) for line in content.splitlines() if line.strip()]
    infos = (action["commitInfo"] for action in actions if "commitInfo" in action)
    info: dict[str, Any] = dict(next(infos, None) or {})

    def text(*names: str) -> str | None:
        return next((str(info[name]) for name in names if info.get(name) is not None), None)

    timestamp = info.get("timestamp")
    return Commit(
        version,
        text(ID),
        text(_WRITER, "engineInfo"),
        text(_HOST),
        text(_PROCESS),
        text("operation"),
        timestamp if isinstance(timestamp, int) else None,
    )


def _all_in(added: Collection[str], files: Collection[str]) -> bool:
    """Whether all added paths, at least one, are among the files of the table."""
    names = {uri.rsplit("/", 1)[-1] for uri in files}
    return bool(added) and all(path.rsplit("/", 1)[-1] in names for path in added)


def first_line(error: Exception) -> str:
    """The first line of an error's text, or all lines of a store's; without secrets in addresses."""
    text = str(error)
    if is_store_failure(error):
        return one_line(text)
    return without_secrets(text.splitlines()[0]) if text else type(error).__name__
