"""Summaries: count, sum, mean, least, greatest and variance, from exact sums and the first and last rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any, ClassVar

import numpy as np

from tidemark.query.answers.answer_columns import Column, Computed, Marked
from tidemark.query.answers.summary_answer import Summary
from tidemark.query.quantiles.cells import Cells
from tidemark.query.quantiles.combined_bounds import Ranks
from tidemark.query.quantiles.questions import Columns, Found, Wanted
from tidemark.query.reading.row_counts import RowCounts
from tidemark.warehouse.columns.exact_sums import Sums, deviation_of, mean_of, sum_of, variance_of
from tidemark.warehouse.columns.value_encoding import Measure
from tidemark.warehouse.errors import StoreUnavailable


@dataclass(frozen=True, slots=True)
class Summaries(Wanted[Summary]):
    """The sums of the rows, the least number and the greatest."""

    needs_sums: ClassVar = True
    is_exact: ClassVar = True

    def ranks(self, counts: RowCounts) -> Ranks:
        """The first and the last rank of a number; none without numbers."""
        stored = counts.stored
        return np.array([1, stored] if stored else [], dtype=np.int64)

    def columns(self, cells: Cells, measure: Measure) -> Columns[Summary]:
        """See `Wanted.columns`, and `answers`."""
        sums, ends = cells.numbers.sums(), cells.numbers.ends()
        marks = dict.fromkeys(np.flatnonzero(cells.stored == 0).tolist())
        of_sums = {"sum": sum_of, "mean": mean_of, "variance": variance_of, "stddev": deviation_of}
        own: dict[str, Sequence[Any]] = {
            name: Computed(sums, partial(compute, measure)) for name, compute in of_sums.items()
        }
        for name, column in (("min", ends[:, 0]), ("max", ends[:, 1])):
            own[name] = Marked(Column(column, measure), marks)
        counts = ("count", "count"), ("negative_infinities", "negative"), ("positive_infinities", "positive")
        for name, field in counts:
            own[name] = Computed(sums, attrgetter(field))
        return Columns(Summary, own, {})

    def answers(self, found: Found) -> list[Summary]:
        """One summary."""
        measure, sums = found.measure, found.sums or Sums()
        if found.values is not None and np.any(found.values.low != found.values.high):
            raise StoreUnavailable(
                "a warehouse does not answer, and its least and greatest value in this window are not known."
            )
        ends = [] if found.values is None else [measure.decode(end) for end in found.values.values.tolist()]
        least, greatest = ends or (None, None)
        return [
            Summary(
                count=sums.count,
                sum=sum_of(measure, sums),
                mean=mean_of(measure, sums),
                min=least,
                max=greatest,
                variance=variance_of(measure, sums),
                stddev=deviation_of(measure, sums),
                negative_infinities=sums.negative,
                positive_infinities=sums.positive,
                **found.scope,
            )
        ]
