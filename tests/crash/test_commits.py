"""Commits that race: of all who commit the same step, plan, merge or batch, one wins and the others know.

Threads in one process, many rounds, no Spark: delta-rs lets go of the interpreter's lock while it commits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.soak import HAS_ALL
from tests.warehouse.committing import MEASURE, RUNS, VALUES, commit_run, new_run, new_store
from tidemark.sketches import GK
from tidemark.warehouse.delta import data_files, table_open, tables
from tidemark.warehouse.delta.races import Race
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import LEDGER, STEPS, runs_table
from tidemark.warehouse.events import steps
from tidemark.warehouse.events.reader import BatchRange
from tidemark.warehouse.events.steps import StepPlan
from tidemark.warehouse.ledger import ledger_table
from tidemark.warehouse.ledger.batch_summaries import MeasureSummary, TickSummary
from tidemark.warehouse.runs import run_tables
from tidemark.warehouse.runs.levels import Layout, Run, plan_merge
from tidemark.warehouse.runs.run_tables import NewRun
from tidemark.warehouse.sizes import DEFAULT

pytestmark = pytest.mark.slow

ROUNDS = 60 if HAS_ALL else DEFAULT.fan + 2
RACERS = 4


def at_once(work: Sequence[Callable[[], Any]]) -> list[Any]:
    """What each returns or raises, all started together."""
    gate = threading.Barrier(len(work))
    results: list[Any] = [None] * len(work)

    def run(i: int) -> None:
        gate.wait()
        try:
            results[i] = work[i]()
        except Exception as error:  # noqa: BLE001 - handed to the caller, which decides
            results[i] = error

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(work))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return new_store(tmp_path / "w")


def layout(store: Store) -> tuple[Layout, int]:
    """The layout, and the rows that the runs hold."""
    table = tables.open_table(store, runs_table(MEASURE.name))
    return run_tables.read_layout(table), sum(file.rows for file in data_files.list_files(table))


def commit(store: Store, new: NewRun) -> bool:
    run_tables.append_marks(store, VALUES, new)
    return commit_run(store, new)


def _commit_new(store: Store, run: Run) -> bool:
    return commit(store, new_run(store, run, 3))


def race_steps(store: Store, rounds: int) -> list[int]:
    """Racers commit the same step, step after step; how many of them won each."""
    won = []
    for step in range(rounds):
        news = [new_run(store, Run(step, step, 0), step + 1) for _ in range(RACERS)]
        results = at_once([partial(commit, store, new) for new in news])
        assert all(isinstance(one, bool) for one in results), results
        won.append(sum(results))
    return won


def test_of_those_who_commit_the_same_step_one_wins(store: Store) -> None:
    assert race_steps(store, ROUNDS) == [1] * ROUNDS
    assert layout(store) == (Layout.of(Run(s, s, 0) for s in range(ROUNDS)), sum(range(1, ROUNDS + 1)))


def test_without_compare_and_swap_two_win_and_the_layout_tells(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test above fails on commits that go on top of whatever is there."""
    compare_and_swap = tables.commit
    seen = threading.Barrier(RACERS)

    def blindly(table: Any, actions: Any, *, blind: bool = False, **options: Any) -> Any:
        if not blind:
            seen.wait()  # all have looked before the first commits
        return compare_and_swap(table, actions, blind=True, **options)

    monkeypatch.setattr(tables, "commit", blindly)
    assert race_steps(store, 1) == [RACERS]
    table = tables.open_table(store, runs_table(MEASURE.name))
    assert sum(file.rows for file in data_files.list_files(table)) == RACERS


def test_steps_and_merges_that_race_keep_every_row_once(store: Store) -> None:
    """Each round two commit the next step and two commit the merge that was planned before it."""
    rows = 0
    merges = 0
    for step in range(ROUNDS):
        files = run_tables.runs_of(tables.open_table(store, RUNS))
        merge = plan_merge(Layout.of(files), 2)
        run = Run(step, step, 0)
        work = [partial(_commit_new, store, run) for _ in range(2)]
        if merge is not None:
            size = 3 * (merge.output.last - merge.output.first + 1)
            olds = {old: files[old] for old in merge.inputs}
            for _ in range(2):
                new = new_run(store, merge.output, size)
                work.append(partial(run_tables.replace_if_same, store, VALUES, olds, [new]))
        results = at_once(work)
        assert all(isinstance(one, bool) for one in results), results
        assert sum(results[:2]) == 1
        assert sum(results[2:]) == (merge is not None)
        rows, merges = rows + 3, merges + (merge is not None)
        assert layout(store)[1] == rows
    assert merges > ROUNDS / 4


def test_of_those_who_plan_the_same_step_one_wins(store: Store) -> None:
    for step in range(ROUNDS):
        races = [Race(store, STEPS, tables.open_table(store, STEPS)) for _ in range(RACERS)]
        plans = [StepPlan(step, ((BatchRange(f"load:{step}-{i}", 0, 0), i),)) for i in range(RACERS)]
        results = at_once(
            [partial(steps.commit_plan, store, r, p) for r, p in zip(races, plans, strict=True)]
        )
        won = [i for i, one in enumerate(results) if one is True]
        assert len(won) == 1
        assert all(one is False for i, one in enumerate(results) if i not in won), results
        read = steps.read_step_plans(store, tables.open_table(store, STEPS))
        assert read[-1] == plans[won[0]]
        assert [plan.step for plan in read] == list(range(step + 1))


def test_a_batch_that_comes_several_times_at_once_is_in_the_ledger_once(store: Store) -> None:
    """Beside it other sources bring theirs, which hinders nobody."""
    sketch = GK.from_sorted(np.array([1.0, 2.0]), 0.01, MEASURE.dtype)
    summary = [TickSummary(0, 2, None, (MeasureSummary(MEASURE.name, 0, 0, sketch),))]
    for batch in range(ROUNDS):
        sources = ["a", "a", "a", "b"]
        results = at_once(
            [partial(ledger_table.append_batch, store, 0.1, s, batch, summary) for s in sources]
        )
        assert sorted(results[:3]) == [False, False, True], results
        assert results[3] is True
    held = ledger_table.ranges_by_file(store, tables.open_table(store, LEDGER))
    ranges = [one for found in held.values() for one in found]
    every = [BatchRange(s, b, b) for s in "ab" for b in range(ROUNDS)]
    wide = [BatchRange(s, 0, DEFAULT.fan - 1) for s in "ab"]
    assert sorted(ranges) == sorted([*every, *wide])


def test_tables_that_are_created_several_times_at_once_are_created_once(tmp_path: Path) -> None:
    for round_ in range(ROUNDS // 4):
        store = Store.from_uri(tmp_path / str(round_))
        assert at_once([partial(run_tables.create_tables, store, VALUES)] * RACERS) == [None] * RACERS
        assert layout(store) == (Layout(()), 0)
        assert table_open.exists(store, VALUES.marks_table)
