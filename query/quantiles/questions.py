"""A question about a measure: the rows of one moment, what is asked about them, and how it is computed.

`Wanted` is what is asked: quantiles, ranks and shares (wanted.py), a histogram, or a summary. It names the
parts that it needs: first the values of some ranks, then the ranks of some points, and exact sums. From these
it makes the answers. It reads nothing itself, so one scan can compute the parts for many questions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from tidemark.query.answers.all_answers import SharedFields
from tidemark.query.answers.measure_answers import MeasureFields
from tidemark.query.quantiles.cells import Cells
from tidemark.query.quantiles.choose_candidate import Candidates
from tidemark.query.quantiles.combined_bounds import Ranks, Values
from tidemark.query.quantiles.rank_search import Source, ranks_at_values, values_at_ranks
from tidemark.query.quantiles.window_bounds import MOST_READ_RANKS, WindowBounds
from tidemark.query.reading.row_counts import RowCounts
from tidemark.warehouse.columns.exact_sums import Sums
from tidemark.warehouse.columns.value_encoding import Measure

A = TypeVar("A")
_NOTHING = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Question:
    """The rows of a measure that a question is about.

    counts: how many rows there are.
    shared: the fields that all answers share.
    mode: the mode of the answers. eps: the promise of the warehouse.
    blocks_read: how many row groups were read before, to find the rows.

    The other fields are those of `MeasureScope`.
    """

    counts: RowCounts
    measure: Measure
    shared: SharedFields
    mode: str
    eps: float
    window: tuple[Any, Any] | None
    group: Mapping[str, Any] | None = None
    certain: bool | None = None
    blocks_read: int = 0
    rows_scanned: int | None = None
    declare: tuple[str, ...] | None = None

    def scope(self, blocks_read: int) -> MeasureFields:
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
            "blocks_read": self.blocks_read + blocks_read,
            "group": self.group,
            "certain": self.certain,
            "rows_scanned": self.rows_scanned,
            "declare": self.declare,
            **self.shared,
        }


class Points(NamedTuple):
    """Values whose ranks are wanted.

    given: the points as the caller has them, or as the answers show them.
    stored: for each point the greatest stored value that counts; None stands below all and has rank 0.
    """

    given: Sequence[Any] = ()
    stored: Sequence[Any | None] = ()

    def places(self, measure: Measure) -> tuple[NDArray[np.intp], NDArray[Any]]:
        """The stored values that have a rank to find, each with its index.

        A value outside the range of the measure's type is reported as the nearest value in the range, and
        counted as that value.
        """
        points = self.stored
        if measure.bounds is not None:
            points = [_clamp_to_type(point, *measure.bounds) for point in points]
        places = [i for i, point in enumerate(points) if point is not None]
        return np.array(places, np.intp), np.array([points[i] for i in places], measure.dtype)


NO_POINTS = Points()


class Found(NamedTuple):
    """The results for a question.

    counts, measure: those of the question. scope: the fields of `MeasureScope`, by name.
    ranks: the wanted ranks. values: the values at the ranks of numbers; None if there are none.
    lo, hi: bounds of the rank of each point. sums: the sums of the rows, if they were wanted.
    """

    counts: RowCounts
    measure: Measure
    scope: MeasureFields
    ranks: Ranks
    values: Candidates | None
    points: Points
    lo: Ranks
    hi: Ranks
    sums: Sums | None = None


class Columns(NamedTuple, Generic[A]):
    """Answers about cells: their class, and by name the fields that each answer has for itself.

    A column has `targets` items for each cell, one cell after the other. constant: the values of fields and
    properties that are the same for all.
    """

    kind: type[A]
    own: Mapping[str, Sequence[Any]]
    constant: Mapping[str, Any]


class Wanted(ABC, Generic[A]):
    """The kind of a question about rows. Its methods are pure.

    needs_sums: whether the exact sums of the rows are wanted.
    is_exact: whether the answers have no error, whatever mode is asked for.
    """

    needs_sums: ClassVar = False
    is_exact: ClassVar = False

    @property
    def targets(self) -> int:
        """How many ranks or points are looked for."""
        return 1

    def ranks(self, counts: RowCounts) -> Ranks:  # noqa: ARG002
        """The ranks whose values are wanted, from 1 to `counts.rows`; above `counts.stored` all are NaN."""
        return _NOTHING

    def points(self, measure: Measure, low: Values, high: Values) -> Points:  # noqa: ARG002
        """The points whose ranks are wanted.

        low, high: the certified ends of the values of `ranks`, as far as these are numbers.
        """
        return NO_POINTS

    @abstractmethod
    def answers(self, found: Found) -> list[A]:
        """The answers."""

    def columns(self, cells: Cells, measure: Measure) -> Columns[A] | None:  # noqa: ARG002
        """The answers about many cells as columns; None if there are objects alone, see `answers`."""
        return None


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ReadQuestion(Question, ABC):
    """A question that is answered alone, from memory and blocks.

    sums: the sums of the rows, if they are wanted.
    """

    sums: Sums | None = None

    @abstractmethod
    def values_at(self, ranks: Ranks) -> tuple[Candidates, int]:
        """The answers to ranks from 1 to `counts.stored`, and how many row groups were read.

        Raises DamagedWarehouse if a file cannot be read, or if the live rows do not match the ledger.
        """

    @abstractmethod
    def ranks_at(self, points: NDArray[Any]) -> tuple[Ranks, Ranks, int]:
        """Bounds (lo, hi) of rank_le at stored values, and how many row groups were read; errors as above."""

    def answers(self, wanted: Wanted[A]) -> list[A]:
        """The answers, after at most two rounds of reads; errors as above."""
        counts, measure = self.counts, self.measure
        ranks = wanted.ranks(counts)
        values, blocks_read, low, high = None, 0, _NOTHING, _NOTHING
        of_numbers = ranks[ranks <= counts.stored] if counts.nans else ranks
        if len(of_numbers):
            values, blocks_read = self.values_at(of_numbers)
            low, high = values.low, values.high
        points = wanted.points(measure, low, high)
        lo, hi = _NOTHING, _NOTHING
        if points.stored:
            lo, hi = np.zeros((2, len(points.stored)), np.int64)
            places, stored = points.places(measure)
            if len(places):
                lo[places], hi[places], more = self.ranks_at(stored)
                blocks_read += more
        scope = self.scope(blocks_read)
        return wanted.answers(Found(counts, measure, scope, ranks, values, points, lo, hi, self.sums))


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class WindowQuestion(ReadQuestion):
    """A question that certified bounds and blocks of history answer.

    bounds: the window's counts and certified ranks. source: where rows are read from.
    has_ways: True if there are other ways to the accurate answer, which is the same in each. The other ways
        know the rank of the value. So the rank is read if the reads for the value did not give it.
    """

    bounds: WindowBounds
    source: Source
    has_ways: bool = False

    def values_at(self, ranks: Ranks) -> tuple[Candidates, int]:
        """See `ReadQuestion.values_at`."""
        found, blocks_read = values_at_ranks(self.source, self.bounds, ranks, self.mode, self.eps)
        if self.has_ways and self.mode != "quick" and np.any(found.rank_lo < found.rank_hi):
            lo, hi, more = self._ranks_of(found)
            return replace(found, rank_lo=lo, rank_hi=hi), blocks_read + more
        return found, blocks_read

    def _ranks_of(self, found: Candidates) -> tuple[Ranks, Ranks, int]:
        """Bounds of the ranks of the values, and how many row groups were read: each rank is read once."""
        known, values = self.bounds.read_ranks, found.values.tolist()
        read = [known.get(value) for value in values]
        lo, hi = (
            np.array([end if rank is None else rank for rank, end in zip(read, ends.tolist(), strict=True)])
            for ends in (found.rank_lo, found.rank_hi)
        )
        unread, blocks_read = np.flatnonzero(lo < hi), 0
        if len(unread):
            lo[unread], hi[unread], blocks_read = self.ranks_at(found.values[unread])
            if len(known) > MOST_READ_RANKS:
                known.clear()
            known.update({values[i]: int(lo[i]) for i in unread.tolist() if lo[i] == hi[i]})
        return lo, hi, blocks_read

    def ranks_at(self, points: NDArray[Any]) -> tuple[Ranks, Ranks, int]:
        """See `ReadQuestion.ranks_at`."""
        return ranks_at_values(self.source, self.bounds, points, self.mode, self.eps)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SortedQuestion(ReadQuestion):
    """A question about rows whose numbers are all in memory: exact in every mode, and nothing is read."""

    numbers: NDArray[Any]

    def values_at(self, ranks: Ranks) -> tuple[Candidates, int]:
        """See `ReadQuestion.values_at`. O(log rows) per rank."""
        values = self.numbers[ranks - 1]
        return Candidates.exact(values, self.numbers.searchsorted(values, "right")), 0

    def ranks_at(self, points: NDArray[Any]) -> tuple[Ranks, Ranks, int]:
        """See `ReadQuestion.ranks_at`. O(log rows) per point."""
        ranks = self.numbers.searchsorted(points, "right").astype(np.int64)
        return ranks, ranks, 0


def _clamp_to_type(point: int | None, least: int, most: int) -> int | None:
    """The point whose rank over stored values is the point's rank over reported values.

    Stored values outside least..most are reported as the nearer of the two. So no reported value is <= a
    point below `least` (None), and all of them are <= a point from `most` on (2**63 - 1).
    """
    if point is None or point < least:
        return None
    return point if point < most else 2**63 - 1
