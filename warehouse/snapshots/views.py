"""Views: one measure, a measure by group, one key, or the companions at one moment, as immutable values.

History is the runs of a projection, seen through their marks. The live side is the ledger rows of the batches
that the loaded steps do not cover. A batch is in exactly one of the two.

A view over several warehouses (`united`) has the runs and the live side of all of them. They are disjoint
multisets of rows, as the runs of one warehouse are, so all that adds up over runs adds up over warehouses:
ranks, counts, floors of listings, samples of keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Any, Self, TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from tidemark.warehouse.columns.keys import Key
from tidemark.warehouse.columns.tick_counts import TickCounts, sum_tick_counts, tick_counts_without
from tidemark.warehouse.columns.ticks import Window
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
from tidemark.warehouse.snapshots.kept_rows import KeptRows, joined_kept

V = TypeVar("V", bound="AnyView")

LiveCounts: TypeAlias = Mapping[tuple[BatchRange, int], int]  # by range of the ledger and tick


@dataclass(frozen=True)
class AnyView:
    """A projection at one moment: the marks of its runs, and which batches are live.

    runs          its runs, without those of which no row is left
    versions      the versions of the tables read, by role (runs, steps, ledger); `removed` is the newest
                  removal by then, if there is one
    batches       the live ranges, including those without rows
    live_counts   the rows of `events` in the live batches
    kept          the rows that left and that the runs still have; None if there are none
    is_behind     whether the newest removal is not shown yet: a scan of `events` has other rows
    parts         of a view over several warehouses: the view of each, in their order. Then `versions` has the
                  versions of each warehouse by its name, and the names of sources begin with this name
    horizons      for each of the parts the tick before which its rows have expired; None if none has
    silent        what this process read last of warehouses that do not answer, by name. None of their rows is
                  among those above, and their parts are empty
    """

    projection: Projection[Any]
    versions: Mapping[str, Any]
    runs: tuple[Any, ...]
    batches: tuple[BatchRange, ...]
    live_counts: LiveCounts
    kept: KeptRows[Any] | None = field(default=None, kw_only=True)
    is_behind: bool = field(default=False, kw_only=True)
    parts: tuple[Any, ...] = field(default=(), kw_only=True)
    horizons: tuple[int | None, ...] = field(default=(), kw_only=True)
    silent: Mapping[str, SilentPart] = field(default_factory=dict, kw_only=True)

    @property
    def sites(self) -> tuple[Self, ...]:
        """The view of each warehouse: this one, unless it is over several."""
        return cast("tuple[Self, ...]", self.parts) or (self,)

    @property
    def with_silent(self) -> tuple[AnyView, ...]:
        """This view, and those of the warehouses that do not answer: their rows are disjoint."""
        return (self, *(one.view for one in self.silent.values()))

    @property
    def runs_versions(self) -> tuple[int, ...]:
        """The version of the runs table of each warehouse."""
        return tuple(site.versions["runs"] for site in self.sites)

    @property
    def root(self) -> str:
        """The path of the runs table, relative to the warehouse."""
        return self.projection.runs_table

    @cached_property
    def history_totals(self) -> Sequence[TickCounts]:
        """The rows of history by tick, in one or several parts: without kept rows."""
        totals = [run.totals for run in self.runs]
        return totals if self.kept is None else [tick_counts_without(totals, self.kept.totals)]

    @cached_property
    def sources(self) -> tuple[Any, ...]:
        """The objects that the bounds of history are computed from: the same ones while these bounds stay."""
        return self.runs if self.kept is None else (*self.runs, self.kept)

    def has_kept(self, window: Window) -> bool:
        """Whether kept rows lie in the window."""
        return self.kept is not None and any(self.kept.totals.within(window))

    @cached_property
    def rows_by_tick(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The ticks that have visible rows, ascending, and how many each has, with NaN and NULL."""
        totals = self.history_totals
        live = np.array([[tick, rows] for (_, tick), rows in self.live_counts.items()], np.int64)
        live = live.reshape(-1, 2)
        all_ticks = np.concatenate([live[:, 0], *(one.ticks for one in totals)])
        rows = [one.counts + one.nans + one.nulls for one in totals]
        ticks, places = np.unique(all_ticks, return_inverse=True)
        sums = np.zeros(len(ticks), np.int64)
        np.add.at(sums, places, np.concatenate([live[:, 1], *rows]))
        return ticks, sums

    @property
    def live_ticks(self) -> list[int]:
        """The ticks of the live rows, with repetitions."""
        return [tick for _, tick in self.live_counts]


@dataclass(frozen=True, eq=False)
class SilentPart:
    """A view of a warehouse that does not answer, and when it was read, in microseconds since 1970."""

    view: Any
    read_us: int


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
    """A measure by group at one moment; `last_step` is the newest step in its history, -1 without steps."""

    projection: SortedGroups
    runs: tuple[SpanMarks, ...]
    last_step: int = field(default=-1, kw_only=True)

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
        """The rows of history by tick."""
        return sum_tick_counts(self.history_totals)


def united(
    views: Mapping[str, V],
    horizons: Sequence[int | None] = (),
    silent: Mapping[str, SilentPart] | None = None,
) -> V:
    """The view over several warehouses, by name: the same projection, with the rows of all of them.

    horizons   for each warehouse the tick before which its rows have expired
    silent     by name, what was read last of those of them that do not answer: their rows are left out
    """
    silent = silent or {}
    views = {name: _emptied(view) if name in silent else view for name, view in views.items()}
    sides = [
        {one: BatchRange(f"{name} {one.source}", one.first, one.last) for one in view.batches}
        for name, view in views.items()
    ]
    live: list[Any] = [getattr(view, "live", None) for view in views.values()]
    own = {} if None in live else {"live": tuple(chain.from_iterable(live))}
    counts = {
        (side[batches], tick): rows
        for side, view in zip(sides, views.values(), strict=True)
        for (batches, tick), rows in view.live_counts.items()
    }
    first: Any = next(iter(views.values()))
    joined: V = replace(
        first,
        versions={name: dict(view.versions) for name, view in views.items()},
        runs=tuple(chain.from_iterable(view.runs for view in views.values())),
        batches=tuple(chain.from_iterable(side.values() for side in sides)),
        live_counts=counts,
        kept=joined_kept(first.projection, [view.kept for view in views.values() if view.kept is not None]),
        is_behind=any(view.is_behind for view in views.values()),
        parts=tuple(views.values()),
        horizons=tuple(horizons),
        silent=silent,
        **own,
    )
    return joined


def _emptied(view: V) -> V:
    live: dict[str, Any] = {"live": ()} if hasattr(view, "live") else {}
    emptied: V = replace(view, runs=(), batches=(), live_counts={}, kept=None, **live)
    return emptied
