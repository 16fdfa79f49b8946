"""Shares of work that threads do at the same time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextvars import copy_context
from threading import Barrier, Event
from typing import Any

import pytest

from tidemark.query.reading import shares, spending
from tidemark.query.reading.spending import Left, Limit


def check_that_all_are_stopped(patch: pytest.MonkeyPatch) -> None:
    """When the limit stops one share, the others are stopped by it before the error leaves."""
    has_begun, may_go_on, stopped = Event(), Event(), list[int]()
    limit = Limit(-math.inf)

    def waits(futures: Any) -> Any:
        may_go_on.set()
        return wait(futures)

    def work(first: int, _: int) -> None:
        if first:
            has_begun.set()
            may_go_on.wait()
        else:
            has_begun.wait()
        try:
            spending.check()
        except Left:
            stopped.append(first)
            raise

    with ThreadPoolExecutor(2) as pool, spending.spending() as spent:
        patch.setattr(shares, "_threads", lambda: pool)
        patch.setattr(shares, "wait", waits)
        spent.limits.append(limit)
        try:
            with pytest.raises(Left) as left:
                shares.each_share(work, [(0, 1), (1, 2)])
        finally:
            spent.limits.remove(limit)
            may_go_on.set()
    assert left.value.limit is limit
    assert stopped == [0, 1]


def test_what_stops_one_share_stops_all(monkeypatch: pytest.MonkeyPatch) -> None:
    check_that_all_are_stopped(monkeypatch)


def test_shares_that_go_on_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken variant waits for none of them."""

    def each_share(work: Any, some: Any) -> Any:
        contexts = [copy_context() for _ in some]
        return list(shares._threads().map(lambda share, context: context.run(work, *share), some, contexts))

    monkeypatch.setattr(shares, "each_share", each_share)
    with pytest.raises(AssertionError):
        check_that_all_are_stopped(monkeypatch)


def test_results_are_in_the_order_of_the_shares() -> None:
    assert shares.each_share(range, [(0, 2), (2, 5), (5, 6)]) == [range(2), range(2, 5), range(5, 6)]


def noted(taken: list[int]) -> Iterator[int]:
    """Some items; those that were taken are noted."""
    for item in range(9):
        taken.append(item)
        yield item


def check_worked_ahead(patch: pytest.MonkeyPatch, *, waits: bool = True) -> None:
    """Results are in order, threads are at most three items ahead, and errors leave once they have ended."""
    taken, given, ended = list[int](), list[int](), list[int]()
    both_begin, may_end = Barrier(2), Event()

    def wait_for(futures: Any) -> None:
        if waits:
            may_end.set()
            wait(futures)

    def work(item: int) -> int:
        if item in {6, 7}:
            both_begin.wait()
        if item == 6:
            raise EOFError
        if item == 7:
            may_end.wait()
            ended.append(item)
        return item * item

    def go_through() -> None:
        for found in shares.worked_ahead(work, noted(taken), 3):
            given.append(found)
            assert len(taken) - len(given) <= 3

    with ThreadPoolExecutor(2) as pool:
        patch.setattr(shares, "CORES", 2)
        patch.setattr(shares, "_threads", lambda: pool)
        patch.setattr(shares, "wait", wait_for)
        try:
            with pytest.raises(EOFError):
                go_through()
            known = list(ended)
        finally:
            may_end.set()
    assert given == [item * item for item in range(6)]
    assert known == [7]


def test_work_ahead_is_in_order_and_ends_with_its_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    check_worked_ahead(monkeypatch)


def test_work_ahead_alone_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shares, "CORES", 1)
    assert list(shares.worked_ahead(str, iter(range(9)), 3)) == [str(item) for item in range(9)]


def test_work_that_goes_on_after_an_error_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AssertionError):
        check_worked_ahead(monkeypatch, waits=False)
