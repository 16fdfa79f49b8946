"""The fields that all answers to one question share: what was read for them, and how.

A field of all answers is declared in query/answers/all_answers.py and filled in here.
"""

from __future__ import annotations

from tidemark.query.answers.all_answers import SharedFields
from tidemark.query.answers.by_site import BySite, SiteRows
from tidemark.query.reading.spending import current_plan
from tidemark.warehouse.columns.ticks import TickGrid
from tidemark.warehouse.snapshots.views import AnyView

_KEPT = "tidemark_site_rows"  # the attribute of a view with the rows of its warehouses


def shared_fields(view: AnyView, widened: str | None, grid: TickGrid | None) -> SharedFields:
    """The fields of answers from a view, for the question of this thread. O(ticks) once for each view."""
    return {
        "as_of": dict(view.versions),
        "widened": widened,
        "plan": current_plan(),
        "sites": _rows_by_site(view, grid),
    }


def _rows_by_site(view: AnyView, grid: TickGrid | None) -> BySite | None:
    """The rows of each warehouse by tick; None for a view of one."""
    if not view.parts:
        return None
    kept: dict[str, SiteRows] | None = vars(view).get(_KEPT)
    if kept is None:
        kept = vars(view)[_KEPT] = _site_rows(view)
    return BySite(kept, grid)


def _site_rows(view: AnyView) -> dict[str, SiteRows]:
    sites = {}
    for name, site, horizon in zip(view.versions, view.sites, view.horizons, strict=True):
        silent = view.silent.get(name)
        known, read_us = (site, None) if silent is None else (silent.view, silent.read_us)
        ticks, rows = known.rows_by_tick
        sites[name] = SiteRows(ticks, rows, site.versions, site.root, horizon, read_us)
    return sites
