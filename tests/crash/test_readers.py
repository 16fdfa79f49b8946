"""What readers may see between any two steps of a load, and that the checks notice a broken protocol.

A reader opens one table after the other. Here whole loads and batches happen between two of them: nothing
worse can happen to it. The broken variants are those that a later change could bring about; each is
caught by the very checks that the kills and races rely on.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.crash.batches import MEASURES, batch_rows
from tests.crash.conftest import Attacked, Stage
from tests.crash.truth import Seen, Truth, look, problems
from tests.warehouse.committing import instant
from tidemark import warehouse
from tidemark.warehouse.delta import tables
from tidemark.warehouse.delta.table_names import LEDGER, STEPS, runs_table
from tidemark.warehouse.errors import DamagedWarehouse, TidemarkError
from tidemark.warehouse.events import steps
from tidemark.warehouse.loads import next_step
from tidemark.warehouse.runs import run_tables
from tidemark.warehouse.snapshots.near_tables import NearTables
from tidemark.warehouse.snapshots.snapshot_reader import SnapshotReader, open_snapshot

# The package has functions of these names.
LOAD = import_module("tidemark.warehouse.load")
VERIFY = import_module("tidemark.warehouse.verify")


@pytest.fixture(autouse=True)
def _nobody_else_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A check that fails waits for other writers, and here are none."""
    instant(monkeypatch, VERIFY)


class Crash(Exception):
    """Stops a load at a point."""


def crash_at(point: str, nth: int = 1) -> Callable[[str], None]:
    times = iter(range(1, 1000))

    def progress(reached: str) -> None:
        if reached == point and next(times) == nth:
            raise Crash

    return progress


def load_bulk(one: Attacked, number: int) -> None:
    one.load(number)


def bring(one: Attacked, number: int) -> None:
    one.stream(number)


def load_live(one: Attacked, number: int) -> None:  # noqa: ARG001
    warehouse.load(one.spark, one.uri)


def bring_and_load(one: Attacked, number: int) -> None:
    one.stream(number)
    warehouse.load(one.spark, one.uri)


def read_while(
    monkeypatch: pytest.MonkeyPatch,
    one: Attacked,
    before: str,
    happens: Callable[[Attacked, int], None],
    order: list[str] | None = None,
) -> list[Seen]:
    """What a reader sees when something happens just before it opens that table for its second look.

    `order` is that of a broken reader.
    """
    with monkeypatch.context() as patch:
        return _read_while(patch, one, before, happens, order)


def _read_while(
    patch: pytest.MonkeyPatch,
    one: Attacked,
    before: str,
    happens: Callable[[Attacked, int], None],
    order: list[str] | None,
) -> list[Seen]:
    reader = open_snapshot(one.uri)
    journal = [look(reader, measure) for measure in MEASURES]
    update = NearTables._update
    done: list[bool] = []

    def interrupted(self: NearTables, name: str) -> None:
        if self is reader._tables and name == before and not done:
            done.append(True)
            happens(one, 30)
        update(self, name)

    def in_order(self: NearTables, *_: Any) -> list[str]:
        self.look_at(order or [])
        return []

    patch.setattr(NearTables, "_update", interrupted)
    if order is not None:
        patch.setattr(NearTables, "look", in_order)
        patch.setattr(SnapshotReader, "_compare", lambda *_: (None, False))  # it looks again
    for _ in range(2):
        try:
            reader.refresh()
            journal += [look(reader, measure) for measure in MEASURES]
        except TidemarkError as error:
            journal.append(Seen("", None, error=str(error)))
    assert done
    return journal


TABLES = [*map(runs_table, MEASURES), STEPS, LEDGER]


@pytest.mark.parametrize("happens", [load_bulk, bring, load_live, bring_and_load])
def test_whatever_happens_between_two_tables_a_reader_sees_a_true_state(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, happens: Callable[[Attacked, int], None]
) -> None:
    for before in TABLES[1:]:
        one = stage.copy("deep")
        assert problems(read_while(monkeypatch, one, before, happens), one.truth) == []
        stage.leave(one)


