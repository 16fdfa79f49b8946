"""Figures of answers, each line with the band of its certified bounds.

    cdf         the share of rows <= x. The band is a staircase: between two neighbouring points the
                share is at least the lower bound at the left point and at most the upper one at the right
    quantiles   a few quantiles over time, one answer per span of ticks. The band is low to high
    histogram   counts in bins. The band is lo to hi of each bin
    top         the most frequent keys, see query/plots/key_plot.py

matplotlib is imported when a figure is drawn. Each function returns the Axes, so callers can change labels
and limits.
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

from tidemark.query.answers.common import Scope
from tidemark.query.answers.measure_answers import Answer, Answers, CdfAnswer
from tidemark.query.answers.rendering import window_text
from tidemark.query.plots.key_plot import draw_keys
from tidemark.warehouse.columns.ticks import parse_duration
from tidemark.warehouse.errors import EmptyWindow, InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from tidemark.query.reader import Reader

BAND_ALPHA = 0.3  # opacity of the band
CDF_STEPS = 256  # steps of a cdf, 0.4 % of the rows each
TAILS = (0.001, 0.002, 0.998, 0.999)
SHOWN_RANGE = (0.005, 0.995)  # the quantiles at the ends of a cdf's x axis, which cuts long tails
TITLE_POINTS = 9
LEGEND_SHARE = 0.4  # of the height, for the legend above the lines
MAX_SPANS = 1000  # about the width of a screen in pixels
MAX_KEYS = 200
_DAYS = tuple(float((day - date(1970, 1, 1)).days) for day in (date.min, date.max))
WIDTH, HEIGHT, BAR_HEIGHT = 8, 4.5, 0.2  # inches


@dataclass(frozen=True, slots=True, eq=False)
class Plots:
    """The figures of a warehouse, as `wh.plot`.

    `measure`, `last`, `between` and `mode` are those of the warehouse's questions. All methods return
    matplotlib's Axes. They raise InputError without matplotlib, and EmptyWindow if there is nothing to draw.

    ax: the Axes to draw into; by default those of a new figure.
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
        """The share of the rows <= x. The x axis shows the middle 99 % of the rows; the lines have all."""
        ask: dict[str, Any] = {"last": last, "between": between, "mode": mode}
        phis = sorted({*TAILS, *(i / CDF_STEPS for i in range(CDF_STEPS + 1))})
        quick = self.warehouse.quantile(phis, measure, **{**ask, "mode": "quick"})
        points = sorted({answer.value for answer in quick if _is_finite(answer.value)})
        if not points:
            raise EmptyWindow("nothing to draw: the window has no finite numbers.")
        curve = cast("Answers[CdfAnswer]", self.warehouse.cdf(points, measure, **ask))
        xs = [_to_plottable(answer.value) for answer in curve]
        lo, hi = [answer.cdf_lo for answer in curve], [answer.cdf_hi for answer in curve]
        axes = ax if ax is not None else _new_axes()
        # Between two points the share can reach the upper bound at the right one.
        upper = [*hi[1:], hi[-1]]
        axes.fill_between(xs, lo, upper, step="post", alpha=BAND_ALPHA, linewidth=0, label="certified band")
        axes.plot(xs, [answer.cdf for answer in curve], linewidth=1.2, label="answer")
        label = curve[0].measure
        left, right = (
            _to_plottable(answer.value) for answer in self.warehouse.quantile(SHOWN_RANGE, measure, **ask)
        )
        if _is_finite(left) and _is_finite(right) and left < right:
            axes.set_xlim(left, right)
            label += " (the middle 99 % of the rows)"
        axes.set(xlabel=label, ylabel="share of rows at most x", ylim=(-0.02, 1.02))
        axes.legend(loc="lower right")
        return _add_title(axes, curve[0])

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
        """Quantiles over time.

        phis: the quantiles, one line each.
        over: the span of one answer: "tick", a duration such as "7d", or a number of steps in a warehouse
            without a time column. Spans start at the window's first tick; a span without rows is a gap.

        Raises InputError for more than MAX_SPANS spans. Cost: one question per span.
        """
        spans = list(_spans(self.warehouse.span(measure, last=last, between=between), self._width(over)))
        if len(spans) > MAX_SPANS:
            raise InputError(
                f"the window has {len(spans):,} spans of over={over!r}, a figure shows {MAX_SPANS:,}. "
                "Give a longer span, such as over='7d', or a shorter window."
            )
        scope = self.warehouse.quantile(0.5, measure, last=last, between=between, mode=mode)
        answers = [_quantiles_or_none(self.warehouse, phis, measure, span, mode) for span in spans]
        axes = ax if ax is not None else _new_axes()
        xs = [edge for span in spans for edge in span]
        for i, phi in enumerate(phis):
            line = [None if span_answers is None else span_answers[i] for span_answers in answers]
            low, value, high = (_step_values(line, name) for name in ("low", "value", "high"))
            (drawn,) = axes.plot(xs, value, linewidth=1.2, label=f"{float(phi):g}")
            axes.fill_between(xs, low, high, color=drawn.get_color(), alpha=BAND_ALPHA, linewidth=0)
        # At the left, because matplotlib writes the year at the right.
        axes.set_xlabel(_over_text(over, self.warehouse.tick is None), loc="left")
        axes.set_ylabel(f"quantiles of {scope.measure}")
        bottom, top = axes.get_ylim()
        axes.set_ylim(bottom, top + LEGEND_SHARE * (top - bottom))
        axes.legend(
            title="phi, certified band", ncols=min(len(phis), 5), loc="upper center", fontsize="small"
        )
        return _add_title(axes, scope)

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
        """Counts in bins; `bins` as in `Warehouse.histogram`. Edges may leave out a long tail."""
        histogram = self.warehouse.histogram(bins, measure, last=last, between=between, mode=mode)
        axes = ax if ax is not None else _new_axes()
        edges = [_to_plottable(edge) for edge in histogram.edges]
        lo, hi = [bin_.lo for bin_ in histogram], [bin_.hi for bin_ in histogram]
        axes.stairs(histogram.counts, edges, fill=True, alpha=0.45, label="answer")
        axes.fill_between(
            edges,
            [*lo, lo[-1]],
            [*hi, hi[-1]],
            step="post",
            color="black",
            alpha=BAND_ALPHA,
            label="certified band",
        )
        axes.set(xlabel=histogram.measure, ylabel="rows a bin")
        axes.set_ylim(bottom=0)
        axes.legend()
        return _add_title(axes, histogram)

    def top(
        self,
        k: int = 20,
        *,
        last: Any = None,
        between: Any = None,
        mode: Any = "approximate",
        ax: Axes | None = None,
    ) -> Axes:
        """The k keys with the most rows as bars: history's part, the live part, and the certain interval."""
        if isinstance(k, int) and k > MAX_KEYS:
            raise InputError(f"a figure shows {MAX_KEYS} keys at most, got k = {k:,}.")
        hitters = self.warehouse.top(k, last=last, between=between, mode=mode)
        if not len(hitters):
            raise EmptyWindow("nothing to draw: the window has no rows with a key.")
        axes = ax if ax is not None else _new_axes(len(hitters))
        draw_keys(axes, hitters)
        return _add_title(axes, hitters[0], grid="x")

    def _width(self, over: Any) -> Any:
        """The length of a span: a timedelta of whole ticks, or a number of steps."""
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


