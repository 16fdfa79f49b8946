"""The log of a table in an object store, copied to a local folder, where delta-rs reads it and commits to it.

delta-rs needs about twelve rounds of requests to open a table with a checkpoint. A copy needs two or three:

    1. _last_checkpoint, which names the version of the newest checkpoint
    2. the checkpoint, the commit of its version, and the next few commits, whether they exist or not
    3. the commits after these, if all of them exist

An open copy asks for the next commit only: one request. Once a minute, and after a new commit was found, it
also asks for the newest entry that it has, in case `repair` began the log anew or another warehouse is at the
address. The process remembers the logs that it opened and committed to (log_files.py). So a further copy asks
for the newest known commit, which must still be there, and for the next one: one round.

Nothing is listed, so it must be certain that no commit is missing because the log was cleaned. Cleaning
removes only commits that are older than the log's retention. So a copy is trusted if its newest commit is
younger than the retention by TRUST_MARGIN_US. Otherwise, and for checkpoints of several parts, delta-rs opens
the table itself.

A commit of delta-rs takes five rounds, one after the other. So delta-rs commits to the copy, and the new
entry is put into the store's log on the condition that the log has no entry of that version: one request
(object_client.py). If the condition refuses it, the race is lost, and the copy has an entry that the log does
not have: it must not be used any more.
"""

from __future__ import annotations

import logging
import math
import time
import weakref
from collections.abc import Mapping
from pathlib import Path
from shutil import rmtree

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from tidemark.warehouse.columns.ticks import DAY_US
from tidemark.warehouse.delta import table_open
from tidemark.warehouse.delta.changes import Change
from tidemark.warehouse.delta.grace import commits_between_checkpoints, retention_us
from tidemark.warehouse.delta.log_files import (
    LAST_CHECKPOINT,
    CachedLog,
    actions_of,
    checkpoint_name,
    checkpoint_version,
    commit_name,
    read_cached_log,
)
from tidemark.warehouse.delta.log_nesting import check_nesting
from tidemark.warehouse.delta.round_trips import ByteRange, Rounds, in_rounds
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.errors import TidemarkError
from tidemark.warehouse.temporary_folders import make_folder

_LOG = logging.getLogger("tidemark.commits")
AHEAD = 12
MORE_AHEAD = 32  # after a round in which all of them existed
FOLLOWED = 40  # commits after a known one; if more came, the newest checkpoint is read instead
EXPECTED_COMMITS = 64
MOST_KNOWN = 64  # files of a log that a process remembers
TRUST_MARGIN_US = DAY_US
PROVED_SECONDS = 60.0  # `repair` may begin a log anew: an open copy compares its newest entry this often
CHECKPOINTS_BETWEEN_CLEANINGS = 5
_COPY = "tidemark_copy"  # the attribute of a table with the copy that it is of


