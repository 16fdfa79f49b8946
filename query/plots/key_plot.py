"""The figures of keys: bars of their rows with bounds, and the slots in which they have rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tidemark.query.answers.key_answers import HitterAnswer
from tidemark.query.answers.persistence_answers import PersistenceAnswer
from tidemark.query.answers.rendering import text_of
from tidemark.query.plots.window_plot import drawn_end

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_LABEL_LENGTH = 24  # characters of a key's label; a longer key is shortened in its middle
LEGEND_BARS = 1.6  # the height of the legend below the bars, in bars
ROW_HEIGHT = 0.85  # of the slots of a key, in rows; the rest is the gap between two keys
MAYBE_ALPHA = 0.35
MIN_BARS = 6  # the figure has room for at least this many bars, so that a single one does not fill it


def draw_keys(axes: Axes, hitters: Sequence[HitterAnswer]) -> None:
    """Draws horizontal bars from top to bottom, in the order of the answers; at least one.

    The whiskers are lo to hi. The label of a key that is not `certain` ends with a question mark.
    """
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    positions = range(len(hitters))
    in_history = [hitter.in_history for hitter in hitters]
    live = [max(0, hitter.count - hitter.in_history) for hitter in hitters]
    axes.barh(positions, in_history, height=0.7, label="in history, exact")
    axes.barh(positions, live, height=0.7, left=in_history, alpha=0.5, label="live, or in a tick that is cut")
    whiskers = [
        [hitter.count - hitter.lo for hitter in hitters],
        [hitter.hi - hitter.count for hitter in hitters],
    ]
    axes.errorbar(
        [hitter.count for hitter in hitters],
        positions,
        xerr=whiskers,
        fmt="none",
        ecolor="black",
        elinewidth=1.2,
        capsize=3,
        label="certain interval",
    )
    has_character = _font_has_character()
    labels = [_label(hitter, has_character) for hitter in hitters]
    size = "small" if len(hitters) <= 25 else "xx-small"
    axes.set_yticks(positions, labels=labels, fontsize=size, parse_math=False)
    axes.set_ylim(max(len(hitters), MIN_BARS) - 0.5 + LEGEND_BARS, -0.6)
    axes.set_xlim(0, 1.05 * max(hitter.hi for hitter in hitters))
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    unsure = (
        "" if all(hitter.certain for hitter in hitters) else " (?: a key that is not shown may have more)"
    )
    axes.set(xlabel=f"rows{unsure}", ylabel=hitters[0].key)
    axes.set_axisbelow(True)
    axes.legend(loc="lower right", ncols=3, fontsize="small")


def draw_presence(axes: Axes, answers: Sequence[PersistenceAnswer]) -> None:
    """Draws the slots of each key, the first key on top; `answers` has at least one answer.

    A slot in which the key may be present is filled lightly; where it has no rows, nothing is drawn.
    """
    for field, alpha, label in (("present", 1.0, "present"), ("maybe", MAYBE_ALPHA, "may be present")):
        cells = [(row, *slot) for row, answer in enumerate(answers) for slot in getattr(answer, field)]
        if cells:
            axes.bar(
                [start for _, start, _ in cells],
                [ROW_HEIGHT] * len(cells),
                width=[drawn_end(end) - start for _, start, end in cells],
                bottom=[row - ROW_HEIGHT / 2 for row, *_ in cells],
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


def _label(hitter: HitterAnswer, has_character: Callable[[str], bool]) -> str:
    """The key as a short label; characters missing from the font become escapes, so keys stay distinct."""
    shown = text_of(hitter.value) or "(empty)"
    text = "".join(c if has_character(c) else c.encode("unicode_escape").decode() for c in shown)
    if len(text) > MAX_LABEL_LENGTH:
        text = f"{text[: MAX_LABEL_LENGTH // 2]}…{text[1 - MAX_LABEL_LENGTH // 2 :]}"
    return text if hitter.certain else f"{text} ?"


def _font_has_character() -> Callable[[str], bool]:
    """A function that tests whether a character is in one of the fonts that matplotlib is set to."""
    from matplotlib.font_manager import FontProperties, findfont, get_font

    families = FontProperties().get_family()
    fonts = [get_font(findfont(FontProperties(family=[family]))) for family in families]
    return lambda character: any(font.get_char_index(ord(character)) for font in fonts)
