"""A staircase: certified bounds of rank over a multiset, the form in which tidemark combines everything.

Model. A multiset of n elements is known through k of them, `values`, in order. Between two neighbouring
values the ranks are known to an interval, and the intervals make two staircases, `lo` and `hi`, with k + 1
steps each.

For every x, values or not, with rank_le(x) = #elements <= x and rank_lt(x) = #elements < x:

    j = #values <= x  implies  lo[j] <= rank_le(x) <= hi[j]
    j = #values <  x  implies  lo[j] <= rank_lt(x) <= hi[j]

One pair of staircases serves both ranks, because moving from rank_lt(x) to rank_le(x) moves j past the values
equal to x. A sketch, the marks of a run and an exact array all take this form; disjoint multisets are then
combined by adding.

The error of an answer x to rank r is max(0, r - rank_le(x), rank_lt(x) + 1 - r): equal elements cost nothing.
At unique values[j] the ranks are bounded by lo[j + 1] and hi[j], so its certified error is

    max(0, r - lo[j + 1], hi[j] + 1 - r).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from tidemark.sketches.errors import BrokenInvariant, EmptySketch, InvalidInput
from tidemark.sketches.inputs import (
    FLOAT64,
    INT64,
    Column,
    as_column,
    checked_sorted,
    column_dtype,
    positive_zeros,
)

Ranks = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class RankBounds:
    """A staircase: certified bounds of rank over a multiset.

    values: shape (k,), float64 or int64, non-decreasing, each an element of the multiset; inf yes, NaN no.
    lo, hi: shape (k + 1,), int64, non-decreasing, lo <= hi; lo[0] and hi[0] hold where no value qualifies.
    The number of elements is hi[k], and lo[k] too where the maximum is among the values.
    unique: whether the values are known to be strictly ascending; where False they are looked through when
    that is needed.
    """

    values: Column
    lo: Ranks
    hi: Ranks
    unique: bool = False

    @classmethod
    def empty(cls, dtype: DTypeLike) -> "RankBounds":
        """The staircase of no elements: no values, ranks 0."""
        zero = np.zeros(1, INT64)
        return cls(np.empty(0, column_dtype(dtype)), zero, zero)

    @classmethod
    def from_sorted(cls, values: ArrayLike, dtype: DTypeLike | None = None) -> "RankBounds":
        """The exact staircase (lo == hi) of a sorted array, at its unique values.

        Without a dtype, integers become int64 and all else float64. InvalidInput if it is not sorted.
        """
        given = checked_sorted(values, dtype)
        ends = _last_of_equals(given)
        ranks = np.concatenate([np.zeros(1, INT64), ends + 1])
        return cls(positive_zeros(given[ends]), ranks, ranks, unique=True)

    def rank_le(self, xs: ArrayLike) -> tuple[Ranks, Ranks]:
        """Bounds of the number of elements <= x, for each x; shapes as `xs`. NaN ranks after every number."""
        return self._at(np.searchsorted(self.values, as_column(xs, self.values.dtype), side="right"))

    def rank_lt(self, xs: ArrayLike) -> tuple[Ranks, Ranks]:
        """Bounds of the number of elements < x, for each x; shapes as `xs`. NaN ranks after every number."""
        return self._at(np.searchsorted(self.values, as_column(xs, self.values.dtype), side="left"))

    def best_candidate(self, r: ArrayLike) -> tuple[NDArray[np.intp], Ranks]:
        """For each rank r the index of the value with the least certified error, and that error in ranks.

        The values must be unique (`combine` makes them so). Of equally good values the first is taken. Raises
        EmptySketch if there are no values.
        """
        self._require_unique()
        k = len(self.values)
        if k == 0:
            raise EmptySketch("got a staircase without values; expected at least one; ask where n >= 1")
        ranks = np.asarray(r, INT64)
        # r - lo[j+1] falls with j, hi[j] + 1 - r rises, and the second is the larger one exactly where
        # hi[j] + 1 - r > r - lo[j+1]. So the best j is next to that crossing, on one side or the other.
        crossing, end = np.zeros(ranks.shape, np.intp), np.full(ranks.shape, k, np.intp)
        while np.any(crossing < end):  # by halves: a sum of whole arrays would cost more than the search
            middle = np.minimum((crossing + end) // 2, k - 1)
            # No sum of two ranks: those of 2**62 elements would pass int64.
            beyond = self.hi[middle] + 1 - ranks > ranks - self.lo[middle + 1]
            done = crossing >= end
            crossing = np.where(beyond | done, crossing, middle + 1)
            end = np.where(beyond & ~done, middle, end)
        left, right = np.maximum(crossing - 1, 0), np.minimum(crossing, k - 1)
        left_error = np.maximum(0, np.maximum(ranks - self.lo[left + 1], self.hi[left] + 1 - ranks))
        right_error = np.maximum(0, np.maximum(ranks - self.lo[right + 1], self.hi[right] + 1 - ranks))
        return np.where(right_error < left_error, right, left), np.minimum(left_error, right_error)

    def bracket(self, r: ArrayLike) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """For each rank r the (a, b) such that the exact answer lies in (values[a - 1], values[b]].

        The exact answer is the smallest element x with rank_le(x) >= r. a counts the values j with
        hi[j + 1] < r: they are certainly too small. b is the first j with lo[j + 1] >= r: it is large enough.
        a == 0 means no lower end, b == k no upper end. The values must be unique (`combine` makes them so).
        """
        self._require_unique()
        ranks = np.asarray(r, INT64)
        return np.searchsorted(self.hi[1:], ranks), np.searchsorted(self.lo[1:], ranks)

    def check_invariants(self) -> None:
        """Raises BrokenInvariant if the arrays are no staircase; see the class for what they must be."""
        values, lo, hi = self.values, self.lo, self.hi
        # The order of values can be asked only once the shapes agree, hence two rounds.
        _raise_broken(
            {
                "values are one-dimensional": values.ndim == 1,
                "lo and hi are one longer than values": lo.shape == hi.shape == (values.size + 1,),
                "values are float64 or int64": values.dtype in (FLOAT64, INT64),
                "lo and hi are int64": lo.dtype == INT64 and hi.dtype == INT64,
            }
        )
        _raise_broken(
            {
                "values are not NaN": not np.isnan(values).any(),
                "values are non-decreasing": bool(np.all(values[:-1] <= values[1:])),
                "lo starts at 0 or above": lo[0] >= 0,
                "lo is non-decreasing": bool(np.all(lo[:-1] <= lo[1:])),
                "hi is non-decreasing": bool(np.all(hi[:-1] <= hi[1:])),
                "lo <= hi": bool(np.all(lo <= hi)),
            }
        )

    def _at(self, steps: NDArray[np.intp]) -> tuple[Ranks, Ranks]:
        return self.lo[steps], self.hi[steps]

    def _require_unique(self) -> None:
        if not self.unique and not np.all(self.values[:-1] < self.values[1:]):
            raise InvalidInput(
                "got a staircase that repeats a value; expected unique values; combine([it]) first"
            )


def combine(bounds: Sequence[RankBounds]) -> RankBounds:
    """The staircase of the union of disjoint multisets, at the unique values of all of them.

    Ranks add over disjoint multisets: rank(x) = sum of rank_i(x). For a unique value u and any x from u up to
    the next one, #values_i <= x is #values_i <= u in every input i, so its step j_i is the same for all such
    x, and

        sum of lo_i[j_i] <= rank(x) <= sum of hi_i[j_i].

    The same holds for rank_lt with #values_i < x. So nothing is lost and nothing is guessed: hi - lo adds.

    Cost: O(K log K) for K values in all. lo_i[j_i] is lo_i[0] plus the rises of lo_i at the values <= u.
    Hence one sort of all values together, one running sum of their rises, read at the last of equal values,
    gives every sum at once.

    Raises InvalidInput for no inputs, for mixed dtypes, or for 2**63 elements or more in all.
    """
    if not bounds:
        raise InvalidInput("got no staircase to combine; expected at least one; use RankBounds.empty(dtype)")
    dtypes = {str(b.values.dtype) for b in bounds}
    if len(dtypes) > 1:
        raise InvalidInput(f"got staircases of dtypes {sorted(dtypes)}; expected one; cast before sketching")
    if sum(int(b.hi[-1]) for b in bounds) >= 2**63:
        raise InvalidInput("got staircases of 2**63 elements or more in all; expected fewer; combine fewer")
    values = np.concatenate([b.values for b in bounds])
    # Stable, because that lets the sort run along inputs that are each in order.
    order = np.argsort(values, kind="stable")
    values = values[order]
    ends = _last_of_equals(values)
    return RankBounds(
        values[ends],
        _sum_of_steps([b.lo for b in bounds], order, ends),
        _sum_of_steps([b.hi for b in bounds], order, ends),
        unique=True,
    )


def _sum_of_steps(staircases: list[Ranks], order: NDArray[np.intp], ends: NDArray[np.intp]) -> Ranks:
    """The sum of several staircases, before the first value and at each unique value."""
    rises = np.concatenate([np.diff(steps) for steps in staircases])
    total = np.cumsum(rises[order])[ends]
    base = sum(int(steps[0]) for steps in staircases)
    return np.concatenate([np.zeros(1, INT64), total]) + base


def _last_of_equals(values: Column) -> NDArray[np.intp]:
    """The index of the last of each stretch of equal values in a sorted array."""
    if not values.size:
        return np.empty(0, np.intp)
    return np.append(np.flatnonzero(values[:-1] != values[1:]), values.size - 1)


def _raise_broken(rules: dict[str, Any]) -> None:
    for rule, holds in rules.items():
        if not holds:
            raise BrokenInvariant(f"a staircase must keep this rule and does not: {rule}")
