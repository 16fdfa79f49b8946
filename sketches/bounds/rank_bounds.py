"""A staircase: certified lower and upper bounds of rank over a multiset.

Model. A multiset of n elements is known through k of them, `values`, in order. Between two neighbouring
values each rank is known to an interval, and the intervals form two step functions, `lo` and `hi`, with k + 1
steps each: the staircase.

Let rank_le(x) = #elements <= x and rank_lt(x) = #elements < x. For every x, one of the values or not:

    j = #values <= x  implies  lo[j] <= rank_le(x) <= hi[j]
    j = #values <  x  implies  lo[j] <= rank_lt(x) <= hi[j]

One pair of step functions serves both ranks, because moving from rank_lt(x) to rank_le(x) moves j past the
values equal to x. A sketch, the marks of a run and an exact array are all converted to this form, and
disjoint multisets are combined by adding their bounds.

The error of an answer x to rank r is max(0, r - rank_le(x), rank_lt(x) + 1 - r): ties with x add no error. If
values[j] is unique, its rank_le >= lo[j + 1] and its rank_lt <= hi[j], so its certified error is

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
    ValueArray,
    as_column,
    checked_sorted,
    column_dtype,
    positive_zeros,
)

Ranks = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class RankBounds:
    """A staircase: certified bounds of rank over a multiset.

    values: shape (k,), float64 or int64, non-decreasing, each an element of the multiset; infinities are
        allowed, NaN is not.
    lo, hi: shape (k + 1,), int64, non-decreasing, lo <= hi; lo[j] and hi[j] bound rank_le(x) of every x with
        j values <= x, and rank_lt(x) of every x with j values < x.
    unique: True if the values are known to be strictly ascending; if False, methods that need it check it.

    The number of elements is hi[k]; lo[k] equals it if the maximum is among the values.

    Example: of the elements 1, 3, 3, 7, 9 the values 1, 3 and 9 are kept, and the kept 3 is known to have
    position 2 or 3. Then no element is <= 0, one or two are <= 2, two to four are <= 5, all five are <= 9.

    >>> bounds = RankBounds(np.array([1, 3, 9]), np.array([0, 1, 2, 5]), np.array([0, 2, 4, 5]))
    >>> [side.tolist() for side in bounds.rank_le([0, 2, 5, 9])]
    [[0, 1, 2, 5], [0, 2, 4, 5]]
    """

    values: ValueArray
    lo: Ranks
    hi: Ranks
    unique: bool = False

    @classmethod
    def empty(cls, dtype: DTypeLike) -> "RankBounds":
        """The staircase of an empty multiset: no values, and rank 0 everywhere."""
        zero = np.zeros(1, INT64)
        return cls(np.empty(0, column_dtype(dtype)), zero, zero)

    @classmethod
    def from_sorted(
        cls, values: ArrayLike, dtype: DTypeLike | None = None, *, grain: int = 1
    ) -> "RankBounds":
        """The exact staircase (lo == hi) of a sorted array, at its unique values. O(len(values)).

        dtype: float64 or int64; None means int64 for integers and float64 for everything else.
        grain: with a grain above 1, only the values at the positions 0, grain, 2 * grain ... and the last are
            kept, and lo and hi are up to grain - 1 apart.

        Raises InvalidInput if the array is not sorted.
        """
        elements = checked_sorted(values, dtype)
        ends = _last_of_equals(elements)
        upto = ends + 1  # rank_le of each unique value
        below = np.concatenate([np.zeros(1, INT64), upto])  # rank_lt of each, and the number of all elements
        kept = np.arange(len(ends))
        if grain > 1 and len(elements):
            kept = np.unique(np.append(ends.searchsorted(np.arange(0, len(elements), grain)), kept[-1]))
        lo = np.concatenate([np.zeros(1, INT64), upto[kept]])
        return cls(positive_zeros(elements[ends[kept]]), lo, below[np.append(kept, len(ends))], unique=True)

    def rank_le(self, xs: ArrayLike) -> tuple[Ranks, Ranks]:
        """Bounds (lo, hi) of the number of elements <= x, for each x; both have the shape of `xs`.

        NaN ranks after every number. O(log k) for each x.
        """
        steps = np.searchsorted(self.values, as_column(xs, self.values.dtype), side="right")
        return self.lo[steps], self.hi[steps]

    def rank_lt(self, xs: ArrayLike) -> tuple[Ranks, Ranks]:
        """Bounds (lo, hi) of the number of elements < x, for each x; both have the shape of `xs`.

        NaN ranks after every number. O(log k) for each x.
        """
        steps = np.searchsorted(self.values, as_column(xs, self.values.dtype), side="left")
        return self.lo[steps], self.hi[steps]

    def best_candidate(self, r: ArrayLike) -> tuple[NDArray[np.intp], Ranks]:
        """For each rank r the index of the value with the least certified error, and that error in ranks.

        Of equally good values the first is returned. Raises InvalidInput if the values are not unique
        (`combine` makes them unique), EmptySketch if there are no values. O(log k) for each r, plus O(k) if
        `unique` is False.
        """
        self._require_unique()
        k = len(self.values)
        if k == 0:
            raise EmptySketch("got a staircase without values; expected at least one; check n >= 1 first")
        ranks = np.asarray(r, INT64)
        # r - lo[j+1] falls with j and hi[j] + 1 - r rises. Let P(j) be: hi[j] + 1 - r > r - lo[j+1]. P is
        # false for j below the bracket of r and true above it. The best j is the first with P(j), or the one
        # before it.
        crossing, last = self.bracket(ranks)
        end = np.minimum(last + 1, k)
        while (crossing < end).any():  # binary search: hi + lo of all steps would cost more
            middle = np.minimum((crossing + end) // 2, k - 1)
            # Two ranks are never added: with 2**62 elements the sum would overflow int64.
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

        The exact answer is the smallest element x with rank_le(x) >= r. a is the number of indices j with
        hi[j + 1] < r: these values[j] are certainly too small. b is the first j with lo[j + 1] >= r: that
        value is certainly large enough. a == 0 means no lower end, b == k no upper end. Raises InvalidInput
        if the values are not unique (`combine` makes them unique). O(log k) for each r, plus O(k) if `unique`
        is False.
        """
        self._require_unique()
        ranks = np.asarray(r, INT64)
        return np.searchsorted(self.hi[1:], ranks), np.searchsorted(self.lo[1:], ranks)

    def check_invariants(self) -> None:
        """Raises BrokenInvariant if the arrays break the rules that the class docstring states. O(k)."""
        values, lo, hi = self.values, self.lo, self.hi
        # The second group of rules can be evaluated only if the shapes of the first are right.
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

    def _require_unique(self) -> None:
        if not self.unique and not np.all(self.values[:-1] < self.values[1:]):
            raise InvalidInput(
                "got a staircase that repeats a value; expected unique values; call combine([it]) first"
            )


