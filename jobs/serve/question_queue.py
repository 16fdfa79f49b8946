"""Answers questions in a bounded number of threads. A bounded number wait, and each has a time limit.

The time of a question begins when it comes, so it includes the waiting. A question ends sooner if its client
has gone. Between blocks, groups and windows the code that reads checks the time and the client; a running
scan is interrupted.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, TypeVar

from tidemark.query.warehouse import Warehouse
from tidemark.warehouse.errors import TidemarkError, TimeLimitReached

T = TypeVar("T")


class Busy(TidemarkError):
    """All places of the queue are taken."""


class Gone(Exception):
    """The client does not wait any more."""


class Deadline:
    """When a question must end, and whether its client has gone."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.end, self.gone = seconds, time.monotonic() + seconds, threading.Event()

    def limited(self, wh: Warehouse) -> Warehouse:
        """The warehouse, whose questions have the time that is left; TimeLimitReached if none is."""
        left = self.end - time.monotonic()
        if left <= 0:
            raise TimeLimitReached(
                f"the question waited {self.seconds:g} seconds for its turn. Ask later, or less at once."
            )
        return wh.with_time_limit(timedelta(seconds=left), self.gone.is_set)


class QuestionQueue:
    """A bounded number of threads, and of questions that wait for one.

    parallel: questions at the same time. waiting: questions that wait; one more is refused as Busy.
    seconds: the time of a question.
    """

    def __init__(self, parallel: int, waiting: int, seconds: float) -> None:
        self.seconds, self._places = seconds, parallel + waiting
        self._pool = ThreadPoolExecutor(parallel, thread_name_prefix="tidemark-serve")
        self._taken: set[Deadline] = set()

    @property
    def taken(self) -> int:
        """The questions that are being answered or wait."""
        return len(self._taken)

    async def answer(self, ask: Callable[[Deadline], T], leaves: Callable[[], Awaitable[Any]]) -> T:
        """The result of `ask`, which runs in a thread. leaves: returns once the client has gone.

        Busy if there is no place, Gone if the client left.
        """
        if self.taken >= self._places:
            raise Busy(f"{self._places:,} questions are being answered or wait. Ask again in a second.")
        deadline = Deadline(self.seconds)
        self._taken.add(deadline)
        try:
            running = self._pool.submit(ask, deadline)
        except BaseException:
            self._taken.discard(deadline)
            raise
        running.add_done_callback(lambda _: self._taken.discard(deadline))
        answer, left = asyncio.wrap_future(running), asyncio.ensure_future(leaves())
        # The exception is read, so asyncio does not warn if the answer comes after the client has gone.
        answer.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            await asyncio.wait({answer, left}, return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                raise Gone
            return answer.result()
        finally:
            deadline.gone.set()  # also if this task is cancelled because the server stops
            left.cancel()

    def close(self) -> None:
        """Ends all questions, and returns when they have ended."""
        for deadline in list(self._taken):
            deadline.gone.set()
        self._pool.shutdown(cancel_futures=True)
