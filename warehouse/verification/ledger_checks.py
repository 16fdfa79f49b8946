"""The checks of `verify` on the ledger: nested ranges add up, and bounds hold for the rows in `events`.

For each projection, the rows of each live range in `events` are read once. A check that fails raises
DamagedWarehouse, which `verify` reports.
"""

from __future__ import annotations

from collections import Counter
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidemark.sketches import FrequencyBounds
from tidemark.sketches.bounds.count_bounds import exact
from tidemark.warehouse.columns.keys import take_names
from tidemark.warehouse.columns.tick_counts import sum_tick_counts
from tidemark.warehouse.columns.value_encoding import Measure
from tidemark.warehouse.delta.table_names import LEDGER
from tidemark.warehouse.errors import DamagedWarehouse, InputError, NotBuilt
from tidemark.warehouse.events.reader import BULK, BatchRange
from tidemark.warehouse.events.steps import planned_batches
from tidemark.warehouse.ledger import ledger_table
from tidemark.warehouse.ledger.key_summaries import KeyPromise, digests, listed_bounds
from tidemark.warehouse.ledger.ledger_rows import RANGE_COLUMNS
from tidemark.warehouse.ledger.live_summaries import LiveKeys, LiveRow
from tidemark.warehouse.projections.key_counts import KeyCounts
from tidemark.warehouse.projections.sorted_values import SortedValues
from tidemark.warehouse.verification.pinned_tables import PinnedTables
from tidemark.warehouse.verification.run_checks import scan_events


def ticks_once_and_sums_equal(pinned: PinnedTables) -> str:
    """Checks that each tick of a range is stored once, and that the counts of a wide range are right.

    They must equal the sums over the widest ranges inside it, tick by tick. A wide range that has no parts in
    the ledger is not checked, nor is one that plans cover in part: maintenance removes their parts.
    """
    store = pinned.store
    files = ledger_table.ranges_by_file(store, pinned.table(LEDGER))
    columns = [*RANGE_COLUMNS, "tick", "rows"]
    rows = ledger_table.read_rows(store, files, chain.from_iterable(files.values()), columns)
    counts: dict[BatchRange, dict[int, int]] = {}
    for source, first, last, tick, count in zip(
        *(rows.column(name).to_pylist() for name in columns), strict=True
    ):
        batches = BatchRange(source, first, last)
        tick_counts = counts.setdefault(batches, {})
        if tick in tick_counts:
            raise DamagedWarehouse(f"tick {tick} of {batches.text} is in the ledger more than once")
        tick_counts[tick] = count
    planned = planned_batches(pinned.plans)
    sums_of_parts: dict[BatchRange, Counter[int]] = {}
    enclosing = ledger_table.enclosing_ranges(counts)
    for batches, tick_counts in counts.items():
        whole = next(iter(enclosing[batches]), None)
        if whole is not None and not ledger_table.partly_planned(whole, planned):
            sums_of_parts.setdefault(whole, Counter()).update(tick_counts)
    for whole, sums in sums_of_parts.items():
        if +sums != +Counter(counts[whole]):
            raise DamagedWarehouse(f"the row counts of {whole.text} are not those of its parts")
    return f"{rows.num_rows} rows of {len(counts)} ranges"


def ranks_hold(pinned: PinnedTables, measure: Measure) -> str:
    """Checks lo(x) <= true rank of x <= hi(x) for every live summary, at every value x of its rows.

    If a measure that was added later is not built yet, that is no violation: the detail says so.
    """
    projection = SortedValues(measure)
    try:
        view = pinned.snapshot.view(measure.name)
    except NotBuilt as error:
        return f"not checked: {error}"
    by_range: dict[BatchRange, list[LiveRow]] = {}
    for row in view.live:
        by_range.setdefault(row.batches, []).append(row)
    for batches, live_rows in by_range.items():
        pieces = [values for values, _ in scan_events(pinned, projection, [batches])]
        sorted_values = projection.sort(pieces)
        for row in live_rows:
            _check_ranks(row, sorted_values.values[sorted_values.ticks == row.tick], batches)
    return f"{len(view.live)} ledger rows"


def _check_ranks(row: LiveRow, values: NDArray[Any], batches: BatchRange) -> None:
    """DamagedWarehouse unless the row's bounds hold; `values` are its true values, ascending.

    The invariants of the sketch hold: its bytes were decoded.
    """
    ranks_le = np.searchsorted(values, values, side="right")
    ranks_lt = np.searchsorted(values, values, side="left")
    for true_ranks, bounds in ((ranks_le, row.sketch.rank_le), (ranks_lt, row.sketch.rank_lt)):
        lo, hi = bounds(values)
        if len(values) != row.sketch.n or bool(np.any((lo > true_ranks) | (true_ranks > hi))):
            raise DamagedWarehouse(
                f"the summary of tick {row.tick} in {batches.text} does not hold its bounds"
            )


def counts_hold(pinned: PinnedTables, projection: KeyCounts) -> str:
    """Checks the counts of a key in every live summary.

    The cells are upper bounds of every key's count, the listing bounds every count from both sides, and the
    numbers of rows with and without a key are exact. If a key that was added later is not built yet, that is
    no violation: the detail says so. Nor is it a violation if live batches from before the key lack it, or
    the batches of a bulk load, which the ledger never has.
    """
    try:
        view = pinned.snapshot.keys_view(projection.key.columns)
    except InputError as error:
        if projection.runs_table not in pinned.snapshot.options.built_from:
            raise
        return f"not checked: {error}"
    promise = KeyPromise.of(pinned.snapshot.options)
    by_range: dict[BatchRange, list[LiveKeys]] = {}
    for live in view.live:
        is_late = live.late is not None and not live.batches.source.startswith(BULK)
        if is_late and projection.runs_table not in pinned.snapshot.options.built_from:
            raise DamagedWarehouse(f"the ledger has no summary of {live.batches.text}")
        by_range.setdefault(live.batches, []).append(live)
    for batches, summaries in by_range.items():
        pieces = list(scan_events(pinned, projection, [batches]))
        key_counts = projection.sort([rows for rows, _ in pieces])
        totals = sum_tick_counts([tick_counts for _, tick_counts in pieces])
        for live in summaries:
            in_tick = np.flatnonzero(key_counts.ticks == live.tick)
            names = take_names(key_counts.names, key_counts.codes[in_tick])
            counts = key_counts.counts[in_tick]
            hashes = promise.hashes_of(len(live.cells))
            cells = FrequencyBounds(hashes, exact(live.cells)).points(digests(names)).hi
            least, most = listed_bounds(live, names)
            nulls = int(totals.nulls[totals.ticks == live.tick].sum())
            if (live.rows, live.nulls) != (int(counts.sum()), nulls):
                raise DamagedWarehouse(f"tick {live.tick} of {batches.text} has other rows in events")
            if np.any(counts > np.minimum(cells, most)) or np.any(counts < least):
                raise DamagedWarehouse(
                    f"the bounds of key counts of tick {live.tick} in {batches.text} do not hold"
                )
    return f"{len(view.live)} ledger rows"
