"""Figures of answers, each line with the band of its certified bounds.

    cdf         the share of rows <= x. The band is a staircase: between two neighbouring points the
                share is at least the lower bound at the left point and at most the upper one at the right
    quantiles   a few quantiles over time, one answer per window, and per group. The band is low to high
    histogram   counts in bins. The band is lo to hi of each bin
    top         the most frequent keys, see query/plots/key_plot.py

matplotlib is imported when a figure is drawn. Each function returns the Axes, so callers can change labels
and limits.
"""

from __future__ import annotations

import importlib.util
import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from tidemark.query.answers.common import Scope
from tidemark.query.answers.measure_answers import Answer, Answers, CdfAnswer
from tidemark.query.answers.rendering import text_of, window_text
from tidemark.query.plots.key_plot import draw_keys
from tidemark.query.quantiles.questions import is_sequence
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
MAX_LINES = 20
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

    def quantiles(  # noqa: PLR0913  the parameters of the question
        self,
        phis: Any = (0.5, 0.9, 0.99),
        measure: str | None = None,
        *,
        every: Any = None,
        over: Any = None,
        last: Any = None,
        between: Any = None,
        mode: Any = "accurate",
        where: Any = None,
        by: Any = None,
        top: int | None = None,
        groups: Any = None,
        limit: int | None = None,
        ax: Axes | None = None,
    ) -> Axes:
        """Quantiles over time: a line for each quantile, or with `by` for each group and quantile.

        phis: a quantile, or several.
        every: the window of one answer, as in `Warehouse.quantile`; by default a tick. A window without rows
            is a gap. The newest window is marked while its last tick may still get rows.
        over: an earlier name of `every`.

        Raises InputError for more than MAX_SPANS windows or MAX_LINES lines. Cost: that of the question.
        """
        chosen = every if every is not None else over
        if chosen in (None, "tick"):
            chosen = 1 if self.warehouse.tick is None else self.warehouse.tick
        self._check_windows(chosen, measure, last, between)
        shown_phis = list(phis) if is_sequence(phis) else [phis]
        found: Answers[Answer] = self.warehouse.quantile(
            shown_phis,
            measure,
            every=chosen,
            last=last,
            between=between,
            mode=mode,
            where=where,
            by=by,
            top=top,
            groups=groups,
            limit=limit,
        )
        lines = _lines(found, len(shown_phis))
        if not lines:
            raise EmptyWindow("nothing to draw: the window has no groups.")
        windows = [answer.window for answer in next(iter(lines.values()))]
        if len(lines) > MAX_LINES:
            raise InputError(f"a figure has {MAX_LINES} lines at most, got {len(lines):,}. Give top=5.")
        axes = ax if ax is not None else _new_axes()
        xs = [edge for window in windows if window is not None for edge in window]
        for name, answers in lines.items():
            low, value, high = (_step_values(answers, field) for field in ("low", "value", "high"))
            (drawn,) = axes.plot(xs, value, linewidth=1.2, label=name)
            axes.fill_between(xs, low, high, color=drawn.get_color(), alpha=BAND_ALPHA, linewidth=0)
        self._mark_open(axes, windows[-1])
        # At the left, because matplotlib writes the year at the right.
        axes.set_xlabel(_every_text(chosen, self.warehouse.tick), loc="left")
        axes.set_ylabel(f"quantiles of {found[0].measure}")
        bottom, highest = axes.get_ylim()
        axes.set_ylim(bottom, highest + LEGEND_SHARE * (highest - bottom))
        title = ", ".join([*found.by, "phi"]) + ", certified band"
        axes.legend(title=title, ncols=min(len(lines), 5), loc="upper center", fontsize="small")
        return _add_title(axes, _scope_of_all(found))

    def _check_windows(self, every: Any, measure: str | None, last: Any, between: Any) -> None:
        """InputError for more than MAX_SPANS windows, before they are asked."""
        start, end = self.warehouse.span(measure, last=last, between=between)
        width: Any
        if self.warehouse.tick is None:
            width = every if isinstance(every, int) and every > 0 else 1  # the question refuses others
        else:
            width = timedelta(microseconds=parse_duration(every))
        windows = -(-(end - start) // width)
        if windows > MAX_SPANS:
            raise InputError(
                f"the window has {windows:,} parts of every={str(every)!r}, a figure shows {MAX_SPANS:,}. "
                "Give a longer duration, such as every='7d', or a shorter window."
            )

    def _mark_open(self, axes: Axes, window: tuple[Any, Any] | None) -> None:
        """Marks the window if the newest tick of the data lies in it: it may still get rows."""
        end = self.warehouse.span()[1]
        if window is not None and window[1] >= end:
            axes.axvspan(*window, color="gray", alpha=0.15, linewidth=0, label="open window")

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
        key: Any = None,
        last: Any = None,
        between: Any = None,
        mode: Any = "approximate",
        ax: Axes | None = None,
    ) -> Axes:
        """The k keys with the most rows as bars: history's part, the live part, and the certain interval."""
        if isinstance(k, int) and k > MAX_KEYS:
            raise InputError(f"a figure shows {MAX_KEYS} keys at most, got k = {k:,}.")
        hitters = self.warehouse.top(k, key=key, last=last, between=between, mode=mode)
        if not len(hitters):
            raise EmptyWindow("nothing to draw: the window has no rows with a key.")
        axes = ax if ax is not None else _new_axes(len(hitters))
        draw_keys(axes, hitters)
        return _add_title(axes, hitters[0], grid="x")


def _lines(found: Answers[Answer], phis: int) -> dict[str, list[Answer]]:
    """The answers of each line in the order of their windows, by the text of the legend."""
    lines: dict[str, list[Answer]] = {}
    for number, answer in enumerate(found):
        group = [text_of((answer.group or {})[column]) for column in found.by]
        phi = [f"{answer.phi:g}"] if phis > 1 or not group else []
        lines.setdefault(", ".join([*group, *phi]) or f"{number}", []).append(answer)
    return lines


def _scope_of_all(found: Answers[Answer]) -> Answer:
    """The first answer with the rows and the window of all; a row counts once for all phis."""
    answers = [answer for answer in found if answer.phi == found[0].phi]
    first, last = answers[0].window, answers[-1].window
    window = (first[0], last[1]) if first is not None and last is not None else None
    sums = {name: sum(getattr(answer, name) for answer in answers) for name in ("n", "m", "nans", "nulls")}
    return replace(found[0], window=window, **sums)


def _step_values(line: Sequence[Answer], name: str) -> NDArray[Any]:
    """The value of each span twice, for its start and its end; NaN or NaT where a span has no answer."""
    values = [_to_plottable(getattr(answer, name)) for answer in line]
    if any(isinstance(value, date) for value in values):
        values = [value.replace(tzinfo=None) if isinstance(value, datetime) else value for value in values]
        return np.repeat(np.array(values, "datetime64[us]"), 2)
    return np.repeat(np.array(values, np.float64), 2)


def _every_text(every: Any, tick: timedelta | None) -> str:
    if tick is None:
        return "step" if every == 1 else f"steps, {every} an answer"
    return f"time (UTC), {'an answer a tick' if every == tick else f'{every} an answer'}"


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
