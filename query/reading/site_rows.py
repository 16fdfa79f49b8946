"""The rows of each warehouse of a view over several, for `by_site` of answers."""

from __future__ import annotations

from tidemark.query.answers.by_site import BySite, SiteRows
from tidemark.warehouse.columns.ticks import NO_TICK, TickGrid
from tidemark.warehouse.snapshots.views import AnyView


def rows_by_site(view: AnyView, grid: TickGrid | None) -> BySite | None:
    """The rows of each warehouse by tick; None for a view of one. O(ticks) once for each view."""
    if not view.parts:
        return None
    sites = {
        name: SiteRows(*site.rows_by_tick, site.versions)
        for name, site in zip(view.versions, view.sites, strict=True)
    }
    return BySite(sites, grid, NO_TICK)
