"""GK: a mergeable quantile sketch of a few times 1 / eps tuples, with a certified rank error.

The class holds one `GKSummary`; gk_summary.py has the model, the invariants, the proofs and the sizes.

    error of quantile(phi)  <=  eps * n        for every phi, always: the sketch is deterministic
    hi - lo of any rank     <=  2 * eps * n

An update sorts the batch, summarises it with the error eps / LEAF_EPS_DIVISOR, merges that summary into the
sketch, and prunes the result to eps. The proof of `merge_summaries` shows that the merged summary has an
error of at most eps already. So the prune may drop any tuple as long as the invariants hold.

Cost: an update of m values takes O(m log m) for the sort plus O(k log k), with k tuples in the sketch and in
the summary of the batch; k is of the order of 1 / eps. Memory is 24 bytes a tuple.
"""

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from tidemark.sketches.bounds.rank_bounds import RankBounds, Ranks, combine
from tidemark.sketches.bounds.target_rank import Phi, target_rank
from tidemark.sketches.disjoint import require_disjoint
from tidemark.sketches.errors import EmptySketch, InvalidInput
from tidemark.sketches.gk.gk_bytes import decode, encode
from tidemark.sketches.gk.gk_summary import (
    GKSummary,
    check_summary,
    empty_summary,
    leaf_summary,
    merge_summaries,
    merged_eps,
    prune,
)
from tidemark.sketches.inputs import ValueArray, checked_sorted, column_dtype, sorted_column

# The eps of the sketch divided by the eps of a batch's summary. The rank uncertainty of the batch's summary
# stays in the sketch. Measured at eps = 0.001 with batches of a million values, compared with keeping every
# value of the batch: at 64 the sketch has 10 % more tuples and takes a third of the time; at 8 it has 40 %
# more tuples and is no faster than at 64.
LEAF_EPS_DIVISOR = 64


