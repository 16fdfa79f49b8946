"""The figure of frequent keys: parts and intervals are the answers', and every label can be read."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.text import Text

from tests.warehouse.keyworld import DAY_US, KeyWorld
from tidemark import query
from tidemark.query.plots.plots import size_for
from tidemark.warehouse.errors import EmptyWindow, InputError

ODD = ["漢字" * 9, "$a_b$ and $c$", "https://example.org/a/long/path?with=a&query=1", "", "é\nb", "z" * 300]


@pytest.fixture(scope="module")
def wh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[query.Warehouse]:
    """Odd keys, and many that are equally rare: of those it is not certain who has most."""
    r = random.Random(3)
    keys = [*ODD, *(f"key-{i}" for i in range(3000))]

    def some(count: int) -> list[str]:
        odd = [r.choice(ODD) for _ in range(count // 4)]
        return odd + [r.choice(keys) for _ in range(count - len(odd))]

    world = KeyWorld(tmp_path_factory.mktemp("plot") / "w", options={"key_eps": 0.4})
    world.load([(key, 0) for key in some(2000)])
    for _ in range(3):
        world.stream([(key, r.randrange(2 * DAY_US)) for key in some(8000)])
    mpl.use("agg")
    yield query.open(world.uri)
    plt.close("all")


def drawn(wh: query.Warehouse, k: int, bars: int | None = None, **how: Any) -> Axes:
    figure = Figure(figsize=size_for(k if bars is None else bars), layout="constrained")
    axes = wh.plot.top(k, ax=figure.subplots(), **how)
    cast("Any", FigureCanvasAgg(figure)).draw()
    return axes


@pytest.mark.parametrize("how", [{}, {"last": "30h"}, {"mode": "exact"}])
def test_bars_are_the_parts_and_whiskers_the_interval(wh: query.Warehouse, how: dict[str, Any]) -> None:
    found, axes = wh.top(30, **how), drawn(wh, 30, **how)
    past, live, whiskers = axes.containers
    assert [bar.get_width() for bar in past] == [one.in_history for one in found]
    ends = [bar.get_x() + bar.get_width() for bar in live]
    assert ends == [max(one.count, one.in_history) for one in found]
    assert isinstance(whiskers, ErrorbarContainer)
    ((lines,),) = [whiskers.lines[2]]
    assert [tuple(segment[:, 0]) for segment in lines.get_segments()] == [(one.lo, one.hi) for one in found]
    if "last" in how:  # the window cuts a tick; otherwise so many keys are counted by a scan
        assert any(one.lo < one.hi for one in found)
    assert axes.get_xlim()[1] > max(one.hi for one in found)
    tops = [bar.get_y() for bar in past]
    assert tops == sorted(tops)
    bottom, top = axes.get_ylim()
    assert bottom > top  # the first stands above


@pytest.mark.parametrize(("k", "bars"), [(1, None), (9, None), (60, None), (9, 0)])
def test_every_label_is_within_the_figure_and_apart_from_the_others(
    k: int, bars: int | None, wh: query.Warehouse
) -> None:
    axes = drawn(wh, k, bars)
    labels = [label for label in axes.get_yticklabels() if label.get_text()]
    assert len(labels) == k
    legend = axes.get_legend()
    assert legend is not None
    boxes = [label.get_window_extent() for label in labels]
    frame = axes.figure.bbox
    left_title: Text = cast("Any", axes)._left_title
    for box in [*boxes, legend.get_window_extent(), left_title.get_window_extent()]:
        assert frame.x0 <= box.x0 < box.x1 <= frame.x1
        assert frame.y0 <= box.y0 < box.y1 <= frame.y1
    for above, below in pairwise(boxes):
        assert above.y0 >= below.y1 - 1
    lowest = axes.containers[0][-1].get_window_extent()
    assert lowest.y0 > legend.get_window_extent().y1


def test_labels_are_short_and_tell_keys_apart(wh: query.Warehouse) -> None:
    """Warnings are errors here, so a letter that the font lacks would be one."""
    said = [label.get_text().removesuffix(" ?") for label in drawn(wh, len(ODD)).get_yticklabels()]
    assert set(said) == {
        r"\u6f22\u5b57…u6f22\u5b57",
        "$a_b$ and $c$",
        "https://exam…h=a&query=1",
        "(empty)",
        r"é\nb",
        f"{'z' * 12}…{'z' * 11}",
    }
    axes = drawn(wh, 30, last="30h")
    unsure = [label.get_text().endswith(" ?") for label in axes.get_yticklabels()]
    assert unsure == [not one.certain for one in wh.top(30, last="30h")]
    assert any(unsure)
    assert "?: a key that is not shown" in axes.get_xlabel()


def test_one_key_of_any_type_is_drawn(tmp_path: Path) -> None:
    world = KeyWorld(tmp_path / "w", "binary")
    wh = query.open(world.uri)
    with pytest.raises(EmptyWindow, match="nothing to draw"):
        wh.plot.top()
    world.load([(b"\x00\xff", 0)])
    axes = drawn(wh, 20)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["00ff"]
    assert np.isfinite(axes.get_xlim()).all()
    assert axes.containers[0][0].get_height() < 0.2 * abs(np.subtract(*axes.get_ylim()))
    assert "N = 1 (1 history + 0 live)" in axes.get_title(loc="left")


def test_what_cannot_be_drawn_is_refused(wh: query.Warehouse) -> None:
    open_before = plt.get_fignums()
    with pytest.raises(InputError, match="200 keys at most, got k = 201"):
        wh.plot.top(201)
    with pytest.raises(InputError, match="at least 1, got 0"):
        wh.plot.top(0)
    assert plt.get_fignums() == open_before
    assert wh.plot.top(3) is plt.gca()
