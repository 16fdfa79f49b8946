"""Reads snapshots of a warehouse, consistent while loads run, without a JVM.

Snapshot isolation comes from the order of the reads. First the runs tables are read, at their newest
version. Then the steps: they hold the plan of every step in those runs. Then the ledger: it has rows for
every batch that those steps do not cover, because ledger rows stay for the grace period after their batch
was loaded. So no batch is missing and none is counted twice.

Cost. A refresh that finds nothing new looks for one file per table. A view reads only the marks and ledger
rows of runs and batches that the previous views did not have.

On an object store the tables are looked at at the same time, which is not the order above. So after a look
that found a change, the tables that come later in that order are looked at once more:

    newer                     looked at once more
    a runs table              steps, ledger
    steps                     ledger
    the ledger, or nothing    none: the look is done

After an error in between, the next question looks at all of them. While the runs stay as they are, the steps
are not looked at: new plans matter only if a run has them. What the views will read (plans, marks, ledger
rows, small files of live rows) is fetched in the same rounds (round_trips.py).
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any, TypeVar

from deltalake import DeltaTable

from tidemark.warehouse.columns.value_encoding import Measure
from tidemark.warehouse.delta import data_files, tables
from tidemark.warehouse.delta.data_files import DataFile
from tidemark.warehouse.delta.disk_cache import DiskCache
from tidemark.warehouse.delta.metadata_watch import MetadataWatch
from tidemark.warehouse.delta.retention import COMMITS_OF_STREAMS
from tidemark.warehouse.delta.round_trips import ByteRange, Rounds, fetching, in_rounds
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import EVENTS, LEDGER, STEPS
from tidemark.warehouse.errors import DamagedWarehouse, InputError, NotBuilt, TidemarkError
from tidemark.warehouse.events.reader import BatchRange, files_of_batches
from tidemark.warehouse.events.steps import StepPlan, newest_plan, planned_batches, read_step_plans
from tidemark.warehouse.ledger import ledger_table, live_summaries
from tidemark.warehouse.ledger.live_summaries import LiveKeys, LiveRow
from tidemark.warehouse.os_errors import report_os_errors
from tidemark.warehouse.projections.key_counts import KeyCounts
from tidemark.warehouse.projections.sorted_groups import SortedGroups
from tidemark.warehouse.projections.sorted_values import SortedValues
from tidemark.warehouse.runs import run_tables
from tidemark.warehouse.runs.levels import Layout, Run
from tidemark.warehouse.runs.projection import Projection
from tidemark.warehouse.settings.options import Options, read_options
from tidemark.warehouse.snapshots.behind import Progress, StepsTold, behind_text
from tidemark.warehouse.snapshots.late_summaries import late_keys, late_rows
from tidemark.warehouse.snapshots.opened_table import OpenedTable
from tidemark.warehouse.snapshots.snapshot import GroupView, KeysView, Snapshot, View
from tidemark.warehouse.snapshots.system_tables import Contents, rejected_counts

EVENTS_SECONDS = 60.0  # other tools rewrite `events`, and its old files stay for the grace
PREFETCHED_BYTES = 2**23  # of the live rows' files, at most

T = TypeVar("T")

# The projections that a question needs. They depend on the options: the first batch may fix the columns.
Needed = Callable[[Options], Sequence[Projection[Any]]]


@dataclass(slots=True)
class _Current:
    """What was read at the versions of the last refresh, each part on first use.

    `ledger_ranges` are the ranges of each file of the ledger, by path. `complete` are the runs tables that
    have all steps that any table has.
    """

    views: dict[str, View] = field(default_factory=dict)
    group_views: dict[SortedGroups, GroupView] = field(default_factory=dict)
    keys: dict[tuple[KeyCounts, int], KeysView] = field(default_factory=dict)
    snapshot: Snapshot | None = None
    ledger_ranges: dict[str, list[BatchRange]] | None = None
    plans: list[StepPlan] | None = None
    complete: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _Reused:
    """Immutable parts of the previous views, which the next views take over.

    `marks` are by runs table, then by marks file; `rows` by measure, then by range; `keys` by key,
    then by range.
    """

    marks: dict[str, dict[str, Any]] = field(default_factory=dict)
    rows: dict[str, dict[BatchRange, list[LiveRow]]] = field(default_factory=dict)
    keys: dict[tuple[str, ...], dict[BatchRange, list[LiveKeys]]] = field(default_factory=dict)
    ranges: ledger_table.RangeCache = field(default_factory=dict)


class SnapshotReader:
    """Reads the newest state of one warehouse. It is not safe to share between threads without a lock.

    `refresh` moves to the newest versions of the tables. `pinned` returns the state of the last refresh as
    an immutable `Snapshot`. `view`, `keys_view`, `contents` and `info` return single parts of it and read
    no other parts.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self._opened: dict[str, OpenedTable] = {}
        self._prepared: dict[str, OpenedTable] = {}
        self._current, self._reused = _Current(), _Reused()
        self._layouts: dict[str, tuple[DeltaTable | None, int, Layout, dict[Run, list[DataFile]]]] = {}
        self._prefetched: frozenset[BatchRange] = frozenset()
        self._is_settled = True
        self._told: StepsTold | None = None  # only while a projection lacks planned steps
        # `events` has the options, which tell what else is read: all its commits are asked for in one round.
        self.events = OpenedTable(store, EVENTS, ahead=COMMITS_OF_STREAMS + 1)
        self._events_lock = threading.Lock()  # questions read live rows outside of the lock of their session
        self._watch = MetadataWatch(store, EVENTS)  # on a local disk
        if store.is_local:
            self.events.update()
            self._watch.start_from(self.events.version)
            self.options: Options = read_options(store, self.events.existing)
            self.refresh()
        else:  # runs tables are opened when a question needs them
            self._catch_up([EVENTS, STEPS, LEDGER], self._prepare_first_measure())
            self.options = read_options(store, self.events.existing)

    @property
    def identity(self) -> str:
        """The id of the table `events`: it differs from that of another warehouse at the same place."""
        return str(self.events.existing.metadata().id)

    def refresh(self, needed: Needed | None = None, *, live_rows: bool = False, max_age: float = 0.0) -> bool:
        """Looks for newer versions of the tables, and for newer options; returns whether there were any.

        needed      the projections whose tables are looked at, beside steps and ledger; None: all
        live_rows   whether the question reads live rows
        max_age     a table that was looked at less than so many seconds ago is not looked at again

        InputError if the newest options have none of the projections that are needed.
        """
        options = self.options
        if self.store.is_local:
            self.refresh_options(max_age=max_age)
        try:
            runs = self._needed_tables(needed)
        except InputError:
            if self.options is options and not self.refresh_options(max_age=max_age):
                raise
            runs = self._needed_tables(needed)
        if max_age and self._checked_since([*runs, LEDGER], time.monotonic() - max_age):
            return self.options is not options
        # Until the last table was looked at, others may have moved without it. If an error comes between, the
        # next refresh takes all of them for changed.
        is_settled, self._is_settled = self._is_settled, False
        # New plans matter to a question only if a run has their steps.
        steps = [STEPS] if needed is None or not is_settled else []
        if self.store.is_local:
            changed = [name for name in runs if self._update(name)]
            changed += [name for name in [*([STEPS] if changed else steps), LEDGER] if self._update(name)]
        else:
            with report_os_errors("looking for newer data"):
                names = [*runs, *steps, LEDGER]
                changed = self._refresh_remote(names, needed, live_rows=live_rows, is_settled=is_settled)
        if changed or not is_settled:
            self._current = _Current()
        moved = self._compare_tables(self.options.projections if needed is None else needed(self.options))
        self._is_settled = True
        return bool(changed) or moved or self.options is not options

    def refresh_options(self, *, max_age: float = 0.0) -> bool:
        """Looks for newer options and columns alone; returns whether there were any.

        max_age   they are not looked for if that was done less than so many seconds ago
        """
        with self._events_lock:
            checked = self._watch.checked if self.store.is_local else self.events.checked
            if max_age and checked >= time.monotonic() - max_age:
                return False
            if self.store.is_local:
                if not self._watch.may_have_changed():
                    return False
                self.events.update()
                self._watch.start_from(self.events.version)
            else:
                with report_os_errors("looking for newer options"):
                    self._move(self.events)
            return self._read_options()

    def _checked_since(self, names: Sequence[str], moment: float) -> bool:
        known = (self._opened.get(name) for name in names)
        return self._is_settled and all(one is not None and one.checked >= moment for one in known)

    def event_files(self, batches: Sequence[BatchRange]) -> list[DataFile]:
        """The files of `events` that may have rows of these batches, at a version that has all of them."""
        if self.store.is_local:
            return files_of_batches(tables.open_table(self.store, EVENTS), batches)
        with self._events_lock:
            if not self._events_have(batches):
                self._move(self.events)
            return files_of_batches(self.events.existing, batches)

    def _events_have(self, batches: Iterable[BatchRange]) -> bool:
        """Whether `events` was looked at not long ago, and has these batches."""
        table, age = self.events.existing, time.monotonic() - self.events.checked
        return age < EVENTS_SECONDS and all(
            tables.has_transaction(table, one.source, one.last) for one in batches
        )

    def refresh_events(self) -> bool:
        """Looks for a newer version of `events`; returns whether there was one.

        A local reader opens the newest version whenever it reads live rows.
        """
        if self.store.is_local:
            return False
        with self._events_lock:
            before = self.events.version
            self._move(self.events)
            return self.events.version != before

    def table(self, name: str) -> DeltaTable | None:
        """A runs table, the steps or the ledger as of the last refresh; None if it does not exist."""
        opened = self._opened.get(name)
        return None if opened is None else opened.table

    def view(self, measure: str | None = None) -> View:
        """The view of a measure, of the first one if None, as of the last refresh.

        InputError for an unknown name.
        """
        column = self.options.measure(measure)
        self._need(SortedValues(column))
        if column.name not in self._current.views:
            self._current.views[column.name] = self._read_view(column)
        return self._current.views[column.name]

    def group_view(self, projection: SortedGroups) -> GroupView:
        """The view of a measure by group, as of the last refresh.

        InputError if steps were loaded before the group was declared.
        """
        self._need(projection)
        if projection not in self._current.group_views:
            self._current.group_views[projection] = self._read_group_view(projection)
        return self._current.group_views[projection]

    def keys_view(self, columns: Any = None, *, last_step: int | None = None) -> KeysView:
        """The view of the key with these columns, of the first key if None, as of the last refresh.

        last_step: the newest step that it has, that of the view of a measure by group; None for all steps.
            A load commits a step to the keys before it commits it to the groups.

        InputError if the warehouse has no such key or no rows yet, or if the keys of old steps are not
        loaded.
        """
        projection = self.options.key_count(columns)
        self._need(projection)
        runs, known = self._runs(projection)[0].runs, self._current.keys
        newest = runs[-1].last if runs else -1
        if last_step is None or any(run.first <= last_step < run.last for run in runs):  # merged already
            last_step = newest
        place = projection, min(last_step, newest)
        if place not in known:
            known[place] = self._read_keys_view(*place)
        return known[place]

    def pinned(self) -> Snapshot:
        """The whole state as of the last refresh; the same object until a refresh finds something new."""
        self._need(*self.options.projections)
        if self._current.snapshot is None:
            views = {one.name: _or_error(self.view, one.name) for one in self.options.measures}
            group_views = {one: _or_error(self.group_view, one) for one in self.options.sorted_groups}
            keys = {one: _or_error(self.keys_view, one.key.columns) for one in self.options.key_counts}
            older_keys: dict[tuple[KeyCounts, int], KeysView | TidemarkError] = {}
            for view in group_views.values():
                if isinstance(view, GroupView):
                    counts = self.options.key_count([key.name for key in view.projection.keys])
                    older = partial(self.keys_view, counts.key.columns, last_step=view.last_step)
                    older_keys[counts, view.last_step] = _or_error(older)
            self._current.snapshot = Snapshot(
                self.store,
                self.options,
                self.identity,
                views,
                group_views,
                keys,
                older_keys,
                self.contents(),
                self.info(),
                self.event_files,
            )
        return self._current.snapshot

    def marks(self, projection: Projection[Any]) -> tuple[Any, ...]:
        """The marks of every run of the projection as of the last refresh; only new runs' marks are read."""
        self._need(projection)
        layout, files = self._runs(projection)
        root = projection.runs_table
        previous, current = self._reused.marks.get(root, {}), {}
        for run in layout.runs:
            path = files[run][0].path
            known = previous.get(path)
            current[path] = known or run_tables.read_marks(self.store, projection, run, files[run])
        self._reused.marks[root] = current
        return tuple(current.values())

    def contents(self) -> Contents:
        """The batches, steps and runs as of the last refresh.

        While a load commits a step to one projection after the other, the first measure decides whether the
        step is in history.
        """
        self._need(*self.options.projections)
        first, steps = SortedValues(self.options.measure()), self._opened[STEPS]
        layout, plans = self._runs(first)[0], self._plans()
        return Contents(
            store=self.store,
            options=self.options,
            last_step=layout.last_step,
            history=tuple(planned_batches(plans, layout.last_step)),
            live=self.view().batches,
            counts=self._batch_counts(layout.last_step),
            steps=data_files.read(self.store, STEPS, steps.existing, steps.cache),
            runs=tuple(
                (projection.title, self._runs(projection)[1]) for projection in self.options.projections
            ),
        )

    def info(self) -> dict[str, Any]:
        """Steps, runs by level and bytes of each measure and of the key, live batches, table versions."""
        self._need(*self.options.projections)
        measures = self.options.measures
        newest = max(
            measures, key=lambda measure: self._runs(SortedValues(measure))[0].last_step, default=None
        )
        view = self.view(newest.name) if newest is not None else None
        return {
            "warehouse": self.store.uri,
            "eps": self.options.eps,
            "kappa": self.options.kappa,
            "steps": max((plan.step for plan in self._plans()), default=-1) + 1,
            "live_batches": sum(batches.last - batches.first + 1 for batches in view.batches) if view else 0,
            "live_rows": sum(row.rows for row in view.live) if view else 0,
            "rejected": rejected_counts(self.store),
            "measures": {measure.name: self._runs_info(SortedValues(measure)) for measure in measures},
            **self._further_info(),
            "behind": behind_text(self._told.behind()) if self._told is not None else "",
            "versions": {name: self._opened[name].version for name in self._needed_tables(None)}
            | {name: self._opened[name].version for name in (STEPS, LEDGER)},
        }

    def _further_info(self) -> dict[str, Any]:
        """The facts about the runs of keys and groups; those of the option `key` have the name "keys"."""
        options = self.options
        facts: dict[str, Any] = {}
        for counts in options.key_counts:
            info = self._runs_info(counts)
            if counts.is_further:
                facts.setdefault("more_keys", {})[counts.key.name] = info
            else:
                facts["keys"] = info
        if options.sorted_groups:
            facts["groups"] = {groups.name: self._runs_info(groups) for groups in options.sorted_groups}
        return facts

    def _runs_info(self, projection: Projection[Any]) -> dict[str, Any]:
        table = self._opened[projection.runs_table].table
        files = data_files.list_files(table) if table is not None else []
        return {
            "type": projection.type,
            "rows": sum(file.rows for file in files),
            "bytes": sum(file.size for file in files),
            "files": len(files),
            "runs_by_level": Layout.of(run_tables.files_by_run(files)).levels(),
        }

    def _read_options(self) -> bool:
        """Takes the options of `events` at its version; returns whether they differ from those before."""
        options = read_options(self.store, self.events.existing)
        if options == self.options:
            return False
        self.options, self._current = options, _Current()
        return True

    def _needed_tables(self, needed: Needed | None) -> list[str]:
        """The runs tables of the projections, in the order in which they are read.

        The first measure comes first, because a load commits a step to it first: see `_check_loaded`. Keys
        come last: those of a group have at least the steps of the group, as a load commits them first.
        """
        options = self.options
        projections = options.projections if needed is None else needed(options)
        if len(projections) == 1 and isinstance(projections[0], SortedValues):
            return [projections[0].runs_table]
        if any(not isinstance(one, SortedValues) for one in projections):
            projections = [SortedValues(options.measures[0]), *projections]
        ordered = sorted(projections, key=lambda one: isinstance(one, KeyCounts))
        return list(dict.fromkeys(one.runs_table for one in ordered))

    def _need(self, *projections: Projection[Any]) -> None:
        """Opens the tables of projections that no refresh has looked at; local readers open all at once."""
        if not self.store.is_local and any(
            name not in self._opened for name in self._needed_tables(lambda _: projections)
        ):
            self.refresh(lambda _: projections)

    def _refresh_remote(
        self, names: Sequence[str], needed: Needed | None, *, live_rows: bool, is_settled: bool
    ) -> list[str]:
        """Moves tables in an object store to their newest versions; returns which of them changed."""

        def prefetch() -> list[Rounds[None]]:
            ahead = [self._prefetch(needed), *([self._prefetch_events(needed)] if live_rows else [])]
            return list(map(_unless_damaged, ahead))

        before = self.events.version
        changed = self._catch_up(names, self._catch_up_events())
        if self.events.version != before and self._read_options():
            changed += self._catch_up([name for name in self._needed_tables(needed) if name not in names])
        order = [*self._needed_tables(needed), STEPS, LEDGER]
        changed.sort(key=order.index)
        return changed + self._look_again(changed if is_settled else order[:1], order, prefetch)

    def _look_again(
        self, changed: list[str], order: Sequence[str], prefetch: Callable[[], list[Rounds[None]]]
    ) -> list[str]:
        """Looks at the tables after one that changed, until none has; returns which changed meanwhile."""
        found: list[str] = []
        while changed:
            changed = self._catch_up(order[order.index(changed[0]) + 1 :], *prefetch())
            found += changed
        return found

    def _update(self, name: str) -> bool:
        return self._open(name).update()

    def _open(self, name: str) -> OpenedTable:
        if name == EVENTS:
            return self.events
        if name not in self._opened:
            self._opened[name] = self._prepared.pop(name, OpenedTable(self.store, name))
        return self._opened[name]

    def _move(self, opened: OpenedTable) -> None:
        """Moves a table to its newest version."""
        if self.store.is_local:
            opened.update()
        else:
            in_rounds(self.store.files, [opened.catch_up()])

    def _catch_up(self, names: Sequence[str], *others: Rounds[None]) -> list[str]:
        """Moves tables in an object store to their newest versions; returns which of them changed."""

        def reading(name: str) -> Rounds[bool]:
            opened = self._open(name)
            changed = yield from opened.catch_up()
            if name == STEPS:
                new = (
                    file.path
                    for file in data_files.list_files(opened.existing)
                    if file.path not in opened.cache
                )
                yield from fetching(self.store.files, [ByteRange(f"{STEPS}/{path}") for path in new])
            return changed

        results = in_rounds(self.store.files, [*map(reading, names), *others])
        changed = [name for name, has_changed in zip(names, results, strict=False) if has_changed]
        if changed:
            self._current = _Current()
        return changed

    def _prepare_first_measure(self) -> Rounds[None]:
        """Reads ahead for the question that most readers ask first."""
        while self.events.table is None:  # the options are there with the table
            yield []
        for measure in read_options(self.store, self.events.table).measures[:1]:
            table = SortedValues(measure).runs_table
            yield from self._prepared.setdefault(table, OpenedTable(self.store, table)).prepare()

    def _catch_up_events(self) -> Rounds[None]:
        with self._events_lock:
            yield from self.events.catch_up()

    def _prefetch(self, needed: Needed | None) -> Rounds[None]:
        """Fetches what the views of the projections will read that no view before has read."""
        files, ledger = self.store.files, self._opened[LEDGER].existing
        unstated = ledger_table.files_without_stated_range(ledger, self._reused.ranges)
        yield from fetching(files, [ByteRange(f"{LEDGER}/{path}") for path in unstated])
        wanted: list[ByteRange] = []
        for projection in self.options.projections if needed is None else needed(self.options):
            wanted += self._unread_marks(projection)
            runs_files = chain.from_iterable(self._runs(projection)[1].values())
            files.expect(f"{projection.runs_table}/{file.path}" for file in runs_files)
            batches = self._live_batches(self._runs(projection)[0].last_step)
            wanted += self._unread_ledger(projection, batches)
        yield from fetching(files, wanted)

    def _prefetch_events(self, needed: Needed | None) -> Rounds[None]:
        """Fetches the files of live rows that no question before has read, if they are small."""
        projections = self.options.projections if needed is None else needed(self.options)
        batches = {b for one in projections for b in self._live_batches(self._runs(one)[0].last_step)}
        new, self._prefetched = batches - self._prefetched, frozenset(batches)
        with self._events_lock:
            if new and not self._events_have(new):
                yield from self.events.catch_up()
            files = files_of_batches(self.events.existing, new)
        if sum(file.size for file in files) <= PREFETCHED_BYTES:
            yield from fetching(self.store.files, [ByteRange(f"{EVENTS}/{file.path}") for file in files])

    def _unread_marks(self, projection: Projection[Any]) -> Iterator[ByteRange]:
        layout, files = self._runs(projection)
        known = self._reused.marks.get(projection.runs_table, {})
        for run in layout.runs:
            if files[run][0].path not in known:
                yield ByteRange(run_tables.marks_path(projection, run, files[run]), 0, None)

    def _unread_ledger(
        self, projection: Projection[Any], batches: Sequence[BatchRange]
    ) -> Iterator[ByteRange]:
        reused, new = self._reused, set(batches)
        if isinstance(projection, KeyCounts):
            new -= reused.keys.get(projection.ledger_field, {}).keys()
        elif isinstance(projection, (SortedValues, SortedGroups)):
            new -= reused.rows.get(projection.measure.name, {}).keys()
        for path, ranges in self._ledger_ranges().items():
            if not new.isdisjoint(ranges):
                yield ByteRange(f"{LEDGER}/{path}")

    def _plans(self) -> list[StepPlan]:
        if self._current.plans is None:
            steps = self._opened[STEPS]
            plans = read_step_plans(self.store, steps.existing, steps.cache)
            if len(plans) <= self.options.built_from.get(STEPS, -1):
                raise DamagedWarehouse(
                    f"the plan of step {len(plans)} is lost, and a repair of it did not end. Repair again."
                )
            self._current.plans = plans
        return self._current.plans

    def _compare_tables(self, projections: Sequence[Projection[Any]]) -> bool:
        """Compares what the tables say of the steps; returns whether that moved the snapshot.

        If a projection or the plans lack a step that a table has, all tables are looked at, until either the
        projection fits the others, or none has changed: then `_check_fits` refuses it. See behind.py.
        """
        moved, self._told, wanted = False, None, {one.runs_table for one in projections}
        if wanted <= self._current.complete:
            return moved
        with suppress(DamagedWarehouse):  # told by the view that reads the table
            while min([self._plans_end, *map(self._last_step, projections)]) < self._newest_step():
                names = self._needed_tables(None)
                changed = self._look_at(names)
                if changed:
                    self._look_at([STEPS, LEDGER])
                    self._current, moved = _Current(), True
                self._look_at([one.marks_table for one in self.options.projections])
                self._told = self._steps_told()
                if not changed or not any(map(self._told.damage, wanted)):
                    return moved
            self._current.complete |= wanted
        return moved

    def behind(self) -> str:
        """Which projections lack planned steps, in words, empty if none does, as of the last refresh of all.

        DamagedWarehouse if the log of a runs table, or of the plans, is behind the others.
        """
        if self._told is None:
            return ""
        for damage in self._told.damages():
            raise damage
        return behind_text(self._told.behind())

    def _steps_told(self) -> StepsTold:
        options = self.options
        found = [
            Progress.of(one, self._last_step(one), self._opened[one.marks_table].table, options.built_from)
            for one in options.projections
        ]
        return StepsTold(self._plans_end, tuple(found))

    def _look_at(self, names: Sequence[str]) -> list[str]:
        """Moves tables to their newest versions; returns which of them changed."""
        if self.store.is_local:
            return [name for name in names if self._update(name)]
        with report_os_errors("comparing the tables"):
            return self._catch_up(names)

    def _newest_step(self) -> int:
        """The newest step that is planned, or in a runs table that was looked at; -1 if there is none."""
        known = [one for one in self.options.projections if one.runs_table in self._opened]
        return max([self._plans_end, *map(self._last_step, known)])

    @property
    def _plans_end(self) -> int:
        """The newest planned step; -1 if there is none."""
        return newest_plan(self._plans())

    def _last_step(self, projection: Projection[Any]) -> int:
        """The newest step in the runs of a projection; -1 if it has none, or if they are damaged."""
        try:
            return self._runs(projection)[0].last_step
        except DamagedWarehouse:  # told by the view that reads the table
            return -1

    def _check_fits(self, projection: Projection[Any]) -> None:
        """DamagedWarehouse if the runs of the projection, or the plans, have fewer steps than others know."""
        damage = None if self._told is None else self._told.damage(projection.runs_table)
        if damage is not None:
            raise damage

    def _pending(self, last_step: int) -> dict[BatchRange, int]:
        """The batches, with their rows, that a projection with steps up to `last_step` has in `events` alone.

        They are planned, a load has begun to commit their step, and the ledger does not have them: those of
        a bulk load, which the projection lacks until the load goes on.
        """
        begun = -1 if self._told is None else self._told.begun
        parts = {
            batches: rows
            for plan in self._plans()
            if last_step < plan.step <= begun
            for batches, rows in plan.parts
        }
        if not parts:
            return {}
        known = set(chain.from_iterable(self._ledger_ranges().values()))
        return {batches: rows for batches, rows in parts.items() if not any(map(batches.overlaps, known))}

    def _batch_counts(self, last_step: int) -> dict[BatchRange, int]:
        """The rows of `events` in each visible range: those in history, and those that are live."""
        counts = {
            batches: rows for plan in self._plans() if plan.step <= last_step for batches, rows in plan.parts
        }
        live = Counter(dict.fromkeys(self.view().batches, 0))
        for row in self.view().live:
            live[row.batches] += row.rows
        return counts | live

    def _read_view(self, measure: Measure) -> View:
        values = SortedValues(measure)
        layout, _ = self._runs(values)
        self._check_fits(values)
        batches, pending = self._live_batches(layout.last_step), self._pending(layout.last_step)
        return View(
            measure=measure,
            versions=self._versions(values, pending),
            runs=self.marks(values),
            root=values.runs_table,
            batches=tuple(batches),
            live=self._live_rows(measure, batches, pending),
            ledger=self._ledger_ranges(),
        )

    def _read_group_view(self, projection: SortedGroups) -> GroupView:
        layout, _ = self._runs(projection)
        self._check_loaded(projection, layout.last_step)
        batches, pending = self._live_batches(layout.last_step), self._pending(layout.last_step)
        rows = self._live_rows(projection.measure, batches, pending)
        return GroupView(
            projection=projection,
            versions=self._versions(projection, pending),
            runs=self.marks(projection),
            batches=tuple(batches),
            live_counts={(row.batches, row.tick): row.rows for row in rows},
        )

    def _read_keys_view(self, counts: KeyCounts, last_step: int) -> KeysView:
        self._check_loaded(counts, self._runs(counts)[0].last_step)
        batches, pending = self._live_batches(last_step), self._pending(last_step)
        return KeysView(
            projection=counts,
            versions=self._versions(counts, pending),
            runs=tuple(marks for marks in self.marks(counts) if marks.run.last <= last_step),
            batches=tuple(batches),
            live=self._live_keys(batches, counts, pending),
        )

    def _check_loaded(self, projection: Projection[Any], last_step: int) -> None:
        """NotBuilt if steps were loaded before the warehouse had this key or group.

        A load commits a step to the first measure first, so another projection may be one step behind.
        If it is further behind, or has no table, the rows of the missing steps are neither in its runs nor
        among the live batches, and counts would be too small. The same holds for a key or group that was
        added later until it has the steps that were planned by then.
        """
        self._check_fits(projection)
        loaded = self._runs(SortedValues(self.options.measures[0]))[0].last_step
        has_table = self._opened[projection.runs_table].table is not None
        needed = min(self.options.built_from.get(projection.runs_table, -1), loaded)
        if loaded > last_step + 1 or (loaded > last_step and not has_table) or needed > last_step:
            first = last_step + 1
            steps = f"step {loaded}" if loaded == first else f"steps {first} to {loaded}"
            rows = "keys" if isinstance(projection, KeyCounts) else "groups"
            raise NotBuilt(
                f"the {rows} of {steps} are not in history yet ({projection.title}), which has "
                f"{first:,} of {loaded + 1:,} steps: they were loaded before {rows} were kept. Load once, "
                "for example with `tidemark load --from-stream`, or run the alter again, to add them."
            )

    def _runs(self, projection: Projection[Any]) -> tuple[Layout, dict[Run, list[DataFile]]]:
        opened = self._opened[projection.runs_table]
        table, version, layout, files = self._layouts.get(opened.name, (None, -1, Layout.of({}), {}))
        if opened.table is not None and (opened.table is not table or opened.version != version):
            files = run_tables.files_by_run(data_files.list_files(opened.table))
            layout = Layout.of(files, opened.name)
            self._layouts[opened.name] = opened.table, opened.version, layout, files
        return layout, files

    def _versions(self, projection: Projection[Any], pending: Mapping[BatchRange, int]) -> dict[str, int]:
        """The versions that a view is of, and the newest step as `begun` if some of its rows are pending."""
        names = {"runs": projection.runs_table, "steps": STEPS, "ledger": LEDGER}
        versions = {role: self._opened[name].version for role, name in names.items()}
        if self._told is not None and pending:
            versions["begun"] = self._told.begun
        return versions

    def _live_batches(self, last_step: int) -> list[BatchRange]:
        """The ranges of the ledger that the steps up to `last_step` do not cover, and those of `_pending`."""
        loaded = planned_batches(self._plans(), last_step)
        live = ledger_table.live_ranges(chain.from_iterable(self._ledger_ranges().values()), loaded)
        return sorted([*live, *self._pending(last_step)])

    def _ledger_ranges(self) -> dict[str, list[BatchRange]]:
        if self._current.ledger_ranges is None:
            ledger = self._opened[LEDGER].existing
            self._current.ledger_ranges = ledger_table.ranges_by_file(self.store, ledger, self._reused.ranges)
        return self._current.ledger_ranges

    def _live_keys(
        self, batches: list[BatchRange], counts: KeyCounts, pending: Mapping[BatchRange, int]
    ) -> tuple[LiveKeys, ...]:
        """The ledger rows of the ranges, seen from a key; only those of new ranges are read.

        Those of `pending` ranges, given with their rows, are made from `events`.
        """
        field = counts.ledger_field
        previous = self._reused.keys.get(field, {})
        new_ranges = [batch_range for batch_range in batches if batch_range not in previous]
        current = {batch_range: previous.get(batch_range, []) for batch_range in batches}
        found, uncounted = live_summaries.live_keys(self.store, self._ledger_ranges(), new_ranges, field)
        new_pending = {late: rows for late, rows in pending.items() if late not in previous}
        for late, rows in (uncounted | new_pending).items():
            files = self.event_files([late])
            found += late_keys(self.store, self.options, counts, late, rows, files)
        for live in found:
            current[live.batches].append(live)
        self._reused.keys[field] = current
        return tuple(chain.from_iterable(current.values()))

    def _live_rows(
        self, measure: Measure, batches: list[BatchRange], pending: Mapping[BatchRange, int]
    ) -> tuple[LiveRow, ...]:
        """As `_live_keys`, seen from a measure."""
        previous = self._reused.rows.get(measure.name, {})
        new_ranges = [batch_range for batch_range in batches if batch_range not in previous]
        columns = live_summaries.MEASURE_COLUMNS
        rows = ledger_table.read_rows(self.store, self._ledger_ranges(), new_ranges, columns)
        current = {batch_range: previous.get(batch_range, []) for batch_range in batches}
        found = live_summaries.live_rows(rows, measure.name)
        for late in pending:
            if late in new_ranges:
                files = self.event_files([late])
                found += late_rows(self.store, self.options, measure, late, pending[late], files)
        for row in found:
            current[row.batches].append(row)
        self._reused.rows[measure.name] = current
        return tuple(chain.from_iterable(current.values()))


def _or_error(read: Callable[..., T], *of: Any) -> T | TidemarkError:
    """The view, or the error that whoever asks for it gets: others are asked all the same."""
    try:
        return read(*of)
    except (InputError, DamagedWarehouse) as error:
        return error


def _unless_damaged(ahead: Rounds[None]) -> Rounds[None]:
    """Reads ahead; a damaged file stops it, and is told by the view that reads the file."""
    with suppress(DamagedWarehouse):
        yield from ahead


@report_os_errors("opening")
def open_snapshot(
    uri: str | os.PathLike[str],
    storage_options: dict[str, str] | None = None,
    cache: DiskCache | None = None,
) -> SnapshotReader:
    """Opens a warehouse for reading; NotAWarehouse if there is no warehouse at `uri`.

    cache   keeps what this process reads of an object store from now on
    """
    if not isinstance(uri, (str, os.PathLike)):
        raise InputError(f"a warehouse is a path or an address, got {uri!r}.")
    store = Store.from_uri(uri, storage_options)
    if cache is not None and not store.is_local:
        store.files.keep_on_disk(cache)
    return SnapshotReader(store)
