"""The rows of each warehouse of a view over several, for `by_site` of answers."""

from __future__ import annotations

from tidemark.query.answers.by_site import BySite, SiteRows
from tidemark.warehouse.columns.ticks import NO_TICK, TickGrid
from tidemark.warehouse.snapshots.views import AnyView


def rows_by_site(view: AnyView, grid: TickGrid | None) -> BySite | None:
    """The rows of each warehouse by tick; None for a view of one. O(ticks) once for each view."""
    if not view.parts:
        return None
    sites = {}
    for name, site, horizon in zip(view.versions, view.sites, view.horizons, strict=True):
        silent = view.silent.get(name)
        known, read_us = (site, None) if silent is None else (silent.view, silent.read_us)
        ticks, rows = known.rows_by_tick
        sites[name] = SiteRows(ticks, rows, site.versions, site.root, horizon, read_us)
    return BySite(sites, grid, NO_TICK)
