"""GK: quantiles of a column with a certified error, in memory of a few tuples per 1 / eps.

The class guards one `Summary`; gk_summary.py holds the model, the invariants and the proofs.

    error of quantile(phi)  <=  eps * n        for every phi, always: nothing here is random
    hi - lo of any rank     <=  2 * eps * n

An update is a merge with a leaf: the batch is sorted, summarised on its own with exact positions at a
fraction of eps, merged, and pruned to eps. By the merge's proof the union of the two keeps at most eps before
the prune, so the prune may be greedy. Cost: the sort of the batch, plus O(1/eps * log(1/eps)).
"""

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from tidemark.sketches.bounds.rank_bounds import RankBounds, Ranks, combine
from tidemark.sketches.bounds.target_rank import Phi, target_rank
from tidemark.sketches.disjoint import checked_disjoint
from tidemark.sketches.errors import EmptySketch, InvalidInput
from tidemark.sketches.gk.gk_bytes import decode, encode
from tidemark.sketches.gk.gk_summary import Summary, check, empty, leaf, merge_summaries, merged_eps, prune
from tidemark.sketches.inputs import Column, checked_sorted, column_dtype, sorted_column

# The eps of the sketch over that of its leaves. The gaps of a leaf stay in the ranks for ever. Measured at
# eps = 0.001 with batches of a million, against leaves that keep every value: at 64 the sketch has 10 % more
# tuples and takes a third of the time, at 8 it has 40 % more tuples and takes no less time.
LEAF_SHARE = 64


