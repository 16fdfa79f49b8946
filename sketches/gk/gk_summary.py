"""The Greenwald-Khanna summary as a value, and the three operations on it: build, merge, prune.

Model. n elements stand in one fixed total order: by value, equal values in any order that never changes
again. A summary keeps k of them, and for each the bounds 1 <= rmin <= rmax <= n of its position in that
order.

Invariants, checked by `check`:
  1. values are in order; rmin and rmax rise strictly, because the tuples are different elements.
  2. The first and the last element are kept: rmin[0] = rmax[0] = 1 and rmin[-1] = rmax[-1] = n.
  3. For neighbours j, j + 1 of different value, rmax[j + 1] - rmin[j] <= allowance(eps, n), which is
     max(1, floor(2 eps n)). Between equal neighbours there is no rule, because no x falls strictly between
     them: a constant column is 2 tuples.

Guarantee. For every x: lo(x) <= rank(x) <= hi(x) and hi(x) - lo(x) <= max(0, 2 eps n - 1). Proof: let j be
the last tuple with a value <= x. It stands at rmin[j] or later, so rank(x) >= rmin[j]. The next tuple is
greater than x and stands at rmax[j + 1] or earlier, so rank(x) <= rmax[j + 1] - 1. Invariant 3 is their
difference. (The same with <.)

Size. `leaf` keeps at most (n - 1) / allowance + 2 tuples, about 1 / (2 eps). The greedy prune has no proved
bound of its own. The most that was measured at eps 0.1, 0.01 and 0.001 over batches of 1, 10 ... 10,000 (a
test holds both lines):

    sorted, reversed, random, alternating    2.5 / (2 eps); 1.4 to 1.8 with batches of 100 and more
    zooming in                               (2 + log2(max(1, 2 eps n))) / (2 eps)

To zoom in is to let every value fall between the two that came last: 11.3 / (2 eps) at eps = 0.01 after
150,000 values in batches of 10. What comes into a gap has the uncertainty of the gap, and can be dropped only
as n grows. No prune of another direction or rhythm that was tried needs less, and no summary that compares
values needs less than an order of 1/eps * log(eps n) in such an order (Cormode and Vesely, PODS 2020).

Source: Greenwald and Khanna, "Space-Efficient Online Computation of Quantile Summaries", SIGMOD 2001, section
2. We deviate: whole batches instead of single inserts, rmin and rmax instead of g and delta, and a greedy
prune instead of bands. Each is simpler over arrays, and the guarantee rests on the three invariants alone.
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
from tidemark.sketches.inputs import FLOAT64, INT64, Column, positive_zeros


@dataclass(frozen=True, slots=True, eq=False)
class Summary:
    """k elements of a multiset, in order, with bounds of their positions (1-based, both ends inclusive).

    values: shape (k,), float64 or int64. rmin, rmax: shape (k,), int64. k is 0 only where n is 0.
    """

    values: Column
    rmin: Ranks
    rmax: Ranks

    @property
    def n(self) -> int:
        """The number of elements summarised."""
        return int(self.rmax[-1]) if len(self.rmax) else 0

    def rank_bounds(self) -> RankBounds:
        """The staircase: lo[j] = rmin[j - 1], hi[j] = rmax[j] - 1, and 0 and n at the ends."""
        return RankBounds(
            self.values,
            np.concatenate([np.zeros(1, INT64), self.rmin]),
            np.append(self.rmax - 1, np.int64(self.n)),
        )


def empty(dtype: np.dtype[Any]) -> Summary:
    """The summary of no elements."""
    return Summary(np.empty(0, dtype), np.empty(0, INT64), np.empty(0, INT64))


def allowance(eps: float, n: int) -> int:
    """max(1, floor(2 eps n)) without rounding: how far apart in rank two neighbours may be."""
    numerator, denominator = eps.as_integer_ratio()
    return max(1, 2 * numerator * n // denominator)


def leaf(values: Column, eps: float) -> Summary:
    """The summary of a sorted array: every allowance-th element and the last, with exact positions."""
    n = len(values)
    if n == 0:
        return empty(values.dtype)
    positions = np.append(np.arange(0, n - 1, allowance(eps, n)), n - 1)
    ranks = positions + 1
    return _without_inner_equals(Summary(positive_zeros(values[positions]), ranks, ranks))


# Why merge is right.
#
# Fix the order of the union: by value, equal values by input number, then as inside their input. An element's
# position in the union is its position in its own input plus, for every other input, the number of that
# input's elements before it. Those are the elements < v of later inputs and the elements <= v of earlier
# ones. The guarantee bounds both: at least rmin of that input's last tuple before it, at most rmax - 1 of its
# next tuple (its n if there is none).
#
# Sort all tuples stably by value. "Before" is then "earlier in the sorted array", for every input alike, so
# rmin of the union is the running sum of the rises of each input's rmin, own tuple included. rmax is 1 + the
# running sum of the rises of each input's hi staircase, own tuple left out, since hi before the own tuple is
# its own rmax - 1.
#
# Example. a = {1, 3, 3, 7, 9} keeps 1@1, 3@2..3, 9@5 and b = {3, 5, 9} keeps 3@1, 9@3.
#
#     tuple    own        of the other, before it         union        true position, in 1 3 3 3 5 7 9 9
#     a: 1     1..1       b < 1:   0..0                   1..1         1
#     a: 3     2..3       b < 3:   0..0                   2..3         2 or 3
#     b: 3     1..1       a <= 3:  2..4                   3..5         4
#     a: 9     5..5       b < 9:   1..2                   6..7         7
#     b: 9     3..3       a <= 9:  5..5                   8..8         8
#
# With one rule for both directions (<= and <=) the two 9s would each count the other, and both stand at 8.
#
# Invariant 3. Let neighbours p, p + 1 of the union have different values. In input i let j be its last tuple
# up to p: its tuples j and j + 1 differ in value too. With A_i = allowance(eps_i, n_i), hi_i - lo_i between
# them is at most A_i - 1, so
#
#     rmax[p + 1] - rmin[p] = 1 + sum (hi_i - lo_i) <= 1 + sum (A_i - 1) <= max(1, 2 sum eps_i n_i).
#
# Hence the union keeps eps = sum of eps_i n_i / n. Merging loses nothing; only pruning does.


def merge_summaries(summaries: Sequence[Summary]) -> Summary:
    """The summary of the union of disjoint inputs (at least one, of one dtype), not pruned.

    It keeps eps = `merged_eps` of the inputs. Cost O(K log K) for K tuples in all. InvalidInput for 2**63
    elements or more.
    """
    n = sum(s.n for s in summaries)
    if n >= 2**63:
        raise InvalidInput(f"got {n} elements in all; expected fewer than 2**63; keep several sketches")
    inputs = [s for s in summaries if s.n] or [summaries[0]]
    values = np.concatenate([s.values for s in inputs])
    order = np.argsort(values, kind="stable")
    rise_of_lo = np.concatenate([np.diff(s.rmin, prepend=0) for s in inputs])[order]
    rise_of_hi = np.concatenate([np.diff(s.rmax - 1, append=s.n) for s in inputs])[order]
    return Summary(values[order], np.cumsum(rise_of_lo), 1 + np.cumsum(rise_of_hi) - rise_of_hi)


def merged_eps(parts: Sequence[tuple[float, int]]) -> Fraction:
    """What the union of inputs (eps, n) promises: the mean of eps weighted by n; the largest if n is 0."""
    n = sum(size for _, size in parts)
    if n == 0:
        return Fraction(max(eps for eps, _ in parts))
    return sum((Fraction(eps) * size for eps, size in parts), Fraction(0)) / n


def prune(summary: Summary, eps: float) -> Summary:
    """The fewest tuples that keep invariant 3 with `eps`, which is at least what the summary keeps now.

    From each kept tuple it goes to the farthest one that is still allowed. If even the next is too far, the
    two are of equal value (invariant 3), and there is no rule between those. The last tuple is always
    reached, n is kept.
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


def check(summary: Summary, eps: float) -> None:
    """Raises BrokenInvariant if the summary breaks one of the three invariants under `eps`."""
    values, rmin, rmax, n = summary.values, summary.rmin, summary.rmax, summary.n
    summary.rank_bounds().check_invariants()
    rules = {
        "-0.0 is kept as 0.0": values.dtype != FLOAT64 or not np.signbit(values[values == 0]).any(),
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
            raise BrokenInvariant(
                f"a summary of n = {n}, eps = {eps} must keep this rule and does not: {rule}"
            )


def _without_inner_equals(summary: Summary) -> Summary:
    """Drops the tuples strictly inside a stretch of one value: no x falls between, so no bound reads them."""
    values = summary.values
    change = values[:-1] != values[1:]
    edge = np.concatenate([[True], change]) | np.concatenate([change, [True]])
    return _take(summary, np.flatnonzero(edge[: len(values)]))


def _take(summary: Summary, kept: NDArray[np.intp]) -> Summary:
    return Summary(summary.values[kept], summary.rmin[kept], summary.rmax[kept])
