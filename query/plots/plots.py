"""Figures of answers, each line with the band of its certified bounds.

    cdf         the share of rows <= x. The band is a staircase: between two neighbouring points the
                share is at least the lower bound at the left point and at most the upper one at the right
    quantiles   a few quantiles over time, one answer per window, and per group. The band is low to high
    histogram   counts in bins. The band is lo to hi of each bin
    distinct    the numbers of distinct and of new keys over time
    top         the most frequent keys
    persistence the slots in which keys are present

matplotlib is imported when a figure is drawn. Each function returns the Axes, so callers can change labels
and limits.
"""

from __future__ import annotations

import importlib.util
import math
import textwrap
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any, Literal, Unpack, cast

from tidemark.query.answers.all_answers import PromisedScope
from tidemark.query.answers.distinct_answers import DistinctAnswer
from tidemark.query.answers.measure_answers import Answer, Answers, CdfAnswer
from tidemark.query.answers.persistence_answers import PersistenceAnswer
from tidemark.query.answers.rendering import text_of, versions_text
from tidemark.query.asking.calls import checks_calls
from tidemark.query.asking.key_questions import KeyOptions, KeyRequest
from tidemark.query.asking.measure_arguments import ChosenOptions, WindowOptions
from tidemark.query.asking.measure_questions import MeasureRequest
from tidemark.query.plots.bin_edges import chosen_edges
from tidemark.query.plots.key_plot import draw_keys, draw_presence
from tidemark.query.plots.window_plot import (
    BAND_ALPHA,
    check_windows,
    chosen_width,
    draw_distinct,
    draw_steps,
    finish_windows,
    scope_of_all,
    to_plottable,
)
from tidemark.warehouse.columns.scalars import is_sequence, plain, plain_all, plain_share
from tidemark.warehouse.errors import EmptyWindow, InputError, whole_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from tidemark.query.reader import Reader

CDF_STEPS = 256  # steps of a cdf, 0.4 % of the rows each
TAILS = (0.001, 0.002, 0.998, 0.999)
SHOWN_RANGE = (0.005, 0.995)  # the quantiles at the ends of a cdf's x axis, which cuts long tails
TITLE_POINTS = 9
MAX_KEYS = 200
MAX_LINES = 20
_DAYS = tuple(float((day - date(1970, 1, 1)).days) for day in (date.min, date.max))
WIDTH, HEIGHT, BAR_HEIGHT = 8, 4.5, 0.2  # inches


