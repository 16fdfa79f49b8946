"""A warehouse at one moment, as immutable values: history and the live side of each measure and of the key.

`snapshot_reader.py` reads them from the tables. History is the runs of a projection, seen through their
marks. The live side is the ledger rows of the batches that the loaded steps do not cover. A batch is in
exactly one of the two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias, TypeVar

from tidemark.warehouse.columns.keys import Key
from tidemark.warehouse.columns.tick_counts import TickCounts, sum_tick_counts
from tidemark.warehouse.columns.value_encoding import Measure
from tidemark.warehouse.delta.data_files import DataFile
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.errors import TidemarkError
from tidemark.warehouse.events.reader import BatchRange
from tidemark.warehouse.ledger.live_summaries import LiveKeys, LiveRow
from tidemark.warehouse.projections.key_counts import KeyCounts
from tidemark.warehouse.projections.key_marks import KeyMarks
from tidemark.warehouse.projections.sorted_groups import SortedGroups
from tidemark.warehouse.projections.span_marks import SpanMarks
from tidemark.warehouse.projections.value_marks import ValueMarks
from tidemark.warehouse.settings.options import Options
from tidemark.warehouse.snapshots.system_tables import Contents

V = TypeVar("V", bound="View | GroupView | KeysView")

LiveCounts: TypeAlias = Mapping[tuple[BatchRange, int], int]  # by range of the ledger and tick


@dataclass(frozen=True)
class View:
    """One measure at one moment: the marks of its runs, and the ledger rows of its live batches.

    `versions` are the versions of the tables read, by role (runs, steps, ledger). `root` is the path of the
    runs table, relative to the warehouse. `batches` are the live ranges, including those without rows.
    `ledger` are the ranges of each file of the ledger, by path.
    """

    measure: Measure
    versions: Mapping[str, int]
    runs: tuple[ValueMarks, ...]
    root: str
    batches: tuple[BatchRange, ...]
    live: tuple[LiveRow, ...]
    ledger: Mapping[str, Sequence[BatchRange]] = field(default_factory=dict, compare=False)

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


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A warehouse at one moment. It is immutable: later loads, merges and maintenance do not change it.

    Its files stay readable for the grace period after they leave their table.

    store         where the warehouse lies
    options       the options of the warehouse, and its columns
    identity      the id of the table `events`: it differs from that of another warehouse at the same place
    views         the view of each measure, by the measure's name; of a damaged one the error
    group_views   the view of each measure by each group; if it lacks steps, the error `group_view` raises
    keys          the view of each key; if it lacks steps, the error that `keys_view` raises
    older_keys    views of keys up to a step, where a measure by group lacks newer ones
    system_tables what `contents` returns
    facts         what `info` returns
    event_files   what `SnapshotReader.event_files` returns
    """

    store: Store
    options: Options
    identity: str
    views: Mapping[str, View | TidemarkError]
    group_views: Mapping[SortedGroups, GroupView | TidemarkError]
    keys: Mapping[KeyCounts, KeysView | TidemarkError]
    older_keys: Mapping[tuple[KeyCounts, int], KeysView | TidemarkError]
    system_tables: Contents
    facts: Mapping[str, Any]
    event_files: Callable[[Sequence[BatchRange]], list[DataFile]]

    def refresh(self, *_: Any, **__: Any) -> bool:
        """Does nothing and returns False: a snapshot is immutable."""
        return False

    def refresh_events(self) -> bool:
        """Does nothing and returns False."""
        return False

    def refresh_options(self, **__: Any) -> bool:
        """Does nothing and returns False."""
        return False

    def pinned(self) -> Snapshot:
        """This snapshot itself."""
        return self

    def view(self, measure: str | None = None) -> View:
        """The view of a measure, of the first one if None; InputError for an unknown name."""
        return _unless_error(self.views[self.options.measure(measure).name])

    def group_view(self, projection: SortedGroups) -> GroupView:
        """The view of a measure by group; InputError if steps are missing in it."""
        return _unless_error(self.group_views[projection])

    def keys_view(self, columns: Any = None, *, last_step: int | None = None) -> KeysView:
        """The view of the key with these columns, of the first key if None.

        last_step: the newest step that it has, that of the view of a measure by group; None for all steps.

        InputError if the warehouse has no such key or no rows yet.
        """
        counts = self.options.key_count(columns)
        older = None if last_step is None else self.older_keys.get((counts, last_step))
        return _unless_error(older or self.keys[counts])

    def contents(self) -> Contents:
        """The batches, steps and runs."""
        return self.system_tables

    def info(self) -> Mapping[str, Any]:
        """Steps, runs by level and bytes of each measure and of the key, live batches, table versions."""
        return self.facts


def _unless_error(view: V | TidemarkError) -> V:
    if isinstance(view, TidemarkError):
        raise view
    return view
