"""A commit whose answer is lost, or that the store did not take, is found out by looking at the log."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pyarrow import fs

from tests.stores.conftest import Place
from tests.stores.gate import Fault
from tests.stores.rows import HOW, check, rows
from tidemark import query, stream, warehouse
from tidemark.warehouse.delta import commits, retries
from tidemark.warehouse.delta.retries import delete_folder
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.errors import CommitFailed, StoreUnavailable

COMMIT = r"_delta_log/\d{20}\.json"


@pytest.mark.parametrize("kind", ["lost", pytest.param("reset", marks=pytest.mark.slow)])
def test_no_commit_gets_an_answer_at_once_and_all_rows_are_there_once(place: Place, kind: str) -> None:
    """'lost': every commit is in the log, and none was confirmed. 'reset': a third never came in."""
    how: dict[str, Any] = {"storage_options": place.options}
    warehouse.create(None, place.uri, ["ms"], **HOW, **how)
    fault = Fault("lost", "PUT", COMMIT) if kind == "lost" else Fault("reset", "PUT", COMMIT, share=0.33)
    place.server.set(fault)
    for number in range(3):
        assert warehouse.load(None, place.uri, rows(number), f"night-{number}", **how).outcome == "loaded"
    assert stream.append(None, place.uri, rows(3), source="web", batch=0, **how)
    puts = [request for request in place.server.requests() if request.fault]
    assert len(puts) > 3
    place.server.set()
    check(query.open(place.uri, place.options), map(rows, range(4)))
    assert warehouse.verify(place.uri, **how).ok


def test_without_a_look_at_the_log_the_load_fails(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken variant of the test above."""
    how: dict[str, Any] = {"storage_options": place.options}
    warehouse.create(None, place.uri, ["ms"], **HOW, **how)
    monkeypatch.setattr(commits._Log, "has", lambda *_: False)
    place.server.set(Fault("lost", "PUT", COMMIT))
    with pytest.raises(CommitFailed, match="may still arrive"):
        warehouse.load(None, place.uri, rows(0), "night-0", **how)


@pytest.mark.parametrize("kind", ["lost", pytest.param("reset", marks=pytest.mark.slow)])
def test_a_delete_that_gets_no_answer_is_made_again(
    place: Place, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of old files, and of a folder. Without a second try maintenance is stopped."""
    how: dict[str, Any] = {"storage_options": place.options}
    warehouse.create(None, place.uri, ["ms"], **HOW, **how)
    for number in range(3):
        warehouse.load(None, place.uri, rows(number), f"night-{number}", **how)
    place.server.set(Fault(kind, "POST", r"\?delete", times=3))
    with monkeypatch.context() as patch:
        patch.setattr(retries, "PATIENCE", replace(retries.PATIENCE, store_tries=1))
        with pytest.raises(StoreUnavailable):
            warehouse.maintain(None, place.uri, grace="0 s", **how)
    assert sum(warehouse.maintain(None, place.uri, grace="0 s", **how).swept.values()) > 0
    assert sum(bool(request.fault) for request in place.server.requests()) == 3
    check(query.open(place.uri, place.options), map(rows, range(3)))
    assert warehouse.verify(place.uri, **how).ok
    files = Store.from_uri(place.uri, place.options).filesystem()
    place.server.set(Fault(kind, "POST", r"\?delete", times=1))
    delete_folder(files, "runs/ms")
    assert not files.get_file_info(fs.FileSelector("runs/ms", recursive=True, allow_not_found=True))
    assert sum(bool(request.fault) for request in place.server.requests()) == 1


def test_a_store_that_never_takes_a_commit_is_an_error_that_says_what_happened(place: Place) -> None:
    how: dict[str, Any] = {"storage_options": place.options}
    warehouse.create(None, place.uri, ["ms"], **HOW, **how)
    place.server.set(Fault("reset", "PUT", COMMIT))
    with pytest.raises(CommitFailed, match=r"Generic S3.*Connection reset.*may still arrive. Run") as told:
        warehouse.load(None, place.uri, rows(0), "night-0", **how)
    assert "nothing was changed" not in str(told.value).lower()  # the broken variant: the text before
    place.server.set()
    assert warehouse.load(None, place.uri, rows(0), "night-0", **how).outcome == "loaded"


def test_a_store_that_refuses_the_credentials_is_not_a_damaged_warehouse(place: Place) -> None:
    how: dict[str, Any] = {"storage_options": place.options}
    warehouse.create(None, place.uri, ["ms"], **HOW, **how)
    warehouse.load(None, place.uri, rows(0), "night-0", **how)
    wh = query.open(place.uri, place.options)
    place.server.set(Fault("403", "GET", r"\.parquet"))
    with pytest.raises(StoreUnavailable, match=r"not allowed.*Give the credentials the right"):
        wh.quantile(0.5, mode="exact")
    place.server.set(Fault("403"))
    with pytest.raises(StoreUnavailable, match="opening was stopped by the object store: not allowed"):
        query.open(place.uri, place.options)
