"""A warehouse at one moment: history and the live side of each measure, group and key.

A part is read on first use, from files that stay readable for the grace period after they left their table.
`SnapshotReader.pinned` reads all parts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any, TypeAlias

from deltalake import DeltaTable

from tidemark.warehouse.columns.value_encoding import Measure
from tidemark.warehouse.delta.data_files import DataFile
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import LEDGER, STEPS
from tidemark.warehouse.errors import DamagedWarehouse, InputError, NotBuilt
from tidemark.warehouse.events.reader import BatchRange
from tidemark.warehouse.events.removals import NONE
from tidemark.warehouse.events.steps import planned_batches
from tidemark.warehouse.ledger import ledger_table, live_summaries
from tidemark.warehouse.ledger.live_summaries import LiveKeys, LiveRow
from tidemark.warehouse.projections.companion_cells import CompanionCells
from tidemark.warehouse.projections.key_counts import KeyCounts
from tidemark.warehouse.projections.sorted_groups import SortedGroups
from tidemark.warehouse.projections.sorted_values import SortedValues
from tidemark.warehouse.runs import run_tables
from tidemark.warehouse.runs.levels import Run
from tidemark.warehouse.runs.projection import Projection
from tidemark.warehouse.settings.options import Options
from tidemark.warehouse.snapshots.behind import StepsTold, behind_text, check_removed
from tidemark.warehouse.snapshots.facts import facts_of
from tidemark.warehouse.snapshots.kept_rows import KeptRows, read_kept, waiting_of
from tidemark.warehouse.snapshots.late_summaries import late_keys, late_rows
from tidemark.warehouse.snapshots.needed import Needed
from tidemark.warehouse.snapshots.newest_tables import EventFiles
from tidemark.warehouse.snapshots.quiet_logs import NO_LOGS, QuietLogs
from tidemark.warehouse.snapshots.system_tables import Contents
from tidemark.warehouse.snapshots.table_state import TableState
from tidemark.warehouse.snapshots.views import CellsView, GroupView, KeysView, LiveCounts, View

_ROWS: Mapping[type, str] = {SortedValues: "values", KeyCounts: "keys"}  # of a projection, in words
_History: TypeAlias = tuple[Mapping[str, int], tuple[Any, ...]]  # versions and marks, as views have them


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A warehouse at one moment: later loads, merges and maintenance do not change it.

    state    the files of its tables
    events   where the files of `events` are found
    told     which steps its tables have, if one lacks steps that another has
    """

    state: TableState
    events: EventFiles
    told: StepsTold | None = None
    _views: dict[Any, Any] = field(default_factory=dict, init=False)

    @property
    def store(self) -> Store:
        """Where the warehouse lies."""
        return self.state.store

    @property
    def options(self) -> Options:
        """The options of the warehouse, and its columns."""
        return self.state.options

    @property
    def sites(self) -> tuple[Snapshot, ...]:
        """The snapshot of each warehouse: this one."""
        return (self,)

    @property
    def identity(self) -> str:
        """The id of the table `events`: it differs from that of another warehouse at the same place."""
        return self.state.identity

    def quiet(self, needed: Needed) -> QuietLogs:  # noqa: ARG002  as SnapshotReader
        """No logs: a snapshot is immutable."""
        return NO_LOGS

    def newest(self, needed: Needed, *, max_age: float = 0.0) -> Snapshot:  # noqa: ARG002  as SnapshotReader
        """This snapshot itself, which is immutable."""
        return self

    def refresh(self, *_: Any, **__: Any) -> bool:
        """Does nothing and returns False: a snapshot is immutable."""
        return False

    refresh_events = refresh_options = refresh

    @property
    def seen(self) -> Snapshot:
        """This snapshot itself."""
        return self

    def pinned(self) -> Snapshot:
        """This snapshot itself."""
        return self

    def event_files(self, batches: Sequence[BatchRange]) -> list[DataFile]:
        """The files of `events` that may have rows of these batches, at a version that has all of them.

        The batches were live at this moment or before it, so at that version none of their rows was removed.
        """
        return self.events.event_files(batches, self.state.removed.before(batches))

    def list_events(self) -> Sequence[DataFile]:
        """The files of `events` at its newest version with no removal after this moment."""
        return self.events.list_events(self.state.removed.number)

    def table(self, name: str) -> DeltaTable | None:
        """A runs table, the steps or the ledger; None if it does not exist."""
        found = self.state.files.get(name)
        return None if found is None else found.table

    def behind(self) -> str:
        """Which projections lack planned steps, in words, empty if none does.

        DamagedWarehouse if the log of a runs table, or of the plans, is behind the others.
        """
        if self.told is None:
            return ""
        for one in self.told.projections:
            self.told.check(one.runs_table)
        return behind_text(self.told.behind())

    def read_all(self) -> None:
        """Reads all parts; those that cannot be read raise their errors when they are asked for."""
        for measure in self.options.measures:
            with suppress(InputError, DamagedWarehouse):
                self.view(measure.name)
        for counts in self.options.key_counts:
            with suppress(InputError, DamagedWarehouse):
                self.keys_view(counts.key.columns)
        for projection in self.options.sorted_groups:
            with suppress(InputError, DamagedWarehouse):
                self.keys_beside(self.group_view(projection))
        if self.options.companions:
            with suppress(InputError, DamagedWarehouse):
                self.cells_view()
        self.contents()
        self.info()

    def view(self, measure: str | None = None) -> View:
        """The view of a measure, of the first one if None.

        InputError for an unknown name; NotBuilt if the values of old steps are not loaded.
        """
        column = self.options.measure(measure)
        known: View | None = self._views.get(column.name)
        if known is None:
            known = self._views[column.name] = self._read_view(column)
        return known

    def group_view(self, projection: SortedGroups) -> GroupView:
        """The view of a measure by group; NotBuilt if steps were loaded before the group was declared."""
        known: GroupView | None = self._views.get(projection)
        if known is None:
            own: SortedGroups = self.options.own_group(projection)
            known = self._views[own] = self._read_group_view(own)
        return known

    def cells_view(self) -> CellsView:
        """The view of the companions; EmptyWindow until the columns are known."""
        self.options.measure()
        projection = CompanionCells(companions=self.options.companions)
        known: CellsView | None = self._views.get(projection)
        if known is None:
            known = self._views[projection] = self._read_cells_view(projection)
        return known

    def keys_view(self, columns: Any = None, *, last_step: int | None = None) -> KeysView:
        """The view of the key with these columns, of the first key if None.

        last_step: the newest step that it has, that of the view of a measure by group; None for all steps.
            A load commits a step to the keys before it commits it to the groups.

        InputError if the warehouse has no such key or no rows yet; NotBuilt if the keys of old steps are not
        loaded.
        """
        projection = self.options.key_count(columns)
        runs = self.state.files[projection.runs_table].layout.runs
        newest = runs[-1].last if runs else -1
        if last_step is None or any(run.first <= last_step < run.last for run in runs):  # merged already
            last_step = newest
        place = projection, min(last_step, newest)
        known: KeysView | None = self._views.get(place)
        if known is None:
            known = self._views[place] = self._read_keys_view(*place)
        return known

    def keys_beside(self, view: GroupView) -> KeysView:
        """The view of the key of a group, with the steps of this view of a measure by the group."""
        columns = [key.name for key in view.projection.keys]
        return self.keys_view(columns, last_step=view.last_step)

    def marks_with_rows(self, projection: Projection[Any]) -> tuple[Any, ...]:
        """As `marks`, without the runs of which no row is left: their files may still have some."""
        return self.marks(projection, self.state.emptied(projection.runs_table))

    def marks(self, projection: Projection[Any], without: Set[Run] = frozenset()) -> tuple[Any, ...]:
        """The marks of every other run of the projection; those that an earlier snapshot read are kept."""
        table, root, parts = self.state.files[projection.runs_table], projection.runs_table, self.state.parts
        previous, current = parts.marks.get(root, {}), {}
        for run in table.layout.runs:
            if run in without:
                continue
            path = table.runs[run][0].path
            known = previous.get(path)
            current[path] = known or run_tables.read_marks(self.store, projection, run, table.runs[run])
        parts.marks[root] = current
        return tuple(current.values())

    def kept(self, projection: Projection[Any], last_step: int | None = None) -> KeptRows[Any] | None:
        """The rows that left and that runs still have, up to a step (by default all); None if there are none.

        The rows of runs of which no row is left are not among them. The projection was compared with the
        removals before this call. DamagedWarehouse if the file of a removal with such rows is missing or
        damaged.
        """
        state, table = self.state, self.state.files[projection.runs_table]
        last = table.layout.last_step if last_step is None else last_step
        removed, emptied = state.shown(projection.runs_table), state.emptied(projection.runs_table)
        runs = {run: files for run, files in table.runs.items() if run not in emptied}
        waiting = waiting_of(removed, runs, last)
        if not waiting:
            state.parts.kept.pop(projection.runs_table, None)
            return None
        known = state.parts.kept.get(projection.runs_table)
        if known is None or known[0] != waiting or known[1].projection != projection:  # or renamed
            known = waiting, read_kept(state.store, projection, waiting)
            state.parts.kept[projection.runs_table] = known
        return known[1]

    def _removals(self, projection: Projection[Any], last_step: int | None = None) -> dict[str, Any]:
        shown = self.state.removed_of(projection.runs_table)
        return {"kept": self.kept(projection, last_step), "is_behind": shown != self.state.removed.number}

    def contents(self) -> Contents:
        """The batches, steps and runs.

        While a load commits a step to one projection after the other, it is in history once a measure has it.
        """
        return self._contents

    def info(self) -> dict[str, Any]:
        """Steps, runs by level and bytes of each measure and of the key, live batches, table versions."""
        return self._info

    def are_built(self, needed: Needed) -> bool:
        """Whether the views of keys and groups have all steps that were loaded."""
        for projection in needed.projections(self.options):
            if projection in self._views:  # checked when it was read
                continue
            self._check_fits(projection)
            if self._unbuilt(projection):
                return False
        return True

    @cached_property
    def _contents(self) -> Contents:
        state, view = self.state, self._newest_view()
        last_step = state.files[view.root].layout.last_step
        loaded = [plan for plan in state.plans if plan.step <= last_step]
        counts = state.removed.parts({batches: rows for plan in loaded for batches, rows in plan.parts})
        live = Counter(dict.fromkeys(view.batches, 0))
        for row in view.live:
            live[row.batches] += row.rows
        return Contents(
            store=self.store,
            options=self.options,
            last_step=last_step,
            history=tuple(planned_batches(loaded)),
            live=view.batches,
            counts=counts | live,
            steps=state.step_rows,
            runs=tuple((one.title, state.files[one.runs_table].runs) for one in self.options.projections),
            emptied={one.title: state.emptied(one.runs_table) for one in self.options.projections},
            events=self.events,
            removed=state.removed.number,
        )

    @cached_property
    def _info(self) -> dict[str, Any]:
        return facts_of(self.state, self.told, self._newest_view() if self.options.measures else None)

    def _newest_view(self) -> View:
        """The view of the measure with the newest step; EmptyWindow until the columns are known."""
        self.options.measure()
        tables = {one.name: self.state.files[SortedValues(one).runs_table] for one in self.options.measures}
        return self.view(max(tables, key=lambda name: tables[name].layout.last_step))

    def _read_view(self, measure: Measure) -> View:
        values = SortedValues(measure)
        self._check_built(values)
        pending, history, batches = self._split(values)
        live = self._live_rows(measure, batches, pending)
        counts = _row_counts(live)
        return View(values, *history, batches, counts, live, **self._removals(values))

    def _read_cells_view(self, projection: CompanionCells) -> CellsView:
        self._check_fits(projection)
        pending, history, batches = self._split(projection)
        counts = _row_counts(self._live_rows(self.options.measure(), batches, pending))
        removed = check_removed(self.state, projection)
        ledger, left = self.state.ledger_ranges, self._removals(projection)
        return CellsView(projection, *history, batches, counts, ledger, removed, **left)

    def _read_group_view(self, projection: SortedGroups) -> GroupView:
        self._check_built(projection)
        pending, history, batches = self._split(projection)
        counts = _row_counts(self._live_rows(projection.measure, batches, pending))
        last_step = self.state.files[projection.runs_table].layout.last_step
        left = self._removals(projection)
        return GroupView(projection, *history, batches, counts, last_step=last_step, **left)

    def _read_keys_view(self, counts: KeyCounts, last_step: int) -> KeysView:
        self._check_built(counts)
        pending, history, batches = self._split(counts, last_step)
        live = self._live_keys(batches, counts, pending)
        rows = {(row.batches, row.tick): row.rows + row.nulls for row in live}
        return KeysView(counts, *history, batches, rows, live, **self._removals(counts, last_step))

    def _split(
        self, projection: Projection[Any], last_step: int | None = None
    ) -> tuple[dict[BatchRange, int], _History, tuple[BatchRange, ...]]:
        """The pending batches, history up to `last_step`, by default to its end, and the live batches."""
        if last_step is None:
            last_step = self.state.files[projection.runs_table].layout.last_step
        pending = self._pending(last_step)
        names = {"runs": projection.runs_table, "steps": STEPS, "ledger": LEDGER}
        versions = {role: self.state.files[name].version for role, name in names.items()}
        if self.state.removed.number != NONE:
            versions["removed"] = self.state.removed.number
        if self.told is not None and pending:
            versions["begun"] = self.told.begun
        runs = tuple(marks for marks in self.marks_with_rows(projection) if marks.run.last <= last_step)
        return pending, (versions, runs), tuple(sorted([*self.state.live_ranges(last_step), *pending]))

    def _check_fits(self, projection: Projection[Any]) -> None:
        """DamagedWarehouse if the runs of the projection, or the plans, have fewer steps than others know.

        Runs of another format are reported first, because their steps are not known.
        """
        _ = self.state.files[projection.runs_table].layout
        if self.told is not None:
            self.told.check(projection.runs_table)
        check_removed(self.state, projection)

    def _check_built(self, projection: Projection[Any]) -> None:
        """NotBuilt if steps were loaded before the warehouse had this measure, key or group."""
        self._check_fits(projection)
        unbuilt = self._unbuilt(projection)
        if not unbuilt:
            return
        first, loaded = unbuilt[0], unbuilt[-1]
        steps = f"step {loaded}" if loaded == first else f"steps {first} to {loaded}"
        rows = _ROWS.get(type(projection), "groups")
        raise NotBuilt(
            f"the {rows} of {steps} are not in history yet ({projection.title}), which has "
            f"{first:,} of {loaded + 1:,} steps: they were loaded before {rows} were kept. Load once, "
            "for example with `tidemark load --from-stream`, or run the alter again, to add them."
        )

    def _unbuilt(self, projection: Projection[Any]) -> range:
        """The steps that were loaded before the warehouse had this measure, key or group, and that it lacks.

        A projection may be one step behind while a load commits it. If it is further behind, the rows of the
        missing steps are neither in its runs nor among the live batches, and counts would be too small. The
        same holds for a measure, key or group that was added later until it has the steps that were planned
        when it was added.
        """
        if self.told is None:  # it has all steps
            return range(0)
        loaded = max(one.last for one in self.told.projections)
        last_step = self.state.files[projection.runs_table].layout.last_step
        needed = min(self.options.built_from.get(projection.runs_table, -1), loaded)
        if loaded <= last_step + 1 and needed <= last_step:
            return range(0)
        return range(last_step + 1, loaded + 1)

    def _pending(self, last_step: int) -> dict[BatchRange, int]:
        """The batches, with their rows, that a projection with steps up to `last_step` has in `events` alone.

        They are planned, a load has begun to commit their step, and the ledger does not have them: those of
        a bulk load, which the projection lacks until the load goes on.
        """
        if self.told is None:
            return {}
        late = (plan for plan in self.state.plans if last_step < plan.step <= self.told.begun)
        parts = {batches: rows for plan in late for batches, rows in plan.parts}
        known = set(chain.from_iterable(self.state.ledger_ranges.values())) if parts else set()
        return {batches: rows for batches, rows in parts.items() if not any(map(batches.overlaps, known))}

    def _live_keys(
        self, batches: Sequence[BatchRange], counts: KeyCounts, pending: Mapping[BatchRange, int]
    ) -> tuple[LiveKeys, ...]:
        """The ledger rows of the ranges, seen from a key; only those of new ranges are read.

        The keys of `pending` ranges, which are given with their rows, are made from `events`.
        """
        field, known = counts.ledger_field, self.state.parts.keys
        previous = known.get(field, {})
        new = [batch_range for batch_range in batches if batch_range not in previous]
        found, uncounted = live_summaries.live_keys(self.store, self.state.ledger_ranges, new, field)
        for late, rows in (uncounted | {late: pending[late] for late in new if late in pending}).items():
            found += late_keys(self.store, self.options, counts, late, rows, self.event_files([late]))
        current = {batch_range: previous.get(batch_range, []) for batch_range in batches}
        for live in found:
            current[live.batches].append(live)
        known[field] = current
        return tuple(chain.from_iterable(current.values()))

    def _live_rows(
        self, measure: Measure, batches: Sequence[BatchRange], pending: Mapping[BatchRange, int]
    ) -> tuple[LiveRow, ...]:
        """As `_live_keys`, seen from a measure."""
        known, columns = self.state.parts.rows, live_summaries.MEASURE_COLUMNS
        previous = known.get(measure.stored_name, {})
        new = [batch_range for batch_range in batches if batch_range not in previous]
        stored = ledger_table.read_rows(self.store, self.state.ledger_ranges, new, columns)
        is_late = SortedValues(measure).runs_table in self.options.built_from
        found, uncounted = live_summaries.live_rows(stored, measure.stored_name, is_late=is_late)
        for late, rows in (uncounted | {late: pending[late] for late in new if late in pending}).items():
            found += late_rows(self.store, self.options, measure, late, rows, self.event_files([late]))
        current = {batch_range: previous.get(batch_range, []) for batch_range in batches}
        for row in found:
            current[row.batches].append(row)
        known[measure.stored_name] = current
        return tuple(chain.from_iterable(current.values()))


def _row_counts(live: Sequence[LiveRow]) -> LiveCounts:
    return {(row.batches, row.tick): row.rows for row in live}
