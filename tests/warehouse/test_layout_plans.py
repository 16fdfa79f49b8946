"""Which runs a repair keeps, removes and builds: whatever is left, the plan is a layout of all steps."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark.warehouse.removals.finish import joined_runs
from tidemark.warehouse.repairs.layouts import plan_layout
from tidemark.warehouse.runs.levels import Layout, Run


def test_a_layout_is_the_one_that_so_many_loads_leave() -> None:
    assert [run.name for run in Layout.of_loads(4, 2).runs] == [
        "L01-0000000000-0000000002",
        "L00-0000000003-0000000003",
    ]
    assert Layout.of_loads(0, 3).runs == ()


@settings(max_examples=200, deadline=None)
@given(data=st.data(), steps=st.integers(0, 40), kappa=st.integers(2, 4))
def test_what_stays_and_is_built_partitions_the_steps_up_to_its_newest_run(
    data: st.DataObject, steps: int, kappa: int
) -> None:
    """Any runs of two layouts, of which any may be unsound; sound ones that stay are not built."""
    both = {*Layout.of_loads(steps, kappa).runs, *Layout.of_loads(data.draw(st.integers(0, 45)), kappa).runs}
    present = {run for run in sorted(both) if data.draw(st.booleans())}
    sound = {run for run in sorted(present) if data.draw(st.booleans())}
    plan = plan_layout(present, sound, steps - 1, kappa)
    assert set(plan.leaves) <= present
    assert not sound & set(plan.leaves) & set(plan.built)
    whole = Layout.of([*(present - set(plan.leaves)), *plan.built])
    assert whole.last_step < steps
    if not present:
        assert whole == Layout.of_loads(steps, kappa)
    if whole.runs == Layout.of_loads(whole.last_step + 1, kappa).runs:
        assert plan_layout(whole.runs, whole.runs, steps - 1, kappa).leaves == ()


def test_a_layout_that_is_whole_stays_as_it_is() -> None:
    layout = Layout.of_loads(23, 3)
    plan = plan_layout(layout.runs, layout.runs, 22, 3)
    assert (plan.leaves, plan.built) == ((), ())


def test_a_gap_gets_one_run_and_an_unsound_run_is_built_where_it_is() -> None:
    runs = [Run(0, 2, 1), Run(3, 5, 1), Run(6, 6, 0), Run(7, 7, 0)]
    plan = plan_layout([runs[0], *runs[2:]], [runs[0], runs[3]], 7, 2)
    assert plan.built == (Run(3, 5, 1), runs[2])
    assert plan.leaves == (runs[2],)


@settings(max_examples=200, deadline=None)
@given(data=st.data(), steps=st.integers(1, 30), kappa=st.integers(2, 4))
def test_runs_are_joined_where_neighbours_of_a_level_have_no_row_left(
    data: st.DataObject, steps: int, kappa: int
) -> None:
    """Of the runs that lose rows some have none left: what is written and what stays is a layout."""
    runs = Layout.of_loads(steps, kappa).runs
    left = {step: data.draw(st.sampled_from([0, 0, 0, 5])) for step in range(steps)}
    losing = [run for run in runs if data.draw(st.integers(0, 3))]
    joined = joined_runs({run: [] for run in losing}, left)
    assert [old for olds in joined.values() for old in olds] == losing
    Layout.of([*joined, *(run for run in runs if run not in losing)])
    for new, olds in joined.items():
        assert len(olds) == 1 or not any(left[step] for step in new.steps)
        assert {old.level for old in olds} == {new.level}
    for one, after in pairwise(joined):
        is_next = (one.last + 1, one.level) == (after.first, after.level)
        assert not is_next or any(left[step] for step in (*one.steps, *after.steps))
