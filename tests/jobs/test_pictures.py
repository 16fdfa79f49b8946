"""Pictures of real flights: every text lies within the figure, and none is cut or lies on another."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import combinations
from pathlib import Path
from typing import Any, cast

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from tests.jobs.said import tidemark
from tidemark import query
from tidemark.query.plots.plots import size_for

KINDS = {
    "cdf": ["--mode", "quick"],
    "quantiles": ["--phi", "0.5", "0.9", "0.99", "--every", "7d", "--mode", "quick"],
    "top": ["5", "--last", "36h", "--mode", "exact"],
    "histogram": ["--edges", "-60", "-30", "0", "30", "60", "180"],
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_the_command_draws_a_picture(
    kind: str, ending: str, flights: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / f"a.{ending}"
    said = tidemark(capsys, "plot", kind, "-w", flights, "-o", path, "--json", *KINDS[kind])
    assert (said.code, said.err, said.json) == (0, "", {"file": str(path)})
    first = path.read_bytes()[:5]
    assert first == {"png": b"\x89PNG\r", "svg": b"<?xml", "pdf": b"%PDF-"}[ending]
    assert path.stat().st_size > 5000


WINDOWS: tuple[dict[str, Any], ...] = ({}, {"last": "14d"}, {"between": ("2001-01-15 05:00", "2001-03-05")})


@pytest.mark.parametrize("size", [size_for(), (4, 3.2)])
@pytest.mark.parametrize("window", WINDOWS)
def test_every_text_is_within_the_figure_and_apart_from_the_others(
    size: tuple[float, float], window: dict[str, Any], flights: Path
) -> None:
    wh = query.open(flights)
    for draw in (wh.plot.cdf, wh.plot.quantiles, wh.plot.histogram):
        figure = Figure(figsize=size, layout="constrained")
        draw(ax=figure.subplots(), mode="quick", **window)
        cast("Any", FigureCanvasAgg(figure)).draw()
        texts = _shown(figure)
        assert any("N = " in text.get_text() for text in texts)
        frame = figure.bbox
        for text in texts:
            box = text.get_window_extent()
            said = (draw.__name__, text.get_text(), box.bounds)
            assert box.x0 >= 0, said
            assert box.y0 >= 0, said
            assert box.x1 <= frame.x1, said
            assert box.y1 <= frame.y1, said
        for one, other in combinations(texts, 2):
            both = one.get_text(), other.get_text()
            assert not one.get_window_extent().overlaps(other.get_window_extent()), (draw.__name__, both)


def _shown(figure: Figure) -> list[Text]:
    """The texts that are drawn: labels of ticks outside the axes' limits are not."""
    axes = figure.axes[0]
    ticks = [*axes.get_xticklabels(), *axes.get_yticklabels()]
    legend = axes.get_legend()
    assert legend is not None
    inside = [text for text in ticks if axes.bbox.padded(2).overlaps(_anchor(text))]
    left_title: Text = cast("Any", axes)._left_title
    rest = [axes.title, left_title, axes.xaxis.label, axes.yaxis.label, axes.xaxis.get_offset_text()]
    return [text for text in (*inside, *rest, *legend.get_texts(), legend.get_title()) if text.get_text()]


def _anchor(text: Text) -> Bbox:
    x, y = text.get_transform().transform(text.get_position())
    return Bbox.from_extents(x - 6, y - 6, x + 6, y + 6)


def test_a_span_of_time_is_whole_ticks(flights: Path) -> None:
    wh = query.open(flights)
    first, end = datetime(2001, 1, 1, tzinfo=UTC), datetime(2001, 4, 1, tzinfo=UTC)
    assert wh.tick == timedelta(days=1)
    assert wh.span() == (first, end)
    assert wh.span(last="7d") == (end - timedelta(days=7), end)
    assert wh.span(between=("2000-01-01", "2001-01-02 03:00")) == (first, first + timedelta(days=2))
