"""Summaries of the keys of one tick: an ECM-sketch of the counts by hash and time, frequent names, a sample.

Model. The sketch covers the tick's rows that have a key. It gives an upper bound of any key's count in any
interval of event time. The listing has names with bounds of their counts in the whole tick:

    known <= count <= known + slack        of a listed name
             count <  floor                of any other name

In a batch's own tick the listing is exact: slack is 0, and every name whose count reaches the floor, about
1/THETA of the rows, is listed. A range of the cascade joins the listings of its parts. A name's count in the
range is at most

    the sum over the parts of (known + slack if the part lists it, floor - 1 if not)

and at most the sketch's upper bound. The range lists every name for which this bound reaches the floor of the
range. A name that no part lists has at most the sum of all (floor - 1). The floor of the range is above that
sum, so no name that reaches it is missing.

The sample has the hashes of up to LEDGER_SAMPLE keys, each with its rows and their first and last time.

Sources: O. Papapetrou, M. Garofalakis and A. Deligiannakis, VLDB Journal 2015 (ECM-sketches); J. Misra and
D. Gries, Science of Computer Programming 1982 (bounds of listed names that add).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidemark.sketches import ECM, Counting, SketchError, digest, merge_ecm
from tidemark.sketches.counters.counting import TIME_LIMIT
from tidemark.sketches.ecm.ecm_sizes import eps_of_merge_inputs, sizes_for_points
from tidemark.sketches.hashing.row_hashes import RowHashes
from tidemark.sketches.sampling import KeySample, SampleSize, merge_samples
from tidemark.warehouse.cascade import MERGES
from tidemark.warehouse.columns.heavy_keys import BYTES as LISTED_BYTES
from tidemark.warehouse.columns.heavy_keys import ENTRIES, THETA
from tidemark.warehouse.columns.keys import KeyColumn, Names, find_names, name_sizes, take_names, unify_names
from tidemark.warehouse.errors import DamagedWarehouse, InputError
from tidemark.warehouse.integrity.digests import name_words
from tidemark.warehouse.settings.options import Options

LEDGER_SAMPLE = SampleSize(keys=2**12, entries=2**12)  # a key has one entry in a tick
LEAST_DELTA = 1e-12
LEAST_EPS = math.expm1((MERGES + 1) * math.log1p(1e-6))  # so that its counters err by a millionth or more
SEED = 0  # of the row hashes: equal in all warehouses, because an inner product needs equal hashes


@dataclass(frozen=True, slots=True)
class KeyPromise:
    """The guarantee of a live count: an error of at most eps * m with probability at least 1 - delta."""

    eps: float
    delta: float

    @classmethod
    def of(cls, options: Options) -> KeyPromise:
        """The guarantee of a warehouse with these options."""
        return cls(options.key_eps, options.key_delta)

    @property
    def hashes(self) -> RowHashes:
        """The row hashes of the sketches that the warehouse makes now."""
        sizes_needed = sizes_for_points(self.eps, self.delta)
        return RowHashes(sizes_needed.rows, sizes_needed.width, SEED)

    def hashes_of(self, cells: int) -> RowHashes:
        """The row hashes of a sketch with so many cells, of this delta and any eps.

        The number of rows follows from delta. DamagedWarehouse if no sketch has so many cells.
        """
        own = self.hashes
        if cells == own.cells:
            return own
        if not cells or cells % own.rows:
            raise DamagedWarehouse(
                f"a summary of keys in the ledger has {cells} cells, expected a multiple of {own.rows}. Run "
                "repair: it makes the ledger's rows again from events."
            )
        return RowHashes(own.rows, cells // own.rows, SEED)

    def check(self) -> None:
        """InputError if no sketch can keep it."""
        try:
            self.sketch()
        except SketchError as error:
            raise InputError(
                f"key_eps={self.eps!r} with key_delta={self.delta!r} is too small for any sketch of keys: "
                f"{error}. Give a key_eps of at least {LEAST_EPS:.1e} and a key_delta of at least "
                f"{LEAST_DELTA:.0e}, or larger ones if both are small."
            ) from error

    def sketch(self) -> ECM:
        """An empty sketch. Its counters are so accurate that eps still holds after MERGES nested merges."""
        counting = Counting("EH", eps_of_merge_inputs(self.eps, MERGES))
        return ECM.of(self.hashes, counting, eps=self.eps, delta=self.delta)


@dataclass(frozen=True, slots=True, eq=False)
class KeySummary:
    """The keys of one tick.

    `nulls` is the number of rows with a NULL key. `names`, `known` and `slack` have shape (k,), by name,
    ascending; with `floor` they are the listing (see the module).

    Example: names [a, b], known [5, 3], slack [0, 2], floor 2 say that a has 5 rows, b has 3 to 5, and every
    other key has at most 1.
    """

    nulls: int
    sketch: ECM
    names: Names
    known: NDArray[np.int64]
    slack: NDArray[np.int64]
    floor: int
    sample: KeySample

    @property
    def rows(self) -> int:
        """The rows with a key."""
        return int(self.sketch.n)


def digests(names: Names) -> NDArray[np.uint64]:
    """The digest of each name, shape (k,)."""
    hashed: NDArray[np.uint64] = digest(names)
    return hashed


def summarise(column: KeyColumn, times: NDArray[np.int64], promise: KeyPromise, tick: int) -> KeySummary:
    """The summary of the keys of one tick.

    `times`, shape (rows,), are the event times in microseconds, in any order.
    """
    kept = ~column.null
    codes = np.flatnonzero(kept) if column.codes is None else column.codes[kept]
    used = np.bincount(codes, minlength=len(column.names)) > 0
    names, (place,) = unify_names([take_names(column.names, np.flatnonzero(used))])
    name_of_row = place[np.cumsum(used)[codes] - 1]
    # Out-of-range times count at the nearest time that a sketch takes.
    moments = np.clip(times[kept], -TIME_LIMIT, TIME_LIMIT)
    order = np.argsort(moments)  # equal times in any order: each row leaves only its cells and its time
    moments, name_of_row = moments[order], name_of_row[order]
    sketch = promise.sketch()
    if len(name_of_row):
        sketch.update(digests(names)[name_of_row], moments)
    counts = np.bincount(name_of_row, minlength=len(names)).astype(np.int64)
    floor = max(1, -(-len(name_of_row) // THETA))
    nulls, slack = int(column.null.sum()), np.zeros_like(counts)
    sample = _sample(tick, names, counts, name_of_row, moments)
    return _listed(nulls, sketch, names, counts, slack, floor, sample)


def _sample(
    tick: int,
    names: Names,
    counts: NDArray[np.int64],
    name_of_row: NDArray[np.int64],
    moments: NDArray[np.int64],
) -> KeySample:
    """The sample of rows in order of time. `names` may have some without rows: these are no keys."""
    times = np.empty((len(names), 2), np.int64)
    times[name_of_row[::-1], 0] = moments[::-1]  # if several values get one place, the last one stays
    times[name_of_row, 1] = moments
    keys = np.flatnonzero(counts)
    ticks = np.full(len(keys), tick)
    return KeySample.of(LEDGER_SAMPLE, name_words(names)[keys], ticks, counts[keys], times[keys])


def are_alike(parts: Sequence[KeySummary]) -> bool:
    """Whether the sketches of the summaries are of one key_eps, so that they can be joined."""
    return len({(part.sketch.hashes, part.sketch.eps, part.sketch.delta) for part in parts}) <= 1


def join(parts: Sequence[KeySummary]) -> KeySummary:
    """The summary of all rows of several summaries of one tick, at least one."""
    if len(parts) == 1:
        return parts[0]
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
    sample = merge_samples([part.sample for part in parts], LEDGER_SAMPLE)
    return _listed(sum(part.nulls for part in parts), sketch, names, known, most - known, floor, sample)


def _listed(
    nulls: int,
    sketch: ECM,
    names: Names,
    known: NDArray[np.int64],
    slack: NDArray[np.int64],
    floor: int,
    sample: KeySample,
) -> KeySummary:
    """The summary that lists the names which may reach the floor.

    The floor is raised until the names fit: ENTRIES names and LISTED_BYTES bytes at most.
    """
    most = known + slack
    order = np.argsort(-most, kind="stable")
    fits = int(
        np.searchsorted(np.cumsum(name_sizes(take_names(names, order)) + 16), LISTED_BYTES, side="right")
    )
    fits = min(fits, ENTRIES, len(order))
    if fits < len(order):
        floor = max(floor, int(most[order[fits]]) + 1)
    kept = np.flatnonzero(most >= floor)
    return KeySummary(nulls, sketch, take_names(names, kept), known[kept], slack[kept], floor, sample)


def listed_bounds(listing: Any, names: Names) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The lower and upper bounds of the counts of some names, each of shape (k,), both inclusive.

    `listing` has the fields `names`, `known`, `slack` and `floor`: a KeySummary or a LiveKeys.
    """
    index = find_names(listing.names, names)
    listed = index >= 0
    least, most = np.zeros(len(index), np.int64), np.full(len(index), listing.floor - 1, dtype=np.int64)
    least[listed] = listing.known[index[listed]]
    most[listed] = least[listed] + listing.slack[index[listed]]
    return least, most