def test_a_reader_that_opens_the_runs_last_counts_twice(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger and the steps are older than the runs then: what was loaded in between is also live."""
    one = stage.copy("deep")
    order = [LEDGER, STEPS, *map(runs_table, MEASURES)]
    journal = read_while(monkeypatch, one, runs_table(MEASURES[0]), load_live, order)
    assert any("legal are" in text for text in problems(journal, one.truth))
    stage.leave(one)


def test_ledger_rows_that_expire_without_grace_leave_a_gap(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that had opened the runs before a load finds neither the run nor the ledger rows."""
    one = stage.copy("deep")

    def load_and_expire(one: Attacked, number: int) -> None:
        load_live(one, number)
        warehouse.maintain(None, one.uri, grace="0")

    journal = read_while(monkeypatch, one, LEDGER, load_and_expire)
    assert any("fell from" in text for text in problems(journal, one.truth))
    reader_saw_it, _ = stage.reader.collect(one.uri)
    assert reader_saw_it


def small(spark: SparkSession, stage: Stage) -> Attacked:
    """A copied warehouse that no other process watches."""
    one = stage.copy("deep")
    stage.reader.collect(one.uri)
    return replace(one, spark=spark)


def test_commits_without_compare_and_swap_are_caught(
    spark: SparkSession, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another loader commits the step just before a commit that goes on top of whatever is there."""
    one = small(spark, stage)
    compare_and_swap = tables.commit
    raced: list[bool] = []

    def blindly(table: Any, actions: Any, *, blind: bool = False, **options: Any) -> Any:
        if not blind and table.table_uri.rstrip("/").endswith(runs_table(MEASURES[0])) and not raced:
            raced.append(True)
            with suppress(Crash):
                warehouse.load(one.spark, one.uri, one.rows(30), "b30", progress=crash_at("merge"))
        return compare_and_swap(table, actions, blind=True, **options)

    with monkeypatch.context() as patch:
        patch.setattr(tables, "commit", blindly)
        with pytest.raises(Crash):
            one.load(30, progress=crash_at("merge"))
    one.truth.have_arrived(30)
    assert one.what_is_wrong() != []


def test_a_load_that_plans_anew_after_a_crash_is_caught(
    spark: SparkSession, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One measure got the batches of the first plan, the other those of the second."""
    one = small(spark, stage)
    written: dict[int, steps.StepPlan] = {}

    def in_memory(store: Any, race: Any, plan: steps.StepPlan, facts: Any) -> bool:  # noqa: ARG001
        written[plan.step] = plan
        return True

    read = steps.read_step_plans
    with monkeypatch.context() as patch:
        patch.setattr(next_step, "commit_plan", in_memory)
        for module in (LOAD, next_step):
            patch.setattr(module, "read_step_plans", lambda *given: [*read(*given), *written.values()])
        with pytest.raises(Crash):
            warehouse.load(one.spark, one.uri, progress=crash_at("committed"))
    one.stream(30)
    with suppress(DamagedWarehouse):  # a later load notices
        warehouse.load(one.spark, one.uri)
    assert one.what_is_wrong() != []


def test_a_merge_that_leaves_an_input_is_caught(
    spark: SparkSession, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = small(spark, stage)
    compare_and_swap = tables.commit

    def without_the_first(table: Any, actions: Any, **options: Any) -> Any:
        kept = list(actions)
        removes = [action for action in kept if type(action).__name__ == "RemoveAction"]
        return compare_and_swap(table, [action for action in kept if action not in removes[:1]], **options)

    with monkeypatch.context() as patch:
        patch.setattr(tables, "commit", without_the_first)
        with suppress(TidemarkError):
            one.load(30)
    one.truth.have_arrived(30)
    assert one.what_is_wrong() != []


def test_rows_that_are_appended_again_after_a_crash_are_caught(
    spark: SparkSession, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch's rows are in `events`, and a load that does not ask appends them again."""
    one = small(spark, stage)
    one.truth.coming(30)
    with pytest.raises(Crash):
        warehouse.load(one.spark, one.uri, one.rows(30), "b30", progress=crash_at("appended"))

    with monkeypatch.context() as patch:
        patch.setattr(tables, "has_transaction", lambda *_: False)
        warehouse.load(one.spark, one.uri, one.rows(30), "b30")
    one.truth.have_arrived(30)
    assert one.what_is_wrong() != []


def test_a_run_that_is_committed_before_its_marks_is_caught(
    spark: SparkSession, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash between the two leaves a run that readers see and cannot read."""
    one = small(spark, stage)
    with monkeypatch.context() as patch:
        patch.setattr(run_tables, "append_marks", lambda *_, **__: None)
        with suppress(TidemarkError, Crash):
            one.load(30, progress=crash_at("committed"))
    with pytest.raises(TidemarkError, match="marks"):
        open_snapshot(one.uri).current().view(MEASURES[0])


def test_a_journal_is_checked_for_errors_totals_order_counts_and_bounds() -> None:
    """The checker itself: a true journal passes, and each kind of untruth is told."""
    truth = Truth()
    truth.have_arrived(0)
    truth.coming(1, 2)
    rows = {number: batch_rows(number) for number in range(3)}
    nulls = {number: rows[number].column("size").null_count for number in rows}

    def seen(*numbers: int, more: int = 0, fewer_nulls: int = 0) -> Seen:
        total = sum(rows[number].num_rows for number in numbers)
        return Seen("size", total + more, 0, sum(nulls[number] for number in numbers) - fewer_nulls)

    assert problems([seen(), seen(0), seen(0, 2), seen(0, 1, 2)], truth) == []
    assert "legal are" in problems([seen(0, more=1)], truth)[0]
    assert "legal are" in problems([seen(1)], truth)[0]
    assert "fell from" in problems([seen(0, 1), seen(0)], truth)[0]
    assert "true are" in problems([seen(0, fewer_nulls=1)], truth)[0]
    assert "boom" in problems([Seen("size", None, error="boom")], truth)[0]


def test_an_answer_is_checked_against_the_rows_of_its_total(stage: Stage) -> None:
    one = stage.copy("deep")
    _, journal = stage.reader.collect(one.uri)
    answered = next(seen for seen in journal if seen.answers and seen.answers[4].mode == "accurate")
    assert problems([answered], one.truth) == []
    answer = answered.answers[4]
    for wrong in (
        replace(answer, rank_hi=answer.rank_lo - 1),
        replace(answer, error_bound=10**9),
        replace(answer, high=answer.low - 10**6, low=answer.low - 10**6),
        replace(answer, value=answered.answers[-2].value, error_bound=0),
    ):
        assert problems([replace(answered, answers=(wrong,))], one.truth) != []
