"""Views: one measure, a measure by group, or one key at one moment, as immutable values.

History is the runs of a projection, seen through their marks. The live side is the ledger rows of the batches
that the loaded steps do not cover. A batch is in exactly one of the two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from tidemark.warehouse.columns.keys import Key
from tidemark.warehouse.columns.tick_counts import TickCounts, sum_tick_counts
from tidemark.warehouse.columns.value_encoding import Measure
from tidemark.warehouse.events.reader import BatchRange
from tidemark.warehouse.ledger.live_summaries import LiveKeys, LiveRow
from tidemark.warehouse.projections.companion_cells import CellMarks, CompanionCells
from tidemark.warehouse.projections.key_counts import KeyCounts
from tidemark.warehouse.projections.key_marks import KeyMarks
from tidemark.warehouse.projections.sorted_groups import SortedGroups
from tidemark.warehouse.projections.span_marks import SpanMarks
from tidemark.warehouse.projections.value_marks import ValueMarks

LiveCounts: TypeAlias = Mapping[tuple[BatchRange, int], int]  # by range of the ledger and tick


@dataclass(frozen=True)
class View:
    """One measure at one moment: the marks of its runs, and the ledger rows of its live batches.

    `versions` are the versions of the tables read, by role (runs, steps, ledger). `root` is the path of the
    runs table, relative to the warehouse. `batches` are the live ranges, including those without rows.
    """

    measure: Measure
    versions: Mapping[str, int]
    runs: tuple[ValueMarks, ...]
    root: str
    batches: tuple[BatchRange, ...]
    live: tuple[LiveRow, ...]

    @cached_property
    def live_counts(self) -> LiveCounts:
        """The rows of `events` in the live batches."""
        return {(row.batches, row.tick): row.rows for row in self.live}

    @property
    def live_ticks(self) -> list[int]:
        """The ticks of the live rows, with repetitions."""
        return [row.tick for row in self.live]


@dataclass(frozen=True, slots=True)
class GroupView:
    """A measure by group at one moment: the marks of its runs, and which batches are live.

    `live_counts` are the rows of `events` in the live batches, by range and tick, as the ledger has them. The
    other fields mean the same as those of `View`.
    """

    projection: SortedGroups
    versions: Mapping[str, int]
    runs: tuple[SpanMarks, ...]
    batches: tuple[BatchRange, ...]
    live_counts: LiveCounts

    @property
    def last_step(self) -> int:
        """The newest step in its history; -1 without steps."""
        return max((marks.run.last for marks in self.runs), default=-1)

    @property
    def measure(self) -> Measure:
        """The measure."""
        return self.projection.measure

    @property
    def root(self) -> str:
        """The path of the runs table, relative to the warehouse."""
        return self.projection.runs_table

    @property
    def live_ticks(self) -> list[int]:
        """The ticks of the live rows, with repetitions."""
        return [tick for _, tick in self.live_counts]


@dataclass(frozen=True, slots=True)
class CellsView:
    """The companions at one moment: the marks of their runs, and which batches are live.

    `ledger` are the ranges of each file of the ledger, by path. The other fields mean the same as those of
    `GroupView`.
    """

    projection: CompanionCells
    versions: Mapping[str, int]
    runs: tuple[CellMarks, ...]
    batches: tuple[BatchRange, ...]
    live_counts: LiveCounts
    ledger: Mapping[str, Sequence[BatchRange]]

    @property
    def root(self) -> str:
        """The path of the runs table, relative to the warehouse."""
        return self.projection.runs_table

    @property
    def live_ticks(self) -> list[int]:
        """The ticks of the live rows, with repetitions."""
        return [tick for _, tick in self.live_counts]


@dataclass(frozen=True)
class KeysView:
    """A key at one moment: the marks of its runs, and the ledger rows of its live batches.

    The fields mean the same as those of `View`.
    """

    projection: KeyCounts
    versions: Mapping[str, int]
    runs: tuple[KeyMarks, ...]
    batches: tuple[BatchRange, ...]
    live: tuple[LiveKeys, ...]

    @property
    def key(self) -> Key:
        """The key."""
        return self.projection.key

    @property
    def root(self) -> str:
        """The path of the runs table, relative to the warehouse."""
        return self.projection.runs_table

    @cached_property
    def live_counts(self) -> LiveCounts:
        """The rows of `events` in the live batches."""
        return {(row.batches, row.tick): row.rows + row.nulls for row in self.live}

    @cached_property
    def history_counts(self) -> TickCounts:
        """The rows of all runs by tick."""
        return sum_tick_counts([run.totals for run in self.runs])

    @property
    def live_ticks(self) -> list[int]:
        """The ticks of the live rows, with repetitions."""
        return [row.tick for row in self.live]


AnyView: TypeAlias = View | GroupView | CellsView | KeysView
