"""What the questions to an open warehouse share: its snapshot, its caches, and the retry on newer views."""

from __future__ import annotations

import copy
import operator
import threading
import time
from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, Protocol, TypeVar, cast

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
from tidemark.query.reading.live_cache import LiveCache, LiveValues
from tidemark.query.reading.spending import check_stop, limited, spending
from tidemark.query.reading.time_limit import TimeLimit
from tidemark.warehouse.columns.ticks import Window
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.errors import DamagedWarehouse, InputError, StoreUnavailable, TidemarkError, shortened
from tidemark.warehouse.memory_cache import LRUCache
from tidemark.warehouse.os_errors import report_os_errors
from tidemark.warehouse.per_process import per_process
from tidemark.warehouse.projections.sorted_groups import SortedGroups
from tidemark.warehouse.settings.options import Options
from tidemark.warehouse.snapshots.needed import ALL, Needed
from tidemark.warehouse.snapshots.site_contents import AnyContents
from tidemark.warehouse.snapshots.sites import AnySnapshot, Site, SitesReader, SitesSnapshot, refuse_several
from tidemark.warehouse.snapshots.snapshot import Snapshot
from tidemark.warehouse.snapshots.snapshot_reader import SnapshotReader
from tidemark.warehouse.snapshots.system_tables import Contents
from tidemark.warehouse.snapshots.views import CellsView, GroupView, KeysView, View

T = TypeVar("T")
V = TypeVar("V", View, KeysView, GroupView)
W = TypeVar("W")
A_co = TypeVar("A_co", covariant=True)

CACHED_SIZES = 2**18  # groups whose numbers of rows are cached
_GUESSES = 8  # at once in a process; further questions do without a thread
ATTEMPTS = 3  # files missing from three views in a row are damage, not maintenance


class Asks(Protocol[A_co]):
    """A question as the caller gave it."""

    def plan(self, session: Session, /) -> Plan[Any, A_co]:
        """How it is answered; InputError if the question does not fit the options of the session."""


class Plan(Protocol[W, A_co]):
    """A question that is understood: which view answers it, and how."""

    @property
    def topic(self) -> Hashable:
        """Names its view among those of other questions; None for a question that reads little or all."""

    def newest(self) -> W:
        """The newest view."""

    def answer(self, view: W, /) -> A_co:
        """The answer from a view. DamagedWarehouse if a file of the view is missing or damaged."""


