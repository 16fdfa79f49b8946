"""Commits: done once, lost to others, or refused, whatever error they raise; and no race is run for ever.

No test sleeps: the pause is a knob, and what is to happen meanwhile happens in it.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.schema import PrimitiveType
from deltalake.table import TableAlterer
from deltalake.transaction import CommitProperties
from hypothesis import given
from hypothesis import strategies as st

from sketches import GK
from warehouse import commits, history, ledger, ledgerrows, marks, steps, tables
from warehouse.commits import Patience
from warehouse.errors import CommitFailed, Contended, DamagedWarehouse
from warehouse.events import Batches
from warehouse.history import NewRun
from warehouse.layout import Layout, Run, plan_merge
from warehouse.load import _plan
from warehouse.maintain import MaintenanceReport, _compact_steps
from warehouse.marks import TickCounts
from warehouse.measures import Measure
from warehouse.runfiles import write_sorted
from warehouse.steps import Plan
from warehouse.storage import LEDGER, STEPS, Store
from warehouse.summaries import Summary, TickSummary

ROOT = Path(__file__).resolve().parents[2]
MEASURE = Measure("x", "double")
RUNS, MARKS = MEASURE.runs_table, MEASURE.marks_table
ERRORS = [
    OSError("connection reset"),
    TimeoutError("no answer in 30 s"),
    DeltaError("Generic S3 error"),
    CommitFailedError("Failed to commit transaction: 0"),
    Exception("Arrow error"),
    ValueError("told wrongly"),
]
Write = Callable[..., Any]


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that were made; none takes any time."""
    made: list[float] = []
    monkeypatch.setattr(commits, "PATIENCE", replace(commits.PATIENCE, pause=made.append))
    return made


@pytest.fixture
def store(tmp_path: Path, waits: list[float]) -> Store:  # noqa: ARG001
    store = Store.of(tmp_path / "w")
    history.create_tables(store, MEASURE)
    tables.create(store, STEPS, steps.SCHEMA)
    tables.create(store, LEDGER, ledgerrows.SCHEMA)
    return store


def new_run(store: Store, run: Run) -> NewRun:
    """A written run of three rows."""
    attempt, zero = tables.new_name(), np.zeros(1, np.int64)
    pieces = iter([(np.full(3, float(run.first)), np.full(3, run.first))])
    path = history.run_path(MEASURE, run, attempt, 0)
    file = write_sorted(store.filesystem(), path, MEASURE.arrow_type, pieces, grain=10, span=100)
    totals = TickCounts(np.array([run.first]), np.array([3]), zero, zero)
    return NewRun(run, attempt, (file,), totals, marks.to_arrow(MEASURE, [file], totals))


def add_step(store: Store, step: int = 0) -> bool:
    return history.commit_run(store, MEASURE, new_run(store, Run(step, step, 0)))


def add_batch(store: Store, source: str = "web", batch: int = 0) -> bool:
    sketch = GK.from_sorted(np.array([1.0, 2.0]), 0.01, MEASURE.dtype)
    summary = [TickSummary(0, 2, None, (Summary(MEASURE.name, 0, 0, sketch),))]
    return ledger.append_batch(store, 0.1, source, batch, summary)


def merge_steps(store: Store) -> bool:
    merge = plan_merge(layout(store), 2)
    assert merge is not None
    return history.commit_merge(store, MEASURE, merge, new_run(store, merge.output))


def plan_step(store: Store) -> int | None:
    mine = Batches("load:a", 0, 0)
    return _plan(store, lambda planned: [] if mine in planned else [(mine, 1)])


def add_column(store: Store) -> None:
    tables.add_columns(tables.open_table(store, STEPS), [Field("more", PrimitiveType("long"))])


def rewrite_steps(store: Store) -> None:
    _compact_steps(store, MaintenanceReport())


def layout(store: Store) -> Layout:
    return history.layout_of(tables.open_table(store, RUNS))


