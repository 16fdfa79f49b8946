"""Edges of bins for measures with heavy tails: bins of equal ratio, or bins only up to a quantile."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from tidemark.query.plots.window_plot import to_plottable
from tidemark.warehouse.columns.scalars import is_sequence
from tidemark.warehouse.errors import InputError, shortened

if TYPE_CHECKING:
    from tidemark.query.asking.measure_arguments import WindowOptions
    from tidemark.query.reader import Reader


def chosen_edges(
    reader: Reader, bins: Any, measure: str | None, ask: WindowOptions, *, log: bool, upto: Any
) -> Any:
    """`bins` as they are, or edges for `log` and `upto`, ascending.

    log: each edge is the one before it times the same factor. Numbers up to 0 are in a bin of their own.
    upto: the quantile of the last edge; None for the greatest number.

    InputError for edges beside `log` or `upto`, for a measure that `log` cannot divide, and where there are
    no numbers above 0. Cost: that of three quantiles.
    """
    if not log and upto is None:
        return bins
    if is_sequence(bins) or isinstance(bins, bool) or not isinstance(bins, int) or bins < 1:
        raise InputError(
            f"log and upto choose the edges: bins must be a number of bins, got {shortened(bins)}."
        )
    least, last = reader.quantile([0, 1 if upto is None else upto], measure, **ask)
    low, high = least.low, last.high if upto is None else last.value
    if not log:
        return _ascending([low + (high - low) * i / bins for i in range(bins)], high)
    low, high = to_plottable(low), to_plottable(high)
    if not isinstance(low, int | float):
        raise InputError(f"log bins need a measure of numbers; {least.measure!r} has {type(low).__name__}.")
    first = low if low > 0 else _first_above_zero(reader, measure, ask)
    if not (first and 0 < first < high < math.inf):
        raise InputError(
            f"log bins need finite numbers above 0; {least.measure!r} reaches from {low} to {high} in the "
            "window. Give the edges: bins=[...]."
        )
    factor = (high / first) ** (1 / bins)
    below = [low] if low < first else []
    return _ascending([*below, *(first * factor**i for i in range(bins))], high)


def _first_above_zero(reader: Reader, measure: str | None, ask: WindowOptions) -> Any:
    """The least number above 0, or one near it; None if there is none."""
    up_to_zero = reader.rank(0, measure, **ask)
    if up_to_zero.rank_hi >= up_to_zero.N:
        return None
    found = reader.quantile(Fraction(up_to_zero.rank_hi + 1, up_to_zero.N), measure, **ask)
    return to_plottable(found.value)


def _ascending(edges: list[Any], last: Any) -> list[Any]:
    """The edges below the last one, each once, and the last."""
    return [*sorted({edge for edge in edges if edge < last}), last]
