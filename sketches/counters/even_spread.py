"""How many arrivals lie in the last part of an interval, if only their number in all of it is known.

Model. `counts` arrivals lie in an interval of `length` times. Of these times the last `later` are asked for.
If the arrivals were spread evenly, counts * later / length of them would be in that part: the estimate.

Certain bounds: all of them if the part is the whole interval, none if it is empty, else from 0 to counts.
They are closer where more is known:
    one a time    each time has at most one arrival, so at most `later` are inside, and at most
                  length - later are outside
    known ends    an arrival lies at each end of the interval, so at least one is inside and one outside

Example. 6 arrivals in an interval of 10 times, the last 5 asked for: 3 expected, 0 to 6 certain; 1 to 5 with
one arrival a time, since 5 of the 6 fit into either half.
"""

from typing import cast

import numpy as np
from numpy.typing import NDArray

from tidemark.sketches.bounds.count_bounds import Counts
from tidemark.sketches.counters.buckets import Ints


def late_part(counts: Ints, later: Ints, length: Ints, *, one_a_time: bool, known_ends: bool) -> Counts:
    """The number of arrivals in the last `later` of `length` times, with certain bounds. O(len(counts)).

    counts: shape (k,). later: 0 <= later <= length, length at least 1; both of shape (k,) or (1,).
    known_ends: an arrival lies at each end of every interval; counts are then at least 1.
    """
    lo, hi = np.zeros_like(counts), counts
    if one_a_time:
        lo, hi = np.maximum(counts - (length - later), 0), np.minimum(counts, later)
    if known_ends:
        lo, hi = np.maximum(lo, 1), np.minimum(hi, counts - 1)
    lo = np.where(later == length, counts, np.where(later == 0, 0, lo))
    hi = np.where(later == length, counts, np.where(later == 0, 0, hi))
    estimate = counts * (later / length)
    return Counts(cast("NDArray[np.float64]", np.clip(estimate, lo, hi)), lo, hi)
