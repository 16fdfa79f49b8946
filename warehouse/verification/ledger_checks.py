"""Verify, the live part: what the ledger says of values and of keys holds for the rows in `events`.

Each live range is read once a projection. What does not hold raises DamagedWarehouse, which `verify` tells
as a check that failed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidemark.sketches import FrequencyBounds
from tidemark.sketches.bounds.count_bounds import exact
from tidemark.warehouse.columns.keys import take_names
from tidemark.warehouse.columns.measures import Measure
from tidemark.warehouse.columns.tick_counts import sum_tick_counts
from tidemark.warehouse.errors import DamagedWarehouse
from tidemark.warehouse.events.reader import BatchRange
from tidemark.warehouse.ledger.key_summaries import KeyPromise, digests, listed_bounds
from tidemark.warehouse.ledger.live_summaries import LiveKeys
from tidemark.warehouse.projections.key_counts import KeyCounts
from tidemark.warehouse.projections.sorted_values import SortedValues
from tidemark.warehouse.verification.pinned_tables import PinnedTables
from tidemark.warehouse.verification.run_checks import scan_events


def ranks_hold(moment: PinnedTables, measure: Measure) -> str:
    """lo(x) <= true rank <= hi(x) of every live summary, at all its values and between."""
    view, values = moment.snapshot.view(measure.name), SortedValues(measure)
    by_range: dict[BatchRange, list[Any]] = {}
    for row in view.live:
        by_range.setdefault(BatchRange(row.source, row.first_batch, row.last_batch), []).append(row)
    for batches, rows in by_range.items():
        every = values.sort([part for part, _ in scan_events(moment, values, [batches])])
        for row in rows:
            _row_holds(row, every.values[every.ticks == row.tick], batches)
    return f"{len(view.live)} ledger rows"


def _row_holds(row: Any, values: NDArray[Any], batches: BatchRange) -> None:
    row.sketch.check_invariants()
    le, lt = np.searchsorted(values, values, side="right"), np.searchsorted(values, values, side="left")
    for true, ranks in ((le, row.sketch.rank_le), (lt, row.sketch.rank_lt)):
        lo, hi = ranks(values)
        if len(values) != row.sketch.n or bool(np.any((lo > true) | (true > hi))):
            raise DamagedWarehouse(
                f"the summary of tick {row.tick} in {batches.text} does not hold its bounds"
            )


def counts_hold(moment: PinnedTables) -> str:
    """Cells count no key too low, listings bound every count, and both know all the rows."""
    view = moment.snapshot.keys_view()
    projection = KeyCounts(view.key)
    hashes = KeyPromise.of(moment.snapshot.options).hashes
    by_range: dict[BatchRange, list[LiveKeys]] = {}
    for live in view.live:
        by_range.setdefault(live.batches, []).append(live)
    for batches, lives in by_range.items():
        parts = list(scan_events(moment, projection, [batches]))
        every, totals = (
            projection.sort([rows for rows, _ in parts]),
            sum_tick_counts([each for _, each in parts]),
        )
        for live in lives:
            here = np.flatnonzero(every.ticks == live.tick)
            names, counts = take_names(every.names, every.codes[here]), every.counts[here]
            cells = FrequencyBounds(hashes, exact(live.cells)).points(digests(names)).hi
            least, most = listed_bounds(live, names)
            nulls = int(totals.nulls[totals.ticks == live.tick].sum())
            if (live.rows, live.nulls) != (int(counts.sum()), nulls):
                raise DamagedWarehouse(f"tick {live.tick} of {batches.text} has other rows in events")
            if np.any(counts > np.minimum(cells, most)) or np.any(counts < least):
                raise DamagedWarehouse(
                    f"the counts of keys of tick {live.tick} in {batches.text} are no bounds"
                )
    return f"{len(view.live)} ledger rows"