class GK:
    """A mergeable summary of float64 or int64 values that answers ranks and quantiles within eps * n.

    >>> import numpy as np
    >>> sketch = GK(eps=0.01)
    >>> sketch.update(np.arange(100_000.0))
    >>> abs(sketch.quantile(0.99) - 99_000) <= 0.01 * sketch.n
    True

    len() is the number of tuples kept; gk_summary.py states how many to expect. Infinities are values. NaN
    raises InvalidInput: the caller counts NaN separately. An update that raises changes nothing.
    """

    __slots__ = ("_eps", "_summary")

    def __init__(self, eps: float, dtype: DTypeLike = np.float64) -> None:
        """An empty sketch.

        eps: the rank error as a share of n, 0 < eps < 0.5.
        dtype: float64 or int64, the type of the values.

        Raises InvalidInput for another eps or dtype.
        """
        self._eps = _checked_eps(eps)
        self._summary = empty_summary(column_dtype(dtype))

    @classmethod
    def from_sorted(cls, array: ArrayLike, eps: float, dtype: DTypeLike | None = None) -> "GK":
        """The sketch of one array that is already sorted in ascending order.

        dtype: as for GK(); None means int64 for integers and float64 for everything else.

        Raises InvalidInput if the array is not sorted. O(len(array)) time; at most 1 / (2 eps) + 2 tuples
        plus rounding.
        """
        return _with_summary(leaf_summary(checked_sorted(array, dtype), _checked_eps(eps)), eps, cls)

    @classmethod
    def from_bytes(cls, data: bytes) -> "GK":
        """The sketch that `to_bytes` stored. O(len(data)).

        Raises CorruptSketch, WrongKind or NewerVersion if `data` is not such a sketch.
        """
        summary, eps = decode(data)
        return _with_summary(summary, eps, cls)

    def to_bytes(self) -> bytes:
        """The stored form, see gk_bytes.py. Equal batches in equal order give equal bytes. O(len(self))."""
        return encode(self._summary, self._eps)

    @property
    def eps(self) -> float:
        """The error bound: the rank error of a quantile is at most eps * n."""
        return self._eps

    @property
    def n(self) -> int:
        """The number of elements added so far."""
        return self._summary.n

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the values, float64 or int64."""
        return self._summary.values.dtype

    @property
    def min(self) -> float | int:
        """The smallest element, exactly: it is always the first tuple. Raises EmptySketch if n is 0. O(1)."""
        return self._value_at(0)

    @property
    def max(self) -> float | int:
        """The largest element, exactly: it is always the last tuple. Raises EmptySketch if n is 0. O(1)."""
        return self._value_at(-1)

    def _value_at(self, index: int) -> float | int:
        if not self.n:
            raise EmptySketch("got n = 0; min and max need at least one element; add values first")
        value: float | int = self._summary.values[index].item()
        return value

    @property
    def summary(self) -> GKSummary:
        """The tuples kept: values, rmin, rmax. Treat the arrays as read-only."""
        return self._summary

    def __len__(self) -> int:
        return len(self._summary.values)

    def __repr__(self) -> str:
        return f"GK(eps={self.eps}, dtype={self.dtype}, n={self.n}, tuples={len(self)})"

    def update(self, array: ArrayLike) -> None:
        """Adds the values of a one-dimensional array, in any order; an empty array changes nothing.

        array: values that the sketch's dtype represents exactly.

        Raises InvalidInput for NaN, for another shape or type, and if n would reach 2**63. O(m log m + k log
        k) time for m values and k tuples; O(m + k) memory while it runs. Batches of 100 values or more are
        faster and keep fewer tuples than single values.
        """
        batch: ValueArray = sorted_column(array, self.dtype)
        if batch.size:
            batch_summary = leaf_summary(batch, self.eps / LEAF_EPS_DIVISOR)
            self._summary = prune(merge_summaries([self._summary, batch_summary]), self.eps)

    def prune(self, eps: float) -> None:
        """Increases the error bound to `eps` and keeps as few tuples as that allows. O(k log k) for k tuples.

        Raises InvalidInput if `eps` is below the sketch's eps.
        """
        if _checked_eps(eps) < self.eps:
            raise InvalidInput(
                f"got eps = {eps}; this sketch has an error bound of {self.eps}; pass that or more"
            )
        self._summary, self._eps = prune(self._summary, eps), float(eps)

    def rank_bounds(self) -> RankBounds:
        """The staircase of this sketch, O(k). It may repeat a value; `combine` makes the values unique."""
        return self._summary.rank_bounds()

    def rank_le(self, xs: ArrayLike) -> tuple[Ranks, Ranks]:
        """Bounds (lo, hi) of the number of elements <= x, for each x. O(k + len(xs) * log k), k tuples."""
        return self.rank_bounds().rank_le(xs)

    def rank_lt(self, xs: ArrayLike) -> tuple[Ranks, Ranks]:
        """Bounds (lo, hi) of the number of elements < x, for each x. O(k + len(xs) * log k), k tuples."""
        return self.rank_bounds().rank_lt(xs)

    def quantile(self, phi: Phi) -> float | int:
        """An element whose rank error to r = max(1, ceil(phi * n)) is at most eps * n.

        phi: a number in [0, 1]; 0 gives the minimum, 1 the maximum.

        Raises InvalidInput for another phi, EmptySketch if n is 0. O(k log k) time for k tuples; `quantiles`
        shares that cost between many phis.
        """
        value: float | int = self._at_ranks(np.array(target_rank(phi, self.n), np.int64)).item()
        return value

    def quantiles(self, phis: ArrayLike) -> ValueArray:
        """The quantile of each phi, as `quantile` computes it.

        Returns an array with the shape of `phis` and the dtype of the sketch.

        Raises InvalidInput if a phi is not a number in [0, 1], EmptySketch if n is 0. O(k log k + len(phis) *
        log k) time for k tuples.
        """
        phi_array = _checked_phis(phis)
        ranks = [target_rank(phi, self.n) for phi in phi_array.ravel()]
        return self._at_ranks(np.array(ranks, np.int64).reshape(phi_array.shape))

    def _at_ranks(self, ranks: Ranks) -> ValueArray:
        # The errors of the two values around r sum to at most 2 eps n, so one of them is at most eps n.
        stairs = combine([self.rank_bounds()])
        index, _ = stairs.best_candidate(ranks)
        return np.asarray(stairs.values[index])

    def check_invariants(self) -> None:
        """Raises BrokenInvariant if the summary breaks an invariant of gk_summary.py. O(k)."""
        check_summary(self._summary, self._eps)


def merge(sketches: Sequence[GK], eps: float | None = None) -> GK:
    """A new sketch of the union of disjoint inputs; the inputs do not change.

    sketches: at least one, all of one dtype.
    eps: the error bound to prune the result to; None prunes nothing and keeps the tuples of all inputs.

    Rank errors add up: the error of the result is the sum of eps_i * n_i over the inputs. So its eps is the
    mean of the inputs' eps weighted by n, which is at most the largest of them. Sketches that will be merged
    need a smaller eps than the answer: build them with eps / 2 for one merge that is pruned to eps. For h
    levels of such merges, build them with eps / (h + 1) and add eps / (h + 1) at each level, so the top has
    eps.

    Raises InvalidInput for no inputs, for mixed dtypes, for the same sketch twice, for 2**63 elements or more
    in total, and if `eps` is below the weighted mean. O(K log K) time and O(K) memory for K tuples together.

    >>> import numpy as np
    >>> parts = [GK.from_sorted(np.arange(i, 100_000.0, 4), eps=0.005) for i in range(4)]
    >>> merge(parts).eps, merge(parts, eps=0.01).eps
    (0.005, 0.01)
    """
    if not sketches:
        raise InvalidInput("got no sketches to merge; expected at least one; pass an empty GK(eps, dtype)")
    dtypes = {str(s.dtype) for s in sketches}
    if len(dtypes) > 1:
        raise InvalidInput(
            f"got sketches of dtypes {sorted(dtypes)}; expected one dtype; cast before sketching"
        )
    require_disjoint(sketches)
    union_eps = merged_eps([(s.eps, s.n) for s in sketches])
    union = merge_summaries([s.summary for s in sketches])
    if eps is None:
        return _with_summary(union, _round_up(union_eps), GK)
    if Fraction(_checked_eps(eps)) < union_eps:
        raise InvalidInput(
            f"got eps = {eps}; these sketches together promise {_round_up(union_eps)}; "
            "pass that or more, or build the inputs with a smaller eps"
        )
    return _with_summary(prune(union, eps), float(eps), GK)


def _with_summary(summary: GKSummary, eps: float, cls: type[GK]) -> GK:
    sketch = cls(eps, summary.values.dtype)
    sketch._summary = summary
    return sketch


def _checked_phis(phis: ArrayLike) -> NDArray[Any]:
    """`phis` as an array of any dtype; `target_rank` checks each element."""
    if isinstance(phis, np.ma.MaskedArray):
        raise InvalidInput("got a masked array; expected numbers in [0, 1]; pass array.compressed()")
    try:
        return np.asarray(phis)
    except ValueError as ragged:
        raise InvalidInput("got phis of uneven shape; expected an array of numbers in [0, 1]") from ragged


def _checked_eps(eps: object) -> float:
    if isinstance(eps, bool) or not isinstance(eps, int | float | np.floating) or not 0 < eps < 0.5:
        raise InvalidInput(f"got eps = {eps!r}; expected a number with 0 < eps < 0.5, such as 0.001")
    return float(eps)


def _round_up(eps: Fraction) -> float:
    """The smallest double that is not below `eps`: an error bound may only be rounded up."""
    nearest = float(eps)
    return nearest if Fraction(nearest) >= eps else math.nextafter(nearest, 1.0)
