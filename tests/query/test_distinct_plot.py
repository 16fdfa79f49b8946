"""The figure of distinct keys: line, bands and bars are the answers', and every label can be read."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import combinations
from pathlib import Path
from typing import Any, cast

import matplotlib as mpl
import numpy as np
import pyarrow as pa
import pytest
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.container import BarContainer, ErrorbarContainer
from matplotlib.figure import Figure

from tests.jobs.test_pictures import _shown
from tests.query.test_distinct_keys import sample_sizes
from tests.warehouse.keyworld import DAY_US, KeyWorld
from tidemark import query, warehouse
from tidemark.query.asking.key_reader import KeyReader
from tidemark.query.plots.plots import size_for
from tidemark.warehouse.errors import EmptyWindow, InputError

DAYS = 9
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
REFUSED: dict[str, dict[str, Any]] = {
    "no mode 'quick'": {"mode": "quick"},
    "not a multiple of the tick": {"every": "36h"},
    "last='2d' and between=": {"last": "2d", "between": ("1970-01-01", None)},
    "no key x here": {"key": "x"},
}
WINDOWS: list[dict[str, Any]] = [
    {"every": "2d"},
    {"every": "3d", "last": "6d"},
    {"every": "2d", "between": ("1970-01-02", "1970-01-08")},
]


def rows(first: int, count: int) -> list[tuple[str, int]]:
    """Keys of which some are frequent, on four days from the first."""
    r = random.Random(first)
    return [(f"key-{int(3000 * r.random() ** 2)}", r.randrange(first, first + 4)) for _ in range(count)]


def made(folder: Path) -> KeyWorld:
    """Samples of about a hundred keys, in windows that have hundreds."""
    with sample_sizes(100, 400):
        world = KeyWorld(folder / "w", kappa=9)
        for first in (0, 1, 3):
            world.load(rows(first, 2000))
        world.stream([(key, day * DAY_US) for key, day in rows(DAYS - 4, 2000)])
    return world


@pytest.fixture(scope="module")
def wh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[query.Warehouse]:
    mpl.use("agg")
    yield query.open(made(tmp_path_factory.mktemp("plot")).uri)
    plt.close("all")


def drawn(wh: query.Warehouse, size: tuple[float, float] = size_for(), **how: Any) -> Axes:
    figure = Figure(figsize=size, layout="constrained")
    axes = wh.plot.distinct(ax=figure.subplots(), **how)
    cast("Any", FigureCanvasAgg(figure)).draw()
    return axes


def number(edge: Any) -> float:
    """Where an edge of a window stands on the x axis."""
    return float(edge) if isinstance(edge, int) else (edge - EPOCH) / timedelta(days=1)


def corners(answers: Any, *names: str) -> list[tuple[float, int]]:
    """Where the steps of these fields have their corners."""
    return [(number(edge), getattr(one, name)) for name in names for one in answers for edge in one.window]


def line(axes: Axes) -> list[tuple[float, float]]:
    """The corners of the line."""
    xs, ys = axes.lines[0].get_data(orig=False)
    return [(float(x), float(y)) for x, y in zip(np.asarray(xs), np.asarray(ys), strict=True)]


def band(axes: Axes, at: int) -> set[tuple[float, float]]:
    """The corners of a filled band."""
    outline: Any = axes.collections[at].get_paths()[0].vertices
    return {(float(x), float(y)) for x, y in outline}


def told(axes: Axes) -> set[str]:
    """The texts of the legend."""
    legend = axes.get_legend()
    assert legend is not None
    return {text.get_text() for text in legend.get_texts()}


@pytest.mark.parametrize("how", WINDOWS)
def test_the_line_is_the_counts_and_the_bands_are_the_bounds(
    wh: query.Warehouse, how: dict[str, Any]
) -> None:
    found, axes = wh.distinct(**how), drawn(wh, **how)
    assert line(axes) == corners(found, "count")
    assert band(axes, 0) == set(corners(found, "lo", "hi"))
    assert band(axes, 1) == set(corners(found, "least", "most"))
    assert any(one.least < one.lo < one.count < one.hi < one.most for one in found)
    probable, certain = (axes.collections[at].get_alpha() for at in (0, 1))
    assert isinstance(probable, float)
    assert isinstance(certain, float)
    assert probable > certain > 0
    assert told(axes) >= {"distinct keys", "probable, 0.99", "certain"}


def test_certain_bounds_do_not_choose_the_axis(wh: query.Warehouse) -> None:
    found, axes = wh.distinct(every="2d"), drawn(wh, every="2d")
    bottom, top = axes.get_ylim()
    lowest, highest = min(one.lo for one in found), max(one.hi for one in found)
    assert bottom < lowest < highest < top
    assert top - bottom < 1.1 * 1.4 * (highest - lowest) + 1  # matplotlib's margins, and the legend's share


def test_exact_numbers_have_one_band_which_is_certain(wh: query.Warehouse) -> None:
    found, axes = wh.distinct(every="2d", mode="exact"), drawn(wh, every="2d", mode="exact")
    assert line(axes) == corners(found, "count")
    assert band(axes, 0) == set(corners(found, "least", "most"))
    assert len(axes.collections) == 1
    assert told(axes) == {"distinct keys", "certain", "open window"}


@pytest.mark.parametrize("how", WINDOWS)
def test_bars_are_the_new_keys_and_whiskers_their_probable_bounds(
    wh: query.Warehouse, how: dict[str, Any]
) -> None:
    found, axes = wh.new_keys(**how), drawn(wh, new=True, **how)
    whiskers, bars = axes.containers
    assert isinstance(bars, BarContainer)
    assert isinstance(whiskers, ErrorbarContainer)
    assert [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in bars] == [
        pytest.approx([number(edge) for edge in one.window or ()]) for one in found
    ]
    assert [bar.get_height() for bar in bars] == [one.count for one in found]
    ((lines,),) = [whiskers.lines[2]]
    assert [tuple(segment[:, 1]) for segment in lines.get_segments()] == [(one.lo, one.hi) for one in found]
    assert any(0 < one.lo < one.hi for one in found)
    assert axes.get_ylim()[0] == 0
    assert "new keys" in told(axes)
    assert line(axes) == corners(wh.distinct(**how), "count")


def test_the_window_is_marked_while_it_may_get_rows(wh: query.Warehouse) -> None:
    axes = drawn(wh, every="2d")
    (open_,) = axes.patches
    window = wh.distinct(every="2d")[-1].window
    assert window is not None
    assert (open_.get_extents().x0, open_.get_extents().x1) == pytest.approx(
        [axes.transData.transform((number(edge), 0))[0] for edge in window]
    )
    assert "open window" in told(axes)
    early = drawn(wh, every="2d", between=("1970-01-01", "1970-01-05"))
    assert not list(early.patches)
    assert "open window" not in told(early)


@pytest.mark.parametrize("size", [size_for(), (4, 3.2)])
def test_every_text_is_within_the_figure_and_apart_from_the_others(
    size: tuple[float, float], wh: query.Warehouse
) -> None:
    axes = drawn(wh, size, every="1d", new=True)
    texts = [(text.get_text(), text.get_window_extent()) for text in _shown(cast("Figure", axes.figure))]
    assert len(told(axes)) == 5
    legend = cast("Any", axes.get_legend()).get_window_extent()
    assert axes.bbox.x0 <= legend.x0 < legend.x1 <= axes.bbox.x1
    frame = axes.figure.bbox
    for said, box in texts:
        assert 0 <= box.x0 < box.x1 <= frame.x1, said
        assert 0 <= box.y0 < box.y1 <= frame.y1, said
    for (said, box), (other, other_box) in combinations(texts, 2):
        assert not box.overlaps(other_box), (said, other)


def test_a_figure_says_what_it_shows(wh: query.Warehouse) -> None:
    axes = drawn(wh, every="2d", last="6d")
    title = " ".join(axes.get_title(loc="left").split("\n"))
    rows_shown = sum(one.N for one in wh.distinct(every="2d", last="6d"))
    assert "k, from 1970-01-04 00:00:00 to before 1970-01-10 00:00:00" in title
    assert f"N = {rows_shown:,} (" in title
    assert "approximate as of runs" in title
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("time (UTC), 2d an answer", "distinct k")
    assert drawn(wh).get_xlabel() == "time (UTC), an answer a tick"
    assert len(line(drawn(wh))) == 2 * DAYS


def test_line_and_bars_are_of_one_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = made(tmp_path)
    wh, real = query.open(world.uri), KeyReader.distinct

    def distinct_before_more_rows(reader: Any, **how: Any) -> Any:
        found = real(reader, **how)
        world.stream([("late", (DAYS + 5) * DAY_US)])
        return found

    monkeypatch.setattr(KeyReader, "distinct", distinct_before_more_rows)
    assert len(drawn(wh, new=True).containers[1]) == DAYS
    assert len(drawn(wh, new=True).containers[1]) == DAYS + 6


def test_steps_and_several_columns_are_drawn(tmp_path: Path) -> None:
    """Without a time column windows are steps; a step without keys is a zero, not a gap."""
    schema = pa.schema([("x", pa.float64()), ("k", pa.int64()), ("l", pa.string())])
    warehouse.create(None, tmp_path / "w", "x", keys=[["k", "l"]], schema=schema)
    steps: list[list[int | None]] = [[1, 2, 2], [None, None], [3, 2, 1, 4]]
    for batch, keys in enumerate(steps):
        columns = [[0.5] * len(keys), keys, ["a"] * len(keys)]
        warehouse.load(None, tmp_path / "w", pa.table(columns, schema=schema), f"{batch}")
    axes = drawn(query.open(tmp_path / "w"), new=True)
    assert line(axes) == [(0, 2), (1, 2), (1, 0), (2, 0), (2, 4), (3, 4)]
    assert [bar.get_height() for bar in axes.containers[1]] == [2, 0, 2]
    assert axes.get_xlabel() == "step"


@pytest.mark.slow
def test_times_of_any_length_have_labels(tmp_path: Path) -> None:
    """Warnings are errors here: matplotlib warns if it finds no ticks."""
    world = KeyWorld(tmp_path / "w")
    wh, days = query.open(world.uri), [0, 3, 60, 1000, 20_000, 2_000_000]
    for day in days:
        world.load([("a", day)])
        axes = drawn(wh, every="1d" if day < 1000 else f"{day // 500}d")
        assert len([label for label in axes.get_xticklabels() if label.get_text()]) >= 2


def test_the_callers_axes_are_drawn_into_and_returned(wh: query.Warehouse) -> None:
    open_before = plt.get_fignums()
    own = Figure(layout="constrained").subplots()
    assert wh.plot.distinct(ax=own) is own
    assert plt.get_fignums() == open_before
    assert wh.plot.distinct() is plt.gca()
    plt.close("all")


def test_what_cannot_be_drawn_is_refused(wh: query.Warehouse, tmp_path: Path) -> None:
    open_before = plt.get_fignums()
    for words, how in REFUSED.items():
        with pytest.raises(InputError, match=words):
            wh.plot.distinct(**how)
    with pytest.raises(EmptyWindow, match="empty window"):
        wh.plot.distinct(between=("1980-01-01", None))
    long = KeyWorld(tmp_path / "long")
    long.load([("a", 0), ("a", 1200)])
    with pytest.raises(InputError, match=r"1,201 parts of every='1 day.*every='7d'"):
        query.open(long.uri).plot.distinct()
    assert plt.get_fignums() == open_before
