"""What a rewritten run could get wrong: each mistake is noticed before it is in an answer, or by verify."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.killing import Killed, killer
from tests.query.groupworld import ONE, TINY, GroupWorld
from tests.warehouse.test_remove import check, delete, rows
from tidemark import warehouse
from tidemark.sketches.sampling import SampleBuilder, merge_samples
from tidemark.warehouse import DamagedWarehouse
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.events import reader, removals
from tidemark.warehouse.loads import history, run_builder, tasks
from tidemark.warehouse.projections import distinct_marks, span_marks, spans
from tidemark.warehouse.settings.options import read_options

WHERE = "origin = 'a'"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> GroupWorld:
    """Two steps in history: one more load merges all."""
    batches = [(True, rows(number)) for number in range(2)]
    return GroupWorld.of(tmp_path_factory.mktemp("made"), batches, measures=ONE, groups=["origin"])


@pytest.fixture
def world(made: GroupWorld, tmp_path: Path) -> GroupWorld:
    return made.copy(tmp_path)


def is_noticed(world: GroupWorld, act: Callable[[], object]) -> bool:
    """Whether the act is refused as damage, or verify finds what it did."""
    try:
        act()
    except DamagedWarehouse:
        return True
    return not warehouse.verify(world.path).ok


def test_a_removal_that_is_recorded_again_after_a_crash_is_noticed(
    world: GroupWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next call does not see the record, selects the same rows, and plans them a second time."""
    with pytest.raises(Killed):
        delete(world, WHERE, progress=killer("removal planned"))
    look = removals.open_removal
    monkeypatch.setattr(removals, "open_removal", lambda records, number: look(records, max(number, 0)))
    assert is_noticed(world, lambda: delete(world, WHERE))


def test_a_sample_that_keeps_a_removed_key_is_noticed(
    world: GroupWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish, kept = SampleBuilder.finish, list[Any]()

    def finished(builder: SampleBuilder) -> Any:
        kept.append(finish(builder))
        return kept[-1]

    def keeps(builder: SampleBuilder) -> Any:
        return merge_samples([finish(builder), *kept], distinct_marks.RUN_SAMPLE)

    with monkeypatch.context() as patch:
        patch.setattr(SampleBuilder, "finish", finished)
        world.add(rows(1), load=True)
    assert kept
    monkeypatch.setattr(SampleBuilder, "finish", keeps)
    assert is_noticed(world, lambda: delete(world, WHERE))


def test_a_merge_that_does_not_wait_for_a_removal_is_noticed(
    world: GroupWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its output says that it is net of the removal, and has the rows: its inputs were not written again."""
    with pytest.raises(Killed):
        delete(world, WHERE, progress=killer("decided"))

    def does_not_wait(work: Any, merge: Any, runs: Any) -> Any:
        inputs = run_builder.MergeInputs(merge, runs, 0)
        return inner(work, merge, runs) or history.RunSource(work, merge.output, inputs)

    inner = history._merge_source
    monkeypatch.setattr(history, "_merge_source", does_not_wait)
    monkeypatch.setattr(import_module("tidemark.warehouse.load"), "finish_open", lambda _: None)
    assert is_noticed(world, lambda: world.add(rows(2), load=True))


def test_a_removed_row_that_leaves_its_count_by_tick_is_noticed(
    world: GroupWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = spans.count_cells

    def one_more(*given: Any) -> Any:
        starts, ticks, counts = count(*given)
        counts = counts.copy()
        counts[:1] += 1
        return starts, ticks, counts

    monkeypatch.setattr(span_marks, "count_cells", one_more)
    assert is_noticed(world, lambda: delete(world, WHERE))


@pytest.mark.parametrize(
    "leave", [lambda rows: rows.slice(1), lambda rows: pa.concat_tables([rows, rows[:1]])]
)
def test_a_run_that_loses_a_row_too_many_or_too_few_is_noticed(
    world: GroupWorld, monkeypatch: pytest.MonkeyPatch, leave: Callable[[pa.Table], pa.Table]
) -> None:
    read = reader.read_event_rows
    monkeypatch.setattr(tasks, "read_event_rows", lambda *given, **more: map(leave, read(*given, **more)))
    assert is_noticed(world, lambda: delete(world, WHERE))


@pytest.mark.parametrize("is_broken", [False, True])
def test_the_few_rows_of_several_runs_are_read_once_for_all_projections(
    world: GroupWorld, monkeypatch: pytest.MonkeyPatch, *, is_broken: bool
) -> None:
    """By one task for each run; the broken variant has one for each kind of projection."""
    reads, run = list[int](), tasks.SortTask.run
    groups = run_builder._task_groups

    def counted(task: tasks.SortTask) -> Any:
        reads.append(len(task.outputs))
        return run(task)

    monkeypatch.setattr(tasks.SortTask, "run", counted)
    if is_broken:
        monkeypatch.setattr(run_builder, "_task_groups", lambda those, **_: groups(those, read_once=False))
    large = replace(TINY, sort_rows=10_000)
    assert warehouse.delete(None, world.path, WHERE, tuning=large).outcome == "removed"
    count = len(world_projections(world))
    assert (reads == [count] * 2) is not is_broken
    world.rows[:] = [row for row in world.rows if row[1] != "a"]
    world._truths.clear()
    check(world)


def world_projections(world: GroupWorld) -> Any:
    return read_options(Store.from_uri(world.path)).projections


def test_the_right_variant_is_right(world: GroupWorld) -> None:
    assert not is_noticed(world, lambda: delete(world, WHERE))
    world.rows[:] = [row for row in world.rows if row[1] != "a"]
    world._truths.clear()
    check(world)
