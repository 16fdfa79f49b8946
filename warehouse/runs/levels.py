"""The layout of history: leveled sorted runs, and the size-tiered merges that limit their number.

History is a sequence of runs. Each run covers a range of steps. The ranges partition 0..last_step, and older
steps are at higher levels. A load adds a run of one step at level 0. When a level has more than kappa runs,
all of them are merged into one run of the next level, which may then overflow, too. `plan_merge` follows
this cascade to its end and returns one merge with all inputs. So each row is rewritten once, directly to its
final level.

    kappa = 2, one load a step:  0 | 0 1 | 0 1 2 -> [0-2] | [0-2] 3 | [0-2] 3 4 | [0-2] [3-5] ...

Source: Singh's thesis (2015), section 4.4.1, Algorithms 8 and 9. All functions here are pure.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from tidemark.warehouse.errors import DamagedWarehouse

REMEDY = "Run `tidemark repair` to build them again from events."

_NAME = re.compile(r"L(\d{2})-(\d{10})-(\d{10})")


@dataclass(frozen=True, slots=True, order=True)
class Run:
    """A sorted partition of history: the steps `first` to `last`, both inclusive, at a level."""

    first: int
    last: int
    level: int

    @property
    def name(self) -> str:
        """The partition value in the runs table."""
        return f"L{self.level:02d}-{self.first:010d}-{self.last:010d}"

    @property
    def steps(self) -> range:
        """Its steps, ascending."""
        return range(self.first, self.last + 1)

    @classmethod
    def parse(cls, name: str) -> Run:
        """The run with this partition value; DamagedWarehouse if it does not parse."""
        match = _NAME.fullmatch(name)
        if match is None:
            raise DamagedWarehouse(f"not a run: {name!r}. Expected L<level>-<first>-<last>.")
        return cls(first=int(match[2]), last=int(match[3]), level=int(match[1]))


@dataclass(frozen=True, slots=True)
class Layout:
    """The runs of one table, oldest first."""

    runs: tuple[Run, ...]

    @classmethod
    def of(cls, runs: Iterable[Run], table: str = "") -> Layout:
        """The layout of these runs, in any order; DamagedWarehouse if they break the invariants.

        table   the runs table that has them, for the error
        """
        layout = cls(tuple(sorted(runs)))
        layout.check_invariants(table)
        return layout

    @classmethod
    def of_loads(cls, steps: int, kappa: int) -> Layout:
        """The layout that so many loads of one step leave. O(steps * kappa)."""
        layout = cls(())
        for _ in range(steps):
            layout = cls((*layout.runs, layout.add_step()))
            while (merge := plan_merge(layout, kappa)) is not None:
                layout = layout.apply(merge)
        return layout

    @property
    def last_step(self) -> int:
        """The newest step in history; -1 if history is empty."""
        return self.runs[-1].last if self.runs else -1

    def levels(self) -> dict[int, int]:
        """The number of runs of each level that has any."""
        return dict(Counter(run.level for run in self.runs))

    def check_invariants(self, table: str = "") -> None:
        """The step ranges partition 0..last_step, and levels do not rise towards newer steps."""
        expected, of_table = 0, f" of the table {table}" if table else ""
        for run in self.runs:
            if run.first != expected or run.last < run.first:
                raise DamagedWarehouse(
                    f"runs{of_table} do not partition the steps: expected step {expected}, found {run.name}. "
                    f"{REMEDY}"
                )
            expected = run.last + 1
        levels = [run.level for run in self.runs]
        if levels != sorted(levels, reverse=True):
            names = [run.name for run in self.runs]
            raise DamagedWarehouse(f"levels{of_table} rise towards newer steps: {names}. {REMEDY}")

    def add_step(self) -> Run:
        """The run that the next load adds."""
        return Run(first=self.last_step + 1, last=self.last_step + 1, level=0)

    def apply(self, merge: Merge) -> Layout:
        """The layout after a merge."""
        return Layout.of([run for run in self.runs if run not in merge.inputs] + [merge.output])


@dataclass(frozen=True, slots=True)
class Merge:
    """Replaces adjacent runs, oldest first, by one run."""

    inputs: tuple[Run, ...]
    output: Run


def plan_merge(layout: Layout, kappa: int) -> Merge | None:
    """The merge of the lowest level that has more than kappa runs; None if there is no such level.

    If its output makes the next level overflow, the runs of that level become inputs, too, and so on.
    """
    overflowing = [level for level, count in layout.levels().items() if count > kappa]
    if not overflowing:
        return None
    level = min(overflowing)
    inputs = [run for run in layout.runs if run.level == level]
    while True:
        level += 1
        older = [run for run in layout.runs if run.level == level]
        if len(older) + 1 <= kappa:
            break
        inputs = older + inputs
    return Merge(tuple(inputs), Run(first=inputs[0].first, last=inputs[-1].last, level=level))


def merging_runs(layout: Layout, kappa: int) -> list[Run]:
    """The runs that an earlier merge, which is not committed yet, may be reading.

    kappa   the smallest kappa that a merge may have been planned with

    The inputs of such a merge are still there. So the level where it begins has more than kappa runs, and
    each further level that it takes in has kappa at least.
    """
    levels, reading = layout.levels(), set[int]()
    for level in sorted(levels):
        if levels[level] > kappa - (level - 1 in reading):
            reading.add(level)
    return [run for run in layout.runs if run.level in reading]
