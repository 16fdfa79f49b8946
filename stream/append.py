"""One batch of a stream: rows into `events`, their summaries by tick into the ledger.

Both are idempotent by (source, batch), so a batch that is replayed after a crash counts once.
The batch exists for readers and loads from the ledger's commit on. The tasks that write the rows
summarise them on the way; only a batch that crashed between the two commits is read again.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from warehouse import ingest, ledger, tables, tasks
from warehouse.create import read_options
from warehouse.errors import InputError
from warehouse.events import Batches, event_files, share_out
from warehouse.ingest import TAKE_ALL, Appended
from warehouse.load import BULK, next_step
from warehouse.options import Options
from warehouse.rowfiles import Sieve
from warehouse.storage import EVENTS, LEDGER, Store
from warehouse.summaries import Summaries, TickSummary

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


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
    if isinstance(batch, bool) or not isinstance(batch, int) or batch < 0:
        raise InputError(f"batch must be a whole number from 0 on, got {batch!r}.")
    store = Store.of(uri, storage_options)
    return append_batch(spark, store, rows, Batches(checked_source(source), batch, batch)) is not None


def checked_source(source: object) -> str:
    """The name of a stream."""
    if not isinstance(source, str) or not source or source.startswith(BULK):
        raise InputError(f"source must be a name that does not start with {BULK!r}, got {source!r}.")
    return source


def append_batch(
    spark: SparkSession,
    store: Store,
    rows: DataFrame,
    batch: Batches,
    *,
    sieve: Sieve = TAKE_ALL,
    check: Callable[[Appended], None] = lambda _: None,
) -> Appended | None:
    """Appends the batch; None where the ledger has it already. `sieve` and `check`: see `ingest`."""
    events = tables.open_table(store, EVENTS)
    options = read_options(store, events)
    ingest.check_rows(options, rows, sieve)
    if tables.has_transaction(tables.open_table(store, LEDGER), batch.source, batch.last):
        return None
    done = Appended("known")
    if not tables.has_transaction(events, batch.source, batch.first):
        eps = ledger.level_eps(options.eps, 0)
        done = ingest.append_rows(store, rows, batch, next_step(store), eps=eps, sieve=sieve, check=check)
    if done.outcome == "known":
        # The rows came, and then a crash, or another process with the same batch.
        done.summaries = _summarise(spark, store, read_options(store), batch)
        done.rows = sum(one.rows for one in done.summaries)
    mine = ledger.append_batch(store, options.eps, batch.source, batch.last, done.summaries)
    return done if mine else None


def _summarise(spark: SparkSession, store: Store, options: Options, batch: Batches) -> list[TickSummary]:
    """A summary of each tick that the batch touched, from its rows in `events`."""
    eps = ledger.level_eps(options.eps, 0)
    found = event_files(tables.open_table(store, EVENTS), [batch])
    work = [
        tasks.SummariseTask(store, options, (batch,), tuple(shares), eps)
        for shares in share_out(store.filesystem(), found, tasks.SORT_ROWS // len(options.measures))
    ]
    summaries = Summaries(options, eps)
    for part in tasks.run(spark, work):
        summaries.join(part)
    return summaries.finish()