# What commits: what is done before, the commit, and what it returns.
COMMITS: dict[str, tuple[Callable[[Store], object], Callable[[Store], object], object]] = {
    "a step": (lambda _: None, add_step, True),
    "a merge": (lambda s: [add_step(s, n) for n in range(3)], merge_steps, True),
    "marks": (lambda _: None, lambda s: history.append_marks(s, MEASURE, new_run(s, Run(0, 0, 0))), None),
    "a plan": (lambda _: None, plan_step, 0),
    "a batch": (lambda _: None, add_batch, True),
    "columns": (lambda _: None, add_column, None),
    "steps in one file": (
        lambda s: [steps.write_plan(s, tables.open_table(s, STEPS), Plan(n, ())) for n in range(9)],
        rewrite_steps,
        None,
    ),
}


def state(store: Store) -> dict[str, tuple[int, dict[str, int], list[str]]]:
    """Each table's version, files with their rows, and columns."""
    found = {}
    for name in (RUNS, MARKS, STEPS, LEDGER):
        table = tables.open_table(store, name)
        columns = [field.name for field in table.schema().fields]
        found[name] = (table.version(), {file.path: file.rows for file in tables.files(table)}, columns)
    return found


def shape(store: Store) -> dict[str, tuple[int, list[int], list[str]]]:
    """As `state`, without the names of files, which are new each time."""
    return {name: (at, sorted(held.values()), columns) for name, (at, held, columns) in state(store).items()}


class Broken:
    """What stands in for delta-rs's two ways to commit, and for the creation of tables."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.patch = patch
        self.calls = 0

    def commits(self, act: Callable[[Write], Any]) -> None:
        """Each commit goes through `act`, which gets the true one to call or not."""

        def through(true: Write) -> Write:
            def call(*args: Any, **options: Any) -> Any:
                self.calls += 1
                return act(lambda: true(*args, **options))

            return call

        self.patch.setattr(
            DeltaTable, "create_write_transaction", through(DeltaTable.create_write_transaction)
        )
        self.patch.setattr(TableAlterer, "add_columns", through(TableAlterer.add_columns))


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Iterator[Broken]:
    with monkeypatch.context() as patch:
        yield Broken(patch)


def raising(error: Exception, *, done: bool) -> Callable[[Write], None]:
    """Commits that raise, once they are `done` or before."""

    def act(commit: Write) -> None:
        if done:
            commit()
        raise error

    return act


def kinds(error: Exception) -> str:
    return type(error).__name__


@pytest.mark.parametrize("error", ERRORS, ids=kinds)
@pytest.mark.parametrize("what", COMMITS)
def test_a_commit_whose_answer_was_lost_is_done_once(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, error: Exception
) -> None:
    before, commit, returned = COMMITS[what]
    before(store)
    other = Store.of(tmp_path / "w2")
    history.create_tables(other, MEASURE)
    for name, schema in ((STEPS, steps.SCHEMA), (LEDGER, ledgerrows.SCHEMA)):
        tables.create(other, name, schema)
    before(other)
    assert commit(other) == returned
    with monkeypatch.context() as patch:
        Broken(patch).commits(raising(error, done=True))
        assert commit(store) == returned
    assert shape(store) == shape(other)


@pytest.mark.parametrize("error", ERRORS, ids=kinds)
@pytest.mark.parametrize("what", COMMITS)
def test_a_commit_that_nobody_made_fails_at_once_and_changes_nothing(
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
        with pytest.raises(CommitFailed, match=r"nothing was changed.*run the same again") as raised:
            commit(store)
    assert str(error) in str(raised.value)
    assert raised.value.__cause__ is error
    assert broken.calls == 1
    assert waits == list(commits.PATIENCE.looks), "it looks more than once, and not for long"
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
        patch.setattr(commits, "PATIENCE", replace(commits.PATIENCE, pause=pause))
        Broken(patch).commits(act)
        assert commit(store) == returned
    assert len(waits) == 2


def a_rival(store: Store, name: str) -> None:
    """A commit of somebody else's: it changes nothing, and takes a version."""
    table = DeltaTable(store.table(name))
    properties = CommitProperties(custom_metadata={"tidemark.host": "elsewhere", "tidemark.process": "7"})
    table.alter.set_table_properties({"delta.appendOnly": "false"}, commit_properties=properties)


