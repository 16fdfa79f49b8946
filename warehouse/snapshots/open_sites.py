"""Opens several warehouses as one: their names, their options of access, and what is refused."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from tidemark.warehouse.delta.disk_cache import DiskCache
from tidemark.warehouse.delta.round_trips import stores_at_once
from tidemark.warehouse.errors import InputError, name_text, without_secrets
from tidemark.warehouse.snapshots.past import At, given_moment, opened
from tidemark.warehouse.snapshots.sites import SitesReader, naming
from tidemark.warehouse.snapshots.snapshot import Snapshot
from tidemark.warehouse.snapshots.snapshot_reader import SnapshotReader

Address: TypeAlias = str | os.PathLike[str]
StoreOptions: TypeAlias = Mapping[str, str] | None


def opened_sites(
    uris: Iterable[Address] | Mapping[str, Address],
    storage_options: StoreOptions | Mapping[str, StoreOptions] = None,
    cache: DiskCache | None = None,
    *,
    at: At | None = None,
) -> SitesReader:
    """Several warehouses for reading as one, opened side by side; `at` is a time, see `open_past`.

    uris              their addresses by name; an address without a name is its own name
    storage_options   those of all stores, or by name those of each

    InputError without a warehouse, for a name or an address that comes twice, for the number of a step, and
    for warehouses that cannot be asked together (settings/common_options.py). Errors of one name it.
    """
    by_name = _named(uris)
    options = _options_by_name(by_name, storage_options)
    if at is not None and isinstance(given_moment(at), int):
        raise InputError(
            f"at={at!r} is the number of a step, and each warehouse counts its own steps. Give a time."
        )

    def site(name: str) -> SnapshotReader | Snapshot:
        with naming(name):
            return opened(by_name[name], options[name], cache, at=at)

    return SitesReader(dict(zip(by_name, stores_at_once(site, list(by_name)), strict=True)))


def _named(uris: Iterable[Address] | Mapping[str, Address]) -> dict[str, Address]:
    if isinstance(uris, Mapping):
        named = {name_text("a warehouse's name", name): uri for name, uri in uris.items()}
    else:
        named = {}
        for uri in uris:
            name = without_secrets(os.fspath(uri)) if isinstance(uri, str | os.PathLike) else repr(uri)
            if name in named:
                raise InputError(f"{name!r} was given twice: its rows would count twice. Name it once.")
            named[name] = uri
    if not named:
        raise InputError("no warehouse was given. Expected addresses, or a mapping of names to addresses.")
    return named


def _options_by_name(
    names: Iterable[str], given: StoreOptions | Mapping[str, StoreOptions]
) -> dict[str, dict[str, str] | None]:
    """The storage options of each name. Those of all are texts, those by name are mappings of texts."""
    options: Mapping[str, Any] = given or {}
    by_name = any(isinstance(value, Mapping) for value in options.values())
    unknown = sorted(set(map(str, options)) - set(names)) if by_name else []
    if unknown:
        raise InputError(f"storage_options has {unknown[0]!r}, which names none of the warehouses.")
    return {name: dict((options.get(name) if by_name else options) or {}) or None for name in names}
