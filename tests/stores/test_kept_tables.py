"""Tables that a stream keeps open between its batches, and files that go up while it goes on."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from pyarrow import fs

from tests.stores.conftest import Place
from tests.stores.filled import Filled
from tests.stores.gate import Fault, rounds
from tests.stores.rows import HOW, check, rows
from tidemark import query, stream
from tidemark.warehouse.delta import kept_tables
from tidemark.warehouse.delta.deletes import delete_folder
from tidemark.warehouse.delta.remote_files import Rounds
from tidemark.warehouse.delta.store import EVENTS, LEDGER, Store
from tidemark.warehouse.errors import StoreUnavailable

# A change that adds requests has to raise these, with a reason.
MOST_OF_A_LATER_BATCH = {"requests": 8, "rounds": 4}
LATENCY = 0.05  # requests that are sent at once begin before the first has ended


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    kept_tables._kept().copies.clear()
    yield
    kept_tables._kept().copies.clear()


def kept_names() -> list[str]:
    return sorted(name for _, name in kept_tables._kept().copies)


def has_commit(*_: Any) -> Rounds[bool]:
    """As if the log always had it."""
    yield []
    return True


def test_a_later_batch_waits_for_fewer_requests(place: Place) -> None:
    streamed = Filled(place, kappa=HOW["kappa"])
    streamed.append()
    streamed.append()
    assert kept_names() == [EVENTS, LEDGER]
    place.server.set(latency=LATENCY)
    streamed.append()
    sent = place.server.requests()
    assert len(sent) <= MOST_OF_A_LATER_BATCH["requests"]
    assert rounds(sent) <= MOST_OF_A_LATER_BATCH["rounds"]
    streamed.check()


@pytest.mark.parametrize("is_broken", [False, True])
def test_a_warehouse_that_was_made_anew_gets_no_commit_on_an_old_version(
    place: Place, monkeypatch: pytest.MonkeyPatch, is_broken: bool
) -> None:
    """Without a look at the old commit the batch is taken for one that is there, and is lost."""
    old = Filled(place, kappa=HOW["kappa"])
    for _ in range(3):
        old.append()
    files = Store.from_uri(place.uri, place.options).filesystem()
    for folder in files.get_file_info(fs.FileSelector("")):
        delete_folder(files, folder.path)
    if is_broken:
        monkeypatch.setattr(kept_tables, "_has_commit", has_commit)
    new = Filled(place, kappa=HOW["kappa"])
    assert new.append() != is_broken
    if not is_broken:
        assert kept_names() == [EVENTS, LEDGER]
        new.check()


def test_what_others_commit_between_two_batches_is_seen(place: Place) -> None:
    """A load that plans the batches, and a batch that another process has appended already."""
    streamed = Filled(place, kappa=HOW["kappa"])
    streamed.append()
    mine = dict(kept_tables._kept().copies)
    kept_tables._kept().copies.clear()
    streamed.append()  # as by another process
    streamed.move()
    streamed.append()
    kept_tables._kept().copies.clear()
    kept_tables._kept().copies.update(mine)
    assert [streamed.append(batch) for batch in (1, 2)] == [False, False]
    assert streamed.append()
    streamed.check()


def test_streams_at_once_share_no_table(place: Place) -> None:
    streamed = Filled(place, kappa=HOW["kappa"])

    def append_all(source: int) -> None:
        for batch in range(4):
            brought = stream.append(
                None, place.uri, rows(4 * source + batch), source=f"{source}", batch=batch, **streamed.how
            )
            assert brought

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(append_all, range(3)))
    streamed.committed = list(map(rows, range(12)))
    streamed.check()


def test_the_bounds_of_what_is_kept(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    streamed = Filled(place, kappa=HOW["kappa"])
    monkeypatch.setattr(kept_tables, "KEPT", 1)
    streamed.append()
    assert kept_names() == [LEDGER]
    monkeypatch.setattr(kept_tables, "KEPT_SECONDS", 0.0)
    place.server.set()
    streamed.append()
    assert any("_last_checkpoint" in one.path and LEDGER in one.path for one in place.server.requests())
    streamed.check()


def test_ledger_rows_that_cannot_go_up_fail_the_batch_and_the_next_try_ends_it(place: Place) -> None:
    """The upload ends after `events` was committed; its error must not be lost, nor the batch."""
    streamed = Filled(place, kappa=HOW["kappa"])
    streamed.append()
    place.server.set(Fault("403", "PUT", rf"/{LEDGER}/.*\.parquet"))
    with pytest.raises(StoreUnavailable, match="not allowed"):
        streamed.append()
    place.server.set()
    wh = query.open(place.uri, place.options)
    check(wh, [rows(0)])
    assert kept_names() == []
    streamed.append(1)
    streamed.check()
