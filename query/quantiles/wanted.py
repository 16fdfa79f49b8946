"""The kinds of questions about a measure: quantiles, ranks, shares and extremes; others stand beside it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import numpy as np

from tidemark.query.answers.answer_columns import Column, Marked, Picked
from tidemark.query.answers.extreme_answer import Extreme
from tidemark.query.answers.measure_answers import Answer, CdfAnswer, MeasureFields, RankAnswer
from tidemark.query.quantiles.cells import Cells
from tidemark.query.quantiles.choose_candidate import Candidates
from tidemark.query.quantiles.combined_bounds import Ranks, Values
from tidemark.query.quantiles.questions import Columns, Found, Points, Wanted
from tidemark.query.reading.row_counts import RowCounts
from tidemark.sketches import InvalidInput, target_rank
from tidemark.sketches.bounds.target_rank import target_ranks
from tidemark.warehouse.columns.value_encoding import Measure
from tidemark.warehouse.errors import InputError, whole_number

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

    @property
    def targets(self) -> int:
        """See `Wanted.targets`."""
        return len(self.phis)

    def columns(self, cells: Cells, measure: Measure) -> Columns[Answer]:
        """See `Wanted.columns`, and `answers`."""
        rows = cells.rows
        ranks, some = np.zeros((len(rows), self.targets), np.int64), rows > 0
        for column, phi in enumerate(self.phis):
            ranks[some, column] = target_ranks(phi, rows[some])
        stored, ranks_le = cells.numbers.same_values_at(ranks)
        are_numbers = (ranks >= 1) & (ranks <= cells.stored[:, np.newaxis])
        others = np.flatnonzero(~are_numbers)
        marks = {at: math.nan if ranks.flat[at] else None for at in others.tolist()}
        value = Marked(Column(stored.ravel(), measure), marks)
        rank = Column(np.where(are_numbers, ranks_le, rows[:, np.newaxis]).ravel())
        phi = Picked([float(phi) for phi in self.phis], np.tile(np.arange(self.targets), len(cells)))
        own = {"phi": phi, "value": value, "low": value, "high": value, "rank_lo": rank, "rank_hi": rank}
        return Columns(Answer, own, {"error_bound": 0})

    def ranks(self, counts: RowCounts) -> Ranks:
        """See `Wanted.ranks`; none for a group without rows."""
        rows = counts.rows
        return np.array([target_rank(phi, rows) for phi in self.phis] if rows else [], dtype=np.int64)

    def answers(self, found: Found) -> list[Answer]:
        """One per quantile: NaN for a rank above those of all numbers, and no value without rows."""
        scope, decode, counts = found.scope, found.measure.decode, found.counts
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

    @property
    def targets(self) -> int:
        return len(self.given)

    def points(self, measure: Measure, *_: Values) -> Points:
        return Points(self.given, [measure.floor(point) for point in self.given])

    def _in_cells(self, cells: Cells, measure: Measure) -> tuple[Picked, Ranks]:
        """The point of each answer, and its rank in each cell, shape (cells, points)."""
        places, stored = self.points(measure).places(measure)
        ranks = np.zeros((len(cells), self.targets), np.int64)
        ranks[:, places] = cells.numbers.same_ranks_at(stored)
        return Picked(self.given, np.tile(np.arange(self.targets), len(cells))), ranks


class RanksOf(_AtPoints[RankAnswer]):
    """The numbers of rows <= points."""

    def answers(self, found: Found) -> list[RankAnswer]:
        """One per point."""
        return [
            RankAnswer(value=point, rank=(lo + hi) // 2, rank_lo=lo, rank_hi=hi, **found.scope)
            for point, lo, hi in zip(self.given, found.lo.tolist(), found.hi.tolist(), strict=True)
        ]

    def columns(self, cells: Cells, measure: Measure) -> Columns[RankAnswer]:
        """See `Wanted.columns`."""
        value, ranks = self._in_cells(cells, measure)
        rank = Column(ranks.ravel())
        return Columns(RankAnswer, {"value": value, "rank": rank, "rank_lo": rank, "rank_hi": rank}, {})


class SharesAt(_AtPoints[CdfAnswer]):
    """The shares of the rows that are <= points."""

    def answers(self, found: Found) -> list[CdfAnswer]:
        """One per point; a group without rows has no shares."""
        rows, scope = found.counts.rows or math.nan, found.scope
        return [
            CdfAnswer(value=point, cdf=(lo + hi) // 2 / rows, cdf_lo=lo / rows, cdf_hi=hi / rows, **scope)
            for point, lo, hi in zip(self.given, found.lo.tolist(), found.hi.tolist(), strict=True)
        ]

    def columns(self, cells: Cells, measure: Measure) -> Columns[CdfAnswer]:
        """See `Wanted.columns`, and `answers`."""
        value, ranks = self._in_cells(cells, measure)
        rows = cells.rows[:, np.newaxis]
        shares = np.divide(ranks, rows, out=np.full(ranks.shape, math.nan), where=rows > 0)
        cdf = Column(shares.ravel())
        return Columns(CdfAnswer, {"value": value, "cdf": cdf, "cdf_lo": cdf, "cdf_hi": cdf}, {})


@dataclass(frozen=True, slots=True)
class Extremes(Wanted[Extreme]):
    """The `k` greatest numbers, greatest first, or the least ones, least first; `of` checks k.

    They are those of the last and of the first ranks, found like quantiles.
    """

    is_exact: ClassVar = True

    k: int
    largest: bool

    @classmethod
    def of(cls, k: Any, *, largest: bool) -> Extremes:
        """Raises InputError unless k is a whole number of at least 1."""
        return cls(whole_number("k", k, 1), largest)

    @property
    def targets(self) -> int:
        """See `Wanted.targets`."""
        return self.k

    def ranks(self, counts: RowCounts) -> Ranks:
        """The last ranks of numbers, or the first; fewer than k if there are fewer numbers."""
        stored = counts.stored
        first = max(0, stored - self.k) if self.largest else 0
        return np.arange(first + 1, min(stored, first + self.k) + 1)

    def answers(self, found: Found) -> list[Extreme]:
        """An answer for each number; none without numbers."""
        if found.values is None:
            return []
        numbers, decode = found.values.values.tolist(), found.measure.decode
        if self.largest:
            numbers.reverse()
        return [
            Extreme(place=place, value=decode(number), **found.scope)
            for place, number in enumerate(numbers, 1)
        ]
