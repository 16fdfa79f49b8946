"""Views: one measure, a measure by group, one key, or the companions at one moment, as immutable values.

History is the runs of a projection, seen through their marks. The live side is the ledger rows of the batches
that the loaded steps do not cover. A batch is in exactly one of the two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

from tidemark.warehouse.columns.keys import Key
from tidemark.warehouse.columns.tick_counts import TickCounts, sum_tick_counts
from tidemark.warehouse.columns.value_encoding import Measure
from tidemark.warehouse.events.reader import BatchRange
from tidemark.warehouse.ledger.live_summaries import LiveKeys, LiveRow
from tidemark.warehouse.projections.companion_cells import CellMarks, CompanionCells
from tidemark.warehouse.projections.key_counts import KeyCounts
from tidemark.warehouse.projections.key_marks import KeyMarks
from tidemark.warehouse.projections.sorted_groups import SortedGroups
from tidemark.warehouse.projections.sorted_values import SortedValues
from tidemark.warehouse.projections.span_marks import SpanMarks
from tidemark.warehouse.projections.value_marks import ValueMarks
from tidemark.warehouse.runs.projection import Projection

LiveCounts: TypeAlias = Mapping[tuple[BatchRange, int], int]  # by range of the ledger and tick


@dataclass(frozen=True)
class AnyView:
    """A projection at one moment: the marks of its runs, and which batches are live.

    versions      the versions of the tables read, by role (runs, steps, ledger); `removed` is the newest
                  removal by then, if there is one
    batches       the live ranges, including those without rows
    live_counts   the rows of `events` in the live batches
    """

    projection: Projection[Any]
    versions: Mapping[str, int]
    runs: tuple[Any, ...]
    batches: tuple[BatchRange, ...]
    live_counts: LiveCounts

    @property
    def root(self) -> str:
        """The path of the runs table, relative to the warehouse."""
        return self.projection.runs_table

    @property
    def live_ticks(self) -> list[int]:
        """The ticks of the live rows, with repetitions."""
        return [tick for _, tick in self.live_counts]


@dataclass(frozen=True)
class View(AnyView):
    """One measure at one moment, with the ledger rows of its live batches."""

    projection: SortedValues
    runs: tuple[ValueMarks, ...]
    live: tuple[LiveRow, ...]

    @property
    def measure(self) -> Measure:
        """The measure."""
        return self.projection.measure

    @cached_property
    def live_eps(self) -> float:
        """The largest eps of the live summaries: at most that of the warehouse, unless `alter` lowered it.

        The rank error of the live side together is a quarter of it.
        """
        return max((4 * row.sketch.eps for row in self.live), default=0.0)


@dataclass(frozen=True)
class GroupView(AnyView):
    """A measure by group at one moment."""

    projection: SortedGroups
    runs: tuple[SpanMarks, ...]

    @property
    def last_step(self) -> int:
        """The newest step in its history; -1 without steps."""
        return max((marks.run.last for marks in self.runs), default=-1)

    @property
    def measure(self) -> Measure:
        """The measure."""
        return self.projection.measure


@dataclass(frozen=True)
class CellsView(AnyView):
    """The companions at one moment.

    ledger    the ranges of each file of the ledger, by path
    removed   the newest removal whose rows the cells of history do not have
    """

    projection: CompanionCells
    runs: tuple[CellMarks, ...]
    ledger: Mapping[str, Sequence[BatchRange]]
    removed: int


@dataclass(frozen=True)
class KeysView(AnyView):
    """A key at one moment, with the ledger rows of its live batches."""

    projection: KeyCounts
    runs: tuple[KeyMarks, ...]
    live: tuple[LiveKeys, ...]

    @property
    def key(self) -> Key:
        """The key."""
        return self.projection.key

    @cached_property
    def history_counts(self) -> TickCounts:
        """The rows of all runs by tick."""
        return sum_tick_counts([run.totals for run in self.runs])
