"""The rows of the visible batches of several warehouses, for scans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.events.visible_files import VisibleFile
from tidemark.warehouse.settings.allowed_columns import SYSTEM_COLUMNS
from tidemark.warehouse.settings.options import Options
from tidemark.warehouse.snapshots.system_tables import Contents


@dataclass(frozen=True, slots=True)
class SitesContents:
    """What scans ask of `Contents`, of several warehouses.

    options: the options of all warehouses together. sites: the contents of each.
    """

    options: Options
    sites: tuple[Contents, ...]

    @property
    def columns(self) -> dict[str, str]:
        """See `Contents.columns`: the columns that all warehouses have with one type."""
        return {**SYSTEM_COLUMNS, **dict(self.options.columns)}

    @property
    def stores(self) -> tuple[Store, ...]:
        """See `Contents.stores`."""
        return tuple(site.store for site in self.sites)

    def located_files(self) -> Sequence[tuple[Store, VisibleFile]]:
        """See `Contents.located_files`."""
        return [one for site in self.sites for one in site.located_files()]


AnyContents: TypeAlias = Contents | SitesContents
