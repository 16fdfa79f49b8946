"""A warehouse in the store has each row once, whatever happens to requests and whoever writes beside."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

import pytest

from tests.stores.conftest import Place
from tests.stores.gate import Fault
from tests.stores.rows import HOW, check, rows
from tidemark import query, stream, warehouse
from tidemark.warehouse.errors import CommitFailed, StoreUnavailable

T = TypeVar("T")

# One request of twenty is broken.
FAULTS = [
    Fault("500", share=0.01),
    Fault("503", share=0.02),
    Fault("reset", share=0.01),
    Fault("lost", share=0.01),
    Fault("timeout", share=0.002, seconds=2.0),
]


def insist(work: Callable[[], T]) -> T:
    """Runs the same again while the store fails, as the errors say."""
    for _ in range(9):
        with suppress(StoreUnavailable, CommitFailed):
            return work()
    return work()


def options(place: Place) -> dict[str, str]:
    return {**place.options, "timeout": "1s"}


def load(place: Place, number: int) -> str:
    def work() -> str:
        batch = f"night-{number}"
        return warehouse.load(None, place.uri, rows(number), batch, storage_options=options(place)).outcome

    return insist(work)


def append(place: Place, source: str, batch: int, seed: int) -> bool:
    def work() -> bool:
        given = rows(seed)
        return stream.append(
            None, place.uri, given, source=source, batch=batch, storage_options=options(place)
        )

    return insist(work)


@pytest.mark.parametrize("faults", [[], pytest.param(FAULTS, marks=pytest.mark.slow)], ids=["calm", "faults"])
def test_a_whole_life(place: Place, faults: list[Fault]) -> None:
    """Create, load until runs merge, stream, load that, maintain, verify; a reader sees all of it."""
    how: dict[str, Any] = {"storage_options": options(place)}
    place.server.set(*faults)
    insist(lambda: warehouse.create(None, place.uri, ["ms"], **HOW, **how))
    for number in range(4):
        assert load(place, number) == "loaded" or faults
    assert load(place, 1) == "known"
    assert append(place, "web", 0, 100) or faults
    assert not append(place, "web", 0, 100)
    wh = insist(lambda: query.open(place.uri, options(place)))
    history = [rows(number) for number in range(4)]
    insist(lambda: check(wh, [*history, rows(100)]))
    assert insist(lambda: warehouse.load(None, place.uri, **how)).outcome == "loaded" or faults
    insist(lambda: check(wh, [*history, rows(100)]))
    assert append(place, "web", 1, 101) or faults
    insist(lambda: warehouse.maintain(None, place.uri, grace="0 s", **how))
    insist(lambda: check(wh, [*history, rows(100), rows(101)]))
    assert insist(lambda: warehouse.verify(place.uri, storage_options=options(place))).ok
    broken = sum(bool(request.fault) for request in place.server.requests())
    assert (broken > 10) == bool(faults)


@pytest.mark.slow
def test_two_loaders_beside_two_streams_and_a_reader(place: Place) -> None:
    """All at once, with faults: no batch is lost or counted twice, and no look saw half of one."""
    warehouse.create(None, place.uri, ["ms"], **HOW, storage_options=place.options)
    append(place, "before", 0, 300)
    place.server.set(*FAULTS)
    with ThreadPoolExecutor(4) as threads:
        nights: list[Future[Any]] = [
            threads.submit(lambda at: [load(place, at + i) for i in range(3)], at) for at in (0, 10)
        ]
        streams: list[Future[Any]] = [
            threads.submit(lambda name, at: [append(place, name, i, at + i) for i in range(4)], name, at)
            for name, at in (("a", 100), ("b", 200))
        ]
        wh = insist(lambda: query.open(place.uri, options(place)))
        while not all(work.done() for work in (*nights, *streams)):
            assert insist(lambda: wh.quantile(0.5)).N % rows(0).num_rows == 0
        for done in (*nights, *streams):
            done.result()
    seeds = [*range(3), *range(10, 13), *range(100, 104), *range(200, 204), 300]
    insist(lambda: check(wh, map(rows, seeds)))
    assert insist(lambda: warehouse.verify(place.uri, storage_options=options(place))).ok
