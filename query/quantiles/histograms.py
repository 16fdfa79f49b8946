"""Histograms: counts in bins, from ranks at the edges.

A bin [left, right) holds rank_lt(right) - rank_lt(left) rows. The last bin is closed, as in numpy, and holds
rank_le(right) - rank_lt(left). Bins without given edges have equal width and reach from the least to the
greatest number of the window, so every number of the window is in a bin.

Worked example. The edges 0, 10, 20 need three ranks: rank_lt(0) = 2, rank_lt(10) between 5 and 7, and
rank_le(20) = 12. The bin [0, 10) holds 3 to 5 rows, the bin [10, 20] 5 to 7. The counts are 4 and 6.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np

from tidemark.query.answers.measure_answers import Answers, Bin, Histogram
from tidemark.query.quantiles.questions import Question, ranks_le
from tidemark.warehouse.columns.given_values import Standing, standing
from tidemark.warehouse.columns.scalars import is_sequence
from tidemark.warehouse.columns.value_encoding import Measure
from tidemark.warehouse.errors import InputError, whole_number

MOST_BINS = 100_000  # so that a mistyped number of bins does not exhaust the memory


def check_bins(bins: Any) -> int | list[Any]:
    """The number of bins, or their edges as a list. Raises InputError for no bins or more than MOST_BINS."""
    if is_sequence(bins):
        edges = list(bins)
        if len(edges) < 2:
            raise InputError(f"bins given by edges need at least two edges, got {edges!r}.")
        return edges
    return whole_number("bins", bins, 1, MOST_BINS, hint="A list gives the edges.")


def histogram(question: Question, bins: int | list[Any]) -> Histogram:
    """The counts in bins; `check_bins` has checked `bins`. A number of bins gives none if all rows are NaN.

    Raises InputError for edges that descend, and for bins of equal width that would reach to infinity.
    """
    blocks_read = 0
    if isinstance(bins, int) and not question.counts.stored:  # without numbers there are no ends of bins
        return Histogram(bins=Answers((), Bin, question.measure.name), **question.scope(0))
    if isinstance(bins, int):
        bins, blocks_read = _equal_edges(question, bins)
    measure = question.measure
    places = _ascending(measure, bins)
    # One rank per edge: the rows below it, and for the last edge, which is inclusive, the rows up to it.
    points = [*(place.below for place in places[:-1]), places[-1].at]
    lo, hi, rank_blocks_read = ranks_le(question, points)
    midpoint = (lo + hi) // 2
    counted = tuple(
        Bin(
            left=bins[i],
            right=bins[i + 1],
            count=int(midpoint[i + 1] - midpoint[i]),
            lo=max(0, int(lo[i + 1] - hi[i])),
            hi=int(hi[i + 1] - lo[i]),
        )
        for i in range(len(bins) - 1)
    )
    scope = question.scope(blocks_read + rank_blocks_read)
    return Histogram(bins=Answers(counted, Bin, measure.name), **scope)


def _equal_edges(question: Question, bins: int) -> tuple[list[Any], int]:
    """Edges of bins of equal width that hold every number of the window, and the number of blocks read."""
    counts, measure = question.counts, question.measure
    ends, blocks_read = question.values_at(np.array([1, counts.stored], dtype=np.int64))
    # `low` and `high` are certified, so every number lies between them even where the ends are estimates.
    least, most = ends.low[0].item(), ends.high[1].item()
    if math.isinf(least) or math.isinf(most):
        raise InputError(
            f"{measure.name!r} reaches from {least} to {most}: bins of equal width are impossible. "
            "Give their edges: bins=[...]."
        )
    return _edges(measure, least, most, bins), blocks_read


def _edges(measure: Measure, least: Any, most: Any, bins: int) -> list[Any]:
    """Edges of bins of equal width from `least` to `most`, both stored numbers, in the measure's own type.

    Edges of integers may be fractions; these are floats. If an end lies beyond 2**53, all edges are integers,
    which are finer there. Where the type has no value between two edges, they coincide and one is dropped. So
    there may be fewer bins; a constant column has one bin.
    """
    may_be_float = measure.column_type.is_integer and max(-least, most) <= 2**53
    step = (Fraction(most) - Fraction(least)) / bins
    edges = [measure.decode(least)]
    last = measure.decode(most)
    for i in range(1, bins):
        exact = Fraction(least) + i * step
        if measure.is_double or (may_be_float and exact.denominator > 1):
            edge = float(exact)
        else:
            edge = measure.decode(math.floor(exact))
        if edges[-1] < edge < last:
            edges.append(edge)
    return [*edges, last]


def _ascending(measure: Measure, edges: Sequence[Any]) -> list[Standing]:
    """How the edges stand between the stored numbers. InputError for edges that descend."""
    exact = [measure.exact(edge) for edge in edges]
    if any(a > b for a, b in pairwise(exact)):
        raise InputError(f"edges must ascend, got {list(edges)!r}.")
    return [standing(measure.column_type, place) for place in exact]
