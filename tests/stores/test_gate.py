"""The S3 server of the tests: what the gate does to requests, and how rounds are counted."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import CommitProperties
from hypothesis import given
from hypothesis import strategies as st

from tests.stores.conftest import Place
from tests.stores.gate import WRITES, Fault, Request, rounds

SCHEMA = pa.schema([("x", pa.int64())])
WRITERS = 6


def new_table(place: Place, **options: str) -> DeltaTable:
    return DeltaTable.create(place.uri, SCHEMA, storage_options={**place.options, **options})


def opened(place: Place) -> DeltaTable:
    return DeltaTable(place.uri, storage_options=place.options)


def commit(table: DeltaTable) -> None:
    """An empty commit, as exactly the next version."""
    table.create_write_transaction(
        [],
        mode="append",
        schema=table.schema(),
        partition_by=[],
        commit_properties=CommitProperties(max_commit_retries=0),
    )


def race(place: Place) -> int:
    """The number of writers whose commit of the same version succeeded, all at once."""
    tables = [opened(place) for _ in range(WRITERS)]
    together, done = threading.Barrier(WRITERS), Counter[str]()

    def write(table: DeltaTable) -> None:
        together.wait()
        try:
            commit(table)
        except CommitFailedError:
            done["lost"] += 1
        else:
            done["won"] += 1

    threads = [threading.Thread(target=write, args=(table,)) for table in tables]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert done.total() == WRITERS
    return done["won"]


def test_of_puts_with_a_condition_exactly_one_succeeds(place: Place) -> None:
    new_table(place)
    place.server.set(latency=0.02)  # all writers see the old version before the first put
    for version in range(1, 6):
        assert race(place) == 1
        assert opened(place).version() == version


def test_a_store_that_ignores_the_condition_takes_several(place: Place) -> None:
    """The gate's mode for such stores; the test above fails in it."""
    new_table(place)
    place.server.set(latency=0.02, ignores_conditions=True)
    assert race(place) > 1


@pytest.mark.parametrize("kind", ["500", "503", "reset", "timeout", "stalled"])
def test_a_fault_happens_as_often_as_it_was_asked_for_and_is_counted(place: Place, kind: Any) -> None:
    new_table(place)
    place.server.set(Fault(kind, "GET", "_delta_log", times=2, seconds=0.2))
    DeltaTable(place.uri, storage_options=place.options)
    faults = [request.fault for request in place.server.requests()]
    assert faults.count(kind) == 2
    assert set(faults) == {kind, ""}


def test_a_lost_answer_is_of_a_put_that_was_done(place: Place) -> None:
    table = new_table(place)
    place.server.set(Fault("lost", "PUT", "0001.json", times=1))
    with pytest.raises((DeltaError, OSError)):
        commit(table)
    assert opened(place).version() == 1


def test_a_reset_put_was_not_done(place: Place) -> None:
    table = new_table(place)
    place.server.set(Fault("reset", "PUT", "0001.json"))
    with pytest.raises((DeltaError, OSError)):
        commit(table)
    place.server.set()
    assert opened(place).version() == 0


def test_a_user_can_be_refused_what_writes(place: Place) -> None:
    place.server.set(Fault("403", WRITES, user="READER"))
    table = new_table(place)
    commit(table)
    reader = {**place.options, "AWS_ACCESS_KEY_ID": "READER"}
    seen = DeltaTable(place.uri, storage_options=reader)
    assert seen.version() == 1
    with pytest.raises((DeltaError, OSError), match="AccessDenied"):
        commit(seen)
    assert opened(place).version() == 1


def test_the_latency_is_added_to_each_request(place: Place) -> None:
    new_table(place)
    place.server.set(latency=0.05)
    opened(place)
    requests = place.server.requests()
    assert all(request.ended - request.began >= 0.05 for request in requests)
    assert 1 <= rounds(requests) <= len(requests)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 10)), max_size=12))
def test_rounds_are_the_longest_chain_of_requests_that_wait(spans: list[tuple[int, int]]) -> None:
    """The oracle: for each request, the longest chain that ends with it."""
    requests = [Request("GET", "/", float(began), float(began + length + 1)) for began, length in spans]
    longest: list[int] = []
    requests.sort(key=lambda request: request.began)
    for i, request in enumerate(requests):
        before = (longest[j] for j in range(i) if requests[j].ended <= request.began)
        longest.append(1 + max(before, default=0))
    assert rounds(requests) == max(longest, default=0)
