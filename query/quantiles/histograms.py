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
from itertools import pairwise
from typing import Any

import numpy as np

from tidemark.query.answers.answer import Answers, Bin, Histogram
from tidemark.query.quantiles.questions import Question, ranks_le, several
from tidemark.query.quantiles.rank_search import find_ranks
from tidemark.warehouse.columns.measures import Measure
from tidemark.warehouse.errors import EmptyWindow, InputError

MOST_BINS = 100_000  # a mistyped number of bins should not take the memory


def check_bins(bins: Any) -> int | list[Any]:
    """The number of bins, or their edges, ascending; at least one bin."""
    if several(bins):
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
    measure = question.measure
    _check_ascending(measure, bins)
    # One rank an edge: rows below it, and for the last edge, which is closed, rows up to it.
    points = [*(_below(measure, edge) for edge in bins[:-1]), measure.floor(bins[-1])]
    lo, hi, more = ranks_le(question, points)
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
    return Histogram(bins=Answers(found, Bin, measure.name), **scope)


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
            f"{measure.name!r} reaches from {least} to {most}: no bins of equal width. "
            "Give their edges: bins=[...]."
        )
    return _edges(measure, least, most, bins), blocks_read


def _edges(measure: Measure, least: Any, most: Any, bins: int) -> list[Any]:
    """Edges of bins of equal width from stored number to stored number, in the measure's own type.

    Edges of integers may be fractions, then they are floats. Where the type has no value between two edges
    they are one, so there may be fewer bins; a constant column has one.
    """
    step = (Fraction(most) - Fraction(least)) / bins
    edges = [measure.decode(least)]
    last = measure.decode(most)
    for i in range(1, bins):
        edge = _decode_between(measure, Fraction(least) + i * step)
        if edges[-1] < edge < last:
            edges.append(edge)
    return [*edges, last]


def _decode_between(measure: Measure, exact: Fraction) -> Any:
    if measure.is_double:
        return float(exact)
    if measure.type in {"date", "timestamp"} or measure.type.startswith("decimal"):
        return measure.decode(math.floor(exact))
    return int(exact) if exact.denominator == 1 else float(exact)


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
    if any(a > b for a, b in pairwise(stored)):
        raise InputError(f"edges must ascend, got {list(edges)!r}.")
