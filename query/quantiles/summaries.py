"""Summaries: count, sum, mean, least, greatest and variance, from exact sums and the first and last rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tidemark.query.answers.summary_answer import Summary
from tidemark.query.quantiles.combined_bounds import Ranks
from tidemark.query.quantiles.questions import Found, Question, Wanted
from tidemark.warehouse.columns.exact_sums import Sums, deviation_of, mean_of, sum_of, variance_of
from tidemark.warehouse.errors import StoreUnavailable


@dataclass(frozen=True, slots=True)
class Summaries(Wanted[Summary]):
    """The sums of the rows, the least number and the greatest."""

    needs_sums: ClassVar = True
    is_exact: ClassVar = True

    def ranks(self, question: Question) -> Ranks:
        """The first and the last rank of a number; none without numbers."""
        stored = question.counts.stored
        return np.array([1, stored] if stored else [], dtype=np.int64)

    def answers(self, question: Question, found: Found) -> list[Summary]:
        """One summary."""
        measure, sums = question.measure, found.sums or Sums()
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
                **question.scope(found.blocks_read),
            )
        ]
