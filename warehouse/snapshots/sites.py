"""Several warehouses that are read as one: the sites.

Each site has a reader of its own, and is read as of one moment. The moments of different sites may differ,
because no clock orders the commits of different logs. views.py unites what is read. Sites in object stores
are looked at in parallel.

With missing="bounds", a site whose store does not answer is *silent* (silent_sites.py): a view of a measure
or a key then has the last state of the site that was read, with its time. All other views need every site.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from operator import is_
from typing import Any, Literal, TypeAlias, TypeVar, get_args

from tidemark.warehouse.columns.ticks import now_us
from tidemark.warehouse.delta.round_trips import stores_at_once
from tidemark.warehouse.errors import (
    InputError,
    StoreUnavailable,
    SystemRefused,
    TidemarkError,
    one_of,
    without_secrets,
)
from tidemark.warehouse.os_errors import report_os_errors
from tidemark.warehouse.projections.sorted_groups import SortedGroups
from tidemark.warehouse.settings.equal_options import common_options
from tidemark.warehouse.settings.options import Options
from tidemark.warehouse.snapshots.needed import ALL, Needed
from tidemark.warehouse.snapshots.quiet_logs import QuietLogs, united_logs
from tidemark.warehouse.snapshots.silent_sites import LastRead, Silent
from tidemark.warehouse.snapshots.snapshot import Snapshot
from tidemark.warehouse.snapshots.snapshot_reader import SnapshotReader
from tidemark.warehouse.snapshots.system_tables import SitesContents
from tidemark.warehouse.snapshots.views import (
    AnyView,
    CellsView,
    GroupView,
    KeysView,
    View,
    united,
)

T = TypeVar("T")
V = TypeVar("V", bound=AnyView)
S = TypeVar("S", bound=SnapshotReader | Snapshot)
Site: TypeAlias = SnapshotReader | Snapshot
Missing: TypeAlias = Literal["error", "bounds"]
MISSING: tuple[Missing, ...] = get_args(Missing)
_DOES_NOT_ANSWER = (StoreUnavailable, SystemRefused)


@dataclass(frozen=True, eq=False)
class SitesSnapshot:
    """Several warehouses, each at one moment. Its methods are those of `Snapshot`.

    snapshots   by name, the snapshot of each warehouse that answers
    options     the options of all together
    silent      the warehouses that do not answer; None where an answer needs all of them
    """

    snapshots: Mapping[str, Snapshot]
    options: Options
    silent: Silent | None = None
    _views: dict[Any, Any] = field(default_factory=dict, init=False)

    @property
    def sites(self) -> tuple[Snapshot, ...]:
        """The snapshot of each warehouse."""
        return tuple(self.snapshots.values())

    def is_of(self, found: Mapping[str, Snapshot], options: Options, errors: Mapping[str, Any]) -> bool:
        """Whether this has these snapshots, options, and warehouses that do not answer."""
        silent: Mapping[str, Any] = self.silent.errors if self.silent is not None else {}
        is_same = self.options is options and self.sites == tuple(found.values())
        return is_same and silent.keys() == errors.keys()

    @property
    def identity(self) -> str:
        """The identities of the warehouses."""
        return " ".join(one.identity for one in self.sites)

    def newest(self, needed: Needed, *, max_age: float = 0.0) -> SitesSnapshot:  # noqa: ARG002  as SitesReader
        """This snapshot: it is immutable."""
        return self

    def refresh(self, *_: Any, **__: Any) -> bool:
        """Does nothing and returns False: a snapshot is immutable."""
        return False

    refresh_events = refresh_options = refresh

    def pinned(self) -> SitesSnapshot:
        """This snapshot itself."""
        return self

    def view(self, measure: str | None = None) -> View:
        """See `Snapshot.view`; the default is the first measure of the first warehouse."""
        name = self.options.measure(measure).name
        return self._bounded(name, lambda site: site.view(name))

    def group_view(self, projection: SortedGroups) -> GroupView:
        """See `Snapshot.group_view`."""
        return self._united(projection, lambda site: site.group_view(projection))

    def keys_view(self, columns: Any = None) -> KeysView:
        """See `Snapshot.keys_view`; the default is the first key of the first warehouse."""
        names = self.options.key_count(columns).key.columns
        return self._bounded(("key", names), lambda site: site.keys_view(names))

    def keys_beside(self, view: GroupView) -> KeysView:
        """See `Snapshot.keys_beside`."""
        of_sites = dict(zip(self.snapshots.values(), view.sites, strict=True))
        return self._united(("key of", view.projection), lambda site: site.keys_beside(of_sites[site]))

    def are_built(self, needed: Needed) -> bool:
        """See `Snapshot.are_built`; whether that holds for each warehouse. Kept for the next question."""
        kept: tuple[Needed, bool] | None = self._views.get("built")
        if kept is None or kept[0] != needed:
            is_built = all(self._of_each(lambda site: site.are_built(needed)).values())
            kept = self._views["built"] = needed, is_built
        return kept[1]

    def cells_view(self) -> CellsView:
        """See `Snapshot.cells_view`."""
        return self._united("companions", lambda site: site.cells_view())

    def contents(self) -> SitesContents:
        """The rows of the visible batches of all warehouses, for scans."""
        return SitesContents(self.options, tuple(self._of_each(Snapshot.contents).values()))

    def info(self) -> dict[str, Any]:
        """The facts of each warehouse, see `Snapshot.info`."""
        return self._of_each(Snapshot.info)

    def _united(self, place: Hashable, read: Callable[[Snapshot], V]) -> V:
        known: V | None = self._views.get(place)
        if known is None:
            horizons = [site.options.horizon for site in self.sites]
            known = self._views[place] = united(self._of_each(read), horizons)
        return known

    def _bounded(self, place: Hashable, read: Callable[[Snapshot], V]) -> V:
        """As `_united`, with the last views of silent warehouses if these may be bounded."""
        silent = self.silent
        if silent is None:
            return self._united(place, read)
        views: dict[str, V] = self._views.get(("read", place)) or of_each(self.snapshots, read)
        self._views["read", place] = views
        silent.last.keep(place, views)
        parts = silent.parts(place)
        known: V | None = self._views.get(place)
        if known is None or known.silent != parts:
            in_order: dict[str, V] = {
                name: parts[name].view if name in parts else views[name] for name in silent.order
            }
            known = self._views[place] = united(in_order, silent.horizons, parts)
        return known

    def _of_each(self, read: Callable[[Snapshot], T]) -> dict[str, T]:
        """What `read` returns for each warehouse; the error of a silent one."""
        if self.silent is not None:
            self.silent.refuse()
        return of_each(self.snapshots, read)


class SitesReader:
    """Reads the newest state of several warehouses. Its methods are those of `SnapshotReader`.

    readers   the reader of each warehouse by its name, or its snapshot of a moment
    missing   whether a warehouse that does not answer is an error, or its rows are bounded
    """

    def __init__(self, readers: Mapping[str, Site], missing: Missing = "error") -> None:
        one_of("missing", missing, MISSING)
        self.readers = dict(readers)
        check_distinct(self.readers)
        self._waits = _wait(self.readers)
        self._of: list[Options] = []
        self._common: Options
        self._take_options()
        self._snapshot: SitesSnapshot | None = None
        self._quiet: tuple[SitesSnapshot, Needed, QuietLogs] | None = None  # of the last question
        self._last = LastRead() if missing == "bounds" else None

    @property
    def bounds_silent(self) -> bool:
        """Whether questions are answered while a warehouse does not answer."""
        return self._last is not None

    @property
    def sites(self) -> tuple[Site, ...]:
        """The reader of each warehouse."""
        return tuple(self.readers.values())

    @property
    def options(self) -> Options:
        """The options of all warehouses together, as of the last look; the same object until they change."""
        return self._common

    def _take_options(self) -> None:
        """Takes the options of each warehouse after a look; InputError if they do not fit each other."""
        own = [reader.options for reader in self.readers.values()]
        if len(own) != len(self._of) or not all(map(is_, own, self._of)):
            self._common = common_options({name: one.options for name, one in self.readers.items()})
            self._of = own

    @property
    def identity(self) -> str:
        """The identities of the warehouses."""
        return " ".join(reader.identity for reader in self.sites)

    def refresh(self, needed: Needed = ALL, *, max_age: float = 0.0) -> bool:
        """See `SnapshotReader.refresh`; whether a warehouse had newer versions."""
        return any(self._answers(lambda one: one.refresh(needed, max_age=max_age))[0].values())

    def newest(self, needed: Needed = ALL, *, max_age: float = 0.0) -> SitesSnapshot:
        """See `SnapshotReader.newest`; the same object while there is nothing newer."""
        quiet, known = self._quiet, self._snapshot
        if known is not None and quiet is not None and quiet[0] is known and quiet[1] == needed:
            if quiet[2].are_unchanged():
                return known
            self._quiet = None
        newest = self._newest(needed, max_age)
        if newest is known and self._last is None:
            self._note_quiet(needed, newest)
        return newest

    def _note_quiet(self, needed: Needed, known: SitesSnapshot) -> None:
        """Notes the logs of all warehouses, if all are quiet: they are asked for together then."""
        logs = []
        for one in self.sites:
            found = one.quiet(needed)
            if found is None:
                return
            logs.append(found)
        self._quiet = known, needed, united_logs(logs)

    def _newest(self, needed: Needed, max_age: float) -> SitesSnapshot:
        found, errors = self._answers(lambda one: one.newest(needed, max_age=max_age))
        known, options = self._snapshot, self.options
        if known is None or not known.is_of(found, options, errors):
            silent = None
            if self._last is not None:
                horizons = tuple(one.options.horizon for one in self.sites)
                silent = Silent(tuple(self.readers), horizons, errors, self._last)
            known = self._snapshot = SitesSnapshot(found, options, silent)
        return known

    def refresh_options(self, *, max_age: float) -> bool:
        """See `SnapshotReader.refresh_options`."""
        return any(self._answers(lambda one: one.refresh_options(max_age=max_age))[0].values())

    def refresh_events(self) -> bool:
        """See `SnapshotReader.refresh_events`."""
        return any(self._answers(lambda one: one.refresh_events())[0].values())

    def _answers(self, ask: Callable[[Site], T]) -> tuple[dict[str, T], dict[str, TidemarkError]]:
        """What `ask` returns for each warehouse that answers; the errors of others, if these are bounded."""
        last = self._last
        if last is None:
            found = of_each(self.readers, ask, waits=self._waits)
            self._take_options()
            return found, {}

        def tried(item: tuple[str, Site]) -> T | _Failed:
            try:
                with naming(item[0]):
                    found = ask(item[1])
            except _DOES_NOT_ANSWER as error:
                return _Failed(error)
            last.looked[item[0]] = now_us()
            return found

        all_found = _side_by_side(self.readers, tried)
        self._take_options()
        errors = {name: one.error for name, one in all_found.items() if isinstance(one, _Failed)}
        return {name: one for name, one in all_found.items() if not isinstance(one, _Failed)}, errors

    def pinned(self) -> SitesSnapshot:
        """See `SnapshotReader.pinned`."""
        return SitesSnapshot(of_each(self.readers, lambda one: one.pinned()), self.options)


@dataclass(frozen=True, slots=True)
class _Failed:
    error: TidemarkError


AnySnapshot: TypeAlias = SnapshotReader | Snapshot | SitesReader | SitesSnapshot


def of_each(sites: Mapping[str, S], read: Callable[[S], T], *, waits: bool | None = None) -> dict[str, T]:
    """What `read` returns for each site. An error names its site: `read` may be called again to find it.

    The sites are read side by side if they wait for stores, one after the other on disks. waits: whether they
    wait for stores, if that is known.
    """
    if not (_wait(sites) if waits is None else waits):
        with suppress(TidemarkError, OSError):  # quick questions feel a context for each site
            return {name: read(site) for name, site in sites.items()}

    def named(item: tuple[str, S]) -> T:
        with naming(item[0]):
            return read(item[1])

    return _side_by_side(sites, named)


def _side_by_side(sites: Mapping[str, S], work: Callable[[tuple[str, S]], T]) -> dict[str, T]:
    items = list(sites.items())
    found = stores_at_once(work, items) if _wait(sites) else list(map(work, items))
    return dict(zip(sites, found, strict=True))


def _wait(sites: Mapping[str, S]) -> bool:
    return any(site.store.files.takes_rounds for site in sites.values())


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Names a warehouse in the errors of what is done with it."""
    try:
        with report_os_errors("reading"):
            yield
    except TidemarkError as error:
        raise type(error)(f"the warehouse {name!r}: {error}") from error


def check_distinct(sites: Mapping[str, Site]) -> None:
    """InputError if two of the names are of one warehouse, or of a copy of it: rows count once."""
    by_identity: dict[str, str] = {}
    for name, site in sites.items():
        other = by_identity.setdefault(site.identity, name)
        if other != name:
            stores = [without_secrets(sites[one].store.uri) for one in (other, name)]
            raise InputError(
                f"{other!r} and {name!r} are the same warehouse, or one is a copy of the other "
                f"({stores[0]} and {stores[1]}): their rows would count twice. Name each warehouse once."
            )


def refuse_several(snapshot: AnySnapshot, what: str) -> None:
    """InputError if the snapshot is over several warehouses: `what` can be asked of one alone."""
    if isinstance(snapshot, (SitesReader, SitesSnapshot)):
        sites = snapshot.readers if isinstance(snapshot, SitesReader) else snapshot.snapshots
        names = ", ".join(map(repr, sites))
        raise InputError(
            f"{what} is asked of one warehouse, and these are {len(sites)}: {names}. Open one of them for it."
        )