@checks_calls(MeasureRequest.of, KeyRequest.of)
@dataclass(frozen=True, slots=True, eq=False)
class Plots:
    """The figures of a warehouse, as `wh.plot`.

    `measure` and the options are those of the warehouse's questions. All methods return matplotlib's Axes.
    They raise InputError without matplotlib, and EmptyWindow if there is nothing to draw.

    ax: the Axes to draw into; by default those of a new figure.
    """

    warehouse: Reader

    def cdf(
        self, measure: str | None = None, *, ax: Axes | None = None, **options: Unpack[WindowOptions]
    ) -> Axes:
        """The share of the rows <= x. The x axis shows the middle 99 % of the rows; the lines have all."""
        phis = sorted({*TAILS, *(i / CDF_STEPS for i in range(CDF_STEPS + 1))})
        quick: WindowOptions = {**options, "mode": "quick"}
        found = self.warehouse.quantile(phis, measure, **quick)
        points = sorted({answer.value for answer in found if _is_finite(answer.value)})
        if not points:
            raise EmptyWindow("nothing to draw: the window has no finite numbers.")
        curve = cast("Answers[CdfAnswer]", self.warehouse.cdf(points, measure, **options))
        xs = [to_plottable(answer.value) for answer in curve]
        lo, hi = [answer.cdf_lo for answer in curve], [answer.cdf_hi for answer in curve]
        axes = ax if ax is not None else _new_axes()
        # Between two points the share can reach the upper bound at the right one.
        upper = [*hi[1:], hi[-1]]
        axes.fill_between(xs, lo, upper, step="post", alpha=BAND_ALPHA, linewidth=0, label="certified band")
        axes.plot(xs, [answer.cdf for answer in curve], linewidth=1.2, label="answer")
        label = curve[0].measure
        left, right = (
            to_plottable(answer.value) for answer in self.warehouse.quantile(SHOWN_RANGE, measure, **options)
        )
        if _is_finite(left) and _is_finite(right) and left < right:
            axes.set_xlim(left, right)
            label += " (the middle 99 % of the rows)"
        axes.set(xlabel=label, ylabel="share of rows at most x", ylim=(-0.02, 1.02))
        axes.legend(loc="lower right")
        return _add_title(axes, curve[0])

    def quantiles(
        self,
        phis: Any = (0.5, 0.9, 0.99),
        measure: str | None = None,
        *,
        every: Any = None,
        by: Any = None,
        ax: Axes | None = None,
        **options: Unpack[ChosenOptions],
    ) -> Axes:
        """Quantiles over time: a line for each quantile, or with `by` for each group and quantile.

        phis: a quantile, or several.
        every: the window of one answer, as in `Warehouse.quantile`; by default a tick. A window without rows
            is a gap. The newest window is marked while its last tick may still get rows.

        Raises InputError for more than MAX_SPANS windows or MAX_LINES lines. Cost: that of the question.
        """
        width = chosen_width(self.warehouse, every)
        check_windows(self.warehouse, width, options, measure)
        phis = plain_share(phis)
        shown_phis = phis if is_sequence(phis) else [phis]
        found: Answers[Answer] = self.warehouse.quantile(shown_phis, measure, every=width, by=by, **options)
        lines = _lines(found)
        if not lines:
            raise EmptyWindow("nothing to draw: the window has no groups.")
        if len(lines) > MAX_LINES:
            raise InputError(f"a figure has {MAX_LINES} lines at most, got {len(lines):,}. Give top=5.")
        axes = ax if ax is not None else _new_axes()
        drawn = [draw_steps(axes, answers, ", ".join(texts)) for texts, answers in lines.items()]
        line = next(iter(lines.values()))
        drawn += finish_windows(axes, self.warehouse, width, line[-1].window)
        axes.set_ylabel(f"quantiles of {found[0].measure}")
        title = ", ".join([*found.by, "phi"]) + ", certified band"
        # With handles, matplotlib also lists groups whose names begin with an underscore.
        axes.legend(
            handles=drawn, title=title, ncols=min(len(lines), 5), loc="upper center", fontsize="small"
        )
        # A row counts once for all phis.
        return _add_title(axes, scope_of_all([answer for answer in found if answer.phi == found[0].phi]))

    def distinct(
        self,
        *,
        every: Any = None,
        new: bool = False,
        ax: Axes | None = None,
        **options: Unpack[KeyOptions],
    ) -> Axes:
        """The number of distinct keys over time, with its probable band, and lightly its certain bounds.

        every: the window of one answer, as in `Warehouse.distinct`; by default a tick. The newest window is
            marked while its last tick may still get rows.
        new: whether bars show how many keys of each window no earlier row has, with whiskers from lo to hi.

        The y axis fits the probable band; certain bounds beyond it are cut. Raises InputError for more than
        MAX_SPANS windows. Cost: that of `Warehouse.distinct` and `Warehouse.new_keys`.
        """
        pinned = self.warehouse.pinned()  # both questions are about the same rows
        width = chosen_width(pinned, every)
        check_windows(pinned, width, options)
        counts: Answers[DistinctAnswer] = pinned.distinct(every=width, **options)
        fresh = list(pinned.new_keys(every=width, **options)) if new else []
        axes = ax if ax is not None else _new_axes()
        draw_distinct(axes, counts, fresh)
        finish_windows(axes, pinned, width, counts[-1].window)
        axes.legend(ncols=3, loc="upper center", fontsize="small", columnspacing=1, handlelength=1)
        return _add_title(axes, scope_of_all(counts))

    def histogram(
        self,
        bins: Any = 40,
        measure: str | None = None,
        *,
        log: bool = False,
        upto: Any = None,
        ax: Axes | None = None,
        **options: Unpack[WindowOptions],
    ) -> Axes:
        """Counts in bins; `bins` as in `Warehouse.histogram`.

        For heavy tails, which would be one bar beside empty bins: `log` makes bins of equal ratio (numbers up
        to 0 are in a bin of their own), and `upto`, such as 0.99, ends the last bin at that quantile.
        """
        pinned = self.warehouse.pinned()  # the edges and the counts are about the same rows
        edges_or_bins = chosen_edges(pinned, bins, measure, options, log=log, upto=upto)
        histogram = pinned.histogram(edges_or_bins, measure, **options)
        axes = ax if ax is not None else _new_axes()
        edges = [to_plottable(edge) for edge in histogram.edges]
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
        beyond = "" if upto is None else f" (up to the {upto:g} quantile)"
        axes.set(xlabel=f"{histogram.measure}{beyond}", ylabel="rows a bin")
        axes.set_ylim(bottom=0)
        if log and edges[0] > 0:
            axes.set_xscale("log")
        elif log:
            axes.set_xscale("symlog", linthresh=edges[1])
        axes.legend()
        return _add_title(axes, histogram)

    def top(self, k: int = 20, *, ax: Axes | None = None, **options: Unpack[KeyOptions]) -> Axes:
        """The k keys with the most rows as bars: history's part, the live part, and the certain interval."""
        k = plain(k)
        if isinstance(k, int) and k > MAX_KEYS:
            raise InputError(f"a figure shows {MAX_KEYS} keys at most, got k = {k:,}.")
        hitters = self.warehouse.top(k, **options)
        if not len(hitters):
            raise EmptyWindow("nothing to draw: the window has no rows with a key.")
        axes = ax if ax is not None else _new_axes(len(hitters))
        draw_keys(axes, hitters)
        return _add_title(axes, hitters[0], grid="x")

    def persistence(
        self,
        values: Any = None,
        *,
        top: int = 20,
        slot: Any = None,
        ax: Axes | None = None,
        **options: Unpack[KeyOptions],
    ) -> Axes:
        """In which slots keys are present: a row for each key, filled where it certainly has rows.

        values: the keys, in the order of the rows; by default the `top` keys with the most rows.
        slot: as in `Warehouse.persistence`; by default a tick.

        A lightly filled slot may have rows. Raises InputError for more than MAX_KEYS keys or MAX_SPANS slots.
        Cost: that of `Warehouse.persistence`, and of `Warehouse.top` without `values`.
        """
        pinned = self.warehouse.pinned()  # both questions are about the same rows
        check_windows(pinned, chosen_width(pinned, slot), options, name="slot")
        if values is None:
            shown_keys = min(whole_number("top", plain(top), 1), MAX_KEYS)
            values = [hitter.value for hitter in pinned.top(shown_keys, **options)]
        values = plain_all(values)
        shown = values if is_sequence(values) and not isinstance(values, tuple) else [values]
        if len(shown) > MAX_KEYS:
            raise InputError(f"a figure shows {MAX_KEYS} keys at most, got {len(shown):,}.")
        found = cast("Answers[PersistenceAnswer]", pinned.persistence(list(shown), slot=slot, **options))
        if not len(found):
            raise EmptyWindow("nothing to draw: the window has no rows with a key.")
        axes = ax if ax is not None else _new_axes(len(found))
        draw_presence(axes, found)
        axes.set_xlabel("step" if pinned.tick is None else "time (UTC)", loc="left")
        return _add_title(axes, found[0], grid="x")