def _spans(window: tuple[Any, Any], width: Any) -> Iterator[tuple[Any, Any]]:
    """The window cut into spans of one width; the last one may be shorter."""
    start, end = window
    while end - start > width:  # start + width might exceed the greatest datetime
        yield start, start + width
        start += width
    if start < end:
        yield start, end


def _quantiles_or_none(wh: Reader, phis: Sequence[Any], measure: str | None, span: Any, mode: Any) -> Any:
    try:
        return wh.quantile(list(phis), measure, between=span, mode=mode)
    except EmptyWindow:
        return None


def _step_values(line: Sequence[Answer | None], name: str) -> NDArray[Any]:
    """The value of each span twice, for its start and its end; NaN or NaT where a span has no answer."""
    values = [None if answer is None else _to_plottable(getattr(answer, name)) for answer in line]
    if any(isinstance(value, date) for value in values):
        values = [value.replace(tzinfo=None) if isinstance(value, datetime) else value for value in values]
        return np.repeat(np.array(values, "datetime64[us]"), 2)
    return np.repeat(np.array(values, np.float64), 2)


def _over_text(over: Any, is_steps: bool) -> str:
    if over == "tick":
        return "step" if is_steps else "time (UTC), an answer a tick"
    return f"steps, {over} an answer" if is_steps else f"time (UTC), {over} an answer"


def check_drawable() -> None:
    """Raises InputError if matplotlib, an optional dependency, is not installed."""
    if importlib.util.find_spec("matplotlib") is None:
        raise InputError(
            "plots need matplotlib, which is not installed. Install it: pip install 'tidemark[plots]'."
        )


def _new_axes(bars: int = 0) -> Axes:
    check_drawable()
    import matplotlib.pyplot as plt

    _, axes = plt.subplots(figsize=size_for(bars), layout="constrained")
    return axes


def size_for(bars: int = 0) -> tuple[float, float]:
    """The width and height of a figure in inches; it is higher for many bars."""
    return WIDTH, max(HEIGHT, 1.6 + BAR_HEIGHT * bars)


def _add_title(axes: Axes, scope: Scope, grid: Literal["both", "x"] = "both") -> Axes:
    """Adds a grid and a title with the scope, wrapped to the width of the figure."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    versions = ", ".join(f"{name} {version}" for name, version in scope.as_of.items())
    rows = f"N = {scope.N:,} ({scope.n:,} history + {scope.m:,} live), {scope.mode}, eps = {scope.eps:g}"
    parts = [f"{scope.column}, {window_text(scope.window)}", rows, f"as of {versions}"]
    inches = axes.get_window_extent().width / axes.figure.dpi
    characters = int(inches * 72 / (0.6 * TITLE_POINTS))
    lines = [line for part in parts for line in textwrap.wrap(part, max(16, characters))]
    axes.set_title("\n".join(lines), fontsize=TITLE_POINTS, loc="left")
    axes.grid(visible=True, alpha=0.3, axis=grid)
    # matplotlib cannot draw an axis beyond the years 1 to 9999, and its margins may reach beyond them.
    for axis, (low, high), limit in (
        (axes.xaxis, axes.get_xlim(), axes.set_xlim),
        (axes.yaxis, axes.get_ylim(), axes.set_ylim),
    ):
        if isinstance(axis.get_major_locator(), AutoDateLocator):
            limit(max(low, _DAYS[0]), min(high, _DAYS[1]))
    if isinstance(axes.xaxis.get_major_locator(), AutoDateLocator):
        locator = AutoDateLocator(maxticks=6)  # type: ignore[no-untyped-call]  # matplotlib
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]  # matplotlib
    return axes


def _to_plottable(value: Any) -> Any:
    """The value in a type that matplotlib can draw: decimals become floats."""
    return float(value) if isinstance(value, Decimal) else value


def _is_finite(value: Any) -> bool:
    return not isinstance(value, float) or math.isfinite(value)
