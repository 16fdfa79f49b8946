"""Several warehouses that are read as one: the sites.

Each site is read by a reader of its own, consistent in itself; all together are no one moment, because no
clock orders the commits of different logs. What is read of them is united by views.py. Sites in object stores
are looked at side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeAlias, TypeVar

from tidemark.warehouse.delta.round_trips import stores_at_once
from tidemark.warehouse.errors import InputError, TidemarkError, without_secrets
from tidemark.warehouse.os_errors import report_os_errors
from tidemark.warehouse.projections.sorted_groups import SortedGroups
from tidemark.warehouse.settings.common_options import common_options
from tidemark.warehouse.settings.options import Options
from tidemark.warehouse.snapshots.needed import ALL, Needed
from tidemark.warehouse.snapshots.site_contents import SitesContents
from tidemark.warehouse.snapshots.snapshot import Snapshot
from tidemark.warehouse.snapshots.snapshot_reader import SnapshotReader
from tidemark.warehouse.snapshots.views import AnyView, GroupView, KeysView, View, united

T = TypeVar("T")
V = TypeVar("V", bound=AnyView)
S = TypeVar("S", bound=SnapshotReader | Snapshot)
Site: TypeAlias = SnapshotReader | Snapshot


@dataclass(frozen=True, eq=False)
class SitesSnapshot:
    """Several warehouses, each at one moment. Its methods are those of `Snapshot`.

    snapshots   that of each warehouse, by its name
    options     the options of all together
    """

    snapshots: Mapping[str, Snapshot]
    options: Options
    _views: dict[Any, Any] = field(default_factory=dict, init=False)

    @property
    def sites(self) -> tuple[Snapshot, ...]:
        """The snapshot of each warehouse."""
        return tuple(self.snapshots.values())

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
        return self._united(name, lambda site: site.view(name))

    def group_view(self, projection: SortedGroups) -> GroupView:
        """See `Snapshot.group_view`."""
        return self._united(projection, lambda site: site.group_view(projection))

    def keys_view(self, columns: Any = None) -> KeysView:
        """See `Snapshot.keys_view`; the default is the first key of the first warehouse."""
        names = self.options.key_count(columns).key.columns
        return self._united(("key", names), lambda site: site.keys_view(names))

    def keys_beside(self, view: GroupView) -> KeysView:
        """See `Snapshot.keys_beside`."""
        of_sites = dict(zip(self.snapshots.values(), view.sites, strict=True))
        return self._united(("key of", view.projection), lambda site: site.keys_beside(of_sites[site]))

    def are_built(self, needed: Needed) -> bool:
        """See `Snapshot.are_built`; whether it holds for each warehouse."""
        return all(self._of_each(lambda site: site.are_built(needed)).values())

    def cells_view(self) -> NoReturn:
        """Companions are asked of one warehouse."""
        raise _of_one(self.snapshots, "a companion")

    def contents(self) -> SitesContents:
        """The rows of the visible batches of all warehouses, for scans."""
        return SitesContents(self.options, tuple(self._of_each(Snapshot.contents).values()))

    def info(self) -> dict[str, Any]:
        """The facts of each warehouse, see `Snapshot.info`."""
        return self._of_each(Snapshot.info)

    def _united(self, place: Hashable, read: Callable[[Snapshot], V]) -> V:
        known: V | None = self._views.get(place)
        if known is None:
            known = self._views[place] = united(self._of_each(read))
        return known

    def _of_each(self, read: Callable[[Snapshot], T]) -> dict[str, T]:
        return of_each(self.snapshots, read)


class SitesReader:
    """Reads the newest state of several warehouses. Its methods are those of `SnapshotReader`.

    readers   that of each warehouse by its name; snapshots for moments that stay
    """

    def __init__(self, readers: Mapping[str, Site]) -> None:
        self.readers = dict(readers)
        check_distinct(self.readers)
        self._of: tuple[Options, ...] = ()
        self._common = self.options
        self._snapshot: SitesSnapshot | None = None

    @property
    def sites(self) -> tuple[Site, ...]:
        """The reader of each warehouse."""
        return tuple(self.readers.values())

    @property
    def options(self) -> Options:
        """The options of all together, as of the last look; InputError if they do not fit each other.

        The same object until those of a warehouse change.
        """
        own = tuple(reader.options for reader in self.sites)
        if len(own) != len(self._of) or any(a is not b for a, b in zip(own, self._of, strict=True)):
            self._common = common_options({name: one.options for name, one in self.readers.items()})
            self._of = own
        return self._common

    @property
    def identity(self) -> str:
        """The identities of the warehouses."""
        return " ".join(reader.identity for reader in self.sites)

    def refresh(self, needed: Needed = ALL, *, max_age: float = 0.0) -> bool:
        """See `SnapshotReader.refresh`; whether a warehouse had newer versions."""
        return any(of_each(self.readers, lambda one: one.refresh(needed, max_age=max_age)).values())

    def newest(self, needed: Needed = ALL, *, max_age: float = 0.0) -> SitesSnapshot:
        """See `SnapshotReader.newest`; the same object while there is nothing newer."""
        found = of_each(self.readers, lambda one: one.newest(needed, max_age=max_age))
        known, options = self._snapshot, self.options
        if known is None or known.options is not options or known.sites != tuple(found.values()):
            known = self._snapshot = SitesSnapshot(found, options)
        return known

    def refresh_options(self, *, max_age: float) -> bool:
        """See `SnapshotReader.refresh_options`."""
        return any(of_each(self.readers, lambda one: one.refresh_options(max_age=max_age)).values())

    def refresh_events(self) -> bool:
        """See `SnapshotReader.refresh_events`."""
        return any(of_each(self.readers, lambda one: one.refresh_events()).values())

    def pinned(self) -> SitesSnapshot:
        """See `SnapshotReader.pinned`."""
        return SitesSnapshot(of_each(self.readers, lambda one: one.pinned()), self.options)


AnySnapshot: TypeAlias = SnapshotReader | Snapshot | SitesReader | SitesSnapshot


def of_each(sites: Mapping[str, S], read: Callable[[S], T]) -> dict[str, T]:
    """What `read` returns for each site. An error of a site names it.

    Side by side if they wait for stores, one after the other on disks.
    """

    def named(item: tuple[str, S]) -> T:
        with naming(item[0]):
            return read(item[1])

    items = list(sites.items())
    if any(site.store.files.takes_rounds for site in sites.values()):
        found = stores_at_once(named, items)
    else:
        found = list(map(named, items))
    return dict(zip(sites, found, strict=True))


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Names a warehouse in the errors of what is done with it."""
    try:
        with report_os_errors("reading"):
            yield
    except TidemarkError as error:
        raise type(error)(f"the warehouse {name!r}: {error}") from error


def check_distinct(sites: Mapping[str, Site]) -> None:
    """InputError if two of the names are one warehouse, or one is a copy of the other: rows count once."""
    by_identity: dict[str, str] = {}
    for name, site in sites.items():
        other = by_identity.setdefault(site.identity, name)
        if other != name:
            stores = [without_secrets(sites[one].store.uri) for one in (other, name)]
            raise InputError(
                f"{other!r} and {name!r} are the same warehouse, or one is a copy of the other "
                f"({stores[0]} and {stores[1]}): their rows would count twice. Name each warehouse once."
            )


def _of_one(sites: Mapping[str, Any], what: str) -> InputError:
    names = ", ".join(map(repr, sites))
    return InputError(
        f"{what} is asked of one warehouse, and these are {len(sites)}: {names}. Open one of them for it."
    )


def refuse_several(snapshot: AnySnapshot, what: str) -> None:
    """InputError if the snapshot is over several warehouses: `what` is asked of one."""
    if isinstance(snapshot, SitesReader):
        raise _of_one(snapshot.readers, what)
    if isinstance(snapshot, SitesSnapshot):
        raise _of_one(snapshot.snapshots, what)
