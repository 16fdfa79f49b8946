"""Figures over time: each window is a step of a line, with the band of its bounds.

In the figure of distinct keys the certain bounds are a lighter band. They may be many times wider than the
probable ones, so they do not choose the y axis: where they leave it, they are cut.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tidemark.query.answers.all_answers import Scope
from tidemark.query.answers.distinct_answers import DistinctAnswer
from tidemark.query.reading.asked_window import AskedWindow
from tidemark.warehouse.columns.scalars import plain
from tidemark.warehouse.columns.ticks import LAST_US, from_epoch_us, parse_duration
from tidemark.warehouse.errors import InputError

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

    from tidemark.query.reader import Reader

S = TypeVar("S", bound=Scope)

BAND_ALPHA = 0.3  # opacity of the band
CERTAIN_ALPHA = 0.1  # of the band of the certain bounds
BAR_ALPHA = 0.45
LEGEND_SHARE = 0.4  # of the height, for the legend above the lines
MAX_SPANS = 1000  # about the width of a screen in pixels


def chosen_width(warehouse: Reader, every: Any) -> Any:
    """The width of a window; by default a tick, or a step without a time column."""
    every = plain(every)
    if every not in (None, "tick"):
        return every
    return 1 if warehouse.tick is None else warehouse.tick


def check_windows(
    warehouse: Reader,
    every: Any,
    options: Mapping[str, Any],
    measure: str | None = None,
    *,
    name: str = "every",
) -> None:
    """InputError for more than MAX_SPANS windows, before they are asked.

    name: the name of their width in the error. options: the keyword arguments of the question.
    """
    asked = AskedWindow.of(options)
    start, end = warehouse.span(measure, last=asked.last, as_of=asked.as_of, between=asked.between)
    width: Any
    if warehouse.tick is None:
        width = every if isinstance(every, int) and every > 0 else 1  # the question refuses others
    else:
        width = timedelta(microseconds=parse_duration(every))
    windows = -(-(drawn_end(end) - start) // width)
    if windows > MAX_SPANS:
        raise InputError(
            f"the window has {windows:,} parts of {name}={str(every)!r}, a figure shows {MAX_SPANS:,}. "
            f"Give a longer duration, such as {name}='7d', or a shorter window."
        )


def draw_steps(axes: Axes, answers: Sequence[Scope], label: str, band: str | None = None) -> Any:
    """Draws a line of answers in the order of their windows, and the band of their intervals.

    band: the band's text in the legend; None for none. Returns the line.
    """
    low, value, high = answers[0].INTERVAL
    edges = window_edges(answers)
    (drawn,) = axes.plot(edges, _step_values(answers, value), linewidth=1.2, label=label)
    fill_steps(axes, answers, (low, high), color=drawn.get_color(), alpha=BAND_ALPHA, label=band)
    return drawn


def fill_steps(axes: Axes, answers: Sequence[Scope], bounds: tuple[str, str], **how: Any) -> None:
    """Fills the band between two fields of answers in the order of their windows."""
    low, high = (_step_values(answers, name) for name in bounds)
    axes.fill_between(window_edges(answers), low, high, linewidth=0, **how)


def window_edges(answers: Sequence[Scope]) -> list[Any]:
    """The start and the end of each window."""
    windows = (answer.window for answer in answers if answer.window is not None)
    return [edge for start, end in windows for edge in (start, drawn_end(end))]


def drawn_end(end: Any) -> Any:
    """The end of a window; the last possible time if it has none, because it holds that time."""
    return from_epoch_us(LAST_US) if end is None else end


def finish_windows(axes: Axes, warehouse: Reader, every: Any, window: tuple[Any, Any] | None) -> list[Artist]:
    """Marks the newest window if it is open, names the x axis, and makes room for the legend.

    The window is open if the newest tick of the data lies in it: it may still get rows. Returns the marks.
    """
    marks: list[Artist] = []
    if window is not None and drawn_end(window[1]) >= drawn_end(warehouse.span()[1]):
        edges = window[0], drawn_end(window[1])
        marks = [axes.axvspan(*edges, color="gray", alpha=0.15, linewidth=0, label="open window")]
    # At the left, because matplotlib writes the year at the right.
    axes.set_xlabel(_every_text(every, warehouse.tick), loc="left")
    bottom, highest = axes.get_ylim()
    axes.set_ylim(bottom, highest + LEGEND_SHARE * (highest - bottom))
    return marks


def draw_distinct(axes: Axes, counts: Sequence[DistinctAnswer], new: Sequence[DistinctAnswer]) -> None:
    """Draws the numbers of keys, and of new keys if there are any; `counts` has at least one answer.

    The whiskers of the bars are lo to hi.
    """
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    confidence = min(answer.confidence for answer in (*counts, *new))
    probable = "certain" if confidence == 1 else f"probable, {confidence:g}"
    colour = draw_steps(axes, counts, "distinct keys", probable).get_color()
    if new:
        windows = [answer.window for answer in new if answer.window is not None]
        axes.bar(
            [start for start, _ in windows],
            [answer.count for answer in new],
            width=[drawn_end(end) - start for start, end in windows],
            align="edge",
            yerr=[[answer.count - answer.lo for answer in new], [answer.hi - answer.count for answer in new]],
            error_kw={"elinewidth": 1.2, "alpha": BAR_ALPHA},
            color="C1",
            alpha=BAR_ALPHA,
            label="new keys",
        )
    if confidence < 1:
        shown = axes.get_ylim()
        fill_steps(axes, counts, ("least", "most"), color=colour, alpha=CERTAIN_ALPHA, label="certain")
        axes.set_ylim(shown)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.set_ylabel(f"distinct {counts[0].key}")


def scope_of_all(answers: Sequence[S]) -> S:
    """The first answer, with the rows of history, the live rows and the window of all."""
    first, last = answers[0].window, answers[-1].window
    window = (first[0], last[1]) if first is not None and last is not None else None
    sums = {name: sum(getattr(answer, name) for answer in answers) for name in ("n", "m")}
    return replace(answers[0], window=window, **sums)


def to_plottable(value: Any) -> Any:
    """The value in a type that matplotlib can draw: decimals become floats."""
    return float(value) if isinstance(value, Decimal) else value


def _step_values(line: Sequence[Scope], name: str) -> NDArray[Any]:
    """The value of each window twice, for its start and its end; NaN or NaT where a window has no answer."""
    values = [to_plottable(getattr(answer, name)) for answer in line]
    if any(isinstance(value, date) for value in values):
        values = [value.replace(tzinfo=None) if isinstance(value, datetime) else value for value in values]
        return np.repeat(np.array(values, "datetime64[us]"), 2)
    return np.repeat(np.array(values, np.float64), 2)


def _every_text(every: Any, tick: timedelta | None) -> str:
    if tick is None:
        return "step" if every == 1 else f"steps, {every} an answer"
    return f"time (UTC), {'an answer a tick' if every == tick else f'{every} an answer'}"
