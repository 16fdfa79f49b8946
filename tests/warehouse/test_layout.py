"""The layout after any number of steps is what the thesis says, level by level."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.warehouse.errors import DamagedWarehouse
from tidemark.warehouse.runs.levels import Layout, Merge, Run, merging_runs, plan_merge


def thesis(levels: list[list[tuple[int, int]]], step: int, kappa: int) -> None:
    """Algorithm 8: a step is a run at level 0; a level of more than kappa runs becomes a run of the next."""
    levels[0].append((step, step))
    level = 0
    while len(levels[level]) > kappa:
        if level + 1 == len(levels):
            levels.append([])
        levels[level + 1].append((levels[level][0][0], levels[level][-1][1]))
        levels[level] = []
        level += 1


@given(st.integers(2, 4), st.integers(0, 40), st.integers(0, 12))
def test_a_merge_that_is_not_committed_has_all_inputs_among_the_merging_runs(
    kappa: int, steps: int, more: int
) -> None:
    """However many steps come after its plan, and whatever other merge is due by then."""
    layout = Layout(())
    for _ in range(steps):
        layout = layout.apply(Merge((), layout.add_step()))
        while (merge := plan_merge(layout, kappa)) is not None:
            layout = layout.apply(merge)
    assert merging_runs(layout, kappa) == []
    planned: list[Merge] = []
    for _ in range(more):
        layout = layout.apply(Merge((), layout.add_step()))
        merge = plan_merge(layout, kappa)
        planned += [merge] if merge is not None else []
        assert all(set(one.inputs) <= set(merging_runs(layout, kappa)) for one in planned)


@given(st.lists(st.tuples(st.integers(2, 5), st.integers(1, 9), st.booleans()), max_size=12))
def test_so_have_merges_of_any_kappa_so_far(changes: list[tuple[int, int, bool]]) -> None:
    """Merges that are due when steps come end at once, or are under way until their inputs are gone."""
    layout, least, planned = Layout(()), changes[0][0] if changes else 1, list[Merge]()
    for kappa, steps, ends in changes:
        least = min(least, kappa)
        for _ in range(steps):
            layout = layout.apply(Merge((), layout.add_step()))
            while (merge := plan_merge(layout, kappa)) is not None:
                planned.append(merge)
                if not ends:
                    break
                layout = layout.apply(merge)
            open_ones = [one for one in planned if set(one.inputs) <= set(layout.runs)]
            assert all(set(one.inputs) <= set(merging_runs(layout, least)) for one in open_ones)


def runs_of(levels: list[list[tuple[int, int]]]) -> set[Run]:
    return {Run(first, last, level) for level, runs in enumerate(levels) for first, last in runs}


@pytest.mark.parametrize("kappa", [2, 3, 4, 7, 10, 50])
def test_each_step_leaves_the_runs_of_the_thesis(kappa: int) -> None:
    layout = Layout(())
    levels: list[list[tuple[int, int]]] = [[]]
    for step in range(600):
        layout = layout.apply(Merge((), layout.add_step()))
        thesis(levels, step, kappa)
        merge = plan_merge(layout, kappa)
        if merge is not None:
            assert set(merge.inputs) <= set(layout.runs)
            assert len(merge.inputs) > kappa
            layout = layout.apply(merge)
            assert not set(merge.inputs) & set(layout.runs)
        assert plan_merge(layout, kappa) is None
        layout.check_invariants()
        assert set(layout.runs) == runs_of(levels)
        assert max(layout.levels().values()) <= kappa
        assert layout.last_step == step


@given(st.integers(2, 5), st.lists(st.integers(1, 9), max_size=40))
def test_loads_that_come_several_at_once_still_end_with_at_most_kappa_runs_a_level(
    kappa: int, bursts: list[int]
) -> None:
    """Steps that were added while nobody merged: rounds of one merge each, until none is needed."""
    layout = Layout(())
    for burst in bursts:
        for _ in range(burst):
            layout = layout.apply(Merge((), layout.add_step()))
        while (merge := plan_merge(layout, kappa)) is not None:
            assert merge.output.first == merge.inputs[0].first
            assert merge.output.last == merge.inputs[-1].last
            layout = layout.apply(merge)
        assert max(layout.levels().values()) <= kappa
    assert layout.last_step == sum(bursts) - 1


@given(st.integers(0, 10**9), st.integers(0, 10**9), st.integers(0, 99))
def test_a_name_parses_back_to_its_run_and_names_sort_like_steps(first: int, more: int, level: int) -> None:
    run = Run(first, first + more, level)
    assert Run.parse(run.name) == run


@pytest.mark.parametrize(
    "name",
    ["", "L0-1-2", "L00-0000000001", "x" * 24, "L00-0000000000-0000000000/", "L00-00000000-1-0000000000"],
)
def test_other_names_are_no_runs(name: str) -> None:
    with pytest.raises(DamagedWarehouse, match="not a run"):
        Run.parse(name)


@pytest.mark.parametrize(
    "runs",
    [
        [Run(1, 1, 0)],
        [Run(0, 1, 1), Run(1, 2, 0)],
        [Run(0, 0, 0), Run(2, 2, 0)],
        [Run(0, 0, 0), Run(0, 0, 0)],
        [Run(0, 3, 0), Run(1, 1, 0)],
        [Run(0, 0, 0), Run(1, 2, 1)],
        [Run(0, -1, 0)],
    ],
)
def test_a_gap_an_overlap_or_a_rising_level_is_no_layout(runs: list[Run]) -> None:
    with pytest.raises(DamagedWarehouse):
        Layout.of(runs)
