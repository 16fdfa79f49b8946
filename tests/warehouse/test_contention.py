"""Contention: who loses a race looks again and commits, and no race is run for ever.

No test sleeps: the pause is a knob, and what is to happen meanwhile happens in it.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import subprocess
import sys
from collections import deque
from pathlib import Path

import pytest
from deltalake import Field
from deltalake.schema import PrimitiveType
from hypothesis import given
from hypothesis import strategies as st

from tests.warehouse.at_once import let_go
from tests.warehouse.committing import (
    COMMITS,
    MARKS,
    RUNS,
    Broken,
    Write,
    a_rival,
    add_step,
    new_run,
)
from tidemark.warehouse.delta import data_files, tables
from tidemark.warehouse.delta.changes import NewColumns
from tidemark.warehouse.delta.commits import LOST, commit_change
from tidemark.warehouse.delta.log_files import commit_name
from tidemark.warehouse.delta.log_versions import LogOfTable, newest_versions
from tidemark.warehouse.delta.lost_race_counter import LostRaces
from tidemark.warehouse.delta.races import Race
from tidemark.warehouse.delta.retries import Patience
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import LEDGER, STEPS
from tidemark.warehouse.errors import Contended
from tidemark.warehouse.ledger import ledger_table
from tidemark.warehouse.runs import run_tables
from tidemark.warehouse.runs.levels import Run

_OF_STEPS = ("a plan", "columns", "steps in one file", "a plan of a repair", "plans that are left")
TABLES = {**dict.fromkeys(_OF_STEPS, STEPS), "a batch": LEDGER, "marks": MARKS}


@pytest.mark.parametrize("what", [what for what in COMMITS if what != "columns"])
def test_who_loses_a_race_looks_again_and_commits(
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    what: str,
    waits: list[float],
    caplog: pytest.LogCaptureFixture,
) -> None:
    before, commit, returned = COMMITS[what]
    before(store)
    name, rivals = TABLES.get(what, RUNS), 3

    def act(true: Write) -> None:
        nonlocal rivals
        if rivals:
            rivals -= 1
            a_rival(store, name)
        true()

    with monkeypatch.context() as patch, caplog.at_level(logging.INFO, "tidemark"):
        Broken(patch).commits(act)
        assert commit(store) == returned
    lost = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(lost) == len(waits) == 3
    assert {record.name for record in lost} == {"tidemark.commits"}
    assert all(f"{name}: try" in record.getMessage() for record in lost)
    assert all("process 7 on elsewhere" in record.getMessage() for record in lost)
    log = LogOfTable(store, name)
    assert [noted for version in log.versions if (noted := log.commit(version).lost)] == [3]


def test_lost_races_are_counted_once_and_the_number_never_falls(store: Store, broken: Broken) -> None:
    def lose(name: str, races: int) -> None:
        def act(true: Write) -> None:
            nonlocal races
            if races:
                races -= 1
                a_rival(store, name)
            true()

        broken.commits(act)
        race = Race(store, name)
        deque(iter(lambda: race.commit([]), True))
        race.look_again()
        assert race.commit([])  # it notes nothing of the races of the one before
        broken.patch.undo()

    def newest() -> dict[str, int]:
        return newest_versions(store, dict.fromkeys((LEDGER, STEPS, RUNS)))

    lose(LEDGER, 2)
    races = LostRaces(store)
    assert races.look(newest()) == 0
    lose(LEDGER, 2)
    lose(STEPS, 1)
    assert [races.look(newest()) for _ in range(2)] == [3, 3]
    lose(RUNS, 0)
    assert races.look({name: version - 1 for name, version in newest().items()}) == 3
    for text in ("-1", "1e9", "9" * 10, "\u0664", "x"):
        notes = {LOST: text}
        assert tables.commit(tables.open_table(store, LEDGER), [], notes=notes) is None
    lose(LEDGER, 4)
    log = Path(store.table(LEDGER)) / "_delta_log"
    newer = newest()
    (log / commit_name(newer[LEDGER] - 1)).write_text("damaged")  # of the one that lost
    (log / commit_name(newer[LEDGER])).unlink()
    assert races.look(newer) == 3
    assert LostRaces(store).look(newest()) == 0


def test_columns_that_lose_their_race_say_so(store: Store) -> None:
    table = tables.open_table(store, STEPS)
    a_rival(store, STEPS)
    lost = commit_change(table, NewColumns([Field("more", PrimitiveType("long"))]))
    assert lost is not None
    assert [(one.version, one.host, one.operation) for one in lost.winners] == [
        (1, "elsewhere", "SET TBLPROPERTIES")
    ]


def test_a_race_that_is_always_lost_ends_and_says_who_won(
    store: Store, broken: Broken, waits: list[float]
) -> None:
    def act(true: Write) -> None:
        broken.patch.undo()
        add = new_run(store, Run(0, 0, 0))
        table = tables.open_table(store, RUNS)
        tables.commit(
            table,
            [data_files.remove_action(file) for file in data_files.list_files(table)]
            or run_tables.add_actions(add),
        )
        broken.commits(act)
        true()

    broken.commits(act)
    race = Race(store, RUNS)
    with pytest.raises(Contended) as raised:
        deque(iter(lambda: race.commit([]), True))
    broken.patch.undo()
    said = str(raised.value)
    assert "20 tries" in said
    assert f"process {os.getpid()} on {socket.gethostname()} (WRITE): 20 commits, the last version 20" in said
    assert "run the same again" in said
    assert len(waits) == 19
    assert sum(waits) <= 60
    assert waits[-1] > 50 * waits[0]
    assert add_step(store) is True, "when they are done, the same is done"


def test_the_winners_of_foreign_programs_are_named_by_what_their_log_tells(store: Store) -> None:
    log = Path(store.table(LEDGER)) / "_delta_log"
    table = tables.open_table(store, LEDGER)
    info = {"timestamp": 1_790_000_000_000, "operation": "OPTIMIZE", "engineInfo": "Apache-Spark/4.2.0"}
    (log / f"{1:020d}.json").write_text(json.dumps({"commitInfo": info}) + "\n")
    (log / f"{2:020d}.json").write_text(json.dumps({"txn": {"appId": "a", "version": 1}}) + "\n")
    lost = tables.commit(table, [])
    assert lost is not None
    assert [one.description for one in lost.winners] == [
        "Apache-Spark/4.2.0 (OPTIMIZE)",
        "another program (operation unknown)",
    ]


_ROOT = Path(__file__).resolve().parents[2]
_BATCHES = 6
_WRITER = """
import sys
from collections import deque
from tests.warehouse.committing import add_batch
from tidemark.warehouse.errors import Contended
from tidemark.warehouse.delta.store import Store
store, me = Store.from_uri(sys.argv[1]), sys.argv[2]
print("ready", flush=True)
sys.stdin.readline()
for batch in range(6):
    for source in (me, "all"):
        try:
            print(source, batch, add_batch(store, source, batch))
        except Contended:
            print(source, batch, "Contended")
