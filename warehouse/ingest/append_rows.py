"""Ingest: the rows of one batch into `events`, once.

Tasks write the rows as they come, one file a task, and one commit adds them all. It carries
(source, batch) as the table's application transaction and succeeds only as the very next version,
so a batch that comes again, or twice at once, finds itself there.
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
from tidemark.warehouse.delta import tables
from tidemark.warehouse.delta.commits import contend
from tidemark.warehouse.delta.store import EVENTS, REJECTED, Store
from tidemark.warehouse.events.reader import Batches
from tidemark.warehouse.execution.executors import Input
from tidemark.warehouse.ingest.column_casts import check_columns
from tidemark.warehouse.ingest.event_files import WriteRows, WrittenFile
from tidemark.warehouse.ingest.rejected import has_rejected
from tidemark.warehouse.ingest.row_filter import DEFAULT_FILTER, RowFilter
from tidemark.warehouse.ledger.batch_summaries import TickSummary, by_tick
from tidemark.warehouse.settings.options import Options, read_options

RECORD_COLUMNS = ("_position", "_raw", "_reason")  # what a parser tells of a record beside its columns


@dataclass(slots=True)
class Appended:
    """What an append did: how many rows were taken and refused, and the summaries of those taken.

    `outcome` is 'known' where `events` had the batch already, or a later one of its source: then nothing is
    known of its rows. `nulls` says in how many of the rows taken each column is NULL, of those that are so
    in any. `after` is the newest batch of the source that `events` had before; -1 where there was none.
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
    batch: Batches,
    step: int,
    *,
    eps: float | None = None,
    row_filter: RowFilter = DEFAULT_FILTER,
    check: Callable[[Appended], None] = lambda _: None,
) -> Appended:
    """Appends the rows as that batch, unless `events` has it already, or a later one of its source.

    A warehouse without columns gets those of the rows first. `step` is the tick where there is no
    time. With `eps` it is a batch of a stream: its rows are summarised on the way, and its number is
    committed though there are no rows. What the row_filter keeps back goes to `rejected`, once. `check` is told
    what is about to be committed and may refuse it, by an error.
    """

    def attempt() -> Appended:
        events = tables.open_table(store, EVENTS)
        options = read_options(store, events)
        check_rows(options, rows, row_filter)
        new = [] if options.columns else _own(rows, row_filter)
        known = replace(options, columns=tuple(column_types(new).items())) if new else options
        schema = pa.schema(Schema([*events.schema().fields, *new]))
        done, files, refused = _write(store, known, schema, rows, batch, step, eps, row_filter)
        check(done)
        if refused:
            _reject(store, batch, refused)
        if not files and eps is None:
            return done
        if new and files:
            tables.add_columns(events, new)  # a lost race: another first batch has brought its columns
        if not _commit(store, batch, files, done):
            done.outcome = "known"
        return done

    return contend(EVENTS, attempt)


def dry_run(store: Store, rows: Input, batch: Batches, step: int, row_filter: RowFilter) -> Appended:
    """What an append of the rows would do; nothing is committed."""
    events = tables.open_table(store, EVENTS)
    schema = pa.schema(events.schema())
    return _write(store, read_options(store, events), schema, rows, batch, step, None, row_filter)[0]


def _commit(store: Store, batch: Batches, files: list[AddAction], done: Appended) -> bool:
    def actions(table: DeltaTable) -> list[AddAction]:
        done.after = tables.newest_transaction(table, batch.source)
        return files

    return tables.commit_once(store, EVENTS, batch.source, batch.first, actions)


def _reject(store: Store, batch: Batches, files: list[AddAction]) -> None:
    source, number = batch.source, batch.first
    tables.commit_once(
        store, REJECTED, source, number, lambda _: files, known=lambda table: has_rejected(table, batch)
    )


def _write(
    store: Store,
    options: Options,
    schema: pa.Schema,
    rows: Input,
    batch: Batches,
    step: int,
    eps: float | None,
    row_filter: RowFilter,
) -> tuple[Appended, list[AddAction], list[AddAction]]:
    """Writes the files of the rows, and of those refused; their add actions."""
    work = WriteRows(store, schema, batch, options, step, row_filter, eps)
    names = [*(name for name, _ in options.columns), *(RECORD_COLUMNS if row_filter.reasons else ())]
    found: list[WrittenFile] = rows.each(names, work)
    files = {kind: [one.file for one in found if one.kind == kind] for kind in (EVENTS, REJECTED)}
    counts = {kind: sum(one.rows for one in files[kind]) for kind in files}
    done = Appended(
        outcome="appended" if counts[EVENTS] else "empty",
        rows=counts[EVENTS],
        rejected=counts[REJECTED],
        summaries=by_tick(chain.from_iterable(one.summaries for one in found), eps or 0.0),
        nulls=dict(sum((Counter(json.loads(one.nulls)) for one in files[EVENTS]), Counter())),
    )
    return done, [one.action() for one in files[EVENTS]], [one.action() for one in files[REJECTED]]


def _own(rows: Input, row_filter: RowFilter) -> list[Field]:
    """The columns of the rows without what is told of their records."""
    return rows.fields(*(RECORD_COLUMNS if row_filter.reasons else ()))


def check_rows(options: Options, rows: Input, row_filter: RowFilter = DEFAULT_FILTER) -> None:
    """The rows have the warehouse's columns, in any order, of types that fit without loss."""
    check_columns(options, _own(rows, row_filter))


def has_batch(store: Store, batch: Batches) -> bool:
    """Whether `events` holds the batch."""
    return tables.has_transaction(tables.open_table(store, EVENTS), batch.source, batch.first)
