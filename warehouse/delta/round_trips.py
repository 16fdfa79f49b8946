"""Round trips to an object store: requests that do not depend on each other are sent at the same time.

A store answers a request after tens of milliseconds, however few bytes it asks for, and takes many requests
at once. So the time of a reader is proportional to the number of its *rounds*: sets of requests that are sent
at the same time. What is needed next is collected, and requested in one round (`in_rounds`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from tidemark.warehouse.per_process import per_process

if TYPE_CHECKING:
    from tidemark.warehouse.delta.far_files import FarFiles

A = TypeVar("A")
T = TypeVar("T")

REQUESTS = 64  # at once
STORES = 16  # asked at once for one question


@dataclass(frozen=True, slots=True)
class ByteRange:
    """Bytes start..stop (stop exclusive) of a file; without `stop` all to its end."""

    path: str
    start: int = 0
    stop: int | None = None

    @property
    def size(self) -> int:
        """The number of bytes; 0 if that is not known."""
        return 0 if self.stop is None else self.stop - self.start


# A reading that needs several rounds: it yields the ranges that it needs next, and gets their bytes, None for
# a file that does not exist.
Rounds = Generator[Sequence[ByteRange], Sequence[bytes | None], T]


def in_rounds(files: FarFiles, readings: Iterable[Rounds[T]]) -> list[T]:
    """The results of readings that run side by side: what all of them need next is one round."""
    running = dict(enumerate(readings))
    answers: dict[int, Sequence[bytes | None] | None] = dict.fromkeys(running)
    results: dict[int, T] = {}
    try:
        while running:
            wanted: dict[int, Sequence[ByteRange]] = {}
            for number, reading in list(running.items()):
                try:
                    wanted[number] = reading.send(answers[number])  # type: ignore[arg-type]  # None starts it
                except StopIteration as finished:
                    results[number] = finished.value
                    del running[number]
            contents = iter(files.get([one for ranges in wanted.values() for one in ranges]))
            answers = {number: [next(contents) for _ in ranges] for number, ranges in wanted.items()}
    finally:  # if a round fails, readings release what they hold now, not when the error is forgotten
        for reading in running.values():
            reading.close()
    return [results[number] for number in sorted(results)]


def fetching(files: FarFiles, ranges: Iterable[ByteRange]) -> Rounds[None]:
    """A reading that keeps the ranges in memory: of one round, or none if they are there."""
    if missing := files.missing(ranges):
        files.keep(missing, (yield missing))


def at_once(work: Callable[[A], T], items: Sequence[A]) -> list[T]:
    """The results of `work` for each item, in order; all wait for the store at the same time.

    Raises the error of the first item that failed, once all are done. `work` must not call this function.
    """
    return _in_threads(_requests, work, items)


def stores_at_once(work: Callable[[A], T], items: Sequence[A]) -> list[T]:
    """As `at_once`, for work with one store each, which may call `at_once` but not this function."""
    return _in_threads(_stores, work, items)


def _in_threads(
    pool: Callable[[], ThreadPoolExecutor], work: Callable[[A], T], items: Sequence[A]
) -> list[T]:
    if len(items) == 1:
        return [work(items[0])]
    running = [pool().submit(work, item) for item in items]
    wait(running)
    return [one.result() for one in running]


@per_process
def _requests() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(REQUESTS, thread_name_prefix="tidemark-requests")


@per_process
def _stores() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(STORES, thread_name_prefix="tidemark-stores")
