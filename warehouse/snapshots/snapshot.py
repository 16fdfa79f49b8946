"""What a reader sees: history and the live side of a warehouse, consistent, without a JVM.

The order of reading makes a gap or a double count impossible while loads run: first the runs
table, at its newest version; then the steps, which hold the plan of every step of those runs;
then the ledger, where every batch that those steps do not cover has its rows, because ledger
rows outlive their load by the grace period.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from tidemark.warehouse.columns.keys import Key
from tidemark.warehouse.columns.measures import Measure
from tidemark.warehouse.delta import tables
from tidemark.warehouse.delta.store import EVENTS, KEYS, LEDGER, REJECTED, STEPS, Store
from tidemark.warehouse.errors import DamagedWarehouse, InputError
from tidemark.warehouse.events.reader import BatchRange
from tidemark.warehouse.events.steps import planned_batches, read_step_plans
from tidemark.warehouse.ledger import ledger_table, live_summaries
from tidemark.warehouse.ledger.live_summaries import LiveKeys, LiveRow
from tidemark.warehouse.os_errors import report_os_errors
from tidemark.warehouse.projections.key_counts import KeyCounts
from tidemark.warehouse.projections.key_marks import KeyMarks
from tidemark.warehouse.projections.sorted_values import Values
from tidemark.warehouse.projections.value_marks import RunMarks
from tidemark.warehouse.runs import run_tables
from tidemark.warehouse.runs.layout import Layout, Run
from tidemark.warehouse.runs.projection import Projection
from tidemark.warehouse.settings.options import Options, read_options
from tidemark.warehouse.snapshots.system_tables import Contents

_LISTING_SECONDS = 60.0  # a log that was cleaned can hide its next version: list it anew this often


@dataclass(frozen=True, slots=True)
class View:
    """One measure at one moment: the marks of its runs, and the ledger rows of what is live.

    `root` is the runs table's path below the warehouse; `versions` are those of the tables read;
    `batches` are the live ranges, those without rows among them.
    """

    measure: Measure
    versions: Mapping[str, int]
    runs: tuple[RunMarks, ...]
    root: str
    batches: tuple[BatchRange, ...]
    live: tuple[LiveRow, ...]


@dataclass(frozen=True, slots=True)
class KeysView:
    """The key at one moment: the marks of its runs, and the ranges of batches that these do not hold.

    `root` is the runs table's path below the warehouse; `versions` are those of the tables read; `live` are
    the ledger rows of the batches.
    """

    key: Key
    versions: Mapping[str, int]
    runs: tuple[KeyMarks, ...]
    root: str
    batches: tuple[BatchRange, ...]
    live: tuple[LiveKeys, ...]


@dataclass(slots=True)
class _Known:
    """A table as last seen. `version` is -1 where there is none yet."""

    table: DeltaTable | None = None
    cache: dict[str, pa.Table] = field(default_factory=dict)
    listed: float = 0.0

    @property
    def version(self) -> int:
        return self.table.version() if self.table is not None else -1

    @property
    def opened(self) -> DeltaTable:
        if self.table is None:
            raise DamagedWarehouse("a table of the warehouse is missing.")
        return self.table


@dataclass(frozen=True, slots=True)
class Pinned:
    """A warehouse as a snapshot saw it, asked as that is; it stays as it is.

    `keys` is what asking for them brought, which may be an error.
    """

    store: Store
    options: Options
    identity: str
    views: Mapping[str, View]
    keys: KeysView | InputError
    held: Contents
    told: Mapping[str, Any]

    def refresh(self) -> bool:
        """Nothing is newer here."""
        return False

    def pinned(self) -> Pinned:
        """Itself."""
        return self

    def view(self, measure: str | None = None) -> View:
        """As `Snapshot.view`."""
        return self.views[self.options.measure(measure).name]

    def keys_view(self) -> KeysView:
        """As `Snapshot.keys_view`."""
        if isinstance(self.keys, InputError):
            raise self.keys
        return self.keys

    def contents(self) -> Contents:
        """As `Snapshot.contents`."""
        return self.held

    def info(self) -> Mapping[str, Any]:
        """As `Snapshot.info`."""
        return self.told


class Snapshot:
    """A reader of one warehouse. `refresh` looks for what is new; `view` is a value that stays."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._events = tables.open_table(store, EVENTS)
        self.options: Options = read_options(store, self._events)
        self._runs_tables = [one.runs_table for one in self.options.projections]
        self._known: dict[str, _Known] = {}
        self._marks: dict[str, dict[str, Any]] = {}
        self._live: dict[str, dict[BatchRange, list[LiveRow]]] = {}
        self._ranges: ledger_table.RangeCache = {}
        self._views: dict[str, View] = {}
        self._keys: KeysView | None = None
        self._pinned: Pinned | None = None
        self._live_keys: dict[BatchRange, list[LiveKeys]] = {}
        self._ledger_files: dict[str, list[BatchRange]] | None = None
        self.refresh()

    @property
    def identity(self) -> str:
        """What tells this warehouse from another one at the same place: the id of its table `events`."""
        return str(self._events.metadata().id)

    def refresh(self) -> bool:
        """Looks for newer versions of the tables; whether anything changed."""
        if not self.options.columns:
            self._events = tables.open_table(self.store, EVENTS)
            self.options = read_options(self.store, self._events)
            self._runs_tables = [one.runs_table for one in self.options.projections]
        changed = [self._update(name) for name in [*self._runs_tables, STEPS, LEDGER]]
        if any(changed):
            self._views.clear()
            self._keys = self._pinned = self._ledger_files = None
        return any(changed)

    def table(self, name: str) -> DeltaTable | None:
        """A table that readers open (runs, steps, ledger) as of the last refresh; None: there is none."""
        return self._known.get(name, _Known()).table

    def view(self, measure: str | None = None) -> View:
        """The measure (without a name the first one) as of the last refresh."""
        wanted = self.options.measure(measure)
        if wanted.name not in self._views:
            self._views[wanted.name] = self._view(wanted)
        return self._views[wanted.name]

    def keys_view(self) -> KeysView:
        """The key as of the last refresh; InputError where the warehouse has none."""
        key = self.options.key_column
        if key is None:
            raise InputError(
                "the warehouse has no rows yet: its first batch will fix the columns' types."
                if self.options.key
                else "the warehouse was created without a key. Create one with key='column' and load it."
            )
        if self._keys is None:
            self._keys = self._view_keys(key)
        return self._keys

    def pinned(self) -> Pinned:
        """All of this as of the last refresh, as a value; the same one while nothing changes."""
        if self._pinned is None:
            keys: KeysView | InputError
            try:
                keys = self.keys_view()
            except InputError as error:  # for who asks for keys, and nobody else
                keys = error
            views = {one.name: self.view(one.name) for one in self.options.measures}
            self._pinned = Pinned(
                self.store, self.options, self.identity, views, keys, self.contents(), self.info()
            )
        return self._pinned

    def marks(self, projection: Projection[Any]) -> tuple[Any, ...]:
        """The marks of every run as of the last refresh; those of runs seen before are kept."""
        layout, found = self._runs(projection)
        root = projection.runs_table
        before, now = self._marks.get(root, {}), {}
        for run in layout.runs:
            path = found[run][0].path
            now[path] = before.get(path) or run_tables.read_marks(self.store, projection, run, found[run])
        self._marks[root] = now
        return tuple(now.values())

    def contents(self) -> Contents:
        """Which batches there are, with steps and runs, as of the last refresh.

        Of a step that is in history for some measures only, the first measure decides.
        """
        first, steps = Values(self.options.measure()), self._known[STEPS]
        layout, plans = self._runs(first)[0], self._plans()
        return Contents(
            store=self.store,
            options=self.options,
            last_step=layout.last_step,
            history=tuple(planned_batches(plans, layout.last_step)),
            live=tuple(self._live_batches(layout)),
            steps=tables.read(self.store, STEPS, steps.opened, steps.cache),
            runs=tuple((one.title, self._runs(one)[1]) for one in self.options.projections),
        )

    def info(self) -> dict[str, Any]:
        """Steps, runs by level and bytes of each measure and of the key, live batches, table versions."""
        ahead = max(self.options.measures, key=lambda one: self._runs(Values(one))[0].last_step, default=None)
        live = self.view(ahead.name) if ahead is not None else None
        return {
            "warehouse": self.store.uri,
            "eps": self.options.eps,
            "kappa": self.options.kappa,
            "steps": max((plan.step for plan in self._plans()), default=-1) + 1,
            "live_batches": sum(one.last - one.first + 1 for one in live.batches) if live else 0,
            "live_rows": sum(row.rows for row in live.live) if live else 0,
            "rejected": rejected_counts(self.store),
            "measures": {one.name: self._runs_info(Values(one)) for one in self.options.measures},
            **({"keys": self._runs_info(KeyCounts(key))} if (key := self.options.key_column) else {}),
            "versions": {name: known.version for name, known in self._known.items()},
        }

    def _runs_info(self, projection: Projection[Any]) -> dict[str, Any]:
        table = self._known[projection.runs_table].table
        found = tables.list_files(table) if table is not None else []
        return {
            "type": projection.type,
            "rows": sum(file.rows for file in found),
            "bytes": sum(file.size for file in found),
            "files": len(found),
            "runs_by_level": Layout.of(run_tables.runs_of(found)).levels(),
        }

    def _update(self, name: str) -> bool:
        known = self._known.setdefault(name, _Known())
        before = known.version
        if known.table is None:
            known.table = tables.open_table(self.store, name) if self._is_there(name) else None
        elif self._may_be_newer(known, name):
            known.table.update_incremental()
            known.listed = time.monotonic()
        return known.version != before

    def _is_there(self, name: str) -> bool:
        # A warehouse made without a schema gets its runs tables with the first batch.
        return name in (STEPS, LEDGER) or tables.exists(self.store, name)

    def _may_be_newer(self, known: _Known, name: str) -> bool:
        if not self.store.is_local or time.monotonic() - known.listed > _LISTING_SECONDS:
            return True
        commit = f"{self.store.table(name)}/_delta_log/{known.version + 1:020d}.json"
        return os.path.exists(commit)  # noqa: PTH110  pathlib's takes longer than the rest of a refresh

    def _plans(self) -> list[Any]:
        known = self._known[STEPS]
        return read_step_plans(self.store, known.opened, known.cache)

    def _view(self, measure: Measure) -> View:
        values = Values(measure)
        layout, _ = self._runs(values)
        batches = self._live_batches(layout)
        return View(
            measure=measure,
            versions=self._versions(values),
            runs=self.marks(values),
            root=values.runs_table,
            batches=tuple(batches),
            live=self._live_rows(measure, batches),
        )

    def _view_keys(self, key: Key) -> KeysView:
        counts = KeyCounts(key)
        layout, _ = self._runs(counts)
        self._check_caught_up(layout.last_step)
        batches = self._live_batches(layout)
        return KeysView(
            key=key,
            versions=self._versions(counts),
            runs=self.marks(counts),
            root=counts.runs_table,
            batches=tuple(batches),
            live=self._live_keys_of(batches),
        )

    def _check_caught_up(self, last_step: int) -> None:
        """The key is at most the one step behind the first measure that a load is about to commit.

        Where it is further behind, or has no table at all, the steps between were loaded before keys were
        kept: their rows are on neither side, and counts would be too small.
        """
        ahead = self._runs(Values(self.options.measures[0]))[0].last_step
        if ahead > last_step + 1 or (ahead > last_step and self._known[KEYS].table is None):
            steps = f"step {ahead}" if ahead == last_step + 1 else f"steps {last_step + 1} to {ahead}"
            raise InputError(
                f"the keys of {steps} are not in history yet: they were loaded before keys were kept. "
                "Load once, for example with `tidemark load --from-stream`, which brings them."
            )

    def _runs(self, projection: Projection[Any]) -> tuple[Layout, dict[Run, list[tables.DataFile]]]:
        known = self._known[projection.runs_table]
        found = run_tables.runs_of(tables.list_files(known.table)) if known.table is not None else {}
        return Layout.of(found), found

    def _versions(self, projection: Projection[Any]) -> dict[str, int]:
        names = {"runs": projection.runs_table, "steps": STEPS, "ledger": LEDGER}
        return {role: self._known[name].version for role, name in names.items()}

    def _live_batches(self, layout: Layout) -> list[BatchRange]:
        """The ranges of the ledger that the steps in history do not cover."""
        loaded = planned_batches(self._plans(), layout.last_step)
        return ledger_table.live_ranges(chain.from_iterable(self._held().values()), loaded)

    def _held(self) -> dict[str, list[BatchRange]]:
        """The ranges of each file of the ledger."""
        if self._ledger_files is None:
            self._ledger_files = ledger_table.ranges_by_file(
                self.store, self._known[LEDGER].opened, self._ranges
            )
        return self._ledger_files

    def _live_keys_of(self, batches: list[BatchRange]) -> tuple[LiveKeys, ...]:
        """What the ledger says of the keys of the ranges; what was read before is kept."""
        new = [one for one in batches if one not in self._live_keys]
        now: dict[BatchRange, list[LiveKeys]] = {one: self._live_keys.get(one, []) for one in batches}
        for live in live_summaries.live_keys(self.store, self._held(), new):
            now[live.batches].append(live)
        self._live_keys = now
        return tuple(live for one in batches for live in now[one])

    def _live_rows(self, measure: Measure, batches: list[BatchRange]) -> tuple[LiveRow, ...]:
        """The ledger rows of the ranges; those of ranges seen before are kept."""
        before = self._live.get(measure.name, {})
        new = [one for one in batches if one not in before]
        rows = ledger_table.read_rows(self.store, self._held(), new, live_summaries.LIVE)
        now: dict[BatchRange, list[LiveRow]] = {one: before.get(one, []) for one in batches}
        for row in live_summaries.live_rows(rows, measure.name):
            now[BatchRange(row.source, row.first_batch, row.last_batch)].append(row)
        self._live[measure.name] = now
        return tuple(row for one in batches for row in now[one])


def rejected_counts(store: Store) -> dict[str, int]:
    """How many records of each source were refused."""
    counts: dict[str, int] = {}
    for file in tables.list_files(tables.open_table(store, REJECTED)):
        source = file.stats["min.source"]
        counts[source] = counts.get(source, 0) + file.rows
    return counts


@report_os_errors("opening")
def open_snapshot(uri: str | os.PathLike[str], storage_options: dict[str, str] | None = None) -> Snapshot:
    """Opens a warehouse for reading; NotAWarehouse where there is none."""
    if not isinstance(uri, (str, os.PathLike)):
        raise InputError(f"a warehouse is a path or an address, got {uri!r}.")
    return Snapshot(Store.from_uri(uri, storage_options))
