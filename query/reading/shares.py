"""Work over many numbers in shares that threads do at the same time; numpy lets threads run while it works.

One pool serves the whole process. A share that asks for shares itself does their work alone, so that no
thread of the pool waits for another one.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextvars import Context, copy_context
from itertools import pairwise
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from tidemark.warehouse.per_process import per_process

T = TypeVar("T")
Item = TypeVar("Item")
Share = tuple[int, int]  # the first of some items, and the end, exclusive

CORES = os.cpu_count() or 1
SHARED = 2**20  # numbers that are shared among threads; fewer are done sooner by one thread

_inside = threading.local()


def shares_of(sizes: NDArray[np.int64], weight: int = 1) -> list[Share]:
    """Items of these sizes in shares of about equal size, one for each core; in one if that is not worth it.

    The items of a share follow each other. weight: how many times the usual work a number costs.
    """
    ends = np.cumsum(sizes)
    if CORES == 1 or not len(ends) or weight * ends[-1] < SHARED or _is_share():
        return [(0, len(sizes))]
    cuts = ends.searchsorted(ends[-1] * np.arange(1, CORES) / CORES).tolist()
    return [share for share in pairwise([0, *cuts, len(sizes)]) if share[0] < share[1]]


def equal_shares(items: int) -> list[Share]:
    """So many items of size 1 in shares, as `shares_of`."""
    cores = CORES if items >= SHARED and not _is_share() else 1
    return list(pairwise(items * number // cores for number in range(cores + 1)))


def each_share(work: Callable[[int, int], T], shares: Sequence[Share]) -> list[T]:
    """The results of the work for each share, in order. Errors are raised once no share runs.

    Reads in it count for the question of this thread (spending.py).
    """
    if len(shares) == 1:
        return [work(*shares[0])]

    def one(share: Share, context: Context) -> T:
        _inside.a_share = True
        try:
            return context.run(work, *share)
        finally:
            _inside.a_share = False

    futures = [_threads().submit(one, share, copy_context()) for share in shares]
    try:
        return [future.result() for future in futures]
    finally:  # an error that stops one share stops the others, too, while the caller waits here
        wait([future for future in futures if not future.cancel()])


def worked_ahead(work: Callable[[Item], T], items: Iterable[Item], most: int) -> Iterator[T]:
    """What the work gives for each item, in their order, while threads are at most so many items ahead.

    For work that is long without Python's lock, such as to decode: the caller goes through what it gives
    meanwhile. Errors are raised in their turn, once no thread works. Reads count as in `each_share`.
    """
    if CORES == 1 or _is_share():
        yield from map(work, items)
        return
    waiting: deque[Future[T]] = deque()
    try:
        for item in items:
            waiting.append(_threads().submit(copy_context().run, work, item))
            if len(waiting) > most:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        wait([future for future in waiting if not future.cancel()])


def _is_share() -> bool:
    return getattr(_inside, "a_share", False)


@per_process
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(CORES, thread_name_prefix="tidemark-shares")
