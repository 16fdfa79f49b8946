"""What deterministic counters hold after a whole stream, found without feeding it to them.

Which arrivals of a cell end a bucket follows from how many there are: exponential histograms and waves each
tell those ranks (`kept_ranks`). A bucket holds the arrivals behind the one before it, so from the ranks and
the times follows all that updates would have left. Tests hold the two equal.

Cost: that of sorting the arrivals, and of the buckets they leave. CellIndices that hold nothing, and the room that
counters set aside, take no part.
"""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from tidemark.sketches.counters.buckets import Buckets, Ints, none
from tidemark.sketches.inputs import as_contiguous

KeptRanks: TypeAlias = Callable[[Ints, float], tuple[Ints, Ints]]
"""From how many arrivals each cell had, and eps: the cells and the ranks, from 1, of those that end a bucket.

By cell, then rank; the last arrival of a cell always ends one.
"""


def buckets_of(cells: Ints, times: Ints, counts: Ints, eps: float, kept_ranks: KeptRanks) -> Buckets:
    """The buckets that these arrivals leave in empty counters of `eps`.

    cells, times, counts: shape (n,), in any order; counts are at least 1 and sum to less than 2**62 a cell.
    Arrivals of one time keep their order.
    """
    from tidemark.sketches.compiled.kernels import group_by_cell, times_of_ranks

    if not len(cells):
        return none()
    # Arrivals of one cell mostly stand side by side, so a stretch of them is looked up once.
    begins = np.flatnonzero(np.diff(cells, prepend=-1))
    held, at = np.unique(cells[begins], return_inverse=True)
    own = np.repeat(at, np.diff(begins, append=len(cells)))
    order = np.argsort(times, kind="stable")
    own_times, own_counts, starts = group_by_cell(own[order], 0, len(held), times[order], counts[order])
    # A sum over all cells may pass 2**63 and wrap; the difference of two, which is that of a cell, is right.
    below = np.concatenate([[0], np.cumsum(own_counts)])[starts]
    cell, ranks = kept_ranks(np.diff(below), eps)
    first = np.concatenate([[0], np.cumsum(np.bincount(cell))])
    sizes = np.diff(ranks, prepend=0)
    sizes[first[:-1]] = ranks[first[:-1]]
    ends = times_of_ranks(own_times, own_counts, starts, as_contiguous(ranks), first)
    return Buckets(held, first, ends, sizes, np.zeros(len(held), np.int64))


def expand_ranges(first: Ints, held: Ints) -> tuple[Ints, Ints]:
    """The numbers from first[i] to first[i] + held[i] - 1 for each i, and the i of each."""
    owner = np.repeat(np.arange(len(first)), held)
    begins = np.cumsum(held) - held
    return owner, np.arange(len(owner)) - begins[owner] + first[owner]
