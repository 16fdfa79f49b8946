"""Questions: what a caller may ask, checked once, and the pure steps from staircases to answers.

`Question` is a measure's window at one moment with all that is needed to answer from it. Stored values
become the measure's own type here, and only here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidemark.query.answers.answer import Answer, CdfAnswer, RankAnswer
from tidemark.query.quantiles.rank_search import Source, find_ranks, find_ranks_of
from tidemark.query.quantiles.window_bounds import Known
from tidemark.sketches import InvalidInput, target_rank
from tidemark.warehouse.columns.measures import Measure
from tidemark.warehouse.errors import InputError


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """A window of a measure, how it is to be answered, and where rows are read from.

    `window` is the window as the caller reads it, see `MeasureScope`.
    """

    known: Known
    source: Source
    mode: str
    eps: float
    window: tuple[Any, Any] | None

    @property
    def measure(self) -> Measure:
        """The measure that is asked for."""
        return self.known.view.measure

    def scope(self, blocks_read: int) -> dict[str, Any]:
        """The fields of `MeasureScope`."""
        known = self.known
        return {
            "n": known.n,
            "m": known.m,
            "nans": known.nans,
            "nulls": known.nulls,
            "eps": self.eps,
            "mode": self.mode,
            "measure": self.measure.name,
            "window": self.window,
            "as_of": dict(known.view.versions),
            "blocks_read": blocks_read,
        }


def check_mode(mode: Any, modes: Sequence[str]) -> str:
    """The mode, if there is such a one."""
    if mode not in modes:
        raise InputError(f"no mode {mode!r}: mode must be one of {', '.join(modes)}.")
    return str(mode)


def check_phis(phis: Iterable[Any]) -> list[Any]:
    """The quantiles asked for, if each is a number in [0, 1]."""
    checked = list(phis)
    try:
        for phi in checked:
            target_rank(phi, 1)
    except InvalidInput as error:
        raise InputError(f"not a quantile: {error}.") from None
    return checked


def several(given: Any) -> bool:
    """Whether the caller asks for several things: anything to iterate over, but not a text."""
    return (
        isinstance(given, Iterable) and not isinstance(given, (str, bytes)) and getattr(given, "ndim", 1) > 0
    )


def quantiles(question: Question, phis: Sequence[Any]) -> list[Answer]:
    """The answers to quantiles that `check_phis` has passed."""
    known = question.known
    wanted = [target_rank(phi, known.rows) for phi in phis]
    numbers = np.array([r for r in wanted if r <= known.stored], dtype=np.int64)
    if not len(numbers):
        return [_nan_answer(question, phi) for phi in phis]
    found, blocks_read = find_ranks(question.source, known, numbers, question.mode, question.eps)
    scope, decode = question.scope(blocks_read), question.measure.decode
    columns = (found.values, found.low, found.high, found.rank_lo, found.rank_hi, found.errors)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    answers = []
    for phi, r in zip(phis, wanted, strict=True):
        if r > known.stored:
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
    """NaN ranks after every number: a rank above all numbers is NaN, and that is certain."""
    rows, scope = question.known.rows, question.scope(blocks_read)
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


def ranks_le(
    question: Question, points: Sequence[Any | None]
) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """Bounds (lo, hi) of rank_le at stored values, None being below all of them; and the blocks read.

    Values that are not taken count as the nearest one that is, which is what they are told as.
    """
    if question.measure.bounds is not None:
        points = [_told(point, *question.measure.bounds) for point in points]
    lo, hi = np.zeros((2, len(points)), dtype=np.int64)
    at = np.array([i for i, point in enumerate(points) if point is not None], dtype=np.intp)
    if not len(at):
        return lo, hi, 0
    stored = np.array([points[i] for i in at], dtype=question.measure.dtype)
    lo[at], hi[at], blocks_read = find_ranks_of(
        question.source, question.known, stored, question.mode, question.eps
    )
    return lo, hi, blocks_read


def _told(point: int | None, least: int, most: int) -> int | None:
    """The point with the same rank among all stored values as it has among those that are told."""
    if point is None or point < least:
        return None
    return point if point < most else 2**63 - 1


def ranks(question: Question, points: Sequence[Any]) -> list[RankAnswer]:
    """How many rows are <= each point."""
    lo, hi, blocks_read = ranks_le(question, [question.measure.floor(point) for point in points])
    scope = question.scope(blocks_read)
    return [
        RankAnswer(value=point, rank=int(a + b) // 2, rank_lo=int(a), rank_hi=int(b), **scope)
        for point, a, b in zip(points, lo, hi, strict=True)
    ]


def cdf(question: Question, points: Sequence[Any]) -> list[CdfAnswer]:
    """The share of rows that are <= each point."""
    rows = question.known.rows
    found = ranks(question, points)
    scope = question.scope(found[0].blocks_read if found else 0)
    return [
        CdfAnswer(
            value=one.value,
            cdf=one.rank / rows,
            cdf_lo=one.rank_lo / rows,
            cdf_hi=one.rank_hi / rows,
            **scope,
        )
        for one in found
    ]
