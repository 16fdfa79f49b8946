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
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np

from tidemark.query.answers.measure_answers import Answers, Bin, Histogram
from tidemark.query.quantiles.combined_bounds import Ranks, Values
from tidemark.query.quantiles.questions import NO_POINTS, Found, Points, Wanted
from tidemark.query.reading.row_counts import RowCounts
from tidemark.warehouse.columns.given_values import standing
from tidemark.warehouse.columns.scalars import is_sequence
from tidemark.warehouse.columns.value_encoding import Measure
from tidemark.warehouse.errors import InputError, shortened, whole_number

MOST_BINS = 100_000  # so that a mistyped number of bins does not exhaust the memory


@dataclass(frozen=True, slots=True)
class Histograms(Wanted[Histogram]):
    """The counts in bins: a number of bins of equal width, or their edges; `of` checks them."""

    bins: int | Sequence[Any]

    @classmethod
    def of(cls, bins: Any) -> Histograms:
        """Raises InputError for no bins or more than MOST_BINS."""
        if not is_sequence(bins):
            return cls(whole_number("bins", bins, 1, MOST_BINS, hint="A list gives the edges."))
        edges = list(bins)
        if len(edges) < 2:
            raise InputError(f"bins given by edges need at least two edges, got {shortened(edges)}.")
        return cls(edges)

    def ranks(self, counts: RowCounts) -> Ranks:
        """The ends of bins of equal width; without numbers there are none."""
        stored = counts.stored
        return np.array([1, stored] if isinstance(self.bins, int) and stored else [], dtype=np.int64)

    def points(self, measure: Measure, low: Values, high: Values) -> Points:
        """The edges. Raises InputError if they descend, and for bins of equal width that reach to infinity.

        Bins of equal width hold every number of the window.
        """
        edges = self.bins
        if isinstance(edges, int):
            if not len(low):
                return NO_POINTS
            # They are certified, so every number lies between them even where the ends are estimates.
            least, most = low[0].item(), high[1].item()
            if math.isinf(least) or math.isinf(most):
                raise InputError(
                    f"{measure.name!r} reaches from {least} to {most}: bins of equal width are impossible. "
                    "Give their edges: bins=[...]."
                )
            edges = _edges(measure, least, most, edges)
        exact = [measure.exact(edge) for edge in edges]
        if any(a > b for a, b in pairwise(exact)):
            raise InputError(f"edges must ascend, got {shortened(list(edges))}.")
        places = [standing(measure.column_type, place) for place in exact]
        # One rank per edge: the rows below it, and for the last edge, which is inclusive, the rows up to it.
        return Points(edges, [*(place.below for place in places[:-1]), places[-1].at])

    def answers(self, found: Found) -> list[Histogram]:
        """One histogram; without bins if all rows are NaN and the edges were not given."""
        lo, hi, midpoint = found.lo, found.hi, (found.lo + found.hi) // 2
        counted = tuple(
            Bin(
                left=left,
                right=right,
                count=int(midpoint[i + 1] - midpoint[i]),
                lo=max(0, int(lo[i + 1] - hi[i])),
                hi=int(hi[i + 1] - lo[i]),
            )
            for i, (left, right) in enumerate(pairwise(found.points.given))
        )
        return [Histogram(bins=Answers(counted, Bin, found.measure.name), **found.scope)]


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
