"""The Greenwald-Khanna summary as an immutable value, and its three operations: build, merge, prune.

Model. n elements have one fixed total order: by value, with an arbitrary but fixed order among equal values.
A summary keeps k of the elements. Each kept element is a tuple (value, rmin, rmax) with bounds
1 <= rmin <= rmax <= n of its position in that order.

Invariants, checked by `check_summary`:
  1. values are in order; rmin and rmax rise strictly, because the tuples are different elements.
  2. The first and the last element are kept: rmin[0] = rmax[0] = 1 and rmin[-1] = rmax[-1] = n.
  3. For neighbours j, j + 1 of different value, rmax[j + 1] - rmin[j] <= allowance(eps, n), which is
     max(1, floor(2 eps n)). Equal neighbours are exempt, because no x falls strictly between them: a
     constant column is 2 tuples.

Guarantee. For every x: lo(x) <= rank(x) <= hi(x) and hi(x) - lo(x) <= max(0, 2 eps n - 1). Proof: let j be
the last tuple with a value <= x. Its position is rmin[j] or later, so rank(x) >= rmin[j]. The next tuple is
greater than x and its position is rmax[j + 1] or earlier, so rank(x) <= rmax[j + 1] - 1. Invariant 3 bounds
the difference. The proof for "elements < x" is the same with <.

Size. `leaf_summary` keeps at most (n - 1) / allowance + 2 tuples, about 1 / (2 eps). The greedy prune has no
proved size bound. The largest sizes measured at eps 0.1, 0.01 and 0.001 with batches of 1, 10 ... 10,000
elements (a test asserts both lines):

    sorted, reversed, random, alternating    2.5 / (2 eps); 1.4 to 1.8 with batches of 100 and more
    zooming in                               (2 + log2(max(1, 2 eps n))) / (2 eps)

"Zooming in" means that every new value lies between the two before it: 11.3 / (2 eps) at eps = 0.01 after
150,000 values in batches of 10. A value inserted into a gap has the uncertainty of the gap, and can be
dropped only as n grows. Other prune directions and frequencies that we tried need no less. For such an
order, every comparison-based summary needs at least order of 1/eps * log(eps n) tuples (Cormode and Vesely,
PODS 2020).

Source: Greenwald and Khanna, "Space-Efficient Online Computation of Quantile Summaries", SIGMOD 2001, section
2. We deviate: whole batches instead of single inserts, rmin and rmax instead of g and delta, and a greedy
prune instead of bands. Each is simpler over arrays, and the guarantee rests on the three invariants alone.

Memory: 24 bytes a tuple.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidemark.sketches.bounds.rank_bounds import RankBounds, Ranks
from tidemark.sketches.errors import BrokenInvariant, InvalidInput
from tidemark.sketches.inputs import FLOAT64, INT64, ValueArray, positive_zeros


@dataclass(frozen=True, slots=True, eq=False)
class GKSummary:
    """k elements of a multiset, in order, with bounds of their positions (1-based, both ends inclusive).

    values: shape (k,), float64 or int64.
    rmin, rmax: shape (k,), int64: the lowest and the highest possible position of each element.

    k is 0 only if n is 0.
    """

    values: ValueArray
    rmin: Ranks
    rmax: Ranks

    @property
    def n(self) -> int:
        """The number of elements summarised, not the number of tuples."""
        return int(self.rmax[-1]) if len(self.rmax) else 0

    def rank_bounds(self) -> RankBounds:
        """The staircase with lo[j] = rmin[j - 1] and hi[j] = rmax[j] - 1; lo[0] = 0 and hi[k] = n. O(k)."""
        return RankBounds(
            self.values,
            np.concatenate([np.zeros(1, INT64), self.rmin]),
            np.append(self.rmax - 1, np.int64(self.n)),
        )


def empty_summary(dtype: np.dtype[Any]) -> GKSummary:
    """The summary of no elements."""
    return GKSummary(np.empty(0, dtype), np.empty(0, INT64), np.empty(0, INT64))


def allowance(eps: float, n: int) -> int:
    """max(1, floor(2 eps n)) in exact arithmetic: the largest rmax[j + 1] - rmin[j] of two neighbours."""
    numerator, denominator = eps.as_integer_ratio()
    return max(1, 2 * numerator * n // denominator)


def leaf_summary(values: ValueArray, eps: float) -> GKSummary:
    """The summary of a sorted array: every allowance-th element and the last, with exact positions.

    O(tuples) time: only the kept elements are copied.
    """
    n = len(values)
    if n == 0:
        return empty_summary(values.dtype)
    positions = np.append(np.arange(0, n - 1, allowance(eps, n)), n - 1)
    ranks = positions + 1
    return _without_inner_equals(GKSummary(positive_zeros(values[positions]), ranks, ranks))


# Proof of merge_summaries.
#
# Fix the order of the union: by value, then by input number, then the order inside the input. The position in
# the union of an element with value v is its position in its own input plus, for every other input, the
# number of that input's elements before it: the elements < v of inputs with a higher number, and the elements
# <= v of inputs with a lower number. By the guarantee, both counts are at least rmin of that input's last
# tuple before v, and at most rmax - 1 of its next tuple (that input's n if there is no next tuple).
#
# Sort all tuples stably by value. "Before" is then "earlier in the sorted array" for every input. So rmin of
# the union is the running sum of the increments of each input's rmin, including the element's own tuple. rmax
# is 1 + the running sum of the increments of each input's hi staircase, excluding the element's own tuple,
# because hi before that tuple is its own rmax - 1.
#
# Example. a = {1, 3, 3, 7, 9} keeps 1 at position 1, 3 at 2..3, 9 at 5; b = {3, 5, 9} keeps 3 at 1, 9 at 3.
#
#     tuple    own        in the other, before it         union        true position, in 1 3 3 3 5 7 9 9
#     a: 1     1..1       b < 1:   0..0                   1..1         1
#     a: 3     2..3       b < 3:   0..0                   2..3         2 or 3
#     b: 3     1..1       a <= 3:  2..4                   3..5         4
#     a: 9     5..5       b < 9:   1..2                   6..7         7
#     b: 9     3..3       a <= 9:  5..5                   8..8         8
#
# The same numbers as the code computes them, in sorted order (a: 1, a: 3, b: 3, a: 9, b: 9):
#
#     increments of rmin           1  1  1  3  2         of a: 1, 1, 3         of b: 1, 2
#     rmin, their running sum      1  2  3  6  8
#     increments of hi             2  2  2  1  1         of a: 2, 2, 1         of b: 2, 1
#     their running sum            2  4  6  7  8
#     rmax = 1 + sum - own         1  3  5  7  8
#
# If ties were counted with <= in both directions, each of the two 9s would count the other, and both would
# get position 8.
#
# Invariant 3. Let neighbours p, p + 1 of the union have different values. In input i let j be its last tuple
# up to p: its tuples j and j + 1 differ in value too. With A_i = allowance(eps_i, n_i), hi_i - lo_i between
# them is at most A_i - 1, so
#
#     rmax[p + 1] - rmin[p] = 1 + sum (hi_i - lo_i) <= 1 + sum (A_i - 1) <= max(1, 2 sum eps_i n_i).
#
# Hence the union keeps eps = sum of eps_i n_i / n. Merging loses no precision; only pruning does.


def merge_summaries(summaries: Sequence[GKSummary]) -> GKSummary:
    """The summary of the union of disjoint inputs, not pruned.

    summaries: at least one, all of one dtype.

    The result has all K tuples of the inputs and keeps eps = `merged_eps` of the inputs. O(K log K) time,
    O(K) memory. Raises InvalidInput if the inputs have 2**63 elements or more together.
    """
    n = sum(s.n for s in summaries)
    if n >= 2**63:
        raise InvalidInput(f"got {n} elements in all; expected fewer than 2**63; merge fewer sketches")
    inputs = [s for s in summaries if s.n] or [summaries[0]]
    values = np.concatenate([s.values for s in inputs])
    order = np.argsort(values, kind="stable")
    rmin_increments = np.concatenate([np.diff(s.rmin, prepend=0) for s in inputs])[order]
    hi_increments = np.concatenate([np.diff(s.rmax - 1, append=s.n) for s in inputs])[order]
    return GKSummary(values[order], np.cumsum(rmin_increments), 1 + np.cumsum(hi_increments) - hi_increments)


def merged_eps(parts: Sequence[tuple[float, int]]) -> Fraction:
    """The eps that the union of inputs (eps, n) keeps: the mean of eps weighted by n.

    The largest eps if every n is 0.
    """
    n = sum(size for _, size in parts)
    if n == 0:
        return Fraction(max(eps for eps, _ in parts))
    return sum((Fraction(eps) * size for eps, size in parts), Fraction(0)) / n


def prune(summary: GKSummary, eps: float) -> GKSummary:
    """The fewest tuples that keep invariant 3 with `eps`.

    eps: at least the eps that the summary keeps now.

    Greedy: from each kept tuple, the next one kept is the farthest within the allowance. If even the next
    tuple is too far, the two have equal values (invariant 3) and are exempt from the rule. The last tuple is
    always kept, so n does not change. O(k + result * log k) time for k tuples.
    """
    candidates = _without_inner_equals(summary)
    limit = allowance(eps, candidates.n)
    rmin, rmax = candidates.rmin.data, candidates.rmax.data
    kept = [0] if candidates.n else []
    while kept and kept[-1] < len(rmin) - 1:
        current = kept[-1]
        farthest = bisect_right(rmax, rmin[current] + limit, current + 1) - 1
        kept.append(max(farthest, current + 1))
    return _take(candidates, np.array(kept, np.intp))


def check_summary(summary: GKSummary, eps: float) -> None:
    """Raises BrokenInvariant if the summary breaks one of the three invariants under `eps`. O(k)."""
    values, rmin, rmax, n = summary.values, summary.rmin, summary.rmax, summary.n
    summary.rank_bounds().check_invariants()
    rules = {
        "-0.0 is stored as 0.0": values.dtype != FLOAT64 or not np.signbit(values[values == 0]).any(),
        "rmin rises strictly": bool(np.all(rmin[:-1] < rmin[1:])),
        "rmax rises strictly": bool(np.all(rmax[:-1] < rmax[1:])),
        "rmin <= rmax": bool(np.all(rmin <= rmax)),
        "the minimum is at 1": n == 0 or rmin[0] == rmax[0] == 1,
        "the maximum is at n": n == 0 or rmin[-1] == rmax[-1] == n,
        "neighbours of different value are within the allowance": bool(
            np.all((rmax[1:] - rmin[:-1] <= allowance(eps, n)) | (values[1:] == values[:-1]))
        ),
    }
    for rule, holds in rules.items():
        if not holds:
            raise BrokenInvariant(f"a summary of n = {n}, eps = {eps} breaks this invariant: {rule}")


def _without_inner_equals(summary: GKSummary) -> GKSummary:
    """Drops the tuples strictly inside a sequence of equal values, because no rank bound reads them."""
    values = summary.values
    changes = values[:-1] != values[1:]
    is_edge = np.concatenate([[True], changes]) | np.concatenate([changes, [True]])
    return _take(summary, np.flatnonzero(is_edge[: len(values)]))


def _take(summary: GKSummary, indices: NDArray[np.intp]) -> GKSummary:
    return GKSummary(summary.values[indices], summary.rmin[indices], summary.rmax[indices])
