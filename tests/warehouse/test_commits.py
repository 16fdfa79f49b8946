"""Commits: done once, lost to others, or refused, whatever error they raise.

No test sleeps: the pause is a knob, and what is to happen meanwhile happens in it.
"""

from __future__ import annotations

import json
import os
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Transaction

from tests.soak import HAS_ALL
from tests.warehouse.committing import (
    COMMITS,
    ERRORS,
    MARKS,
    RUNS,
    VALUES,
    Broken,
    Write,
    a_rival,
    add_batch,
    add_step,
    kinds,
    layout,
    merge_steps,
    new_run,
    raising,
    shape,
    state,
)
from tidemark.warehouse.delta import commits, data_files, retries, tables
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import LEDGER, STEPS
from tidemark.warehouse.errors import CommitFailed, Contended, DamagedWarehouse, without_secrets
from tidemark.warehouse.events import steps
from tidemark.warehouse.ledger import ledger_rows
from tidemark.warehouse.os_errors import is_store_failure
from tidemark.warehouse.runs import run_tables
from tidemark.warehouse.runs.levels import Run

# Each commit with two errors, each error with three commits; in a soak each with each.
EACH = [
    (what, error)
    for i, what in enumerate(COMMITS)
    for j, error in enumerate(ERRORS)
    if HAS_ALL or (i + j) % 3 == 0
]


@pytest.mark.slow
@pytest.mark.parametrize(("what", "error"), EACH, ids=kinds)
def test_a_commit_whose_answer_was_lost_is_done_once(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, error: Exception
) -> None:
    before, commit, returned = COMMITS[what]
    before(store)
    other = Store.from_uri(tmp_path / "w2")
    run_tables.create_tables(other, VALUES)
    for name, schema in ((STEPS, steps.SCHEMA), (LEDGER, ledger_rows.SCHEMA)):
        tables.create(other, name, schema)
    before(other)
    assert commit(other) == returned
    with monkeypatch.context() as patch:
        Broken(patch).commits(raising(error, done=True))
        assert commit(store) == returned
    assert shape(store) == shape(other)


def tries_after(error: Exception) -> int:
    """A commit is made again only if a store did not answer."""
    return retries.PATIENCE.store_tries if is_store_failure(error) else 1


def told_of(error: Exception) -> str:
    """What a request that was sent to a store did cannot be known: it may still arrive."""
    unknown = r"may still arrive\. Run the same again: nothing is done twice"
    return unknown if is_store_failure(error) else r"nothing was changed.*run the same again"


@pytest.mark.slow
@pytest.mark.parametrize(("what", "error"), EACH, ids=kinds)
def test_a_commit_that_nobody_made_fails_and_changes_nothing(
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    waits: list[float],
    what: str,
    error: Exception,
) -> None:
    before, commit, returned = COMMITS[what]
    before(store)
    was = state(store)
    with monkeypatch.context() as patch:
        broken = Broken(patch)
        broken.commits(raising(error, done=False))
        with pytest.raises(CommitFailed, match=told_of(error)) as raised:
            commit(store)
    assert str(error) in str(raised.value)
    assert raised.value.__cause__ is error
    tries = tries_after(error)
    assert broken.calls == tries
    looks = list(retries.PATIENCE.log_read_pauses)
    assert waits[: len(looks)] == looks, "it looks more than once, and not for long"
    assert len(waits) == len(looks) * tries + tries - 1
    assert state(store) == was
    assert commit(store) == returned


