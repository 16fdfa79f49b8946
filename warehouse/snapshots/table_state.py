"""The tables of a warehouse at the versions of one look: an immutable value, which the next look replaces.

What the tables say of steps and batches is read on first use, and stays readable after the tables moved on.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Any, Protocol

import pyarrow as pa
from deltalake import DeltaTable

from tidemark.warehouse.delta import data_files
from tidemark.warehouse.delta.data_files import DataFile
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import LEDGER, REMOVALS, STEPS
from tidemark.warehouse.errors import DamagedWarehouse
from tidemark.warehouse.events import removals, steps
from tidemark.warehouse.events.reader import BatchRange
from tidemark.warehouse.events.removals import NONE, NOTHING, Removed
from tidemark.warehouse.events.steps import StepPlan, newest_plan, planned_batches, plans_of_rows
from tidemark.warehouse.ledger import ledger_table
from tidemark.warehouse.ledger.live_summaries import LiveKeys, LiveRow
from tidemark.warehouse.runs import run_tables
from tidemark.warehouse.runs.levels import Layout, Run
from tidemark.warehouse.settings.options import Options, read_options
from tidemark.warehouse.snapshots.kept_rows import KeptRows, Waiting


class Looked(Protocol):
    """An open table; `checked` is when it was last looked at, in seconds of time.monotonic()."""

    checked: float


def are_recent(opened: Mapping[str, Looked], names: Iterable[str], max_age: float) -> bool:
    """Whether each table was looked at less than so many seconds ago."""
    moment = time.monotonic() - max_age
    return all(name in opened and opened[name].checked >= moment for name in names)


@dataclass(slots=True)
class Parts:
    """Immutable parts of the newest views, from which the next views take what they have in common.

    `marks` are by runs table, then by marks file; `rows` by measure, then by range; `keys` by key, then by
    range. `ranges` of ledger files, and the rows of `plans` and `removals`, are by path. `kept` are by
    runs table, each with what it was read for.
    """

    marks: dict[str, dict[str, Any]] = field(default_factory=dict)
    rows: dict[str, dict[BatchRange, list[LiveRow]]] = field(default_factory=dict)
    keys: dict[str, dict[BatchRange, list[LiveKeys]]] = field(default_factory=dict)
    ranges: ledger_table.RangeCache = field(default_factory=dict)
    plans: dict[str, pa.Table] = field(default_factory=dict)
    removals: dict[str, pa.Table] = field(default_factory=dict)
    kept: dict[str, tuple[Waiting, KeptRows[Any]]] = field(default_factory=dict)


@dataclass(frozen=True)
class TableFiles:
    """The files of a table at a version, -1 without a table. `table` itself moves on."""

    name: str
    table: DeltaTable | None
    version: int
    _found: Sequence[DataFile] | DamagedWarehouse

    @classmethod
    def of(cls, name: str, table: DeltaTable | None) -> TableFiles:
        """The files of the table as it is. If listing them fails, `files` raises the error."""
        if table is None:
            return cls(name, None, -1, ())
        try:
            return cls(name, table, table.version(), data_files.list_files(table))
        except DamagedWarehouse as error:
            return cls(name, table, table.version(), error)

    def is_of(self, table: DeltaTable | None) -> bool:
        """Whether these are the files of this table as it is."""
        return self.table is table and (table is None or self.version == table.version())

    @property
    def files(self) -> Sequence[DataFile]:
        """The files; DamagedWarehouse if a path leads out of the table's folder."""
        if isinstance(self._found, DamagedWarehouse):
            raise self._found
        return self._found

    @cached_property
    def runs(self) -> dict[Run, list[DataFile]]:
        """The files of a runs table by run; DamagedWarehouse if it has another format."""
        return run_tables.runs_of(self.table, self.files)

    @cached_property
    def layout(self) -> Layout:
        """The layout of a runs table."""
        return Layout.of(self.runs, self.name)


