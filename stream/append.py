"""One batch of a stream: rows into `events`, then a summary of each tick into the ledger.

Both are idempotent by (source, batch), so a batch that is replayed after a crash counts once.
The batch exists for readers and loads from the ledger's commit on.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from warehouse import ingest, ledger, tables, tasks
from warehouse.create import read_options
from warehouse.errors import InputError
from warehouse.events import Batches, event_files, share_out
from warehouse.load import BULK, next_step
from warehouse.measures import Measure
from warehouse.options import Options
from warehouse.storage import EVENTS, LEDGER, Store
from warehouse.ticks import NO_TICK

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# The live side may err by eps/4 in all: a batch's own summaries take half, merges of many the rest.
LEAF_SHARE = 8


def append(
    spark: SparkSession,
    uri: str | os.PathLike[str],
    rows: DataFrame,
    *,
    source: str,
    batch: int,
    storage_options: dict[str, str] | None = None,
) -> bool:
    """Appends one batch of a source; False where the warehouse has it already.

    `batch` is the source's own number, rising from 0; a number at or below one that is there
    is a replay and changes nothing.
    """
    if not isinstance(source, str) or not source or source.startswith(BULK):
        raise InputError(f"source must be a name that does not start with {BULK!r}, got {source!r}.")
    if isinstance(batch, bool) or not isinstance(batch, int) or batch < 0:
        raise InputError(f"batch must be a whole number from 0 on, got {batch!r}.")
    store = Store.of(uri, storage_options)
    options = read_options(store)
    ingest.check_rows(options, rows)
    if tables.has_transaction(tables.open_table(store, LEDGER), source, batch):
        return False
    batches = Batches(source, batch, batch)
    ingest.append_rows(store, rows, batches, next_step(store))
    return ledger.append_batch(store, source, batch, _summarise(spark, store, read_options(store), batches))


def _summarise(
    spark: SparkSession, store: Store, options: Options, batches: Batches
) -> list[ledger.TickSummary]:
    """A summary of each tick that the batch touched; one of no rows where it is empty."""
    eps = options.eps / LEAF_SHARE
    time = Measure(options.time, dict(options.columns)[options.time]) if options.time else None
    found = event_files(tables.open_table(store, EVENTS), [batches])
    work = [
        tasks.SummariseTask(store, options.measures, time, (batches,), tuple(shares), eps)
        for shares in share_out(store.filesystem(), found, tasks.SORT_ROWS // len(options.measures))
    ]
    ticks: dict[int, ledger.TickSummary] = {}
    for part in tasks.run(spark, work):
        for one in part:
            ticks[one.tick] = tasks.join(ticks[one.tick], one, eps) if one.tick in ticks else one
    return sorted(ticks.values(), key=lambda one: one.tick) or [ledger.TickSummary(NO_TICK, 0, None, ())]
