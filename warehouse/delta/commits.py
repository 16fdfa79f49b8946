"""Commits that race: who made them, what became of one that raised an error, and when to stop trying.

An error of a commit is no answer. delta-rs raises the same for a lost race and for what can never
succeed, and where the answer of a store was lost the commit may be done. So every commit has an id
in its `commitInfo`, with the host and process that made it, and after any error the log is read:

    our id is there                 the commit is done
    others' versions are there      the race is lost: `LostRace`, look at a fresh snapshot
    nothing newer, look after look  the commit was refused: `CommitFailed`, with the cause

A lost race is tried again, after a pause that grows and is partly random, so that those who race
drift apart. Each race that is lost was won by somebody else, so the table always moves on.
"""

from __future__ import annotations

import json
import logging
import os
import random
import re
import socket
import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any, TypeVar

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyarrow import fs

from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.errors import CommitFailed, Contended, DamagedWarehouse
from tidemark.warehouse.os_errors import as_system_refused, unreadable_file_error

T = TypeVar("T")
Write = Callable[[dict[str, str]], object]  # commits, with the signature that it is given

_LOG = logging.getLogger("tidemark.commits")
_ID, _WRITER, _HOST, _PROCESS = (f"tidemark.{name}" for name in ("commit", "writer", "host", "process"))
_SECRET = re.compile(r"(?<=://)[^/\s@]*@|\?[^\s'\")]*")  # of an address: who may, and the signed question
_NAMED = 5  # writers that an error names


@dataclass(frozen=True, slots=True)
class Patience:
    """How often a race is run and how long is waited between: seconds, the pauses' sum included.

    A pause is `first` seconds, then twice as long each time up to `longest`; up to half of it is left
    out at random. `looks` are the pauses between the looks at a log that shows no commit of anybody's.
    """

    tries: int = 20
    seconds: float = 60.0
    first: float = 0.01
    longest: float = 5.0
    looks: tuple[float, ...] = (0.1, 0.4, 1.5)
    pause: Callable[[float], None] = time.sleep
    draw: Callable[[], float] = random.random

    def pauses(self) -> Iterator[float]:
        """The pauses between the tries: one fewer than tries, and no more than `seconds` together."""
        left = self.seconds
        for number in range(self.tries - 1):
            pause = min(self.longest, self.first * 2.0**number) * (1 - self.draw() / 2)
            if pause > left:
                return
            left -= pause
            yield pause


PATIENCE = Patience()  # of every commit


@dataclass(frozen=True, slots=True)
class Commit:
    """A version of a table, as its log tells of it: by whom, what and when; None: not told."""

    version: int
    id: str | None = None
    writer: str | None = None
    host: str | None = None
    process: str | None = None
    operation: str | None = None
    at_ms: int | None = None

    @property
    def by(self) -> str:
        """Who made it, and what it did."""
        who = f"{self.writer or 'another program'}"
        if self.host is not None:
            who += f", process {self.process} on {self.host}"
        return f"{who} ({self.operation or 'no operation told'})"


class LostRace(Exception):
    """Others committed first: plan again on a fresh snapshot. `winners` are their commits, if known."""

    def __init__(self, message: str, winners: tuple[Commit, ...] = ()) -> None:
        super().__init__(message)
        self.winners = winners


