"""Histograms: counts in bins, from ranks at the edges.

A bin [left, right) holds rank_lt(right) - rank_lt(left) rows; the last one is closed, as numpy's are, and
holds rank_le(right) - rank_lt(left). Bins that the caller does not name are of equal width and reach from
the window's least to its greatest number, so every number of the window is in one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from query.answer import Answers, Bin, Histogram
from query.question import Question, ranks_le
from query.refine import find_ranks
from warehouse.errors import EmptyWindow, InputError
from warehouse.measures import Measure

MOST_BINS = 100_000  # a mistyped number of bins should not take the memory


def check_bins(bins: Any) -> int | list[Any]:
    """The number of bins, or their edges, ascending; at least one bin."""
    if isinstance(bins, (Sequence, np.ndarray)) and not isinstance(bins, (str, bytes)):
        edges = list(bins)
        if len(edges) < 2:
            raise InputError(f"bins by their edges need two or more of them, got {edges!r}.")
        return edges
    if isinstance(bins, bool) or not isinstance(bins, (int, np.integer)) or not 1 <= bins <= MOST_BINS:
        raise InputError(f"bins must be a number from 1 to {MOST_BINS:,} or a list of edges, got {bins!r}.")
    return int(bins)


def histogram(question: Question, bins: int | list[Any]) -> Histogram:
    """The counts in bins that `check_bins` has passed."""
    blocks_read = 0
    if isinstance(bins, int):
        bins, blocks_read = _equal_edges(question, bins)
    below = [_below(question.measure, edge) for edge in bins]
    last = question.measure.floor(bins[-1])
    _check_ascending(question.measure, bins)
    lo, hi, more = ranks_le(question, [*below[:-1], last])
    guess = (lo + hi) // 2
    found = tuple(
        Bin(
            left=bins[i],
            right=bins[i + 1],
            count=int(guess[i + 1] - guess[i]),
            lo=max(0, int(lo[i + 1] - hi[i])),
            hi=int(hi[i + 1] - lo[i]),
        )
        for i in range(len(bins) - 1)
    )
    scope = question.scope(blocks_read + more)
    return Histogram(bins=Answers(found, Bin, question.measure.name), **scope)


def _equal_edges(question: Question, bins: int) -> tuple[list[Any], int]:
    known, measure = question.known, question.measure
    if known.stored == 0:
        raise EmptyWindow(f"the window has no numbers of {measure.name!r}: its {known.rows:,} rows are NaN.")
    ends = np.array([1, known.stored], dtype=np.int64)
    found, blocks_read = find_ranks(question.source, known, ends, question.mode, question.eps)
    # Certain to hold every number, also where the ends themselves are not certain.
    least, most = found.low[0].item(), found.high[1].item()
    if math.isinf(least) or math.isinf(most):
        raise InputError(
            f"{measure.name!r} reaches from {least} to {most}: no bins of equal width. Give their edges: bins=[...]."
        )
    return _edges(measure, least, most, bins), blocks_read


def _edges(measure: Measure, least: Any, most: Any, bins: int) -> list[Any]:
    """bins + 1 edges from stored number to stored number, in the measure's own type.

    Where that type has no number between, edges repeat and are dropped. Integers get edges that are
    fractions, as floats. All equal: one unit wide, as numpy has it.
    """
    first, width = Fraction(least), Fraction(most) - Fraction(least)
    if width == 0 and not measure.type.startswith(("date", "timestamp", "decimal")):
        first, width = first - Fraction(1, 2), Fraction(1)
    steps = [first + width * i / bins for i in range(bins + 1)]
    if measure.is_double:
        edges = [float(least) if width == 0 else float(step) for step in steps]
    elif measure.type in {"date", "timestamp"} or measure.type.startswith("decimal"):
        edges = [measure.decode(math.floor(step)) for step in steps]
    else:
        edges = [int(step) if step.denominator == 1 else float(step) for step in steps]
    ascending = [edge for i, edge in enumerate(edges) if i == 0 or edge > edges[i - 1]]
    return ascending if len(ascending) > 1 else [edges[0], edges[0]]


def _below(measure: Measure, edge: Any) -> Any | None:
    """The greatest stored value < edge, None where there is none: rank_lt(edge) = rank_le(_below(edge))."""
    stored = measure.floor(edge)
    if stored is None or not _is_storable(measure, edge, stored):
        return stored
    if measure.is_double:
        return None if stored == -math.inf else math.nextafter(stored, -math.inf)
    return None if stored == -(2**63) else int(stored) - 1


def _is_storable(measure: Measure, edge: Any, stored: Any) -> bool:
    """Whether the stored value is the edge itself; times are cut to what the measure can store."""
    if not isinstance(edge, (int, float, Decimal, Fraction, np.integer, np.floating)):
        return True
    return bool(measure.decode(stored) == (edge.item() if isinstance(edge, np.generic) else edge))


def _check_ascending(measure: Measure, edges: Sequence[Any]) -> None:
    stored = [-math.inf if low is None else low for low in map(measure.floor, edges)]
    if any(a > b for a, b in zip(stored, stored[1:], strict=False)):
        raise InputError(f"edges must ascend, got {list(edges)!r}.")
