"""The figure of frequent keys: a bar a key, with history's part, the live part and the certain interval."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tidemark.query.answers.key_answer import HitterAnswer
from tidemark.query.answers.rendering import text_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LETTERS = 24  # of a key that is shown; a longer one loses its middle
LEGEND_ROOM = 1.6  # bars: the legend stands below them
FEWEST = 6  # bars that there is room for: a single one is not to fill the figure


def draw_keys(axes: Axes, found: Sequence[HitterAnswer]) -> None:
    """Bars from the top down, in the order of the answers.

    The whiskers are lo to hi. A key of which it is not certain that it belongs here has a question mark.
    """
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    places = range(len(found))
    past = [one.in_history for one in found]
    live = [max(0, one.count - one.in_history) for one in found]
    axes.barh(places, past, height=0.7, label="in history, exact")
    axes.barh(places, live, height=0.7, left=past, alpha=0.5, label="live, or in a tick that is cut")
    around = [[one.count - one.lo for one in found], [one.hi - one.count for one in found]]
    axes.errorbar(
        [one.count for one in found],
        places,
        xerr=around,
        fmt="none",
        ecolor="black",
        elinewidth=1.2,
        capsize=3,
        label="certain interval",
    )
    has_letter = _letters_of_the_font()
    labels = [_label(one, has_letter) for one in found]
    axes.set_yticks(places, labels=labels, fontsize="small" if len(found) <= 25 else "xx-small")
    for label in axes.get_yticklabels():
        label.set_parse_math(False)  # a key with two dollar signs is no formula
    axes.set_ylim(max(len(found), FEWEST) - 0.5 + LEGEND_ROOM, -0.6)
    axes.set_xlim(0, 1.05 * max(one.hi for one in found))
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    unsure = "" if all(one.certain for one in found) else " (?: a key that is not shown may have more)"
    axes.set(xlabel=f"rows{unsure}", ylabel=found[0].key)
    axes.set_axisbelow(True)
    axes.legend(loc="lower right", ncols=3, fontsize="small")


def _label(one: HitterAnswer, has_letter: Callable[[str], bool]) -> str:
    """The key in a few letters; what the font cannot draw is shown as escapes, by which keys still differ."""
    shown = text_of(one.value) or "(empty)"
    text = "".join(c if has_letter(c) else c.encode("unicode_escape").decode() for c in shown)
    if len(text) > LETTERS:
        text = f"{text[: LETTERS // 2]}…{text[1 - LETTERS // 2 :]}"
    return text if one.certain else f"{text} ?"


def _letters_of_the_font() -> Callable[[str], bool]:
    """Whether a letter is in one of the fonts that matplotlib is set to."""
    from matplotlib.font_manager import FontProperties, findfont, get_font

    chosen = FontProperties().get_family()
    fonts = [get_font(findfont(FontProperties(family=[one]))) for one in chosen]
    return lambda letter: any(font.get_char_index(ord(letter)) for font in fonts)