def combine(bounds: Sequence[RankBounds]) -> RankBounds:
    """The staircase of the union of disjoint multisets, at the unique values of all inputs.

    bounds: at least one, all of one dtype; an input may repeat values.

    Ranks add over disjoint multisets: rank(x) = sum of rank_i(x). For a unique value u and any x from u up to
    the next one, #values_i <= x is #values_i <= u in every input i, so its step j_i is the same for all such
    x, and

        sum of lo_i[j_i] <= rank(x) <= sum of hi_i[j_i].

    The same holds for rank_lt with #values_i < x. So the bounds of the union are exactly the sums of the
    inputs' bounds, and the widths hi - lo add.

    Example: a is exact over 1, 3, 7. b has four elements and knows that from one to three of them are <= 3,
    and that its maximum is 9. At 3, a has 2 elements and b has 1 to 3, so the union has 3 to 5. At 7, a has
    3, and b still has 1 to 3, so the union has 4 to 6.

    >>> a = RankBounds.from_sorted([1, 3, 7])
    >>> b = RankBounds(np.array([3, 9]), np.array([0, 1, 4]), np.array([0, 3, 4]))
    >>> union = combine([a, b])
    >>> [array.tolist() for array in (union.values, union.lo, union.hi)]
    [[1, 3, 7, 9], [0, 1, 3, 4, 7], [0, 1, 5, 6, 7]]

    Cost: O(K log K) time and O(K) memory for K values together. lo_i[j_i] is lo_i[0] plus the increments of
    lo_i at the values <= u. So all values are sorted once, with their increments, and the increments are
    summed up. The sum at the last of equal values is the step of the union there.

    Raises InvalidInput for no inputs, for mixed dtypes, or for 2**63 elements or more in total.
    """
    if not bounds:
        raise InvalidInput("got no staircase to combine; expected at least one; pass RankBounds.empty(dtype)")
    dtypes = {str(b.values.dtype) for b in bounds}
    if len(dtypes) > 1:
        raise InvalidInput(
            f"got staircases of dtypes {sorted(dtypes)}; expected one dtype; cast before sketching"
        )
    if sum(int(b.hi[-1]) for b in bounds) >= 2**63:
        raise InvalidInput("got staircases of 2**63 elements or more in total; expected fewer; combine fewer")
    values = np.concatenate([b.values for b in bounds])
    # A stable sort is faster here, because it makes use of runs that are already sorted.
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
    """The sum of several step functions, before the first value and at each unique value."""
    increments = np.concatenate([np.diff(steps) for steps in staircases])
    total = np.cumsum(increments[order])[ends]
    base = sum(int(steps[0]) for steps in staircases)
    return np.concatenate([np.zeros(1, INT64), total]) + base


def _last_of_equals(values: ValueArray) -> NDArray[np.intp]:
    """The index of the last element of each group of equal values in a sorted array."""
    if not values.size:
        return np.empty(0, np.intp)
    return np.append(np.flatnonzero(values[:-1] != values[1:]), values.size - 1)


def _raise_broken(rules: dict[str, Any]) -> None:
    for rule, holds in rules.items():
        if not holds:
            raise BrokenInvariant(f"a staircase breaks this invariant: {rule}")
