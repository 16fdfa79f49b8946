"""The most frequent items by the lists of all sites, with certain bounds.

Model. For an item x, lo is the sum of its counts in all lists that have it, and hi is lo plus the cut-offs of
the lists that have it not. An item in no list has at most U rows, the sum of all cut-offs. So in the windows
from which the sites made their lists,

    lo <= the rows of x at all sites <= hi

The answer is the k items of the largest lo; of equal ones the smaller item comes first. A member x is
certain if U < lo(x), and at most k - 1 other listed items y can come before it: they have hi(y) > lo(x), or
hi(y) = lo(x) and y < x.

Example. k = 1, two sites: a has 10 and b 6 at the first, which lists a alone (cut-off 6); d has 9 and b 5 at
the second, which lists d alone (cut-off 5). Then a has 10 to 15, d 9 to 15, and b at most 11: a is the
answer, and not certain. b has 11 rows.

Cost: O(m log m) for m entries of all lists.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidemark.sketches.bounds.count_bounds import Counts
from tidemark.sketches.hashing.row_hashes import Digests
from tidemark.sketches.topk.lists import Ints, TopkList


@dataclass(frozen=True, slots=True, eq=False)
class TopkAnswer:
    """The most frequent items, by falling count.

    items: uint64, at most k. counts: the rows of each at all sites, with certain bounds; the estimate is lo.
    certain: whether an item is certainly one of the k most frequent.
    as_of: for each site the last time of its window, inclusive: bounds and certainty are for these windows.
    """

    items: Digests
    counts: Counts
    certain: NDArray[np.bool_]
    as_of: dict[int, int]

    def __len__(self) -> int:
        return len(self.items)


def top_of(lists: Mapping[int, TopkList], k: int) -> TopkAnswer:
    """The k most frequent items by these lists, one of each site; fewer if fewer items have rows."""
    items, lo, hi = bounds_of(lists)
    order = np.lexsort((items, -lo))[:k]
    order = order[lo[order] > 0]
    unlisted = sum(one.cutoff for one in lists.values())
    certain = np.zeros(len(order), bool)
    for place, i in enumerate(order.tolist()):
        before = int(np.sum((hi > lo[i]) | ((hi == lo[i]) & (items < items[i])))) - int(hi[i] > lo[i])
        certain[place] = before < k and (unlisted < lo[i] or unlisted == 0)
    counts = Counts(lo[order].astype(np.float64), lo[order], hi[order])
    return TopkAnswer(items[order], counts, certain, {site: one.now for site, one in lists.items()})


def bounds_of(lists: Mapping[int, TopkList]) -> tuple[Digests, Ints, Ints]:
    """(items, lo, hi): every item of the lists, ascending, with bounds of its rows at all sites."""
    every = np.concatenate([np.empty(0, np.uint64), *(one.items for one in lists.values())])
    items, places = np.unique(every, return_inverse=True)
    lo, told = np.zeros(len(items), np.int64), np.zeros(len(items), np.int64)
    counts = np.concatenate([np.empty(0, np.int64), *(one.counts for one in lists.values())])
    np.add.at(lo, places, counts)
    cutoffs = [np.full(len(one.items), one.cutoff) for one in lists.values()]
    np.add.at(told, places, np.concatenate([np.empty(0, np.int64), *cutoffs]))
    return items, lo, lo + sum(one.cutoff for one in lists.values()) - told
