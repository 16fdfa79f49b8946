"""The figure of distinct keys: a step per window with its probable band, and a bar per window for new keys.

The certain bounds are a lighter band. They may be many times wider than the probable ones, so they do not
choose the y axis: where they leave it, they are cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidemark.query.answers.distinct_answers import DistinctAnswer
from tidemark.query.plots.window_plot import draw_steps, drawn_end, fill_steps

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CERTAIN_ALPHA = 0.1  # opacity of the band of the certain bounds
BAR_ALPHA = 0.45


def draw_distinct(axes: Axes, counts: Sequence[DistinctAnswer], new: Sequence[DistinctAnswer]) -> None:
    """Draws the numbers of keys, and of new keys if there are any; `counts` has at least one answer.

    The whiskers of the bars are lo to hi.
    """
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    confidence = min(answer.confidence for answer in (*counts, *new))
    probable = "certain" if confidence == 1 else f"probable, {confidence:g}"
    colour = draw_steps(axes, counts, "distinct keys", probable).get_color()
    if new:
        _draw_bars(axes, new)
    if confidence < 1:
        shown = axes.get_ylim()
        fill_steps(axes, counts, ("least", "most"), color=colour, alpha=CERTAIN_ALPHA, label="certain")
        axes.set_ylim(shown)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.set_ylabel(f"distinct {counts[0].key}")


def _draw_bars(axes: Axes, new: Sequence[DistinctAnswer]) -> None:
    windows = [answer.window for answer in new if answer.window is not None]
    whiskers = [[answer.count - answer.lo for answer in new], [answer.hi - answer.count for answer in new]]
    axes.bar(
        [start for start, _ in windows],
        [answer.count for answer in new],
        width=[drawn_end(end) - start for start, end in windows],
        align="edge",
        yerr=whiskers,
        error_kw={"elinewidth": 1.2, "alpha": BAR_ALPHA},
        color="C1",
        alpha=BAR_ALPHA,
        label="new keys",
    )
