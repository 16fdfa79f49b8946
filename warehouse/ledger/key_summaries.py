"""What the ledger keeps of the keys of one tick of a batch: counts by hash and time, and the frequent names.

Model. Of the tick's rows with a key there is an ECM-sketch over event time, which gives an upper
bound of any key's count in any stretch of time, and a listing of names with what is known of
their counts in the whole tick:

    known <= count <= known + slack        of a listed name
             count <  floor                of any other name

Of a batch's own tick the listing is exact (slack 0, every name with 1/THETA of the rows). Of a
range of the cascade it holds every name that may have reached the floor: a name has at most

    the sum over the parts of (known + slack where listed, floor - 1 where not)

and no more than the sketch's upper bound. A name that no part lists has at most the sum of all
(floor - 1), so the floor of the range lies above that sum, and nothing frequent is left out.

Sources: ECM-sketches as in `sketches`; bounds of listed names that add are those of Misra and Gries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidemark.sketches import ECM, Counting, digest, merge_ecm
from tidemark.sketches.counters.counting import FARTHEST
from tidemark.sketches.ecm.ecm_sizes import eps_of_merge_inputs, sizes_for_points
from tidemark.sketches.hashing.row_hashes import RowHashes
from tidemark.warehouse.columns.heavy_keys import BYTES as LISTED_BYTES
from tidemark.warehouse.columns.heavy_keys import ENTRIES, THETA
from tidemark.warehouse.columns.keys import KeyColumn, Names, find_names, name_sizes, take_names, unify_names
from tidemark.warehouse.ledger.cascade import MERGES
from tidemark.warehouse.settings.options import Options

SEED = 0  # of the row hashes: the same in all warehouses, so that their sketches have inner products


@dataclass(frozen=True, slots=True)
class KeyPromise:
    """A live count errs by at most eps * m with probability 1 - delta."""

    eps: float
    delta: float

    @classmethod
    def of(cls, options: Options) -> KeyPromise:
        """What live counts of keys promise in a warehouse of these options."""
        return cls(options.key_eps, options.key_delta)

    @property
    def hashes(self) -> RowHashes:
        """The row hashes of every sketch of the warehouse."""
        wanted = sizes_for_points(self.eps, self.delta)
        return RowHashes(wanted.rows, wanted.width, SEED)

    def sketch(self) -> ECM:
        """An empty sketch, whose counters keep eps through all merges."""
        counting = Counting("EH", eps_of_merge_inputs(self.eps, MERGES))
        return ECM.of(self.hashes, counting, eps=self.eps, delta=self.delta)


@dataclass(frozen=True, slots=True, eq=False)
class KeySummary:
    """The keys of one tick; `nulls` rows have none. Of names (k,), ascending, `known` and `slack`."""

    nulls: int
    sketch: ECM
    names: Names
    known: NDArray[np.int64]
    slack: NDArray[np.int64]
    floor: int

    @property
    def rows(self) -> int:
        """The rows with a key."""
        return int(self.sketch.n)


def digests(names: Names) -> NDArray[np.uint64]:
    """The digest of each name."""
    found: NDArray[np.uint64] = digest(names)
    return found


def summarise(column: KeyColumn, times: NDArray[np.int64], promise: KeyPromise) -> KeySummary:
    """The summary of rows of one tick; `times` (rows,) in microseconds, in any order."""
    kept = ~column.null
    codes = np.flatnonzero(kept) if column.codes is None else column.codes[kept]
    used = np.bincount(codes, minlength=len(column.names)) > 0
    names, (place,) = unify_names([take_names(column.names, np.flatnonzero(used))])
    code = place[np.cumsum(used)[codes] - 1]
    moments = np.clip(times[kept], -FARTHEST, FARTHEST)  # a time of another geological age stays in its tick
    order = np.argsort(moments, kind="stable")
    sketch = promise.sketch()
    if len(code):
        sketch.update(digests(names)[code][order], moments[order])
        sketch.counts.settle()
    counts = np.bincount(code, minlength=len(names)).astype(np.int64)
    floor = max(1, -(-len(code) // THETA))
    return _listed(int(column.null.sum()), sketch, names, counts, np.zeros_like(counts), floor)


def join(parts: Sequence[KeySummary]) -> KeySummary | None:
    """The summary of several of one tick; None of none, which a warehouse without a key has."""
    if len(parts) < 2:
        return parts[0] if parts else None
    sketch = merge_ecm([part.sketch for part in parts])
    names, places = unify_names([part.names for part in parts])
    known, most = np.zeros(len(names), np.int64), np.zeros(len(names), np.int64)
    unlisted = sum(part.floor - 1 for part in parts)
    most += unlisted
    for part, place in zip(parts, places, strict=True):
        known[place] += part.known
        most[place] += part.known + part.slack - (part.floor - 1)
    if len(names):
        most = np.minimum(most, sketch.points(digests(names)).hi)
    floor = max(-(-sketch.n // THETA), unlisted + 1)
    return _listed(sum(part.nulls for part in parts), sketch, names, known, most - known, floor)


def _listed(
    nulls: int, sketch: ECM, names: Names, known: NDArray[np.int64], slack: NDArray[np.int64], floor: int
) -> KeySummary:
    """With the names that may reach the floor, this raised until they fit the budget."""
    most = known + slack
    order = np.argsort(-most, kind="stable")
    fits = int(
        np.searchsorted(np.cumsum(name_sizes(take_names(names, order)) + 16), LISTED_BYTES, side="right")
    )
    fits = min(fits, ENTRIES, len(order))
    if fits < len(order):
        floor = max(floor, int(most[order[fits]]) + 1)
    kept = np.flatnonzero(most >= floor)
    return KeySummary(nulls, sketch, take_names(names, kept), known[kept], slack[kept], floor)


def most_of(one: Any, asked: Names) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """What a listing (`names`, `known`, `slack`, `floor`) says of names, ascending: least and most."""
    at = find_names(one.names, asked)
    listed = at >= 0
    least, most = np.zeros(len(at), np.int64), np.full(len(at), one.floor - 1, dtype=np.int64)
    least[listed] = one.known[at[listed]]
    most[listed] = least[listed] + one.slack[at[listed]]
    return least, most
