"""The figure of persistence: a row for each key and a column for each slot, filled where the key is present.

A slot in which the key may be present is filled lightly; where it has no rows, nothing is drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidemark.query.answers.persistence_answers import PersistenceAnswer
from tidemark.query.answers.rendering import text_of
from tidemark.query.plots.window_plot import drawn_end

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HEIGHT = 0.85  # of the height of a row; the rest is the gap between two keys
MAYBE_ALPHA = 0.35


def draw_presence(axes: Axes, answers: Sequence[PersistenceAnswer]) -> None:
    """Draws the slots of each key, the first key on top; `answers` has at least one answer."""
    for field, alpha, label in (("present", 1.0, "present"), ("maybe", MAYBE_ALPHA, "may be present")):
        cells = [(row, *slot) for row, answer in enumerate(answers) for slot in getattr(answer, field)]
        if cells:
            axes.bar(
                [start for _, start, _ in cells],
                [HEIGHT] * len(cells),
                width=[drawn_end(end) - start for _, start, end in cells],
                bottom=[row - HEIGHT / 2 for row, *_ in cells],
                align="edge",
                color="C0",
                alpha=alpha,
                linewidth=0,
                label=label,
            )
    window = answers[0].window
    if window is not None and None not in window:
        axes.set_xlim(*window)
    if any(answer.maybe for answer in answers):
        axes.legend(loc="lower right", fontsize="small")
    texts = [f"{text_of(answer.value)}  {answer.slots:,}/{answer.window_slots:,}" for answer in answers]
    axes.set_yticks(range(len(answers)), texts, parse_math=False)
    axes.set_ylim(len(answers) - 0.5, -0.5)
    axes.set_ylabel(answers[0].key)
