"""What may be asked of the rows of a measure: quantiles, ranks, shares; histograms.py has histograms."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from tidemark.query.answers.measure_answers import Answer, CdfAnswer, MeasureFields, RankAnswer
from tidemark.query.quantiles.choose_candidate import Candidates
from tidemark.query.quantiles.combined_bounds import Ranks, Values
from tidemark.query.quantiles.questions import Found, Points, Question, Wanted
from tidemark.sketches import InvalidInput, target_rank
from tidemark.warehouse.errors import InputError

A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class Quantiles(Wanted[Answer]):
    """The values of quantiles, numbers from 0 to 1, both inclusive; `of` checks them."""

    phis: Sequence[Any]

    @classmethod
    def of(cls, phis: Iterable[Any]) -> Quantiles:
        """Raises InputError unless each is a number from 0 to 1, both inclusive."""
        given = list(phis)
        try:
            for phi in given:
                target_rank(phi, 1)
        except InvalidInput as error:
            raise InputError(f"not a quantile: {error}.") from None
        return cls(given)

    def ranks(self, question: Question) -> Ranks:
        """See `Wanted.ranks`; none for a group without rows."""
        rows = question.counts.rows
        return np.array([target_rank(phi, rows) for phi in self.phis] if rows else [], dtype=np.int64)

    def answers(self, question: Question, found: Found) -> list[Answer]:
        """One per quantile: NaN for a rank above those of all numbers, and no value without rows."""
        scope, decode, counts = question.scope(found.blocks_read), question.measure.decode, question.counts
        if not counts.rows:
            return [_without_error(phi, None, 0, scope) for phi in self.phis]
        numbers, answers = _rows(found.values), []
        for phi, rank in zip(self.phis, found.ranks.tolist(), strict=True):
            if rank > counts.stored:
                answers.append(_without_error(phi, math.nan, counts.rows, scope))
                continue
            value, low, high, rank_lo, rank_hi, error = next(numbers)
            answers.append(
                Answer(
                    phi=float(phi),
                    value=decode(value),
                    low=decode(low),
                    high=decode(high),
                    rank_lo=rank_lo,
                    rank_hi=rank_hi,
                    error_bound=error,
                    **scope,
                )
            )
        return answers


def _rows(values: Candidates | None) -> Iterator[tuple[Any, ...]]:
    """The value of each rank, its ends, the ends of its rank, and its error."""
    if values is None:
        return iter(())
    columns = (values.values, values.low, values.high, values.rank_lo, values.rank_hi, values.errors)
    return zip(*(column.tolist() for column in columns), strict=True)


def _without_error(phi: Any, value: float | None, rank: int, scope: MeasureFields) -> Answer:
    """An answer that is no number: NaN, or None without rows."""
    ends = {"value": value, "low": value, "high": value}
    return Answer(phi=float(phi), **ends, rank_lo=rank, rank_hi=rank, error_bound=0, **scope)


@dataclass(frozen=True, slots=True)
class _AtPoints(Wanted[A]):
    """The rows up to points, which are of the measure's type."""

    given: Sequence[Any]

    def points(self, question: Question, low: Values, high: Values) -> Points:  # noqa: ARG002
        return Points(self.given, [question.measure.floor(point) for point in self.given])


class RanksOf(_AtPoints[RankAnswer]):
    """The numbers of rows <= points."""

    def answers(self, question: Question, found: Found) -> list[RankAnswer]:
        """One per point."""
        scope = question.scope(found.blocks_read)
        return [
            RankAnswer(value=point, rank=(lo + hi) // 2, rank_lo=lo, rank_hi=hi, **scope)
            for point, lo, hi in zip(self.given, found.lo.tolist(), found.hi.tolist(), strict=True)
        ]


class SharesAt(_AtPoints[CdfAnswer]):
    """The shares of the rows that are <= points."""

    def answers(self, question: Question, found: Found) -> list[CdfAnswer]:
        """One per point; a group without rows has no shares."""
        rows, scope = question.counts.rows or math.nan, question.scope(found.blocks_read)
        return [
            CdfAnswer(value=point, cdf=(lo + hi) // 2 / rows, cdf_lo=lo / rows, cdf_hi=hi / rows, **scope)
            for point, lo, hi in zip(self.given, found.lo.tolist(), found.hi.tolist(), strict=True)
        ]
