"""What the questions to an open warehouse share: its snapshot, and caches."""

from __future__ import annotations

import copy
import math
import threading
import time
from collections.abc import Callable, Hashable, Iterable
from typing import Any, TypeVar

from tidemark.query.asking.about import about, about_several
from tidemark.query.groups.group_questions import GroupReader
from tidemark.query.groups.group_slices import Group
from tidemark.query.groups.many_groups import ManyGroups
from tidemark.query.keys.key_source import KeySource
from tidemark.query.quantiles.many_windows import ManyWindows
from tidemark.query.quantiles.rank_search import Source
from tidemark.query.quantiles.window_bounds import SpanCache, WindowBoundsCache
from tidemark.query.quantiles.window_sums import WindowSums
from tidemark.query.reading.asked_window import AskedWindow
from tidemark.query.reading.block_reader import BlockReader
from tidemark.query.reading.budgets import LIVE, shared_budget
from tidemark.query.reading.costs import Costs
from tidemark.query.reading.live_cache import LiveCache
from tidemark.query.reading.spending import TimeLimit
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.errors import InputError, shortened
from tidemark.warehouse.memory_cache import LRUCache
from tidemark.warehouse.projections.sorted_groups import SortedGroups
from tidemark.warehouse.settings.options import Options
from tidemark.warehouse.snapshots.needed import ALL, Needed
from tidemark.warehouse.snapshots.sites import AnySnapshot, Site, SitesReader, SitesSnapshot, refuse_several
from tidemark.warehouse.snapshots.snapshot import Snapshot
from tidemark.warehouse.snapshots.snapshot_reader import SnapshotReader
from tidemark.warehouse.snapshots.system_tables import AnyContents, Contents
from tidemark.warehouse.snapshots.views import CellsView, GroupView, KeysView, View

V = TypeVar("V", View, KeysView, GroupView)

CACHED_SIZES = 2**18  # groups whose numbers of rows are cached


