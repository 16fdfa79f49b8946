"""The buckets that a whole stream leaves in deterministic counters, computed without running the counters.

The sizes of a cell's buckets depend only on the number of arrivals in the cell. Exponential histograms and
waves each have a function for them (`kept_sizes`). A bucket holds the arrivals after the end of the bucket
before it, so the sizes and the times determine the same buckets that updates would leave. Tests assert that
both are equal.

Cost: O(n + b) for n arrivals in order of time and b buckets. The capacity of counters costs nothing.
"""

import numpy as np

from tidemark.sketches.counters import deterministic_wave, exponential_histogram
from tidemark.sketches.counters.buckets import Buckets, Ints, join_buckets, no_buckets


def buckets_of(cells: Ints, times: Ints, counts: Ints, eps: float, kind: str) -> Buckets:
    """The buckets that these arrivals leave in empty counters of `eps`. O(n log n + b) for b buckets.

    kind: "EH" or "DW".
    cells, times: shape (n,), in any order; arrivals with equal times keep their order.
    counts: shape (n,), at least 1, with a sum below 2**62 in each cell.
    """
    from tidemark.sketches.compiled.kernels import group_by_cell

    if not len(cells):
        return no_buckets()
    # Arrivals of one cell are mostly adjacent, so each group of adjacent arrivals is looked up once.
    begins = np.flatnonzero(np.diff(cells, prepend=-1))
    occupied, group_indices = np.unique(cells[begins], return_inverse=True)
    cell_indices = np.repeat(group_indices, np.diff(begins, append=len(cells)))
    order = np.argsort(times, kind="stable")
    grouped = group_by_cell(cell_indices[order], 0, len(occupied), times[order], counts[order])
    return _buckets_of_groups(occupied, *grouped, eps, kind)


def buckets_in_order(
    cells: Ints, times: Ints, counts: Ints, all_cells: int, eps: float, kind: str
) -> Buckets:
    """The buckets that these arrivals leave in `all_cells` empty counters of `eps`. O(rows * n + b).

    cells, times, counts: arrivals in order of time, at least one, as CounterArrays.add takes them.
    """
    from tidemark.sketches.compiled.kernels import group_by_cell

    width, parts = all_cells // len(cells), []
    for first, row_cells in zip(range(0, all_cells, width), cells, strict=True):
        row_times, row_counts, starts = group_by_cell(row_cells, first, width, times, counts)
        occupied = np.flatnonzero(np.diff(starts))
        starts = np.append(starts[occupied], starts[-1])
        parts.append(_buckets_of_groups(first + occupied, row_times, row_counts, starts, eps, kind))
    return join_buckets(parts)


def _buckets_of_groups(
    cells: Ints, times: Ints, counts: Ints, starts: Ints, eps: float, kind: str
) -> Buckets:
    """The buckets of cells that have arrivals; times, counts, starts: as `group_by_cell` returns them."""
    from tidemark.sketches.compiled.kernels import times_of_ranks

    # A sum over all cells may overflow int64 and wrap; the difference of two sums, for one cell, is right.
    arrivals_before = np.concatenate([[0], np.cumsum(counts)])[starts] if len(counts) else starts
    counters = deterministic_wave if kind == "DW" else exponential_histogram
    bucket_counts, sizes = counters.kept_sizes(np.diff(arrivals_before), eps)
    bucket_starts = np.concatenate([[0], np.cumsum(bucket_counts)])
    arrivals_until = np.cumsum(sizes)
    if len(counts):
        ranks = arrivals_until - np.repeat(arrivals_before[:-1], bucket_counts)
        ends = times_of_ranks(times, counts, starts, ranks, bucket_starts)
    else:
        ends = times[arrivals_until - 1]
    return Buckets(cells, bucket_starts, ends, sizes, np.zeros(len(cells), np.int64))
