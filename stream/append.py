"""Appends one batch of a stream: first its rows to `events`, then their summaries by tick to the ledger.

Both commits are idempotent by (source, batch), so a batch that is replayed after a crash counts once. Readers
and loads see the batch from the ledger's commit on. The tasks that write the rows also summarise them; only
after a crash between the two commits are the rows read again.

Every step that can fail because of the data, including the encoding of the ledger rows, runs before the first
commit. Otherwise such a failure would repeat with every replay and block the stream. After the first commit
only I/O can fail.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tidemark.warehouse.columns.scalars import plain
from tidemark.warehouse.delta import tables
from tidemark.warehouse.delta.races import Race
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import EVENTS, LEDGER
from tidemark.warehouse.errors import (
    InputError,
    TooManyRejected,
    name_text,
    shortened,
    whole_number,
)
from tidemark.warehouse.events.reader import BULK, BatchRange, rows_by_batch
from tidemark.warehouse.execution.executors import Executor, Input, executor_for
from tidemark.warehouse.ingest import append_rows, batch_numbers, same_rows
from tidemark.warehouse.ingest.append_rows import Appended, GivenBatch
from tidemark.warehouse.ingest.batch_numbers import GREATEST_BATCH
from tidemark.warehouse.ingest.private_rows import with_tokens
from tidemark.warehouse.ingest.row_filter import DEFAULT_AHEAD, DEFAULT_FILTER, RowFilter, latest_time
from tidemark.warehouse.ledger import ledger_table
from tidemark.warehouse.load import step_tick
from tidemark.warehouse.loads.missing_summaries import summarise
from tidemark.warehouse.os_errors import report_os_errors
from tidemark.warehouse.settings.options import read_options
from tidemark.warehouse.sizes import Tuning
from tidemark.warehouse.work import Work

if TYPE_CHECKING:
    from datetime import timedelta

    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, SparkSession

    from tidemark.warehouse.execution.arrow_inputs import LocalRows


def append(  # noqa: PLR0913  the rows, and how they are taken
    spark: SparkSession | None,
    uri: str | os.PathLike[str],
    rows: DataFrame | LocalRows,
    *,
    source: str,
    batch: int,
    ahead: str | timedelta | None = DEFAULT_AHEAD,
    evolve: bool = False,
    storage_options: dict[str, str] | None = None,
    tuning: Tuning | None = None,
) -> bool:
    """Appends one batch of a source; returns False if the warehouse has the batch already.

    spark, rows      a session and its DataFrame; or None, and Arrow data (as for `warehouse.load`), or the
                     path of a Parquet file or folder, a pattern, or a list of these
    source           the unique name of the stream in the warehouse
    batch            the number of the batch in its source, from 0 to 2**63 - 2. Numbers must increase; gaps
                     are allowed
    ahead            rows whose time is further ahead of the clock are rejected; None takes any time
    evolve           whether columns that the warehouse lacks are added to it, and columns get the wider types
                     of the rows, as `warehouse.load` does
    storage_options, tuning
                     as for `warehouse.load`

    A batch that comes again is a replay and changes nothing; to compare the rows, the stored batch and the
    given one are read once. Two kinds of rows go to the table `rejected`: those too far ahead of the clock;
    and those with a timestamp or date outside the years 1 to 9999 in the time, a measure or a key. Raises
    BatchMismatch if a batch comes again with other rows (their order does not matter); InputError for rows
    that do not fit the warehouse's columns, and for a new batch whose number is below the newest one of the
    source. Then nothing was changed.
    """
    batch = plain(batch)
    whole_number("batch", batch, 0, GREATEST_BATCH)
    store = Store.from_uri(uri, storage_options, tuning)
    executor = executor_for(spark, store.tuning)
    name = BatchRange(checked_source(source), batch, batch)
    row_filter = RowFilter(latest_time(plain(ahead)))
    given = executor.input(rows)
    return append_batch(executor, store, given, name, row_filter=row_filter, evolve=evolve) is not None


def checked_source(source: Any) -> str:
    """The name of a stream; InputError if it is not valid."""
    name = name_text("source", source)
    if name.startswith(BULK):
        raise InputError(f"source must be a name that does not start with {BULK!r}, got {shortened(source)}.")
    return name


def append_batch(
    executor: Executor,
    store: Store,
    rows: Input,
    batch: BatchRange,
    *,
    row_filter: RowFilter = DEFAULT_FILTER,
    max_rejected_fraction: float | None = None,
    same_records: bool = False,
    evolve: bool = False,
) -> Appended | None:
    """Appends the batch; None if the warehouse has it already.

    `row_filter` selects the rows to reject. TooManyRejected if their share is above `max_rejected_fraction`.
    `same_records` says that a batch which comes again has the records of the first time: a checkpoint has
    their offsets. Otherwise its rows are compared, and BatchMismatch is raised where they differ. With
    `evolve`, columns that the warehouse lacks are added, and columns get the wider types of the rows.
    """
    with report_os_errors("append"):
        found, known = tables.find_tables(store, EVENTS, LEDGER)
        # Its error tells more than that of a table, if this is no warehouse.
        options = read_options(store, found)
        events, ledger = found or tables.open_table(store, EVENTS), known or tables.open_table(store, LEDGER)
        executor.check_sendable(options.companions.known_kinds())
        work = Work(executor, store, options)
        given = GivenBatch(
            with_tokens(rows, options), batch, row_filter, ledger_table.level_eps(options.eps, 0), evolve
        )
        given.check_columns(options)
        state = batch_numbers.state_of(store, events, ledger, batch)
        if state == "new":
            done = _append_new(work, given, events, ledger, max_rejected_fraction)
            if done is None or done.outcome != "known":
                return done
            events, ledger = tables.open_tables(store, EVENTS, LEDGER)
            work = replace(work, options=read_options(store, events))
            state = batch_numbers.state_of(store, events, ledger, batch)
        if state == "unproved" or not same_records:
            different = same_rows.difference(work, given)
            if different:
                raise batch_numbers.other_rows_error(store, batch, state, different)
        return _finish(work, batch) if state == "unfinished" else None


def _append_new(
    work: Work,
    given: GivenBatch,
    events: DeltaTable,
    ledger: DeltaTable,
    max_rejected_fraction: float | None,
) -> Appended | None:
    """Appends a batch that neither `events` nor `ledger`, both opened, have.

    The outcome is 'known' if another process has meanwhile appended this batch or a later one. None if
    another process found our rows without ledger rows, and wrote the ledger rows.
    """
    store, eps = work.store, work.options.eps
    source, number = given.batch.source, given.batch.last
    previous = tables.newest_transaction(events, source)
    if previous > tables.newest_transaction(ledger, source):
        _finish(work, BatchRange(source, previous, previous))
        ledger = tables.open_table(store, LEDGER)
    race, tick, done = Race(store, EVENTS, events), step_tick(work), None
    while done is None:
        written = append_rows.write(store, given, tick, race.table)
        _check_fraction(written.result, max_rejected_fraction, source, number)
        prepared = ledger_table.prepare(store, ledger, eps, source, number, written.result.summaries)
        done = append_rows.commit(work, race, written)
    if done.outcome == "known":
        return done
    if done.after > tables.newest_transaction(ledger, source):
        _finish(work, BatchRange(source, done.after, done.after))
    is_first = ledger_table.append_batch(store, eps, source, number, done.summaries, prepared, first=ledger)
    tables.give_back(race.table, ledger)
    return done if is_first else None


def _check_fraction(done: Appended, limit: float | None, source: str, batch: int) -> None:
    """TooManyRejected if the share of rejected rows is above the limit; None allows any share."""
    total = done.rows + done.rejected
    if limit is not None and total and done.rejected > limit * total:
        raise TooManyRejected(
            f"batch {batch} of {shortened(source)}: {done.rejected} of {total} records cannot be taken, more "
            f"than the fraction {limit} that is allowed. Nothing of the batch was committed. Mend the source "
            "or the format and start again, or allow more (max_rejected_fraction)."
        )


def _finish(work: Work, batch: BatchRange) -> Appended | None:
    """Writes the missing ledger rows of the batch and of earlier batches whose rows are in `events`.

    They are missing after a crash, or while another process is about to write them. Returns None if the other
    process was faster.
    """
    store = work.store
    events, ledger = (tables.open_table(store, name) for name in (EVENTS, LEDGER))
    options = read_options(store, events)  # an earlier batch may have added the columns
    work = replace(work, options=options)
    first = min(batch.first, tables.newest_transaction(ledger, batch.source) + 1)
    row_counts = rows_by_batch(store, events, BatchRange(batch.source, first, batch.last))
    written = False
    for number in sorted({*row_counts, batch.last}):
        summaries = summarise(work, BatchRange(batch.source, number, number))
        written = ledger_table.append_batch(store, options.eps, batch.source, number, summaries)
    return Appended("known", rows=row_counts[batch.last], summaries=summaries) if written else None
