"""Logs that a process remembers between its calls, and files that go up while it goes on."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
from deltalake import DeltaTable
from pyarrow import fs

from tests.stores.conftest import Place
from tests.stores.filled import Filled
from tests.stores.gate import Fault, rounds
from tests.stores.rows import HOW, check, rows
from tidemark import query, stream
from tidemark.warehouse.delta import log_replica, tables
from tidemark.warehouse.delta.changes import NewProperties
from tidemark.warehouse.delta.commits import commit_change
from tidemark.warehouse.delta.far_files import FarFiles
from tidemark.warehouse.delta.log_files import CachedLog
from tidemark.warehouse.delta.retries import delete_folder
from tidemark.warehouse.delta.round_trips import in_rounds
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import EVENTS, LEDGER, STEPS
from tidemark.warehouse.errors import StoreUnavailable

# A change that adds requests has to raise these, with a reason.
MOST_OF_A_LATER_BATCH = {"requests": 8, "rounds": 4}
LATENCY = 0.3  # requests that are sent at once begin before the first has ended


def files_of(place: Place) -> FarFiles:
    return Store.from_uri(place.uri, place.options).far_files


def known(place: Place, name: str) -> CachedLog:
    log = files_of(place).logs.peek(name)
    assert log is not None
    return log


def test_a_later_batch_waits_for_fewer_requests(place: Place) -> None:
    streamed = Filled(place, kappa=HOW["kappa"])
    streamed.append()
    streamed.append()
    place.server.set(latency=LATENCY)
    streamed.append()
    sent = place.server.requests()
    assert len(sent) <= MOST_OF_A_LATER_BATCH["requests"]
    assert rounds(sent) <= MOST_OF_A_LATER_BATCH["rounds"]
    place.server.set()
    streamed.check()


@pytest.mark.parametrize("is_broken", [False, True])
def test_a_warehouse_that_was_made_anew_gets_no_commit_on_an_old_version(
    place: Place, monkeypatch: pytest.MonkeyPatch, is_broken: bool
) -> None:
    """Without a look at the known commit the batch is taken for one that is there, and is lost."""
    old = Filled(place, kappa=HOW["kappa"])
    for _ in range(3):
        old.append()
    files = Store.from_uri(place.uri, place.options).filesystem()
    for folder in files.get_file_info(fs.FileSelector("")):
        delete_folder(files, folder.path)
    if is_broken:
        monkeypatch.setattr(log_replica, "_continues", lambda *_: True)
    new = Filled(place, kappa=HOW["kappa"])
    assert new.append() != is_broken
    if not is_broken:
        new.check()


def test_what_others_commit_between_two_batches_is_seen(place: Place) -> None:
    """A load that plans the batches, and a batch that another process has appended already."""
    streamed = Filled(place, kappa=HOW["kappa"])
    streamed.append()
    mine = {name: known(place, name) for name in (EVENTS, LEDGER)}
    streamed.append()  # as by another process
    streamed.move()
    streamed.append()
    for name, log in mine.items():
        files_of(place).logs.put(name, log)
    assert [streamed.append(batch) for batch in (1, 2)] == [False, False]
    assert streamed.append()
    streamed.check()


def test_a_table_that_was_given_back_goes_on(place: Place) -> None:
    """Also after commits of other processes; not if it is older than what this process has committed."""
    Filled(place)
    store = Store.from_uri(place.uri, place.options)

    def check_next(table: DeltaTable, value: str, *, is_same: bool = True) -> None:
        tables.give_back(table)
        taken = tables.open_table(store, STEPS)
        assert (taken is table) == is_same
        assert taken.metadata().configuration["tidemark.test"] == value

    mine, late = tables.open_tables(store, STEPS, STEPS)
    assert commit_change(mine, NewProperties({"tidemark.test": "mine"})) is None
    check_next(mine, "mine")
    elsewhere = DeltaTable(store.table(STEPS), storage_options=store.options)
    elsewhere.alter.set_table_properties({"tidemark.test": "elsewhere"}, raise_if_not_exists=False)
    check_next(mine, "elsewhere")
    check_next(late, "elsewhere", is_same=False)


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


@pytest.mark.parametrize("commits", [1, 2, 12, 13, 44, 60])
def test_a_log_that_moved_on(place: Place, commits: int) -> None:
    """Commit by commit while they are few; else from its newest checkpoint."""
    filled = Filled(place)
    store = Store.from_uri(place.uri, place.options)
    warm = log_replica.LogReplica(store, STEPS)
    in_rounds(store.far_files, [warm.catch_up()])
    before = known(place, STEPS)
    for number in range(commits):
        assert (
            commit_change(tables.open_table(store, STEPS), NewProperties({"tidemark.test": f"{number}"}))
            is None
        )
    store.far_files.logs.put(STEPS, before)
    place.server.set()
    in_rounds(store.far_files, [warm.catch_up()])
    opened = tables.open_table(store, STEPS)
    assert len(place.server.requests()) < 140
    for table in (opened, warm.table):
        assert table is not None
        assert table.version() == before.version + commits
        assert table.metadata().configuration["tidemark.test"] == f"{commits - 1}"
    assert commit_change(opened, NewProperties({"tidemark.test": "last"})) is None
    assert known(place, STEPS).version == before.version + commits + 1
    filled.load()
    filled.check()


def test_a_log_that_was_read_long_ago_is_read_anew(place: Place) -> None:
    """Commits that came since may have been cleaned."""
    filled = Filled(place, 3)
    log = known(place, STEPS)
    files_of(place).logs.put(STEPS, replace(log, checked=log.checked - 86_401))
    place.server.set()
    filled.load()
    assert any("steps/_delta_log/_last_checkpoint" in one.path for one in place.server.requests())
    filled.check()


@pytest.mark.parametrize("is_broken", [False, True])
def test_tables_that_are_done_leave_no_folders(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_broken: bool
) -> None:
    """Also while no cycles are collected: a table that is in one takes memory, and its folder space."""
    monkeypatch.setattr(log_replica, "make_folder", lambda prefix: mkdtemp(prefix=prefix, dir=tmp_path))
    if is_broken:
        monkeypatch.setattr(log_replica.LogReplica, "hand_over", in_a_cycle)
    gc.collect()
    gc.disable()
    try:
        filled = Filled(place, 2, 2)
        filled.move()
        assert bool(list(tmp_path.iterdir())) == is_broken
    finally:
        gc.enable()


def in_a_cycle(copy: log_replica.LogReplica) -> Any:
    """A broken `hand_over`: the copy goes on holding its table."""
    if copy.table is not None:
        vars(copy.table)[log_replica._COPY] = copy
    return copy.table


def test_what_is_remembered_is_bounded(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_replica, "MOST_KNOWN", 0)
    filled = Filled(place, 1, 1)
    assert files_of(place).logs.weight == 0
    filled.check()


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
    streamed.append(1)
    streamed.check()
