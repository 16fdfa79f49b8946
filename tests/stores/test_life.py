"""A warehouse in the store has each row once, whatever happens to requests; kills and races: tests/crash."""

from __future__ import annotations

from typing import Any

import pytest

from tests.stores.conftest import Place
from tests.stores.faults import FAULTS, TIMEOUT, insist
from tests.stores.gate import Fault
from tests.stores.rows import HOW, check, rows
from tidemark import query, stream, warehouse


def options(place: Place) -> dict[str, str]:
    return {**place.options, "timeout": TIMEOUT}


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


@pytest.mark.parametrize("faults", [(), pytest.param(FAULTS, marks=pytest.mark.slow)], ids=["calm", "faults"])
def test_a_whole_life(place: Place, faults: tuple[Fault, ...]) -> None:
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
