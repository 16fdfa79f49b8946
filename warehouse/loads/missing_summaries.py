"""Ledger rows of batches whose rows are in `events` already: after a crash, or where the ledger lost them.

The batch's rows are read and summarised in tasks, as a stream would have summarised them. The commit is that
of an append: a batch that the ledger has by then is not written again.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from tidemark.warehouse.delta import tables
from tidemark.warehouse.delta.table_names import EVENTS
from tidemark.warehouse.events.reader import BatchRange, files_of_batches, split_row_groups
from tidemark.warehouse.ledger import ledger_table
from tidemark.warehouse.ledger.batch_summaries import TickSummary, by_tick
from tidemark.warehouse.loads import tasks
from tidemark.warehouse.work import Work


def write_missing(work: Work, batches: Iterable[BatchRange]) -> int:
    """Writes the ledger rows of single batches, one commit a batch; returns how many were missing."""
    written = 0
    for batch in batches:
        summaries = summarise(work, batch)
        written += ledger_table.append_batch(
            work.store, work.options.eps, batch.source, batch.last, summaries
        )
    return written


def summarise(work: Work, batch: BatchRange) -> list[TickSummary]:
    """The summaries of the batch by tick, computed from its rows in `events`."""
    store, options = work.store, work.options
    eps = ledger_table.level_eps(options.eps, 0)
    files = files_of_batches(tables.open_table(store, EVENTS), [batch])
    share_rows = store.tuning.sort_rows // max(1, len(options.measures))  # none: no rows yet
    shares = [
        tasks.SummariseTask(store, options, (batch,), tuple(share), eps, options.companions)
        for share in split_row_groups(store.filesystem(), files, share_rows)
    ]
    return by_tick(chain.from_iterable(work.executor.run(shares)), eps)