class LogReplica:
    """A table in an object store at the version of the last `catch_up`; `table` is None until it exists.

    `ahead` is how many commits after the checkpoint are asked for at once, whether they exist or not.

    `checked` is when the last `catch_up` began, in seconds of time.monotonic(). The local copy has only the
    log, not the data files: it serves for metadata and commits. It must not be shared between threads
    without a lock.
    """

    def __init__(self, store: Store, name: str, ahead: int = AHEAD) -> None:
        self.store, self._files, self.name = store, store.far_files, name
        # Where there are more commits after the checkpoint, they take another round.
        self._ahead = min(commits_between_checkpoints(name, is_far=True) + 1, ahead)
        self._folder: Path | None = None  # of the copy; None if delta-rs opened the table itself
        self._is_listed = False  # whether the copy has what a list of the log named
        self.checked = float("-inf")
        self._proved = time.monotonic()  # when its newest entry was known to be that of the log
        self._hint: bytes | None = None
        self._expected = 0  # the requests for the commits before this version are prepared
        self.table: DeltaTable | None = None
        self._given_back: DeltaTable | None = None

    def catch_up(self) -> Rounds[bool]:
        """Moves to the newest version; returns whether the version changed."""
        before, began, is_another = self.version, time.monotonic(), False
        if self.table is not None and _is_recent(self.checked):
            is_another = yield from self._follow(self.table)
            self.checked = began
        else:
            yield from self._open()
            self.checked = began
            if self.table is not None:
                self._remember(self.table)
        return is_another or self.version != before

    @property
    def version(self) -> int:
        """The version of the table; -1 if it does not exist."""
        return -1 if self.table is None else self.table.version()

    def prepare(self) -> Rounds[None]:
        """Reads ahead the files that `catch_up` asks for first. If they are outdated, it asks for more."""
        if self._known() is None:
            (self._hint,) = yield [self._log(LAST_CHECKPOINT)]

    def _known(self) -> CachedLog | None:
        known = self._files.logs.peek(self.name)
        return known if known is not None and _is_recent(known.checked) else None

    def _remember(self, table: DeltaTable) -> None:
        """Lets the process know the log; it must have the entries that the copy and its table have."""
        logs = self._files.logs
        if self._folder is not None and not self._is_listed and _kept_us(table) > TRUST_MARGIN_US:
            known = read_cached_log(self._folder / "_delta_log", table.version(), self.checked)
            if len(known.files) > MOST_KNOWN:  # the log has a newer checkpoint by now
                logs.drop(self.name)
            else:
                logs.put(self.name, known, sum(map(len, known.files.values())))

    def _open(self) -> Rounds[None]:
        known, hint, self._hint = self._known(), self._hint, None
        if known is None or not (yield from self._open_known(known)):
            self._given_back = None
            yield from self._open_anew(hint)

    def _open_anew(self, hint: bytes | None = None) -> Rounds[None]:
        if hint is None:
            (hint,) = yield [self._log(LAST_CHECKPOINT)]
        checkpoint = checkpoint_version(hint)
        if checkpoint is None:
            self._open_directly()
            return
        first, names = max(checkpoint, 0), [commit_name(max(checkpoint, 0) + i) for i in range(self._ahead)]
        if checkpoint >= 0:
            names.append(checkpoint_name(checkpoint))
        contents = dict(zip(names, (yield [self._log(name) for name in names]), strict=True))
        if contents[names[0]] is None or (contents[names[-1]] is None and checkpoint >= 0):
            self._open_directly()  # there is no table, or its log was cleaned, or changed meanwhile
            return
        folder = self._make_folder()
        if checkpoint >= 0:
            self._write(folder, {LAST_CHECKPOINT: hint, names[-1]: contents.pop(names[-1])})
        newest = self._write(folder, contents)
        if len(newest) == self._ahead:
            newest += (yield from self._commits_from(folder, first + self._ahead))[0]
        self.table = DeltaTable(folder)
        if not _is_trusted(self.table, newest[-1]):
            self._open_directly()

    def _open_known(self, known: CachedLog) -> Rounds[bool]:
        """Opens the known log and newer commits; False for FOLLOWED or more, or if the log was replaced."""
        newest, new = yield [self._log(commit_name(known.version + i)) for i in range(2)]
        if not _continues(known, newest):
            return False
        table, self._given_back = self._given_back, None
        if self._folder is None or table is None or not self._is_at(known, table):
            folder, table = self._make_folder(), None
            self._write(folder, known.files)
        else:
            folder = self._folder
        if self._write(folder, {commit_name(known.version + 1): new}):
            more, _ = yield from self._commits_from(folder, known.version + 2, FOLLOWED)
            if len(more) >= FOLLOWED:
                return False
            if table is not None:
                table.update_incremental()
        self.table = table or DeltaTable(folder)
        return True

    def _make_folder(self) -> Path:
        folder, self._is_listed = Path(make_folder("log-")), False
        self._folder = folder
        weakref.finalize(self, rmtree, folder, ignore_errors=True)
        (folder / "_delta_log").mkdir()
        return folder

    def hand_over(self) -> DeltaTable | None:
        """The table, to commit to it: the table keeps the copy, and the copy keeps the table no longer.

        If they referred to each other, both, and the folder on disk, would stay until the garbage collector
        runs.
        """
        table, self.table = self.table, None
        if table is not None and self._folder is not None:
            vars(table)[_COPY] = self
        return table

    def give_back(self, table: DeltaTable) -> None:
        """Takes back a table that was handed over: the next copy of the log goes on with it.

        If its commits are not in the log, or are not the newest that the process knows, the table is dropped.
        """
        known = self._known()
        if known is not None and self._is_at(known, table):
            del vars(table)[_COPY]
            self._given_back = table
            self._files.idle[self.name] = self

    def _is_at(self, known: CachedLog, table: DeltaTable) -> bool:
        """Whether the table is at the known version, and has the same commit there."""
        if self._folder is None or table.version() != known.version:
            return False
        return _continues(known, (self._folder / "_delta_log" / commit_name(known.version)).read_bytes())

    def _follow(self, table: DeltaTable) -> Rounds[bool]:
        """Copies the commits after the table's version; returns whether the log is another one by now."""
        version = table.version() + 1
        if version >= self._expected:
            self._expected = version + EXPECTED_COMMITS
            expected = map(commit_name, range(version, self._expected))
            self._files.expect(self._log(name).path for name in expected)
        names = [commit_name(version)]
        if time.monotonic() - self._proved > PROVED_SECONDS and self._has_newest(version - 1):
            names.append(commit_name(version - 1))
        content, *newest = yield [self._log(name) for name in names]
        if newest and self._folder is not None:
            self._proved = time.monotonic()
            if newest != [(self._folder / "_delta_log" / names[1]).read_bytes()]:
                self._files.logs.drop(self.name)
                yield from self._open_anew()
                return True
        if content is None and _kept_us(table) > TRUST_MARGIN_US:
            return False
        if self._folder is None:
            table_open.update(self.store, self.name, table)
            return False
        self._write(self._folder, {commit_name(version): content})
        known = commit_name(version - 1) if self._has_newest(version - 1) else None
        more, is_same = yield from self._commits_from(self._folder, version + 1, FOLLOWED, after=known)
        if not is_same:
            self._files.logs.drop(self.name)
        if not is_same or len(more) >= FOLLOWED:
            yield from self._open_anew()
        else:
            table.update_incremental()
        return not is_same

    def _has_newest(self, version: int) -> bool:
        """Whether the copy has the entry of its version: not if the log was cleaned up to a checkpoint."""
        return self._folder is not None and (self._folder / "_delta_log" / commit_name(version)).exists()

    def _commits_from(
        self, folder: Path, version: int, most: float = math.inf, *, after: str | None = None
    ) -> Rounds[tuple[list[bytes], bool]]:
        """Copies all commits from this version on, until there are `most`; returns their contents.

        And whether the log has the copy's entry `after`, which is compared in the first round: another log at
        the address may have come as far as this one.
        """
        found: list[bytes] = []
        ahead, compared = min(self._ahead, AHEAD), [] if after is None else [after]
        while len(found) < most:
            names = [commit_name(version + len(found) + i) for i in range(ahead)]
            contents = yield [self._log(name) for name in (*names, *compared)]
            if any((folder / "_delta_log" / name).read_bytes() != contents[-1] for name in compared):
                return [], False
            new, compared = self._write(folder, dict(zip(names, contents, strict=False))), []
            found += new
            if len(new) < ahead:
                break
            ahead = min(4 * ahead, MORE_AHEAD)
        return found, True

    def _write(self, folder: Path, contents: Mapping[str, bytes | None]) -> list[bytes]:
        """Writes log files up to the first that does not exist; returns their contents."""
        written = []
        for name, content in contents.items():
            if content is None:
                break
            check_nesting(self.name, name, content)
            (folder / "_delta_log" / name).write_bytes(content)
            written.append(content)
        return written

    def _open_directly(self) -> None:
        exists = table_open.exists(self.store, self.name)
        self.table = table_open.open_directly(self.store, self.name) if exists else None
        self._folder = None if self.table is None else table_open.copied_log(self.table)
        self._is_listed = self._folder is not None

    def _log(self, name: str) -> ByteRange:
        return ByteRange(f"{self.name}/_delta_log/{name}")

    def commit(self, table: DeltaTable, planned: int, change: Change, metadata: Mapping[str, str]) -> None:
        """Commits a change on top of the version `planned` of the copy, and puts the entry into the log.

        `table` was handed over, and has the new version then. After an error the same call puts the same
        entry again. FileExistsError if the log has an entry of that version already: of another writer, or
        this one, put by an earlier call whose answer was lost.
        """
        self._files.check_place(writing=True)
        objects = self._files.objects
        if objects is None or self._folder is None:
            change.apply(table_open.open_directly(self.store, self.name, planned), metadata, cleans=True)
            in_rounds(self._files, [self._follow(table)])
            return
        if table.version() == planned:
            change.apply(table, metadata, cleans=False)  # a copy has nothing to clean
            table.update_incremental()
        path = self._log(commit_name(planned + 1)).path
        objects.put_new(path, (self._folder / "_delta_log" / commit_name(planned + 1)).read_bytes())
        self._remember(table)
        self._put_checkpoint(self._folder / "_delta_log", planned + 1)

    def _put_checkpoint(self, log: Path, version: int) -> None:
        """Puts the checkpoint of a version, if delta-rs made one; nothing depends on it."""
        name, objects = checkpoint_name(version), self._files.objects
        if objects is None or not (log / name).exists():
            return
        try:
            for one in (name, LAST_CHECKPOINT):  # in this order: the second names the first
                objects.put(self._log(one).path, (log / one).read_bytes())
            number = (version + 1) // commits_between_checkpoints(self.name, is_far=True)
            if number % CHECKPOINTS_BETWEEN_CLEANINGS == 0:
                table_open.open_directly(self.store, self.name).cleanup_metadata()
        except (OSError, DeltaError, TidemarkError) as error:
            _LOG.warning("%s: no checkpoint of version %d: %s", self.store.table(self.name), version, error)