TABLES = {"a plan": STEPS, "columns": STEPS, "steps in one file": STEPS, "a batch": LEDGER, "marks": MARKS}


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


def test_columns_that_lose_their_race_say_so(store: Store) -> None:
    table = tables.open_table(store, STEPS)
    a_rival(store, STEPS)
    with pytest.raises(tables.LostRace) as raised:
        tables.add_columns(table, [Field("more", PrimitiveType("long"))])
    assert [(one.version, one.host, one.operation) for one in raised.value.winners] == [
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
            table, [tables.remove(file) for file in tables.files(table)] or history._add_actions(add)
        )
        broken.commits(act)
        true()

    broken.commits(act)
    with pytest.raises(Contended) as raised:
        # It may follow on nothing that the rival does, so it looks at a step that the rival never has.
        history.contend(RUNS, lambda: tables.commit(tables.open_table(store, RUNS), []))
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
    with pytest.raises(tables.LostRace) as raised:
        tables.commit(table, [])
    assert [one.by for one in raised.value.winners] == [
        "Apache-Spark/4.2.0 (OPTIMIZE)",
        "another program (no operation told)",
    ]


def test_an_append_only_table_refuses_what_removes_at_once(store: Store, waits: list[float]) -> None:
    for step in range(3):
        add_step(store, step)
    table = tables.open_table(store, RUNS)
    table.alter.set_table_properties({"delta.appendOnly": "true"})
    was = state(store)
    with pytest.raises(CommitFailed, match="append-only"):
        merge_steps(store)
    assert waits == list(commits.PATIENCE.looks)
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
    assert waits == list(commits.PATIENCE.looks)
    assert tables.files(tables.open_table(store, LEDGER)) == []


def test_a_table_whose_log_is_gone_is_refused(store: Store) -> None:
    table = tables.open_table(store, LEDGER)
    log = Path(store.table(LEDGER)) / "_delta_log"
    log.rename(log.with_name("elsewhere"))
    with pytest.raises(CommitFailed, match=r"the log cannot be read.*what is done is not done twice"):
        tables.commit(table, [])


@pytest.mark.parametrize("blind", [False, True])
@pytest.mark.parametrize("mine", [False, True])
def test_a_commit_whose_log_entry_was_cleaned_is_known_by_its_files(
    store: Store, broken: Broken, *, mine: bool, blind: bool
) -> None:
    """A checkpoint took the place of the log's entries before the answer was lost."""
    table = tables.open_table(store, MARKS)
    action = tables.write_file(store, MARKS, marks_rows(), "run=L00-0000000000-0000000000/a.parquet")

    def act(true: Write) -> None:
        if mine:
            true()
        a_rival(store, MARKS)
        DeltaTable(store.table(MARKS)).create_checkpoint()
        for entry in (Path(store.table(MARKS)) / "_delta_log").glob("*.json"):
            entry.unlink()
        raise TimeoutError("no answer in 30 s")

    broken.commits(act)
    if mine:
        tables.commit(table, [action], blind=blind)
    else:
        with pytest.raises(tables.LostRace):
            tables.commit(table, [action], blind=blind)
    held = [file.path for file in tables.files(tables.open_table(store, MARKS))]
    assert held == [action.path] * mine


def marks_rows() -> pa.Table:
    return marks.schema(MEASURE).empty_table()


@pytest.mark.parametrize("text", ['{"commitInfo":{"timest', "3", '{"commitInfo":7}', "\xff"])
def test_a_log_entry_that_cannot_be_read_is_named(store: Store, waits: list[float], text: str) -> None:
    table = tables.open_table(store, LEDGER)
    (Path(store.table(LEDGER)) / "_delta_log" / f"{1:020d}.json").write_text(text, encoding="latin-1")
    with pytest.raises(DamagedWarehouse, match=r"0001\.json.*Restore the log entry"):
        tables.commit(table, [])
    assert waits == list(commits.PATIENCE.looks)


