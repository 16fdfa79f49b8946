"""The layout of history: leveled sorted runs, and the merges that keep it small.

History is a sequence of runs. Each covers a range of steps; the ranges partition 0..last_step,
and older steps lie at higher levels. A load adds a run of one step at level 0. A level that
holds more than kappa runs is merged, whole, into one run of the next level, which may then
overflow in turn. `plan_merge` follows that cascade to its end and names the inputs once, so
that rows are rewritten to their final level in one pass instead of one pass a level.

    kappa = 2, one load a step:  0 | 0 1 | 0 1 2 -> [0-2] | [0-2] 3 | [0-2] 3 4 | [0-2] [3-5] ...

Source: Singh's thesis (2015), section 4.4.1, Algorithms 8 and 9. Everything here is pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from tidemark.warehouse.errors import DamagedWarehouse

_NAME = re.compile(r"L(\d{2})-(\d{10})-(\d{10})")


@dataclass(frozen=True, slots=True, order=True)
class Run:
    """A sorted partition of history: the steps first..last, both inclusive, at a level."""

    first: int
    last: int
    level: int

    @property
    def name(self) -> str:
        """The partition value in the runs table."""
        return f"L{self.level:02d}-{self.first:010d}-{self.last:010d}"

    @classmethod
    def parse(cls, name: str) -> Run:
        """The run of a partition value."""
        found = _NAME.fullmatch(name)
        if found is None:
            raise DamagedWarehouse(f"not a run: {name!r}. Expected L<level>-<first>-<last>.")
        return cls(first=int(found[2]), last=int(found[3]), level=int(found[1]))


@dataclass(frozen=True, slots=True)
class Layout:
    """The runs of one table, oldest first."""

    runs: tuple[Run, ...]

    @classmethod
    def of(cls, runs: Iterable[Run]) -> Layout:
        """The layout of runs in any order; checked."""
        layout = cls(tuple(sorted(runs)))
        layout.check_invariants()
        return layout

    @property
    def last_step(self) -> int:
        """The newest step in history, -1 where there is none."""
        return self.runs[-1].last if self.runs else -1

    def levels(self) -> dict[int, int]:
        """How many runs each level holds."""
        counts: dict[int, int] = {}
        for run in self.runs:
            counts[run.level] = counts.get(run.level, 0) + 1
        return counts

    def check_invariants(self) -> None:
        """The step ranges partition 0..last_step, and levels do not rise towards newer steps."""
        expected = 0
        for run in self.runs:
            if run.first != expected or run.last < run.first:
                raise DamagedWarehouse(
                    f"runs do not partition the steps: expected step {expected}, found {run.name}."
                )
            expected = run.last + 1
        levels = [run.level for run in self.runs]
        if levels != sorted(levels, reverse=True):
            raise DamagedWarehouse(f"levels rise towards newer steps: {[run.name for run in self.runs]}.")

    def add_step(self) -> Run:
        """The run that the next load adds."""
        return Run(first=self.last_step + 1, last=self.last_step + 1, level=0)

    def apply(self, merge: Merge) -> Layout:
        """The layout after a merge."""
        return Layout.of([run for run in self.runs if run not in merge.inputs] + [merge.output])

    def allows(self, merge: Merge) -> bool:
        """Whether the merge's inputs are all still here."""
        return set(merge.inputs) <= set(self.runs)


@dataclass(frozen=True, slots=True)
class Merge:
    """Runs that are next to each other become one."""

    inputs: tuple[Run, ...]
    output: Run


def plan_merge(layout: Layout, kappa: int) -> Merge | None:
    """The merge that leaves no level with more than kappa runs; None where none is needed.

    The lowest level that overflows is merged into the next; where that level then overflows,
    its runs join the inputs, and so on.
    """
    over = [level for level, count in layout.levels().items() if count > kappa]
    if not over:
        return None
    level = min(over)
    inputs = [run for run in layout.runs if run.level == level]
    while True:
        level += 1
        above = [run for run in layout.runs if run.level == level]
        if len(above) + 1 <= kappa:
            break
        inputs = above + inputs
    return Merge(tuple(inputs), Run(first=inputs[0].first, last=inputs[-1].last, level=level))