@pytest.mark.parametrize("what", COMMITS)
def test_a_commit_that_shows_late_is_found(store: Store, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """The store takes what was put while the log is looked at for the second time."""
    before, commit, returned = COMMITS[what]
    before(store)
    late: list[Write] = []
    waits: list[float] = []

    def pause(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 2:
            late.pop()()

    def act(true: Write) -> None:
        late.append(true)
        raise TimeoutError("no answer in 30 s")

    with monkeypatch.context() as patch:
        patch.setattr(retries, "PATIENCE", replace(retries.PATIENCE, pause=pause))
        Broken(patch).commits(act)
        assert commit(store) == returned
    assert len(waits) == 2


def test_an_append_only_table_refuses_what_removes_at_once(store: Store, waits: list[float]) -> None:
    for step in range(3):
        add_step(store, step)
    table = tables.open_table(store, RUNS)
    table.alter.set_table_properties({"delta.appendOnly": "true"})
    was = state(store)
    with pytest.raises(CommitFailed, match="append-only"):
        merge_steps(store)
    assert waits == list(retries.PATIENCE.log_read_pauses)
    assert state(store) == was
    assert add_step(store, 3) is True
    tables.open_table(store, RUNS).alter.set_table_properties({"delta.appendOnly": "false"})
    assert merge_steps(store) is True, "what was refused is done once its cause is mended"


def test_a_feature_that_cannot_be_written_is_refused_at_once(store: Store, waits: list[float]) -> None:
    first = Path(store.table(LEDGER)) / "_delta_log" / f"{0:020d}.json"
    feature = '"minWriterVersion":7,"writerFeatures":["notKnown"]'
    first.write_text(first.read_text().replace('"minWriterVersion":2', feature))
    with pytest.raises(CommitFailed, match="notKnown"):
        add_batch(store)
    assert waits == list(retries.PATIENCE.log_read_pauses)
    assert data_files.list_files(tables.open_table(store, LEDGER)) == []


def test_a_table_whose_log_is_gone_is_refused(store: Store) -> None:
    table = tables.open_table(store, LEDGER)
    log = Path(store.table(LEDGER)) / "_delta_log"
    log.rename(log.with_name("elsewhere"))
    with pytest.raises(CommitFailed, match=r"the log cannot be read.*nothing is done twice"):
        tables.commit(table, [])


@pytest.mark.parametrize("blind", [False, True])
@pytest.mark.parametrize("mine", [False, True])
def test_a_commit_whose_log_entry_was_cleaned_is_known_by_its_files(
    store: Store, broken: Broken, *, mine: bool, blind: bool
) -> None:
    """A checkpoint took the place of the log's entries before the answer was lost."""
    table = tables.open_table(store, MARKS)
    action = data_files.write_file(store, MARKS, marks_rows(), "run=L00-0000000000-0000000000/a.parquet")

    def act(true: Write) -> None:
        if mine:
            true()
        a_rival(store, MARKS)
        DeltaTable(store.table(MARKS)).create_checkpoint()
        for entry in (Path(store.table(MARKS)) / "_delta_log").glob("*.json"):
            entry.unlink()
        raise TimeoutError("no answer in 30 s")

    broken.commits(act)
    lost = tables.commit(table, [action], blind=blind)
    assert (lost is None) == mine
    held = [file.path for file in data_files.list_files(tables.open_table(store, MARKS))]
    assert held == [action.path] * mine


def marks_rows() -> pa.Table:
    return VALUES.marks_schema.empty_table()


@pytest.mark.parametrize("text", ['{"commitInfo":{"timest', "3", '{"commitInfo":7}', "\xff"])
def test_a_log_entry_that_cannot_be_read_is_named(store: Store, waits: list[float], text: str) -> None:
    table = tables.open_table(store, LEDGER)
    (Path(store.table(LEDGER)) / "_delta_log" / f"{1:020d}.json").write_text(text, encoding="latin-1")
    with pytest.raises(DamagedWarehouse, match=r"0001\.json.*`tidemark repair`"):
        tables.commit(table, [])
    assert waits == list(retries.PATIENCE.log_read_pauses)


def test_a_log_entry_that_is_being_written_is_looked_at_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tables.open_table(store, LEDGER)
    entry = Path(store.table(LEDGER)) / "_delta_log" / f"{1:020d}.json"
    whole = json.dumps({"commitInfo": {"tidemark.host": "elsewhere", "tidemark.process": "7"}})
    entry.write_text(whole[:20])

    def completes(_: float) -> None:
        entry.write_text(whole)

    finish = replace(retries.PATIENCE, pause=completes)
    monkeypatch.setattr(retries, "PATIENCE", finish)
    lost = tables.commit(table, [])
    assert lost is not None
    assert lost.winners[0].host == "elsewhere"


def test_a_commit_that_delta_rs_put_on_a_later_version_is_found(store: Store, broken: Broken) -> None:
    """A blind commit goes on top of what others committed meanwhile, and its answer is lost."""
    new = new_run(store, Run(0, 0, 0))

    def act(true: Write) -> None:
        broken.patch.undo()
        for _ in range(3):
            run_tables.append_marks(store, VALUES, new_run(store, Run(0, 0, 0)))
        true()
        run_tables.append_marks(store, VALUES, new_run(store, Run(0, 0, 0)))
        raise TimeoutError("no answer in 30 s")

    broken.commits(act)
    run_tables.append_marks(store, VALUES, new)
    held = [file.path for file in data_files.list_files(tables.open_table(store, MARKS))]
    assert sum(new.attempt in path for path in held) == 1
    assert tables.open_table(store, MARKS).version() == 5
    assert broken.calls == 1


@pytest.mark.parametrize("error", ERRORS, ids=kinds)
def test_a_table_whose_creation_raised_is_there_or_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: list[float], error: Exception
) -> None:
    true = DeltaTable.create

    def lost(*args: Any, **options: Any) -> None:
        true(*args, **options)
        raise error

    def never(*_: Any, **__: Any) -> None:
        raise error

    store = Store.from_uri(tmp_path)
    monkeypatch.setattr(DeltaTable, "create", never)
    refused = "may still arrive" if "S3" in str(error) else r"could not be created.*Nothing was changed"
    with pytest.raises(CommitFailed, match=refused):
        tables.create(store, STEPS, steps.SCHEMA)
    tries = tries_after(error)
    assert len(waits) == len(retries.PATIENCE.log_read_pauses) * tries + tries - 1
    monkeypatch.setattr(DeltaTable, "create", lost)
    tables.create(store, STEPS, steps.SCHEMA)
    assert tables.open_table(store, STEPS).version() == 0


def test_every_commit_says_who_made_it(store: Store) -> None:
    for before, commit, _ in COMMITS.values():
        before(store)
        commit(store)
    told = [one for name in (RUNS, MARKS, STEPS, LEDGER) for one in tables.open_table(store, name).history()]
    assert len(told) > 20
    assert len({one["tidemark.commit"] for one in told}) == len(told)
    assert {one["tidemark.host"] for one in told} == {socket.gethostname()}
    assert {one["tidemark.process"] for one in told} == {str(os.getpid())}
    assert all(one["tidemark.writer"].startswith("tidemark") for one in told)


def test_the_newest_transaction_is_that_of_the_version_that_the_table_has(store: Store) -> None:
    tables.create(store, STEPS, steps.SCHEMA)
    mine, other = tables.open_table(store, STEPS), tables.open_table(store, STEPS)
    assert [tables.newest_transaction(mine, name) for name in "ab"] == [-1, -1]
    tables.commit(mine, [], transactions=[Transaction("a", 5)])
    mine.update_incremental()
    assert [tables.newest_transaction(mine, name) for name in "ab"] == [5, -1]
    tables.commit(mine, [], transactions=[Transaction("b", 6)])
    mine.update_incremental()
    assert [tables.newest_transaction(mine, name) for name in "ab"] == [5, 6]
    assert [tables.newest_transaction(other, name) for name in "ab"] == [-1, -1]


def test_an_address_in_an_error_or_a_log_has_no_secrets() -> None:
    told = "cannot reach https://user:word@host/w/events?sig=abc&se=1: 403"
    assert without_secrets(told) == "cannot reach https://host/w/events 403"
    assert commits.first_line(OSError(told + "\nmore")) == "cannot reach https://host/w/events 403"
    assert commits.first_line(OSError()) == "OSError"


@pytest.mark.parametrize("error", ERRORS, ids=kinds)
def test_the_commit_before_is_looked_for_once_where_the_store_answered(
    store: Store, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """If it cannot be looked for, the error is that of the commit."""
    asked: list[int] = []

    def unread(_: Any, version: int) -> bool:
        asked.append(version)
        raise OSError("no answer")

    monkeypatch.setattr(commits._Log, "has", every_error_is_a_refusal)
    monkeypatch.setattr(commits._Log, "has_entry", unread)
    Broken(monkeypatch).commits(raising(error, done=False))
    with pytest.raises(CommitFailed, match=told_of(error)):
        add_step(store)
    assert len(asked) == (0 if is_store_failure(error) else 1)


# Variants that are broken on purpose: the properties above fail on each.


def every_error_is_a_lost_race(log: Any, *_: Any) -> commits.LostRace:
    return commits.LostRace(log.place)


def every_error_is_a_refusal(*_: Any) -> bool:
    return False


def test_a_commit_that_takes_every_error_for_a_lost_race_is_caught(
    store: Store, monkeypatch: pytest.MonkeyPatch, waits: list[float]
) -> None:
    monkeypatch.setattr(commits._Log, "has", every_error_is_a_lost_race)
    with monkeypatch.context() as patch:
        Broken(patch).commits(raising(OSError("no permission"), done=False))
        with pytest.raises(Contended):  # and not CommitFailed at once
            add_step(store)
    assert len(waits) == 19
    with monkeypatch.context() as patch:
        Broken(patch).commits(raising(OSError("the answer was lost"), done=True))
        assert add_step(store) is False  # it was its own


def test_a_commit_that_takes_every_error_for_a_refusal_is_caught(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commits._Log, "has", every_error_is_a_refusal)
    with monkeypatch.context() as patch:
        Broken(patch).commits(raising(OSError("the answer was lost"), done=True))
        with pytest.raises(CommitFailed):  # and it is done
            add_step(store)
    assert layout(store).last_step == 0
