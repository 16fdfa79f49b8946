"""Quantile, rank and cdf questions: checks of the arguments, and the pure steps from ranks to answers.

`Question` is the rows of a measure at one moment, with everything that is needed to answer from them. Stored
values are converted to the measure's own type here and nowhere else.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidemark.query.answers.measure_answers import Answer, CdfAnswer, RankAnswer
from tidemark.query.quantiles.choose_candidate import Candidates
from tidemark.query.quantiles.combined_bounds import Ranks
from tidemark.query.quantiles.rank_search import Source, ranks_at_values, values_at_ranks
from tidemark.query.quantiles.window_bounds import WindowBounds
from tidemark.query.reading.row_counts import RowCounts
from tidemark.sketches import InvalidInput, target_rank
from tidemark.warehouse.columns.value_encoding import Measure
from tidemark.warehouse.errors import InputError


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Question(ABC):
    """The rows of a measure that a question is about, and how their ranks and values are found.

    counts: how many rows there are.
    as_of: the versions of the tables that were read.
    mode: the mode of the answers. eps: the promise of the warehouse.
    window, widened: the window as answers show it, see `MeasureScope`.
    blocks_read: how many row groups were read before, to find the rows.

    The other fields are those of `MeasureScope`.
    """

    counts: RowCounts
    measure: Measure
    as_of: Mapping[str, int]
    mode: str
    eps: float
    window: tuple[Any, Any] | None
    widened: str | None = None
    group: Mapping[str, Any] | None = None
    certain: bool | None = None
    blocks_read: int = 0
    rows_scanned: int | None = None
    declare: tuple[str, ...] | None = None

    @abstractmethod
    def values_at(self, ranks: Ranks) -> tuple[Candidates, int]:
        """The answers to ranks from 1 to `counts.stored`, and how many row groups were read.

        Raises DamagedWarehouse if a file cannot be read, or if the live rows do not match the ledger.
        """

    @abstractmethod
    def ranks_at(self, points: NDArray[Any]) -> tuple[Ranks, Ranks, int]:
        """Bounds (lo, hi) of rank_le at stored values, and how many row groups were read; errors as above."""

    def scope(self, blocks_read: int) -> dict[str, Any]:
        """The fields of `MeasureScope`, by name."""
        counts = self.counts
        return {
            "n": counts.n,
            "m": counts.m,
            "nans": counts.nans,
            "nulls": counts.nulls,
            "eps": self.eps,
            "mode": self.mode,
            "measure": self.measure.name,
            "window": self.window,
            "widened": self.widened,
            "as_of": dict(self.as_of),
            "blocks_read": self.blocks_read + blocks_read,
            "group": self.group,
            "certain": self.certain,
            "rows_scanned": self.rows_scanned,
            "declare": self.declare,
        }


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class WindowQuestion(Question):
    """A question that certified bounds and blocks of history answer.

    bounds: the window's counts and certified ranks. source: where rows are read from.
    """

    bounds: WindowBounds
    source: Source

    def values_at(self, ranks: Ranks) -> tuple[Candidates, int]:
        """See `Question.values_at`."""
        return values_at_ranks(self.source, self.bounds, ranks, self.mode, self.eps)

    def ranks_at(self, points: NDArray[Any]) -> tuple[Ranks, Ranks, int]:
        """See `Question.ranks_at`."""
        return ranks_at_values(self.source, self.bounds, points, self.mode, self.eps)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SortedQuestion(Question):
    """A question about rows whose numbers are all in memory: exact in every mode, and nothing is read."""

    numbers: NDArray[Any]

    def values_at(self, ranks: Ranks) -> tuple[Candidates, int]:
        """See `Question.values_at`. O(log rows) per rank."""
        values = self.numbers[ranks - 1]
        return Candidates.exact(values, self.numbers.searchsorted(values, "right")), 0

    def ranks_at(self, points: NDArray[Any]) -> tuple[Ranks, Ranks, int]:
        """See `Question.ranks_at`. O(log rows) per point."""
        ranks = self.numbers.searchsorted(points, "right").astype(np.int64)
        return ranks, ranks, 0


def check_mode(mode: Any, modes: Sequence[str]) -> str:
    """The mode. Raises InputError if it is none of `modes`."""
    if not isinstance(mode, str) or mode not in modes:
        raise InputError(f"no mode {mode!r}: mode must be one of {', '.join(modes)}.")
    return str(mode)


def check_phis(phis: Iterable[Any]) -> list[Any]:
    """The quantiles as a list. Raises InputError unless each is a number from 0 to 1, both inclusive."""
    checked = list(phis)
    try:
        for phi in checked:
            target_rank(phi, 1)
    except InvalidInput as error:
        raise InputError(f"not a quantile: {error}.") from None
    return checked


def quantiles(question: Question, phis: Sequence[Any]) -> list[Answer]:
    """One answer per quantile; `check_phis` has checked them."""
    counts = question.counts
    if not counts.rows:
        return [_empty_answer(question, phi) for phi in phis]
    targets = [target_rank(phi, counts.rows) for phi in phis]
    number_ranks = np.array([r for r in targets if r <= counts.stored], dtype=np.int64)
    if not len(number_ranks):
        return [_nan_answer(question, phi) for phi in phis]
    candidates, blocks_read = question.values_at(number_ranks)
    scope, decode = question.scope(blocks_read), question.measure.decode
    columns = (
        candidates.values,
        candidates.low,
        candidates.high,
        candidates.rank_lo,
        candidates.rank_hi,
        candidates.errors,
    )
    rows = zip(*(column.tolist() for column in columns), strict=True)
    answers = []
    for phi, r in zip(phis, targets, strict=True):
        if r > counts.stored:
            answers.append(_nan_answer(question, phi, blocks_read))
            continue
        value, low, high, rank_lo, rank_hi, error = next(rows)
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


def _nan_answer(question: Question, phi: Any, blocks_read: int = 0) -> Answer:
    """The answer to a rank above those of all numbers: NaN, with certainty."""
    rows, scope = question.counts.rows, question.scope(blocks_read)
    return Answer(
        phi=float(phi),
        value=math.nan,
        low=math.nan,
        high=math.nan,
        rank_lo=rows,
        rank_hi=rows,
        error_bound=0,
        **scope,
    )


def _empty_answer(question: Question, phi: Any) -> Answer:
    """The answer for a group without rows: no value."""
    return Answer(
        phi=float(phi),
        value=None,
        low=None,
        high=None,
        rank_lo=0,
        rank_hi=0,
        error_bound=0,
        **question.scope(0),
    )


def ranks_le(
    question: Question, points: Sequence[Any | None]
) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """Bounds (lo, hi) of rank_le at stored values, and the number of blocks read.

    points: stored values; None stands below all of them and has rank 0. A value outside the range of the
        measure's type is reported as the nearest value in the range, and counted as that value.
    """
    if question.measure.bounds is not None:
        points = [_clamp_to_type(point, *question.measure.bounds) for point in points]
    lo, hi = np.zeros((2, len(points)), dtype=np.int64)
    indices = np.array([i for i, point in enumerate(points) if point is not None], dtype=np.intp)
    if not len(indices):
        return lo, hi, 0
    stored = np.array([points[i] for i in indices], dtype=question.measure.dtype)
    lo[indices], hi[indices], blocks_read = question.ranks_at(stored)
    return lo, hi, blocks_read


def _clamp_to_type(point: int | None, least: int, most: int) -> int | None:
    """The point whose rank over stored values is the point's rank over reported values.

    Stored values outside least..most are reported as the nearer of the two. So no reported value is <= a
    point below `least` (None), and all of them are <= a point from `most` on (2**63 - 1).
    """
    if point is None or point < least:
        return None
    return point if point < most else 2**63 - 1


def ranks(question: Question, points: Sequence[Any]) -> list[RankAnswer]:
    """One answer per point: the number of rows <= it. The points are of the measure's type."""
    lo, hi, blocks_read = ranks_le(question, [question.measure.floor(point) for point in points])
    scope = question.scope(blocks_read)
    return [
        RankAnswer(value=point, rank=int(a + b) // 2, rank_lo=int(a), rank_hi=int(b), **scope)
        for point, a, b in zip(points, lo, hi, strict=True)
    ]


def cdf(question: Question, points: Sequence[Any]) -> list[CdfAnswer]:
    """One answer per point: the share of rows <= it. The points are of the measure's type."""
    rows = question.counts.rows or math.nan  # a group without rows has no shares
    answers = ranks(question, points)
    scope = question.scope(answers[0].blocks_read if answers else 0)
    return [
        CdfAnswer(
            value=answer.value,
            cdf=answer.rank / rows,
            cdf_lo=answer.rank_lo / rows,
            cdf_hi=answer.rank_hi / rows,
            **scope,
        )
        for answer in answers
    ]