class Session:
    """A snapshot, and caches of what is read from it. Safe to share between threads.

    The snapshot is of one warehouse, or of several that are asked as one (warehouse/snapshots/sites.py).

    memory: the budget of `memory`, the cache of decoded rows, in bytes; None for that of the process
        (reading/budgets.py).
    progress: called with the share of a scan that is done, from 0 to 1; None shows it where a person looks.
    max_staleness: for how many seconds what was seen of the tables is taken for the newest.

    `time_limit` is the limit of each question, if there is one. `views` has the view of the last question of
    each topic, and whether the next one is answered from it (ask.py).
    """

    def __init__(
        self,
        snapshot: AnySnapshot,
        memory: int | None,
        progress: Callable[[float], None] | None = None,
        max_staleness: float = 0.0,
    ) -> None:
        self.snapshot, self.progress, self._max_staleness = snapshot, progress, max_staleness
        self.time_limit: TimeLimit | None = None
        self._waits_for_stores = any(site.store.files.takes_rounds for site in snapshot.sites)
        self.blocks = BlockReader()
        spans = SpanCache()
        self.bounds = WindowBoundsCache(spans)
        budget = shared_budget() if memory is None else memory
        self.memory: LRUCache[Any] = LRUCache(budget)
        self.live = LiveCache(self.memory, LIVE if memory is None else memory)
        self.sums = WindowSums(self.live, self.memory)
        self.costs = Costs()
        self.keys = KeySource(self.is_far, self.blocks, self.memory, self.live, self.costs)
        self.sizes: LRUCache[list[tuple[Group, int]]] = LRUCache(CACHED_SIZES)
        self.groups = GroupReader(self.blocks, self.memory, self.live, spans, float(snapshot.options.eps))
        self.many_groups = ManyGroups(self.blocks, self.memory, self.live, self.costs)
        self.many_windows = ManyWindows(self.blocks, self.memory, self.live, self.costs)
        self._lock = threading.Lock()
        self.views: dict[Hashable, tuple[Any, bool]] = {}

    @property
    def is_far(self) -> bool:
        """Whether a warehouse is in an object store."""
        return any(site.store.files.folder is None for site in self.snapshot.sites)

    @property
    def store(self) -> Store:
        """Where the warehouse lies; InputError for several."""
        refuse_several(self.snapshot, "this")
        return self.snapshot.sites[0].store

    @property
    def options(self) -> Options:
        """The options of the warehouse, and its columns, as of the last look."""
        return self.snapshot.options

    def check_windows(self, asked: AskedWindow, every: Any) -> None:
        """InputError for a window over several warehouses without a time column: steps are each one's own."""
        given = {"last": asked.last, "between": asked.between, "every": every}
        name = next((name for name, value in given.items() if value is not None), None)
        if name is not None and self.options.grid is None and len(self.snapshot.sites) > 1:
            raise InputError(
                f"{name}={shortened(given[name])} counts steps, because these warehouses have no time "
                "column, and each has steps of its own. Leave it out, or ask one warehouse."
            )

    def newest_options(self, *, since: float = math.inf) -> Options:
        """The options after a look for newer ones; after `since`, of time.monotonic(), one look is enough."""
        with self._lock:
            self.snapshot.refresh_options(max_age=max(time.monotonic() - since, self._max_staleness))
            return self.options

    def refresh(self) -> bool:
        """Looks for newer data and returns whether there was any."""
        with self._lock:
            return bool(self.snapshot.refresh())

    def look_everywhere(self) -> bool:
        """Looks for newer data, and for newer files of `events`, whenever the last look was."""
        with self._lock:
            found = self.snapshot.refresh_events()
            return self.snapshot.refresh() or found

    def contents_by_site(self) -> dict[str, Contents]:
        """The batches, steps and runs of each warehouse as of now, by its name; of a single one by ""."""
        with self._lock:
            return dict(zip(self.sites, self._newest(ALL).contents().sites, strict=True))

    @property
    def sites(self) -> dict[str, Site]:
        """The reader of each of several warehouses, by its name; for a single one by the name ""."""
        snapshot = self.snapshot
        names: Iterable[str] = ("",)
        if isinstance(snapshot, SitesReader):
            names = snapshot.readers
        elif isinstance(snapshot, SitesSnapshot):
            names = snapshot.snapshots
        return dict(zip(names, snapshot.sites, strict=True))

    def info(self) -> dict[str, Any]:
        """A description of the warehouse, and facts about its tables, as of now."""
        with self._lock:
            snapshot = self._newest(ALL)
            if isinstance(snapshot, SitesSnapshot):
                return about_several({name: _info(one) for name, one in snapshot.snapshots.items()})
            return _info(snapshot)

    def _newest(self, needed: Needed) -> Snapshot | SitesSnapshot:
        return self.snapshot.newest(needed, max_age=self._max_staleness)

    def newest_contents(self, measure: str | None) -> tuple[View, AnyContents]:
        """The view of a measure, and the visible batches and steps, of one moment after a refresh."""
        with self._lock:
            snapshot = self._newest(ALL)
            return snapshot.view(measure), snapshot.contents()

    def scan_contents(
        self, measure: str | None, groups: SortedGroups | None
    ) -> tuple[View, AnyContents] | None:
        """The same for a scan in place of the runs of the measure, or of it by group.

        None if the runs do not show a removal that was committed since the way was chosen: a scan would lack
        rows that the runs still have, and a later answer from runs would have them again.
        """
        with self._lock:
            snapshot = self._newest(ALL)
            view = snapshot.view(measure)
            if groups is None:
                is_behind = view.is_behind
            else:  # if the runs lack a step, the next question is answered by a scan, too
                is_built = snapshot.are_built(Needed(measures=(), given=(groups,)))
                is_behind = is_built and snapshot.group_view(groups).is_behind
            return None if is_behind else (view, snapshot.contents())

    def newest_key_contents(self, key: Any = None) -> tuple[KeysView, View, AnyContents]:
        """The view of a key, and that of a measure and the visible batches, of one moment after a refresh."""
        with self._lock:
            snapshot = self._newest(ALL)
            return snapshot.keys_view(key), snapshot.view(), snapshot.contents()

    def contents_of(self, view: KeysView) -> AnyContents | None:
        """The visible batches at the moment of a view of a key.

        None if newer data came since, and while a load is at work, so that the view and `events` divide the
        batches into history and live ones in two ways.
        """
        with self._lock:
            snapshot = self._newest(ALL)
            newest, contents = snapshot.keys_view(view.key.columns), snapshot.contents()
        live = [(own.live, site.batches) for own, site in zip(contents.sites, view.sites, strict=True)]
        is_same = newest.versions == view.versions and all(own == known for own, known in live)
        return contents if is_same else None

    def newest_cells(self) -> tuple[CellsView, AnyContents]:
        """The view of the companions, and the visible batches and steps, of one moment after a refresh."""
        with self._lock:
            snapshot = self._newest(ALL)
            return snapshot.cells_view(), snapshot.contents()

    def newest_view(self, measure: str | None, *, live_rows: bool = False) -> View:
        """The view of a measure after a refresh; `live_rows` for a question that may read live rows."""
        with self._lock:
            newest = self._newest(Needed(measures=(measure,), live_rows=live_rows))
            return self._use(newest.view(measure))

    def refuse_silent(self) -> None:
        """The error of a warehouse that does not answer, for a question that needs the rows of all."""
        newest = self._newest(ALL)
        if isinstance(newest, SitesSnapshot) and newest.silent is not None:
            newest.silent.refuse()

    def newest_keys_view(self, key: Any = None) -> KeysView:
        """The view of a key after a refresh."""
        with self._lock:
            return self._use(self._newest(Needed(keys=(key,))).keys_view(key))

    def _use(self, view: V) -> V:
        """The view; files of older versions of its table are closed."""
        self.blocks.use_versions(view.root, view.runs_versions)
        return view

    def newest_group_view(
        self, projection: SortedGroups, *, with_key: bool
    ) -> tuple[GroupView, KeysView | None] | None:
        """The view of a measure by group after a refresh; `with_key` also that of its key up to its step.

        None while they lack steps that were loaded before the group was declared.
        """
        columns = [part.name for part in projection.keys]
        needed = Needed(keys=[columns] if with_key else [], given=(projection,), live_rows=True)
        with self._lock:
            newest = self._newest(needed)
            if not newest.are_built(needed):
                return None
            view = self._use(newest.group_view(projection))
            key = newest.keys_beside(view) if with_key else None
            return view, key and self._use(key)

    @property
    def looks_take_a_round(self) -> bool:
        """Whether each question looks for newer data by a round of requests."""
        looks = isinstance(self.snapshot, SnapshotReader | SitesReader) and not self._max_staleness
        return looks and self._waits_for_stores

    @property
    def bounds_silent(self) -> bool:
        """Whether warehouses whose store does not answer may be bounded."""
        return isinstance(self.snapshot, SitesReader) and self.snapshot.bounds_silent

    @property
    def source(self) -> Source:
        """The source from which rows of a measure are read."""
        return Source(self.blocks, self.live, self.snapshot)

    def pinned(self) -> Session:
        """A session of the warehouse as it is now. It does not refresh, and shares the caches."""
        other = copy.copy(self)
        with self._lock:
            self.snapshot.refresh()
            other.snapshot = self.snapshot.pinned()
        return other


def _info(snapshot: Snapshot) -> dict[str, Any]:
    return {"warehouse": "", **about(snapshot), **snapshot.info()}