@dataclass(frozen=True)
class TableState:
    """The files of the tables that were looked at, by table, and the options of `events`.

    identity   the id of the table `events`: it differs from that of another warehouse at the same place
    removed    the removals up to the version of `events` that was looked at after the other tables
    """

    store: Store
    options: Options
    identity: str
    parts: Parts
    files: Mapping[str, TableFiles] = field(default_factory=dict)
    removed: Removed = NOTHING
    _complete: set[str] = field(default_factory=set, init=False)  # runs tables with all steps any table has
    _whole: dict[str, int] = field(default_factory=dict, init=False)  # by runs table, `removed_of`
    _left: dict[int, Counter[int]] = field(default_factory=dict, init=False)  # by number of the removal

    @classmethod
    def of(cls, store: Store, events: DeltaTable, parts: Parts | None = None) -> TableState:
        """The state before any table but `events` was looked at."""
        options = read_options(store, events)
        store = replace(store, names=options.names)
        return cls(store, options, str(events.metadata().id), parts or Parts())

    def with_events(self, events: DeltaTable) -> TableState:
        """The state with the options of the table; this one if they are the same."""
        options, identity = read_options(self.store, events), str(events.metadata().id)
        if options == self.options and identity == self.identity:
            return self
        store = replace(self.store, names=options.names)
        return replace(self, store=store, options=options, identity=identity)

    def with_tables(self, tables: Mapping[str, DeltaTable | None]) -> TableState:
        """The state with the files of these tables as they are; this one if none has moved."""
        moved = {
            name: TableFiles.of(name, table)
            for name, table in tables.items()
            if name not in self.files or not self.files[name].is_of(table)
        }
        return replace(self, files={**self.files, **moved}) if moved else self

    def with_removed(self, decided: int, voided: int) -> TableState:
        """The state with these numbers of `events`; the records of removals were looked at after it."""
        removed = NOTHING
        try:
            if decided != NONE:
                files, known = self.files[REMOVALS].files, self.parts.removals
                rows = data_files.read_files(self.store, REMOVALS, files, removals.SCHEMA, known)
                removed = Removed.seen(removals.removals_of_rows(rows), decided, voided)
        except DamagedWarehouse as error:  # told by the views
            removed = Removed(decided, damage=str(error))
        return self if removed == self.removed else replace(self, removed=removed)

    def has_moved(self, name: str, since: TableState) -> bool:
        """Whether the table has another version than in an earlier state."""
        before, now = since.files.get(name), self.files.get(name)
        if before is None or now is None:
            return now is not None and now.table is not None
        return now is not before

    @cached_property
    def step_rows(self) -> pa.Table:
        """The rows of the table `steps`."""
        files = self.files[STEPS].files
        return data_files.read_files(self.store, STEPS, files, steps.SCHEMA, self.parts.plans)

    @cached_property
    def plans(self) -> list[StepPlan]:
        """The plans of all steps."""
        plans = plans_of_rows(self.step_rows)
        if len(plans) <= self.options.built_from.get(STEPS, -1):
            raise DamagedWarehouse(
                f"the plan of step {len(plans)} is lost, and a repair of it did not end. Repair again."
            )
        return plans

    @cached_property
    def ledger_ranges(self) -> dict[str, list[BatchRange]]:
        """The ranges of each file of the ledger, by path."""
        return ledger_table.ranges_of_files(self.store, self.files[LEDGER].files, self.parts.ranges)

    def live_ranges(self, last_step: int) -> list[BatchRange]:
        """The ranges of the ledger that the steps up to `last_step` do not cover."""
        loaded = planned_batches(self.plans, last_step)
        return ledger_table.live_ranges(chain.from_iterable(self.ledger_ranges.values()), loaded)

    @property
    def planned(self) -> int:
        """The newest planned step; -1 if there is none."""
        return newest_plan(self.plans)

    def last_step(self, runs_table: str) -> int:
        """The newest step in a runs table; -1 if it has none, or if it is damaged."""
        try:
            return self.files[runs_table].layout.last_step
        except DamagedWarehouse:  # told by the view that reads the table
            return -1

    def net_of(self, runs_table: str) -> int:
        """The newest removal that a run of a table is without; NONE if it has no runs, or is damaged."""
        try:
            return max(run_tables.nets_of(self.files[runs_table].runs).values(), default=NONE)
        except DamagedWarehouse:  # told by the view that reads the table
            return NONE

    def lacks_steps(self, runs_tables: Iterable[str]) -> bool:
        """Whether one of the tables, or the plans, lack a step that a runs table has, or that is planned."""
        if self._complete.issuperset(runs_tables):
            return False
        known = [one.runs_table for one in self.options.projections if one.runs_table in self.files]
        newest = max([self.planned, *map(self.last_step, known)])
        if min([self.planned, *map(self.last_step, runs_tables)]) < newest:
            return True
        self._complete.update(runs_tables)
        return False

    def removed_of(self, runs_table: str) -> int | None:
        """The newest removal that a projection shows; None if it shows a part of one.

        This is the newest removal of all, or the one before, while none of the runs that the newest removal
        has to build again was built. None means that the table and `events` were not looked at in one moment,
        or that the table is damaged.
        """
        if runs_table in self._whole:
            return self._whole[runs_table]
        table, removed = self.files[runs_table], self.removed
        try:
            runs, last_step = table.runs, table.layout.last_step
        except DamagedWarehouse:  # told by the view that reads the table
            return removed.number
        nets = run_tables.nets_of(runs)
        if max(nets.values(), default=NONE) > removed.number or self._lacks_removed(runs_table, last_step):
            return None
        if not self._waiting(runs_table, removed):
            return removed.number
        newest, emptied = removed.removals[-1], self._emptied(runs_table, removed)
        its_runs = [
            run
            for run in runs.keys() - emptied
            if any(run.first <= step <= run.last for step in newest.steps)
            and not newest.keeps(run.first, run.last)
        ]
        before = removed.up_to(newest.number - 1)
        is_before = not self._waiting(runs_table, before) and all(
            nets[run] < newest.number for run in its_runs
        )
        return before.number if is_before else None

    def _waiting(self, runs_table: str, removed: Removed) -> list[Run]:
        """The runs that are to be built again after these removals, which are not kept."""
        late = []
        for run, files in self.files[runs_table].runs.items():
            pending = removed.pending(run.first, run.last, run_tables.net_of(files[0].path))
            if any(not one.keeps(run.first, run.last) for one in pending):
                late.append(run)
        emptied = self._emptied(runs_table, removed) if late else frozenset()
        return [run for run in late if run not in emptied]

    def shown(self, runs_table: str) -> Removed:
        """The removals that a projection shows; all of them if it shows a part of one."""
        number = self.removed_of(runs_table)
        return self.removed if number in (None, self.removed.number) else self.removed.up_to(number)

    def emptied(self, runs_table: str) -> frozenset[Run]:
        """The runs of a projection that count as runs without rows: all of their rows have left."""
        return self._emptied(runs_table, self.shown(runs_table))

    def _emptied(self, runs_table: str, removed: Removed) -> frozenset[Run]:
        nets = run_tables.nets_of(self.files[runs_table].runs)
        if not any(removed.pending(run.first, run.last, net) for run, net in nets.items()):
            return frozenset()
        try:
            left = self._left.get(removed.number)
            if left is None:
                left = self._left[removed.number] = removed.rows_by_step(self.plans)
        except DamagedWarehouse:  # told by the views
            return frozenset()
        return removed.emptied(nets, left)

    def _lacks_removed(self, runs_table: str, last_step: int) -> bool:
        """Whether rows were removed from a step that the table lacks, although it had the step then."""
        newest = max((step for one in self.removed.removals for step in one.steps), default=-1)
        return last_step < newest and runs_table not in self.options.built_from

    def is_torn(self, runs_tables: Iterable[str]) -> bool:
        """Whether one of the tables shows neither the state before a removal nor that after it."""
        if self._whole.keys() >= set(runs_tables):
            return False
        found = {name: self.removed_of(name) for name in runs_tables if name in self.files}
        self._whole.update((name, number) for name, number in found.items() if number is not None)
        return None in found.values()
