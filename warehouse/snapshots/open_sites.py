"""Opens several warehouses as one: their names, their options of access, and what is refused."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from tidemark.warehouse.delta.addresses import origin_of
from tidemark.warehouse.delta.disk_cache import DiskCache
from tidemark.warehouse.delta.round_trips import stores_at_once
from tidemark.warehouse.errors import InputError, name_text, one_of, shortened, without_secrets
from tidemark.warehouse.snapshots.past import At, Versions, given_moment, opened
from tidemark.warehouse.snapshots.same_batches import DUPLICATES, Duplicates, tell_same_batches
from tidemark.warehouse.snapshots.sites import Missing, SitesReader, naming, of_each
from tidemark.warehouse.snapshots.snapshot import Snapshot
from tidemark.warehouse.snapshots.snapshot_reader import SnapshotReader

Address: TypeAlias = str | os.PathLike[str]
StoreOptions: TypeAlias = Mapping[str, str] | None
SitesAt: TypeAlias = At | Mapping[str, Versions]


def opened_sites(
    uris: Iterable[Address] | Mapping[str, Address],
    storage_options: StoreOptions | Mapping[str, StoreOptions] = None,
    cache: DiskCache | None = None,
    *,
    at: SitesAt | None = None,
    duplicates: Duplicates = "warn",
    missing: Missing = "error",
) -> SitesReader:
    """Several warehouses for reading as one, opened side by side.

    uris              their addresses by name; an address without a name is its own name
    storage_options   the options of all stores, or by name those of each
    at                a time, or by name the versions of each, see `open_past`
    duplicates        whether batches that two warehouses have are told in a warning, or refused
    missing           whether a warehouse that does not answer later is an error, or is bounded by what was
                      read of it

    InputError without a warehouse, for a name or an address that comes twice, for the number of a step, for
    the same batches where they are refused, and for warehouses that cannot be asked together
    (settings/equal_options.py). Errors of one name it.
    """
    by_name = _named(uris)
    options = _options_by_name(by_name, storage_options)
    moments = _moments(by_name, at)
    one_of("duplicates", duplicates, DUPLICATES)

    def site(name: str) -> SnapshotReader | Snapshot:
        with naming(name):
            return opened(by_name[name], options[name], cache, at=moments[name])

    reader = SitesReader(dict(zip(by_name, stores_at_once(site, list(by_name)), strict=True)), missing)
    events = of_each(reader.readers, lambda one: (one.store, one.list_events()))
    tell_same_batches(events, duplicates)
    return reader


def _named(uris: Iterable[Address] | Mapping[str, Address]) -> dict[str, Address]:
    if isinstance(uris, Mapping):
        named = {name_text("a warehouse's name", name): uri for name, uri in uris.items()}
    else:
        named = {}
        for uri in uris:
            name = without_secrets(os.fspath(uri)) if isinstance(uri, str | os.PathLike) else repr(uri)
            if name in named:
                raise InputError(
                    f"{shortened(name)} was given twice: its rows would count twice. Name it once."
                )
            named[name] = uri
    if not named:
        raise InputError("no warehouse was given. Expected addresses, or a mapping of names to addresses.")
    return named


def _moments(names: Iterable[str], at: SitesAt | None) -> dict[str, At | Versions | None]:
    if isinstance(at, Mapping):
        if set(at) != set(names) or not all(isinstance(own, Mapping) for own in at.values()):
            raise InputError(
                f"at has {', '.join(map(repr, at)) or 'nothing'}. Expected the versions of each warehouse by "
                f"its name, as `moment` of an answer has them: {', '.join(map(repr, names))}."
            )
        return dict(at)
    if at is not None and isinstance(given_moment(at), int):
        raise InputError(
            f"at={shortened(at)} is the number of a step, and each warehouse counts its own steps. Give a "
            "time."
        )
    return dict.fromkeys(names, at)


def _options_by_name(
    uris: Mapping[str, Address], given: StoreOptions | Mapping[str, StoreOptions]
) -> dict[str, dict[str, str] | None]:
    """The storage options of each name. Options of all are texts, options by name are mappings of texts."""
    options: Mapping[str, Any] = given or {}
    by_name = any(value is None or isinstance(value, Mapping) for value in options.values())
    unknown = sorted(set(map(str, options)) - set(uris)) if by_name else []
    if unknown:
        raise InputError(f"storage_options has {shortened(unknown[0])}, which names none of the warehouses.")
    if "token" in options and not by_name and len({origin_of(uri) for uri in uris.values()}) > 1:
        raise InputError(
            "storage_options has one token for warehouses at several places, and a token goes to the server "
            "that it was given for. Give the options by name: {'eu': {'token': ...}, 'us': None}."
        )
    return {name: dict((options.get(name) if by_name else options) or {}) or None for name in uris}