def _lines(found: Answers[Answer]) -> dict[tuple[str, ...], list[Answer]]:
    """The answers of each line in the order of their windows, by the texts of its group and its quantile."""
    lines: dict[tuple[str, ...], list[Answer]] = {}
    for answer in found:
        group = [text_of((answer.group or {})[column]) for column in found.by]
        lines.setdefault((*group, f"{answer.phi:g}"), []).append(answer)
    return lines


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


def _add_title(axes: Axes, scope: PromisedScope, grid: Literal["both", "x"] = "both") -> Axes:
    """Adds a grid and a title with the scope, wrapped to the width of the figure.

    Names in the texts are data: dollar signs in them do not begin a formula.
    """
    from matplotlib.dates import HOURLY, MINUTELY, MONTHLY, SECONDLY, AutoDateLocator, ConciseDateFormatter

    versions = versions_text(scope.as_of)
    # The legend tells the confidence of numbers of keys, which have no eps.
    has_eps = not isinstance(scope, (DistinctAnswer, PersistenceAnswer))
    method = f"{scope.mode}, eps = {scope.eps:g}" if has_eps else scope.mode
    rows = f"N = {scope.N:,} ({scope.n:,} history + {scope.m:,} live), {method}"
    parts = [f"{scope.column}, {scope.shown_window}", rows, f"as of {versions}"]
    inches = axes.get_window_extent().width / axes.figure.dpi
    characters = int(inches * 72 / (0.6 * TITLE_POINTS))
    lines = [line for part in parts for line in textwrap.wrap(part, max(16, characters))]
    title = axes.set_title("\n".join(lines), fontsize=TITLE_POINTS, loc="left")
    legend = axes.get_legend()
    named = [] if legend is None else [legend.get_title(), *legend.get_texts()]
    for text in (title, axes.xaxis.label, axes.yaxis.label, *named):
        text.set_parse_math(False)
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
        # Its own intervals are for more ticks: for 3 days or 3 years, say, it would find none and warn.
        for frequency, interval in ((MONTHLY, 12), (HOURLY, 24), (MINUTELY, 60), (SECONDLY, 60)):
            locator.intervald[frequency].append(interval)
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]  # matplotlib
    return axes


def _is_finite(value: Any) -> bool:
    return not isinstance(value, float) or math.isfinite(value)
