"""One batch of a stream: rows into `events`, their summaries by tick into the ledger.

Both are idempotent by (source, batch), so a batch that is replayed after a crash counts once.
The batch exists for readers and loads from the ledger's commit on. The tasks that write the rows
summarise them on the way; only a batch that crashed between the two commits is read again.

What data can make fail is done before the first commit, ledger rows and all: what would fail once would
fail with every replay, and the stream could never go on. After it there is only input and output.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import chain
from typing import TYPE_CHECKING

from tidemark.warehouse.delta import tables
from tidemark.warehouse.delta.store import EVENTS, LEDGER, REJECTED, Store
from tidemark.warehouse.errors import InputError
from tidemark.warehouse.events.reader import BatchRange, files_of_batches, rows_by_batch, split_row_groups
from tidemark.warehouse.execution.executors import Executor, Input, executor_for
from tidemark.warehouse.ingest import append_rows, batch_numbers, rejected
from tidemark.warehouse.ingest.append_rows import Appended
from tidemark.warehouse.ingest.row_filter import TAKE_ALL, Sieve
from tidemark.warehouse.ledger import ledger_table
from tidemark.warehouse.ledger.batch_summaries import TickSummary, by_tick
from tidemark.warehouse.load import BULK, next_step
from tidemark.warehouse.loads import tasks
from tidemark.warehouse.os_errors import report_os_errors
from tidemark.warehouse.settings.options import Options, read_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tidemark.warehouse.execution.arrow_inputs import LocalRows


def append(
    spark: SparkSession | None,
    uri: str | os.PathLike[str],
    rows: DataFrame | LocalRows,
    *,
    source: str,
    batch: int,
    storage_options: dict[str, str] | None = None,
) -> bool:
    """Appends one batch of a source; False where the warehouse has it already.

    `spark` and `rows` are as for `warehouse.load`: a session and a DataFrame of it; or None, and a pyarrow
    Table, RecordBatch or RecordBatchReader, or the path of a Parquet file or folder.

    `batch` is the source's own number, from 0 on; numbers rise, and may leave some out. A batch that comes
    again is a replay and changes nothing. Rows whose time, measures or key are timestamps or dates outside
    the years 1 to 9999 go to `rejected`. InputError for rows that do not fit the warehouse's columns, and for
    a number below one that is there that was never used.
    """
    if isinstance(batch, bool) or not isinstance(batch, int) or batch < 0:
        raise InputError(f"batch must be a whole number from 0 on, got {batch!r}.")
    store = Store.from_uri(uri, storage_options)
    executor = executor_for(spark)
    name = BatchRange(checked_source(source), batch, batch)
    return append_batch(executor, store, executor.input(rows), name) is not None


def checked_source(source: object) -> str:
    """The name of a stream."""
    if not isinstance(source, str) or not source or source.startswith(BULK):
        raise InputError(f"source must be a name that does not start with {BULK!r}, got {source!r}.")
    return source


@report_os_errors("append")
def append_batch(
    executor: Executor,
    store: Store,
    rows: Input,
    batch: BatchRange,
    *,
    sieve: Sieve = TAKE_ALL,
    check: Callable[[Appended], None] = lambda _: None,
) -> Appended | None:
    """Appends the batch; None where the warehouse has it already. `sieve` and `check`: see `ingest`."""
    events = tables.open_table(store, EVENTS)
    options = read_options(store, events)
    append_rows.check_rows(options, rows, sieve)
    held = tables.open_table(store, LEDGER)
    place = batch_numbers.place_of(store, events, held, batch)
    if place == "known":
        return None
    if place == "unfinished":
        return _finish(executor, store, options, batch)
    if place == "unproved":
        _check_without_rows(store, rows, batch, sieve)
        return None
    before = tables.newest_transaction(events, batch.source)
    if before > tables.newest_transaction(held, batch.source):
        _finish(executor, store, options, BatchRange(batch.source, before, before))
        held = tables.open_table(store, LEDGER)
    prepared: list[ledger_table.Prepared] = []

    def prepare(done: Appended) -> None:
        check(done)
        summaries = done.summaries
        prepared[:] = [ledger_table.prepare(store, held, options.eps, batch.source, batch.last, summaries)]

    eps = ledger_table.level_eps(options.eps, 0)
    done = append_rows.append_rows(store, rows, batch, next_step(store), eps=eps, sieve=sieve, check=prepare)
    if done.outcome == "known":  # another process has brought it, or a later one, meanwhile
        return append_batch(executor, store, rows, batch, sieve=sieve, check=check)
    if done.after > tables.newest_transaction(held, batch.source):
        _finish(executor, store, options, BatchRange(batch.source, done.after, done.after))
    ledger_table.append_batch(store, options.eps, batch.source, batch.last, done.summaries, *prepared)
    return done


def _check_without_rows(store: Store, rows: Input, batch: BatchRange, sieve: Sieve) -> None:
    """InputError where a batch of which nothing is there brings anything: it would be passed over."""
    found = append_rows.try_rows(store, rows, batch, next_step(store), sieve)
    told = rejected.has_rejected(tables.open_table(store, REJECTED), batch)
    if found.rows or (found.rejected and not told):
        raise batch_numbers.passed_over(batch, batch_numbers.newest(store, batch.source))


def _finish(executor: Executor, store: Store, options: Options, batch: BatchRange) -> Appended | None:
    """Writes the ledger rows of the batch, which `events` has, and of those before it that have none.

    A crash left them so, or a process that is about to write them itself. None where that was faster.
    """
    events, held = (tables.open_table(store, name) for name in (EVENTS, LEDGER))
    first = min(batch.first, tables.newest_transaction(held, batch.source) + 1)
    there = rows_by_batch(store.filesystem(), events, BatchRange(batch.source, first, batch.last))
    mine = False
    for number in sorted({*there, batch.last}):
        summaries = _summarise(executor, store, options, BatchRange(batch.source, number, number))
        mine = ledger_table.append_batch(store, options.eps, batch.source, number, summaries)
    return Appended("known", rows=there[batch.last], summaries=summaries) if mine else None


def _summarise(executor: Executor, store: Store, options: Options, batch: BatchRange) -> list[TickSummary]:
    """A summary of each tick that the batch touched, from its rows in `events`."""
    eps = ledger_table.level_eps(options.eps, 0)
    found = files_of_batches(tables.open_table(store, EVENTS), [batch])
    work = [
        tasks.SummariseTask(store, options, (batch,), tuple(shares), eps)
        for shares in split_row_groups(store.filesystem(), found, tasks.SORT_ROWS // len(options.measures))
    ]
    return by_tick(chain.from_iterable(executor.run(work)), eps)
