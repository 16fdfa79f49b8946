"""Where the cells of all queries lie in one vector a site, and the arrays of the compiled loops.

A site has one ECM-sketch for all queries. It has the size for inner products if any query needs one, else
for points; its counters give an estimate for each window that a query asks about. With `bits` the keys are
integers, and there is a level for each size of a dyadic range, as in ecm/dyadic.py; without, keys are digests
and there is one level. A second stream has the same cells again, after those of the first.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidemark.sketches.counters.exponential_histogram import most_buckets
from tidemark.sketches.ecm.ecm_sizes import sizes_for_inner_products, sizes_for_points
from tidemark.sketches.errors import InvalidInput
from tidemark.sketches.geometric.queries import (
    Frequent,
    HeavyPrefixes,
    InnerProduct,
    Maximum,
    Quantile,
    Query,
    Range,
    SelfJoin,
)
from tidemark.sketches.hashing.row_hashes import RowHashes, checked_hashes

Ints = NDArray[np.int64]
LEVELS = 34  # of an exponential histogram: more arrivals than 2**34 a site are refused
MOST_ARRIVALS = 2**34


@dataclass(frozen=True, slots=True)
class Layout:
    """The cells of a vector and the conditions on them.

    queries: what is monitored. sites: how many. hashes: of each level, the lowest first.
    most: how many buckets a counter, an exponential histogram, has of size 1 and of each larger size.
    windows: the windows asked about, ascending.
    """

    queries: tuple[Query, ...]
    sites: int
    hashes: tuple[RowHashes, ...]
    most: tuple[int, int]
    windows: tuple[int, ...]
    bits: int | None
    streams: int
    eps_sw: float

    @property
    def bases(self) -> list[int]:
        """The first cell of each level, and the number of cells of a stream."""
        return [0, *np.cumsum([one.cells for one in self.hashes]).tolist()]

    @property
    def cells(self) -> int:
        """The cells of the vector of one window."""
        return self.streams * self.bases[-1]

    def window_of(self, query: Query) -> int:
        """The index of the query's window."""
        return self.windows.index(query.window)

    def cells_of(self, keys: NDArray[np.uint64], streams: Ints | None = None) -> Ints:
        """The cells of each key at all levels, shape (keys, rows of all levels). O(rows) a key."""
        found = [
            one.cells_of(keys >> np.uint64(level)) + base
            for level, (one, base) in enumerate(zip(self.hashes, self.bases, strict=False))
        ]
        cells = np.concatenate(found).T
        if streams is not None:
            cells = cells + (streams * self.bases[-1])[:, None]
        return np.ascontiguousarray(cells, dtype=np.int64)

    def level_cells(self, level: int, nodes: Ints | NDArray[np.uint64]) -> Ints:
        """The cells of dyadic ranges of one level, or of keys at level 0, shape (nodes, rows)."""
        return self.hashes[level].cells_of(nodes.astype(np.uint64)).T + self.bases[level]

    def cover(self, low: int, high: int) -> list[tuple[int, int]]:
        """The dyadic ranges, as (level, number), that cover the keys low to high - 1, disjointly."""
        found, top = [], len(self.hashes) - 1
        for level in range(top):
            if low < high and low & 1:
                found.append((level, low))
                low += 1
            if low < high and high & 1:
                high -= 1
                found.append((level, high))
            low, high = low >> 1, high >> 1
        return found + [(top, node) for node in range(low, high)]


def layout_of(
    queries: Sequence[Query], sites: int, *, eps: float, delta: float, bits: int | None, seed: int
) -> Layout:
    """The layout for these queries. Raises InvalidInput for values out of range."""
    forms = any(isinstance(one, SelfJoin | InnerProduct) for one in queries)
    sizes = (sizes_for_inner_products if forms else sizes_for_points)(eps, delta)
    if not queries or not 1 <= sites <= 2**16 or not (bits is None or 1 <= bits <= 62):
        raise InvalidInput(
            f"got {len(queries)} queries, {sites} sites, bits = {bits}; expected at least one query, 1 to "
            "2**16 sites, and 1 to 62 bits or None"
        )
    for one in queries:
        _check(one, bits)
    if bits is None:
        hashes = [RowHashes(sizes.rows, sizes.width, seed)]
    else:
        top = max(0, bits - (sizes.width.bit_length() - 1))
        hashes = [RowHashes(sizes.rows, sizes.width, (seed + level) % 2**64) for level in range(top)]
        hashes.append(RowHashes(1, 2 ** (bits - top), 0, direct=True))
    streams = 2 if any(isinstance(one, InnerProduct) for one in queries) else 1
    return Layout(
        tuple(queries),
        sites,
        tuple(checked_hashes(one) for one in hashes),
        most_buckets(sizes.eps_sw),
        tuple(sorted({one.window for one in queries})),
        bits,
        streams,
        sizes.eps_sw,
    )


def _check(query: Query, bits: int | None) -> None:
    needs_levels = isinstance(query, HeavyPrefixes | Range | Maximum | Quantile)
    is_right = 0 < query.theta < 1 and 1 <= query.window <= 2**60 and (bits is not None or not needs_levels)
    if isinstance(query, Frequent | HeavyPrefixes):
        is_right &= query.threshold > 0
    if isinstance(query, Range):
        is_right &= 0 <= query.low <= query.high < 2 ** (bits or 0)
    if isinstance(query, Quantile):
        is_right &= 0 < query.phi < 1
    if not is_right:
        raise InvalidInput(
            f"got {query} and bits = {bits}; expected 0 < theta < 1, a window from 1 to 2**60, a positive "
            "threshold, 0 < phi < 1, keys below 2**bits, and bits for what asks about ranges of keys"
        )
