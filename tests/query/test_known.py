"""What is remembered of a window belongs to its measure and to its view."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.query.worlds import ROOT, World, open_world
from tidemark.query.quantiles.window_bounds import SpanCache, WindowBoundsCache
from tidemark.warehouse.columns.ticks import ALL_TIME, Window
from tidemark.warehouse.columns.value_encoding import Measure
from tidemark.warehouse.projections.sorted_values import SortedValues
from tidemark.warehouse.snapshots.views import View

ROWS = tuple((float(i), i // 10) for i in range(40))


def empty_view(name: str, kind: str) -> View:
    return View(SortedValues(Measure(name, kind)), {}, (), (), {}, ())


def test_measures_without_runs_do_not_share_what_is_known() -> None:
    cache = WindowBoundsCache(SpanCache())
    one, other = empty_view("a", "double"), empty_view("b", "long")
    assert cache.get(one, ALL_TIME).combined.values.dtype == "float64"
    assert cache.get(other, ALL_TIME).combined.values.dtype == "int64"
    assert cache.get(one, ALL_TIME) is cache.get(one, ALL_TIME)


def test_windows_are_known_apart_and_a_newer_view_replaces_the_older(tmp_path: Path) -> None:
    wh = open_world(tmp_path, World((ROWS[:30],), (ROWS[30:],)))
    view = wh._session.newest_view(None)
    cache = WindowBoundsCache(SpanCache())
    assert cache.get(view, ALL_TIME).rows == 40
    assert cache.get(view, Window(2, 4)).rows == 20
    assert view.root == ROOT
    newer = replace(view, live=())
    assert cache.get(newer, ALL_TIME).rows == 30
    assert cache.get(newer, ALL_TIME).history is cache.get(newer, ALL_TIME).history
    assert cache.get(view, ALL_TIME).rows == 40  # a question under way keeps its view
