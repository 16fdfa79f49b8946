"""Figures of answers, with the band of what was certified around each line.

    cdf         the share of rows at most x. The band is a staircase: between two points asked for, the share
                is at least what is certain at the left one and at most what is certain at the right one
    quantiles   a few quantiles, one answer a span of ticks. The band is low to high
    histogram   counts in bins. The band is the fewest to the most rows that a bin certainly holds
    top         the most frequent keys, see query/plots/key_plot.py

matplotlib is imported when a figure is drawn. Each function returns the Axes: whoever wants other labels or
limits sets them there.
"""

from __future__ import annotations

import importlib.util
import math
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from tidemark.query.answers.answer import Answer, Answers, CdfAnswer
from tidemark.query.answers.rendering import window_text
from tidemark.query.answers.scope import Scope
from tidemark.query.plots.key_plot import draw_keys
from tidemark.warehouse.columns.ticks import parse_duration
from tidemark.warehouse.errors import EmptyWindow, InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from tidemark.query.reader import Reader

BAND = 0.3  # its opacity
POINTS = 256  # of a cdf: steps of 0.4 % of the rows
TAILS = (0.001, 0.002, 0.998, 0.999)
MIDDLE = (0.005, 0.995)  # the quantiles that a cdf is shown between, so that a long tail does not squeeze it
TITLE_POINTS = 9
LEGEND_ROOM = 0.4  # of the height: the legend stands above the lines
MOST_SPANS = 1000  # wider than this no screen shows
MOST_KEYS = 200
_DAYS = tuple(float((day - date(1970, 1, 1)).days) for day in (date.min, date.max))
WIDTH, HEIGHT, BAR = 8, 4.5, 0.2  # inches


