"""Subtracts removed numbers from the rows and the staircases of runs that still have them; pure.

P are the rows of some runs, and Q, the removed rows, are a part of P. For each x

    rank(x) = rank_P(x) - rank_Q(x),      lo_P(x) - rank_Q(x)  <=  rank(x)  <=  hi_P(x) - rank_Q(x)

rank_Q is exact, because Q is a sorted array. Between neighbouring values of the staircase of P and of Q both
sides are constant, so the differences are a staircase, as wide as that of P. It need not ascend; the rank
does. So the running maximum of lo, and the running minimum of hi from the right, are bounds, too.

Worked example. P has the rows 1, 2, 3, 4, and marks at 1 and 4. Q is the row 3. At the values 1 and 4, lo and
hi of P are 0, 1, 4 and 0, 3, 4; at the values 1, 3 and 4 they are 0, 1, 1, 4 and 0, 3, 3, 4. The ranks of Q
are 0, 0, 1, 1, so the differences are 0, 1, 0, 3 and 0, 3, 2, 3. The rank ascends, so the bounds are 0, 1, 1,
3 and 0, 2, 2, 3: of 1, 2, 4 one or two are <= 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidemark.sketches import RankBounds, combine
from tidemark.warehouse.errors import DamagedWarehouse


def bounds_without(bounds: RankBounds, gone: NDArray[Any]) -> RankBounds:
    """The staircase of a multiset without some of its elements, which are sorted.

    O(K log K) for K values and elements in all. DamagedWarehouse if they cannot all be in it.
    """
    if not len(gone):
        return bounds
    values = gone[np.append(True, gone[1:] != gone[:-1])]
    zeros = np.zeros(len(values) + 1, np.int64)
    joined = combine([bounds, RankBounds(values, zeros, zeros, unique=True)])
    less = np.concatenate([np.zeros(1, np.int64), gone.searchsorted(joined.values, "right")])
    lo = np.maximum.accumulate(np.maximum(joined.lo - less, 0))
    hi = np.minimum.accumulate((joined.hi - less)[::-1])[::-1]
    if np.any(lo > hi):
        raise absent()
    return RankBounds(joined.values, lo, np.ascontiguousarray(hi), unique=True)


def numbers_without(numbers: NDArray[Any], gone: NDArray[Any]) -> NDArray[Any]:
    """Sorted numbers without those in `gone`, which is sorted; of equal numbers as many go as `gone` has.

    O(len(gone) log len(numbers) + len(numbers)). DamagedWarehouse if they are not all there.
    """
    if not len(gone):
        return numbers
    nth = np.arange(len(gone)) - gone.searchsorted(gone)  # of equal numbers
    places = numbers.searchsorted(gone) + nth
    if places[-1] >= len(numbers) or np.any(numbers[places] != gone):
        raise absent()
    return np.delete(numbers, places)


def absent() -> DamagedWarehouse:
    """The error for removed rows that the runs do not have."""
    return DamagedWarehouse(
        "rows are kept as those that left and that runs still have, but the runs do not have them. Run "
        "verify: it names the table that is wrong."
    )
