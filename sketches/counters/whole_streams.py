"""The buckets that a whole stream leaves in deterministic counters, computed without running the counters.

Which arrivals of a cell end a bucket depends only on the number of arrivals in the cell. Exponential
histograms and waves each have a function for the ranks of those arrivals (`kept_ranks`). A bucket holds the
arrivals after the end of the bucket before it, so the ranks and the times determine the same buckets that
updates would leave. Tests assert that both are equal.

Cost: O(n log n + b) for n arrivals and b buckets. Empty cells and the capacity of counters cost nothing.
"""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from tidemark.sketches.counters.buckets import Buckets, Ints, no_buckets
from tidemark.sketches.inputs import as_contiguous

KeptRanks: TypeAlias = Callable[[Ints, float], tuple[Ints, Ints]]
"""(arrivals of each cell, eps) -> (cells, ranks): the arrivals that end a bucket, with ranks from 1.

Sorted by cell, then by rank. The last arrival of a cell always ends a bucket.
"""


def buckets_of(cells: Ints, times: Ints, counts: Ints, eps: float, kept_ranks: KeptRanks) -> Buckets:
    """The buckets that these arrivals leave in empty counters of `eps`. O(n log n + b) for b buckets.

    cells, times: shape (n,), in any order; arrivals with equal times keep their order.
    counts: shape (n,), at least 1, with a sum below 2**62 in each cell.
    """
    from tidemark.sketches.compiled.kernels import group_by_cell, times_of_ranks

    if not len(cells):
        return no_buckets()
    # Arrivals of one cell are mostly adjacent, so each group of adjacent arrivals is looked up once.
    begins = np.flatnonzero(np.diff(cells, prepend=-1))
    occupied, group_indices = np.unique(cells[begins], return_inverse=True)
    cell_indices = np.repeat(group_indices, np.diff(begins, append=len(cells)))
    order = np.argsort(times, kind="stable")
    grouped_times, grouped_counts, starts = group_by_cell(
        cell_indices[order], 0, len(occupied), times[order], counts[order]
    )
    # A sum over all cells may overflow int64 and wrap; the difference of two sums, for one cell, is right.
    arrivals_before = np.concatenate([[0], np.cumsum(grouped_counts)])[starts]
    bucket_cells, ranks = kept_ranks(np.diff(arrivals_before), eps)
    bucket_starts = np.concatenate([[0], np.cumsum(np.bincount(bucket_cells))])
    sizes = np.diff(ranks, prepend=0)
    sizes[bucket_starts[:-1]] = ranks[bucket_starts[:-1]]
    ends = times_of_ranks(grouped_times, grouped_counts, starts, as_contiguous(ranks), bucket_starts)
    return Buckets(occupied, bucket_starts, ends, sizes, np.zeros(len(occupied), np.int64))


def expand_ranges(first: Ints, lengths: Ints) -> tuple[Ints, Ints]:
    """(owners, numbers): for each i the numbers first[i] to first[i] + lengths[i] - 1, and i as their owner.

    Example: first [5, 1], lengths [2, 3] gives owners [0, 0, 1, 1, 1] and numbers [5, 6, 1, 2, 3].
    """
    owners = np.repeat(np.arange(len(first)), lengths)
    begins = np.cumsum(lengths) - lengths
    return owners, np.arange(len(owners)) - begins[owners] + first[owners]
