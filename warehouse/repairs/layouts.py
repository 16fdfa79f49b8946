"""Which runs of a table stay, which leave it, and which are built again: pure planning.

    present, sound   the runs that the table names, and those of them whose files and marks are as written
    stays            sound runs that partition the steps from 0 on, together with the runs that are built
    built            unsound runs, as they were; one run for each gap between runs
    leaves           runs of steps without a plan, and runs whose steps an older run has

Levels never rise towards newer steps, so a run for a gap takes a level between those of its neighbours. If
no run is left, or those that are left are the first ones of the layout that a load of each step would leave
(`Layout.of_loads`), then the other runs of this layout are built. Otherwise a load adds the steps after the
last run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from tidemark.warehouse.runs.levels import Layout, Run


@dataclass(frozen=True, slots=True)
class LayoutPlan:
    """`leaves` are removed from the table; `built` are made from events. A run may be in both."""

    leaves: tuple[Run, ...]
    built: tuple[Run, ...]


def plan_layout(present: Collection[Run], sound: Collection[Run], last_step: int, kappa: int) -> LayoutPlan:
    """The plan for a table whose planned steps are 0 to `last_step`, inclusive; -1 if there are none."""
    kept: list[Run] = []
    for run in sorted(present, key=lambda run: (run.first, -run.last)):
        after = kept[-1].last if kept else -1
        falls = not kept or run.level <= kept[-1].level
        if after < run.first <= run.last <= last_step and falls:
            kept.append(run)
    built = [run for run in kept if run not in sound]
    whole = Layout.of_loads(last_step + 1, kappa).runs
    built += whole[len(kept) :] if tuple(kept) == whole[: len(kept)] else _gaps(kept)
    leaves = [run for run in present if run not in kept or run not in sound]
    return LayoutPlan(tuple(sorted(leaves)), tuple(sorted(built)))


def _gaps(kept: list[Run]) -> Iterator[Run]:
    expected, level_before = 0, None
    for run in kept:
        if run.first > expected:
            level = run.level + (run.first - expected > 1)
            yield Run(expected, run.first - 1, level if level_before is None else min(level, level_before))
        expected, level_before = run.last + 1, run.level