class Session:
    """A snapshot, and caches of what is read from it. Safe to share between threads.

    The snapshot is of one warehouse, or of several that are asked as one (warehouse/snapshots/sites.py).

    memory: the budget of `memory`, the cache of decoded rows, in bytes; None for that of the process
        (reading/budgets.py).
    progress: called with the share of a scan that is done, from 0 to 1; None shows it where a person looks.
    max_staleness: for how many seconds what was seen of the tables is taken for the newest.

    `time_limit` is the limit of each question, if there is one.
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
        # The view of the last question of each topic, and whether the next one is answered from it.
        self._views: dict[Hashable, tuple[Any, bool]] = {}

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

    def newest_options(self) -> Options:
        """The options after a look for newer ones."""
        with self._lock:
            self.snapshot.refresh_options(max_age=self._max_staleness)
            return self.options

    def ask(self, request: Asks[T]) -> T:
        """The answer to a request, by the newest options.

        The request is interpreted with the options that were read last. The check for newer data brings newer
        options, too, without a round of requests of its own; if they changed, the request is interpreted
        again. One that does not fit is refused only after a check: a column, key or group may have come
        since. Errors of the operating system and of the store become those of tidemark. If a store stops
        answering and silent warehouses may be bounded, the question is asked again.
        """
        limit = None if self.time_limit is None else self.time_limit.begin()
        tries = 2 if isinstance(self.snapshot, SitesReader) and self.snapshot.bounds_silent else 1
        with report_os_errors("a question"), limited(limit):
            while True:
                options, began = self.options, time.monotonic()
                try:
                    plan = request.plan(self)
                    view, guess = self._look(plan)
                    answer = self._answer(plan, view, guess) if self.options is options else None
                except InputError:
                    with self._lock:
                        age = time.monotonic() - began
                        self.snapshot.refresh_options(max_age=max(age, self._max_staleness))
                    if self.options is options:
                        raise
                except StoreUnavailable:
                    tries -= 1
                    if not tries:
                        raise
                else:
                    if self.options is options:
                        return cast("T", answer)

    def refresh(self) -> bool:
        """Looks for newer data and returns whether there was any."""
        with self._lock:
            return bool(self.snapshot.refresh())

    @property
    def seen(self) -> tuple[object, ...]:
        """What the last look at each warehouse found: the same objects until a look finds newer data."""
        return tuple(site.seen for site in self.snapshot.sites)

    def _look_everywhere(self) -> bool:
        """Looks for newer data, and for newer files of `events`, whenever the last look was."""
        with self._lock:
            found = self.snapshot.refresh_events()
            return self.snapshot.refresh() or found

    def contents(self) -> Contents:
        """The batches, steps and runs as of now; InputError for several warehouses."""
        refuse_several(self.snapshot, "what the tables have")
        with self._lock:
            return cast("Contents", self._newest(ALL).contents())

    def contents_by_site(self) -> dict[str, Contents]:
        """The same for each of several warehouses, by its name; for a single one by the name ""."""
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

    def _look(self, plan: Plan[W, T]) -> tuple[W, Future[T] | None]:
        """The newest view of a plan, and the future of its answer if a thread has begun to find it.

        In an object store the question is answered from the last view of its topic while a newer view is
        looked for. If there is no newer view, this answer is returned: its reads ran beside the check. If
        there is one, the next question of the topic waits for its check, as further views may come.
        """
        topic = plan.topic
        known, is_settled = self._views.get(topic, (None, False))
        options, guess = self.options, None
        if is_settled:
            guess = _guesses().submit(copy_context().run, self._found, plan, known)
        view = plan.newest()
        is_same = _is_same(view, known)
        if topic is not None and self._looks_take_a_round and not (is_same and is_settled):
            nothing_newer = is_same or known is None
            others = self._views if nothing_newer and self.options is options else {}
            self._views = {**others, topic: (view, nothing_newer)}
        return view, guess if guess is not None and not guess.cancel() and is_same else None

    def _answer(self, plan: Plan[W, T], view: W, guess: Future[T] | None) -> T:
        """The answer from the newest view; if a file is missing, from newer views, ATTEMPTS in all."""
        if guess is not None and not isinstance(guess.exception(), TidemarkError | OSError):
            return guess.result()  # one that failed is asked again, and a fault of ours is raised
        for _ in range(ATTEMPTS - 1):
            try:
                return self._found(plan, view)
            except DamagedWarehouse:
                found = self._look_everywhere()
                newer = plan.newest()
                if newer is view and not found:
                    raise
                view = newer
        return self._found(plan, view)

    def _found(self, plan: Plan[W, T], view: W) -> T:
        """The answer from a view, which tells what was read for it."""
        check_stop()
        with spending():
            return plan.answer(view)

    @property
    def _looks_take_a_round(self) -> bool:
        looks = isinstance(self.snapshot, SnapshotReader | SitesReader) and not self._max_staleness
        return looks and self._waits_for_stores

    def source(self, view: View, window: Window) -> Source:
        """The source from which rows of a window of a measure are read."""
        return Source(self.blocks, LiveValues(self.live, self.snapshot, view, window, self.live_fits(view)))

    def live_fits(self, view: View) -> bool:
        """Whether the live rows of a measure fit into memory: then accurate answers have no error."""
        return self.live.fits(view)

    def pinned(self) -> Session:
        """A session of the warehouse as it is now. It does not refresh, and shares the caches."""
        other = copy.copy(self)
        with self._lock:
            self.snapshot.refresh()
            other.snapshot = self.snapshot.pinned()
        return other


def _info(snapshot: Snapshot) -> dict[str, Any]:
    return {"warehouse": "", **about(snapshot), **snapshot.info()}


def _is_same(view: Any, other: Any) -> bool:
    """Whether these are the same objects, one or several."""
    if isinstance(view, tuple) and isinstance(other, tuple):
        return all(map(operator.is_, view, other))
    return view is other


@per_process
def _guesses() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_GUESSES, thread_name_prefix="tidemark-answers")
