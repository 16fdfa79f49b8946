"""What the question of a thread has read (for its plan), and how much longer its way may take.

Reads are counted through a context variable, so no function has a parameter for the plan. Reads without a
question, such as those of a check of all files, are not counted. DuckDB reads in threads of its own: its
threads that read our batches get the question of the thread that started the statement (duckdb_errors.py).

A way that takes too long is stopped at the next call of `check`: between the blocks of a look-up, between
windows, and while a scan waits for DuckDB.

A question with a time limit (`Reader.with_time_limit`) is stopped at the same places.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from threading import Lock
from typing import TypeVar

from tidemark.query.answers.plan import SCAN, Plan, Way
from tidemark.warehouse.errors import TimeLimitReached

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TimeLimit:
    """The limit of each question of a reader.

    seconds: how long it may take; None for no limit.
    cancelled: returns True once nobody waits for the answer any more; None if that cannot happen.
    end: of a question that has begun, when its time is over, on the monotonic clock.
    """

    seconds: float | None
    cancelled: Callable[[], bool] | None
    end: float = math.inf

    def begin(self) -> TimeLimit:
        """The limit of a question that begins now."""
        return self if self.seconds is None else replace(self, end=time.monotonic() + self.seconds)

    def check(self) -> None:
        """TimeLimitReached once the time is over, or nobody waits any more."""
        if self.cancelled is not None and self.cancelled():
            raise TimeLimitReached("the question was cancelled: nobody waits for its answer.")
        if time.monotonic() > self.end:
            raise TimeLimitReached(
                f"the question took longer than {round(self.seconds or 0, 1):g} seconds. Ask about a "
                "shorter window or fewer groups, in another mode, or with more time; `plan` of an answer "
                "says what is read."
            )


class Left(Exception):
    """A way is stopped because it took longer than `limit` allows."""

    def __init__(self, limit: Limit) -> None:
        super().__init__("a way was left")
        self.limit = limit


@dataclass(slots=True, eq=False)
class Limit:
    """The moment, in seconds as `Spending.seconds`, at which a way is stopped."""

    at: float


class Spending:
    """The reads of one question; `limits` are the limits of the ways that are being taken, outer ways first.

    way: the innermost way that is being taken.
    compared: whether files were compared with their digests, which is done once in a process.
    """

    __slots__ = ("_files", "_lock", "compared", "limits", "plan", "way")

    def __init__(self) -> None:
        self.plan, self.limits, self.compared = Plan(), list[Limit](), False
        self.way: Way | None = None
        self._files, self._lock = set[str](), Lock()

    def seconds(self) -> float:
        """The time now, of a clock that only goes forward."""
        return time.perf_counter()

    def add(self, file: str | None, blocks: int, rows: int, size: int) -> None:
        """See `read`."""
        plan = self.plan
        with self._lock:  # threads may share what a question reads
            if file is not None and file not in self._files:
                self._files.add(file)
                plan.files += 1
            plan.blocks += blocks
            plan.rows += rows
            plan.bytes += size

    def check(self) -> None:
        """See `check`."""
        if self.limits:
            now = self.seconds()
            for limit in self.limits:
                if now > limit.at:
                    raise Left(limit)


_current: ContextVar[Spending | None] = ContextVar("tidemark_spending", default=None)
_limit: ContextVar[TimeLimit | None] = ContextVar("tidemark_limit", default=None)


@contextmanager
def limited(limit: TimeLimit | None) -> Iterator[None]:
    """The limit begins, and inside questions of this thread check it often.

    None: a question inside another one is stopped only with that one.
    """
    if limit is None:
        yield
        return
    token = _limit.set(limit.begin())
    try:
        yield
    finally:
        _limit.reset(token)


def may_be_stopped() -> bool:
    """Whether the question of this thread, or the way that it takes, may be stopped."""
    return _limit.get() is not None or seconds_left() < math.inf


def seconds_left() -> float:
    """For how many seconds no way of the question of this thread is stopped; infinite if one way is left."""
    known = _current.get()
    if known is None or not known.limits:
        return math.inf
    return min(limit.at for limit in known.limits) - known.seconds()


@contextmanager
def spending() -> Iterator[Spending]:
    """The question of this thread, a new one unless a question is being answered already."""
    known = _current.get()
    if known is not None:
        yield known
        return
    new = Spending()
    token = _current.set(new)
    try:
        yield new
    finally:
        _current.reset(token)


def current() -> Spending | None:
    """The question of this thread."""
    return _current.get()


def current_plan() -> Plan | None:
    """The plan of the question of this thread."""
    known = _current.get()
    return None if known is None else known.plan


def read(file: str | None, *, blocks: int = 0, rows: int = 0, size: int = 0) -> None:
    """Counts reads: row groups of runs, rows, and bytes of columns."""
    known = _current.get()
    if known is not None:
        known.add(file, blocks, rows, size)


def compared_files() -> None:
    """Notes that files were compared with their digests."""
    known = _current.get()
    if known is not None:
        known.compared = True


def takes(way: Way) -> None:
    """Notes that a way is taken: the only one, or instead of the way around it."""
    known = _current.get()
    if known is not None:
        if known.limits:
            known.way = way
        else:
            known.plan.took(way)


def scans_keys() -> None:
    """Notes that all keys are scanned as a way of its own, not as a part of another way."""
    known = _current.get()
    if known is not None and not known.limits:
        known.plan.took(SCAN)


def checked(items: Iterable[T]) -> Iterator[T]:
    """The items; `check` is called before each of them."""
    for item in items:
        check()
        yield item


def check() -> None:
    """Stops the way if it took too long, and the question if it has to stop."""
    limit = _limit.get()
    if limit is not None:
        limit.check()
    known = _current.get()
    if known is not None:
        known.check()