def replica_of(table: DeltaTable) -> LogReplica | None:
    """The copy that the table was opened from; None if delta-rs opened it in its place."""
    copy: LogReplica | None = vars(table).get(_COPY)
    return copy


def _is_trusted(table: DeltaTable, newest: bytes) -> bool:
    """Whether no commit after the newest one that was found can have been cleaned."""
    committed_ms = _time_of(newest)
    return committed_ms is not None and time.time() * 1e6 - committed_ms * 1e3 < _kept_us(table)


def _kept_us(table: DeltaTable) -> int:
    """How long a table's commits certainly stay in its log, in microseconds."""
    return retention_us(table.metadata().configuration) - TRUST_MARGIN_US


def _is_recent(checked: float) -> bool:
    """Whether no commit that was made since then can have been cleaned."""
    return (time.monotonic() - checked) * 1e6 < TRUST_MARGIN_US


def _continues(known: CachedLog, newest: bytes | None) -> bool:
    """Whether a log is the known one: it has this entry where the known log has its newest."""
    return newest == known.files[commit_name(known.version)]


def _time_of(commit: bytes) -> int | None:
    """When a commit was made, in milliseconds since 1970; None if the commit does not say."""
    try:
        times = [one["commitInfo"]["timestamp"] for one in actions_of(commit) if "commitInfo" in one]
        return int(times[0]) if times else None
    except (ValueError, TypeError, KeyError):
        return None
