"""Summaries of the keys of live batches that came before the key was declared: the ledger has none.

A reader makes them from the rows of these batches in `events`, as a stream would have made them, until a load
moves the batches to history. Cost: one read of the time and the key's columns in these rows, once per reader.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.tables import DataFile
from tidemark.warehouse.events.reader import BatchRange, EventRowGroups, read_decoded_rows
from tidemark.warehouse.ledger import batch_counts
from tidemark.warehouse.ledger.batch_summaries import TickSummarizer, by_tick
from tidemark.warehouse.ledger.live_summaries import LiveKeys, summarised_keys
from tidemark.warehouse.projections.key_counts import KeyCounts
from tidemark.warehouse.settings.options import Options


def late_keys(
    store: Store,
    options: Options,
    counts: KeyCounts,
    batches: BatchRange,
    rows: Mapping[int, int],
    files: Sequence[DataFile],
) -> list[LiveKeys]:
    """The live keys of a range, one per tick, from the files of `events` that may have its rows.

    rows: the rows of the range by tick, as the ledger has them.

    DamagedWarehouse if `events` has other numbers of rows.
    """
    alone = replace(
        options,
        measure_names=(),
        key=None,
        more_keys=(counts.key.columns,),
        group_names=(),
        companion_names=(),
    )
    summarizer, shares = TickSummarizer(alone, options.eps), map(EventRowGroups.whole_file, files)
    for piece in read_decoded_rows(store.filesystem(), shares, summarizer.columns, [batches], [counts.key]):
        summarizer.add(piece)
    found = by_tick(summarizer.finish(), options.eps)
    if {summary.tick: summary.rows for summary in found} != rows:
        there = sum(summary.rows for summary in found)
        reason = f"the ledger has {sum(rows.values())} live rows, but the table events has {there}"
        raise batch_counts.changed_rows_error(store, {batches: sum(rows.values())}, reason)
    return [summarised_keys(summary, batches, counts.ledger_field) for summary in found]
