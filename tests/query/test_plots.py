"""Figures: the band is what was certified, gaps are gaps, and the caller's axes are drawn into."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import StepPatch
from numpy.typing import NDArray

from tests.query.worlds import HandMade, Oracle, World, open_world
from tidemark.warehouse.errors import EmptyWindow, InputError

RANDOM = np.random.default_rng(7)
ROWS = tuple(
    (float(v), int(t)) for v, t in zip(RANDOM.normal(size=3000), np.repeat(range(6), 500), strict=True)
)
KEPT = tuple(row for row in ROWS if row[1] != 2)  # nothing happened in step 2


@pytest.fixture
def world() -> World:
    return World((KEPT[:1000],), (KEPT[1000:],), eps=0.2)


@pytest.fixture
def wh(tmp_path: Path, world: World) -> Iterator[HandMade]:
    mpl.use("agg")
    yield open_world(tmp_path, world)
    plt.close("all")


def band(axes: Axes, at: int = 0) -> Any:
    """The outline of a filled band."""
    return axes.collections[at].get_paths()[0].vertices


def points(line: Line2D) -> tuple[NDArray[Any], NDArray[Any]]:
    """Where a line goes."""
    xs, ys = line.get_data()
    return np.asarray(xs), np.asarray(ys)


def axes_of() -> Axes:
    return Figure(layout="constrained").subplots()


def test_the_band_of_a_cdf_holds_the_true_share_everywhere(wh: HandMade, world: World) -> None:
    axes = wh.plot.cdf(mode="quick", ax=axes_of())
    numbers = np.array(Oracle.of(world.rows(None)).numbers)
    outline, (line,) = axes.collections[0].get_paths()[0], axes.lines
    lo, hi = numbers[0], numbers[-1]
    inside = RANDOM.uniform(lo, hi, 300)
    true = [np.searchsorted(numbers, x, "right") / len(numbers) for x in inside]
    assert all(
        outline.contains_points(np.c_[inside, true], radius=1e-6)
        | outline.contains_points(np.c_[inside, true], radius=-1e-6)
    )
    xs, ys = points(line)
    assert list(xs) == sorted(xs)
    assert (min(xs), max(xs)) == (lo, hi)
    assert max(ys) == 1
    assert axes.get_xlabel().startswith("x (the middle 99 %")
    left, right = axes.get_xlim()
    assert lo <= left < right <= hi


def test_quantiles_over_steps_have_their_bounds_and_a_gap(wh: HandMade) -> None:
    axes = wh.plot.quantiles([0.5, 0.9], mode="quick", ax=axes_of())
    assert [line.get_label() for line in axes.lines] == ["0.5", "0.9"]
    for at, phi in enumerate((0.5, 0.9)):
        xs, ys = points(axes.lines[at])
        outline = band(axes, at)
        for step in (0, 1, 3, 4, 5):
            answer = wh.quantile(phi, between=(step, step + 1), mode="quick")
            assert list(ys[2 * step : 2 * step + 2]) == [answer.value] * 2
            assert list(xs[2 * step : 2 * step + 2]) == [step, step + 1]
        assert all(math.isnan(y) for y in ys[4:6])
        answers = [wh.quantile(phi, between=(s, s + 1), mode="quick") for s in (0, 1)]
        assert {one.low for one in answers} <= set(outline[:, 1])
        assert {one.high for one in answers} <= set(outline[:, 1])
    assert any(one.low < one.high for one in answers)


def test_spans_may_be_wider_than_a_step(wh: HandMade) -> None:
    axes = wh.plot.quantiles([0.5], every=4, ax=axes_of())
    assert list(points(axes.lines[0])[0]) == [0, 4, 4, 8]
    assert "4 an answer" in axes.get_xlabel()
    axes = wh.plot.quantiles([0.5], between=(3, 5), ax=axes_of())
    assert points(axes.lines[0])[0].tolist() == [3, 4, 4, 5]


def test_a_histogram_shows_counts_and_their_bounds(wh: HandMade) -> None:
    found = wh.histogram(8, mode="quick")
    axes = wh.plot.histogram(8, mode="quick", ax=axes_of())
    steps = axes.patches[0]
    assert isinstance(steps, StepPatch)
    values, edges, _ = steps.get_data()
    assert np.asarray(values).tolist() == found.counts
    assert np.asarray(edges).tolist() == found.edges
    assert {*(one.lo for one in found), *(one.hi for one in found)} <= set(band(axes)[:, 1])
    assert any(one.lo < one.hi for one in found)


def test_a_figure_says_what_it_shows(wh: HandMade) -> None:
    axes = wh.plot.histogram(between=(1, 5), mode="exact")
    said = axes.get_title(loc="left")
    for words in (
        "x, from 1 to before 5",
        "N = 1,500 (",
        "exact",
        "eps = 0.2",
        "as of runs 1, steps 1, ledger 1",
    ):
        assert words in " ".join(said.split("\n"))


def test_the_callers_axes_are_drawn_into_and_returned(wh: HandMade) -> None:
    own = axes_of()
    assert wh.plot.cdf(ax=own) is own
    assert wh.plot.cdf(last=2, ax=own) is own
    assert len(own.lines) == 2
    assert wh.plot.cdf() is plt.gca()


def test_a_constant_column_and_infinite_ends_are_drawn(tmp_path: Path) -> None:
    for rows in (((7.0, 0),) * 50, tuple((v, 0) for v in (-math.inf, 1.0, 2.0, math.inf, math.nan))):
        made = open_world(tmp_path, World((rows,)))
        assert np.isfinite(made.plot.cdf(ax=axes_of()).get_xlim()).all()
        made.plot.quantiles([0, 0.5, 1], ax=axes_of()).figure.canvas.draw()


def test_a_span_is_the_windows_ticks_that_may_have_rows(wh: HandMade, tmp_path: Path) -> None:
    assert wh.tick is None
    assert wh.span() == (0, 6)
    assert wh.span(last=2) == (4, 6)
    assert wh.span(between=(None, 3)) == (0, 3)
    assert wh.span(between=(5, 99)) == (5, 6)
    for between in ((6, 9), (-3, 0)):
        with pytest.raises(EmptyWindow, match="empty window"):
            wh.span(between=between)
    with pytest.raises(EmptyWindow, match="no rows of 'x' yet"):
        open_world(tmp_path, World(())).span()


def test_what_cannot_be_drawn_is_refused(wh: HandMade, tmp_path: Path) -> None:
    open_before = plt.get_fignums()
    with pytest.raises(
        InputError, match=r"every must be a whole number of at least 1, got '7d'. It counts steps"
    ):
        wh.plot.quantiles(every="7d")
    with pytest.raises(EmptyWindow, match="empty window"):
        wh.plot.quantiles(between=(7, 9))
    with pytest.raises(EmptyWindow, match="no finite numbers"):
        open_world(tmp_path, World((((math.inf, 0),),))).plot.cdf()
    many = World(tuple(((1.0, t * 300),) for t in range(5)), eps=0.2)
    with pytest.raises(InputError, match=r"1,201 parts of every='1', a figure shows 1,000.*every='7d'"):
        open_world(tmp_path, many).plot.quantiles()
    assert plt.get_fignums() == open_before