def test_a_log_entry_that_is_being_written_is_looked_at_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tables.open_table(store, LEDGER)
    entry = Path(store.table(LEDGER)) / "_delta_log" / f"{1:020d}.json"
    whole = json.dumps({"commitInfo": {"tidemark.host": "elsewhere", "tidemark.process": "7"}})
    entry.write_text(whole[:20])
    finish = replace(commits.PATIENCE, pause=lambda _: entry.write_text(whole))
    monkeypatch.setattr(commits, "PATIENCE", finish)
    with pytest.raises(tables.LostRace) as raised:
        tables.commit(table, [])
    assert raised.value.winners[0].host == "elsewhere"


def test_a_commit_that_delta_rs_put_on_a_later_version_is_found(store: Store, broken: Broken) -> None:
    """A blind commit goes on top of what others committed meanwhile, and its answer is lost."""
    new = new_run(store, Run(0, 0, 0))

    def act(true: Write) -> None:
        broken.patch.undo()
        for _ in range(3):
            history.append_marks(store, MEASURE, new_run(store, Run(0, 0, 0)))
        true()
        history.append_marks(store, MEASURE, new_run(store, Run(0, 0, 0)))
        raise TimeoutError("no answer in 30 s")

    broken.commits(act)
    history.append_marks(store, MEASURE, new)
    held = [file.path for file in tables.files(tables.open_table(store, MARKS))]
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

    store = Store.of(tmp_path)
    monkeypatch.setattr(DeltaTable, "create", never)
    with pytest.raises(CommitFailed, match=r"could not be created.*Nothing was changed"):
        tables.create(store, STEPS, steps.SCHEMA)
    assert waits == list(commits.PATIENCE.looks)
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


_BATCHES = 6
_WRITER = """
import sys
from tests.warehouse.test_commits import add_batch
from warehouse.errors import Contended
from warehouse.storage import Store
store, me = Store.of(sys.argv[1]), sys.argv[2]
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
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(3)
    ]
    assert [one.stdout.readline() for one in running] == ["ready\n"] * 3  # type: ignore[union-attr]
    for one in running:
        one.stdin.write("go\n")  # type: ignore[union-attr]
        one.stdin.flush()  # type: ignore[union-attr]
    said = [line.split() for one in running for line in one.communicate()[0].splitlines()]
    assert [one.returncode for one in running] == [0, 0, 0]
    assert len(said) == 3 * 2 * _BATCHES
    done = sorted((source, int(batch)) for source, batch, became in said if became == "True")
    assert len(set(done)) == len(done), "of those who bring the same batch one has brought it"
    held = ledger.ranges_by_file(store, tables.open_table(store, LEDGER))
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
    pauses = list(Patience(tries, seconds, first, longest, draw=lambda: next(chance)).pauses())
    assert len(pauses) < tries
    assert sum(pauses) <= seconds + 1e-9
    for number, (pause, share) in enumerate(zip(pauses, drawn, strict=False)):
        assert pause == min(longest, first * 2.0**number) * (1 - share / 2)


def test_the_patience_of_a_commit_is_20_tries_and_a_minute() -> None:
    slowest = list(Patience(draw=lambda: 0.0).pauses())
    assert len(slowest) == 19
    assert 30 < sum(slowest) <= 60


def test_an_address_in_an_error_or_a_log_has_no_secrets() -> None:
    told = "cannot reach https://user:word@host/w/events?sig=abc&se=1: 403"
    assert commits.without_secrets(told) == "cannot reach https://host/w/events 403"
    assert commits.cause(OSError(told + "\nmore")) == "cannot reach https://host/w/events 403"
    assert commits.cause(OSError()) == "OSError"


# Variants that are broken on purpose: the properties above fail on each.


def every_error_is_a_lost_race(log: Any, *_: Any) -> bool:
    raise tables.LostRace(log.place)


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