"""


def test_processes_that_contend_lose_nothing_and_do_nothing_twice(store: Store) -> None:
    """Each brings its own batches, and those that all of them bring."""
    running = [
        subprocess.Popen(
            [sys.executable, "-c", _WRITER, store.uri, f"p{number}"],
            cwd=_ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(3)
    ]
    let_go(running)
    said = [line.split() for one in running for line in one.communicate()[0].splitlines()]
    assert [one.returncode for one in running] == [0, 0, 0]
    assert len(said) == 3 * 2 * _BATCHES
    done = sorted((source, int(batch)) for source, batch, became in said if became == "True")
    assert len(set(done)) == len(done), "of those who bring the same batch one has brought it"
    held = ledger_table.ranges_by_file(store, tables.open_table(store, LEDGER))
    assert sorted((one.source, one.first) for found in held.values() for one in found) == done
    refused = {(source, int(batch)) for source, batch, became in said if became == "Contended"}
    assert {(f"p{n}", b) for n in range(3) for b in range(_BATCHES)} <= {*done, *refused}


@given(
    tries=st.integers(1, 40),
    seconds=st.floats(0, 100),
    first=st.floats(0.001, 5),
    longest=st.floats(0.01, 10),
    drawn=st.lists(st.floats(0, 1, exclude_max=True), min_size=40, max_size=40),
)
def test_pauses_grow_by_chance_and_end(
    tries: int, seconds: float, first: float, longest: float, drawn: list[float]
) -> None:
    chance = iter(drawn)
    pauses = list(Patience(tries, seconds, first, longest, jitter=lambda: next(chance)).pauses())
    assert len(pauses) < tries
    assert sum(pauses) <= seconds + 1e-9
    for number, (pause, share) in enumerate(zip(pauses, drawn, strict=False)):
        assert pause == min(longest, first * 2.0**number) * (1 - share / 2)


def test_the_patience_of_a_commit_is_20_tries_and_a_minute() -> None:
    slowest = list(Patience(jitter=lambda: 0.0).pauses())
    assert len(slowest) == 19
    assert 30 < sum(slowest) <= 60
