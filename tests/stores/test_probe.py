"""A warehouse is created only in a store that refuses the second of two conditional puts."""

from __future__ import annotations

from importlib import import_module

import pytest
from deltalake.exceptions import DeltaError
from pyarrow import fs

from tests.stores.conftest import Place
from tests.stores.gate import Fault
from tests.stores.rows import HOW
from tidemark import query, warehouse
from tidemark.warehouse.delta import probe
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.errors import InputError, NotAWarehouse, StoreUnavailable

SLOW = 0.02  # the threads of the probe are then at the same time, on any machine


def create(place: Place) -> None:
    warehouse.create(None, place.uri, ["ms"], **HOW, storage_options=place.options)


def names(place: Place) -> list[str]:
    root = Store.from_uri(place.uri, place.options).filesystem()
    return sorted(info.base_name for info in root.get_file_info(fs.FileSelector("", allow_not_found=True)))


def test_a_store_with_conditional_puts_is_taken_and_nothing_of_the_probe_stays(place: Place) -> None:
    create(place)
    assert query.open(place.uri, place.options).info()["live_rows"] == 0
    assert {"events", "ledger", "steps", "runs"} <= set(names(place))
    assert not [name for name in names(place) if name.startswith("_")]


def test_a_store_that_ignores_the_condition_is_refused_with_what_to_set(place: Place) -> None:
    place.server.set(latency=SLOW, ignores_conditions=True)
    with pytest.raises(InputError, match=r"ignores the.*If-None-Match.*AWS_S3_LOCKING_PROVIDER=dynamodb"):
        create(place)
    assert names(place) == []
    with pytest.raises(NotAWarehouse):
        query.open(place.uri, place.options)


def test_without_the_probe_it_would_be_taken(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken variant of the test above."""
    creating = import_module("tidemark.warehouse.create")
    monkeypatch.setattr(creating, "check_conditional_puts", lambda _: None)
    place.server.set(latency=SLOW, ignores_conditions=True)
    create(place)
    assert query.open(place.uri, place.options).info()["live_rows"] == 0


@pytest.mark.parametrize("kind", ["500", "503", "reset", "lost"])
def test_a_request_that_fails_does_not_decide(place: Place, kind: str) -> None:
    """Whatever happens to puts of the probe, a good store is not refused, and a bad one is not taken."""
    store = Store.from_uri(place.uri, place.options)
    fault = Fault(kind, "PUT", "_probe", times=2)  # type: ignore[arg-type]
    place.server.set(fault, latency=SLOW)
    probe.check_conditional_puts(store)
    place.server.set(fault, latency=SLOW, ignores_conditions=True)
    with pytest.raises(InputError, match="ignores the"):
        probe.check_conditional_puts(store)


def both_fail_once(monkeypatch: pytest.MonkeyPatch, second: str) -> None:
    """The table is there, but nobody was told so: the answer to the put was lost. Then one is refused."""
    outcomes = iter(
        [[DeltaError(second), DeltaError("timed out")], [DeltaError("Failed to commit transaction")]]
    )
    monkeypatch.setattr(probe, "_race", lambda _: next(outcomes))
    probe.check_conditional_puts(Store("s3://bucket/w"))


def test_a_table_whose_writer_had_no_answer_does_not_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    both_fail_once(monkeypatch, "Generic error: A Delta Lake table already exists at that location.")


def test_another_error_of_both_writers_is_raised_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DeltaError, match="no such bucket"):
        both_fail_once(monkeypatch, "no such bucket")


def test_credentials_that_may_not_write_are_told_apart(place: Place) -> None:
    place.server.set(Fault("403", "PUT"))
    with pytest.raises(StoreUnavailable, match="not allowed"):
        create(place)
    assert names(place) == []


def test_a_local_disk_is_not_probed(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "_race", lambda _: pytest.fail("probed"))
    probe.check_conditional_puts(Store.from_uri(str(tmp_path)))
