"""Appends the rows of one batch to `events`, once.

Tasks write the rows in the order they come, at most one file of `events` per task. One commit adds all the
files. It records (source, batch) as an application transaction of the table, and it succeeds only as the
version after the one it was planned for (optimistic concurrency). A batch that is appended again, or by two
processes at once, finds its transaction in the table and is not added twice.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Literal

import pyarrow as pa
from deltalake import DeltaTable, Field, Schema
from deltalake.transaction import AddAction

from tidemark.warehouse.columns.schema import column_types
from tidemark.warehouse.delta import own_files, tables
from tidemark.warehouse.delta.store import EVENTS, REJECTED, Store
from tidemark.warehouse.events.reader import BatchRange
from tidemark.warehouse.execution.executors import Input
from tidemark.warehouse.ingest.column_casts import check_columns
from tidemark.warehouse.ingest.event_files import WriteRows, WrittenFile
from tidemark.warehouse.ingest.rejected import RECORD_COLUMNS, has_rejected
from tidemark.warehouse.ingest.row_filter import DEFAULT_FILTER, RefusedRows, RowFilter, refused_error
from tidemark.warehouse.ledger.batch_summaries import TickSummary, by_tick
from tidemark.warehouse.settings.options import Options, read_options


@dataclass(slots=True)
class Appended:
    """What an append did.

    outcome    'appended'; 'empty' if no row was taken; 'known' if `events` had the batch or a later batch of
               its source already: then nothing was added
    rows       how many rows were taken
    rejected   how many rows were refused
    summaries  those of the rows taken, by tick, for a batch of a stream
    nulls      by column, how many of the rows taken are NULL there; columns without NULL are left out
    after      the newest batch of the source in `events` before this one; -1 if there was none
    """

    outcome: Literal["appended", "known", "empty"]
    rows: int = 0
    rejected: int = 0
    summaries: list[TickSummary] = field(default_factory=list)
    nulls: dict[str, int] = field(default_factory=dict)
    after: int = -1


def append_rows(
    store: Store,
    rows: Input,
    batch: BatchRange,
    step: int,
    *,
    eps: float | None = None,
    row_filter: RowFilter = DEFAULT_FILTER,
    check: Callable[[Appended], None] = lambda _: None,
    first: DeltaTable | None = None,
) -> Appended:
    """Appends the rows as a batch, unless `events` has it or a later batch of its source already.

    A warehouse without columns gets the columns of the rows first.

    step        the tick of the rows, if the warehouse has no time column
    eps         the rank error of the summaries, for a batch of a stream: its rows are summarised while they
                are written, and its number is committed even if there are no rows; None for a bulk load
    row_filter  decides which rows are taken; the others are added to `rejected`, once
    check       called before the commits with the result they will have; an error that it raises stops them
    first       `events`, opened before, for the first try

    Raises InputError for rows that do not fit the warehouse's columns.
    """

    def attempt(events: DeltaTable) -> Appended:
        options = read_options(store, events)
        check_rows(options, rows, row_filter)
        new_fields = [] if options.columns else _user_fields(rows, row_filter)
        if new_fields:
            options = replace(options, columns=tuple(column_types(new_fields).items()))
        schema = pa.schema(Schema([*events.schema().fields, *new_fields]))

        def write(_: object = None) -> _Written:
            return _write(store, options, schema, rows, batch, step, eps, row_filter)

        appended, files, refused_files = write()
        check(appended)
        if eps is None:
            written = (appended, files, refused_files)
            appended, files, _ = own_files.until_kept(store, written, _paths, write, before_commit=True)
        if refused_files:
            _reject(store, batch, refused_files)
        if not files and eps is None:
            return appended
        if new_fields and files:
            tables.add_columns(events, new_fields)  # loses the race if another first batch added its columns
        if not _commit(store, batch, files, appended, None if new_fields else events):
            appended.outcome = "known"
        elif eps is None:
            _keep_committed(store, (appended, files, refused_files), write)
        return appended

    return tables.retry_lost_races(store, EVENTS, attempt, first)


_Written = tuple[Appended, list[AddAction], list[AddAction]]


def _paths(written: _Written) -> list[str]:
    return [f"{EVENTS}/{action.path}" for action in written[1]]


def _keep_committed(store: Store, written: _Written, write: Callable[[], _Written]) -> None:
    """Replaces the files of a committed batch that were gone before the commit."""

    def replace_lost(lost: _Written) -> _Written:
        again, gone = write(), {action.path for action in lost[1]}

        def attempt(table: DeltaTable) -> None:
            removed = [tables.remove_action(file) for file in tables.list_files(table) if file.path in gone]
            if removed:
                tables.commit(table, [*removed, *again[1]])

        tables.retry_lost_races(store, EVENTS, attempt)
        return again

    own_files.until_kept(store, written, _paths, replace_lost)


def _commit(
    store: Store, batch: BatchRange, files: list[AddAction], appended: Appended, first: DeltaTable | None
) -> bool:
    """Commits the batch and sets `appended.after`; returns False if `events` has the batch already."""

    def actions(table: DeltaTable) -> list[AddAction]:
        appended.after = tables.newest_transaction(table, batch.source)
        return files

    return tables.commit_once(store, EVENTS, batch.source, batch.first, actions, first=first)


def _reject(store: Store, batch: BatchRange, files: list[AddAction]) -> None:
    source, number = batch.source, batch.first
    tables.commit_once(
        store, REJECTED, source, number, lambda _: files, known=lambda table: has_rejected(table, batch)
    )


def _write(
    store: Store,
    options: Options,
    schema: pa.Schema,
    rows: Input,
    batch: BatchRange,
    step: int,
    eps: float | None,
    row_filter: RowFilter,
) -> tuple[Appended, list[AddAction], list[AddAction]]:
    """Writes the files of the rows taken and refused; returns the outcome and the add actions of both."""
    write = WriteRows(store, schema, batch, options, step, row_filter, eps, options.companions)
    names = [*(name for name, _ in options.columns), *(RECORD_COLUMNS if row_filter.reasons else ())]
    outputs: list[WrittenFile | RefusedRows] = rows.each(names, write)
    written = [output for output in outputs if isinstance(output, WrittenFile)]
    refused = [output for output in outputs if isinstance(output, RefusedRows)]
    if refused:
        raise refused_error(refused, sum(part.file.rows for part in written) + sum(p.count for p in refused))
    files = {kind: [output.file for output in written if output.kind == kind] for kind in (EVENTS, REJECTED)}
    counts = {kind: sum(file.rows for file in files[kind]) for kind in files}
    appended = Appended(
        outcome="appended" if counts[EVENTS] else "empty",
        rows=counts[EVENTS],
        rejected=counts[REJECTED],
        summaries=by_tick(chain.from_iterable(output.summaries for output in written), eps or 0.0),
        nulls=dict(sum((Counter(json.loads(file.nulls)) for file in files[EVENTS]), Counter())),
    )
    return appended, [file.action() for file in files[EVENTS]], [file.action() for file in files[REJECTED]]


def _user_fields(rows: Input, row_filter: RowFilter) -> list[Field]:
    """The columns of the rows without RECORD_COLUMNS, which only rows with reasons have."""
    return rows.fields(*(RECORD_COLUMNS if row_filter.reasons else ()))


def check_rows(options: Options, rows: Input, row_filter: RowFilter = DEFAULT_FILTER) -> None:
    """InputError unless the rows have the warehouse's columns, in any order, of types that fit."""
    check_columns(options, _user_fields(rows, row_filter))


def has_batch(events: DeltaTable, batch: BatchRange) -> bool:
    """Whether `events` has the batch."""
    return tables.has_transaction(events, batch.source, batch.first)