def commit_metadata() -> dict[str, str]:
    """What a commit carries in its `commitInfo`: an id of its own, and who makes it."""
    return {
        _ID: uuid.uuid4().hex,
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
    """Has `write` commit with a signature on top of the table's version; returns once that is certainly done.

    `added` are the paths of new files: by them the commit is known where its log entry was removed.
    Raises `LostRace` where others were first, and `CommitFailed` where nobody was.
    """
    planned, told = table.version(), commit_metadata()
    try:
        write(told)
    except Exception as error:  # of any kind: the log tells
        log = _Log(table)
        if not log.has(planned, told[_ID], added, error):
            if as_system_refused(f"the commit to {log.place}", error):
                raise  # the call that this is a part of tells it, see refusals.py
            raise CommitFailed(
                f"the commit to {log.place} was refused: {first_line(error)}. Its log has nothing newer than "
                f"version {planned}: nothing was changed. Mend what is named (a permission, a property or a "
                "feature of the table) and run the same again."
            ) from error
        _LOG.warning("%s: a commit raised %s, and is done all the same", log.place, type(error).__name__)


def _look(ask: Callable[[], bool]) -> bool:
    """Asks until it is so, or the looks are used up: what a store was told may show late."""
    pauses = iter(PATIENCE.looks)
    while True:
        pause = next(pauses, None)
        try:
            found = ask()
        except (OSError, DeltaError, DamagedWarehouse):
            if pause is None:
                raise
            found = False
        if found or pause is None:
            return found
        PATIENCE.pause(pause)


def create_and_confirm(make: Write, here: Callable[[], bool], name: str) -> None:
    """Has `make` create a table with a signature; returns once there is one, whoever made it."""
    try:
        make(commit_metadata())
    except Exception as error:  # of any kind, as above
        there = False
        with suppress(OSError, DeltaError):  # where one cannot look, either
            there = _look(here)
        if not there:
            if as_system_refused(f"the creation of the table {name}", error):
                raise
            raise CommitFailed(
                f"the table {name} could not be created: {first_line(error)}. Nothing was changed. "
                "Remove the cause and run the same again."
            ) from error


class _Log:
    """The log of a table, read entry by entry."""

    def __init__(self, table: DeltaTable) -> None:
        self._options = table._storage_options  # noqa: SLF001  a table does not tell otherwise where it lies
        self._uri = table.table_uri
        self._files = Store.from_uri(self._uri, self._options).filesystem()
        self.place = without_secrets(self._uri.rstrip("/"))

    def has(self, planned: int, own: str, added: Collection[str], error: Exception) -> bool:
        """Whether the commit is in the log; `LostRace` where only others' are, False where nobody's is."""
        try:
            return _look(lambda: self._has(planned, own, added, error))
        except (OSError, DeltaError) as unread:
            raise CommitFailed(
                f"whether the commit to {self.place} is done is not known: it raised {first_line(error)}, "
                f"and the log cannot be read: {first_line(unread)}. Run the same again: what is done is not "
                "done twice."
            ) from error

    def _has(self, planned: int, own: str, added: Collection[str], error: Exception) -> bool:
        found: list[Commit] = []
        for one in self._since(planned + 1):
            if one.id == own:
                return True
            found.append(one)
        if not found:
            table = DeltaTable(self._uri, storage_options=self._options)
            if table.version() <= planned:
                return False
            # Newer than what is missing: a checkpoint took the place of entries, and they were removed.
            between = range(planned + 1, table.version() + 1)
            found = [told for at in between if (told := self._entry(at)) is not None]
            if any(one.id == own for one in found) or _all_in(added, table.file_uris()):
                return True
        raise LostRace(first_line(error), tuple(found)) from error

    def _since(self, first: int) -> Iterator[Commit]:
        while (found := self._entry(first)) is not None:
            yield found
            first += 1

    def _entry(self, at: int) -> Commit | None:
        path = f"_delta_log/{at:020d}.json"
        if self._files.get_file_info(path).type == fs.FileType.NotFound:
            return None
        with self._files.open_input_stream(path) as stream:
            text = stream.read()
        try:
            actions = [json.loads(line) for line in text.splitlines() if line.strip()]
            info: dict[str, Any] = next((one["commitInfo"] for one in actions if "commitInfo" in one), {})
            return _told(at, dict(info or {}))
        except (ValueError, TypeError) as error:
            raise unreadable_file_error(f"{self.place}/{path}", error) from error


def _told(at: int, info: dict[str, Any]) -> Commit:
    def text(*names: str) -> str | None:
        return next((str(info[name]) for name in names if info.get(name) is not None), None)

    when = info.get("timestamp")
    return Commit(
        at,
        text(_ID),
        text(_WRITER, "engineInfo"),
        text(_HOST),
        text(_PROCESS),
        text("operation"),
        when if isinstance(when, int) else None,
    )


def _all_in(added: Collection[str], files: Collection[str]) -> bool:
    names = {uri.rsplit("/", 1)[-1] for uri in files}
    return bool(added) and all(path.rsplit("/", 1)[-1] in names for path in added)


def retry_lost_races(name: str, attempt: Callable[[], T]) -> T:
    """Calls `attempt` until it does not lose its race; `Contended` once the patience has run out.

    The attempt looks at a fresh snapshot each time. `name` is what it commits to.
    """
    began, pauses = time.monotonic(), PATIENCE.pauses()
    winners: list[Commit] = []
    tries = 0
    while True:
        tries += 1
        try:
            return attempt()
        except LostRace as race:
            winners += race.winners
            pause = next(pauses, None)
            if pause is None:
                seconds = time.monotonic() - began
                raise Contended(_contended(name, tries, seconds, winners, race)) from race
            won = race.winners[-1].by if race.winners else "others"
            _LOG.warning("%s: try %d lost the race to %s; again in %.2f s", name, tries, won, pause)
            PATIENCE.pause(pause)


def _contended(name: str, tries: int, seconds: float, winners: list[Commit], race: LostRace) -> str:
    newest = {one.by: one for one in winners}
    counts = Counter(one.by for one in winners).most_common(_NAMED)
    by = "; ".join(f"{who}: {count} commits, the last {_when(newest[who])}" for who, count in counts)
    return (
        f"{tries} tries in {seconds:.0f} s to commit to {name} lost the race to others: {by or 'not known'}. "
        f"The last was told: {race}. Nothing was lost, and nothing was done twice: run the same again when "
        "they are done, or let fewer write at once."
    )


def _when(commit: Commit) -> str:
    if commit.at_ms is None:
        return f"version {commit.version}"
    at = datetime.fromtimestamp(commit.at_ms / 1000, UTC).isoformat(" ", "seconds")
    return f"version {commit.version} at {at}"


def first_line(error: Exception) -> str:
    """The first line of an error's text, without what may be secret in an address."""
    lines = str(error).splitlines()
    return without_secrets(lines[0]) if lines else type(error).__name__


def without_secrets(text: str) -> str:
    """The text without the users, passwords and queries of its addresses."""
    return _SECRET.sub("", text)