@dataclass(frozen=True, slots=True, eq=False)
class Plots:
    """The figures of a warehouse; `wh.plot` makes it. Measure, window and mode are as in its questions.

    ax: the Axes to draw into; a new figure where it is left out.
    """

    warehouse: Reader

    def cdf(
        self,
        measure: str | None = None,
        *,
        last: Any = None,
        between: Any = None,
        mode: Any = "accurate",
        ax: Axes | None = None,
    ) -> Axes:
        """The share of the rows at most x, shown for the middle 99 % of them; the Axes hold them all."""
        ask: dict[str, Any] = {"last": last, "between": between, "mode": mode}
        phis = sorted({*TAILS, *(i / POINTS for i in range(POINTS + 1))})
        known = self.warehouse.quantile(phis, measure, **{**ask, "mode": "quick"})
        points = sorted({one.value for one in known if _is_finite(one.value)})
        if not points:
            raise EmptyWindow("nothing to draw: the window has no finite numbers.")
        curve = cast("Answers[CdfAnswer]", self.warehouse.cdf(points, measure, **ask))
        xs = [_drawn(one.value) for one in curve]
        lo, hi = [one.cdf_lo for one in curve], [one.cdf_hi for one in curve]
        axes = ax if ax is not None else _new_axes()
        # Up to the next point the share can reach what is certain there.
        above = [*hi[1:], hi[-1]]
        axes.fill_between(xs, lo, above, step="post", alpha=BAND, linewidth=0, label="certified band")
        axes.plot(xs, [one.cdf for one in curve], linewidth=1.2, label="answer")
        label = curve[0].measure
        left, right = (_drawn(one.value) for one in self.warehouse.quantile(MIDDLE, measure, **ask))
        if _is_finite(left) and _is_finite(right) and left < right:
            axes.set_xlim(left, right)
            label += " (the middle 99 % of the rows)"
        axes.set(xlabel=label, ylabel="share of rows at most x", ylim=(-0.02, 1.02))
        axes.legend(loc="lower right")
        return _finished(axes, curve[0])

    def quantiles(
        self,
        phis: Sequence[Any] = (0.5, 0.9, 0.99),
        measure: str | None = None,
        *,
        over: Any = "tick",
        last: Any = None,
        between: Any = None,
        mode: Any = "accurate",
        ax: Axes | None = None,
    ) -> Axes:
        """Quantiles over time, an answer for each tick, or for each span such as over="7d".

        A span without rows is a gap. Spans count from the window's first tick.
        """
        spans = list(_spans(self.warehouse.span(measure, last=last, between=between), self._width(over)))
        if len(spans) > MOST_SPANS:
            raise InputError(
                f"the window has {len(spans):,} spans of over={over!r}, a figure shows {MOST_SPANS:,}. "
                "Give a longer span, such as over='7d', or a shorter window."
            )
        scope = self.warehouse.quantile(0.5, measure, last=last, between=between, mode=mode)
        answers = [_or_gap(self.warehouse, phis, measure, span, mode) for span in spans]
        axes = ax if ax is not None else _new_axes()
        xs = [edge for span in spans for edge in span]
        for at, phi in enumerate(phis):
            line = [None if one is None else one[at] for one in answers]
            low, value, high = (_twice(line, name) for name in ("low", "value", "high"))
            (drawn,) = axes.plot(xs, value, linewidth=1.2, label=f"{float(phi):g}")
            axes.fill_between(xs, low, high, color=drawn.get_color(), alpha=BAND, linewidth=0)
        axes.set_xlabel(_over_text(over, self.warehouse.tick is None), loc="left")  # the year stands right
        axes.set_ylabel(f"quantiles of {scope.measure}")
        bottom, top = axes.get_ylim()
        axes.set_ylim(bottom, top + LEGEND_ROOM * (top - bottom))
        axes.legend(
            title="phi, certified band", ncols=min(len(phis), 5), loc="upper center", fontsize="small"
        )
        return _finished(axes, scope)

    def histogram(
        self,
        bins: Any = 40,
        measure: str | None = None,
        *,
        last: Any = None,
        between: Any = None,
        mode: Any = "accurate",
        ax: Axes | None = None,
    ) -> Axes:
        """Counts in bins, as `Warehouse.histogram` has them; edges may leave a long tail out."""
        found = self.warehouse.histogram(bins, measure, last=last, between=between, mode=mode)
        axes = ax if ax is not None else _new_axes()
        edges = [_drawn(edge) for edge in found.edges]
        lo, hi = [one.lo for one in found], [one.hi for one in found]
        axes.stairs(found.counts, edges, fill=True, alpha=0.45, label="answer")
        axes.fill_between(
            edges,
            [*lo, lo[-1]],
            [*hi, hi[-1]],
            step="post",
            color="black",
            alpha=BAND,
            label="certified band",
        )
        axes.set(xlabel=found.measure, ylabel="rows a bin")
        axes.set_ylim(bottom=0)
        axes.legend()
        return _finished(axes, found)

    def top(
        self,
        k: int = 20,
        *,
        last: Any = None,
        between: Any = None,
        mode: Any = "approximate",
        ax: Axes | None = None,
    ) -> Axes:
        """The k keys with most rows as bars: history's part, the live part, and the certain interval."""
        if isinstance(k, int) and k > MOST_KEYS:
            raise InputError(f"a figure shows {MOST_KEYS} keys at most, got k = {k:,}.")
        found = self.warehouse.top(k, last=last, between=between, mode=mode)
        if not len(found):
            raise EmptyWindow("nothing to draw: the window has no rows with a key.")
        axes = ax if ax is not None else _new_axes(len(found))
        draw_keys(axes, found)
        return _finished(axes, found[0], grid="x")

    def _width(self, over: Any) -> Any:
        """How long a span is: a timedelta of whole ticks, or a number of steps."""
        tick = self.warehouse.tick
        if over == "tick":
            return 1 if tick is None else tick
        if tick is None:
            if isinstance(over, bool) or not isinstance(over, int) or over < 1:
                raise InputError(
                    f"this warehouse has no time column: over= is a number of steps, got {over!r}."
                )
            return over
        ticks = -(-parse_duration(over) // parse_duration(tick))
        return ticks * tick


def _spans(held: tuple[Any, Any], width: Any) -> Iterator[tuple[Any, Any]]:
    """The window cut into spans, the last one shorter where it does not come out even."""
    start, end = held
    while end - start > width:  # the end may be the last moment there is: nothing comes after it
        yield start, start + width
        start += width
    if start < end:
        yield start, end


def _or_gap(wh: Reader, phis: Sequence[Any], measure: str | None, span: Any, mode: Any) -> Any:
    try:
        return wh.quantile(list(phis), measure, between=span, mode=mode)
    except EmptyWindow:
        return None


def _twice(line: Sequence[Answer | None], name: str) -> NDArray[Any]:
    """Each span's value at its start and its end; NaN, or no time, leaves a gap."""
    values = [None if one is None else _drawn(getattr(one, name)) for one in line]
    if any(isinstance(value, date) for value in values):
        values = [value.replace(tzinfo=None) if isinstance(value, datetime) else value for value in values]
        return np.repeat(np.array(values, "datetime64[us]"), 2)
    return np.repeat(np.array(values, np.float64), 2)


def _over_text(over: Any, is_steps: bool) -> str:
    if over == "tick":
        return "step" if is_steps else "time (UTC), an answer a tick"
    return f"steps, {over} an answer" if is_steps else f"time (UTC), {over} an answer"


def check_drawable() -> None:
    """InputError where matplotlib, which tidemark works without, is not installed."""
    if importlib.util.find_spec("matplotlib") is None:
        raise InputError(
            "plots need matplotlib, which is not here. Install it: pip install 'tidemark[plots]'."
        )


def _new_axes(bars: int = 0) -> Axes:
    check_drawable()
    import matplotlib.pyplot as plt

    _, axes = plt.subplots(figsize=size_for(bars), layout="constrained")
    return axes


def size_for(bars: int = 0) -> tuple[float, float]:
    """A figure's width and height in inches; many bars below each other make it higher."""
    return WIDTH, max(HEIGHT, 1.6 + BAR * bars)


def _finished(axes: Axes, scope: Scope, grid: Literal["both", "x"] = "both") -> Axes:
    """Says above the figure what it shows, in as many lines as its width asks for."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    versions = ", ".join(f"{name} {version}" for name, version in scope.as_of.items())
    rows = f"N = {scope.N:,} ({scope.n:,} history + {scope.m:,} live), {scope.mode}, eps = {scope.eps:g}"
    parts = [f"{scope.column}, {window_text(scope.window)}", rows, f"as of {versions}"]
    inches = axes.get_window_extent().width / axes.figure.dpi
    letters = int(inches * 72 / (0.6 * TITLE_POINTS))
    lines = [line for part in parts for line in textwrap.wrap(part, max(16, letters))]
    axes.set_title("\n".join(lines), fontsize=TITLE_POINTS, loc="left")
    axes.grid(visible=True, alpha=0.3, axis=grid)
    # matplotlib draws no axis that reaches beyond the years 1 to 9999, as its margins may.
    for axis, (low, high), limit in (
        (axes.xaxis, axes.get_xlim(), axes.set_xlim),
        (axes.yaxis, axes.get_ylim(), axes.set_ylim),
    ):
        if isinstance(axis.get_major_locator(), AutoDateLocator):
            limit(max(low, _DAYS[0]), min(high, _DAYS[1]))
    if isinstance(axes.xaxis.get_major_locator(), AutoDateLocator):
        locator = AutoDateLocator(maxticks=6)  # type: ignore[no-untyped-call]
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    return axes


def _drawn(value: Any) -> Any:
    """The value as matplotlib takes it."""
    return float(value) if isinstance(value, Decimal) else value


def _is_finite(value: Any) -> bool:
    return not isinstance(value, float) or math.isfinite(value)