class GK:
    """A mergeable summary of float64 or int64 values that answers ranks and quantiles within eps * n.

    >>> import numpy as np
    >>> sketch = GK(eps=0.01)
    >>> sketch.update(np.arange(100_000.0))
    >>> abs(sketch.quantile(0.99) - 99_000) <= 0.01 * sketch.n
    True

    len() is the number of tuples kept; gk_summary.py tells how many to expect. Infinities are values; NaN is
    refused, the caller counts it apart. A refused input changes nothing.
    """

    __slots__ = ("_eps", "_summary")

    def __init__(self, eps: float, dtype: DTypeLike = np.float64) -> None:
        """An empty sketch. InvalidInput unless 0 < eps < 0.5 and dtype is float64 or int64."""
        self._eps = _checked_eps(eps)
        self._summary = empty(column_dtype(dtype))

    @classmethod
    def from_sorted(cls, array: ArrayLike, eps: float, dtype: DTypeLike | None = None) -> "GK":
        """The sketch of one array that is sorted already.

        Without a dtype, integers become int64 and all else float64. InvalidInput if it is not sorted.
        """
        return _guard(leaf(checked_sorted(array, dtype), _checked_eps(eps)), eps, cls)

    @classmethod
    def from_bytes(cls, data: bytes) -> "GK":
        """The sketch that `to_bytes` stored; CorruptSketch, WrongKind or NewerVersion if there is none."""
        summary, eps = decode(data)
        return _guard(summary, eps, cls)

    def to_bytes(self) -> bytes:
        """The stored form, see gk_bytes.py. Equal batches in equal order give equal bytes."""
        return encode(self._summary, self._eps)

    @property
    def eps(self) -> float:
        """The promise: the error of a quantile is at most eps * n."""
        return self._eps

    @property
    def n(self) -> int:
        """The number of elements that went in."""
        return self._summary.n

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the values, float64 or int64."""
        return self._summary.values.dtype

    @property
    def min(self) -> float | int:
        """The smallest element, exactly: it is always the first tuple. EmptySketch if n is 0."""
        return self._end(0)

    @property
    def max(self) -> float | int:
        """The largest element, exactly: it is always the last tuple. EmptySketch if n is 0."""
        return self._end(-1)

    def _end(self, at: int) -> float | int:
        if not self.n:
            raise EmptySketch("got n = 0; a least and a greatest element need at least one; add values first")
        value: float | int = self._summary.values[at].item()
        return value

    @property
    def summary(self) -> Summary:
        """The tuples kept: values, rmin, rmax. Read them only."""
        return self._summary

    def __len__(self) -> int:
        return len(self._summary.values)

    def __repr__(self) -> str:
        return f"GK(eps={self.eps}, dtype={self.dtype}, n={self.n}, tuples={len(self)})"

    def update(self, array: ArrayLike) -> None:
        """Adds the values of a one-dimensional array, in any order; an empty one changes nothing.

        Integers are taken where the dtype holds them exactly. InvalidInput for NaN, another shape or type,
        and for 2**63 elements or more in all.
        """
        batch: Column = sorted_column(array, self.dtype)
        if batch.size:
            part = leaf(batch, self.eps / LEAF_SHARE)
            self._summary = prune(merge_summaries([self._summary, part]), self.eps)

    def prune(self, eps: float) -> None:
        """Loosens the promise to `eps` and keeps the fewest tuples for it; InvalidInput if it is tighter."""
        if _checked_eps(eps) < self.eps:
            raise InvalidInput(
                f"got eps = {eps}; this sketch knows its ranks to {self.eps} only; ask that or more"
            )
        self._summary, self._eps = prune(self._summary, eps), float(eps)

    def rank_bounds(self) -> RankBounds:
        """The staircase of this sketch. It may repeat a value; `combine` makes the values unique."""
        return self._summary.rank_bounds()

    def rank_le(self, xs: ArrayLike) -> tuple[Ranks, Ranks]:
        """Bounds (lo, hi) of the number of elements <= x, for each x."""
        return self.rank_bounds().rank_le(xs)

    def rank_lt(self, xs: ArrayLike) -> tuple[Ranks, Ranks]:
        """Bounds (lo, hi) of the number of elements < x, for each x."""
        return self.rank_bounds().rank_lt(xs)

    def quantile(self, phi: Phi) -> float | int:
        """An element whose error to rank r = max(1, ceil(phi * n)) is at most eps * n.

        0 gives the minimum, 1 the maximum. InvalidInput if phi is no number in [0, 1], EmptySketch if n is 0.
        """
        value: float | int = self._at_ranks(np.array(target_rank(phi, self.n), np.int64)).item()
        return value

    def quantiles(self, phis: ArrayLike) -> Column:
        """The quantile of each phi, as `quantile` gives it: an array of the shape of `phis` and this dtype.

        InvalidInput if a phi is no number in [0, 1], EmptySketch if n is 0.
        """
        given = _checked_phis(phis)
        ranks = [target_rank(phi, self.n) for phi in given.ravel()]
        return self._at_ranks(np.array(ranks, np.int64).reshape(given.shape))

    def _at_ranks(self, ranks: Ranks) -> Column:
        # The errors of the two values around r sum to at most the allowance: one is within half of it.
        stairs = combine([self.rank_bounds()])
        index, _ = stairs.best_candidate(ranks)
        return np.asarray(stairs.values[index])

    def check_invariants(self) -> None:
        """Raises BrokenInvariant if the summary breaks what gk_summary.py promises."""
        check(self._summary, self._eps)


def merge(sketches: Sequence[GK], eps: float | None = None) -> GK:
    """A new sketch of the union of disjoint inputs, which stay as they are.

    Errors add in ranks: inputs of n_i elements at eps_i leave sum of eps_i * n_i, so the result keeps the
    mean of the inputs' eps weighted by their n, which is at most the largest of them. Without `eps` nothing
    is pruned: the result has the tuples of all inputs. With `eps` it is pruned to that. So build what will
    be merged at a smaller eps than the answer needs: at eps / 2 for one merge that is pruned to eps; for h
    such merges above each other at eps / (h + 1), and give each level that much more than the one below.

    InvalidInput for no inputs, for mixed dtypes, for one sketch twice, for 2**63 elements or more in all, or
    if `eps` is below that mean.

    >>> import numpy as np
    >>> parts = [GK.from_sorted(np.arange(i, 100_000.0, 4), eps=0.005) for i in range(4)]
    >>> merge(parts).eps, merge(parts, eps=0.01).eps
    (0.005, 0.01)
    """
    if not sketches:
        raise InvalidInput("got no sketches to merge; expected at least one; an empty GK(eps, dtype) will do")
    dtypes = {str(s.dtype) for s in sketches}
    if len(dtypes) > 1:
        raise InvalidInput(f"got sketches of dtypes {sorted(dtypes)}; expected one; cast before sketching")
    checked_disjoint(sketches)
    kept = merged_eps([(s.eps, s.n) for s in sketches])
    union = merge_summaries([s.summary for s in sketches])
    if eps is None:
        return _guard(union, _round_up(kept), GK)
    if Fraction(_checked_eps(eps)) < kept:
        raise InvalidInput(
            f"got eps = {eps}; these sketches together promise {_round_up(kept)}; ask for that or more, "
            "or build the inputs with a smaller eps"
        )
    return _guard(prune(union, eps), float(eps), GK)


def _guard(summary: Summary, eps: float, cls: type[GK]) -> GK:
    sketch = cls(eps, summary.values.dtype)
    sketch._summary = summary
    return sketch


def _checked_phis(phis: ArrayLike) -> NDArray[Any]:
    """As an array of any dtype whose elements are looked at one by one."""
    if isinstance(phis, np.ma.MaskedArray):
        raise InvalidInput("got a masked array; expected numbers in [0, 1]; pass array.compressed()")
    try:
        return np.asarray(phis)
    except ValueError as ragged:
        raise InvalidInput("got phis of no shape; expected an array of numbers in [0, 1]") from ragged


def _checked_eps(eps: object) -> float:
    if isinstance(eps, bool) or not isinstance(eps, int | float | np.floating) or not 0 < eps < 0.5:
        raise InvalidInput(f"got eps = {eps!r}; expected a number with 0 < eps < 0.5, such as 0.001")
    return float(eps)


def _round_up(kept: Fraction) -> float:
    """The smallest double that is not below `kept`: a promise may be rounded up only."""
    nearest = float(kept)
    return nearest if Fraction(nearest) >= kept else math.nextafter(nearest, 1.0)
