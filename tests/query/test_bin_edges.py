"""Histograms of heavy tails: bins of equal ratio and up to a quantile, counted against a plain list."""

from __future__ import annotations

from datetime import date, timedelta
from itertools import pairwise
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from matplotlib.figure import Figure

from tidemark import query, stream, warehouse
from tidemark.query.plots import bin_edges, plots
from tidemark.warehouse import InputError

RANDOM = Random(5)
TAIL = [RANDOM.paretovariate(0.6) for _ in range(2000)]
COLUMNS: dict[str, list[Any]] = {
    "tail": TAIL,
    "whole": [round(value) for value in TAIL],
    "mixed": [value - 1.5 if i % 3 else -value for i, value in enumerate(TAIL)],
    "zero": [0.0] * 2000,
    "day": [date(2001, 1, 1) + timedelta(days=min(90_000, round(value))) for value in TAIL],
}


@pytest.fixture(scope="module")
def wh(tmp_path_factory: pytest.TempPathFactory) -> query.Warehouse:
    """Three quarters are history, the rest is live."""
    uri = tmp_path_factory.mktemp("tails") / "w"
    rows = pa.table(COLUMNS)
    warehouse.create(None, uri, list(COLUMNS), eps=0.05, schema=rows.schema)
    warehouse.load(None, uri, rows.slice(0, 1500), "a")
    stream.append(None, uri, rows.slice(1500), source="s", batch=0)
    return query.open(uri)


def check(wh: query.Warehouse) -> None:
    """No bin has most of the rows, neighbouring edges have one ratio, and each count is that of the list."""
    for name in ("tail", "whole", "mixed"):
        edges = bin_edges.chosen_edges(wh, 20, name, {}, log=True, upto=None)
        values = COLUMNS[name]
        counted = [(one.lo, one.hi) for one in wh.histogram(edges, name)]
        exact = [sum(left <= value < right for value in values) for left, right in pairwise(edges)]
        exact[-1] += sum(value == edges[-1] for value in values)
        assert all(lo <= count <= hi for (lo, hi), count in zip(counted, exact, strict=True)), name
        assert (sum(exact), edges[0], edges[-1]) == (2000, min(values), max(values)), name
        assert max(exact) < 0.5 * 2000, (name, exact)
        ratios = [right / left for left, right in pairwise(edges) if left > 0]
        assert len(ratios) == 20
        assert max(ratios) < 1.001 * min(ratios), (name, ratios)
    for name in ("tail", "day"):
        edges = bin_edges.chosen_edges(wh, 10, name, {}, log=False, upto=0.5)
        inside = sorted(COLUMNS[name])[999]
        assert (edges[0], edges[-1]) == (min(COLUMNS[name]), inside), name


def test_bins_of_equal_ratio_show_a_heavy_tail(wh: query.Warehouse) -> None:
    equal = wh.histogram(20, "tail")
    assert max(equal.counts) > 0.95 * 2000  # what such a tail looks like otherwise
    check(wh)


def test_edges_that_grow_by_steps_instead_of_a_ratio_are_caught(
    wh: query.Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = bin_edges.chosen_edges
    monkeypatch.setattr(
        bin_edges, "chosen_edges", lambda *given, upto, **_: right(*given, log=False, upto=upto or 1)
    )
    with pytest.raises(AssertionError):
        check(wh)


@pytest.mark.parametrize(
    ("bins", "name", "how", "words"),
    [
        ([0, 1], "tail", {"log": True}, "a number of bins"),
        (0, "tail", {"upto": 0.9}, "a number of bins"),
        (20, "zero", {"log": True}, "above 0"),
        (20, "day", {"log": True}, "a measure of numbers"),
        (20, "tail", {"upto": 2}, "phi"),
    ],
)
def test_what_cannot_be_divided_is_refused(
    wh: query.Warehouse, bins: Any, name: str, how: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        wh.plot.histogram(bins, name, ax=Figure().subplots(), **how)


def test_the_figure_has_the_scale_of_its_bins(wh: query.Warehouse) -> None:
    draw = plots.Plots(wh).histogram
    assert draw(20, "tail", log=True, ax=Figure().subplots()).get_xscale() == "log"
    assert draw(20, "mixed", log=True, ax=Figure().subplots()).get_xscale() == "symlog"
    axes = draw(20, "tail", upto=0.99, ax=Figure().subplots())
    assert (axes.get_xscale(), axes.get_xlabel()) == ("linear", "tail (up to the 0.99 quantile)")
